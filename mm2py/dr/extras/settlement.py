"""What operators have decided about the records that only the old side has: asked for, remembered. Pure.

The journal remembers it (``kept`` of the run's entries): of each topic what was done, and at which ends. If the old
side has got more records since, the topic is open again. A replay is remembered before its first record: where the new
side ended then, and under which producer id it is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from mm2py.dr.extras.found import ExtrasFound
from mm2py.dr.journal import JournalEntry

KEPT: Final = "extras"
"""Under this name in ``kept`` of an entry."""


class ExtrasWay(StrEnum):
    """What became of the extra records of a topic."""

    REPLAYED = "replayed"
    EXPORTED = "exported"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class ExtrasChoice:
    """What a call asks for."""

    topics: tuple[str, ...] = ()
    """Only these; none: all."""
    folder: str = ""
    """Export as Parquet files to here."""
    export_topic: str = ""
    """Export to this topic of the new side."""
    replays: bool = False
    leaves: tuple[str, ...] = ()
    """Leave these topics."""
    leaves_all: bool = False

    @property
    def exports(self) -> bool:
        """Whether records go to a file or a topic."""
        return bool(self.folder or self.export_topic)

    @property
    def settles(self) -> bool:
        """Whether anything is decided."""
        return self.exports or self.replays or self.leaves_all or bool(self.leaves)

    def way_of(self, topic: str, *, has_gap: bool) -> ExtrasWay | None:
        """Return what becomes of a topic; None: the call does not say. Where there is a gap, nothing is replayed."""
        if self.topics and topic not in self.topics:
            return None
        if topic in self.leaves:
            return ExtrasWay.LEFT
        if self.replays and not has_gap:
            return ExtrasWay.REPLAYED
        if self.exports:
            return ExtrasWay.EXPORTED
        return ExtrasWay.LEFT if self.leaves_all else None

    @property
    def where(self) -> str:
        """Where exported records are, in words."""
        topic = f"topic {self.export_topic}" if self.export_topic else ""
        return " and ".join(filter(None, (self.folder, topic)))


@dataclass(frozen=True, slots=True)
class SettledTopic:
    """What was done with a topic."""

    way: ExtrasWay
    ends: Mapping[str, int]
    """Where its partitions ended then, by number."""
    where: str = ""
    """Where exported records are."""

    @property
    def text(self) -> str:
        """In words."""
        return f"{self.way} to {self.where}" if self.way is ExtrasWay.EXPORTED else str(self.way)


@dataclass(frozen=True, slots=True)
class ExtrasMemory:
    """What the journal remembers of a run's extras."""

    settled: Mapping[str, SettledTopic] = field(default_factory=dict)
    replay_begins: Mapping[str, int] = field(default_factory=dict)
    """By partition of the new side, where it ended before the first record was replayed."""
    producers: tuple[int, ...] = ()
    """The ids under which records were replayed."""

    def is_settled(self, found: ExtrasFound, topic: str) -> bool:
        """Whether a topic is settled as it is now."""
        one = self.settled.get(topic)
        return one is not None and dict(one.ends) == found.ends(topic)

    def open_topics(self, found: ExtrasFound) -> list[str]:
        """Return the topics about which nobody has decided yet."""
        return [topic for topic in found.topics if not self.is_settled(found, topic)]


def remembered(entries: Sequence[JournalEntry]) -> ExtrasMemory:
    """Return what the run that was written last remembers."""
    settled: dict[str, SettledTopic] = {}
    begins: dict[str, int] = {}
    producers: list[int] = []
    for entry in entries:
        if entry.run != entries[-1].run:
            continue
        kept: Mapping[str, Any] = entry.kept.get(KEPT, {})
        for topic, one in kept.get("settled", {}).items():
            ends = {str(number): int(end) for number, end in one["ends"].items()}
            settled[topic] = SettledTopic(ExtrasWay(one["way"]), ends, str(one["where"]))
        begins |= {str(partition): int(offset) for partition, offset in kept.get("begins", {}).items()}
        producers += [int(one) for one in kept.get("producers", [])]
    return ExtrasMemory(settled, begins, tuple(dict.fromkeys(producers)))


def settled_kept(topics: Mapping[str, SettledTopic]) -> dict[str, Any]:
    """Return what an entry keeps of topics that were settled."""
    told = {
        name: {"way": str(one.way), "ends": dict(one.ends), "where": one.where} for name, one in sorted(topics.items())
    }
    return {KEPT: {"settled": told}}


def replay_kept(begins: Mapping[str, int], producers: Iterable[int]) -> dict[str, Any]:
    """Return what an entry keeps of a replay that begins, or goes on under another producer id."""
    return {KEPT: {"begins": dict(begins), "producers": list(producers)}}


def open_text(found: ExtrasFound, topics: Sequence[str]) -> str:
    """Return which topics are open, and what is to be done."""
    gaps = [topic for topic in topics if any(one.has_gap for one in found.of_topic(topic))]
    named = ", ".join(topics[:3]) + (f" and {len(topics) - 3} more" if len(topics) > 3 else "")
    text = f"Nobody has decided yet about the records of {named} that only {found.flow.source} has."
    if gaps:
        text += f" In {', '.join(gaps[:3])} there is a gap as well: leave such a topic by name, or export it."
    return text
