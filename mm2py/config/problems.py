"""What is wrong with a settings file, by line. All of it is told at once, so that nobody mends a file in ten rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from mm2py.config.kinds import BadValue, Key
from mm2py.config.layers import Layer
from mm2py.config.properties import Entry
from mm2py.config.secrets import shown_key, shown_value
from mm2py.errors import ConfigError
from mm2py.flow import Flow

T = TypeVar("T")

PROBLEMS_SHOWN_MAX: Final = 20
FLOWS_SHOWN_MAX: Final = 12


class Unusable(Exception):
    """The list of problems is not empty."""


def all_problems(path: Path, problems: Sequence[str]) -> ConfigError:
    """Return one error that tells the problems of a file, in the order of its lines."""
    shown = sorted(problems, key=line_of)[:PROBLEMS_SHOWN_MAX]
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown)} more")
    head = f"{path}, " if len(problems) == 1 and problems[0].startswith("line ") else f"{path}: "
    many = f"{len(problems)} problems: " if len(problems) > 1 else ""
    return ConfigError(f"{head}{many}{'; '.join(shown)}.", remedy="")


def bad_value(entry: Entry, bad: BadValue) -> str:
    """Return a value that its setting does not take as a problem."""
    return f"line {entry.line}: {shown_key(entry.key)} = {shown_value(entry.key, entry.value)} is {bad}"


def add_problem(problems: list[str], problem: str) -> None:
    """Note a problem; where several flows share a setting it is told once."""
    if problem not in problems:
        problems.append(problem)


def listed_flows(flows: Sequence[Flow]) -> str:
    """Return flows as problems and warnings name them, the first dozen."""
    shown = ", ".join(map(str, flows[:FLOWS_SHOWN_MAX]))
    return shown if len(flows) <= FLOWS_SHOWN_MAX else f"{shown} and {len(flows) - FLOWS_SHOWN_MAX} more"


def line_of(text: str) -> int:
    """Order by the line that is spoken of; what speaks of many comes last."""
    line = text.removeprefix("line ").partition(":")[0]
    return int(line) if text.startswith("line ") and line.isdecimal() else 2**31


@dataclass(slots=True)
class Findings:
    """``layer`` holds the client's settings, ``own`` mm2py's own for this flow and cluster."""

    layer: Layer
    own: Layer
    reasons: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    counted: set[str] = field(default_factory=set)
    """The settings of ``layer`` that were asked for."""

    def value(self, key: Key[T], layer: Layer | None = None) -> T:
        if layer is None or layer is self.layer:
            self.counted.add(key.name)
        entry = (self.layer if layer is None else layer).get(key.name)
        if entry is None:
            return key.default
        try:
            return key.kind(entry.value)
        except BadValue as bad:  # those of the file are told elsewhere; options of a login module only here
            self.refuse(f"{origin(entry)} is {bad}")
            return key.default

    def refuse(self, reason: str) -> None:
        self.reasons.append(reason)

    def at(self, *candidates: Key[Any], layer: Layer | None = None) -> str:
        """Return the origin of the first of these settings that is there, or the name of the first."""
        found = self.layer if layer is None else layer
        entry = next((found[key.name] for key in candidates if key.name in found), None)
        return candidates[0].name if entry is None else origin(entry)


def origin(entry: Entry) -> str:
    """Return a setting as reasons name it, with its line."""
    return shown_key(entry.key) + (f" (line {entry.line})" if entry.line is not None else "")


def named(entry: Entry) -> str:
    """Return a setting as warnings begin."""
    return (f"line {entry.line}: " if entry.line is not None else "") + shown_key(entry.key)
