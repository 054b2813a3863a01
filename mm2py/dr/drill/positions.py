"""Where each group of a flow would go on on the target after a failover now, and what it has committed on the source.

First the target alone is asked, as if the source were lost, and then the source. So a group that reads meanwhile is
never taken for one that would skip records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.config.settings import FlowSettings
from mm2py.dr.groups.judgement import SHARE
from mm2py.errors import ConfigError
from mm2py.flow import TopicName
from mm2py.kafka.cluster import ClusterMetadata, fetch_metadata
from mm2py.kafka.consumer_groups import Commits, committed_offsets, list_groups
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.list_offsets import Leaders, find_bounds, find_offsets
from mm2py.kafka.port import Brokers, TopicPartition
from mm2py.offsets.checkpoint_rule import remote_topic_of
from mm2py.offsets.group_sync import CONSUMERS
from mm2py.status.consumer_group_inquiry import ConsumerGroupInquiry
from mm2py.topics.filters import PatternTooSlow, is_cycle

NO_CHECKPOINT: Final = "the target has no checkpoint of it"


@dataclass(frozen=True, slots=True)
class PlannedPlace:
    """One partition of a group. Offsets are the next ones to read."""

    key: TopicPartition
    """On the source."""
    other: TopicPartition
    """On the target."""
    committed: int | None
    """What counts on the source: the commit, or an earlier offset if a failover leads to an earlier time."""
    position: int | None
    """Where a failover would let it go on; None: see ``why``."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """A group that a failover would move."""

    group: str
    state: str
    """On the source, in Kafka's word."""
    places: tuple[PlannedPlace, ...] = ()
    why: str = ""
    """Why it is not drilled."""
    is_left: bool = False
    """Because a failover leaves it, too."""


@dataclass(frozen=True, slots=True)
class DrillLogs:
    """The partitions of all groups, on both clusters."""

    source: ClusterMetadata
    target: ClusterMetadata
    source_bounds: Mapping[TopicPartition, tuple[int, int]]
    target_bounds: Mapping[TopicPartition, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class DrillPlan:
    """What a drill looks at."""

    groups: tuple[PlannedGroup, ...]
    logs: DrillLogs

    @property
    def places(self) -> list[PlannedPlace]:
        """The partitions of all groups."""
        return [place for group in self.groups for place in group.places]


class DrillPositions:
    """Asks both clusters. It asks no worker, and writes nothing."""

    def __init__(
        self, settings: FlowSettings, source: Brokers, target: Brokers, log: FilteringBoundLogger, *, to_ms: int | None
    ) -> None:
        """``to_ms``: a failover to what was there at this time; None: to the latest."""
        if settings.checkpoints is None:
            raise ConfigError(f"{settings.flow} emits no checkpoints.", remedy="Set emit.checkpoints.enabled to true.")
        self._settings, self._filter = settings, settings.checkpoints.group_filter
        self._source = source
        self._target = target
        self._to_ms = to_ms
        self._inquiry = ConsumerGroupInquiry(settings, source, target, log)

    async def plan(self, groups: Collection[str] = (), topics: Collection[str] = ()) -> DrillPlan:
        """Return each group, with the partitions in which it has committed something, or should have.

        Args:
            groups: only these; empty: all that the flow emits checkpoints of.
            topics: only these, as the source names them; empty: all that the flow copies.
        Raises:
            ConfigError: a group or a topic is not one of the flow.
            BrokerRefused, NewerLedgerFormat, DamagedTopic, KafkaError: as ``ConsumerGroupInquiry.look_at_target``.
        """
        settings = self._settings
        for topic in topics:
            settings.source_topic(topic)
        told = await self._inquiry.look_at_target()
        checkpoints = {(group, other): found.downstream_offset for (group, other), found in told.checkpoints.items()}
        stale = {other: told.stale[key] for key, other in told.remote.items() if key in told.stale}
        listed = await list_groups(self._source)
        unknown = sorted(set(groups) - set(listed))
        if unknown:
            raise ConfigError(
                f"{settings.flow.source} shows no group {unknown[0]!r}: it does not exist, or DESCRIBE is missing.",
                remedy=f"See mm2py groups FILE '{settings.flow}'.",
            )
        names = [name for name in listed if (name in groups if groups else self._passes(name))]
        consumers = [name for name in names if listed[name].protocol_type in CONSUMERS]
        commits = await self._commits(consumers, topics)
        logs = await self._logs({key for some in commits.values() for key in some or ()})
        by_time = await self._by_time(logs)
        found = []
        for name in sorted(names):
            group = listed[name]
            if group.protocol_type == SHARE:
                found.append(PlannedGroup(name, group.state, (), "it is a share group: not moved", is_left=True))
            elif name in commits and commits[name] is None:
                why = "it has committed nothing: its consumers begin by auto.offset.reset, here and there"
                found.append(PlannedGroup(name, group.state, (), why))
            elif committed := commits.get(name):
                places = self._places(name, committed, checkpoints, stale, logs, by_time)
                found.append(PlannedGroup(name, group.state, places))
        return DrillPlan(tuple(found), logs)

    def _places(
        self,
        group: str,
        committed: Commits,
        checkpoints: Mapping[tuple[str, TopicPartition], int],
        stale: Mapping[TopicPartition, str],
        logs: DrillLogs,
        by_time: tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]],
    ) -> tuple[PlannedPlace, ...]:
        found = []
        for key in sorted({*committed, *_uncommitted(committed, logs)}):
            other = self._other(key)
            commit = committed.get(key)
            if commit is None:
                found.append(PlannedPlace(key, other, None, None))
                continue
            position = checkpoints.get((group, other))
            why = stale.get(other, "")
            if not why and (key not in logs.source_bounds or other not in logs.target_bounds):
                side = self._settings.flow.source if key not in logs.source_bounds else self._settings.flow.target
                why = f"its partition does not exist on {side}, or has no leader there now"
            if not why and position is None:
                why = NO_CHECKPOINT
            offset = commit.offset
            if position is not None and not why:
                position = max(logs.target_bounds[other][0], min(position, by_time[1].get(other, position)))
                offset = min(offset, by_time[0].get(key, offset))
            found.append(PlannedPlace(key, other, offset, None if why else position, why))
        return tuple(found)

    def _other(self, key: TopicPartition) -> TopicPartition:
        return str(remote_topic_of(TopicName(key[0]), self._settings.policy, self._settings.flow)), key[1]

    def _passes(self, group: str) -> bool:
        try:
            return self._filter.should_replicate(group)
        except PatternTooSlow:
            return False  # the worker says so in its log

    def _is_copied(self, topic: str, topics: Collection[str]) -> bool:
        if topics:
            return topic in topics
        settings = self._settings
        if is_cycle(TopicName(topic), settings.policy, settings.flow.target):
            return False
        try:
            return settings.topic_filter.should_replicate(topic)
        except PatternTooSlow:
            return False

    async def _commits(self, groups: Collection[str], topics: Collection[str]) -> dict[str, Commits | None]:
        """Return what groups have committed in topics of the flow; None: nothing at all, in no topic."""
        found: dict[str, Commits | None] = {}
        for name, commits in (await committed_offsets(self._source, groups)).items() if groups else ():
            if isinstance(commits, BrokerRefused):
                raise commits
            of_flow = {key: commit for key, commit in commits.items() if self._is_copied(key[0], topics)}
            if of_flow or not commits:
                found[name] = of_flow or None
        return found

    async def _logs(self, keys: Collection[TopicPartition]) -> DrillLogs:
        here = await fetch_metadata(self._source, sorted({topic for topic, _ in keys}) or [""])
        wide = [(name, number) for name, topic in here.topics.items() for number in topic.partitions]
        others = sorted({self._other(key) for key in (*wide, *keys)})
        there = await fetch_metadata(self._target, sorted({topic for topic, _ in others}) or [""])
        of_target = await find_bounds(self._target, {key: there.leader_of(*key) for key in others})
        of_source = await find_bounds(self._source, {key: here.leader_of(*key) for key in wide})
        return DrillLogs(here, there, of_source, of_target)

    async def _by_time(self, logs: DrillLogs) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return the first offset of the time of the failover in each partition of both clusters."""
        if self._to_ms is None:
            return {}, {}
        here: Leaders = {key: logs.source.leader_of(*key) for key in logs.source_bounds}
        there: Leaders = {key: logs.target.leader_of(*key) for key in logs.target_bounds}
        of_source = await find_offsets(self._source, here, self._to_ms)
        of_target = await find_offsets(self._target, there, self._to_ms)
        return (
            {key: offset for key, offset in of_source.items() if offset >= 0},
            {key: offset for key, offset in of_target.items() if offset >= 0},
        )


def _uncommitted(committed: Commits, logs: DrillLogs) -> list[TopicPartition]:
    """Return partitions of the same topics that hold records, and in which nothing is committed."""
    topics = {topic for topic, _ in committed}
    return [key for key, (start, end) in logs.source_bounds.items() if key[0] in topics and start < end]
