"""The mark of a failover on the target: the record by which the flow is off names the command. Pure."""

from __future__ import annotations

from mm2py.dr.journal import JournalEntry
from mm2py.dr.states import ENDED, RecoveryVerb
from mm2py.errors import Mm2Error
from mm2py.flow import Flow
from mm2py.records.direction_record import Direction, is_by_failover


class EndedByFailover(Mm2Error):
    """A flow must not be turned on: its source was lost, and clients write on its target."""


def refuse_turn_on(stored: Direction | None, last: JournalEntry | None, flow: Flow) -> None:
    """Refuse to turn a flow on that a failover has ended.

    The story: A is back, and somebody wants copying to go on as before. A->B would copy what A took unseen behind what
    clients have written to B since.

    Args:
        stored: whether the flow is on.
        last: how the pair of clusters stands.
    Raises:
        EndedByFailover: the failover has not ended.
    """
    if stored is None or stored.is_on or not is_by_failover(stored.by):
        return
    if last is None or last.verb is not RecoveryVerb.FAILOVER or last.flow != flow or last.state in ENDED:
        return
    raise EndedByFailover(
        f"{flow} has ended by a failover, which is {last.state}: with it on, what {flow.source} took unseen would be"
        f" copied behind what clients have written to {flow.target}.",
        remedy=f"mm2py dr check FILE '{flow}' says what can be done.",
    )
