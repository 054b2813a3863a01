"""Asks both clusters what ``judgement.py`` needs to know of consumer groups. It asks no worker, and writes nothing.

The order matters: first the commits, then the ledgers, then the ends. So a ledger reaches each commit whose records are
copied, and no commit is beyond an end that was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from mm2py.checks.questions import topics_named
from mm2py.config.settings import FlowSettings
from mm2py.copying.reading.internal_table import each_record
from mm2py.copying.reading.ledger_table import LedgerTable
from mm2py.dr.groups.judgement import GroupToMove, PartitionToMove, place_in_other_log
from mm2py.errors import for_each
from mm2py.flow import ClusterAlias, Flow, TopicName
from mm2py.kafka.cluster import ClusterMetadata, TopicMetadata, fetch_metadata
from mm2py.kafka.consumer_groups import Commit, Commits, ListedGroup, committed_offsets, list_groups, refused_groups
from mm2py.kafka.errors import BrokerRefused, Reaction
from mm2py.kafka.group_members import members_of
from mm2py.kafka.list_offsets import EARLIEST, LATEST, Leaders, find_bounds, find_offsets
from mm2py.kafka.port import Brokers, TopicPartition
from mm2py.offsets.answers import Answer, AnswerKind
from mm2py.offsets.checkpoint_rule import remote_topic_of, upstream_topic_of
from mm2py.offsets.group_sync import CONSUMERS, IDLE
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.status.ledger_topics import missing, recreated, side_of
from mm2py.topics.filters import PatternTooSlow
from mm2py.topics.names import ledger_topic

PARTITIONS_AT_ONCE: Final = 16
LEDGER_LATE_S: Final = 2.0
"""How long after a record was copied the ledger may not have it yet."""


class ClusterOfMove(NamedTuple):
    """One of the two clusters."""

    alias: ClusterAlias
    brokers: Brokers


@dataclass(frozen=True, slots=True)
class _Logs:
    """Where partitions begin and end here and there. Those without an answer are left out."""

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    stable_ends: Mapping[TopicPartition, int]
    there: Mapping[TopicPartition, tuple[int, int]]


class GroupMoveInquiry:
    """Groups that leave one cluster of a flow for the other. Each look reads only what is new in the ledgers."""

    def __init__(
        self, settings: FlowSettings, source: Brokers, target: Brokers, log: FilteringBoundLogger, *, is_back: bool
    ) -> None:
        """``is_back``: the groups leave the target, and go on on the source."""
        self._settings = settings
        self._is_back = is_back
        sides = ClusterOfMove(settings.flow.source, source), ClusterOfMove(settings.flow.target, target)
        self.here, self.there = reversed(sides) if is_back else sides
        self._outward = LedgerTable(self.there.brokers, ledger_topic(self.here.alias), log)
        self._homeward = LedgerTable(self.here.brokers, ledger_topic(self.there.alias), log)
        self._own, self._of_way_back = (self._homeward, self._outward) if is_back else (self._outward, self._homeward)
        """The ledger of the flow, and that of the flow in the other direction, which need not exist."""

    async def all_groups(self) -> dict[str, ListedGroup]:
        """Return all groups of the cluster here that the flow's settings let pass, share groups among them."""
        checkpoints = self._settings.checkpoints
        found: dict[str, ListedGroup] = {}
        for name, group in (await list_groups(self.here.brokers)).items():
            try:
                if checkpoints is None or checkpoints.group_filter.should_replicate(name):
                    found[name] = group
            except PatternTooSlow:
                continue  # the worker says so in its log
        return found

    async def look(
        self,
        names: Collection[str],
        *,
        left_topics: Collection[str] = (),
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> dict[str, GroupToMove]:
        """Return what both clusters say of these groups; those that do not exist here are left out.

        Args:
            left_topics: topics of the cluster here in which the groups stay where they are.
            ends: where producers are fenced here, by partition. Then it is also looked for data records that groups
                with members have not read. None: producers go on.
        Raises:
            BrokerRefused: a right is missing; the error names it.
            NewerLedgerFormat: a newer mm2py has written a ledger.
            DamagedTopic, KafkaError: as ``read_table``.
        """
        here, there, asked = self.here.brokers, self.there.brokers, set(names)
        listed = {name: one for name, one in (await list_groups(here)).items() if name in asked}
        listed_there = {name: one for name, one in (await list_groups(there)).items() if name in listed}
        committed = {
            name: {key: commit for key, commit in commits.items() if key[0] not in left_topics}
            for name, commits in (await _commits(here, _consumers(listed))).items()
        }
        committed_there = await _commits(there, _consumers(listed_there))
        members = await members_of(here, _active(listed))
        members_there = await members_of(there, _active(listed_there))
        keys = {key for commits in committed.values() for key in commits}
        if self._settings.policy.renames:
            await self._follow()  # the ledger's topics tell which copy is whose
        others = {key: other for key in keys if (other := self._other(key)) is not None}
        wanted = {name: {others[key][0] for key in commits if key in others} for name, commits in committed.items()}
        refused = await self._refused(wanted, listed_there)
        for is_last in (False, True):
            found = {
                name: GroupToMove(
                    name,
                    str(self.here.alias),
                    str(self.there.alias),
                    one.protocol_type,
                    one.state,
                    members.get(name, ()),
                    listed_there[name].protocol_type if name in listed_there else "",
                    listed_there[name].state if name in listed_there else "",
                    members_there.get(name, ()),
                    refused=refused.get(name, ""),
                )
                for name, one in listed.items()
            }
            found = await self._with_partitions(found, committed, committed_there, others, ends)
            if is_last or not any(part.only_here is not None for one in found.values() for part in one.partitions):
                break
            await asyncio.sleep(LEDGER_LATE_S)  # the ledger may not have the last copies yet
        return found

    async def _with_partitions(
        self,
        groups: Mapping[str, GroupToMove],
        committed: Mapping[str, Commits],
        committed_there: Mapping[str, Commits],
        others: Mapping[TopicPartition, TopicPartition],
        ends: Mapping[TopicPartition, int] | None,
    ) -> dict[str, GroupToMove]:
        """Return the groups with their partitions, by the ledgers and logs as they are now."""
        keys = {key for commits in committed.values() for key in commits}
        await self._follow()
        await self._outward.prepare(keys)
        await self._homeward.prepare(others.values())
        of_here = await _topics(self.here.brokers, keys)
        of_there = await _topics(self.there.brokers, others.values())
        logs = await self._logs(of_here, of_there, others.values(), ends or {})
        parts: dict[tuple[str, TopicPartition], PartitionToMove] = {}

        async def place(at: tuple[str, TopicPartition]) -> None:
            (name, key), commit, other = at, committed[at[0]][at[1]], others.get(at[1])
            at_there = None if other is None else committed_there.get(name, {}).get(other)
            part = PartitionToMove(
                *key,
                key[0] if other is None else other[0],
                commit,
                log_start=logs.starts.get(key, 0),
                log_end=logs.ends.get(key, 0),
                stable_end=logs.stable_ends.get(key, 0),
                committed_there=None if at_there is None else at_there.offset,
            )
            part = await self._placed(part, other, of_here, of_there, logs)
            if part.unknown and self._is_of_no_application(key[0]):
                return
            if ends is not None and not groups[name].is_idle:
                part = replace(part, next_record=await self._next_record(part, of_here))
            parts[at] = part

        wanted = [(name, key) for name, commits in committed.items() for key in commits if _exists(key[0], of_here)]
        await for_each(wanted, place, at_once=PARTITIONS_AT_ONCE, name="placing groups")
        placed, found = sorted(parts), dict[str, GroupToMove]()
        for name, group in groups.items():
            kept = tuple(parts[at] for at in placed if at[0] == name)
            uncommitted = () if ends is None or group.is_idle else _uncommitted(kept, of_here, logs)
            found[name] = replace(group, partitions=kept, uncommitted=uncommitted)
        return found

    async def _follow(self) -> None:
        """Read what is new in both ledgers. The one of the other direction counts as empty where it may not be read."""
        await self._own.follow()
        try:
            await self._of_way_back.follow()
        except BrokerRefused as error:
            if error.reaction is not Reaction.DENIED:
                raise

    async def _placed(
        self,
        part: PartitionToMove,
        other: TopicPartition | None,
        of_here: ClusterMetadata | None,
        of_there: ClusterMetadata | None,
        logs: _Logs,
    ) -> PartitionToMove:
        """Return a partition with its place there, or why that is not known."""
        key = part.key
        if other is None:
            return replace(part, unknown=f"{part.topic} is not mirrored")
        here = side_of(key, self.here.alias, _topic(key[0], of_here))
        there = side_of(other, self.there.alias, _topic(other[0], of_there))
        outward, homeward = self._outward.of(key), self._homeward.of(other)
        if not (outward.ledgers or homeward.ledgers):
            return replace(part, unknown=self._why_not_mirrored(part.topic))
        why = missing(here, there)
        if not why and (stale := recreated(outward, here, there)):
            outward, why = PartitionLedger(), stale
        if not why and (stale := recreated(homeward, there, here)):
            homeward, why = PartitionLedger(), stale
        if not why and (key not in logs.ends or key not in logs.starts or other not in logs.there):
            why = f"{part.name} or its other side has no leader now"
        if why:
            return replace(part, unknown=why)
        start_there, end_there = logs.there[other]
        place = place_in_other_log(part.goes_on_from, outward, homeward)
        only_here = None
        if place.kind is AnswerKind.NOT_YET and place.offset is not None and homeward.newest is not None:
            stretch = homeward.newest.target_end, part.committed.offset
            only_here = await _first_record(self.here.brokers, key, *stretch, of_here)
            if only_here is None:  # only markers follow the last copy
                place = Answer(AnswerKind.END, place.offset, True)
        read_there = None
        if place.offset is not None and part.committed_there is not None:
            stretch = max(place.offset, start_there), min(part.committed_there, end_there)
            read_there = await _first_record(self.there.brokers, other, *stretch, of_there)
        return replace(
            part,
            start_there=start_there,
            end_there=end_there,
            place=place,
            only_here=only_here,
            read_there=read_there,
        )

    async def _next_record(self, part: PartitionToMove, of_here: ClusterMetadata | None) -> int | None:
        if part.place is not None and part.place.kind is AnswerKind.COPIED:
            return part.goes_on_from if part.goes_on_from < part.log_end else None
        return await _first_record(self.here.brokers, part.key, part.goes_on_from, part.log_end, of_here)

    def _other(self, key: TopicPartition) -> TopicPartition | None:
        """Return the partition there in which a group goes on; None: there is none."""
        settings, topic = self._settings, TopicName(key[0])
        if self._is_back:
            other = upstream_topic_of(topic, settings.policy, settings.flow, self._homeward.topics())
        else:
            other = remote_topic_of(topic, settings.policy, settings.flow)
        return None if other is None else (str(other), key[1])

    def _why_not_mirrored(self, topic: str) -> str:
        flow = Flow(self.here.alias, self.there.alias)
        try:
            if self._is_back or self._settings.replicates(topic):
                return f"nothing of {topic} is known to be copied between {flow.source} and {flow.target}"
        except PatternTooSlow as error:
            return str(error)
        return f"{flow} does not copy {topic}"

    def _is_of_no_application(self, topic: str) -> bool:
        policy = self._settings.policy
        return policy.is_internal_topic(TopicName(topic)) or policy.is_heartbeats_topic(TopicName(topic))

    async def _refused(
        self, wanted: Mapping[str, Collection[str]], listed_there: Mapping[str, ListedGroup]
    ) -> dict[str, str]:
        """Return which right to commit there is missing, by group.

        Brokers store the commits that they allow, and refuse the others: so it is looked before anything is committed.

        Args:
            wanted: the topics there of each group.
        """
        brokers, alias = self.there.brokers, self.there.alias
        idle = [name for name in wanted if name not in listed_there or listed_there[name].state == IDLE]
        refusals = await refused_groups(brokers, idle) if idle else {}
        for error in refusals.values():
            if error.retriable:
                raise error
        found = {name: str(error) for name, error in refusals.items()}
        topics = await topics_named(brokers, {topic for topics in wanted.values() for topic in topics})
        denied = {
            name
            for name, topic in topics.items()
            if topic.is_hidden or (topic.is_there and topic.operations is not None and "READ" not in topic.operations)
        }
        for group, names in wanted.items():
            for name in sorted(denied & set(names)):
                why = f"mm2py may not commit in {name} on {alias}. Grant mm2py READ on topic {name}."
                found.setdefault(group, why)
        return found

    async def _logs(
        self,
        of_here: ClusterMetadata | None,
        of_there: ClusterMetadata | None,
        others: Iterable[TopicPartition],
        ends: Mapping[TopicPartition, int],
    ) -> _Logs:
        here: Leaders = {
            (name, number): part.leader
            for name, topic in ({} if of_here is None else of_here.topics).items()
            for number, part in topic.partitions.items()
        }
        there: Leaders = {} if of_there is None else {key: of_there.leader_of(*key) for key in others}
        found = await find_offsets(self.here.brokers, here, LATEST)
        return _Logs(
            await find_offsets(self.here.brokers, here, EARLIEST),
            {**found, **{key: end for key, end in ends.items() if key in found}},
            await find_offsets(self.here.brokers, here, LATEST, read_committed=True),
            await find_bounds(self.there.brokers, there),
        )


def _consumers(listed: Mapping[str, ListedGroup]) -> list[str]:
    return [name for name, one in listed.items() if one.protocol_type in CONSUMERS]


def _active(listed: Mapping[str, ListedGroup]) -> list[str]:
    return [name for name in _consumers(listed) if listed[name].state != IDLE]


def _uncommitted(
    parts: Iterable[PartitionToMove], of_here: ClusterMetadata | None, logs: _Logs
) -> tuple[TopicPartition, ...]:
    """Return partitions of the same topics that hold records, and in which nothing is committed."""
    committed = {part.key for part in parts}
    return tuple(
        (name, number)
        for name in sorted({topic for topic, _ in committed})
        if (topic := _topic(name, of_here)) is not None
        for number in sorted(topic.partitions)
        if (name, number) not in committed and logs.starts.get((name, number), 0) < logs.ends.get((name, number), 0)
    )


async def _first_record(
    brokers: Brokers, key: TopicPartition, begin: int, end: int, metadata: ClusterMetadata | None
) -> int | None:
    """Return the first data record of a partition in a stretch of offsets; None: there is none."""
    topic = _topic(key[0], metadata)
    if topic is None or begin >= end or key[1] not in topic.partitions:
        return None
    only = replace(topic, partitions={key[1]: topic.partitions[key[1]]})
    async for record in each_record(brokers, only, {key[1]: begin}):
        return record.offset if record.offset < end else None
    return None


def _topic(name: str, metadata: ClusterMetadata | None) -> TopicMetadata | None:
    return None if metadata is None else metadata.topics.get(name)


def _exists(name: str, metadata: ClusterMetadata | None) -> bool:
    topic = _topic(name, metadata)
    return topic is not None and bool(topic.partitions)


async def _topics(brokers: Brokers, keys: Iterable[TopicPartition]) -> ClusterMetadata | None:
    names = sorted({topic for topic, _ in keys})
    return await fetch_metadata(brokers, names) if names else None


async def _commits(brokers: Brokers, names: Collection[str]) -> dict[str, dict[TopicPartition, Commit]]:
    """Return the commits of these groups. Raises: BrokerRefused, for any of them."""
    found: dict[str, dict[TopicPartition, Commit]] = {}
    for name, commits in (await committed_offsets(brokers, names)).items() if names else ():
        if isinstance(commits, BrokerRefused):
            raise commits
        found[name] = dict(commits)
    return found
