"""Asks the clusters of a file for the facts of its status: every flow as its workers run it. It asks no worker.

Each flow is read with the settings that are stored on its target and the addresses of the file. Nothing is written.
Each look reads only what is new since the last look.
"""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from mm2py.clock import Clock
from mm2py.config.configuration import SettingsFile
from mm2py.config.flow_properties import StoredConfigUnusable
from mm2py.config.origins import origins_of_filters
from mm2py.config.settings import ClusterSettings, FlowSettings
from mm2py.copying.gap_log import GapTable
from mm2py.copying.positions import PositionTable
from mm2py.copying.reading.internal_table import DamagedTopic
from mm2py.dr.journal import JournalEntry, JournalUnreadable, standing_entry
from mm2py.dr.journal_topic import read_journal
from mm2py.flow import ClusterAlias, Flow, Kind
from mm2py.flow_clusters import Connected
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import TopicPartition
from mm2py.logs import make_logger
from mm2py.records.backfill_record import Backfill
from mm2py.records.connector_config import DecidedBy, FlowConfig
from mm2py.records.gap_record import Gap
from mm2py.records.lag_seen import LagSeen
from mm2py.records.operator_request import Target, TargetState
from mm2py.records.pause_record import Pauses
from mm2py.records.source_offset import StoredPosition
from mm2py.records.standstill import Standstill
from mm2py.shared_settings.config_log import ConfigTable
from mm2py.shared_settings.current_settings import ASKED, COPYING
from mm2py.shared_settings.direction import Seen, hold_of
from mm2py.shared_settings.follow import merged_or_file
from mm2py.status.cluster_inquiry import GroupInquiry, InquirySide, Patience, SourceInquiry, why_not_both
from mm2py.status.consumer_group_inquiry import ConsumerGroupInquiry
from mm2py.status.consumer_groups import ConsumerGroupsReport, in_short, report_of
from mm2py.status.facts import Facts, FlowFacts
from mm2py.status.mm2_inquiry import Mm2Inquiry
from mm2py.status.movement import (
    SETTLE_S,
    LagMemory,
    Movement,
    late_after_ms,
    waiting_since_ms,
    waits_since_lately,
)
from mm2py.status.partition_lags import furthest_behind

JOURNAL_KEPT_S: Final = 10.0
"""How often the journal of recoveries is read."""
SETTLE_AGAIN_S: Final = 1.0
"""How often a position that may stand still is looked at."""
AGES_MOST: Final = 20_000
"""The source is asked for the age of waiting records of at most this many partitions."""
LOG_STARTS_MOST: Final = 200
"""The source is asked where the logs of at most this many partitions start."""
GROUPS_KEPT_S: Final = 15.0
"""How old the report on consumer groups may be. There may be 10,000, and the commits of each are asked for."""


class TargetInquiry:
    """Reads what a flow keeps on its target: positions and gaps. If a topic is missing, the flow has not run."""

    def __init__(self, settings: FlowSettings, target: InquirySide) -> None:
        self.positions_unread = ""
        self.status_unread = ""
        self._target = target
        self._topic = settings.offsets_topic
        self._source = settings.source.alias
        self._positions = PositionTable(settings.source.alias)
        self._status = GapTable(target.brokers, settings.status_topic)
        self._without_leader = 0

    @property
    def positions(self) -> Mapping[TopicPartition, StoredPosition]:
        """The stored positions, without those that an operator has deleted: these partitions start again."""
        return {key: stored for key, stored in self._positions.positions.items() if not stored.recopy}

    @property
    def gaps(self) -> Sequence[Gap]:
        return self._status.gaps()

    @property
    def standstills(self) -> Sequence[Standstill]:
        return self._status.standstills()

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

    def __init__(self, settings: FlowSettings, target: InquirySide, source: InquirySide | None = None) -> None:
        """``source``: to look at the flow back, if there is one that must not be on at the same time."""
        self.unread = ""
        """Why they cannot be read. Then ``config`` has those that were read last."""
        self._target = target
        self._source = source
        self._group = settings.group
        self._standby, self._flow_back = settings.standby, settings.flow_back
        self._back: ConfigTable | None = None
        if source is not None and settings.flow_back is not None:
            self._back = ConfigTable(source.brokers, settings.flow_back.configs_topic)
        self._table = ConfigTable(target.brokers, settings.configs_topic)

    @property
    def config(self) -> FlowConfig | None:
        """None: mm2py has stored nothing. Workers ignore what MirrorMaker 2 writes over the settings of mm2py."""
        stored = self._table.config
        return stored.previous if stored is not None and stored.by is DecidedBy.MM2 else stored

    @property
    def owner_group(self) -> str:
        """The group that runs the flow; empty if none is stored."""
        owner = self._table.records.owner.current
        return "" if owner is None else owner.group

    @property
    def other_group(self) -> str:
        """``owner_group`` if it is not the file's group; else empty."""
        return "" if self.owner_group == self._group else self.owner_group

    @property
    def held(self) -> Mapping[Kind, Target]:
        """The connectors that operators have paused or stopped, and those that do not run as the flow is standby."""
        targets = {kind: self._table.records.target_of(kind) for kind in ASKED}
        found = {kind: target for kind, target in targets.items() if target.state is not TargetState.STARTED}
        hold = self._hold
        return found if hold is None else dict.fromkeys(sorted(COPYING), hold) | found

    @property
    def _hold(self) -> Target | None:
        """Why the flow is standby; None: it is not, or nothing of it can be read."""
        if self.unread and self._table.records.direction.current is None:
            return None
        own, back = self._table.records.direction, self._flow_back
        seen = Seen(own.current, self._standby, own.offset)
        if back is None or self._back is None:
            return hold_of(seen)
        other = self._back.records.direction
        return hold_of(seen, back.flow, Seen(other.current, back.standby, other.offset))

    @property
    def pauses(self) -> Pauses:
        """The topics and partitions that operators have paused."""
        return self._table.records.pauses

    @property
    def backfills(self) -> Sequence[Backfill]:
        return tuple(self._table.records.backfills.values())

    async def look(self) -> None:
        """Read what is new, and note what cannot be read."""
        self.unread = await self._target.why_not(f"reading {self._table.topic}", self._read)
        if self._source is not None and self._back is not None:
            await self._source.why_not(f"reading {self._back.topic}", self._read_back)

    async def _read(self) -> None:
        await self._table.read()

    async def _read_back(self) -> None:
        assert self._back is not None  # noqa: S101
        await self._back.read()


class GroupsInShort:
    """The consumer groups of one flow, in short. While watching, they are read less often than the rest."""

    def __init__(self, settings: FlowSettings, source: InquirySide, target: InquirySide) -> None:
        self.report: ConsumerGroupsReport | None = None
        self.unread = ""
        self._source = source
        self._target = target
        self._inquiry: ConsumerGroupInquiry | None = None
        if settings.checkpoints is not None:
            log = make_logger("error", "text", io.StringIO())
            self._inquiry = ConsumerGroupInquiry(settings, source.brokers, target.brokers, log)
        self._asked_at_s: float | None = None

    async def look(self) -> None:
        """Ask both clusters, and note why they do not answer."""
        now_s = asyncio.get_running_loop().time()
        if self._inquiry is None or (self._asked_at_s is not None and now_s - self._asked_at_s < GROUPS_KEPT_S):
            return
        self._asked_at_s = now_s
        self.unread = await why_not_both("asking for consumer groups", self._source, self._target, self._ask)
        if self.unread:
            self.report, self._asked_at_s = None, None

    async def _ask(self) -> None:
        assert self._inquiry is not None  # noqa: S101
        facts = await self._inquiry.look()
        self.report = in_short(report_of(facts), is_synced=facts.is_synced)


class RecoveryJournal:
    """The journal of recoveries of a flow's pair of clusters. While watching, it is read less often than the rest.

    Both clusters have it, and an entry by which a cutover can be undone stands on both: the target is asked, and the
    source while that is silent.
    """

    def __init__(self, flow: Flow, target: InquirySide, source: InquirySide) -> None:
        self.standing: JournalEntry | None = None
        """How the pair of clusters stands; None: no run has begun, or it cannot be read."""
        self._flow = flow
        self._sides = (target, source)
        self._asked_at_s: float | None = None

    async def look(self) -> None:
        """Read it. Without the right to read it nothing is known of recoveries: mm2py dr check says so."""
        now_s = asyncio.get_running_loop().time()
        if self._asked_at_s is not None and now_s - self._asked_at_s < JOURNAL_KEPT_S:
            return
        self._asked_at_s, self.standing = now_s, None
        for side in self._sides:
            await side.why_not("reading the journal of recoveries", partial(self._read, side))
            if not side.away:
                return

    async def _read(self, side: InquirySide) -> None:
        with suppress(JournalUnreadable, DamagedTopic):
            found = await read_journal(side.alias, side.brokers, self._flow)
            self.standing = standing_entry(found.entries)


class FlowInquiry:
    """Asks for all of one flow. When other settings are stored, it starts again: other topics may hold its state."""

    def __init__(
        self,
        file: SettingsFile,
        settings: FlowSettings,
        target: InquirySide,
        source: InquirySide,
        clock: Clock,
        *,
        settles: bool,
    ) -> None:
        """``settles``: the first look takes longer if a partition may stand still, to be sure."""
        self._file = file
        self._clock = clock
        self._settles = settles
        self._by_file = settings
        self._target_side = target
        self._source_side = source
        self._stored = StoredInquiry(settings, target, source)
        self._journal = RecoveryJournal(settings.flow, target, source)
        self._known: FlowConfig | None = None
        self._unusable = ""
        self._movement = Movement()
        self._lags = LagMemory()
        self._begin(settings)

    @property
    def flow(self) -> Flow:
        return self._by_file.flow

    async def look(self) -> FlowFacts:
        """Ask both clusters, and return what they say."""
        await self._stored.look()
        await self._journal.look()
        if self._stored.config != self._known:
            self._known = self._stored.config
            self._begin(self._settings())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._consumer_groups.look(), name=f"status: consumer groups of {self.flow}")
            await self._target.look()
            await self._look_at_source()
            self._look_at_movement()
            await self._settle()
            standing = await self._standing()
            waiting_since_ms = await self._waiting_since_ms()
            facts = self._facts(standing, waiting_since_ms)
            facts = await self._with_retention(facts)
        return replace(
            facts,
            consumer_groups=self._consumer_groups.report,
            consumer_groups_unread=self._consumer_groups.unread,
        )

    def _facts(
        self, standing: Mapping[TopicPartition, int | None], waiting_since_ms: Mapping[TopicPartition, int]
    ) -> FlowFacts:
        return FlowFacts(
            self._shown,
            positions=self._target.positions,
            gaps=self._target.gaps,
            standstills=self._target.standstills,
            unmatched=tuple(self._source.unmatched),
            standing=standing,
            waiting_since_ms=waiting_since_ms,
            looked_before=self._look_at_lags(),
            selected=self._source.selected,
            hidden=self._source.hidden,
            left_out=self._source.left_out,
            starts=self._source.starts,
            ends=self._source.ends,
            positions_unread=self._target.positions_unread,
            status_unread=self._target.status_unread,
            source_unread=tuple(self._source.unread),
            stored=self._known,
            owner_group=self._stored.owner_group,
            recovery=self._journal.standing,
            held=self._stored.held,
            pauses=self._stored.pauses,
            backfills=self._stored.backfills,
            file=self._file.shared(self.flow),
            origins=self._origins,
            config_unread=self._stored.unread,
            config_unusable=self._unusable,
        )

    async def _look_at_source(self) -> None:
        """Ask the source after the positions were read, so that no end is older than a position."""
        target = self._target
        told = {one.topic for one in target.standstills} - {""}
        await self._source.look(target.positions, with_starts=not target.positions_unread, told=told)

    def _look_at_movement(self) -> None:
        positions = {} if self._target.positions_unread else self._target.positions
        ends, starts, pauses = self._source.ends, self._source.starts, self._stored.pauses
        begins = {key: positions[key].next_source if key in positions else starts.get(key) for key in ends}
        waiting = {
            key: positions[key].next_source if key in positions else None
            for key, begin in begins.items()
            if begin is not None and begin != ends[key] and pauses.find(*key) is None
        }
        if not self._target.positions_unread:
            self._movement.look(waiting, self._clock.monotonic(), unknown=self._source.without_end())

    async def _standing(self) -> Mapping[TopicPartition, int | None]:
        positions, now_ms = self._target.positions, self._clock.wall_ms()
        timeout_ms = int(self._shown.stall_timeout_s * 1000)
        found = self._movement.standing(positions, now_s=self._clock.monotonic(), now_ms=now_ms, timeout_ms=timeout_ms)
        if not found:
            return found
        since_ms = now_ms - late_after_ms(positions, timeout_ms)
        first = await self._source.first_since(dict.fromkeys([*found][:AGES_MOST], since_ms))
        begins = {
            key: positions[key].next_source if key in positions else self._source.starts.get(key) for key in first
        }
        young = {
            key
            for key, one in first.items()
            if (begin := begins[key]) is not None
            and waits_since_lately(begin, one.offset, one.timestamp_ms, now_ms=now_ms)
        }
        return {key: moved_ms for key, moved_ms in found.items() if key not in young}

    async def _waiting_since_ms(self) -> Mapping[TopicPartition, int]:
        positions = {} if self._target.positions_unread else self._target.positions
        ends = self._source.ends
        newest_ms = {
            key: at.newest_ms
            for key, at in positions.items()
            if at.newest_ms is not None and at.next_source < ends.get(key, 0)
        }
        first = await self._source.first_since({key: newest_ms[key] + 1 for key in [*newest_ms][:AGES_MOST]})
        return {
            key: since_ms
            for key, one in first.items()
            if (since_ms := waiting_since_ms(positions[key].next_source, one.offset, one.timestamp_ms)) is not None
        }

    def _look_at_lags(self) -> Mapping[TopicPartition, LagSeen]:
        positions = {} if self._target.positions_unread else self._target.positions
        now_ms = self._clock.wall_ms()
        waiting = {
            key: LagSeen(now_ms, end, at.next_source, at.newest_ms)
            for key, end in self._source.ends.items()
            if (at := positions.get(key)) is not None and at.next_source < end
        }
        return self._lags.look(waiting, now_ms)

    async def _with_retention(self, facts: FlowFacts) -> FlowFacts:
        """Ask how long the source keeps what is furthest behind, and where these logs start."""
        keys = furthest_behind(facts, self._clock.wall_ms())
        if not keys:
            return facts
        retentions = await self._source.retentions(list(dict.fromkeys(topic for topic, _ in keys)))
        starts = await self._source.log_starts(keys[:LOG_STARTS_MOST])
        return replace(facts, retentions=retentions, log_starts=starts)

    async def _settle(self) -> None:
        """Look again at positions that may stand still, until that is certain or ``SETTLE_S`` are over."""
        if not self._settles:
            return
        self._settles = False  # from now on looks follow one another
        until_s = self._clock.monotonic() + SETTLE_S
        while Kind.SOURCE not in self._stored.held and self._has_suspects() and not self._target.positions_unread:
            await asyncio.sleep(min(SETTLE_AGAIN_S, max(0.0, until_s - self._clock.monotonic())))
            await self._target.look()
            await self._look_at_source()
            self._look_at_movement()
            if self._clock.monotonic() >= until_s:
                return

    def _has_suspects(self) -> bool:
        found = self._movement.suspects(
            self._target.positions,
            now_ms=self._clock.wall_ms(),
            timeout_ms=int(self._shown.stall_timeout_s * 1000),
        )
        return any(True for _ in found)

    def _settings(self) -> FlowSettings:
        """Return the settings by which the workers run; for a flow that is switched off, would run."""
        self._unusable = ""
        try:
            return merged_or_file(self._file, self._by_file, self._known)
        except StoredConfigUnusable as error:
            self._unusable = str(error)
            return self._by_file

    def _begin(self, settings: FlowSettings) -> None:
        self._shown = settings
        self._origins = origins_of_filters(self._file, self.flow, None if self._unusable else self._known)
        self._target = TargetInquiry(settings, self._target_side)
        self._source = SourceInquiry(settings, self._source_side)
        self._consumer_groups = GroupsInShort(settings, self._source_side, self._target_side)


Connect = Callable[[Flow, ClusterSettings, float, random.Random], Connected]
"""Connects a flow to one of its clusters. The number is how long reading records may take, in s."""


class Inquiry:
    """Asks for all flows and groups of one file. Call ``close`` at the end."""

    def __init__(
        self,
        file: SettingsFile,
        connect: Connect,
        *,
        clock: Clock,
        rng: random.Random,
        patience: Patience | None = None,
        settles: bool = False,
    ) -> None:
        """Nothing is connected before the first look. ``patience``: see ``InquirySide``; ``settles``: ``FlowInquiry``.

        Raises: as ``SettingsFile.configuration``.
        """
        configuration = file.configuration()
        self._clock = clock
        self._refused = {flow: str(error) for flow, error in configuration.refused.items()}
        self._warnings = configuration.warnings
        self._opened: list[Connected] = []
        self._sides: list[InquirySide] = []

        def side(flow: Flow, cluster: ClusterSettings, timeout_s: float) -> InquirySide:
            brokers = connect(flow, cluster, timeout_s, rng)
            self._opened.append(brokers)
            self._sides.append(InquirySide(cluster.alias, brokers, patience))
            return self._sides[-1]

        self._flows: list[FlowInquiry] = []
        targets: dict[ClusterAlias, InquirySide] = {}
        for settings in configuration.flows:
            target = side(settings.flow, settings.target, settings.target_request_timeout_s)
            source = side(settings.flow, settings.source, settings.source_request_timeout_s)
            targets.setdefault(settings.flow.target, target)
            self._flows.append(FlowInquiry(file, settings, target, source, clock, settles=settles))
        for emitted in configuration.heartbeats:
            if emitted.flow.target not in targets:
                targets[emitted.flow.target] = side(emitted.flow, emitted.target, emitted.request_timeout_s)
        self._groups = [
            GroupInquiry(configuration.groups[target], on, clock=clock, rng=rng) for target, on in targets.items()
        ]
        self._mm2 = Mm2Inquiry(targets)
        self._off = {
            settings.flow: StoredInquiry(settings, targets[settings.flow.target])
            for settings in file.flows_switched_off()
            if settings.flow.target in targets  # no connection is made only to show that a flow is off
        }

    async def look(self) -> Facts:
        """Ask all clusters, and return what they say. A cluster that does not answer delays no other.

        Cancelling loses nothing: the next look reads the rest.
        """
        async with asyncio.TaskGroup() as tasks:
            for side in self._sides:
                side.begin_probe(tasks)
            groups = [tasks.create_task(group.look(), name=f"status: {group.topic}") for group in self._groups]
            flows = [tasks.create_task(flow.look(), name=f"status: {flow.flow}") for flow in self._flows]
            for name, off in self._off.items():
                tasks.create_task(off.look(), name=f"status: {name}")
        found = [group.result() for group in groups]
        told = await self._mm2.look([flow.result() for flow in flows], found, self._clock.wall_ms())
        clusters: dict[ClusterAlias, str] = {}
        for side in self._sides:
            clusters[side.alias] = clusters.get(side.alias) or side.away
        return Facts(
            self._clock.wall_ms(),
            dict(sorted(clusters.items())),
            found,
            told,
            self._refused,
            {flow: off.config for flow, off in self._off.items() if off.config is not None},
            {flow: off.unread for flow, off in self._off.items() if off.unread},
            {flow: off.other_group for flow, off in self._off.items() if off.other_group},
            self._warnings,
        )

    async def close(self) -> None:
        """Close all connections."""
        for side in self._sides:
            await side.close()
        for brokers in self._opened:
            await brokers.close()
