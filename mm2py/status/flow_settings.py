"""By which settings a flow runs: what is stored of them, how the file differs, and which members have applied it. Pure.

Answers to Connect's REST API, where ``GET /connectors/NAME/config`` tells what is stored, and nobody who runs by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mm2py.config.flow_properties import ENABLED, is_enabled
from mm2py.config.secrets import shown_key
from mm2py.flow import Flow
from mm2py.records.connector_config import FlowConfig
from mm2py.records.control_record import MemberId
from mm2py.status.facts import FlowFacts
from mm2py.worker.flow_config import Difference, behind, difference
from mm2py.worker.group_state import GroupState

APPLYING_MS: Final = 60_000
"""How long a member may take to apply a version before that waits for somebody: it may have to drain the flow first."""
NAMES_MOST: Final = 5


@dataclass(frozen=True, slots=True)
class AppliedReport:
    """By which version a member runs a flow."""

    member: MemberId
    version: int | None
    """0: by its own file, because it could not read what is stored; None: it has not said yet."""
    is_behind: bool


@dataclass(frozen=True, slots=True)
class SettingsReport:
    """Of one flow."""

    stored: FlowConfig | None
    """None: mm2py has stored nothing, or nobody can tell."""
    is_on: bool
    """Whether it is to copy, by what is stored, else by the file."""
    drift: Difference
    """Leads from what is stored to the file; empty if both mean the same."""
    applied: tuple[AppliedReport, ...]
    """Of the members that run the flow and are not silent, those behind first; empty while nobody runs."""


def settings_of(facts: FlowFacts, state: GroupState | None) -> SettingsReport:
    """Return what can be told of a flow.

    Args:
        state: of the group that runs the flow; None if nobody does.
    """
    flow, stored = facts.settings.flow, facts.stored
    members = {} if state is None else {name: one for name, one in state.members.items() if not one.silent}
    versions = {name: one.applied.get(flow) for name, one in members.items() if flow in one.joined.flows}
    late = set(behind(0 if stored is None else stored.version, {name: said or 0 for name, said in versions.items()}))
    applied = [AppliedReport(name, said, name in late) for name, said in sorted(versions.items())]
    return SettingsReport(
        stored,
        True if stored is None else is_enabled(stored.properties),
        () if stored is None else difference(stored.properties, facts.file),
        tuple(sorted(applied, key=lambda one: (not one.is_behind, one.member))),
    )


def why_off(report: SettingsReport) -> str:
    """Return what to say of a flow that the file enables and that is stored as switched off; empty if it is not."""
    if report.is_on or report.stored is None or all(change.name != ENABLED for change in report.drift):
        return ""
    return f"it is switched off {origin_of(report.stored)}: nothing is copied. mm2py apply FILE switches it on again."


def why_drift(report: SettingsReport) -> str:
    """Return what to say of a file that differs in more than that; empty if it does not."""
    names = [shown_key(change.name) for change in report.drift if change.name != ENABLED]
    if report.stored is None or not names:
        return ""
    some = ", ".join(names[:NAMES_MOST]) + (f" and {len(names) - NAMES_MOST} more" if len(names) > NAMES_MOST else "")
    return (
        f"the file differs from what is stored {origin_of(report.stored)}, by which it runs, in {some}."
        " mm2py apply FILE makes the workers run by the file."
    )


def why_running(flow: Flow, stored: FlowConfig) -> str:
    """Return what to say of a flow that the file switches off and that is stored as switched on; empty if it is not."""
    if not is_enabled(stored.properties):
        return ""
    return f"the file switches {flow} off, and it is on {origin_of(stored)}. mm2py apply FILE switches it off."


def late_members(report: SettingsReport, now_ms: int) -> Iterable[AppliedReport]:
    """Yield the members that should have applied what is stored by now. One that begins has not said anything yet.

    When it was stored says the clock of who did; the log has no better time, for writers set the timestamps.
    """
    if report.stored is not None and now_ms - report.stored.at_ms > APPLYING_MS:
        yield from (one for one in report.applied if one.is_behind and one.version is not None)


def origin_of(stored: FlowConfig) -> str:
    """Return which version it is and who decided so."""
    return f"(version {stored.version}, by {stored.by})"
