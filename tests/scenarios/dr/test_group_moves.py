"""Groups that move to the other cluster and back, between two cluster models with a worker of the flow."""

from __future__ import annotations

import asyncio

import pytest
from kio.schema.errors import ErrorCode

from mm2py.dr.groups.group_commits import CommitsDiffer, CommitsRefused, CommitsTooLarge, commit_all
from mm2py.dr.groups.group_inquiry import GroupMoveInquiry
from mm2py.dr.groups.judgement import MoveState
from mm2py.dr.groups.moving import (
    GroupWentOn,
    JudgedGroup,
    commit_flow,
    judge_flow,
    look_at_group,
    move_group,
    wait_for_group,
)
from mm2py.flow import ClusterAlias
from mm2py.kafka.consumer_groups import Commit
from mm2py.kafka.errors import BrokerRefused
from mm2py.offsets.runs import Run
from tests.fakes.ledger_topic import chunk, write_chunks
from tests.scenarios.offsets.test_group_sync import on_target, synced_world
from tests.scenarios.offsets.test_offset_syncs import numbered
from tests.scenarios.sync_world import IDENTITY
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=3600)

B = ClusterAlias("B")
ORDERS = ("A.orders", 0)


def inquiry_of(world: World, *, is_back: bool = False) -> GroupMoveInquiry:
    return GroupMoveInquiry(world.settings, world.source, world.target, world.log, is_back=is_back)


async def look(world: World, group: str = "pay", *, is_back: bool = False) -> JudgedGroup:
    found = await look_at_group(inquiry_of(world, is_back=is_back), group)
    assert found is not None
    return found


async def move(world: World, group: str = "pay", *, is_back: bool = False) -> JudgedGroup:
    inquiry = inquiry_of(world, is_back=is_back)
    found = await look_at_group(inquiry, group)
    assert found is not None and found.move.state is MoveState.READY, found and found.move.why
    await move_group(inquiry, found, inquiry.there.brokers)
    return found


def unsynced_world(**extra: str) -> World:
    """No worker commits anything for a group."""
    return synced_world(sync_group_offsets_enabled="false", **extra)


@pytest.mark.parametrize(
    ("rules", "copy"), [({}, "A.orders"), ({"A->B.topics.rename": "(.*)s -> sales.$1"}, "A.sales.order")]
)
async def test_a_group_moves_there_reads_on_and_moves_back_to_the_next_record(rules: dict[str, str], copy: str) -> None:
    """Also where a rule has renamed the topic, whose name the copy's name does not tell."""
    world = unsynced_world(**rules)
    world.source.groups.commit("pay", {("orders", 0): (60, "page 7"), ("orders", 1): (0, "")})
    async with world.worker():
        await world.copied({"orders": copy})
        await asyncio.sleep(5)
        await move(world)
        assert world.target.groups.commits_of("pay") == {(copy, 0): (60, "page 7"), (copy, 1): (0, "")}
        assert {one.leader_epoch for one in world.target.groups.known["pay"].commits.values()} == {-1}
        assert (await look(world)).move.is_there
        world.target.groups.commit("pay", {(copy, 0): (75, "")})
        await move(world, is_back=True)
        assert world.source.groups.commits_of("pay") == {("orders", 0): (75, ""), ("orders", 1): (0, "")}


async def test_a_group_that_has_read_more_than_is_copied_waits_for_the_copy() -> None:
    world = unsynced_world()
    world.source.groups.commit("pay", {("orders", 0): (60, "")})
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(5)
    world.source.append("orders", 0, numbered(10))
    world.source.groups.commit("pay", {("orders", 0): (110, "")})
    told: list[str] = []

    async def wait(timeout_s: float) -> JudgedGroup:
        found = await wait_for_group(inquiry_of(world), "pay", timeout_s=timeout_s, clock=world.clock, say=told.append)
        assert found is not None
        return found

    begun_s = world.clock.monotonic()
    late = await wait(20)
    assert late.move.state is MoveState.WAITS and 20 <= world.clock.monotonic() - begun_s < 30
    assert told == ["group pay waits: orders-0: what it has read is not copied yet, or not in the ledger"]
    async with world.worker():
        found = await wait(120)
        assert found.move.state is MoveState.READY
        assert found.move.partitions[0].goes_on_at == 111, "the fence of the killed worker is a marker"
    assert await look_at_group(inquiry_of(world), "nobody") is None


async def test_a_coordinator_that_loads_is_waited_for_and_is_no_missing_right() -> None:
    world = unsynced_world()
    world.source.groups.commit("pay", {("orders", 0): (60, "")})
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(5)
    world.target.groups.errors["pay"] = ErrorCode.coordinator_load_in_progress
    told: list[str] = []
    inquiry = inquiry_of(world)
    with pytest.raises(BrokerRefused, match="COORDINATOR_LOAD_IN_PROGRESS"):
        await wait_for_group(inquiry, "pay", timeout_s=5, clock=world.clock, say=told.append)
    assert len(told) == 1 and "COORDINATOR_LOAD_IN_PROGRESS" in told[0]
    waiting = asyncio.create_task(wait_for_group(inquiry, "pay", timeout_s=60, clock=world.clock, say=told.append))
    await asyncio.sleep(10)
    world.target.groups.errors.clear()
    found = await waiting
    assert found is not None and found.move.state is MoveState.READY


async def test_active_groups_are_refused_by_name_on_either_side_also_those_of_the_new_protocol() -> None:
    world = unsynced_world()
    world.source.groups.commit("pay", {("orders", 0): (60, "")})
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(5)
    world.source.groups.activate("pay")
    world.source.groups.of_new_protocol.add("pay")
    assert (await look(world)).move.why == "it has members on A (Stable): pay-0 on 127.0.0.1"
    world.source.groups.deactivate("pay")
    world.target.groups.activate("pay", members=2)
    found = (await look(world)).move
    assert found.state is MoveState.REFUSED
    assert found.why == "it has members on B (Stable): pay-0 on 127.0.0.1, pay-1 on 127.0.0.1"


async def test_what_is_not_mirrored_and_what_may_not_be_committed_is_named_before_anything_is_committed() -> None:
    world = unsynced_world(topics="orders")
    world.source.create_topic("payments", 1)
    world.source.groups.commit("pay", {("orders", 0): (60, ""), ("payments", 0): (3, ""), ("heartbeats", 0): (1, "")})
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(5)
    found = await look(world)
    assert (found.move.state, found.move.why) == (MoveState.REFUSED, "payments-0: A->B does not copy payments")
    inquiry = inquiry_of(world)
    left = await look_at_group(inquiry, "pay", left_topics=["payments"])
    assert left is not None and left.move.state is MoveState.READY
    world.target.groups.unwritable.add("pay")
    assert "Grant mm2py READ on group pay" in (await look(world)).move.why
    assert "pay" not in world.target.groups.known


async def test_a_group_that_has_read_what_only_the_other_cluster_has_is_not_moved_back() -> None:
    world = unsynced_world()
    world.source.groups.commit("pay", {("orders", 0): (100, "")})
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(5)
        await move(world)
        world.target.append("A.orders", 0, numbered(3))
        world.target.groups.commit("pay", {ORDERS: (102, "")})
        begun_s = world.clock.monotonic()
        found = (await look(world, is_back=True)).move
        assert world.clock.monotonic() - begun_s >= 2, "the ledger was given time"
        assert (found.state, found.why) == (
            MoveState.REFUSED,
            "A.orders-0: it has read records from 100 on in A.orders-0 on B that A does not have",
        )
        assert "B->A" in found.remedy
        world.target.groups.commit("pay", {ORDERS: (100, "")})
        assert (await look(world, is_back=True)).move.partitions[0].goes_on_at == 100


async def test_a_flow_in_one_direction_needs_no_right_on_the_ledger_of_the_other_one() -> None:
    """With an authorizer brokers deny a topic without a right, whether it exists or not."""
    world = unsynced_world()
    world.source.groups.commit("pay", {("orders", 0): (60, "")})
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(5)
    world.source.denied_topics.add("mm2-ledger.B.internal")
    await move(world)
    world.target.groups.commit("pay", {ORDERS: (75, "")})
    await move(world, is_back=True)
    world.target.denied_topics.add("mm2-ledger.A.internal")
    with pytest.raises(BrokerRefused, match=r"mm2-ledger\.A\.internal"):
        await look(world)


async def test_a_group_that_reads_both_directions_moves_by_both_ledgers() -> None:
    """It reads orders and B.orders on A, and goes on in A.orders and orders on B."""
    world = unsynced_world()
    world.source.create_topic("B.bills", 1)
    world.source.append("B.bills", 0, numbered(20))
    world.target.create_topic("bills", 1)
    world.target.append("bills", 0, numbered(30))
    home = chunk(Run(10, 0, 20), topic="bills", begin=(10, 0))
    write_chunks(world.source, [home], topic="mm2-ledger.B.internal")
    world.source.groups.commit("pay", {("orders", 0): (60, ""), ("B.bills", 0): (5, "")})
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(5)
    await move(world)
    assert on_target(world, "pay") == {ORDERS: (60, ""), ("bills", 0): (15, "")}
    world.target.groups.commit("pay", {("bills", 0): (25, "")})
    await move(world, is_back=True)
    assert world.source.groups.commits_of("pay")["B.bills", 0] == (15, "")


async def test_under_the_identity_policy_groups_on_both_sides_of_the_take_over_move_back() -> None:
    """B took over at 100, and the flow back has copied 20 records of B since, behind 3 that only A has."""
    world = unsynced_world(**IDENTITY)
    world.source.groups.commit("pay", {("orders", 0): (60, "")})
    async with world.worker():
        await world.copied({"orders": "orders"})
        await asyncio.sleep(5)
    await move(world)
    assert on_target(world, "pay") == {("orders", 0): (60, "")}
    world.source.append("orders", 0, numbered(23))
    world.target.append("orders", 0, numbered(20))
    back = chunk(Run(100, 103, 20), begin=(100, 103), is_whole=False)
    write_chunks(world.source, [back], topic="mm2-ledger.B.internal")
    for on_b, on_a in ((70, 70), (100, 103), (112, 115), (120, 123)):
        world.target.groups.commit("pay", {("orders", 0): (on_b, "")})
        await move(world, is_back=True)
        assert world.source.groups.commits_of("pay") == {("orders", 0): (on_a, "")}
        assert (await look(world)).move.partitions[0].goes_on_at == on_b, "and there again"


async def test_a_group_is_never_set_back_on_either_cluster() -> None:
    world = unsynced_world()
    world.source.groups.commit("pay", {("orders", 0): (60, "")})
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(5)
        await move(world)
        world.target.groups.commit("pay", {ORDERS: (75, "")})
        assert (await look(world)).move.why == "orders-0: on B it has committed 75, and would be set back to 60"
        world.source.groups.commit("pay", {("orders", 0): (90, "")})
        back = (await look(world, is_back=True)).move
        assert back.why == "A.orders-0: on A it has committed 90, and would be set back to 75"


@pytest.mark.parametrize("rewind", ["false", "true"])
async def test_group_sync_never_overwrites_a_moved_group_with_older_offsets(rewind: str) -> None:
    """The last checkpoint is older than what was moved; later rounds find a group that reads on the target."""
    world = synced_world(sync_group_offsets_rewind=rewind, emit_checkpoints_interval_seconds="30")
    world.source.groups.commit("pay", {("orders", 0): (40, "")})
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(60)
        assert on_target(world, "pay") == {ORDERS: (40, "")}
        world.source.groups.activate("pay")
        world.source.groups.commit("pay", {("orders", 0): (70, "")})
        world.source.groups.deactivate("pay")
        await move(world)
        assert on_target(world, "pay") == {ORDERS: (70, "")}
        for _ in range(12):
            await asyncio.sleep(10)
            assert on_target(world, "pay") == {ORDERS: (70, "")}
        world.target.groups.commit("pay", {ORDERS: (82, "")})
        for _ in range(12):
            await asyncio.sleep(10)
            assert on_target(world, "pay") == {ORDERS: (82, "")}


# ---- all partitions, or none


async def test_after_a_refusal_what_was_there_before_is_put_back() -> None:
    """Brokers store the commits that they allow, and refuse the others of the same request."""
    world = World(1)
    world.target.create_topic("A.orders", 2)
    world.target.groups.commit("pay", {ORDERS: (7, "old")})
    wanted = {ORDERS: Commit(60), ("A.orders", 1): Commit(9, "x" * 5000)}
    with pytest.raises(CommitsRefused, match="Group pay was not moved to B") as caught:
        await commit_all(world.target, B, "pay", wanted)
    assert "Stored there" not in str(caught.value)
    assert world.target.groups.commits_of("pay") == {ORDERS: (7, "old")}
    world.target.groups.delete("pay")
    with pytest.raises(CommitsRefused, match=r"nothing was committed before: A\.orders-0 at 60"):
        await commit_all(world.target, B, "pay", wanted)


async def test_a_group_with_members_keeps_its_offsets_also_if_they_came_at_the_last_moment() -> None:
    world = World(1)
    world.target.create_topic("A.orders", 1)
    world.target.groups.commit("pay", {ORDERS: (7, "")})
    world.target.groups.activate("pay")
    with pytest.raises(CommitsRefused, match="Stop the members of the group"):
        await commit_all(world.target, B, "pay", {ORDERS: Commit(60)})
    assert world.target.groups.commits_of("pay") == {ORDERS: (7, "")}


async def test_commits_that_do_not_fit_into_one_request_are_not_sent_at_all() -> None:
    world = World(1)
    world.target.create_topic("A.orders", 250)
    wanted = {("A.orders", number): Commit(1, "x" * 4000) for number in range(250)}
    with pytest.raises(CommitsTooLarge, match="250 partitions"):
        await commit_all(world.target, B, "pay", wanted)
    assert "pay" not in world.target.groups.known
    many = {("A.orders", number): Commit(1) for number in range(250)}
    await commit_all(world.target, B, "pay", many)
    assert world.target.counts["request OffsetCommit"] == 1
    assert len(world.target.groups.commits_of("pay")) == 250


async def test_what_is_read_back_is_compared() -> None:
    world = World(1)
    world.target.create_topic("A.orders", 1)

    class Other:
        """Another client that commits right behind."""

        async def send(self, broker: object, request: object, *, channel: str = "control") -> object:
            reply = await world.target.send(broker, request, channel=channel)  # type: ignore[call-overload]
            if type(request).__name__ == "OffsetCommitRequest":
                world.target.groups.commit("pay", {ORDERS: (50, "")})
            return reply

    with pytest.raises(CommitsDiffer, match=r"60 was committed in A\.orders-0 on B, and 50 is there now"):
        await commit_all(Other(), B, "pay", {ORDERS: Commit(60)})  # type: ignore[arg-type]


@pytest.mark.parametrize("joins", [False, True])
async def test_a_group_that_goes_on_while_it_is_moved_is_told(joins: bool) -> None:
    world = unsynced_world()
    world.source.groups.commit("pay", {("orders", 0): (60, "")})
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(5)
    inquiry = inquiry_of(world)
    found = await look_at_group(inquiry, "pay")
    assert found is not None
    if joins:
        world.source.groups.activate("pay")
    else:
        world.source.groups.commit("pay", {("orders", 0): (66, "")})
    why = "it has members \\(Stable\\)" if joins else "its commit in orders-0 was 60, and is 66"
    with pytest.raises(GroupWentOn, match=why):
        await move_group(inquiry, found, world.target)
    world.source.groups.deactivate("pay")
    again = (await move(world)).move.partitions[0].goes_on_at
    assert again == (60 if joins else 66)


# ---- all groups of a flow, at the ends


async def test_all_groups_are_judged_at_the_fenced_ends_and_committed() -> None:
    world = unsynced_world(groups_exclude="audit")
    ends = {("orders", 0): 100, ("orders", 1): 0}
    for name, offset in (("idle", 30), ("busy", 80), ("done", 100), ("audit", 1)):
        world.source.groups.commit(name, {("orders", 0): (offset, "")})
    for name in ("busy", "done"):
        world.source.groups.activate(name)
    world.source.groups.activate("shares", protocol_type="share")
    world.source.groups.commit("elsewhere", {("mm2-offsets.X.internal", 0): (1, "")})
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(5)
        inquiry = inquiry_of(world)
        found = {one.move.group: one.move for one in await judge_flow(inquiry, ends)}
        assert {name: one.state for name, one in found.items()} == {
            "busy": MoveState.WAITS,
            "done": MoveState.READY,
            "idle": MoveState.READY,
            "shares": MoveState.LEFT,
        }
        assert found["busy"].why == "it has members on A, and has not read orders-0 from 80 on"
        assert "busy-0 on 127.0.0.1" in found["busy"].remedy
        left = await judge_flow(inquiry, ends, left_groups=["busy"])
        assert await commit_flow(inquiry, left, world.target) == ["done", "idle"]
        assert (on_target(world, "idle"), on_target(world, "done")) == ({ORDERS: (30, "")}, {ORDERS: (100, "")})
        assert on_target(world, "busy") == {}
        with pytest.raises(AssertionError, match="busy"):
            await commit_flow(inquiry, await judge_flow(inquiry, ends), world.target)
        world.source.groups.commit("busy", {("orders", 0): (100, "")})
        assert await commit_flow(inquiry, await judge_flow(inquiry, ends), world.target) == ["busy", "done", "idle"]
        assert on_target(world, "busy") == {ORDERS: (100, "")}
