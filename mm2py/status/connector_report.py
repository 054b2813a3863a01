"""Why a connector of a flow does not run: operators hold it, or a worker must not run it. Pure.

Counterpart: the states PAUSED, STOPPED and FAILED of Connect's REST API.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mm2py.flow import ConnectorName, Flow, Kind
from mm2py.group.membership import GroupState
from mm2py.moments import time_text
from mm2py.records.control_record import MemberId
from mm2py.records.operator_request import Target


@dataclass(frozen=True, slots=True)
class HeldReport:
    """A connector that an operator has paused or stopped, or that is standby: nothing of it runs."""

    connector: Kind
    """Which one."""
    state: str
    """``paused``, ``stopped``, ``standby``, or ``both-on``: the flow back is on as well, and only one may be."""
    by: str
    """Empty if another writer of the configs topic than mm2py asked for it."""
    at_ms: int | None
    """When it was asked for, by the clock of the writer; None: not known."""
    text: str
    """The same in words."""

    @property
    def told(self) -> str:
        """The same, and since when. The reason comes last, because it may be any text."""
        since = "" if self.at_ms is None else f" since {time_text(self.at_ms)}"
        return f"{self.state}{since}{self.text.removeprefix(self.state)}"


@dataclass(frozen=True, slots=True)
class RefusalReport:
    """A connector that a live worker must not run. A restart of the connector tries it again."""

    connector: Kind
    """Which one."""
    member: MemberId
    """The worker, as a member of its group."""
    worker: str
    """Its name."""
    why: str
    """Why it must not run, and what to do about it."""


def held_of(targets: Mapping[Kind, Target]) -> tuple[HeldReport, ...]:
    """Return the connectors that are held."""
    return tuple(HeldReport(kind, one.word, one.by, one.at_ms, one.text) for kind, one in targets.items())


def refusals_of(flow: Flow, state: GroupState) -> tuple[RefusalReport, ...]:
    """Return the connectors of a flow that live members of its group must not run."""
    return tuple(_refusals(flow, state))


def _refusals(flow: Flow, state: GroupState) -> Iterable[RefusalReport]:
    for member in state.members.values():
        for kind in Kind:
            why = member.joined.refused.get(str(ConnectorName(flow, kind)))
            if why is not None and not member.expired:
                yield RefusalReport(kind, member.joined.member, member.joined.name, why)
