"""The mark of a failover: a flow that it has ended is not turned on again by hand."""

from __future__ import annotations

import pytest

from mm2py.dr.failover.mark import EndedByFailover, refuse_turn_on
from mm2py.dr.journal import JournalEntry
from mm2py.dr.states import RecoveryEvent, RecoveryState, RecoveryVerb
from mm2py.flow import ClusterAlias, Flow
from mm2py.records.author import Author
from mm2py.records.direction_record import Direction, DirectionState, is_by_failover

FLOW = Flow(ClusterAlias("A"), ClusterAlias("B"))
BY = Author("ann", "ops1").by_command("mm2py dr failover")
MARK = Direction(DirectionState.OFF, 2, BY, 0)


def run(
    state: RecoveryState = RecoveryState.FAILED_OVER,
    verb: RecoveryVerb = RecoveryVerb.FAILOVER,
    flow: Flow = FLOW,
) -> JournalEntry:
    return JournalEntry(1, 0, "m", "m", verb, flow, state, RecoveryEvent.RESTARTED, 0)


def test_a_mark_says_whether_a_failover_has_set_it() -> None:
    assert is_by_failover(BY)
    assert is_by_failover(f"standby by {BY}: A burns (generation 2)")
    assert not is_by_failover(Author("ann", "ops1").by_command("mm2py dr turn"))


@pytest.mark.parametrize("state", [RecoveryState.CUTTING_OFF, RecoveryState.FAILED_OVER, RecoveryState.REINSTATED])
def test_a_flow_that_a_failover_has_ended_stays_off(state: RecoveryState) -> None:
    with pytest.raises(EndedByFailover, match="A->B has ended by a failover"):
        refuse_turn_on(MARK, run(state), FLOW)


@pytest.mark.parametrize(
    ("stored", "last"),
    [
        (None, run()),
        (Direction(DirectionState.ON, 3, BY, 0), run()),
        (Direction(DirectionState.OFF, 3, "ann (mm2py dr turn)", 0), run()),
        (MARK, None),
        (MARK, run(RecoveryState.COMPLETE)),
        (MARK, run(RecoveryState.TAKEN_BACK)),
        (MARK, run(RecoveryState.REVERSED, RecoveryVerb.CUTOVER)),
        (MARK, run(flow=Flow(FLOW.target, FLOW.source))),
    ],
)
def test_any_other_flow_may_be_turned_on(stored: Direction | None, last: JournalEntry | None) -> None:
    refuse_turn_on(stored, last, FLOW)
