"""What a flow keeps on its target: positions and gaps. Read as tables, going on where the last look ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mm2py.config.settings import FlowSettings
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused
from mm2py.records.source_offset import StoredPosition
from mm2py.records.status_record import Gap
from mm2py.replication.position_store import PositionTable
from mm2py.replication.status_log import StatusTable
from mm2py.status.asking import Side
from mm2py.status.facts import Key


class TargetInquiry:
    """Of one flow. A topic that is not there holds nothing: the flow has not run."""

    def __init__(self, settings: FlowSettings, target: Side) -> None:
        self.positions_unread = ""
        self.status_unread = ""
        self._target = target
        self._topic = settings.offsets_topic
        self._source = settings.source.alias
        self._positions = PositionTable(settings.source.alias)
        self._status = StatusTable(target.brokers, settings.status_topic)
        self._without_leader = 0

    @property
    def positions(self) -> Mapping[Key, StoredPosition]:
        return self._positions.positions

    @property
    def gaps(self) -> Sequence[Gap]:
        return self._status.gaps()

    async def look(self) -> None:
        """Read what is new, and note what cannot be read."""
        self.positions_unread = await self._target.why_not(f"reading {self._topic}", self._read_positions)
        if not self.positions_unread and self._without_leader:
            self.positions_unread = f"{self._without_leader} partition(s) of {self._topic} have no leader."
        self.status_unread = await self._target.why_not(f"reading {self._status.topic}", self._read_status)

    async def _read_positions(self) -> None:
        found = (await fetch_metadata(self._target.brokers, [self._topic])).topics.get(self._topic)
        self._without_leader = 0
        if found is None or found.error_code == UNKNOWN_TOPIC_OR_PARTITION:
            self._positions = PositionTable(self._source)
            return
        if found.error_code:
            remedy = f"mm2py needs DESCRIBE and READ on {self._topic}."
            raise BrokerRefused(f"Reading {self._topic}", found.error_code, remedy=remedy)
        led = {number: part for number, part in found.partitions.items() if part.leader is not None}
        self._without_leader = len(found.partitions) - len(led)
        await self._positions.read(self._target.brokers, replace(found, partitions=led))

    async def _read_status(self) -> None:
        await self._status.read()
