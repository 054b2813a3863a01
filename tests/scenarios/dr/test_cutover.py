"""A cutover and its rollback between two cluster models: wherever it is killed, nothing is lost or read again."""

from __future__ import annotations

import asyncio

import pytest

from mm2py.dr.cutover.pair import CutoverRefused
from mm2py.dr.journal import RunRefused
from mm2py.dr.runner import RecoveryGoal, RecoveryStopped
from mm2py.dr.states import RecoveryState
from mm2py.errors import Mm2Error
from mm2py.flow import Flow
from tests.scenarios.dr.cutover_world import GROUP, A, B, CutoverWorld, ProcessKilled
from tests.simulation.incarnation import SimulationLoop

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)

FORTH, BACK = Flow(A, B), Flow(B, A)
S, G = RecoveryState, RecoveryGoal
BOTH_POLICIES = pytest.mark.parametrize("keeps_names", [True, False], ids=["identity", "prefixed"])
ENTRIES = 9
"""Of a cutover that nothing stops: Fencing ... Reversed, and Reversed once producers are free."""


async def copying(*, keeps_names: bool) -> CutoverWorld:
    """Start a worker of both flows; the group has read a part of what is copied."""
    world = CutoverWorld(keeps_names=keeps_names)
    world.produce()
    world.run()
    world.consume()
    world.produce()
    await world.until(world.copies)
    await asyncio.sleep(5)  # positions and ledgers are stored
    return world


async def settled(world: CutoverWorld) -> None:
    """Let clients work where they are, and judge everything."""
    world.produce()
    await world.until(world.copies)
    world.consume()
    assert world.read == world.sent, "each record was read once"


@BOTH_POLICIES
async def test_a_cutover_its_rollback_and_a_cutover_again_lose_nothing(*, keeps_names: bool) -> None:
    world = await copying(keeps_names=keeps_names)
    assert await world.call(G.CUTOVER, FORTH) is S.REVERSED
    assert (world.clients_on, world.fenced) == (B, {"A"})
    await settled(world)
    assert await world.call(G.CUTOVER, FORTH) is S.REVERSED, "it is done already"
    await asyncio.sleep(5)
    assert await world.call(G.ROLLBACK, FORTH) is S.REVERSED
    assert (world.clients_on, world.fenced) == (A, {"B"})
    await settled(world)
    with pytest.raises(RunRefused, match="complete it first"):
        await world.call(G.CUTOVER, FORTH)
    assert await world.call(G.COMPLETE, BACK) is S.COMPLETE
    await asyncio.sleep(5)
    assert await world.call(G.CUTOVER, FORTH) is S.REVERSED
    await settled(world)
    assert [one for one in world.hooks if one.startswith("switch")] == ["switch to B", "switch to A", "switch to B"]


@BOTH_POLICIES
@pytest.mark.parametrize("killed_after", range(1, ENTRIES + 1))
async def test_killed_after_any_step_the_same_call_ends_it(killed_after: int, *, keeps_names: bool) -> None:
    world = await copying(keeps_names=keeps_names)
    for goal in (G.CUTOVER, G.ROLLBACK):
        with pytest.raises(ProcessKilled):
            await world.call(goal, FORTH, killed_after=killed_after)
        world.produce()  # also where a fence has not been raised, or has fallen
        assert await world.call(goal, FORTH) is S.REVERSED
        await settled(world)
        await asyncio.sleep(5)
    assert (world.clients_on, world.fenced) == (A, {"B"})


@BOTH_POLICIES
async def test_a_group_that_does_not_get_ready_in_time_takes_everything_back(*, keeps_names: bool) -> None:
    world = await copying(keeps_names=keeps_names)
    world.source.groups.activate(GROUP)
    assert await world.call(G.CUTOVER, FORTH, timeout_s=30.0) is S.TAKEN_BACK
    assert (world.clients_on, world.fenced) == (A, set())
    assert any(f"waits: group {GROUP}: it has members on A" in line for line in world.told), world.told
    world.consume()  # its members read to the end, and stay
    assert await world.call(G.CUTOVER, FORTH, timeout_s=30.0) is S.REVERSED
    world.source.groups.deactivate(GROUP)
    await settled(world)


async def test_a_rollback_that_fails_leaves_the_cutover_as_it_was() -> None:
    world = await copying(keeps_names=True)
    assert await world.call(G.CUTOVER, FORTH) is S.REVERSED
    world.consume()
    world.target.groups.activate(GROUP)
    world.produce()
    await asyncio.sleep(5)
    assert await world.call(G.ROLLBACK, FORTH, timeout_s=20.0) is S.REVERSED
    assert (world.clients_on, world.fenced) == (B, {"A"})
    await settled(world)


async def test_a_hook_that_fails_is_called_again_or_its_run_is_undone() -> None:
    world = await copying(keeps_names=True)
    world.hook_error = Mm2Error("DNS does not answer.", remedy="")
    world.failing_hooks = 1
    with pytest.raises(RecoveryStopped, match="stays Switching: DNS does not answer"):
        await world.call(G.CUTOVER, FORTH)
    assert world.fenced == {"A"}
    assert await world.call(G.CUTOVER, FORTH) is S.REVERSED
    await settled(world)


async def test_what_stands_in_the_way_is_said_before_anything_is_changed() -> None:
    world = await copying(keeps_names=True)
    with pytest.raises(CutoverRefused, match="No live worker serves A"):
        await world.call(G.CUTOVER, FORTH, obstacles=["No live worker serves A. Start one."])
    with pytest.raises(CutoverRefused, match=r"B->A is standby"):
        await world.call(G.CUTOVER, BACK)
    world.processes[0].kill()
    world.produce(1)
    with pytest.raises(CutoverRefused, match=r"2 records are not copied; --max-lag is 1\."):
        await world.call(G.CUTOVER, FORTH, max_lag=1)
    assert not world.fenced and not world.hooks


async def test_a_fence_of_an_earlier_run_whose_record_is_lost_is_told_where_producers_go() -> None:
    world = await copying(keeps_names=True)
    for goal in (G.CUTOVER, G.ROLLBACK):
        assert await world.call(goal, FORTH) is S.REVERSED
        await settled(world)
        await asyncio.sleep(5)
    assert await world.call(G.COMPLETE, BACK) is S.COMPLETE
    for cluster in world.both.values():
        cluster.delete_topic("mm2-dr-fences.internal")
    assert await world.call(G.CUTOVER, FORTH) is S.REVERSED
    note = "note: an earlier run has fenced producers of B, and the record of that fence is lost. Remove by hand"
    assert any(line.startswith(note) for line in world.told), world.told


async def test_positions_that_are_lost_begin_no_cutover_and_take_one_back_that_has_begun() -> None:
    world = await copying(keeps_names=True)
    with pytest.raises(ProcessKilled):
        await world.call(G.CUTOVER, FORTH, killed_after=3)
    (name,) = [topic for topic in world.target.topics if topic.startswith("mm2-offsets.")]
    world.target.delete_topic(name)
    assert await world.call(G.CUTOVER, FORTH, timeout_s=300.0) is S.TAKEN_BACK
    assert (world.clients_on, world.fenced) == (A, set())
    with pytest.raises(CutoverRefused, match=r"where A->B has copied is not known: mm2-offsets\.A\.internal on B"):
        await world.call(G.CUTOVER, FORTH)
    assert (world.clients_on, world.fenced) == (A, set())


async def test_the_window_of_a_rollback_ends() -> None:
    world = await copying(keeps_names=True)
    assert await world.call(G.CUTOVER, FORTH, window_s=60) is S.REVERSED
    await asyncio.sleep(61)
    with pytest.raises(CutoverRefused, match=r"The window in which A->B could be undone ended at"):
        await world.call(G.ROLLBACK, FORTH)
    assert (world.clients_on, world.fenced) == (B, {"A"})


async def test_records_that_neither_flow_wrote_refuse_a_rollback() -> None:
    world = await copying(keeps_names=True)
    assert await world.call(G.CUTOVER, FORTH) is S.REVERSED
    await settled(world)
    await asyncio.sleep(5)
    world.write(world.source, 1)  # a super user, whom no fence stops
    assert await world.call(G.ROLLBACK, FORTH) is S.REVERSED
    assert (world.clients_on, world.fenced) == (B, {"A"}), "it was taken back"
    assert await world.call(G.ROLLBACK, FORTH, leaves_extras=True) is S.REVERSED
    assert world.clients_on == A
