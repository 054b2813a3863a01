"""Two flows of one file under the identity policy: one copies, the other is standby, and they take turns."""

from __future__ import annotations

import asyncio

import pytest

from mm2py.records.direction_record import DirectionState
from mm2py.shared_settings.direction import TurnRefused
from tests.scenarios.standby_world import BACK, BY, THERE, TurnWorld
from tests.simulation.incarnation import SimulationLoop

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)


async def copying(world: TurnWorld) -> None:
    """Start a worker of both flows, and let A->B copy."""
    world.write(world.source)
    world.run()
    await world.until(world.is_same)
    await world.until(lambda: world.states(BACK) == ["standby"])


async def test_of_two_flows_that_lead_back_and_forth_the_one_that_is_standby_copies_nothing() -> None:
    world = TurnWorld()
    await copying(world)
    world.write(world.target)
    await world.stays(lambda: len(world.values(world.source)) == 6)
    assert world.states(THERE) == ["running"] and not world.said("topic.refused")
    assert await world.stored(BACK) == "standby by its file (generation 1)"
    made = {"mm2-configs.B.internal", "mm2-offsets.B.internal", "mm2-ledger.B.internal", "mm2-status.B.internal"}
    assert made <= set(world.source.topics), "its internal topics are there"


async def test_they_take_turns_and_each_copies_exactly_what_is_new() -> None:
    world = TurnWorld()
    await copying(world)
    for to in (BACK, THERE, BACK, THERE):
        turned = await world.turn(to)
        assert turned.direction.is_on and turned.starts.keys() == {("orders", 0), ("orders", 1)}
        await world.until(lambda to=to: world.states(to) == ["running"])  # type: ignore[misc]
        world.write(world.target if to == BACK else world.source)
        await world.until(world.is_same)
        await world.stays(world.is_same)
    assert len(world.values(world.source)) == 6 * 5


async def test_a_restart_with_the_same_file_turns_nothing_back() -> None:
    world = TurnWorld()
    await copying(world)
    await world.turn(BACK)
    world.processes[0].kill()
    world.run()
    await world.until(lambda: world.states(BACK) == ["running"])
    assert world.states(THERE) == ["standby"]
    world.write(world.target)
    await world.until(world.is_same)
    await world.stays(world.is_same)


async def test_clients_that_write_before_the_turn_lose_nothing() -> None:
    """B has become the primary, and the way back is turned on later."""
    world = TurnWorld()
    await copying(world)
    await world.off(THERE)
    world.write(world.target)
    await world.on(BACK)
    await world.until(world.is_same)
    await world.stays(world.is_same)


async def test_what_has_not_been_copied_refuses_the_turn_by_name() -> None:
    world = TurnWorld()
    await copying(world)
    await world.off(THERE)
    world.write(world.source, 2)
    with pytest.raises(
        TurnRefused, match=r"A has records that A->B has not copied to B: orders-0 \(2\), orders-1 \(2\)"
    ):
        await world.on(BACK)
    assert await world.stored(BACK) == "standby by its file (generation 1)"
    turned = await world.on(BACK, force=True)
    assert turned.extras == {("orders", 0): 2, ("orders", 1): 2}
    before = world.values(world.target)
    world.write(world.target)
    await world.until(lambda: (world.values(world.target) - before) <= world.values(world.source))
    await world.stays(lambda: set(world.values(world.source).values()) == {1})


async def test_both_directions_are_never_turned_on() -> None:
    world = TurnWorld()
    await copying(world)
    with pytest.raises(TurnRefused, match=r"B->A cannot be turned on: A->B is on by its file .*Turn A->B off first"):
        await world.on(BACK)
    await world.off(THERE)
    outcomes = await asyncio.gather(world.on(BACK), world.on(THERE), return_exceptions=True)
    on = [one for one in outcomes if not isinstance(one, BaseException)]
    assert len(on) <= 1, outcomes
    states = [await world.stored(one) for one in (THERE, BACK)]
    assert sum(one.startswith("on ") for one in states) == len(on), states


async def test_the_status_names_the_flow_that_is_standby_and_all_is_well() -> None:
    world = TurnWorld()
    before = {str(one.flow): one for one in (await world.report()).flows}
    assert before["B->A"].verdict.text == "B->A: standby by its file; turns on with mm2py dr turn FILE 'B->A'", (
        "no worker ran yet"
    )
    await copying(world)
    await asyncio.sleep(20)
    report = await world.report()
    assert report.problems == () and report.summary.startswith("copied except B->A (standby since "), report.summary
    there, back = sorted(report.flows, key=lambda one: str(one.flow))
    assert there.verdict.text.startswith("A->B: safe to fail over")
    assert back.verdict.text == "B->A: standby by its file; turns on with mm2py dr turn FILE 'B->A'"
    assert back.lag is None and {str(why.reason) for one in back.topics for why in one.not_copied} == {"standby"}
    await world.turn(BACK)
    await world.until(lambda: world.states(BACK) == ["running"])
    await asyncio.sleep(20)
    report = await world.report()
    assert report.problems == () and report.summary.startswith("copied except A->B (standby since "), report.summary
    there, back = sorted(report.flows, key=lambda one: str(one.flow))
    assert there.verdict.text == f"A->B: standby by {BY}; turns on with mm2py dr turn FILE 'A->B'"
    assert back.verdict.text.startswith("B->A: safe to fail over")


async def test_what_a_killed_worker_had_copied_behind_its_positions_is_not_copied_back() -> None:
    """The story: A is lost together with the workers of A->B, and B takes over. A->B is turned off, and its positions
    are older than its copies. B->A must begin behind the copies."""
    world = TurnWorld()
    await copying(world)
    await asyncio.sleep(5)
    world.write(world.source, 5)
    await world.until(lambda: len(world.values(world.target)) == 16)
    world.processes[0].kill()  # before it has stored where its copies end
    world.write(world.target)
    world.run("A")  # at A, only B->A is served
    turning = asyncio.ensure_future(world.off(THERE))
    await asyncio.gather(turning, return_exceptions=True)
    world.run("B")  # evicts and fences the killed worker, and stays standby
    await world.until(lambda: world.states(THERE) == ["standby"])
    await world.off(THERE)
    turned = await world.on(BACK, force=True)
    assert turned.extras, "the positions say less than was copied"
    await world.until(world.is_same)
    await world.stays(world.is_same)


async def test_both_directions_that_are_on_stop_both_loudly_until_one_is_turned_off() -> None:
    world = TurnWorld()
    await copying(world)
    await world.turn(BACK)
    await world.until(lambda: world.states(BACK) == ["running"])
    await world.write_state(THERE, DirectionState.ON)
    await world.until(lambda: world.states(THERE) == ["both-on"] and world.states(BACK) == ["both-on"])
    assert len(list(world.said("flow.both_on"))) == 2
    before = world.values(world.source)
    world.write(world.source)
    world.write(world.target)
    await asyncio.sleep(10)
    assert len(world.values(world.source)) == len(before) + 6, "nothing is copied, in neither direction"
    report = await world.report()
    assert {str(one.kind) for one in report.problems} == {"not-copied"}
    for flow in report.flows:
        assert {str(why.reason) for topic in flow.topics for why in topic.not_copied} == {"both-on"}
    with pytest.raises(TurnRefused, match="both have stopped"):
        await world.on(BACK)
    await world.off(THERE)
    await world.until(lambda: world.states(BACK) == ["running"])
    assert world.states(THERE) == ["standby"]


async def test_two_flows_with_prefixes_need_no_turns_and_one_may_be_standby_all_the_same() -> None:
    world = TurnWorld(**{"replication.policy.class": "DefaultReplicationPolicy"})
    world.write(world.source)
    world.target.create_topic("orders", 2)
    world.write(world.target)
    world.run()
    await world.until(lambda: len(world.values(world.target, "A.orders")) == 6)
    assert world.states(BACK) == ["standby"] and "B.orders" not in world.source.topics
    turned = await world.on(BACK)
    assert turned.starts == {} and turned.direction.is_on
    await world.until(lambda: len(world.values(world.source, "B.orders")) == 6)
    await world.stays(lambda: world.states(THERE) == ["running"] and world.states(BACK) == ["running"], for_s=5)
    await world.off(THERE)
    assert world.states(THERE) == ["standby"] and world.states(BACK) == ["running"]


async def test_workers_that_restart_between_the_steps_change_nothing() -> None:
    world = TurnWorld()
    await copying(world)

    async def restart() -> None:
        world.processes[-1].kill()
        world.run()
        await world.until(lambda: all(world.states(one) for one in (THERE, BACK)))

    for to in (BACK, THERE):
        await world.off(THERE if to == BACK else BACK)
        await restart()
        await world.until(lambda: world.states(THERE) == world.states(BACK) == ["standby"])
        await world.on(to)
        await restart()
        await world.until(lambda to=to: world.states(to) == ["running"])  # type: ignore[misc]
        world.write(world.target if to == BACK else world.source)
        await restart()
        await world.until(world.is_same)
        await world.stays(world.is_same)


async def test_a_turn_that_was_interrupted_is_taken_up_by_the_next_one() -> None:
    world = TurnWorld()
    await copying(world)
    await world.off(THERE)
    for interrupted_after_s in (0.01, 0.05, 0.2, 0.5, 1.0):
        turning = asyncio.ensure_future(world.on(BACK))
        await asyncio.sleep(interrupted_after_s)
        turning.cancel()
        await asyncio.gather(turning, return_exceptions=True)
    world.write(world.target)
    assert (await world.on(BACK)).direction.is_on
    await world.until(world.is_same)
    await world.stays(world.is_same)


async def test_while_one_is_being_turned_on_the_other_cannot_be() -> None:
    world = TurnWorld()
    await copying(world)
    await world.off(THERE)
    await world.write_state(BACK, DirectionState.TURNING_ON)  # a turn that was killed here
    with pytest.raises(
        TurnRefused, match=r"A->B cannot be turned on: B->A is being turned on by a mistake .*Turn B->A off"
    ):
        await world.on(THERE)
    await world.off(BACK)
    assert (await world.on(THERE)).direction.is_on
    await world.stays(world.is_same)


async def test_a_lost_record_does_not_turn_a_flow_on_while_the_flow_back_is_on() -> None:
    """The configs topic of A->B is lost with all its workers; the file still says that A->B is not standby."""
    world = TurnWorld()
    await copying(world)
    await world.turn(BACK)
    await world.until(lambda: world.states(BACK) == ["running"])
    world.processes[0].kill()
    world.target.delete_topic("mm2-configs.A.internal")
    world.run()
    await world.until(lambda: world.states(BACK) == ["running"] and world.states(THERE) == ["standby"])
    assert await world.stored(THERE) == "standby by mm2py, because the flow back is on (generation 1)"
    world.write(world.target)
    await world.until(world.is_same)
    await world.stays(world.is_same)


async def test_a_record_that_is_lost_while_workers_run_is_written_again() -> None:
    world = TurnWorld()
    await copying(world)
    await world.turn(BACK)
    await world.until(lambda: world.states(BACK) == ["running"])
    stored = await world.stored(THERE)
    world.target.delete_topic("mm2-configs.A.internal")
    await asyncio.sleep(20)
    assert await world.stored(THERE) == stored
    assert world.states(THERE) == ["standby"] and world.states(BACK) == ["running"]


async def test_a_plan_says_that_a_flow_is_standby_and_refuses_none_of_its_topics() -> None:
    world = TurnWorld()
    await copying(world)
    for standby in (BACK, THERE):
        there, back = await world.plan()
        held = back if standby == BACK else there
        assert held.held == ("MirrorCheckpointConnector is standby", "MirrorSourceConnector is standby")
        assert not (held.refusals or held.begins or held.creates), held
        assert any("it copies nothing until it is turned on with mm2py dr" in note for note in held.notes), held.notes
        await world.turn(standby)
        await world.until(lambda: len(set(world.states(THERE) + world.states(BACK))) == 2)


async def test_a_flow_whose_worker_was_killed_can_be_turned_on_again_to_copy_the_rest() -> None:
    """A->B seems not to have copied all, so B->A is refused. What A->B had copied behind its positions is on B, and
    must not be taken for records of B that B->A has not copied: no flow could be turned on any more."""
    world = TurnWorld()
    await copying(world)
    await asyncio.sleep(5)
    world.write(world.source, 5)
    await world.until(lambda: len(world.values(world.target)) == 16)
    world.processes[0].kill()
    world.run()
    await world.off(THERE)
    for _ in range(3):
        with pytest.raises(TurnRefused, match="A has records that A->B has not copied to B"):
            await world.on(BACK)
    assert (await world.on(THERE)).direction.is_on
    await asyncio.sleep(10)
    await world.turn(BACK)
    world.write(world.target)
    await world.until(world.is_same)
    await world.stays(world.is_same)
