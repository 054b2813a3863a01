"""Hazards between workers of a group, one each test: unknown outcomes, missing fences, refusals, stops, moves back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from mm2py.flow import ConnectorName, Kind, parse_flow
from mm2py.group.member import MEMBER_DRAIN_S
from mm2py.kafka.port import ProduceRequest, TopicPartition
from mm2py.records import control_codec
from mm2py.records.control_record import Left, MemberId
from mm2py.records.gap_record import Command, CommandAnswer, Gap, GapLogRecord, decode, encode_value
from mm2py.records.source_offset import partition_of
from mm2py_connectors.source.connector import SourceConnector
from mm2py_connectors.source.refusals import ExactlyOnceImpossible
from tests.fakes.broker.record_batch import Record
from tests.scenarios.gate import Request
from tests.scenarios.shared_world import SESSION_S, Process, SharedWorld, run
from tests.simulation.incarnation import SimulationLoop

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)

OFFSETS = "mm2-offsets.A.internal"
STATUS = "mm2-status.A.internal"
LOG = "mm2-cluster.mm2py.internal"
UNKNOWN = b'{"format":1,"kind":"Vote","skippable":false,"version":"9.1","member":"x"}'
HEARTBEATS = ConnectorName(parse_flow("A->B"), Kind.HEARTBEAT)


async def settled(world: SharedWorld, workers: int) -> list[Process]:
    begun = [world.start() for _ in range(workers)]
    await world.until(lambda: world.is_fully_assigned() and world.is_copied())
    return begun


def late(topic: str, after_s: float) -> Callable[[str, Request], float]:
    """Deliver requests that write to a topic so late."""

    def late_s(cluster: str, request: Request) -> float:
        return after_s if isinstance(request, ProduceRequest) and request.topics[0].name == topic else 0.0

    return late_s


def owner(world: SharedWorld, key: TopicPartition) -> Process:
    (found,) = [process for process in world.up if key in process.owns(world.flow)]
    return found


def guarantees(world: SharedWorld) -> set[str]:
    return {flow.guarantee for process in world.up for flow in process.herder.status()}


def producers(world: SharedWorld, topic: str, partition: int) -> list[int]:
    return [batch.producer_id for batch in world.target.batches(topic, partition) if not batch.control]


# Unknown outcomes


@pytest.mark.parametrize("ends", ["stopped", "killed", "frozen"])
@pytest.mark.parametrize("topic", ["A.t0", OFFSETS])
async def test_unanswered_requests_of_a_worker_are_fenced_before_other_workers_resume(topic: str, ends: str) -> None:
    world = SharedWorld()
    (name,) = world.make_topics(1, 4)
    await settled(world, 3)
    left = owner(world, (name, 0))
    left.late_s = late(topic, 70.0)
    for _ in range(3):
        world.write(name)
        await asyncio.sleep(0.2)
    if ends == "stopped":
        await left.stop()
    elif ends == "killed":
        left.kill()
    else:
        left.freeze()
    await world.until(lambda: world.is_copied() and bool(world.owners().get((name, 0))), within_s=60)
    world.write(name, 5)
    await asyncio.gather(*left.under_way)
    left.late_s = lambda *_: 0.0
    left.thaw()
    await world.finish()
    assert world.promises_once


async def test_a_worker_that_is_evicted_while_it_drains_does_not_return() -> None:
    world = SharedWorld()
    (name,) = world.make_topics(1, 4)
    first, second = await settled(world, 2)
    first.late_s = late("A.t0", 25.0)
    world.write(name)
    await asyncio.sleep(0.3)
    stopping = asyncio.create_task(first.stop())
    await asyncio.sleep(0.1)
    first.cut_off_from.add("B")
    await asyncio.sleep(SESSION_S + 3)
    assert second.said("member.evicted")
    first.cut_off_from.clear()
    world.write(name, 3)
    await stopping
    assert len(first.said("member.joined")) == 1
    assert first.herder.connectors[0].attempts == 1
    await asyncio.gather(*first.under_way)
    await world.finish()
    assert world.promises_once


# Workers that cannot be fenced


@pytest.mark.parametrize("may", [True, False])
async def test_a_dead_worker_with_an_expired_id_lowers_the_guarantee_only_without_the_right_to_fence(
    may: bool,
) -> None:
    world = SharedWorld()
    names = world.make_topics(2, 3)
    await settled(world, 3)
    dead = owner(world, (names[0], 0))
    world.target.coordinator.transactional_ids.clear()
    if not may:
        world.target.denied_on_cluster |= {"ALTER", "CLUSTER_ACTION"}
    dead.kill()
    await world.until(world.is_fully_assigned)
    for name in names:
        world.write(name)
    await world.until(world.is_copied)
    if may:
        assert guarantees(world) == {"exactly-once"}
    else:
        assert all(text.startswith("at-least-once (") for text in guarantees(world)), guarantees(world)
    await world.finish()
    assert world.promises_once is may


async def test_a_dead_worker_whose_previous_id_may_still_write_positions_lowers_the_guarantee() -> None:
    world = SharedWorld()
    (name,) = world.make_topics(1, 6)
    dead, _ = await settled(world, 2)
    dead.late_s = late("A.t0", 40.0)
    world.write(name)
    for _ in range(2):  # with four workers none keeps three of six partitions
        world.start()
    await world.until(lambda: dead.herder.connectors[0].attempts > 1, within_s=60)
    dead.late_s = lambda *_: 0.0
    await world.until(lambda: world.is_fully_assigned() and world.is_copied())
    await asyncio.sleep(5)
    assert dead.member is not None
    known = world.target.coordinator.transactional_ids
    for earlier in [text for text in known if f"{dead.member.id}-0" in text]:
        del known[earlier]
    world.target.denied_on_cluster |= {"ALTER", "CLUSTER_ACTION"}
    dead.kill()
    await world.until(world.is_fully_assigned)
    await world.until(lambda: all(text.startswith("at-least-once (") for text in guarantees(world)), within_s=1)


async def test_where_exactly_once_is_required_a_dead_worker_that_cannot_be_fenced_stops_the_flow() -> None:
    world = SharedWorld(extra={"B.exactly.once.source.support": "enabled"})
    names = world.make_topics(2, 3)
    await settled(world, 3)
    dead = owner(world, (names[0], 0))
    world.target.coordinator.transactional_ids.clear()
    world.target.denied_on_cluster |= {"ALTER", "CLUSTER_ACTION"}
    dead.kill()
    await asyncio.sleep(20)
    others = [process for process in world.processes if process is not dead]
    assert all(process.said("flow.refused") for process in others), world.logs()


# Recopies


async def test_late_requests_of_a_dead_worker_do_not_land_among_recopied_records() -> None:
    world = SharedWorld(extra={"on.target.loss": "recopy"})
    (name,) = world.make_topics(1, 3)
    await settled(world, 2)
    dead = owner(world, (name, 1))
    dead.late_s = late("A.t0", 30.0)
    world.write(name)
    await asyncio.sleep(0.5)
    dead.kill()
    world.target.delete_topic("A.t0")
    await world.until(world.is_copied)
    await asyncio.gather(*dead.under_way)
    await world.finish()
    assert world.promises_once


# Coordinators and moves


async def test_a_new_coordinator_syncs_topic_configurations_at_once() -> None:
    world = SharedWorld(extra={"sync.topic.configs.interval.seconds": "3600"})
    (name,) = world.make_topics(1, 3)
    await settled(world, 2)
    (head,) = [process for process in world.up if process.is_coordinator(world.flow)]
    await asyncio.sleep(5)
    world.source.configure_topic(name, {"retention.ms": "1234567"})
    head.kill()
    await world.until(
        lambda: world.target.topics["A.t0"].overrides.get("retention.ms") == "1234567", within_s=SESSION_S + 5
    )


async def test_partitions_that_move_away_and_back_in_one_incarnation_resume_where_the_other_worker_was() -> None:
    world = SharedWorld()
    (name,) = world.make_topics(1, 6)
    (first,) = await settled(world, 1)
    traffic = asyncio.create_task(world.traffic([name], 0.05))
    for _ in range(3):
        second = world.start()
        await world.until(lambda second=second: len(second.owns(world.flow)) >= 2)  # type: ignore[misc]
        await asyncio.sleep(2)
        assert await second.stop() == 0
        await world.until(world.is_fully_assigned)
    traffic.cancel()
    assert first.herder.connectors[0].attempts == 1
    await world.finish()
    assert world.promises_once
    assert guarantees(world) == {"exactly-once"}


@pytest.mark.parametrize("killed", [False, True])
async def test_members_of_the_group_are_no_foreign_writers(killed: bool) -> None:
    world = SharedWorld()
    names = world.make_topics(2, 4)
    await settled(world, 3)
    traffic = asyncio.create_task(world.traffic(names, 0.05))
    await asyncio.sleep(3)
    if killed:
        world.processes[0].kill()
    else:
        await world.processes[0].stop()
    await asyncio.sleep(SESSION_S + 3)
    world.start()
    await asyncio.sleep(5)
    traffic.cancel()
    await world.finish()
    assert guarantees(world) == {"exactly-once"}
    assert not any(process.said("foreign.writer") for process in world.processes)


# Positions that cannot be read


async def test_partitions_that_wait_for_a_partition_of_the_offsets_topic_are_named_and_start_when_it_is_back() -> None:
    world = SharedWorld()
    world.make_topics(1, 6)
    first, second = await settled(world, 2)
    part = world.target.partition(OFFSETS, 0)
    leader, part.leader = part.leader, -1
    dead = first if not first.is_leader else second
    left = second if dead is first else first
    dead.kill()
    await asyncio.sleep(30)
    said = [event for event in left.events if OFFSETS in str(event.get("why"))]
    assert said, world.logs()
    part.leader = leader
    await world.finish()


# A flow that one worker must not run


TWO_FLOWS = {"clusters": "A,B,C", "C.bootstrap.servers": "c:1", "C->B.enabled": "true"}


@pytest.mark.parametrize("first", [True, False])
async def test_a_flow_that_one_worker_refuses_is_copied_by_the_others(first: bool) -> None:
    world = SharedWorld(extra=TWO_FLOWS)
    other = world.another_cluster("C")
    world.make_topics(2, 3)
    if first:
        wrong = world.start(A=world.target, C=other)
        await asyncio.sleep(3)
        world.start(C=other)
    else:
        world.start(C=other)
        await world.until(world.is_copied)
        wrong = world.start(A=world.target, C=other)
    await world.until(lambda: bool(wrong.said("flow.refused")))
    await world.until(world.is_copied)
    world.write("t0")
    world.write("t1")
    await world.until(world.is_copied, within_s=10)
    assert wrong.is_up
    assert not wrong.owns(world.flow)
    assert not any(process.said("member.evicted") for process in world.processes)
    other.create_topic("c0", 4)
    other.append("c0", 3, [b"x"])
    await world.until(lambda: "C.c0" in world.target.topics and bool(world.target.records("C.c0", 3)))


@pytest.mark.parametrize("unanswered", [True, False])
async def test_a_flow_that_a_worker_refuses_at_run_time_is_copied_by_the_others(unanswered: bool) -> None:
    world = SharedWorld(extra={**TWO_FLOWS, "B.exactly.once.source.support": "enabled"})
    other = world.another_cluster("C")
    (name,) = world.make_topics(1, 6)
    for _ in range(2):
        world.start(C=other)
    await world.until(lambda: world.is_fully_assigned() and world.is_copied())
    refused, left = world.processes
    if unanswered:
        refused.late_s = late("A.t0", 20.0)
    world.write(name, 2)
    await asyncio.sleep(0.3)
    running = refused.herder.connectors[0]
    assert isinstance(running.connector, SourceConnector)
    assert running.connector.task is not None
    task = running.connector.task
    task._start(raise_refused(world), "a refusal")
    await world.until(lambda: bool(refused.said("flow.refused")))
    await world.until(lambda: left.owns(world.flow) >= world.keys())
    await asyncio.gather(*refused.under_way)
    world.write(name, 2)
    await world.until(world.is_copied)
    assert refused.is_up
    assert refused.member is not None
    wrong = world.findings()
    assert not wrong, wrong


async def raise_refused(world: SharedWorld) -> None:
    raise ExactlyOnceImpossible(world.flow, "a right was revoked")


# Heartbeats


async def test_a_worker_that_cannot_append_to_the_control_log_emits_no_heartbeats_after_its_session() -> None:
    world = SharedWorld(extra={"emit.heartbeats.enabled": "true", "emit.heartbeats.interval.seconds": "1"})
    world.make_topics(1, 3)
    await settled(world, 2)
    await asyncio.sleep(3)
    (emitting,) = [
        process
        for process in world.up
        if any(running.is_up for running in process.herder.connectors if running.name == HEARTBEATS)
    ]
    emitted_at_s: list[float] = []

    def only_heartbeats_arrive(cluster: str, request: Request) -> float:
        if cluster != "B":
            return 0.0
        if isinstance(request, ProduceRequest) and request.topics[0].name == "heartbeats":
            emitted_at_s.append(world.clock.monotonic())
            return 0.0
        return 70.0

    cut_off_at_s = world.clock.monotonic()
    emitting.late_s = only_heartbeats_arrive
    await asyncio.sleep(20)
    assert 2 <= len(emitted_at_s) <= 4
    assert emitted_at_s[-1] < cut_off_at_s + SESSION_S


# Starting at the end


def test_under_latest_a_new_topic_of_several_workers_starts_at_its_end_and_added_partitions_at_their_start() -> None:
    async def scenario() -> None:
        world = SharedWorld(extra={"A.consumer.auto.offset.reset": "latest", "topics.watch.interval.ms": "1000"})
        (name,) = world.make_topics(1, 6)
        for _ in range(3):
            world.start()
        await world.until(world.is_fully_assigned)
        await asyncio.sleep(3)
        world.source.create_topic("t1", 6)
        world.write("t1", 3)
        await world.until(lambda: world.is_fully_assigned() and "A.t1" in world.target.topics)
        await asyncio.sleep(3)
        assert all(not producers(world, f"A.{name}", number) for name in ("t0", "t1") for number in range(6))
        world.source.add_partitions("t1", 9)
        for number in (6, 7, 8):
            world.source.append("t1", number, [b"first"])
        await world.until(lambda: world.is_fully_assigned() and len(world.target.topics["A.t1"].partitions) == 9)
        world.write(name)
        world.write("t1")
        await world.until(world.is_copied)
        counts = [len(world.target.records("A.t1", number)) for number in range(9)]
        assert counts == [1, 1, 1, 1, 1, 1, 2, 2, 2]
        assert [len(world.target.records("A.t0", number)) for number in range(6)] == [1] * 6

    run(scenario())


# Gaps


def kept(world: SharedWorld) -> list[GapLogRecord]:
    table: dict[bytes, GapLogRecord] = {}
    for number in range(len(world.target.topics[STATUS].partitions)):
        for record in world.target.records(STATUS, number):
            if record.value is None:
                table.pop(record.key or b"", None)
            elif (found := decode(record.key or b"", record.value)) is not None:
                table[record.key or b""] = found
    return list(table.values())


def gaps(world: SharedWorld) -> list[Gap]:
    return [one for one in kept(world) if isinstance(one, Gap)]


def answers(world: SharedWorld) -> list[CommandAnswer]:
    found = []
    for number in range(len(world.target.topics[STATUS].partitions)):
        for record in world.target.records(STATUS, number):
            one = None if record.value is None else decode(record.key or b"", record.value)
            if isinstance(one, CommandAnswer):
                found.append(one)
    return found


@pytest.mark.parametrize("moves", ["killed", "stopped", "joined", "stays"])
async def test_a_stopped_partition_that_moves_stays_stopped_and_resumes_once_when_its_owner_is_told(moves: str) -> None:
    world = SharedWorld(extra={"on.source.gap": "stop"})
    (name,) = world.make_topics(1, 4)
    await settled(world, 2)
    await asyncio.sleep(3)
    had = owner(world, (name, 0))
    world.source.truncate(name, 0, 2)
    await world.until(lambda: [str(one.done) for one in gaps(world)] == ["stopped"])
    (gap,) = gaps(world)
    if moves == "killed":
        had.kill()
    elif moves == "stopped":
        assert await had.stop() == 0
    elif moves == "joined":
        world.start()
    await asyncio.sleep(SESSION_S + 4)
    world.source.append(name, 0, [b"after"])
    await asyncio.sleep(5)
    assert [str(one.done) for one in gaps(world)] == ["stopped"]
    assert all(record.value != b"after" for record in world.target.records("A.t0", 0))
    assert gap.position is not None
    one = Command("c1", name, 0, gap.position, 1)
    partitions = len(world.target.topics[STATUS].partitions)
    world.target.append(STATUS, partition_of(one.key, partitions), [Record(encode_value(one), key=one.key)])
    await world.until(lambda: bool(answers(world)))
    await asyncio.sleep(5)
    assert [found.carried_out for found in answers(world)] == [True], answers(world)
    world.source.append(name, 0, [b"more"])
    await world.until(lambda: world.target.records("A.t0", 0)[-1].value == b"more")
    assert not any(process.said("flow.failed") for process in world.processes)


async def test_a_recreated_topic_stops_on_all_workers_and_each_partition_resumes_when_it_is_accepted() -> None:
    world = SharedWorld(extra={"on.source.gap": "stop", "topics.watch.interval.ms": "1000"})
    (name,) = world.make_topics(1, 4)
    await settled(world, 3)
    await asyncio.sleep(3)
    world.source.recreate_topic(name, 4)
    await world.until(lambda: len([one for one in gaps(world) if str(one.done) == "stopped"]) == 4)
    world.write(name)
    await asyncio.sleep(5)
    partitions = len(world.target.topics[STATUS].partitions)
    for gap in gaps(world):
        assert gap.position is not None
        one = Command(f"c{gap.partition}", name, gap.partition, gap.position, 1)
        world.target.append(STATUS, partition_of(one.key, partitions), [Record(encode_value(one), key=one.key)])
    await world.until(lambda: len(answers(world)) >= 4)
    await world.until(world.is_copied)
    assert [found.carried_out for found in answers(world)] == [True] * 4


# Plain producer ids


async def test_workers_with_plain_producer_ids_copy_all_and_warn_of_possible_duplicates() -> None:
    world = SharedWorld(nodes=3)
    world.target.transactions_available = False
    names = world.make_topics(2, 3)
    for _ in range(3):
        world.start()
    await world.until(world.is_fully_assigned, within_s=300)
    traffic = asyncio.create_task(world.traffic(names))
    await asyncio.sleep(5)
    world.up[0].kill()
    await asyncio.sleep(SESSION_S + 5)
    assert await world.up[0].stop() == 0
    world.start()
    await asyncio.sleep(5)
    traffic.cancel()
    await world.finish(within_s=300)
    assert all(text.startswith("at-least-once") for text in guarantees(world))


# The end


def left_outcome_unknown(world: SharedWorld) -> dict[MemberId, bool]:
    values = [record.value for record in world.target.records(LOG, 0) if record.value != UNKNOWN]
    said = [control_codec.decode(value, where=LOG) for value in values]
    return {one.member: one.outcome_unknown for one in said if isinstance(one, Left)}


@pytest.mark.parametrize("unanswered", [False, True])
async def test_workers_that_meet_a_mandatory_unknown_record_leave_as_soon_as_they_are_drained(unanswered: bool) -> None:
    """One worker was upgraded. The partitions that the others release drained need no fence and no waiting."""
    world = SharedWorld()
    (name,) = world.make_topics(1, 6)
    slow, _ = await settled(world, 2)
    ids = [process.member.id for process in world.up if process.member is not None]
    if unanswered:
        slow.late_s = late("A.t0", 70.0)
    for _ in range(5):
        world.write(name)
        await asyncio.sleep(0.1)
    world.target.append(LOG, 0, [Record(UNKNOWN)])
    await world.until(lambda: all(process.said("member.too_old") for process in world.up))
    took_s = await world.until(lambda: len(left_outcome_unknown(world)) == 2)
    assert left_outcome_unknown(world) == {ids[0]: unanswered, ids[1]: False}
    assert (took_s > MEMBER_DRAIN_S - 1) == unanswered
    await world.until(lambda: not world.up)
    assert all("9.1" in process.said("flow.refused")[0]["why"] for process in world.processes)


async def test_a_worker_that_may_run_none_of_its_flows_leaves_its_group() -> None:
    world = SharedWorld(extra={"emit.heartbeats.enabled": "false"})
    world.make_topics(1, 3)
    await settled(world, 1)
    wrong = world.start(A=world.target)
    await world.until(lambda: not wrong.is_up)
    assert wrong.incarnation.task is not None
    assert wrong.incarnation.task.result() == 1
    await asyncio.sleep(SESSION_S + 3)
    assert not world.processes[0].said("member.evicted")
