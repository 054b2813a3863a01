"""The flow that leads back while a cutover can be undone: a dead one is a problem, a metric, and nothing else is."""

from __future__ import annotations

import pytest

from mm2py.dr.journal import JournalEntry
from mm2py.dr.states import RecoveryEvent, RecoveryState, RecoveryVerb
from mm2py.flow import ClusterAlias, Flow
from mm2py.status.return_flow import ReturnFlow, return_flow
from mm2py.status.verdict import FlowVerdict, Readiness

FORTH, BACK = Flow(ClusterAlias("A"), ClusterAlias("B")), Flow(ClusterAlias("B"), ClusterAlias("A"))


def run(state: RecoveryState = RecoveryState.REVERSED) -> JournalEntry:
    return JournalEntry(1, 0, "m", "r", RecoveryVerb.CUTOVER, FORTH, state, RecoveryEvent.FLOW_REVERSED, at_ms=0)


def verdict(readiness: Readiness) -> FlowVerdict:
    return FlowVerdict(readiness, "B->A: not safe to fail over: it is paused.", None, None, None, ())


@pytest.mark.parametrize("readiness", [Readiness.SAFE, Readiness.BEHIND])
def test_a_flow_back_that_copies_is_alive_also_if_it_is_behind(readiness: Readiness) -> None:
    assert return_flow(BACK, run(), verdict(readiness)) == ReturnFlow(BACK, "")


@pytest.mark.parametrize("readiness", [Readiness.NOT_COPIED, Readiness.INCOMPLETE, Readiness.UNKNOWN])
def test_a_flow_back_that_does_not_copy_all_says_why_and_what_it_costs(readiness: Readiness) -> None:
    found = return_flow(BACK, run(), verdict(readiness))
    assert found is not None
    assert "not safe to fail over: it is paused. What is written on B is not on A." in found.dead
    unknown = return_flow(BACK, run(), None)
    assert unknown is not None and "nothing is known of it" in unknown.dead


@pytest.mark.parametrize("state", [one for one in RecoveryState if one is not RecoveryState.REVERSED])
def test_only_while_a_run_can_be_undone_must_it_copy(state: RecoveryState) -> None:
    assert return_flow(BACK, run(state), verdict(Readiness.NOT_COPIED)) is None


def test_the_flow_of_the_cutover_itself_need_not_copy() -> None:
    assert return_flow(FORTH, run(), verdict(Readiness.NOT_COPIED)) is None
    assert return_flow(BACK, None, verdict(Readiness.NOT_COPIED)) is None
