"""What is found out while the security of a client is read: reasons to refuse its flow, warnings, what counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from mm2py.config.key import Key
from mm2py.config.kinds import BadValue
from mm2py.config.layers import Layer
from mm2py.config.properties import Entry
from mm2py.config.secrets import shown_key

T = TypeVar("T")


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
