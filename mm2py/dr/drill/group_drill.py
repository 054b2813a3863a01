"""Drills the groups of a flow: commits for shadow groups on the target, reads from there, and compares with the source.

On the source nothing is written. On the target only the shadow groups are; they are deleted at the end, also after an
error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.copying.reading.ledger_table import LedgerTable
from mm2py.dr.drill.first_records import read_from
from mm2py.dr.drill.judgement import (
    DrilledPartition,
    GroupDrill,
    PartitionDrill,
    ReadFrom,
    judge_partition,
    needs_more,
)
from mm2py.dr.drill.positions import DrillPlan, PlannedGroup, PlannedPlace
from mm2py.dr.drill.shadow_groups import delete_shadows, shadow_of
from mm2py.dr.groups.group_commits import commit_all, committed
from mm2py.dr.groups.group_inquiry import LEDGER_LATE_S
from mm2py.errors import Mm2Error, for_each
from mm2py.kafka.admin import describe_topic_configs
from mm2py.kafka.cluster import ClusterMetadata
from mm2py.kafka.consumer_groups import Commit, Commits
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.list_offsets import chunks, find_bounds
from mm2py.kafka.port import Brokers, TopicPartition
from mm2py.topics.names import ledger_topic

AT_ONCE: Final = 16
SEARCHED_RECORDS: Final = 10_000
"""How many records are looked through on each side, if the first ones are not the same."""
DELETE_MOST_S: Final = 30.0
_CLEANUP: Final = "cleanup.policy"
_TIMESTAMPS: Final = "message.timestamp.type"


class DrilledPlace(NamedTuple):
    """One partition of one group."""

    group: str
    place: PlannedPlace


@dataclass(slots=True)
class GroupDriller:
    """Drills the groups of one flow once."""

    settings: FlowSettings
    source: Brokers
    target: Brokers
    run: str
    clock: Clock
    log: FilteringBoundLogger
    groups: list[GroupDrill] = field(default_factory=list)
    """What was found out."""
    steps: dict[str, float] = field(default_factory=dict)
    """How long each step took that a failover would take as well, in seconds."""
    left_behind: dict[str, str] = field(default_factory=dict)
    """Shadow groups that could not be deleted, with the reason."""
    _shadows: dict[str, Commits] = field(default_factory=dict)
    """What the shadow groups have committed, as the target tells it, by the groups on the source."""
    _refused: dict[str, str] = field(default_factory=dict)
    _configs: dict[tuple[int, str], Mapping[str, str | None]] = field(default_factory=dict)

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Add the time that the block takes to a step."""
        begun_s = self.clock.monotonic()
        try:
            yield
        finally:
            self.steps[step] = self.steps.get(step, 0.0) + self.clock.monotonic() - begun_s

    async def drill(self, plan: DrillPlan, say: Callable[[str], None]) -> None:
        """Drill the groups of a plan.

        Raises:
            BrokerRefused: a right is missing; the error names it.
            Mm2Error: a cluster does not answer.
        After an error or a kill shadow groups may be left; the next drill deletes them.
        """
        names = {one.group: shadow_of(self.settings.flow.source, self.run, one.group) for one in plan.groups}
        shadows = {one.group: names[one.group] for one in plan.groups if _commits(one)}
        try:
            say(f"committing for shadow groups on {self.settings.flow.target}")
            with self.timed("commits"):
                await self._commit(plan, shadows)
            say("reading what each group would read first")
            await self._describe(plan)
            judged = await self._look(
                plan, [DrilledPlace(group.group, one) for group in plan.groups for one in group.places]
            )
        finally:
            await self._delete(shadows.values())
        self.groups = [
            GroupDrill(
                one.group,
                one.state,
                shadows.get(one.group, ""),
                tuple(judged[DrilledPlace(one.group, place)] for place in one.places),
                one.why,
                one.is_left,
            )
            for one in plan.groups
        ]

    async def _commit(self, plan: DrillPlan, shadows: Mapping[str, str]) -> None:
        """Commit for each shadow group, all partitions or none, and read it back."""

        async def commit(group: PlannedGroup) -> None:
            shadow = shadows[group.group]
            try:
                await commit_all(self.target, self.settings.flow.target, shadow, _commits(group))
                self._shadows[group.group] = await committed(self.target, shadow)
            except Mm2Error as error:
                if isinstance(error, KafkaError) and not isinstance(error, BrokerRefused):
                    raise  # the target does not answer
                self._refused[group.group] = str(error)

        groups = [one for one in plan.groups if one.group in shadows]
        await for_each(groups, commit, at_once=AT_ONCE, name="committing for shadow groups")

    async def _delete(self, shadows: Collection[str]) -> None:
        try:
            async with asyncio.timeout(DELETE_MOST_S):
                _, kept = await delete_shadows(self.target, list(shadows))
            self.left_behind |= {name: str(why) for name, why in kept.items()}
        except (KafkaError, TimeoutError) as error:
            why = str(error) or f"{self.settings.flow.target} does not answer"
            self.left_behind |= dict.fromkeys(shadows, why)

    async def _describe(self, plan: DrillPlan) -> None:
        """Read the settings for cleaning and timestamps of all topics."""
        sides = (self.source, {one.key[0] for one in plan.places}), (self.target, {one.other[0] for one in plan.places})
        for side, (brokers, topics) in enumerate(sides):
            names = sorted(topics)
            told = await describe_topic_configs(brokers, names, keys=[_CLEANUP, _TIMESTAMPS]) if names else {}
            for name, found in told.items():
                if isinstance(found, BrokerRefused):
                    raise found
                self._configs[side, name] = {one.name: one.value for one in found}

    async def _look(self, plan: DrillPlan, places: Collection[DrilledPlace]) -> dict[DrilledPlace, PartitionDrill]:
        """Judge each place by the first record on both sides; if these are not the same, by many of them."""
        ledgers = LedgerTable(self.target, ledger_topic(self.settings.flow.source), self.log)
        with self.timed("first-records"):
            there = await self._read_target(plan, places, most=1)
        judged = await self._judge(plan, places, there, ledgers, most=1)
        if again := [one for one, found in judged.items() if needs_more(found)]:
            await asyncio.sleep(LEDGER_LATE_S)  # the ledger may not have the last copies yet
        for some in chunks(again, AT_ONCE):  # many records are in memory
            there = await self._read_target(plan, some, most=SEARCHED_RECORDS)
            judged |= await self._judge(plan, some, there, ledgers, most=SEARCHED_RECORDS)
        return judged

    async def _read_target(
        self, plan: DrillPlan, places: Collection[DrilledPlace], *, most: int
    ) -> dict[DrilledPlace, ReadFrom]:
        """Read the target from what the shadow groups have committed."""
        found, logs = dict[DrilledPlace, ReadFrom](), plan.logs
        offsets = {one: at for one in places if (at := self._shadow_at(one)) is not None}
        bounds = await self._bounds(self.target, logs.target, [one.place.other for one in offsets])

        async def read(at: DrilledPlace) -> None:
            key = at.place.other
            found[at] = await _read(self.target, logs.target, key, offsets[at], bounds[key], most=most)

        some = [one for one in offsets if one.place.other in bounds]
        await for_each(some, read, at_once=AT_ONCE, name="reading first records of the target")
        return found

    async def _judge(
        self,
        plan: DrillPlan,
        places: Collection[DrilledPlace],
        there: Mapping[DrilledPlace, ReadFrom],
        ledgers: LedgerTable,
        *,
        most: int,
    ) -> dict[DrilledPlace, PartitionDrill]:
        """Read the source after the target, and the ledger last: a copy that was read has a record on the source."""
        here, logs = dict[DrilledPlace, ReadFrom](), plan.logs
        bounds = await self._bounds(self.source, logs.source, [one.place.key for one in there])

        async def read(at: DrilledPlace) -> None:
            key, offset = at.place.key, at.place.committed
            if offset is not None and key in bounds:
                is_committed = self.settings.read_committed
                here[at] = await _read(
                    self.source, logs.source, key, offset, bounds[key], most=most, read_committed=is_committed
                )

        await for_each(list(there), read, at_once=AT_ONCE, name="reading first records of the source")
        await ledgers.follow()
        await ledgers.prepare({one.place.key for one in there})
        return {one: judge_partition(self._facts(one, here.get(one), there.get(one), ledgers)) for one in places}

    def _facts(
        self, at: DrilledPlace, here: ReadFrom | None, there: ReadFrom | None, ledgers: LedgerTable
    ) -> DrilledPartition:
        place = at.place
        why = place.why or self._refused.get(at.group, "")
        if not why and place.position is not None and (here is None or there is None):
            why = "a partition has no leader now"
        configs = self._configs.get((0, place.key[0]), {}), self._configs.get((1, place.other[0]), {})
        ledger = ledgers.of(place.key)
        of_here = [] if here is None else [*here.records, *filter(None, [here.before])]
        of_there = [] if there is None else [*there.records, *filter(None, [there.before])]
        return DrilledPartition(
            *place.key,
            place.other[0],
            place.committed,
            place.position,
            why,
            self._shadow_at(at),
            here,
            there,
            {record.offset: ledger.forward(record.offset) for record in of_here},
            {record.offset: ledger.reverse(record.offset) for record in of_there},
            may_lose_records=any("compact" in (one.get(_CLEANUP) or "") for one in configs),
            own_timestamps=configs[1].get(_TIMESTAMPS) != "LogAppendTime",
        )

    def _shadow_at(self, at: DrilledPlace) -> int | None:
        commit = self._shadows.get(at.group, {}).get(at.place.other)
        return None if commit is None else commit.offset

    @staticmethod
    async def _bounds(
        brokers: Brokers, metadata: ClusterMetadata, keys: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        return await find_bounds(brokers, {key: metadata.leader_of(*key) for key in keys})


def _commits(group: PlannedGroup) -> dict[TopicPartition, Commit]:
    """Return what a failover would commit for a group on the target."""
    return {one.other: Commit(one.position) for one in group.places if one.position is not None}


async def _read(
    brokers: Brokers,
    metadata: ClusterMetadata,
    key: TopicPartition,
    offset: int,
    bounds: tuple[int, int],
    *,
    most: int,
    read_committed: bool = True,
) -> ReadFrom:
    topic = metadata.topics[key[0]]
    return await read_from(brokers, topic, key[1], offset, bounds, most=most, read_committed=read_committed)
