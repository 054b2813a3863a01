"""A backfill that keeps only some records, between broker models: what is kept comes once, and the seam is exact."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="Run `make venv-spark`.")

from mm2py.backfill.pipeline.filtered_source import FilteredSource, RowsPassed  # noqa: E402
from mm2py.connector import Side  # noqa: E402
from mm2py.kafka.cluster import fetch_metadata  # noqa: E402
from mm2py.kafka.port import BrokerId, FetchRequest, PartitionFetch, TopicFetch, TopicPartition  # noqa: E402
from mm2py.kafka.producer.fencing import TransactionalId  # noqa: E402
from mm2py.records.backfill_record import BackfillState, Range, process_of  # noqa: E402
from mm2py_connectors.backfill.attempt import Attempt  # noqa: E402
from tests.fakes.broker.record_batch import StoredRecord  # noqa: E402
from tests.scenarios.backfill.test_backfill import ID, Lines, backfill_of, copied, ranges_of  # noqa: E402
from tests.scenarios.config_world import log_of  # noqa: E402
from tests.scenarios.shared_world import SharedWorld  # noqa: E402
from tests.scenarios.true_ledger import ledgers_in  # noqa: E402
from tests.simulation.incarnation import SimulationLoop  # noqa: E402
from tests.unit.backfill.pipeline.test_kept_batches import rows_of  # noqa: E402

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)

KEY = ("t0", 0)
Keeps = Callable[[StoredRecord], bool]


def rows(records: list[StoredRecord]) -> Any:
    told = [
        {
            "offset": one.offset,
            "us": one.timestamp_ms * 1000,
            "key": one.key,
            "value": one.value,
            "headers": [{"key": key, "value": value} for key, value in one.headers],
        }
        for one in records
    ]
    return rows_of(told, topic=KEY[0], partition=KEY[1])


class Rows:
    """What Spark brings to a task: rows that are kept, in chunks of any size, at any time."""

    def __init__(self, world: SharedWorld, at: Range, keeps: Keeps, chance: random.Random) -> None:
        history = [one for one in world.source.records(*KEY) if at.first <= one.offset < at.seam]
        self._left = list(filter(keeps, history))
        self._chance = chance

    async def next(self) -> Any:
        await asyncio.sleep(self._chance.choice([0, 0.001, 0.1, 0.7]))
        if not self._left:
            return None
        size = self._chance.randrange(1, 12)
        taken, self._left = self._left[:size], self._left[size:]
        return rows(taken)


def attempt_of(world: SharedWorld, at: Range, number: int, keeps: Keeps, chance: random.Random) -> Attempt:
    sides = []
    for side, cluster in ((world.settings.source, world.source), (world.settings.target, world.target)):
        lines: Any = Lines(cluster, f"attempt {number}")
        brokers: Any = lines
        if cluster is world.source:
            brokers = FilteredSource(lines, KEY, at, Rows(world, at, keeps, chance).next)

        async def identify(lines: Any = lines) -> str | None:
            return (await fetch_metadata(lines, [])).cluster_id

        sides.append(Side(side.alias, brokers, identify))
    name = TransactionalId(world.settings.group, process_of(ID, 0), number, str(world.flow))
    rng = random.Random(world.rng.random())
    log = world.log.bind(number=number)
    return Attempt(world.settings, *sides, name, {KEY: at}, clock=world.clock, rng=rng, log=log)


def is_kept(seed: int) -> Keeps:
    """Holes at the begin, at the end, everywhere, and nowhere."""
    kinds: list[Keeps] = [
        lambda one: one.offset % 3 == 0,
        lambda one: one.offset > 20,
        lambda one: one.offset < 20,
        lambda one: one.offset in range(10, 30),
        lambda _: False,
        lambda _: True,
        lambda one: random.Random(one.offset + seed).random() < 0.5,
    ]
    return kinds[seed % len(kinds)]


@pytest.mark.parametrize("seed", range(21))
async def test_killed_attempts_copy_what_is_kept_once_and_the_live_flow_copies_all_behind_the_seam(seed: int) -> None:
    world, chance, keeps = SharedWorld(seed), random.Random(seed), is_kept(seed)
    world.make_topics(1, 1)
    world.write("t0", 60)
    config_log = await log_of(world, "driver")
    ranges: dict[TopicPartition, Range] = ranges_of(world, "t0")
    at = ranges[KEY] = ranges[KEY]._replace(first=chance.choice([0, 0, 7]), seam=chance.choice([40, 63]))
    backfill = replace(backfill_of(ranges), where="some")
    await config_log.write_backfill(backfill)
    for number in range(chance.randrange(4)):
        work = asyncio.ensure_future(attempt_of(world, at, number, keeps, chance).run(32 << 20))
        await asyncio.wait([work], timeout=3.0 * chance.random())
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    (*_, last) = await attempt_of(world, at, 9, keeps, chance).run(32 << 20)
    assert last.source_next == at.seam
    wanted = [one for one in world.source.records(*KEY) if at.first <= one.offset < at.seam and keeps(one)]
    assert [one.content for one in world.target.records("A.t0", 0)] == [one.content for one in wanted]
    await config_log.write_backfill(replace(backfill, state=BackfillState.DONE))
    world.start()
    world.write("t0", 10)
    wanted += [one for one in world.source.records(*KEY) if one.offset >= at.seam]
    await world.until(lambda: copied(world, "t0") > 0 and len(world.target.records("A.t0", 0)) >= len(wanted))
    await asyncio.sleep(5)
    copies = world.target.records("A.t0", 0)
    assert [one.content for one in copies] == [one.content for one in wanted]
    ledger = ledgers_in(world.target)[KEY]
    told = [ledger.forward(one.offset).offset for one in wanted]
    assert told == [one.offset for one in copies], "the ledger has the holes"


async def test_what_is_kept_no_more_fails_the_attempt_instead_of_leaving_records_out() -> None:
    world = SharedWorld(1)
    world.make_topics(1, 1)
    world.write("t0", 60)
    at = ranges_of(world, "t0")[KEY]
    lines: Any = Lines(world.source, "one")
    next_rows = Rows(world, at, lambda _: True, random.Random(1)).next
    source = FilteredSource(lines, KEY, at, next_rows, window_bytes=1)

    async def fetch(offset: int) -> int:
        part = PartitionFetch(0, offset, 1 << 20)
        request = FetchRequest(
            [TopicFetch("t0", None, [part])], max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, read_committed=False
        )
        reply = await source.send(BrokerId(0), request)
        return len(reply.partitions[0].records)

    offset = 0
    while offset < 40:
        if await fetch(offset):
            offset += 1
    with pytest.raises(RowsPassed, match="t0-0 is wanted again from offset 3"):
        await fetch(3)
    assert await fetch(at.seam) == 0
    await source.close()
