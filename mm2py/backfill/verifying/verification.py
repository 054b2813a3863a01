"""One verification from the survey to the result: plans, lets a job compare, and finds the first differences."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from structlog.typing import FilteringBoundLogger

from mm2py.backfill.verifying.both_sides import VerifySurvey
from mm2py.backfill.verifying.finding import Difference, DifferenceKind, ShownRecord, first_difference, unmatched_copy
from mm2py.backfill.verifying.latest import DifferingKeys
from mm2py.backfill.verifying.planning import PartitionPlan, Why, numbered, plan_partition, sampled
from mm2py.backfill.verifying.progress import ProgressSink, told_of
from mm2py.backfill.verifying.ranges import LEAF_OFFSETS, ComparedRange
from mm2py.backfill.verifying.reading import ComparedRangeReader, Sides
from mm2py.backfill.verifying.results import PartitionResult, RangeResult, Verification
from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.copying.reading.limits import RateLimit
from mm2py.errors import Mm2Error
from mm2py.kafka.cluster import until_answered
from mm2py.kafka.port import TopicPartition
from mm2py.transforms.comparing import refuse_transformed

TAIL_MOST: Final = 100_000
"""If more target offsets follow the end of the ledger, none of them is compared."""

SKIPPED_MOST: Final = 10_000
"""How many source offsets after the end of the ledger may be without a copy."""


@dataclass(frozen=True, slots=True)
class WantedRanges:
    """What is to be verified."""

    topics: Collection[str] = ()
    """As the source names them; empty: all topics that the flow copies."""
    since_ms: int | None = None
    sample_percent: float | None = None
    """None: everything."""
    seed: int = 0
    bytes_per_second: int | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)
    """What was asked for, for ``Verification.settings``."""
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Source offsets at which copying has ended, by partition: what is behind them on either side was written by others
    since, as after a cutover."""
    last_records: int | None = None
    """Only the last offsets of each source partition, this many; None: see ``since_ms``."""


class CompareJob(Protocol):
    """Compares ranges, with Spark or in this process."""

    def prepare(self, plans: Sequence[PartitionPlan]) -> None:
        """Take note of all that will be compared, before the other methods are called."""
        ...

    def doing(self) -> str:
        """Return what is being done, while one of the methods below runs."""
        ...

    async def compare(self, ranges: Sequence[ComparedRange]) -> list[RangeResult]:
        """Compare ranges. Returns the results in the order of the ranges."""
        ...

    async def compare_keys(
        self, ranges: Sequence[ComparedRange]
    ) -> tuple[list[RangeResult], dict[TopicPartition, DifferingKeys]]:
        """Compare the latest records of compacted partitions: the results of ranges, and what differs."""
        ...


class Verifier:
    """Verifies one flow between two clusters. It writes nothing to them."""

    def __init__(
        self, settings: FlowSettings, sides: Sides, *, clock: Clock, rng: random.Random, log: FilteringBoundLogger
    ) -> None:
        self._settings = settings
        self._sides = sides
        self._clock = clock
        self._rng = rng
        self._log = log
        self._doing: Callable[[], str] = str

    async def verify(self, wanted: WantedRanges, job: CompareJob, sink: ProgressSink) -> Verification:
        """Compare what is wanted.

        Args:
            sink: gets lines for people.
        Raises:
            ConfigError: a topic is not on the source.
            Mm2Error: a cluster does not answer, or refuses; or the job has failed.
        Cancelling is safe; a Spark job may run on until its session is stopped.
        """
        refuse_transformed(
            self._settings.flow,
            self._settings.transforms,
            "Comparing the copies",
            "their records differ from those of the source",
            remedy="mm2py preview shows what the transforms do to records.",
        )
        async with told_of(self._what, sink, self._clock):
            return await self._verify(wanted, job, sink)

    def _what(self) -> str:
        return self._doing()

    async def _verify(self, wanted: WantedRanges, job: CompareJob, sink: ProgressSink) -> Verification:
        started_s = self._clock.monotonic()
        self._doing = lambda: "reading positions, ledgers and offsets"
        survey = VerifySurvey(self._settings, self._sides, self._clock, self._rng)
        surveyed = await until_answered(
            lambda: survey.look(wanted.topics, wanted.since_ms, self._log, last_records=wanted.last_records),
            rng=self._rng,
        )
        plans = [plan_partition(facts) for facts in surveyed.facts]
        if wanted.sample_percent is not None:
            sampled(plans, wanted.sample_percent, wanted.seed)
        ranges = numbered(plans)
        plain = [one for one in ranges if not one.is_compacted]
        compacted = [one for one in ranges if one.is_compacted]
        sink.tell(f"comparing {len(ranges):,} ranges of {len(plans):,} partitions")
        job.prepare(plans)
        self._doing = job.doing
        results = await job.compare(plain)
        key_results, keys = await job.compare_keys(compacted)
        by_number = {one.number: one for one in (*results, *key_results)}
        found: list[PartitionResult] = []
        self._doing = lambda: f"looking for first differences: {len(found):,} of {len(plans):,} partitions done"
        for plan in plans:
            result = PartitionResult(plan, [by_number[one.number] for one in plan.ranges])
            await self._finish(result, keys.get((plan.facts.topic, plan.facts.partition)), wanted)
            found.append(result)
        flow = self._settings.flow
        return Verification(
            (str(flow.source), str(flow.target)),
            found,
            surveyed.not_compared,
            surveyed.reasons,
            self._clock.wall_ms(),
            self._clock.monotonic() - started_s,
            wanted.asked,
        )

    async def _finish(self, result: PartitionResult, keys: DifferingKeys | None, wanted: WantedRanges) -> None:
        """Find the first difference of a partition. Without one, compare the copies after the end of its ledger."""
        rate = RateLimit(wanted.bytes_per_second)
        reader = ComparedRangeReader(self._sides, clock=self._clock, rng=self._rng, rate=rate)
        if result.plan.facts.is_compacted:
            await self._finish_compacted(result, keys, reader)
        else:
            result.differing = sum(not one.is_equal and not one.problem for one in result.results)
            leaf = result.first_differing()
            if leaf is not None:
                result.difference = await reader.difference(leaf)
        if result.difference is None:
            await self._look_behind(result, reader, wanted.ends)

    async def _finish_compacted(
        self, result: PartitionResult, keys: DifferingKeys | None, reader: ComparedRangeReader
    ) -> None:
        plan, facts = result.plan, result.plan.facts
        if keys is not None:
            result.differing = keys.key_count
            places = (keys.source_place, keys.target_place)
            found: list[ShownRecord | None] = [None, None]
            for side, place in enumerate(places):
                if place is not None:
                    there = (await reader.records(_leaf_of(plan, place)))[side].by_place.get(place)
                    found[side] = there[0] if there else None
            known = next(place for place in places if place is not None) // 2
            expected = (known, _leaf_of(plan, 2 * known).target_position(known))
            offsets = [offset if one is None else one.offset for one, offset in zip(found, expected, strict=True)]
            of = (facts.topic, facts.partition, facts.remote_topic)
            result.difference = Difference(
                DifferenceKind.LATEST_DIFFERS, *of, offsets[0], offsets[1], found[0], found[1]
            )
            return
        foreign = [one.foreign_place for one in result.results if one.foreign_place >= 0]
        result.differing = len(foreign)
        if foreign:
            leaf = _leaf_of(plan, min(foreign))
            _, target = await reader.records(leaf)
            odd = {place: records for place, records in target.by_place.items() if place % 2}
            result.difference = first_difference(leaf, target._replace(by_place={}), target._replace(by_place=odd))

    async def _look_behind(
        self, result: PartitionResult, reader: ComparedRangeReader, ends: Mapping[TopicPartition, int]
    ) -> None:
        """Compare the copies that the ledger does not have yet with the source records that come next."""
        plan = result.plan
        if plan.tail is None or is_behind(plan, ends):
            return
        if plan.facts.is_shared or plan.facts.is_compacted or plan.tail[1] - plan.tail[0] > TAIL_MOST:
            plan.note(Why.BEHIND_LEDGER, plan.tail, is_target=True)
            return
        most = plan.tail_source + 2 * (plan.tail[1] - plan.tail[0]) + SKIPPED_MOST
        source = (plan.tail_source, max(min(plan.facts.source_bounds[1], most), plan.tail_source))
        behind = replace(plan.facts.template, source=source, target=plan.tail)
        try:
            result.tail_records, result.difference = unmatched_copy(behind, *await reader.records(behind))
        except Mm2Error as error:
            of = {"topic": plan.facts.topic, "partition": plan.facts.partition}
            self._log.warning("verify.tail_not_read", **of, why=str(error))
            plan.note(Why.UNREADABLE, plan.tail, is_target=True)


def is_behind(plan: PartitionPlan, ends: Mapping[TopicPartition, int]) -> bool:
    """Return whether the ledger has everything up to the end of the copying: what follows are no copies."""
    end = ends.get((plan.facts.topic, plan.facts.partition))
    return end is not None and plan.tail is not None and plan.tail_source >= end


def _leaf_of(plan: PartitionPlan, place: int) -> ComparedRange:
    """Return the leaf of a place."""
    ranges = [one for one in plan.ranges if not one.is_later]
    one = next((one for one in reversed(ranges) if 2 * one.source[0] <= place), ranges[0])
    leaf = one.leaf_of(place)
    return one.cut(leaf * LEAF_OFFSETS, (leaf + 1) * LEAF_OFFSETS)
