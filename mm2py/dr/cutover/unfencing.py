"""Whether ``mm2py dr unfence`` lifts a fence alone, or takes back the run that the fence is part of."""

from __future__ import annotations

from mm2py.dr.cutover.pair import CutoverRefused
from mm2py.dr.journal import JournalEntry
from mm2py.dr.states import ENDED, TABLE, RecoveryEvent, RecoveryState, RecoveryVerb
from mm2py.flow import Flow


def takes_back_run(last: JournalEntry | None, flow: Flow) -> bool:
    """Return whether a run has to be taken back; else the fence is nobody's, and is lifted alone.

    Args:
        last: how the pair of clusters stands.
        flow: of the fence: it stops the producers of its source.
    Raises:
        CutoverRefused: the fence belongs to a run that has switched, or leads the other way round. Without it both
            sides would take records.
    """
    if last is None or last.state in ENDED:
        return False
    if last.flow == flow:
        may = any(row.state is last.state and row.event is RecoveryEvent.TAKE_BACK_ASKED for row in TABLE)
        if may or last.state is RecoveryState.TAKING_BACK:
            return True
    elif last.state in (RecoveryState.REVERSED, RecoveryState.FAILED_OVER):
        return False  # producers are free there anyway
    if last.verb is RecoveryVerb.FAILOVER:
        raise CutoverRefused(
            f"The failover of {last.flow} is {last.state}: producers are, or may be, on {last.flow.target}. Without the"
            " fence both clusters would take records.",
            remedy=f"When {last.flow.source} is back: mm2py dr reinstate FILE '{last.flow}'.",
        )
    raise CutoverRefused(
        f"The {last.verb} of {last.flow} is {last.state}, and the fence is part of it: without it both clusters would"
        " take records.",
        remedy=f"Undo the run (mm2py dr rollback FILE '{last.flow}'), or end it (mm2py dr complete FILE"
        f" '{last.flow}'), and lift the fence then.",
    )
