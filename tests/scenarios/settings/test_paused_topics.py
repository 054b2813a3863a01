"""An operator pauses and resumes topics and partitions under load, while workers join, die and restart.

``under_load`` judges at the end that no record is lost, repeated, or out of order.
"""

from __future__ import annotations

import asyncio

import pytest

from mm2py.kafka.port import TopicPartition
from mm2py.status.not_copied import Reason
from mm2py.status.verdict import Readiness
from mm2py.status.why import Replicated, explain_topic
from tests.fakes.metrics_page import page_of
from tests.scenarios.paused_topics import copied, pause, resume, status_of
from tests.scenarios.paused_world import under_load
from tests.scenarios.process import Process
from tests.scenarios.shared_world import SharedWorld
from tests.scenarios.standstills import causes
from tests.simulation.incarnation import SimulationLoop

FOLLOWED_S = 1.0
"""Workers read the configs topic twice a second."""

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)


async def stands_still(world: SharedWorld, topic: str, partition: int | None = None, *, for_s: float = 10.0) -> None:
    before = copied(world, topic, partition)
    await asyncio.sleep(for_s)
    assert copied(world, topic, partition) == before


async def goes_on(world: SharedWorld, topic: str, partition: int | None = None, *, within_s: float = 3.0) -> None:
    before = copied(world, topic, partition)
    await world.until(lambda: copied(world, topic, partition) > before, within_s=within_s)


def never_fenced(processes: list[Process]) -> bool:
    reconciled = [line for process in processes for line in process.said("partitions.reconciled")]
    return not any(process.said("member.fenced") for process in processes) and not any(
        line["records"] for line in reconciled
    )


async def test_a_paused_topic_stands_still_on_all_workers_and_goes_on_behind_its_last_record() -> None:
    async with under_load() as (world, processes):
        owners = world.owners()
        assert await pause(world, ("t0", None)) == [("t0", None)]
        await asyncio.sleep(FOLLOWED_S)
        await stands_still(world, "t0")
        await goes_on(world, "t1")
        assert world.owners() == owners, "they keep it"
        assert await resume(world, ("t0", None)) == [("t0", None)]
        await goes_on(world, "t0", within_s=FOLLOWED_S)
        assert world.owners() == owners
    assert never_fenced(processes)
    assert all(len(process.said("flow.ready")) == 1 for process in processes)


async def test_a_partition_is_paused_alone() -> None:
    async with under_load() as (world, processes):
        await pause(world, ("t0", 1))
        await asyncio.sleep(FOLLOWED_S)
        await stands_still(world, "t0", 1)
        for number in (0, 2):
            await goes_on(world, "t0", number)
        await resume(world, ("t0", 1))
        await goes_on(world, "t0", 1)
    assert never_fenced(processes)


async def test_partitions_that_are_added_to_a_paused_topic_are_paused_too() -> None:
    async with under_load() as (world, _):
        await pause(world, ("t0", None))
        world.source.add_partitions("t0", 4)
        await world.until(lambda: len(world.target.topics["A.t0"].partitions) == 4 and world.is_fully_assigned())
        await stands_still(world, "t0", 3)
        assert copied(world, "t0", 3) == 0
        await resume(world, ("t0", None))
        await goes_on(world, "t0", 3)


async def test_a_partition_whose_owner_is_killed_stays_paused_at_the_next_owner() -> None:
    async with under_load(2) as (world, processes):
        await pause(world, ("t0", None))
        await asyncio.sleep(FOLLOWED_S)
        before = copied(world, "t0")
        processes[0].kill()
        await world.until(world.is_fully_assigned)
        await goes_on(world, "t1", within_s=10)
        await asyncio.sleep(10)
        assert copied(world, "t0") == before
        await resume(world, ("t0", None))
        await goes_on(world, "t0")


async def test_a_partition_that_moves_to_a_worker_that_joins_stays_paused() -> None:
    async with under_load(1) as (world, processes):
        await pause(world, ("t0", None))
        await asyncio.sleep(FOLLOWED_S)
        before = copied(world, "t0")
        newcomer = world.start()
        await world.until(lambda: world.is_fully_assigned() and bool(newcomer.owns(world.flow)))
        assert any(topic == "t0" for topic, _ in newcomer.owns(world.flow))
        await asyncio.sleep(10)
        assert copied(world, "t0") == before
        await resume(world, ("t0", None))
        await goes_on(world, "t0")
    assert never_fenced(processes)


async def test_a_pause_outlives_all_workers() -> None:
    async with under_load(2) as (world, processes):
        await pause(world, ("t0", None), ("t1", 0))
        await asyncio.sleep(FOLLOWED_S)
        before = copied(world, "t0"), copied(world, "t1", 0)
        processes[0].kill()
        await processes[1].stop()
        world.start()
        await world.until(world.is_fully_assigned)
        await goes_on(world, "t1", 1, within_s=10)
        await asyncio.sleep(10)
        assert (copied(world, "t0"), copied(world, "t1", 0)) == before
        await resume(world, ("t0", None), ("t1", None))
        await goes_on(world, "t0")
        await goes_on(world, "t1", 0)


async def test_pausing_and_resuming_again_and_again_loses_and_repeats_nothing() -> None:
    async with under_load(2, seed=7) as (world, processes):
        for turn in range(30):
            part = ("t0", None) if turn % 3 else ("t1", turn % 2)
            await (pause if world.rng.random() < 0.5 else resume)(world, part)
            await asyncio.sleep(world.rng.random())
        await resume(world, ("t0", None), ("t1", None))
    assert never_fenced(processes)


async def test_records_that_expire_while_a_topic_is_paused_are_a_gap_when_it_is_resumed() -> None:
    world = SharedWorld(1, extra={"config.storage.replication.factor": "1"})
    world.make_topics(1, 1)
    process = world.start()
    await world.until(lambda: world.is_fully_assigned() and world.is_copied())
    await pause(world, ("t0", None))
    await asyncio.sleep(FOLLOWED_S)
    world.write("t0", 5)
    await asyncio.sleep(1)
    world.source.delete_records("t0", 0, world.source.partition("t0", 0).high_watermark)
    world.write("t0", 2)
    await asyncio.sleep(30)
    assert (copied(world, "t0"), process.said("source.expired")) == (3, [])
    await resume(world, ("t0", None))
    await world.until(lambda: copied(world, "t0") == 5, within_s=FOLLOWED_S)
    (line,) = process.said("source.expired")
    assert (line["first_offset"], line["last_offset"]) == (3, 7)
    await asyncio.sleep(2)
    (gap,) = [one for one in (await status_of(world))[0].gaps if one.topic == "t0"]
    assert (gap.partition, str(gap.kind)) == (0, "expired")
    process.kill()


# -- what is said of it ------------------------------------------------------------------------------------------------


def unsafe(readiness: Readiness) -> bool:
    return readiness not in {Readiness.SAFE, Readiness.BEHIND}


async def test_everything_that_is_told_of_a_paused_topic_says_so_and_nothing_counts_it_as_copied() -> None:
    async with under_load() as (world, processes):
        await asyncio.sleep(10)
        _, before = await status_of(world)
        assert before.summary == "nothing is wrong"
        at_ms = world.clock.wall_ms()
        await pause(world, ("t0", None))
        await asyncio.sleep(10)
        facts, report = await status_of(world)
        (flow,) = report.flows
        (topic,) = [one for one in flow.topics if one.topic == "t0"]
        assert not topic.is_copied
        (cause,) = topic.not_copied
        assert cause.reason is Reason.PAUSED
        assert cause.why == "Paused by ann on host (mm2py pause): ticket 4711."
        assert cause.remedy == "To copy it again: mm2py resume FILE 'A->B' --topic t0"
        assert cause.since_ms is not None and at_ms <= cause.since_ms <= at_ms + 1_000
        assert topic.lag and not report.problems
        assert report.summary.startswith("copied except t0 of A->B (paused since ")
        assert "ticket 4711" in report.summary
        assert flow.verdict.readiness is Readiness.INCOMPLETE
        assert [(one.topic, one.reason) for one in flow.verdict.left_out] == [("t0", "paused")]
        assert "t0 (paused)" in flow.verdict.text
        assert flow.verdict.safe_at_ms is not None, "the others are copied"
        assert world.clock.wall_ms() - flow.verdict.safe_at_ms < 5_000, "and the paused one does not hold it up"
        found = explain_topic(facts, flow, "t0", None, {})
        assert (found.replicated, found.reason) == (Replicated.NO, "paused")
        assert "ticket 4711" in found.text and "mm2py resume FILE 'A->B' --topic t0" in found.text
        assert explain_topic(facts, flow, "t1", None, {}).replicated is Replicated.YES
        assert [one.name for one in flow.paused] == ["t0"]
        told = {(one.reason, one.why) for one in causes(world.target)["t0"]}
        assert told == {("paused", "Paused by ann on host (mm2py pause): ticket 4711")}
        counted = sum(
            sample.value
            for process in processes
            for sample in page_of(process.herder).samples
            if sample.name == "mm2py_flow_paused_partitions"
        )
        assert counted == 3
        assert not any(process.said("partition.stalled") for process in processes)
        await resume(world, ("t0", None))
        await world.until(world.is_copied)
        await asyncio.sleep(5)
        _, after = await status_of(world)
        assert after.summary == "nothing is wrong"
        assert after.flows[0].verdict.readiness is Readiness.SAFE
        assert causes(world.target) == {}


async def test_a_paused_partition_is_told_with_its_number() -> None:
    async with under_load() as (world, _):
        await pause(world, ("t0", 1), ("t0", 2))
        await asyncio.sleep(5)
        facts, report = await status_of(world)
        (topic,) = [one for one in report.flows[0].topics if one.topic == "t0"]
        (cause,) = topic.not_copied
        assert (cause.reason, cause.partitions) == (Reason.PAUSED, "1-2")
        assert cause.remedy == "To copy it again: mm2py resume FILE 'A->B' --partition t0/1-2"
        assert report.flows[0].verdict.left_out[0].partitions == "1-2"
        assert explain_topic(facts, report.flows[0], "t0", None, {}).replicated is Replicated.PARTLY
        assert explain_topic(facts, report.flows[0], "t0", 1, {}).reason == "paused"
        assert explain_topic(facts, report.flows[0], "t0", 0, {}).replicated is Replicated.YES
        await resume(world, ("t0", None))


async def test_a_flow_is_never_called_safe_while_a_partition_is_paused_and_behind() -> None:
    """Looked at all the time, while partitions are paused, moved and resumed."""
    async with under_load(2) as (world, processes):
        wrong: list[str] = []
        paused: set[TopicPartition] = set()

        async def look() -> None:
            while True:
                was_paused = bool(paused)
                _, report = await status_of(world)
                verdict = report.flows[0].verdict
                if was_paused and (not unsafe(verdict.readiness) or report.summary == "nothing is wrong"):
                    wrong.append(verdict.text)
                await asyncio.sleep(0.1)

        looking = asyncio.ensure_future(look())
        try:
            for turn in range(6):
                await asyncio.sleep(3)
                await pause(world, ("t0", turn % 3))
                paused.add(("t0", turn % 3))
                await asyncio.sleep(5)
                if turn == 2:
                    processes[0].kill()
                    world.start()
                    await asyncio.sleep(15)
                paused.clear()
                await asyncio.sleep(3)  # a look that has begun ends
                await resume(world, ("t0", turn % 3))
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        assert not wrong
