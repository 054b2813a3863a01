"""What other flows have copied is read from their positions: what need not wait for that does not, nor for its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from mm2py.kafka.port import FetchRequest
from mm2py.records.source_offset import decode_key
from tests.fakes.broker_model import ClusterModel
from tests.fakes.record_batch import Record
from tests.scenarios.gate import Request
from tests.scenarios.shared_world import Process, run
from tests.scenarios.test_one_remote_topic import C_B, PARTITIONS, LeadersTaken, Rivals, refused
from tests.scenarios.test_settings_followed import apply

POSITIONS = "mm2-offsets.C.internal"
ANY_TOPIC = {"C->B.topics": ".*", "A->B.topics": ".*"}


def unanswered(name: str, request: Request) -> float:
    """The broker that has C's positions takes requests for them, and answers none."""
    asks = isinstance(request, FetchRequest) and any(topic.name == POSITIONS for topic in request.topics)
    return 1e5 if name == "B" and asks else 0.0


async def beside_unread_positions(make_unreadable: Callable[[ClusterModel], None]) -> tuple[Rivals, Process]:
    """Start a worker that cannot read C's positions, though both flows may lead into any topic. What A->B has copied
    before goes on at once, as does what is new on both sides; then A gets ``t2``, which the target has already."""
    scene = Rivals(ANY_TOPIC)
    world = scene.world
    world.source.create_topic("t1", 2)
    first = scene.start()
    took_s = await scene.until_copied("t1", prefix="")
    await asyncio.sleep(5)
    assert await first.stop() == 0
    make_unreadable(world.target)
    process = scene.start()
    assert await scene.until_copied("t1", prefix="") < took_s + 1
    world.source.create_topic("t3", 2)
    await scene.until_copied("t3", prefix="")
    world.target.create_topic("t2", 2)
    world.source.create_topic("t2", 2)
    world.write("t2")
    await world.until(lambda: bool(process.said("holders.unknown")))
    return scene, process


def test_positions_without_a_leader_hold_up_only_what_was_never_copied_and_is_there() -> None:
    async def scenario() -> None:
        taken: list[LeadersTaken] = []
        scene, process = await beside_unread_positions(lambda target: taken.append(LeadersTaken(target, POSITIONS)))
        await asyncio.sleep(60)
        assert not scene.world._is_copied("t2", "t2")
        assert len(process.said("holders.unknown")) == 1
        assert len(process.said("partitions.not_begun")) == 1
        taken[0].give_back()
        await scene.world.until(lambda: scene.world._is_copied("t2", "t2"))

    run(scenario())


def test_positions_that_may_not_be_read_hold_up_nothing() -> None:
    async def scenario() -> None:
        def forbid(target: ClusterModel) -> None:
            target.denied_topics = {POSITIONS}

        scene, _ = await beside_unread_positions(forbid)
        await scene.world.until(lambda: scene.world._is_copied("t2", "t2"), within_s=5)

    run(scenario())


def test_a_start_waits_for_no_answer_about_what_others_have_copied() -> None:
    async def scenario() -> None:
        scene = Rivals(ANY_TOPIC)
        world = scene.world
        world.source.create_topic("t1", 8)
        first = scene.start()
        await scene.until_copied("t1", prefix="")
        await asyncio.sleep(5)
        assert await first.stop() == 0
        second = scene.start()
        second.late_s = unanswered
        world.write("t1")
        await world.until(lambda: world._is_copied("t1", "t1"), within_s=2)

    run(scenario())


@pytest.mark.parametrize("answers", [True, False])
def test_a_planned_move_pauses_no_partition_for_what_others_have_copied(answers: bool) -> None:
    """A topic waits meanwhile whose remote topic is there, and may be another flow's."""

    async def scenario() -> None:
        scene = Rivals(ANY_TOPIC)
        world = scene.world
        world.source.create_topic("t1", 8)
        scene.start(), scene.start()
        await scene.until_copied("t1", prefix="")
        await world.until(lambda: len(world.owners()) == 8 and all(process.owns(world.flow) for process in world.up))
        await asyncio.sleep(5)
        if not answers:
            for process in world.up:
                process.late_s = unanswered
        world.target.create_topic("t2", 2)
        world.source.create_topic("t2", 2)
        world.write("t2")
        await asyncio.sleep(3)
        assert world._is_copied("t2", "t2") is answers
        other = next(process for process in world.up if not process.is_head(world.flow))
        stopping = asyncio.create_task(other.stop())
        await asyncio.sleep(0.05)
        world.write("t1")
        assert await world.until(lambda: world._is_copied("t1", "t1")) < 1
        assert await stopping == 0

    run(scenario())


@pytest.mark.parametrize("on_loss", ["recopy", "stop"])
def test_positions_of_a_copy_that_is_no_more_are_no_reason_not_to_wait(on_loss: str) -> None:
    """A->B copied t0 once. That copy was deleted, C->B has copied t0 since; A is to copy it again at a moment when C's
    positions have no leader."""

    async def scenario() -> None:
        scene = Rivals({"A->B.on.target.loss": on_loss, "C->B.topics": "none"})
        world = scene.world
        scene.make("A")
        first = scene.start()
        await world.until(lambda: scene.is_of("A"))
        assert await first.stop() == 0
        world.target.delete_topic("t0")
        scene.make("C")
        world.extra |= {"A->B.topics": "none", "C->B.topics": "t0"}
        second = world.start(C=scene.other, apply=True)
        await world.until(lambda: scene.is_of("C"))
        assert await second.stop() == 0
        world.extra["A->B.topics"] = "t0"
        taken = LeadersTaken(world.target, POSITIONS)
        third = world.start(C=scene.other, apply=True)
        await asyncio.sleep(60)
        taken.give_back()
        scene.write("C")
        await world.until(lambda: all(len(world.target.records("t0", number)) == 2 for number in range(PARTITIONS)))
        await world.until(lambda: refused(third) == {"A->B"})
        assert scene.is_of("C")

    run(scenario())


@pytest.mark.parametrize("settled", [True, False])
def test_where_a_flow_leads_is_known_when_its_stored_settings_are(settled: bool) -> None:
    """``mm2py apply`` widened C->B's topics to t0, the files still say otherwise. All start again while the topic that
    keeps C's settings has no leader; retention has emptied the copy."""

    async def scenario() -> None:
        scene = Rivals({"C->B.topics": "other"})
        world = scene.world
        scene.make("C")
        first = scene.start()
        await asyncio.sleep(10)
        await apply(world, C_B, topics="t0")
        await world.until(lambda: scene.is_of("C"))
        assert await first.stop() == 0
        scene.make("A")
        for number in range(PARTITIONS):
            scene.empty(number)
        taken = None if settled else LeadersTaken(world.target, "mm2-configs.C.internal")
        process = scene.start()
        await asyncio.sleep(60)
        if taken is not None:
            assert not process.said("topic.refused")
            taken.give_back()
        await world.until(lambda: refused(process) == {"A->B"}, within_s=120)
        assert not any("A" in scene.copied(number) for number in range(PARTITIONS))

    run(scenario())


async def beside_an_emptied_copy(value: Callable[[bytes], bytes]) -> None:
    """C's positions of t0 become others, and a cleaner removes what stood before; its copy is emptied. A must not have
    it."""
    scene = Rivals()
    world = scene.world
    await scene.copied_by_c()
    for number in range(PARTITIONS):
        scene.empty(number)
    for partition in range(len(world.target.topics[POSITIONS].partitions)):
        last = {record.key: record.value for record in world.target.records(POSITIONS, partition)}
        for key, stored in last.items():
            if stored is not None and (at := decode_key(key)) is not None and at.topic == "t0":
                world.target.append(POSITIONS, partition, [Record(value(stored), key)])
    world.target.compact(POSITIONS)
    process = scene.start()
    await world.until(lambda: refused(process) == {"A->B"})
    await asyncio.sleep(30)
    assert not any("A" in scene.copied(number) for number in range(PARTITIONS))


def test_a_position_that_nobody_understands_speaks_of_the_copy_all_the_same() -> None:
    run(beside_an_emptied_copy(lambda _: b"half a rec"))


def test_a_position_that_mirrormaker_2_has_stored_speaks_of_the_copy_that_is_there() -> None:
    run(beside_an_emptied_copy(lambda _: b'{"offset":0}'))


def test_a_flow_whose_stored_settings_may_not_be_read_leads_where_its_file_says() -> None:
    """t0 is there on the target already, and empty: it waits for nobody."""

    async def scenario() -> None:
        scene = Rivals()
        world = scene.world
        world.target.denied_topics = {"mm2-configs.A.internal", "mm2-configs.C.internal"}
        world.target.create_topic("t0", PARTITIONS)
        scene.make("A")
        scene.start()
        await world.until(lambda: scene.is_of("A"), within_s=15)

    run(scenario())
