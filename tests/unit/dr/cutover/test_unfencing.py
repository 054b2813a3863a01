"""What ``mm2py dr unfence`` does while a run stands."""

from __future__ import annotations

import pytest

from mm2py.dr.cutover.pair import CutoverRefused
from mm2py.dr.cutover.unfencing import takes_back_run
from mm2py.dr.journal import JournalEntry
from mm2py.dr.states import RecoveryEvent, RecoveryState, RecoveryVerb
from mm2py.flow import ClusterAlias, Flow

A, B = ClusterAlias("A"), ClusterAlias("B")
FORTH, BACK = Flow(A, B), Flow(B, A)
S = RecoveryState


def standing(state: RecoveryState, flow: Flow = FORTH, verb: RecoveryVerb = RecoveryVerb.CUTOVER) -> JournalEntry:
    return JournalEntry(1, 0, "m", "m", verb, flow, state, RecoveryEvent.RESTARTED, 0)


@pytest.mark.parametrize("last", [None, standing(S.TAKEN_BACK), standing(S.COMPLETE)], ids=["none", "back", "complete"])
def test_without_a_run_the_fence_is_lifted_alone(last: JournalEntry | None) -> None:
    assert not takes_back_run(last, FORTH)


@pytest.mark.parametrize(
    "state", [S.FENCING, S.FENCED, S.FENCE_VERIFIED, S.DRAINED, S.GROUPS_FINAL, S.TAKING_BACK], ids=str
)
def test_before_the_switch_the_run_is_taken_back(state: RecoveryState) -> None:
    assert takes_back_run(standing(state), FORTH)


@pytest.mark.parametrize("state", [S.SWITCHING, S.SWITCHED, S.REVERSED], ids=str)
def test_behind_the_switch_the_fence_stays(state: RecoveryState) -> None:
    with pytest.raises(CutoverRefused, match=r"without it both clusters would take records.*dr rollback FILE 'A->B'"):
        takes_back_run(standing(state), FORTH)


def test_the_fence_of_the_other_side_stays_while_a_rollback_is_under_way() -> None:
    with pytest.raises(CutoverRefused):
        takes_back_run(standing(S.FENCED, BACK), FORTH)
    assert not takes_back_run(standing(S.REVERSED, BACK), FORTH), "it is free by the run"


@pytest.mark.parametrize("state", [S.CUTTING_OFF, S.CUT_OFF, S.GROUPS_PLACED], ids=str)
def test_a_failover_is_taken_back_before_its_switch(state: RecoveryState) -> None:
    assert takes_back_run(standing(state, verb=RecoveryVerb.FAILOVER), FORTH)


@pytest.mark.parametrize("state", [S.FAILING_OVER, S.FAILED_OVER, S.REINSTATED], ids=str)
def test_behind_the_switch_of_a_failover_the_way_back_is_another(state: RecoveryState) -> None:
    with pytest.raises(CutoverRefused, match=r"The failover of A->B is .*: mm2py dr reinstate FILE 'A->B'"):
        takes_back_run(standing(state, verb=RecoveryVerb.FAILOVER), FORTH)


def test_a_fence_that_is_left_on_the_target_of_a_failover_may_be_lifted() -> None:
    assert not takes_back_run(standing(S.FAILED_OVER, verb=RecoveryVerb.FAILOVER), BACK)
