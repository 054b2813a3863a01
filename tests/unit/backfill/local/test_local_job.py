"""Ranges are compared in this process: a few at a time, within one rate, on the broker model."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from mm2py.backfill.verifying.latest import DifferingKeys
from mm2py.backfill.verifying.local.forecast import LocalProgress, progress_line
from mm2py.backfill.verifying.local.local_job import RANGES_AT_ONCE, LocalJob
from mm2py.backfill.verifying.planning import PartitionPlan, VerifyFacts, numbered
from mm2py.backfill.verifying.ranges import LEAF_OFFSETS, ComparedRange
from mm2py.backfill.verifying.reading import DEADLINE_S, Sides
from mm2py.offsets.runs import Run
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.broker.partition_model import NO_LEADER
from tests.fakes.broker.record_batch import Record
from tests.fakes.virtual_time import VirtualClock

BATCH = 64
VALUE = b"v" * 200


class Copied:
    """A topic with some partitions and its exact copy, and a job that compares them."""

    def __init__(self, partitions: int, batches: int, *, rate: int | None = None) -> None:
        self.clock = VirtualClock()
        self.clusters = [ClusterModel(name, self.clock, random.Random(1)) for name in "AB"]
        for cluster, topic in zip(self.clusters, ("t", "A.t"), strict=True):
            cluster.create_topic(topic, partitions)
            for number in range(partitions):
                for at in range(batches):
                    cluster.append(topic, number, [b"%d %d " % (at, one) + VALUE for one in range(BATCH)])
        self.told: list[str] = []
        self.count = batches * BATCH
        source, target = self.clusters
        self.job = LocalJob(
            Sides(("A", "B"), (source, target)),
            bytes_per_second=rate,
            clock=self.clock,
            rng=random.Random(2),
            tell=self.told.append,
            shown=progress_line,
        )
        self.plans = [self.plan(number) for number in range(partitions)]
        self.ranges = numbered(self.plans)
        self.job.prepare(self.plans)

    def plan(self, number: int) -> PartitionPlan:
        facts = VerifyFacts("t", number, "A.t", (), (0, self.count), (0, self.count), bytes_per_offset=210.0)
        whole = ComparedRange(0, "t", number, "A.t", (0, self.count), (0, self.count), (Run(0, 0, self.count),))
        return PartitionPlan(facts, [whole.cut(at, at + LEAF_OFFSETS) for at in range(0, self.count, LEAF_OFFSETS)])

    @property
    def progress(self) -> LocalProgress:
        return self.job.progress


async def test_all_ranges_are_compared_a_few_at_a_time_and_counted() -> None:
    copied = Copied(2, 256)
    assert len(copied.ranges) == 8 > RANGES_AT_ONCE
    results = await copied.job.compare(copied.ranges)
    assert [one.number for one in results] == [*range(8)]
    assert all(one.is_equal and one.records == LEAF_OFFSETS for one in results)
    assert (copied.progress.ranges_done, copied.progress.records) == (8, 8 * LEAF_OFFSETS)
    assert copied.progress.part == 1.0
    assert copied.progress.read_bytes > 2 * 8 * LEAF_OFFSETS * len(VALUE)


async def test_a_range_that_differs_and_one_that_cannot_be_read_have_results_of_their_own() -> None:
    copied = Copied(3, 1)
    copied.clusters[1].truncate("A.t", 1, 0)
    copied.clusters[1].append("A.t", 1, [b"other" for _ in range(BATCH)])
    copied.clusters[0].partition("t", 2).elect(NO_LEADER, [1], now_s=0.0)
    await asyncio.sleep(1)
    started_s = copied.clock.monotonic()
    equal, differs, silent = await copied.job.compare(copied.ranges)
    assert equal.is_equal
    assert (differs.is_equal, differs.problem) == (False, "")
    assert silent.problem.startswith("A/t/2 cannot be read at offset 0: its leader does not answer within 60 s.")
    assert copied.clock.monotonic() - started_s >= DEADLINE_S
    assert copied.progress.ranges_done == 3


async def test_all_readers_together_keep_to_the_rate() -> None:
    copied = Copied(4, 128, rate=100_000)
    started_s = copied.clock.monotonic()
    await copied.job.compare(copied.ranges)
    seconds = copied.clock.monotonic() - started_s
    size = copied.progress.read_bytes
    assert size > 2 * 4 * copied.count * len(VALUE)
    assert size / 100_000 - 2 <= seconds <= size / 100_000 + 2, "virtual time"


@pytest.mark.virtual_time(limit_s=1e6)
async def test_one_that_takes_longer_than_an_hour_says_so_once_and_goes_on() -> None:
    copied = Copied(2, 512, rate=1000)
    assert copied.job.doing() == "compared 0 of 16 ranges, 0 records; read 0 MB of both clusters, 0 MB/s"
    assert [one.split(",")[0] for one in copied.told] == ["this takes at least 7 h 38 min"]
    comparing = asyncio.create_task(copied.job.compare(copied.ranges))
    await asyncio.sleep(60)
    assert copied.job.doing().startswith("compared 0 of 16 ranges, 0 records; read ")
    assert len(copied.told) == 1
    await asyncio.sleep(100_000)
    assert all(one.is_equal for one in await comparing)
    comparing.cancel()


async def test_progress_counts_the_ranges_that_are_being_read() -> None:
    copied = Copied(1, 64, rate=100_000)
    comparing = asyncio.create_task(copied.job.compare(copied.ranges))
    await asyncio.sleep(2)
    assert copied.progress.ranges_done == 0
    assert 0 < copied.progress.part <= 1
    await comparing
    assert copied.progress.part == 1.0


async def test_one_that_is_cancelled_keeps_the_results_that_it_has() -> None:
    copied = Copied(1, 512, rate=1_000_000)
    comparing = asyncio.create_task(copied.job.compare(copied.ranges))
    await asyncio.sleep(8)
    comparing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await comparing
    assert 0 < len(copied.job.results) < len(copied.ranges)
    assert all(one.is_equal for one in copied.job.results.values())
    assert copied.progress.ranges_done == len(copied.job.results)


def keyed(values: Sequence[str]) -> list[Record]:
    return [Record(value.encode(), b"key %d" % (at % 3), timestamp_ms=7) for at, value in enumerate(values)]


async def test_keys_of_all_ranges_of_a_compacted_partition_are_compared_at_the_end() -> None:
    copied = Copied(2, 0)
    contents = ["a", "b", "c", "d", "e", "f"]
    for number, others in enumerate((contents, ["a", "b", "c", "d", "E", "f"])):
        copied.clusters[0].append("t", number, keyed(contents))
        copied.clusters[1].append("A.t", number, keyed(others))
    plans = []
    for number in range(2):
        facts = VerifyFacts("t", number, "A.t", (), (0, 6), (0, 6), is_compacted=True)
        whole = ComparedRange(0, "t", number, "A.t", (0, 6), (0, 6), (Run(0, 0, 6),), is_compacted=True)
        plans.append(PartitionPlan(facts, [whole.cut(0, 3), whole.cut(3, 6)]))
    ranges = numbered(plans)
    copied.job.prepare(plans)
    results, keys = await copied.job.compare_keys(ranges)
    assert [one.records for one in results] == [3, 3, 3, 3]
    assert keys == {("t", 1): DifferingKeys(1, 8, 8)}
    assert await copied.job.compare_keys([]) == ([], {})
