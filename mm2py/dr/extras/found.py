"""Which records the old side of a failover has and the new side never got, by partition. Pure.

A partition's extras begin at the next source offset of the flow, and end where the old side ends. If the old side has
lost records that were copied before, that is a *gap*: it was cut back, or its topic was made anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from mm2py.flow import Flow

FORMAT: Final = 1
"""The version of the object for programs. Within one version fields may be added; none changes its meaning."""
LINES_MOST: Final = 50


@dataclass(frozen=True, slots=True)
class PartitionExtras:
    """One partition. Offsets are the old side's."""

    topic: str
    number: int
    first: int
    """Where they begin."""
    end: int
    """The offset after the last one."""
    records: int = 0
    """How many records of data lie there: no markers, and nothing of aborted transactions."""
    lost: tuple[int, int] | None = None
    """The old side has lost these offsets, (first, next), and the new side has their records."""
    deleted: tuple[int, int] | None = None
    """The old side's retention has deleted these offsets, (first, next), before they were copied."""
    open_from: int | None = None
    """A transaction is open from here on: what follows cannot be counted."""
    unclear: str = ""
    """Why it is not known where they begin; empty: it is. ``first`` is then the lowest offset that is possible."""

    @property
    def partition(self) -> str:
        """As ``orders-0``."""
        return f"{self.topic}-{self.number}"

    @property
    def has_gap(self) -> bool:
        """Something else than records that only the old side has."""
        return self.lost is not None or bool(self.unclear)

    @property
    def must_be_settled(self) -> bool:
        """Whether an operator has to decide about it."""
        return self.records > 0 or self.has_gap or self.open_from is not None

    def line(self, flow: Flow) -> str:
        """What it has, in words."""
        told = [f"{self.records:,} record(s) in {self.first:,} ... {self.end - 1:,}"] if self.records else []
        if self.lost is not None:
            told.append(
                f"gap: {flow.source} was cut back, or its topic made anew. It has lost {self.lost[0]:,} ..."
                f" {self.lost[1] - 1:,}, which {flow.target} has"
            )
        if self.deleted is not None:
            told.append(f"{flow.source} has deleted {self.deleted[0]:,} ... {self.deleted[1] - 1:,} itself")
        if self.open_from is not None:
            told.append(f"a transaction is open from {self.open_from:,} on")
        if self.unclear:
            told.append(f"not known where they begin: {self.unclear}")
        return f"{self.partition}: {'; '.join(told) or 'nothing'}"


@dataclass(frozen=True, slots=True)
class ExtrasFound:
    """What was found in all partitions that were looked at."""

    flow: Flow
    """From the old side to the new one."""
    partitions: tuple[PartitionExtras, ...]

    @property
    def records(self) -> int:
        """How many records only the old side has."""
        return sum(one.records for one in self.partitions)

    def of_topic(self, topic: str) -> Sequence[PartitionExtras]:
        """Return the partitions of a topic."""
        return [one for one in self.partitions if one.topic == topic]

    @property
    def topics(self) -> list[str]:
        """The topics about which an operator has to decide."""
        return sorted({one.topic for one in self.partitions if one.must_be_settled})

    def ends(self, topic: str) -> dict[str, int]:
        """Return where the partitions of a topic end, by number."""
        return {str(one.number): one.end for one in self.of_topic(topic)}

    @property
    def lines(self) -> list[str]:
        """The list, for people."""
        flow = self.flow
        told = [one.line(flow) for one in self.partitions if one.must_be_settled or one.deleted is not None]
        if not told:
            return [f"{flow.source} has nothing that {flow.target} has not, in {len(self.partitions)} partition(s)."]
        more = [f"  and {len(told) - LINES_MOST} more partition(s)"] if len(told) > LINES_MOST else []
        head = f"{flow.source} has {self.records:,} record(s) that {flow.target} never got:"
        return [head, *(f"  {one}" for one in told[:LINES_MOST]), *more]

    @property
    def body(self) -> list[dict[str, Any]]:
        """The list as JSON types: all partitions."""
        return [
            {
                "topic": one.topic,
                "partition": one.number,
                "first": one.first,
                "end": one.end,
                "records": one.records,
                "lost": None if one.lost is None else list(one.lost),
                "deleted": None if one.deleted is None else list(one.deleted),
                "open_from": one.open_from,
                "unclear": one.unclear,
            }
            for one in self.partitions
        ]


@dataclass(frozen=True, slots=True)
class OldSideFacts:
    """What both clusters say of one partition."""

    next_source: int
    """By the stored position, and by what the last producer has written behind it."""
    log_start: int
    """Of the old side, as ``log_end``."""
    log_end: int
    epoch_end: int | None = None
    """Where the old side's records of the leader epoch end in which the last copied record was written; None: not
    known."""
    is_anew: bool = False
    """The old side's topic is another one than was copied."""
    unclear: str = ""


def judged(topic: str, number: int, facts: OldSideFacts) -> PartitionExtras:
    """Return where a partition's extras begin and end, not counted yet."""
    first, lost, deleted = facts.next_source, None, None
    cut_at = facts.log_end if facts.epoch_end is None else min(facts.epoch_end, facts.log_end)
    if facts.is_anew:
        lost, first = ((0, first) if first else None), facts.log_start
    elif cut_at < first:
        lost, first = (cut_at, first), cut_at
    if first < facts.log_start:
        if lost is None:
            deleted = (first, facts.log_start)
        first = facts.log_start
    return PartitionExtras(topic, number, first, facts.log_end, lost=lost, deleted=deleted, unclear=facts.unclear)
