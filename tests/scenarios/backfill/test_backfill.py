"""A backfill beside a live worker, between broker models: attempts are killed at any time, and nothing comes twice."""

from __future__ import annotations

import asyncio
import random
from dataclasses import asdict, replace
from operator import itemgetter
from typing import Any

import pytest

from mm2py.backfill.hold import Hold, SettingsChangedMeanwhile
from mm2py.backfill.results import counted_by_ledger
from mm2py.backfill.selection import selection_of
from mm2py.connector import Side
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.port import BrokerId, TopicPartition
from mm2py.kafka.producer.fencing import TransactionalId
from mm2py.metrics.worker_numbers import FlowSnapshot
from mm2py.records.backfill_record import Backfill, BackfillState, Holds, Range, backfill_key, process_of
from mm2py.records.connector_config import FLOW_KEY, DecidedBy
from mm2py.shared_settings.config_log import ConfigLog, SettingsWritten
from mm2py.shared_settings.flow_config import Follow, changed
from mm2py_connectors.backfill.attempt import Attempt, CopiedRange
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.broker.record_batch import Record
from tests.fakes.near_brokers import NearBrokers
from tests.fakes.network_model import frozen
from tests.scenarios.config_world import TOPIC, FlowWorker, log_of
from tests.scenarios.process import Process
from tests.scenarios.shared_world import SharedWorld
from tests.scenarios.world import World
from tests.simulation.incarnation import SimulationLoop

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)

ID = "0badcafe"
HISTORY = 40


class Lines(NearBrokers):
    """Connections of an attempt. What it has sent arrives also after it was killed."""

    def __init__(self, cluster: ClusterModel, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self.name = cluster.name

    async def send(self, broker: BrokerId, request: Any, *, channel: str = "control") -> Any:
        kept = frozen(request) if type(request).__name__ == "ProduceRequest" else request
        work = asyncio.ensure_future(self._cluster.send(broker, kept, channel=f"{self._name} {channel}"))
        work.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        return await asyncio.shield(work)


def attempt_of(world: SharedWorld, ranges: dict[TopicPartition, Range], number: int, *, task: int = 0) -> Attempt:
    source, target = (
        Side(side.alias, lines, lambda lines=lines: _identify(lines))  # type: ignore[misc]
        for side, lines in (
            (world.settings.source, Lines(world.source, f"attempt {number}")),
            (world.settings.target, Lines(world.target, f"attempt {number}")),
        )
    )
    name = TransactionalId(world.settings.group, process_of(ID, task), number, str(world.flow))
    rng = random.Random(world.rng.random())
    log = world.log.bind(number=number)
    return Attempt(world.settings, source, target, name, ranges, clock=world.clock, rng=rng, log=log)


async def _identify(lines: Lines) -> str | None:
    return (await fetch_metadata(lines, [])).cluster_id  # type: ignore[arg-type]


def ranges_of(world: SharedWorld, topic: str) -> dict[TopicPartition, Range]:
    return {(topic, part.index): Range(0, part.log.end_offset) for part in world.source.topics[topic].partitions}


def stable_end(world: SharedWorld, key: TopicPartition) -> int:
    part = world.source.partition(*key)
    return part.log.last_stable_offset(part.high_watermark)


def backfill_of(ranges: dict[TopicPartition, Range]) -> Backfill:
    topics: dict[str, dict[int, Range]] = {}
    for (topic, number), at in ranges.items():
        topics.setdefault(topic, {})[number] = at
    return Backfill(ID, topics, (tuple(sorted(ranges)),))


def measured(worker: Process) -> list[object]:
    """Return what a worker tells ``/metrics``."""
    return [part for one in worker.herder.connectors if one.connector is not None for part in one.connector.measure()]


def copied(world: SharedWorld, topic: str) -> int:
    remote = world.target.topics.get(f"A.{topic}")
    return 0 if remote is None else sum(len(part.log.batches) for part in remote.partitions)


async def assert_whole(world: SharedWorld, ranges: dict[TopicPartition, Range], rows: list[CopiedRange]) -> None:
    """Judge the results: they reach from the first offset to the seam, and tell of all records, each once."""
    told = await counted_by_ledger([asdict(row) for row in rows], world.flow, world.target)
    for key, at in ranges.items():
        mine = sorted((row for row in told if (row["topic"], row["partition"]) == key), key=itemgetter("source_first"))
        ends = [row["source_next"] for row in mine]
        assert [row["source_first"] for row in mine] == [at.first, *ends[:-1]]
        assert ends[-1] == at.seam
        records = world.target.records(f"A.{key[0]}", key[1])
        assert sum(row["records"] for row in mine) == len(records)
        assert [row["attempt"] for row in mine] in ([9], [None, 9])


PASS = {"copy.mode": "pass"}
"""One batch of the source stays one batch: then an attempt that is killed leaves some of them."""


@pytest.mark.walk(range(4))
async def test_killed_attempts_and_the_live_flow_behind_them_copy_each_record_once(seed: int) -> None:
    """F82: attempts of a task are killed; the last one reaches the seam, and the workers go on there."""
    world, chance = SharedWorld(seed, extra=PASS), random.Random(seed)
    names = world.make_topics(2, 3)
    world.write("t0", HISTORY)
    config_log = await log_of(world, "driver")
    ranges = ranges_of(world, "t0")
    backfill = backfill_of(ranges)
    await config_log.write_backfill(backfill)
    if early := chance.random() < 0.5:
        worker = world.start()
        await world.until(lambda: bool(worker.said("topic.held")), within_s=10)
        (flow,) = (one for one in measured(worker) if isinstance(one, FlowSnapshot))
        assert (flow.held_topics, flow.refused_topics) == (1, 0), "an alarm would ring for a backfill"
    traffic = asyncio.ensure_future(world.traffic(names, 0.1))
    for number in range(chance.randrange(4)):
        work = asyncio.ensure_future(attempt_of(world, ranges, number).run(32 << 20))
        await asyncio.wait([work], timeout=chance.choice([0.05, 0.3, 1.0]) * chance.random())
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    if not early:
        world.start()
    rows = await attempt_of(world, ranges, 9).run(32 << 20)
    at_seam = copied(world, "t0")
    await assert_whole(world, ranges, rows)
    await asyncio.sleep(5)
    assert copied(world, "t0") == at_seam, "the live flow did not wait"
    await config_log.write_backfill(replace(backfill, state=BackfillState.DONE))
    await world.until(lambda: copied(world, "t0") > at_seam, within_s=10)
    traffic.cancel()
    await world.finish()


@pytest.mark.walk(range(3))
async def test_of_two_attempts_at_once_one_finishes_and_the_other_waits_for_it(seed: int) -> None:
    """Speculation: the later attempt fences the earlier one, which does not fail before the task is done."""
    world, chance = SharedWorld(seed, extra=PASS), random.Random(seed)
    world.make_topics(1, 3)
    world.write("t0", HISTORY)
    config_log = await log_of(world, "driver")
    ranges = ranges_of(world, "t0")
    await config_log.write_backfill(backfill_of(ranges))
    first = asyncio.ensure_future(attempt_of(world, ranges, 0).run(1 << 20))
    await asyncio.sleep(chance.random() * 0.5)
    second = asyncio.ensure_future(attempt_of(world, ranges, 1).run(1 << 20))
    found: list[list[CopiedRange]] = await asyncio.gather(first, second)
    for rows in found:
        ends = {row.partition: row.source_next for row in rows}  # the last row: one before it is of another attempt
        assert set(ends.values()) == {HISTORY + 3}
    await config_log.write_backfill(replace(backfill_of(ranges), state=BackfillState.DONE))
    world.start()
    await world.finish()


@pytest.mark.parametrize("committed", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("seed", range(3))
async def test_transactions_compaction_and_new_partitions_at_the_seam_cost_nothing(seed: int, committed: str) -> None:
    """The seam lies within an open transaction, in a compacted log; meanwhile the topic gets more partitions."""
    world, chance = SharedWorld(seed, extra={**PASS, "isolation.level": committed}), random.Random(seed)
    world.source.create_topic("t0", 2, {"cleanup.policy": "compact"})
    transactions = [world.source.transaction() for _ in range(2)]

    def write(count: int) -> None:
        for _ in range(count):
            world.number += 1
            record = Record(b"k%d" % chance.randrange(9), b"%d" % world.number)
            chance.choice(transactions).append("t0", chance.randrange(2), [record])
            if chance.random() < 0.2:
                one = chance.choice(transactions)
                (one.commit if chance.random() < 0.6 else one.abort)()

    write(60)
    world.source.compact("t0")
    write(20)
    config_log = await log_of(world, "driver")
    ranges = ranges_of(world, "t0")
    if committed == "read_committed":
        ranges = {key: Range(0, stable_end(world, key)) for key in ranges}
    await config_log.write_backfill(backfill_of(ranges))
    world.start()
    killed = asyncio.ensure_future(attempt_of(world, ranges, 0).run(32 << 20))
    await asyncio.wait([killed], timeout=chance.random() * 0.2)
    killed.cancel()
    await asyncio.gather(killed, return_exceptions=True)
    write(10)
    rows = await attempt_of(world, ranges, 1).run(32 << 20)
    assert all(row.source_next <= ranges[row.topic, row.partition].seam for row in rows)
    world.source.add_partitions("t0", 3)
    write(10)
    for one in transactions:
        one.commit()
    for number in range(3):
        world.source.append("t0", number, [Record(b"last", b"%d" % number)])
    await config_log.write_backfill(replace(backfill_of(ranges), state=BackfillState.DONE))
    await world.finish()


@pytest.mark.parametrize("first", [0, 7, HISTORY])
async def test_a_backfill_may_begin_later_than_the_log(first: int) -> None:
    world = SharedWorld(5, extra=PASS)
    world.make_topics(1, 2)
    world.write("t0", HISTORY)
    config_log = await log_of(world, "driver")
    ranges = {key: at._replace(first=first) for key, at in ranges_of(world, "t0").items()}
    await config_log.write_backfill(backfill_of(ranges))
    rows = await attempt_of(world, ranges, 0).run(32 << 20)
    assert {row.source_first for row in rows} == {first}
    assert sum(row.records or 0 for row in rows) == 2 * (HISTORY + 3 - first)
    await config_log.write_backfill(replace(backfill_of(ranges), state=BackfillState.DONE))
    world.start()
    world.write("t0", 5)
    await world.until(world.is_copied)
    wanted = [record.content for record in world.source.records("t0", 0)][first:]
    assert [record.content for record in world.target.records("A.t0", 0)] == wanted


@pytest.mark.walk(range(3))
async def test_an_attempt_that_runs_on_after_its_backfill_was_abandoned_is_fenced(seed: int) -> None:
    """The driver is dead, and an executor does not know that. What it still sends does no harm."""
    world, chance = SharedWorld(seed, extra=PASS), random.Random(seed)
    names = world.make_topics(2, 3)
    world.write("t0", 5 * HISTORY)
    config_log = await log_of(world, "driver")
    ranges = ranges_of(world, "t0")
    await config_log.write_backfill(backfill_of(ranges))
    worker = world.start()
    await asyncio.sleep(2)
    attempt = asyncio.ensure_future(attempt_of(world, ranges, 0).run(1 << 16))
    await asyncio.sleep(chance.random() * 0.3)
    traffic = asyncio.ensure_future(world.traffic(names, 0.1))
    await config_log.write_backfill(replace(backfill_of(ranges), state=BackfillState.STOPPED, reason="abandoned"))
    await asyncio.sleep(chance.random() * 5)
    worker.kill()
    world.start()
    await asyncio.sleep(5)
    traffic.cancel()
    await world.finish()
    attempt.cancel()
    await asyncio.gather(attempt, return_exceptions=True)


@pytest.mark.walk(range(3))
async def test_a_topic_that_is_selected_behind_its_hold_is_begun_by_no_worker_before_the_seam(seed: int) -> None:
    """t0 stands in the file of the command alone. Workers lose the target for a while at any time, or start late."""
    world, chance = SharedWorld(seed, extra={**PASS, "topics": "t1"}), random.Random(seed)
    world.make_topics(2, 2)
    world.write("t0", HISTORY)
    workers = [world.start() for _ in range(2)]
    await world.until(lambda: copied(world, "t1") > 0)
    file = world.file({"topics": "t1,t0", "bytes.per.second.max": "9"})
    (by_file,) = file.configuration().flows
    config_log = await log_of(world, "driver")
    await config_log.read_patiently(config_log.rng)
    stored = config_log.config
    selection = selection_of(stored, file, by_file, ["t0"], settings=world.settings)
    assert selection is not None
    assert [str(one) for one in selection.added] == ["topics: 't1' -> 't1,t0'"]
    assert [one.name for one in selection.left] == ["bytes.per.second.max"], "named, and not stored"
    ranges = ranges_of(world, "t0")

    async def disturb() -> None:
        await asyncio.sleep(chance.random() * 6)
        one = chance.choice(workers)
        one.cut_off_from.add("B")
        await asyncio.sleep(chance.random() * 12)
        one.cut_off_from.discard("B")
        world.start()

    disturbing = asyncio.ensure_future(disturb())
    hold = Hold(config_log, backfill_of(ranges), world.clock)
    await hold.begin()
    await hold.select(selection.wanted, instead_of=selection.stored)
    world.settings = selection.settings
    keys = [record.key for record in world.target.records(TOPIC, 0)]
    assert keys.index(backfill_key(ID)) < max(at for at, key in enumerate(keys) if key == FLOW_KEY)
    assert copied(world, "t0") == 0
    await asyncio.sleep(chance.random() * 10)
    await attempt_of(world, ranges, 0).run(32 << 20)
    at_seam = copied(world, "t0")
    world.write("t0", 5)
    await disturbing
    await asyncio.sleep(8)
    assert copied(world, "t0") == at_seam, "a worker has begun the topic"
    await hold.end(BackfillState.DONE)
    await world.until(lambda: copied(world, "t0") > at_seam, within_s=20)
    await world.finish()


async def test_a_selection_that_another_writer_has_overtaken_is_not_stored() -> None:
    world = SharedWorld(1, extra={"topics": "t1"})
    world.make_topics(2, 1)
    world.start()
    await world.until(lambda: copied(world, "t1") > 0)
    file = world.file({"topics": "t1,t0"})
    (by_file,) = file.configuration().flows
    config_log, other = await log_of(world, "driver"), await log_of(world, "other")
    await config_log.read_patiently(config_log.rng)
    await other.read_patiently(other.rng)
    selection = selection_of(config_log.config, file, by_file, ["t0"], settings=world.settings)
    assert selection is not None
    hold = Hold(config_log, backfill_of(ranges_of(world, "t0")), world.clock)
    await hold.begin()
    theirs = changed(other.config, {**selection.stored.properties, "topics": "t1,t7"}, DecidedBy.APPLY)
    assert isinstance(await other.write(theirs, instead_of=other.config), SettingsWritten)
    with pytest.raises(SettingsChangedMeanwhile):
        await hold.select(selection.wanted, instead_of=selection.stored)
    assert config_log.config is not None
    assert config_log.config.properties["topics"] == "t1,t7"


async def test_a_worker_that_reads_hold_and_selection_at_once_heeds_the_hold_first() -> None:
    """It has read both between deciding what to run and following it, as where it completes a claim meanwhile."""
    world = World(1)
    worker, driver = FlowWorker(world, "w1", {"topics": "t1"}), await log_of(world, "driver")

    async def both(config_log: ConfigLog) -> None:
        await driver.read_patiently(driver.rng)
        await driver.write_backfill(backfill_of({("t0", 0): Range(0, 9)}))
        stored = driver.config
        wanted = changed(stored, {"enabled": "true", "topics": "t1,t0"}, DecidedBy.APPLY)
        assert isinstance(await driver.write(wanted, instead_of=stored), SettingsWritten)
        await config_log.read_patiently(config_log.rng)

    await worker.start(settled=both)
    await asyncio.sleep(2)
    assert worker.told == [Holds, Follow]
    await worker.stop()
