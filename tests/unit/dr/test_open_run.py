"""What is refused by hand while a run of ``mm2py dr`` is open, and what is not."""

from __future__ import annotations

import pytest

from mm2py.dr.journal import JournalEntry
from mm2py.dr.open_run import RunIsOpen, refuse_fence_beside, refuse_move_beside, refuse_turn_beside
from mm2py.dr.states import ENDED, RecoveryEvent, RecoveryState, RecoveryVerb
from mm2py.flow import ClusterAlias, Flow

S = RecoveryState
FLOW, BACK = Flow(ClusterAlias("A"), ClusterAlias("B")), Flow(ClusterAlias("B"), ClusterAlias("A"))


def run(state: S) -> JournalEntry:
    return JournalEntry(
        1, 0, "m", "r", RecoveryVerb.CUTOVER, FLOW, state, RecoveryEvent.FENCE_SET, at_ms=0, topics=("orders",)
    )


@pytest.mark.parametrize("state", [one for one in S if one not in ENDED])
def test_no_flow_is_turned_by_hand_while_a_run_is_open(state: S) -> None:
    for flow in (FLOW, BACK):
        with pytest.raises(RunIsOpen, match=rf"{flow} is not turned by hand while the cutover of A->B is {state}"):
            refuse_turn_beside(run(state), flow, 1, off=state is S.FAILED_OVER and flow == BACK)


def test_a_flow_that_a_failover_has_ended_may_be_turned_off_once_more_and_not_on() -> None:
    """The record that it is off was lost with its topic; dr reinstate asks for it."""
    refuse_turn_beside(run(S.FAILED_OVER), FLOW, 1, off=True)
    for state, flow, off in ((S.FAILED_OVER, FLOW, False), (S.FAILED_OVER, BACK, True), (S.REINSTATED, FLOW, True)):
        with pytest.raises(RunIsOpen):
            refuse_turn_beside(run(state), flow, 1, off=off)


def test_the_fence_of_a_run_and_one_of_its_topics_are_refused_with_the_way_out() -> None:
    for flow, topics in ((FLOW, ["other"]), (BACK, ["orders", "other"])):
        with pytest.raises(RunIsOpen, match="mm2py dr complete FILE 'A->B' keeps it"):
            refuse_fence_beside(run(S.REVERSED), flow, topics, 1)
    refuse_fence_beside(run(S.REVERSED), BACK, ["other"], 1)


def test_a_group_is_moved_by_hand_only_behind_the_switch_or_elsewhere() -> None:
    with pytest.raises(RunIsOpen, match="Group pay is not moved by hand while the cutover of A->B is Fenced"):
        refuse_move_beside(run(S.FENCED), "pay", ["orders"], 1)
    refuse_move_beside(run(S.FENCED), "pay", ["other"], 1)
    refuse_move_beside(run(S.REVERSED), "pay", ["orders"], 1)


@pytest.mark.parametrize("last", [None, *(run(state) for state in sorted(ENDED))])
def test_without_an_open_run_nothing_is_refused(last: JournalEntry | None) -> None:
    refuse_turn_beside(last, FLOW, 1, off=False)
    refuse_fence_beside(last, FLOW, ["orders"], 1)
    refuse_move_beside(last, "pay", ["orders"], 1)
