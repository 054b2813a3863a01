"""A plan that was saved: the file of ``mm2py plan -o``, and whether it is stale. Pure.

A plan is stale if a plan that is made now, of the same file, is another one, or rests on something else.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Final

from pydantic import Field, ValidationError

from mm2py import __version__
from mm2py.errors import ConfigError
from mm2py.flow_plan.plan_text import lines_of
from mm2py.flow_plan.planned import PlannedFlow
from mm2py.status.bodies import JsonBody, json_of

FORMAT: Final = 1
MARK: Final = '"mm2py_plan"'
"""A file that has this in its first line, or in its second, is a plan."""
DIFFERENCES_MOST: Final = 40


class SavedPlan(JsonBody):
    """The content of the file."""

    mm2py_plan: int = Field(default=FORMAT)
    """The version of this format."""
    mm2py: str = Field(default=__version__)
    """The version of mm2py that made the plan."""
    file: str
    """The settings file, by its whole path."""
    clusters: tuple[str, ...]
    """What ``--clusters`` named; empty: all."""
    settings: Mapping[str, str]
    """By flow, a digest of its settings in the file."""
    flows: tuple[PlannedFlow, ...]


def is_plan(text: str) -> bool:
    """Return whether the beginning of a file is that of a plan."""
    return text.lstrip().startswith("{") and MARK in text[:100]


def text_of_plan(plan: SavedPlan) -> str:
    """Return the content of the file."""
    return json_of(plan)


def read_plan(text: str, *, name: str) -> SavedPlan:
    """Return a plan from its file.

    Raises:
        ConfigError: it is damaged, or another version of mm2py has made it.
    """
    try:
        plan = SavedPlan.model_validate_json(text)
    except ValidationError as error:
        what = f"{name} is no plan that this mm2py ({__version__}) can read."
        raise ConfigError(what, remedy="Make it again: mm2py plan FILE -o P.") from error
    if (plan.mm2py_plan, plan.mm2py) != (FORMAT, __version__):
        raise ConfigError(
            f"{name} was made by mm2py {plan.mm2py}, and this is {__version__}.",
            remedy="Make it again: mm2py plan FILE -o P.",
        )
    return plan


def differences(saved: SavedPlan, now: SavedPlan) -> list[str]:
    """Return why a saved plan is stale, in lines; none if it is not."""
    found: list[str] = []
    before, after = ({one.flow: one for one in plan.flows} for plan in (saved, now))
    for flow in sorted({*before, *after}):
        found += _of_flow(before.get(flow), after.get(flow))
        if saved.settings.get(flow) != now.settings.get(flow):
            found.append(f"{flow}: its settings in the file have changed")
    if len(found) > DIFFERENCES_MOST:
        found[DIFFERENCES_MOST:] = [f"and {len(found) - DIFFERENCES_MOST} more"]
    return found


def _of_flow(before: PlannedFlow | None, after: PlannedFlow | None) -> Iterator[str]:
    if before is None:
        if after is not None:
            yield f"{after.flow}: the plan does not have it"
        return
    if after is None:
        yield f"{before.flow}: the file does not enable it any more"
        return
    if before == after:
        return
    lines = difflib.ndiff(lines_of(before), lines_of(after))
    told = [line.rstrip() for line in lines if line.startswith(("- ", "+ "))]
    for name in sorted({*before.seen, *after.seen}):
        if before.seen.get(name) != after.seen.get(name):
            yield f"{before.flow}: changed since the plan was made: {name}"
    yield from (f"{before.flow}: {line}" for line in told)
    if not told:
        names = [field.name for field in fields(before) if field.name != "seen"]
        yield from (f"{before.flow}: {name} differs" for name in names if getattr(before, name) != getattr(after, name))
