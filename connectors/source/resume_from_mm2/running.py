"""Refuses to run a flow that a running MirrorMaker 2 copies: both would copy every record.

MirrorMaker 2 runs a worker for every pair of clusters that has heartbeats: one that copies A->B only is also a member
of group ``B-mm2`` on A. What the members of that group are assigned does not tell whether they copy: Connect's
assignments name what is new, and leave out what goes on. Their settings tell. Two records of the configs topic must
agree before the group counts as harmless: the source connector is not enabled, and it has no task. What cannot be read
counts as copying.

Source: KafkaConfigBackingStore, Apache Kafka, connect/runtime; MirrorSourceConnector.taskConfigs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from connectors.source.errors import Mm2IsRunning
from mm2py.config.settings import FlowSettings
from mm2py.errors import Mm2Error
from mm2py.kafka import admin
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.port import Brokers
from mm2py.kafka.retry import Reaction
from mm2py.replication.reading.compacted_topic import read_table

CONNECT: Final = "connect"
"""The protocol type of Connect's groups."""
SETTINGS_KEY: Final = b"connector-MirrorSourceConnector"
TASKS_KEY: Final = b"commit-MirrorSourceConnector"


async def refuse_running_mm2(settings: FlowSettings, brokers: Brokers, log: FilteringBoundLogger) -> None:
    """Raise Mm2IsRunning if the group in which MirrorMaker 2 runs this flow has members that copy it.

    Members that only emit its heartbeats do no harm: the heartbeats are then written twice.
    """
    group = settings.mm2_group_id
    try:
        coordinator = await admin.find_coordinator(brokers, group, transactions=False)
        found = await admin.describe_group(brokers, coordinator, group)
    except BrokerRefused as error:
        if error.reaction is Reaction.DENIED:
            log.warning(
                "mm2.unknown", why=str(error), remedy=f"Grant DESCRIBE on group {group}, or make sure no MM2 runs."
            )
            return
        raise
    if not found.members:
        return
    is_connect = found.protocol_type == CONNECT
    if not is_connect or not await only_emits_heartbeats(settings.configs_topic, brokers):
        raise Mm2IsRunning(settings.flow, group, found.members)
    log.info("mm2.only_heartbeats", group=group, effect="MirrorMaker 2 and mm2py both emit the heartbeats of this pair")


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
