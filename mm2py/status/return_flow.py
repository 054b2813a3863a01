"""The flow that leads back after a cutover: while the cutover can be undone, it must copy. Pure.

It keeps the cluster exact that producers have left. If it is dead, a rollback has to wait for it, and what is written
meanwhile is on one cluster only. So a dead one is a problem of its own in ``mm2py status`` and an alert.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from mm2py.dr.journal import JournalEntry
from mm2py.dr.states import RecoveryState
from mm2py.flow import Flow
from mm2py.status.verdict import FlowVerdict, Readiness

_COPIES: Final = frozenset({Readiness.SAFE, Readiness.BEHIND})


class ReturnFlow(NamedTuple):
    """A flow that must copy, as a run can be undone."""

    flow: Flow
    dead: str
    """Why it does not copy, or not all, in a sentence; empty: it copies."""


def return_flow(flow: Flow, run: JournalEntry | None, verdict: FlowVerdict | None) -> ReturnFlow | None:
    """Return whether a flow copies that must; None: it is not the flow that leads back of a run that stands reversed.

    Args:
        run: how the pair of clusters stands.
        verdict: of the flow; None: nothing is known of it.
    """
    if run is None or run.state is not RecoveryState.REVERSED or flow != Flow(run.flow.target, run.flow.source):
        return None
    if verdict is not None and verdict.readiness in _COPIES:
        return ReturnFlow(flow, "")
    told = "nothing is known of it" if verdict is None else verdict.text.removeprefix(f"{flow}: ").rstrip(".")
    return ReturnFlow(
        flow,
        f"It must copy while the {run.verb} of {run.flow} can be undone, and does not copy all: {told}. What is written"
        f" on {flow.source} is not on {flow.target}.",
    )
