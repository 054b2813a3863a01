"""Whether the members of MirrorMaker 2's group copy a flow, or only emit its heartbeats.

MirrorMaker 2 runs a worker for every pair of clusters that has heartbeats: one that copies A->B only is also a member
of group ``B-mm2`` on A. What such a group is assigned does not tell (Connect's assignments name what is new, and leave
out what goes on); what it is set to does. Two records of its configs topic have to agree before it is taken for
harmless: the source connector is not enabled, and has no task. Whatever cannot be read counts as copying: two that copy
would write everything twice.

Source: KafkaConfigBackingStore, Apache Kafka, connect/runtime; MirrorSourceConnector.taskConfigs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from mm2py.errors import Mm2Error
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.errors import KafkaError
from mm2py.kafka.port import Brokers
from mm2py.replication.compacted_topic import read_table

CONNECT: Final = "connect"
"""The protocol type of Connect's groups."""
SETTINGS_KEY: Final = b"connector-MirrorSourceConnector"
TASKS_KEY: Final = b"commit-MirrorSourceConnector"


def is_switched_off(configs: Mapping[bytes, bytes | None]) -> bool:
    """Return whether the source connector is set not to copy and has no task, by the last value of each key."""
    if SETTINGS_KEY not in configs:
        return False  # its worker is just starting
    settings, tasks = configs[SETTINGS_KEY], configs.get(TASKS_KEY)
    try:
        enabled = settings is not None and _object(settings)["properties"]["enabled"].strip().lower() != "false"
        return not enabled and (tasks is None or _object(tasks)["tasks"] == 0)
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


def _object(value: bytes) -> Any:
    return json.loads(value)


async def only_emits_heartbeats(configs_topic: str, brokers: Brokers) -> bool:
    """Return whether a MirrorMaker 2 certainly does not copy the flow whose settings are in that topic.

    Raises:
        KafkaError: the target did not answer, ask again.
    """
    configs: dict[bytes, bytes | None] = {}

    def take(key: bytes | None, value: bytes | None) -> None:
        if key in (SETTINGS_KEY, TASKS_KEY):
            configs[key] = value

    try:
        topic = (await fetch_metadata(brokers, [configs_topic])).topics.get(configs_topic)
        if topic is None or topic.error_code:
            return False
        await read_table(brokers, topic, take)
    except Mm2Error as error:
        if isinstance(error, KafkaError) and error.retriable:
            raise
        return False
    return is_switched_off(configs)
