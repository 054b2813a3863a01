"""One flow as its workers run it: by the settings that are stored on its target, with the addresses of the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mm2py.config.configuration import SettingsFile
from mm2py.config.flow_properties import ENABLED, StoredConfigUnusable
from mm2py.config.settings import FlowSettings
from mm2py.flow import Flow
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused
from mm2py.records.connector_config import FlowConfig, Writer
from mm2py.records.source_offset import StoredPosition
from mm2py.records.status_record import Gap
from mm2py.replication.positions.store import PositionTable
from mm2py.replication.status_log import StatusTable
from mm2py.settings.config_log import ConfigTable
from mm2py.settings.follow import merged
from mm2py.status.asking import Side
from mm2py.status.facts import FlowFacts, Key
from mm2py.status.source_inquiry import SourceInquiry


class TargetInquiry:
    """What a flow keeps on its target: positions and gaps. Where a topic is missing the flow has not run."""

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


class StoredInquiry:
    """The settings of a flow as they are stored on its target."""

    def __init__(self, settings: FlowSettings, target: Side) -> None:
        self.unread = ""
        """Why they cannot be read. Then ``config`` has those that were read last."""
        self._target = target
        self._table = ConfigTable(target.brokers, settings.configs_topic)

    @property
    def config(self) -> FlowConfig | None:
        """None: mm2py has stored nothing. Workers ignore what MirrorMaker 2 writes over the settings of mm2py."""
        stored = self._table.config
        return stored.previous if stored is not None and stored.by is Writer.MM2 else stored

    async def look(self) -> None:
        """Read what is new, and note what cannot be read."""
        self.unread = await self._target.why_not(f"reading {self._table.topic}", self._read)

    async def _read(self) -> None:
        await self._table.read()


class FlowInquiry:
    """All of one flow. When other settings are stored it starts again: positions, gaps or topics may be elsewhere."""

    def __init__(self, file: SettingsFile, settings: FlowSettings, target: Side, source: Side) -> None:
        self._file = file
        self._by_file = settings
        self._target_side = target
        self._source_side = source
        self._stored = StoredInquiry(settings, target)
        self._known: FlowConfig | None = None
        self._unusable = ""
        self._begin(settings)

    @property
    def flow(self) -> Flow:
        return self._by_file.flow

    async def look(self) -> FlowFacts:
        """Ask both clusters, and return what they say."""
        await self._stored.look()
        if self._stored.config != self._known:
            self._known = self._stored.config
            self._begin(self._settings())
        await self._target.look()
        # After the positions, so that no end is older than a position.
        await self._source.look(self._target.positions, with_starts=not self._target.positions_unread)
        return FlowFacts(
            self._shown,
            positions=self._target.positions,
            gaps=self._target.gaps,
            selected=self._source.selected,
            starts=self._source.starts,
            ends=self._source.ends,
            positions_unread=self._target.positions_unread,
            status_unread=self._target.status_unread,
            source_unread=tuple(self._source.unread),
            stored=self._known,
            file=self._file.shared(self.flow),
            config_unread=self._stored.unread,
            config_unusable=self._unusable,
        )

    def _settings(self) -> FlowSettings:
        """Return the settings by which the workers run; of a flow that is switched off, those by which they would."""
        self._unusable = ""
        if self._known is None:
            return self._by_file
        switched_on = {**self._known.properties, ENABLED: "true"}
        try:
            return merged(self._file, self.flow, replace(self._known, properties=switched_on)) or self._by_file
        except StoredConfigUnusable as error:
            self._unusable = str(error)
            return self._by_file

    def _begin(self, settings: FlowSettings) -> None:
        self._shown = settings
        self._target = TargetInquiry(settings, self._target_side)
        self._source = SourceInquiry(settings, self._source_side)
