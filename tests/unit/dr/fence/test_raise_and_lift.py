"""A fence is stored before it is set, and what it has changed is given back exactly, wherever its process ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from mm2py.dr.fence.fence_log import FenceChangedMeanwhile, FenceStore
from mm2py.dr.fence.lifting import lift_fence, to_give_back
from mm2py.dr.fence.plan import FenceObstacle, FencePlan, FenceWanted
from mm2py.dr.fence.raising import FenceRefused, FenceWrite, raise_fence
from mm2py.dr.fence.record import FenceBinding, FencedKind, FenceRecord, FenceState, FenceWay
from mm2py.records.author import Author
from tests.fakes.fenced_cluster import Killed, MemoryCluster, MemoryRecords, Steps

FLOW = "A->B"
THEIRS = FenceBinding(FencedKind.TOPIC, "orders", "User:mallory")
WANTED = (
    THEIRS,
    FenceBinding(FencedKind.TOPIC, "orders", "User:app"),
    FenceBinding(FencedKind.TRANSACTIONAL_ID, "tx", "User:app"),
)
SIZES: dict[str, str | None] = {"orders": None, "bills": "2000000"}
STEPS_MOST = 20


class World:
    """A source that somebody else has denied something on, and the records of its fence on both clusters."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.source, self.target = MemoryRecords("A", self.steps), MemoryRecords("B", self.steps)
        self.cluster = MemoryCluster(self.steps, {THEIRS}, SIZES)
        self.hooked: list[str] = []
        self.marks = 0

    def store(self, *, with_target: bool = True) -> FenceStore:
        return FenceStore(FLOW, self.source, self.target if with_target else None)

    def plan(self, way: FenceWay = FenceWay.ACLS) -> FencePlan:
        wanted = FenceWanted("A", ("bills", "orders"), way)
        if way is FenceWay.ACLS:
            return FencePlan(wanted, WANTED, frozenset(set(WANTED) & self.cluster.bindings))
        return FencePlan(wanted, sizes=dict(self.cluster.own_sizes) if way is FenceWay.SIZE else None)

    def write(self) -> FenceWrite:
        self.marks += 1
        return FenceWrite(Author("ann", "host", "ticket 4711"), "mm2py dr fence", 1_000, str(self.marks))

    async def hook(self, verb: str, record: FenceRecord) -> None:
        self.steps.before()
        self.hooked.append(verb)
        self.steps.after()

    async def fence(self, way: FenceWay = FenceWay.ACLS) -> FenceRecord:
        return await raise_fence(
            self.plan(way), FLOW, self.store(), self.cluster, self.write(), hook=self.hook, hook_name="close-port"
        )

    async def unfence(self, *, with_target: bool = True) -> bool:
        store = self.store(with_target=with_target)
        return await lift_fence(store, self.cluster, self.write(), hook=self.hook) is not None

    def is_as_before(self) -> bool:
        return self.cluster.bindings == {THEIRS} and self.cluster.own_sizes == SIZES

    def is_fenced(self, way: FenceWay) -> bool:
        if way is FenceWay.ACLS:
            return self.cluster.bindings == set(WANTED)
        return way is FenceWay.HOOK or self.cluster.own_sizes == {"orders": "1", "bills": "1"}


def test_what_was_there_before_stays_when_the_fence_is_lifted() -> None:
    async def run() -> None:
        for way in FenceWay:
            world = World()
            record = await world.fence(way)
            assert record.state is FenceState.STANDING and world.is_fenced(way)
            assert THEIRS not in record.bindings
            assert record.who_and_why == "ann on host (mm2py dr fence): ticket 4711"
            assert await world.source.read(FLOW) == await world.target.read(FLOW) == record
            assert await world.unfence()
            assert world.is_as_before()
            assert not await world.unfence()  # there is none any more
            assert world.hooked == (["fence", "unfence"] if way is FenceWay.HOOK else [])

    asyncio.run(run())


@pytest.mark.parametrize("way", list(FenceWay))
def test_nothing_is_changed_before_both_clusters_have_the_record(way: FenceWay) -> None:
    async def run() -> None:
        for last, is_done in [(1, False), (1, True), (2, False), (2, True)]:
            world = World()
            world.steps.last, world.steps.is_done = last, is_done
            with pytest.raises(Killed):
                await world.fence(way)
            assert world.is_as_before() and not world.hooked

    asyncio.run(run())


def _each_end(way: FenceWay, then: Callable[[World], Coroutine[Any, Any, None]], *, lifts: bool = False) -> int:
    """End the process at each step of a fence, or of lifting one, and do what comes then; returns how many ends."""

    async def one(last: int, *, is_done: bool) -> bool:
        world = World()
        if lifts:
            await world.fence(way)
        world.steps.count, world.steps.last, world.steps.is_done = 0, last, is_done
        try:
            await (world.unfence() if lifts else world.fence(way))
        except Killed:
            world.steps.last = None
            await then(world)
            return True
        return False

    ends = 0
    for is_done in (False, True):
        for last in range(1, STEPS_MOST):
            if not asyncio.run(one(last, is_done=is_done)):
                break
            ends += 1
    return ends


@pytest.mark.parametrize("way", list(FenceWay))
@pytest.mark.parametrize("with_target", [True, False])
@pytest.mark.parametrize("lifts", [True, False])
def test_killed_at_any_step_unfence_takes_back_exactly_what_was_added(
    way: FenceWay, with_target: bool, lifts: bool
) -> None:
    async def take_back(world: World) -> None:
        await world.unfence(with_target=with_target)
        assert world.is_as_before()
        found = await world.store().read()
        assert found is None or not found.is_up

    assert _each_end(way, take_back, lifts=lifts) >= 10


@pytest.mark.parametrize("way", list(FenceWay))
def test_killed_at_any_step_fence_goes_on_and_unfence_still_knows_all(way: FenceWay) -> None:
    async def go_on(world: World) -> None:
        record = await world.fence(way)
        assert record.state is FenceState.STANDING and world.is_fenced(way)
        assert await world.unfence()
        assert world.is_as_before()

    assert _each_end(way, go_on) >= 10


def test_a_fence_that_is_being_lifted_must_be_lifted_to_its_end_first() -> None:
    async def run() -> None:
        world = World()
        await world.fence()
        world.steps.count, world.steps.last = 0, 3
        with pytest.raises(Killed):
            await world.unfence()
        world.steps.last = None
        with pytest.raises(FenceRefused, match="is lifting the fence"):
            await world.fence()
        assert await world.unfence() and world.is_as_before()
        await world.fence()

    asyncio.run(run())


@pytest.mark.parametrize("lost", ["source", "target"])
def test_a_fence_is_found_when_one_cluster_has_lost_its_records(lost: str) -> None:
    async def run() -> None:
        world = World()
        await world.fence()
        getattr(world, lost).log.clear()
        assert await world.unfence() and world.is_as_before()

    asyncio.run(run())


def test_a_binding_that_somebody_adds_after_the_fence_was_lifted_is_never_removed() -> None:
    """The target was away when the fence was lifted, so its record still says that the fence stands."""

    async def run() -> None:
        world = World()
        await world.fence()
        assert await world.unfence(with_target=False)
        stale = await world.target.read(FLOW)
        assert stale is not None and stale.state is FenceState.STANDING
        world.cluster.bindings.add(WANTED[1])
        assert not await world.unfence()
        assert WANTED[1] in world.cluster.bindings
        healed = await world.target.read(FLOW)
        assert healed is not None and healed.state is FenceState.LIFTED
        record = await world.fence()
        assert record.bindings == (WANTED[2],)
        assert await world.unfence() and world.cluster.bindings == {THEIRS, WANTED[1]}

    asyncio.run(run())


def test_a_second_fence_of_more_topics_goes_into_the_same_record() -> None:
    async def run() -> None:
        world = World()
        await world.fence()
        more = FenceBinding(FencedKind.TOPIC, "more", "User:app")
        plan = replace(world.plan(), bindings=(more,), there=frozenset())
        plan = replace(plan, wanted=replace(plan.wanted, topics=("more",)))
        record = await raise_fence(plan, FLOW, world.store(), world.cluster, world.write())
        assert record.topics == ("bills", "more", "orders")
        assert set(record.bindings) == {*WANTED, more} - {THEIRS}
        assert await world.unfence() and world.is_as_before()

    asyncio.run(run())


def test_a_fence_of_another_kind_a_refused_plan_and_an_absent_target_change_nothing() -> None:
    async def run() -> None:
        world = World()
        bad = replace(world.plan(), refused=(FenceObstacle("It must not be.", "Do not."),))
        with pytest.raises(FenceRefused, match="It must not be"):
            await raise_fence(bad, FLOW, world.store(), world.cluster, world.write())
        with pytest.raises(FenceRefused, match="target does not answer"):
            await raise_fence(world.plan(), FLOW, world.store(with_target=False), world.cluster, world.write())
        assert not world.source.log and world.is_as_before()
        await world.fence(FenceWay.SIZE)
        with pytest.raises(FenceRefused, match=r"A fence by max\.message\.bytes stands"):
            await world.fence()
        assert world.cluster.bindings == {THEIRS}

    asyncio.run(run())


def test_no_command_of_a_record_is_ever_run() -> None:
    async def run() -> None:
        world = World()
        await world.fence(FenceWay.HOOK)
        with pytest.raises(FenceRefused, match="raised by a hook, close-port"):
            await lift_fence(world.store(), world.cluster, world.write())
        found = await world.store().read()
        assert found is not None and found.state is FenceState.STANDING

    asyncio.run(run())


def test_of_two_operators_the_first_counts_and_the_other_changes_nothing() -> None:
    """Both have read that there is no fence."""

    async def run() -> None:
        world = World()
        late = MemoryRecords("A", world.steps)
        late.log = world.source.log
        late.sees_nothing_once = True
        world.steps.last, world.steps.is_done = 1, True
        with pytest.raises(Killed):
            await world.fence()
        world.steps.last = None
        store = FenceStore(FLOW, late, world.target)
        with pytest.raises(FenceChangedMeanwhile, match="ann on host"):
            await raise_fence(world.plan(), FLOW, store, world.cluster, world.write())
        assert world.is_as_before() and not world.target.log

    asyncio.run(run())


def test_a_limit_that_somebody_has_changed_since_is_left_alone() -> None:
    record = FenceRecord(
        FLOW,
        3,
        "t",
        FenceState.LIFTING,
        FenceWay.SIZE,
        ("a", "b", "c", "d"),
        sizes={"a": None, "b": "9", "c": "9", "d": "7"},
    )
    back, left = to_give_back(record, {"a": "1", "b": "5", "c": "9"})
    assert back == {"a": None}  # c has its value back already
    assert left == ("b", "d")  # d is deleted
