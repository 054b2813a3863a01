"""Conditions of WHERE that rule offsets out before anything is read. Pure; Spark applies all conditions, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mm2py.backfill.frames.ranges import LogRange


@dataclass(slots=True)
class Pruning:
    """The records that the conditions on partition, offset and timestamp allow."""

    partitions: frozenset[int] | None = None
    offset_least: int = 0
    offset_end: int | None = None
    since_ms: int | None = None
    """No record before this time is wanted. Older records may follow newer ones, so a time gives no end."""

    def note(self, column: str, operator: str, value: Any) -> None:
        """Add a condition; one that rules nothing out is ignored."""
        if column == "partition" and operator in {"=", "in"}:
            allowed = frozenset(value if operator == "in" else [value])
            self.partitions = allowed if self.partitions is None else self.partitions & allowed
        elif column == "offset" and isinstance(value, int):
            if operator in {"=", ">", ">="}:
                self.offset_least = max(self.offset_least, value + (operator == ">"))
            if operator in {"=", "<", "<="}:
                end = value + (operator != "<")
                self.offset_end = end if self.offset_end is None else min(self.offset_end, end)
        elif column == "timestamp" and operator in {"=", ">", ">="} and isinstance(value, int):
            self.since_ms = value if self.since_ms is None else max(self.since_ms, value)

    def begun(self, ranges: Sequence[LogRange], starts: Mapping[int, int]) -> list[LogRange]:
        """Return the ranges without offsets before ``starts``, which is by partition."""
        return [replace(one, start=max(one.start, starts[one.partition])) for one in ranges]

    def pruned(self, ranges: Sequence[LogRange]) -> list[LogRange]:
        """Return what is left of the ranges."""
        found = []
        for one in ranges:
            start = max(one.start, self.offset_least)
            end = one.end if self.offset_end is None else min(one.end, self.offset_end)
            if start < end and (self.partitions is None or one.partition in self.partitions):
                found.append(replace(one, start=start, end=end))
        return found
