"""What a failover loses, as the target knows it: the records that only the lost source has. Pure.

Of each partition the target has all records before one source offset. At most everything from there on is lost until
the source comes back, and nothing else is. How many these are is known only up to the end that a worker saw last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mm2py.dr.readiness import moment_text
from mm2py.kafka.port import TopicPartition
from mm2py.records.source_offset import StoredPosition

LINES_MOST: Final = 20


@dataclass(frozen=True, slots=True)
class LostPartition:
    """One partition of the lost source."""

    name: str
    """As ``orders-3``."""
    lost_from: int
    """The target has every record before it."""
    source_end: int | None
    """Where the source ended when a worker saw it last; None: it was not stored."""

    @property
    def count(self) -> int:
        """How many of these a worker has seen on the source."""
        return 0 if self.source_end is None else max(0, self.source_end - self.lost_from)

    @property
    def line(self) -> str:
        """What people read."""
        seen = "its end was not seen" if self.source_end is None else f"it ended at {self.source_end:,} when last seen"
        return f"{self.name}  from {self.lost_from:,} on; {seen}: {self.count:,} record(s)"


@dataclass(frozen=True, slots=True)
class FailoverLoss:
    """All of it."""

    partitions: tuple[LostPartition, ...]
    lost_s: float | None
    """How many seconds of records; None: not known."""
    safe_at_ms: int | None
    """Everything up to this moment is on the target; None: not known."""
    not_copied: tuple[str, ...]
    """What else is not on the target, in sentences: topics that were not copied, or not whole."""
    groups: tuple[str, ...]
    """Groups that read these topics."""

    @property
    def records(self) -> int:
        """How many of these workers have seen on the source."""
        return sum(one.count for one in self.partitions)

    def lines(self, now_ms: int) -> list[str]:
        """Return what people read before they accept it."""
        since = "since when is not known"
        if self.safe_at_ms is not None and self.lost_s is not None:
            since = f"{self.lost_s:,.1f} s: what was written since {moment_text(self.safe_at_ms, now_ms)}"
        found = [f"lost: {self.records:,} record(s) that workers have seen, and what came later; {since}"]
        ordered = sorted(self.partitions, key=lambda one: (-one.count, one.name))
        found += [f"     {one.line}" for one in ordered[:LINES_MOST]]
        if len(ordered) > LINES_MOST:
            found.append(f"     and {len(ordered) - LINES_MOST} more partition(s): --json names all")
        found += [f"     {one}" for one in self.not_copied]
        named = ", ".join(self.groups[:LINES_MOST])
        more = f" and {len(self.groups) - LINES_MOST} more" if len(self.groups) > LINES_MOST else ""
        found.append(f"     groups that read these topics: {named or 'none is known'}{more}")
        return found

    @property
    def body(self) -> dict[str, Any]:
        """The same as JSON types."""
        return {
            "records_seen": self.records,
            "seconds": self.lost_s,
            "safe_at_ms": self.safe_at_ms,
            "partitions": {
                one.name: {"lost_from": one.lost_from, "source_end": one.source_end} for one in self.partitions
            },
            "not_copied": list(self.not_copied),
            "groups": list(self.groups),
        }


def lost_partitions(
    positions: Mapping[TopicPartition, StoredPosition], topics: Sequence[str]
) -> tuple[LostPartition, ...]:
    """Return what is lost of each partition of these topics, by the stored positions of the flow."""
    return tuple(
        LostPartition(f"{name}-{number}", at.next_source, at.source_end)
        for (name, number), at in sorted(positions.items())
        if name in topics
    )
