"""What may not be done by hand while a run of ``mm2py dr`` is open: it would change what the run rests on. Pure.

The story: a cutover has verified that all is copied. Before it switches, somebody turns the flow off and on by hand, or
moves one of its groups: what was verified is not so any more.
"""

from __future__ import annotations

from collections.abc import Collection

from mm2py.dr.journal import JournalEntry
from mm2py.dr.readiness import way_on
from mm2py.dr.states import ENDED, RecoveryState
from mm2py.errors import Mm2Error
from mm2py.flow import Flow


class RunIsOpen(Mm2Error):
    """A run has not ended, and what is asked for is a part of it."""

    def __init__(self, what: str, run: JournalEntry, now_ms: int) -> None:
        super().__init__(
            f"{what} while the {run.verb} of {run.flow} is {run.state}: nothing was changed.",
            remedy=f"End it first: {way_on(run, now_ms)}",
        )


def refuse_turn_beside(run: JournalEntry | None, flow: Flow, now_ms: int, *, off: bool) -> None:
    """Refuse to turn a flow by hand while a run is open: it turns the flows itself.

    The story: A is back after a failover to B, and somebody wants copying to go on as before. A->B would copy what A
    took unseen behind what clients have written to B since. To turn it *off* is what the failover wants, too.

    Raises: RunIsOpen, a run has not ended.
    """
    if run is None or run.state in ENDED:
        return
    if off and run.state is RecoveryState.FAILED_OVER and run.flow == flow:
        return
    raise RunIsOpen(f"{flow} is not turned by hand", run, now_ms)


def refuse_fence_beside(run: JournalEntry | None, flow: Flow, topics: Collection[str], now_ms: int) -> None:
    """Raises: RunIsOpen, if the fence is that of a run that has not ended, or of topics that the run moves."""
    if run is None or run.state in ENDED:
        return
    if run.flow == flow or not set(topics).isdisjoint(run.topics):
        raise RunIsOpen(f"The producers of {flow.source} are not fenced by hand", run, now_ms)


def refuse_move_beside(run: JournalEntry | None, group: str, topics: Collection[str], now_ms: int) -> None:
    """Raises: RunIsOpen, if a run that moves these topics has not switched yet. Behind it a group may follow."""
    if run is None or run.state in ENDED or run.state is RecoveryState.REVERSED:
        return
    if not set(topics).isdisjoint(run.topics):
        raise RunIsOpen(f"Group {group} is not moved by hand", run, now_ms)
