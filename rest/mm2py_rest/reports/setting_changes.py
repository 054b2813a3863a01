"""What a change of a flow's settings would do, before it is made. Pure.

Counterpart: ``PUT /connector-plugins/NAME/config/validate`` of Connect, which looks at each setting for itself only.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from mm2py.config.flow_properties import new_name
from mm2py.flow import Kind
from mm2py.records.connector_config import FlowConfig
from mm2py.secret import HIDDEN, is_hidden
from mm2py.shared_settings.flow_config import Change, difference, reach
from mm2py.status.bodies import JsonBody
from mm2py_rest.settings.changes import FlowChanges, Invalid, is_in_place
from mm2py_rest.settings.check import Checked, check


class SettingChangeBody(JsonBody):
    """A setting that would have another value."""

    name: str = Field(examples=["topics"])
    """As a connector has it."""
    old: str | None = Field(examples=["orders.*"])
    """What it is now; null: it has its default."""
    new: str | None = Field(examples=["orders.*,payments"])
    """What it would be; null: its default."""
    in_place: bool
    """Copying continues during the change; else the flow is drained and restarts."""
    concerns: tuple[str, ...] = Field(examples=[["how often positions are stored: the next round"]])
    """The parts of the flow that follow, and when; empty: it does nothing yet."""


class PlannedSettingsBody(JsonBody):
    """What a change of settings would come to. Nothing was changed."""

    flow: str = Field(examples=["A->B"])
    """The flow."""
    version: int = Field(examples=[4])
    """The version that the change would replace, for If-Match; 0: nothing is stored."""
    changes: tuple[SettingChangeBody, ...]
    """By name. Values that mean the same as before are not among them, and neither are those that are refused."""
    restarts: bool
    """The flow would be drained and restart."""
    errors: Mapping[str, str] = Field(examples=[{"tasks.max": "it is 0: at least 1 is needed"}])
    """What is wrong with single settings, by name. While there is something, nothing can be stored."""
    problem: str = Field(examples=[""])
    """Why the flow could not run with all of them together; empty: it could."""
    without_effect: tuple[str, ...]
    """Settings that mm2py knows and that change nothing."""


def patched(before: Mapping[str, str], wanted: Mapping[str, str | None], found: Checked) -> dict[str, str]:
    """Return all settings of a flow after a change of some.

    Args:
        before: the settings that count now.
        wanted: the changed ones; None gives one its default again.
        found: what a check of those that get a value has found.
    """
    removed = {new_name(key) or key for key, value in wanted.items() if value is None}
    return {**{key: value for key, value in before.items() if key not in removed}, **found.properties}


def planned_settings(
    changes: FlowChanges, stored: FlowConfig | None, wanted: Mapping[str, str | None]
) -> PlannedSettingsBody:
    """Return what a change of some settings would come to; ``stored`` counts now, ``wanted`` as of ``patched``."""
    before = changes.by_file if stored is None else stored.properties
    found = check(changes.flow, Kind.SOURCE, {key: value for key, value in wanted.items() if value is not None})
    properties = patched(before, wanted, found)
    right = {name: value for name, value in properties.items() if name not in found.errors}
    right |= {name: before[name] for name in found.errors if name in before}
    problem = ""
    try:
        differs = changes.plan(stored, right).changes
    except Invalid as error:
        differs, problem = difference(before, right), "; ".join(error.errors.values())
    return PlannedSettingsBody(
        flow=str(changes.flow),
        version=0 if stored is None else stored.version,
        changes=tuple(_body(change) for change in differs),
        restarts=any(not is_in_place(change.name) for change in differs),
        errors=found.errors,
        problem=problem,
        without_effect=tuple(sorted(found.without_effect)),
    )


def _body(change: Change) -> SettingChangeBody:
    old, new = (
        HIDDEN if value is not None and is_hidden(change.name, value) else value for value in (change.old, change.new)
    )
    return SettingChangeBody(
        name=change.name,
        old=old,
        new=new,
        in_place=is_in_place(change.name),
        concerns=tuple(sorted(part.value for part in reach([change.name]))),
    )
