"""One flow as its workers run it: by what is stored of it on its target, reached with the addresses of the file."""

from __future__ import annotations

from dataclasses import replace

from mm2py.config.configuration import SettingsFile
from mm2py.config.flow_properties import ENABLED, StoredConfigUnusable
from mm2py.config.settings import FlowSettings
from mm2py.flow import Flow
from mm2py.records.connector_config import FlowConfig, Writer
from mm2py.status.asking import Side
from mm2py.status.facts import FlowFacts
from mm2py.status.source_inquiry import SourceInquiry
from mm2py.status.target_inquiry import TargetInquiry
from mm2py.worker.config_log import ConfigTable
from mm2py.worker.config_watch import merged


class StoredInquiry:
    """What is stored of a flow's settings, of which the workers make what they run."""

    def __init__(self, settings: FlowSettings, target: Side) -> None:
        self.unread = ""
        """Why it cannot be read; then ``config`` is as of the last time that it could."""
        self._target = target
        self._table = ConfigTable(target.brokers, settings.configs_topic)

    @property
    def config(self) -> FlowConfig | None:
        """None: mm2py has stored nothing. What MirrorMaker 2 writes over ours, its workers do not run: they go on."""
        stored = self._table.config
        return stored.previous if stored is not None and stored.by is Writer.MM2 else stored

    async def look(self) -> None:
        """Read what is new, and note what cannot be read."""
        self.unread = await self._target.why_not(f"reading {self._table.topic}", self._read)

    async def _read(self) -> None:
        await self._table.read()


class FlowInquiry:
    """Begins anew when other settings are stored: then positions, gaps or topics may be elsewhere."""

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
        """Return what there is to find out now."""
        await self._stored.look()
        if self._stored.config != self._known:
            self._known = self._stored.config
            self._begin(self._settings())
        await self._target.look()
        # Behind the positions, so that no end is older than a position.
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
        """Return what the workers run; of a flow that is switched off, what they would."""
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
