"""By which settings a flow runs: what is stored, how the file differs, which members have applied it. Pure.

Answers to ``GET /connectors/NAME/config`` of Connect's REST API, which tells what is stored, but not who runs by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mm2py.config.flow_properties import ENABLED, is_enabled
from mm2py.config.secrets import HIDDEN, is_hidden, shown_key
from mm2py.flow import Flow
from mm2py.group.view.group_state import GroupState
from mm2py.records.connector_config import FlowConfig, Writer
from mm2py.records.control_record import MemberId
from mm2py.settings.flow_config import Change, behind, difference
from mm2py.status.facts import FlowFacts

APPLYING_MS: Final = 60_000
"""How long a member may take to apply a version before an operator is told. It may have to drain the flow first."""
NAMES_MOST: Final = 5


@dataclass(frozen=True, slots=True)
class StoredReport:
    """Which settings are stored of a flow, and who stored them."""

    version: int
    by: Writer
    worker: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class DriftReport:
    """One setting that the file has otherwise than it is stored. None stands for the default; secrets are hidden."""

    setting: str
    stored: str | None
    file: str | None
    text: str


@dataclass(frozen=True, slots=True)
class AppliedReport:
    """By which version a member runs a flow."""

    member: MemberId
    version: int | None
    """0: by its own file, because it could not read what is stored; None: it has not said yet."""
    is_behind: bool


@dataclass(frozen=True, slots=True)
class SettingsReport:
    """By which settings a flow runs."""

    stored: StoredReport | None
    """None: mm2py has stored nothing, or it cannot be read."""
    enabled: bool
    """Whether the flow is to copy, by what is stored, else by the file."""
    drift: tuple[DriftReport, ...]
    """How the file differs from what is stored; empty if both mean the same."""
    applied: tuple[AppliedReport, ...]
    """Of the live members that run the flow, those behind first; empty while no worker runs."""


def settings_of(facts: FlowFacts, state: GroupState | None) -> SettingsReport:
    """Return what can be told about the settings of a flow.

    Args:
        state: of the group that runs the flow; None if no worker does.
    """
    flow, stored = facts.settings.flow, facts.stored
    members = {} if state is None else {name: one for name, one in state.members.items() if not one.silent}
    versions = {name: one.applied.get(flow) for name, one in members.items() if flow in one.joined.flows}
    late = set(behind(0 if stored is None else stored.version, {name: said or 0 for name, said in versions.items()}))
    applied = [AppliedReport(name, said, name in late) for name, said in sorted(versions.items())]
    return SettingsReport(
        None if stored is None else StoredReport(stored.version, stored.by, stored.worker, stored.at_ms),
        True if stored is None else is_enabled(stored.properties),
        () if stored is None else tuple(map(_drift, difference(stored.properties, facts.file))),
        tuple(sorted(applied, key=lambda one: (not one.is_behind, one.member))),
    )


def _drift(change: Change) -> DriftReport:
    old, new = (
        HIDDEN if value is not None and is_hidden(change.name, value) else value for value in (change.old, change.new)
    )
    return DriftReport(shown_key(change.name), old, new, str(change))


def why_off(report: SettingsReport) -> str:
    """Return what to say of a flow that the file enables and that is stored as switched off; empty if it is not."""
    if report.enabled or report.stored is None or all(change.setting != ENABLED for change in report.drift):
        return ""
    return f"it is switched off {_origin_of(report.stored)}: nothing is copied. mm2py apply FILE switches it on again."


def why_drift(report: SettingsReport) -> str:
    """Return what to say of a file that differs in more than that; empty if it does not."""
    names = [change.setting for change in report.drift if change.setting != ENABLED]
    if report.stored is None or not names:
        return ""
    some = ", ".join(names[:NAMES_MOST]) + (f" and {len(names) - NAMES_MOST} more" if len(names) > NAMES_MOST else "")
    return (
        f"the file differs in {some} from what is stored {_origin_of(report.stored)}, by which the flow runs."
        " mm2py apply FILE makes the workers run by the file."
    )


def why_running(flow: Flow, stored: FlowConfig) -> str:
    """Return what to say of a flow that the file switches off and that is stored as switched on; empty if it is not."""
    if not is_enabled(stored.properties):
        return ""
    return f"the file switches {flow} off, and it is on {_origin_of(stored)}. mm2py apply FILE switches it off."


def late_members(report: SettingsReport, now_ms: int) -> Iterable[AppliedReport]:
    """Yield the members that should have applied what is stored by now. A member that starts has not said anything yet.

    The time at which it was stored comes from the clock of the machine that stored it. The log has no better time, as
    writers set its timestamps.
    """
    if report.stored is not None and now_ms - report.stored.at_ms > APPLYING_MS:
        yield from (one for one in report.applied if one.is_behind and one.version is not None)


def _origin_of(stored: FlowConfig | StoredReport) -> str:
    return f"(version {stored.version}, by {stored.by})"
