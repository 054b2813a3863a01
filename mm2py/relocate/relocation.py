"""A checkpoint with the offsets of the other cluster: what becomes of each offset, and the new batches. Pure.

MirrorMaker 2 has no counterpart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pydantic import Field

from mm2py.relocate.placing import KeptOffset, PlacedOffset
from mm2py.relocate.spark_layout import CheckpointRefused, KeptBatches, PlannedBatch, SourceFormat, SourcePosition
from mm2py.status.bodies import FormatBody
from mm2py.text_table import text_table


class RelocationOutcome(StrEnum):
    """What came of it."""

    RELOCATED = "relocated"
    READY = "ready"
    """Nothing was written, and the same call without ``--plan`` writes it."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class RelocatedOffset:
    """One offset that Spark goes on with, and where it is on the other cluster. Offsets are the next ones to read."""

    batch: int
    """The number of the batch that ends there."""
    is_planned: bool
    """The batch is not committed: it is run again, with the same range."""
    source: int
    """The number of the query's source, from 0 on."""
    topic: str
    """The topic on the cluster that is left; empty: no topic has the id that the checkpoint stores."""
    partition: int
    """Its number on both."""
    offset: int
    """The offset in the checkpoint."""
    other_topic: str
    """The topic on the cluster where the query goes on."""
    other_offset: int | None
    """The offset there. null: no exact one is known, and the checkpoint is refused."""
    text: str
    """What the offset is, or why its place is not known."""
    remedy: str
    """What an operator can do if it is not known; else empty."""


class RelocationBody(FormatBody):
    """One checkpoint: ``mm2py relocate spark --json``."""

    flow: str = Field(examples=["A->B"])
    """The flow."""
    checkpoint: str = Field(examples=["/srv/checkpoints/orders"])
    """The folder that was read. It is never changed."""
    new_checkpoint: str = Field(examples=["/srv/checkpoints/orders-B"])
    """The folder for the other cluster."""
    outcome: RelocationOutcome
    """What came of it."""
    why: str
    """Why it is refused; else empty."""
    remedy: str
    """What an operator can do about that; empty if nothing has to be done."""
    unread: str
    """Why the source does not answer; empty if it does. Then the target alone was asked."""
    offsets: tuple[RelocatedOffset, ...]
    """Each offset with which Spark goes on."""


@dataclass(frozen=True, slots=True)
class Relocation:
    """What becomes of a checkpoint."""

    offsets: tuple[RelocatedOffset, ...]
    batches: tuple[PlannedBatch, ...]
    """The new content of ``offsets``; complete only if nothing is refused."""

    @property
    def refused(self) -> RelocatedOffset | None:
        """The first offset without an exact place; None: all have one."""
        return next((one for one in self.offsets if one.other_offset is None), None)

    @property
    def why(self) -> str:
        """Why the checkpoint is refused; empty if it is not."""
        first, count = self.refused, sum(one.other_offset is None for one in self.offsets)
        if first is None:
            return ""
        more = f", and {count - 1} more" if count > 1 else ""
        return f"{first.topic or 'source ' + str(first.source)}-{first.partition} {first.offset:,}: {first.text}{more}"

    def topics(self) -> dict[str, str]:
        """Return the name there of each topic."""
        return {one.topic: one.other_topic for one in self.offsets}


def kept_offsets(batch: PlannedBatch) -> list[KeptOffset]:
    """Return the offsets of a batch, in the order in which ``relocation_of`` takes their places."""
    return [
        KeptOffset(topic, position.topic_id, partition, offset)
        for position in batch.sources
        for topic, numbers in position.topics.items()
        for partition, offset in numbers.items()
    ]


def relocation_of(
    batches: KeptBatches, content: Mapping[int, PlannedBatch], placed: Mapping[int, Sequence[PlacedOffset]]
) -> Relocation:
    """Return what becomes of a checkpoint.

    Args:
        content: the batches by number.
        placed: by number of the batch the places of its ``kept_offsets``.
    Raises:
        CheckpointRefused: two topics of a source have the same name there.
    """
    offsets: list[RelocatedOffset] = []
    found: list[PlannedBatch] = []
    for number, batch in sorted(content.items()):
        places = iter(placed[number])
        sources: list[SourcePosition] = []
        for at, position in enumerate(batch.sources):
            of_source = _take(position, places)
            sources.append(_moved(position, of_source))
            if number in batches.counted:
                offsets += [_offset(number, at, one, is_planned=number == batches.planned) for one in of_source]
        found.append(PlannedBatch(number, batch.metadata, tuple(sources)))
    return Relocation(tuple(offsets), tuple(found))


def _take(position: SourcePosition, places: Iterator[PlacedOffset]) -> list[PlacedOffset]:
    return [next(places) for numbers in position.topics.values() for _ in numbers]


def _moved(position: SourcePosition, placed: Sequence[PlacedOffset]) -> SourcePosition:
    """Return a position with the offsets of the other cluster; if one is not known exactly, no position.

    That stays only in the batch before the last committed one: Spark does not use its offsets.
    """
    topics: dict[str, dict[int, int]] = {}
    for one in placed:
        if one.place.offset is None:
            return SourcePosition(SourceFormat.NONE, "", {})
        name = one.other_topic if position.format is SourceFormat.KAFKA else ""
        numbers = topics.setdefault(name, {})
        if one.kept.partition in numbers:
            raise CheckpointRefused(
                f"Two topics of the query are copied to {name}: it would read that topic from one offset on.",
                remedy="Start it with a new checkpointLocation.",
            )
        numbers[one.kept.partition] = one.place.offset
    return SourcePosition(position.format, placed[0].other_topic_id if position.topic_id else "", topics)


def _offset(batch: int, source: int, placed: PlacedOffset, *, is_planned: bool) -> RelocatedOffset:
    place, kept = placed.place, placed.kept
    return RelocatedOffset(
        batch=batch,
        is_planned=is_planned,
        source=source,
        topic=placed.topic,
        partition=kept.partition,
        offset=kept.offset,
        other_topic=placed.other_topic,
        other_offset=place.offset,
        text=place.text,
        remedy=place.remedy,
    )


def text_of(offsets: Sequence[RelocatedOffset]) -> str:
    """Return the table that people read."""
    rows = [
        (
            f"{one.batch}{' (planned)' if one.is_planned else ''}",
            one.topic or "?",
            str(one.partition),
            f"{one.offset:,}",
            one.other_topic or "?",
            "?" if one.other_offset is None else f"{one.other_offset:,}",
            "no" if one.other_offset is None else "yes",
            one.text,
        )
        for one in offsets
    ]
    head = ("BATCH", "TOPIC", "PARTITION", "OFFSET", "NEW TOPIC", "NEW OFFSET", "EXACT", "NOTE")
    return "".join(f"{line}\n" for line in text_table(head, rows, right=(2, 3, 5)))
