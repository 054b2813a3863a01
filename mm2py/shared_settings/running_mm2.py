"""Whether a live MirrorMaker 2 runs a flow. If it does, mm2py neither copies the flow nor writes what it reads.

MirrorMaker 2 cannot be fenced, because its producers have no transactional id. So workers look before they copy, and
``mm2py apply`` and REST before they write: a live MirrorMaker 2 follows ``mm2-configs.A.internal``, too.

MirrorMaker 2 runs a worker for every pair of clusters that has heartbeats: one that copies A->B only is also a member
of group ``B-mm2`` on A. Its assignments do not show whether it copies, because Connect's assignments leave out tasks
that continue. Its settings do. The group is harmless if two records of the configs topic agree: the source connector is
not enabled, and it has no task. A record that cannot be read counts as copying.

Source: KafkaConfigBackingStore, Apache Kafka, connect/runtime; MirrorSourceConnector.taskConfigs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.config.settings import FlowSettings
from mm2py.copying.reading.internal_table import read_table
from mm2py.errors import Mm2Error
from mm2py.flow import Flow
from mm2py.kafka import admin
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.errors import BrokerRefused, KafkaError, Reaction
from mm2py.kafka.port import Brokers

CONNECT: Final = "connect"
"""The protocol type of Connect's groups."""
SETTINGS_KEY: Final = b"connector-MirrorSourceConnector"
TASKS_KEY: Final = b"commit-MirrorSourceConnector"


class Mm2IsRunning(Mm2Error):
    """A live MirrorMaker 2 copies this flow. REST answers 409."""

    def __init__(self, flow: Flow, group: str, members: int) -> None:
        super().__init__(
            f"Flow {flow} is refused: MirrorMaker 2 runs it, group {group} on {flow.target} has {members} member(s).",
            remedy="Stop MirrorMaker 2 for this flow first: mm2py then goes on from MirrorMaker 2's positions.",
        )
        self.group = group
        self.members = members


@dataclass(frozen=True, slots=True)
class Mm2Look:
    """What was found out, if nothing forbids to continue."""

    group: str
    """The group in which MirrorMaker 2 would run the flow."""
    emits_heartbeats: bool = False
    """A MirrorMaker 2 runs, and only emits heartbeats: these are then written twice, which does no harm."""
    unknown: str = ""
    """Why it is not known whether one runs; empty: it is known."""

    @property
    def remedy(self) -> str:
        """What to do if it is unknown."""
        return f"Grant DESCRIBE on group {self.group}, or make sure no MM2 runs."


async def look_for_mm2(settings: FlowSettings, brokers: Brokers) -> Mm2Look:
    """Check whether the group in which MirrorMaker 2 runs this flow has members that copy it.

    Raises:
        Mm2IsRunning: it has.
        KafkaError: the target did not answer, ask again.
    """
    group = settings.mm2_group_id
    try:
        coordinator = await admin.find_coordinator(brokers, group, transactions=False)
        found = await admin.describe_group(brokers, coordinator, group)
    except BrokerRefused as error:
        if error.reaction is Reaction.DENIED:
            return Mm2Look(group, unknown=str(error))
        raise
    if not found.members:
        return Mm2Look(group)
    if found.protocol_type != CONNECT or not await only_emits_heartbeats(settings.configs_topic, brokers):
        raise Mm2IsRunning(settings.flow, group, found.members)
    return Mm2Look(group, emits_heartbeats=True)


async def refuse_running_mm2(settings: FlowSettings, brokers: Brokers, log: FilteringBoundLogger) -> None:
    """Look for MirrorMaker 2, and log what was found if nothing forbids to continue. Raises: as ``look_for_mm2``."""
    found = await look_for_mm2(settings, brokers)
    if found.unknown:
        log.warning("mm2.unknown", why=found.unknown, remedy=found.remedy)
    elif found.emits_heartbeats:
        effect = "MirrorMaker 2 and mm2py both emit the heartbeats of this pair"
        log.info("mm2.only_heartbeats", group=found.group, effect=effect)


def is_switched_off(configs: Mapping[bytes, bytes | None]) -> bool:
    """Return whether the source connector is set not to copy and has no task, by the last value of each key."""
    if SETTINGS_KEY not in configs:
        return False  # its worker has just started
    settings, tasks = configs[SETTINGS_KEY], configs.get(TASKS_KEY)
    try:
        enabled = settings is not None and json.loads(settings)["properties"]["enabled"].strip().lower() != "false"
        return not enabled and (tasks is None or json.loads(tasks)["tasks"] == 0)
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


async def only_emits_heartbeats(configs_topic: str, brokers: Brokers) -> bool:
    """Return whether MirrorMaker 2 certainly does not copy the flow whose settings are in that topic.

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
