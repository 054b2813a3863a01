"""Workers of one group on the broker model: which one leads, which are evicted, and what evicts none."""

from __future__ import annotations

import asyncio

import pytest

from mm2py.flow import Kind, parse_flow
from mm2py.group.control_log import ControlLogLost
from mm2py.group.election.backend import CandidateState
from mm2py.group.member import MEMBER_DRAIN_S, MemberEvicted
from mm2py.group.member_state import Suspended
from mm2py.group.refusal import GroupRefused
from mm2py.kafka.port import BrokerId, PartitionProduce, ProduceRequest, TopicProduce
from mm2py.kafka.producer.incarnation import OwnProducer
from mm2py.kafka.write_gate import IncarnationEnded
from mm2py.records.batch import NewRecord, build_batch
from mm2py.records.control_codec import NewerFormat
from mm2py.records.control_record import (
    Beat,
    Claim,
    Evicted,
    Fenced,
    Left,
    Resigned,
    TaskName,
)
from tests.fakes.broker.broker_model import Record
from tests.fakes.virtual_time import VirtualClock
from tests.scenarios.group_world import BEAT_S, FLOW, LOG, OFFSETS, SESSION_S, STATUS, GroupWorld

pytestmark = pytest.mark.virtual_time(limit_s=40_000)

SEEDS = range(2)
OTHER = parse_flow("C->B")
UNKNOWN = b'{"format":1,"kind":"Vote","skippable":false,"version":"99.1","member":"x"}'


def a_write(topic: str = OFFSETS) -> ProduceRequest:
    records = build_batch([NewRecord(None, b"x", 1)])
    return ProduceRequest([TopicProduce(topic, None, [PartitionProduce(0, records)])], 1000)


@pytest.mark.walk(SEEDS)
async def test_of_several_workers_one_leads_and_each_partition_has_one_owner(seed: int) -> None:
    world = GroupWorld(seed)
    async with world.running(4) as workers:
        assert sum(worker.member.is_leader for worker in workers) == 1
        await world.list_topic(workers, 20)
        await asyncio.sleep(10)
        assert world.copied(workers) == list(range(20))
        assert len({worker.member.view.leader_epoch for worker in workers}) == 1
        assert all(len(worker.members) == 1 for worker in workers)


@pytest.mark.walk(SEEDS)
async def test_a_lone_worker_leads_as_soon_as_it_has_joined(seed: int) -> None:
    world = GroupWorld(seed)
    worker = world.add("w1")
    await world.until(lambda: bool(worker.members) and worker.member.takes_part)
    assert await world.until(lambda: worker.member.is_leader) <= 0.03
    await worker.kill()


@pytest.mark.parametrize("leads", [False, True])
@pytest.mark.walk(SEEDS)
async def test_partitions_of_a_killed_worker_are_fenced_and_soon_copied_by_others(seed: int, leads: bool) -> None:
    world = GroupWorld(seed)
    async with world.running(3) as workers:
        await world.list_topic(workers, 12)
        dead = world.leader(workers) if leads else world.others(workers)[0]
        rest = [worker for worker in workers if worker is not dead]
        identities = [await world.writes(dead, f"mm2py-g-{dead.member.id}-{attempt}-A->B") for attempt in range(3)]
        await dead.kill()
        took_s = await world.until(lambda: world.copied(rest) == list(range(12)))
        assert SESSION_S - BEAT_S <= took_s <= SESSION_S + 1.5
        for identity in identities:
            assert world.markers(identity.producer_id) == [0, 1, 2, 3, 4]
            assert world.markers(identity.producer_id, STATUS) == [0, 1]
            assert rest[0].ownership().known_producers.fence_epochs[identity.producer_id] == 1
        known_producers = rest[1].ownership().known_producers
        assert dead.member.id in known_producers.known - known_producers.live - known_producers.drained
        assert {one.producer_id for one in identities} <= known_producers.producers
        assert rest[0].ownership().known_producers.live == {worker.member.id for worker in rest}
        assert not world.cluster.complaints


async def test_a_producer_that_cannot_be_fenced_does_not_keep_the_partitions_of_its_dead_worker() -> None:
    world = GroupWorld()
    async with world.running(2) as workers:
        await world.list_topic(workers, 4)
        dead, left = world.others(workers)[0], world.leader(workers)
        identity = await world.writes(dead, "mm2py-x")
        del world.cluster.coordinator.transactional_ids["mm2py-x"]
        world.cluster.denied_on_cluster |= {"ALTER", "CLUSTER_ACTION"}
        await dead.kill()
        await world.until(lambda: world.copied([left]) == [0, 1, 2, 3])
        assert "ALTER" in left.member.view.unfenced[identity.producer_id]
        assert len(world.lines("member.unfenced")) == 1


async def test_dead_workers_wait_for_a_topic_without_a_leader_and_no_worker_waits_for_them() -> None:
    world = GroupWorld()
    async with world.running(3) as workers:
        await world.list_topic(workers, 9)
        first, second = world.others(workers)
        left = world.leader(workers)
        await world.writes(first, "mm2py-first")
        partition = world.cluster.partition(OFFSETS, 0)
        leader, partition.leader = partition.leader, -1
        await first.kill()
        await second.kill()  # it never announced a producer, so there is nothing to fence
        second_had = {key for key in range(9) if second.member.view.owner(_task(key)) == second.member.id}
        await world.until(lambda: second_had <= {*world.copied([left])})
        await asyncio.sleep(10)
        assert left.member.view.to_fence.keys() == {first.member.id}
        assert world.lines("member.fencing")
        partition.leader = leader
        await world.until(lambda: world.copied([left]) == list(range(9)))


@pytest.mark.parametrize("leads", [False, True])
@pytest.mark.walk(SEEDS)
async def test_a_frozen_worker_wakes_as_another_member_and_writes_nothing_as_the_old_one(
    seed: int, leads: bool
) -> None:
    world = GroupWorld(seed)
    async with world.running(3) as workers:
        await world.list_topic(workers, 12)
        frozen = world.leader(workers) if leads else world.others(workers)[0]
        rest = [worker for worker in workers if worker is not frozen]
        old = frozen.member
        await world.writes(frozen, "mm2py-frozen")
        frozen.freeze()
        await world.until(lambda: world.copied(rest) == list(range(12)))
        writing = asyncio.create_task(old.gated(frozen.brokers).send(_leader(world), a_write()))
        end = world.cluster.partition(OFFSETS, 0).high_watermark
        frozen.thaw(6.0)
        with pytest.raises(IncarnationEnded, match="may write nothing more"):
            await writing
        assert world.cluster.partition(OFFSETS, 0).high_watermark == end
        await world.until(lambda: all(world.agree(workers)))
        assert old.is_over and not old.ownership(FLOW).is_coordinator
        assert frozen.member.id != old.id
        await world.until(lambda: world.copied(workers) == list(range(12)))


@pytest.mark.walk(SEEDS)
async def test_a_worker_that_cannot_reach_the_control_log_stops_writing_before_others_take_over(seed: int) -> None:
    world = GroupWorld(seed)
    async with world.running(3) as workers:
        await world.list_topic(workers, 12)
        cut = world.others(workers)[0]
        rest = [worker for worker in workers if worker is not cut]
        old = cut.member
        await world.writes(cut, "mm2py-cut")
        cut.wire.is_cut = True
        stopped_s = await world.until(lambda: not old.gate.is_open)
        assert old.id in rest[0].member.view.members, "no leader has evicted it yet"
        waiting = asyncio.create_task(old.gated(world.cluster).send(_leader(world), a_write()))
        await asyncio.sleep(0)
        assert isinstance(old.state, Suspended) and len(world.lines("member.suspended")) == 1
        taken_s = await world.until(lambda: world.copied(rest) == list(range(12)))
        assert SESSION_S - BEAT_S < stopped_s < SESSION_S and taken_s > 0
        cut.wire.is_cut = False
        await world.until(lambda: all(world.agree(workers)))
        with pytest.raises(IncarnationEnded):
            await waiting


@pytest.mark.parametrize("transactional_id", ["mm2py-alone", None])
async def test_a_lone_worker_writes_on_without_the_control_log_only_if_a_new_member_can_fence_it(
    transactional_id: str | None,
) -> None:
    """w1 is cut off from nothing but the log; w2 joins, evicts it, and takes over."""
    world = GroupWorld()
    async with world.running(1) as workers:
        (alone,) = workers
        await world.list_topic(workers, 4)
        identity = await OwnProducer(alone.brokers, transactional_id, rng=alone.rng).begin()
        await alone.ownership().announce(identity)
        lease = alone.member.gate
        alone.wire.held = "control log"
        await asyncio.sleep(1)  # the pending read is answered
        late = world.add("w2")
        await world.until(lambda: bool(late.members) and world.copied([late]) == [0, 1, 2, 3])
        assert lease.is_open == (transactional_id is not None)
        assert (world.markers(identity.producer_id) == [0, 1, 2, 3, 4]) or not lease.is_open


@pytest.mark.parametrize("outage_s", [4.0, 20.0])
@pytest.mark.walk(SEEDS)
async def test_an_outage_of_the_control_log_evicts_no_worker_and_causes_no_election(seed: int, outage_s: float) -> None:
    world = GroupWorld(seed)
    async with world.running(3) as workers:
        await world.list_topic(workers, 12)
        before = [(worker.member, worker.member.view.leader_epoch) for worker in workers]
        partition = world.cluster.partition(LOG, 0)
        leader, partition.leader = partition.leader, -1
        await world.until(lambda: not any(worker.member.gate.is_open for worker in workers))
        writing = [
            asyncio.create_task(worker.member.gated(worker.brokers).send(_leader(world), a_write()))
            for worker in workers
        ]
        await asyncio.sleep(outage_s - SESSION_S)
        assert not any(task.done() for task in writing)
        partition.leader = leader
        await asyncio.wait_for(asyncio.gather(*writing), 5)
        await asyncio.sleep(10)
        assert before == [(worker.member, worker.member.view.leader_epoch) for worker in workers]
        assert world.copied(workers) == list(range(12))
        assert not world.lines("member.evicted")
        assert len(world.lines("member.suspended")) == len(world.lines("member.resumed")) == 3


@pytest.mark.walk(SEEDS)
async def test_outages_of_the_control_log_evict_no_worker_where_session_time_outs_differ(seed: int) -> None:
    world = GroupWorld(seed)
    slow = {"session_timeout_s": 10.0, "heartbeat_interval_s": 3.0}
    workers = [world.add("w1"), world.add("w2", **slow), world.add("w3", **slow)]
    await world.until(lambda: all(world.agree(workers)))
    before = [(worker.member, worker.member.view.leader_epoch) for worker in workers]
    for outage_s in (2.0, 5.0, 9.0, 20.0, 5.0, 9.0, 9.0):
        partition = world.cluster.partition(LOG, 0)
        leader, partition.leader = partition.leader, -1
        await asyncio.sleep(outage_s)
        partition.leader = leader
        await asyncio.sleep(world.rng.uniform(SESSION_S, 10))
    assert before == [(worker.member, worker.member.view.leader_epoch) for worker in workers]
    assert not world.lines("member.evicted")
    await workers[0].kill()
    await world.until(lambda: all(world.agree(workers[1:])), within_s=30)
    await asyncio.gather(*(worker.kill() for worker in workers))


@pytest.mark.walk(SEEDS)
async def test_repeated_moves_of_the_control_log_leader_disturb_no_worker(seed: int) -> None:
    world = GroupWorld(seed)
    async with world.running(3) as workers:
        await world.list_topic(workers, 12)
        before = [(worker.member, worker.member.view.leader_epoch) for worker in workers]
        for _ in range(10):
            world.cluster.move_leader(LOG, 0)
            await asyncio.sleep(1)
            assert all(worker.member.gate.is_open for worker in workers)
        assert before == [(worker.member, worker.member.view.leader_epoch) for worker in workers]


async def test_workers_of_a_lost_control_log_join_again() -> None:
    world = GroupWorld()
    async with world.running(3) as workers:
        old = [worker.member for worker in workers]
        world.cluster.recreate_topic(LOG)
        await world.until(lambda: all(world.agree(workers)) and all(member.is_over for member in old))
        assert all(isinstance(member.state.cause, ControlLogLost) for member in old)
        await world.list_topic(workers, 6)


def delete_what_was_said(world: GroupWorld) -> None:
    world.cluster.delete_records(LOG, 0, max(record.offset for record in world.cluster.records(LOG, 0)) + 1)


@pytest.mark.walk(SEEDS)
async def test_a_worker_that_joins_after_the_records_were_deleted_waits_for_the_existing_members(seed: int) -> None:
    """It must not found a group of its own beside them: their leader's next snapshot names the members."""
    world = GroupWorld(seed)
    async with world.running(2) as workers:
        await world.list_topic(workers, 6)
        await asyncio.sleep(world.rng.uniform(0, 60))
        delete_what_was_said(world)
        late = [world.add("w3"), world.add("w4")]
        await world.until(lambda: all(worker.members and worker.member.takes_part for worker in late), within_s=75)
        await asyncio.sleep(10)
        everybody = [*workers, *late]
        assert all(world.agree(everybody))
        assert world.leader(everybody) in workers
        assert world.copied(everybody) == list(range(6))
        assert all(len(worker.members) == 1 for worker in everybody)


async def test_a_worker_that_joins_an_empty_control_log_without_members_starts_after_a_session_time_out() -> None:
    world = GroupWorld()
    async with world.running(2) as workers:
        for worker in workers:
            await worker.kill()
        delete_what_was_said(world)
        late = world.add("w3")
        assert await world.until(lambda: bool(late.members) and late.member.is_leader) > SESSION_S - 0.1


async def test_after_an_outage_of_a_quarter_of_the_producer_expiry_workers_return_under_other_ids() -> None:
    """By then the target may have forgotten a fence against them (docs/broker-facts.md#h4)."""
    world = GroupWorld(producer_expiry_ms=200_000)
    async with world.running(2) as workers:
        old = [worker.member for worker in workers]
        partition = world.cluster.partition(LOG, 0)
        leader, partition.leader = partition.leader, -1
        await asyncio.sleep(49)
        assert not any(member.is_over for member in old)
        await asyncio.sleep(3)
        assert all(isinstance(member.state.cause, IncarnationEnded) for member in old)
        partition.leader = leader
        await world.until(lambda: all(world.agree(workers)), within_s=60)


@pytest.mark.parametrize(
    ("terms", "why"),
    [
        ({"cluster_id": "other"}, "B is cluster other here, and cluster B-id for worker w"),
        ({"election": "zookeeper"}, "leader.election is zookeeper here, and log for worker w"),
    ],
)
async def test_a_worker_that_contradicts_the_members_is_refused_and_leaves_no_trace(
    terms: dict[str, str], why: str
) -> None:
    world = GroupWorld()
    async with world.running(2) as workers:
        odd = world.add("odd", **terms)
        with pytest.raises(GroupRefused, match=why):
            await asyncio.wait_for(odd.task, 5)
        with pytest.raises(GroupRefused):
            await odd.group.joined()
        assert odd.member.is_over
        await asyncio.sleep(5)
        assert all(world.agree(workers)), "the others continue"


@pytest.mark.parametrize("terms", [{"cluster_id": "other"}, {"election": "zookeeper"}])
@pytest.mark.parametrize("count", [1, 3])
async def test_workers_that_contradict_only_dead_members_evict_them_after_a_session_time_out(
    terms: dict[str, str], count: int
) -> None:
    """A group loses power. Its operator restarts it with another election backend, or as another cluster."""
    world = GroupWorld()
    async with world.running(2) as dead:
        await world.list_topic(dead, 6)
        identities = [await world.writes(worker, f"mm2py-{worker.name}") for worker in dead]
        for worker in dead:
            await worker.kill()
        await asyncio.sleep(count * 1000)
        begun_s = world.clock.monotonic()
        living = [world.add(f"new{number}", **terms) for number in range(count)]
        await world.until(lambda: all(worker.members and worker.member.takes_part for worker in living))
        assert SESSION_S < world.clock.monotonic() - begun_s < SESSION_S + 1
        await world.until(lambda: all(world.agree(living)) and world.copied(living) == list(range(6)))
        assert all(world.markers(identity.producer_id) == [0, 1, 2, 3, 4] for identity in identities)
        assert len(world.lines("member.contradicted")) == 2 * count


@pytest.mark.parametrize("wakes_after_s", [1.0, SESSION_S + 1.0])
async def test_a_worker_that_started_beside_a_seemingly_dead_one_leaves_when_that_one_writes(
    wakes_after_s: float,
) -> None:
    world = GroupWorld()
    async with world.running(1) as workers:
        (frozen,) = workers
        await world.list_topic(workers, 6)
        frozen.freeze()
        odd = world.add("odd", election="zookeeper")
        await asyncio.sleep(wakes_after_s)
        assert (bool(odd.members) and odd.member.takes_part) == (wakes_after_s > SESSION_S)
        assert not odd.task.done()
        frozen.thaw()
        with pytest.raises(GroupRefused, match="there might be two leaders"):
            await asyncio.wait_for(odd.task, 5)
        await world.until(lambda: all(world.agree(workers)) and frozen.member.gate.is_open)
        assert len(frozen.members) == 1 and world.copied(workers) == list(range(6))


@pytest.mark.walk(SEEDS)
async def test_a_worker_that_contradicts_members_during_an_outage_of_the_control_log_is_refused_after_it(
    seed: int,
) -> None:
    """It reads no records; neither do they."""
    world = GroupWorld(seed)
    async with world.running(2) as workers:
        odd = world.add("odd", cluster_id="other")
        await world.until(lambda: bool(world.lines("member.contradicted")))
        partition = world.cluster.partition(LOG, 0)
        leader, partition.leader = partition.leader, -1
        await asyncio.sleep(9)
        partition.leader = leader
        with pytest.raises(GroupRefused):
            await asyncio.wait_for(odd.task, 5)
        await asyncio.sleep(5)
        assert all(world.agree(workers)) and not world.lines("member.evicted")


@pytest.mark.walk(range(2))
async def test_of_two_contradicting_workers_that_start_at_once_one_leaves(seed: int) -> None:
    world = GroupWorld(seed)
    first, second = workers = world.add("w1"), world.add("w2", cluster_id="other")
    try:
        await world.until(lambda: first.task.done() or second.task.done())
        await asyncio.sleep(1)
        assert first.task.done() != second.task.done()
        (stays,) = [worker for worker in workers if not worker.task.done()]
        await world.until(lambda: stays.member.is_leader and len(stays.member.view.members) == 1)
        assert not world.lines("member.evicted"), "the refused worker has left"
    finally:
        await asyncio.gather(first.kill(), second.kill())


async def test_a_foreign_writer_in_the_log_cannot_evict_a_member() -> None:
    """Every reader ignores an eviction by a worker that does not lead, and one of an older leader epoch."""
    world = GroupWorld()
    async with world.running(2) as workers:
        leader, other = world.leader(workers), world.others(workers)[0]
        await other.member.say([Evicted(other.member.id, 1, leader.member.id)])
        await leader.member.say([Evicted(leader.member.id, 0, other.member.id)])
        await asyncio.sleep(5)
        assert all(world.agree(workers))


async def test_an_evicted_worker_that_has_not_read_its_eviction_may_not_write_on_an_acknowledged_heartbeat() -> None:
    world = GroupWorld()
    async with world.running(3) as workers:
        await world.list_topic(workers, 12)
        slow = world.others(workers)[0]
        rest = [worker for worker in workers if worker is not slow]
        old = slow.member
        await world.writes(slow, "mm2py-slow")
        slow.freeze()
        await world.until(lambda: world.copied(rest) == list(range(12)))
        slow.wire.held = "control log read"
        slow.thaw()
        beats = len([beat for beat in world.written(Beat) if beat.member == old.id])
        for _ in range(40):
            await asyncio.sleep(0.1)
            assert not old.gate.is_open
        assert len([beat for beat in world.written(Beat) if beat.member == old.id]) > beats
        slow.wire.held = ""
        await world.until(lambda: old.is_over and isinstance(old.state.cause, MemberEvicted))


async def test_a_leader_that_its_backend_suspends_cancels_its_fence_and_resumes_it_later() -> None:
    world = GroupWorld()
    async with world.running(3) as workers:
        await world.list_topic(workers, 6)
        leader, (dead, other) = world.leader(workers), world.others(workers)
        identity = await world.writes(dead, "mm2py-dead")
        partition = world.cluster.partition(OFFSETS, 0)
        node, partition.leader = partition.leader, -1
        await dead.kill()
        await world.until(lambda: bool(leader.member.view.to_fence))
        leader.election.state = CandidateState.SUSPENDED
        await asyncio.sleep(2)
        partition.leader = node
        await asyncio.sleep(20)
        assert world.written(Fenced) == [] and world.markers(identity.producer_id) == []
        leader.election.state = CandidateState.MAY_LEAD
        await world.until(lambda: world.copied([leader, other]) == list(range(6)))
        assert world.markers(identity.producer_id) == [0, 1, 2, 3, 4]
        assert len(world.written(Fenced)) == 1


async def test_a_claim_that_could_not_be_appended_yet_is_dropped_when_the_candidate_may_no_longer_lead() -> None:
    world = GroupWorld()
    async with world.running(3) as workers:
        leader, (claims, other) = world.leader(workers), world.others(workers)
        other.election.state = CandidateState.LOST
        await leader.kill()
        await asyncio.sleep(SESSION_S - 1)
        claims.wire.holds_appends = True
        await world.until(lambda: bool(world.lines("member.claims_leadership")[1:]))
        claims.election.state = CandidateState.LOST
        await asyncio.sleep(0.5)
        claims.wire.holds_appends = False
        await asyncio.sleep(5)
        assert [claim.leader_epoch for claim in world.written(Claim)] == [1]
        other.election.state = CandidateState.MAY_LEAD
        await world.until(lambda: other.member.is_leader)


@pytest.mark.parametrize("ahead_ms", [5000, 3_600_000, 20 * 24 * 3_600_000])
async def test_a_step_of_the_control_logs_clock_is_logged_and_dead_workers_are_still_noticed(
    ahead_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For two seconds the log is led by a broker with a wrong clock."""
    world = GroupWorld()
    async with world.running(2) as workers:
        await world.list_topic(workers, 4)
        before = [(worker.member, worker.member.view.leader_epoch) for worker in workers]
        wall_ms = VirtualClock.wall_ms
        with monkeypatch.context() as broker:
            broker.setattr(VirtualClock, "wall_ms", lambda clock: wall_ms(clock) + ahead_ms)
            await asyncio.sleep(2)
        assert not world.lines("member.log_clock_stepped_back")
        await asyncio.sleep(2)
        told = world.lines("member.log_clock_stepped_back")
        assert len(told) == 2 and f"by_s={ahead_ms // 1000 - 1}." in told[0]
        assert before == [(worker.member, worker.member.view.leader_epoch) for worker in workers]
        dead, left = world.others(workers)[0], world.leader(workers)
        await dead.kill()
        assert await world.until(lambda: world.copied([left]) == [0, 1, 2, 3]) < SESSION_S + 1.5


async def test_the_owner_or_else_the_coordinator_may_write_about_a_partition() -> None:
    world = GroupWorld()
    async with world.running(3) as workers:
        await world.list_topic(workers, 6)
        for number in range(6):
            assert sum(worker.ownership().speaks_for(("orders", number)) for worker in workers) == 1
        (head,) = [worker for worker in workers if worker.ownership().is_coordinator]
        assert [worker for worker in workers if worker.ownership().speaks_for(("unlisted", 0))] == [head]


async def test_announced_producers_are_remembered_after_their_members_left() -> None:
    """Those of a drained member too: its records must not be taken for those of a foreign writer."""
    world = GroupWorld()
    async with world.running(2) as workers:
        first, second = workers
        name = f"mm2py-g-{first.member.id}-{{}}-A->B"
        ids = [(await world.writes(first, name.format(attempt))).producer_id for attempt in range(2)]
        plain = (await world.writes(first, "plain")).producer_id
        await asyncio.sleep(0.1)
        assert second.ownership().known_producers.writing == {ids[1], plain}, (
            "the previous incarnation has released all"
        )
        assert second.ownership().known_producers.producers == {*ids, plain}
        await first.group.leave(outcome_unknown=False)
        await world.until(lambda: first.member.id in second.ownership().known_producers.drained)
        await asyncio.sleep(70)  # a snapshot holds all of it by now
        late = world.add("late")
        await world.until(lambda: bool(late.members) and late.member.takes_part)
        for known_producers in (second.ownership().known_producers, late.ownership().known_producers):
            assert known_producers.writing == frozenset() and known_producers.producers == {*ids, plain}
            assert (
                first.member.id in known_producers.drained & known_producers.known
                and first.member.id not in known_producers.live
            )


async def test_only_a_change_of_a_flow_wakes_its_connector() -> None:
    world = GroupWorld()
    async with world.running(2) as workers:
        await world.list_topic(workers, 4)
        await asyncio.sleep(1)
        changed = workers[0].member.ownership(OTHER).changed
        changed.clear()
        await asyncio.sleep(5)
        head = next(worker for worker in workers if worker.ownership().is_coordinator)
        await head.ownership().list_partitions({"orders": 5}, {}, {})
        await asyncio.sleep(1)
        assert not changed.is_set(), "heartbeats, and changes of another flow"
        await workers[1].group.leave(outcome_unknown=False)
        await asyncio.sleep(1)
        assert changed.is_set(), "the end of a process concerns all flows"


async def test_the_partition_count_that_a_coordinator_announces_first_holds_until_the_topic_ends() -> None:
    world = GroupWorld()
    async with world.running(2) as workers:
        await world.until(lambda: any(worker.ownership().is_coordinator for worker in workers))
        head = next(worker for worker in workers if worker.ownership().is_coordinator)
        await head.ownership().list_partitions({"orders": 4, "other": 2}, {"orders": 2}, {})
        await head.ownership().list_partitions({"orders": 6}, {"orders": 6}, {})
        await asyncio.sleep(1)
        assert [worker.ownership().width("orders") for worker in workers] == [2, 2]
        assert head.ownership().width("other") is None
        await asyncio.sleep(70)  # a snapshot holds all of it by now
        late = world.add("late")
        await world.until(lambda: bool(late.members) and late.member.takes_part)
        assert (late.ownership().width("orders"), late.ownership().listed) == (2, {"orders": 6, "other": 2})
        await head.ownership().list_partitions({"orders": 0}, {}, {})
        assert head.ownership().width("orders") is None


@pytest.mark.parametrize(("takes_s", "leaves_outcome_unknown"), [(0.2, False), (4.0, False), (0.2, True)])
async def test_a_worker_that_meets_a_mandatory_unknown_record_leaves_once_drained_and_names_the_version(
    takes_s: float, leaves_outcome_unknown: bool
) -> None:
    world = GroupWorld()
    async with world.running(2) as workers:
        await world.list_topic(workers, 4)
        worker = world.leader(workers)
        old = worker.member
        identity = await world.writes(worker, "mm2py-old")
        world.cluster.append(LOG, 0, [Record(UNKNOWN)])
        await world.until(lambda: old.is_stopping)
        await asyncio.sleep(takes_s)
        assert len(world.written(Resigned)) == 1
        assert old.gate.is_open and not old.is_over, "it keeps its session until its partitions are drained"
        with pytest.raises(IncarnationEnded):
            await old.ownership(FLOW).announce(identity)
        old.flow_ended(FLOW, outcome_unknown=leaves_outcome_unknown)
        with pytest.raises(NewerFormat, match=r"99\.1"):
            await asyncio.wait_for(worker.task, 0.5)
        with pytest.raises(NewerFormat):
            await worker.group.joined()
        (left,) = [record for record in world.written(Left) if record.member == old.id]
        assert left.outcome_unknown == leaves_outcome_unknown


async def test_a_worker_that_meets_a_mandatory_unknown_record_and_cannot_drain_leaves_with_unknown_outcomes() -> None:
    world = GroupWorld()
    async with world.running(2) as workers:
        await world.list_topic(workers, 4)
        old = workers[0].member
        await world.writes(workers[0], "mm2py-old")
        world.cluster.append(LOG, 0, [Record(UNKNOWN)])
        await world.until(lambda: old.is_stopping)
        assert MEMBER_DRAIN_S - 1 < await world.until(lambda: old.is_over) < MEMBER_DRAIN_S + 1
        assert [record.outcome_unknown for record in world.written(Left) if record.member == old.id] == [True]


def _task(number: int) -> TaskName:
    return TaskName(FLOW, Kind.SOURCE, "orders", number)


def _leader(world: GroupWorld) -> BrokerId:
    return BrokerId(world.cluster.partition(OFFSETS, 0).leader)
