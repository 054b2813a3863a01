"""The files of a Spark Structured Streaming checkpoint that say how far a query has read. Pure.

``offsets/N`` is written when batch N is planned, ``commits/N`` when it is done. A query goes on behind the last
committed batch. A batch that is planned and not committed is run again, with the same range of offsets.

    v1
    {"batchWatermarkMs":0,"batchTimestampMs":1795950813354,"conf":{...}}
    {"topic_id": "9b4adb83-529a-4f05-92ab-0a21052be4d8", "0": 10, "1": 10}      a source of format mm2py
    {"orders":{"0":10,"1":10}}                                                 a source of Spark's format kafka
    -                                                                          a source without an offset yet

MirrorMaker 2 has no counterpart.
Source: OffsetSeqLog and CommitLog, Apache Spark, sql/core.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from mm2py.errors import Mm2Error
from mm2py.flow import PARTITION_MOST
from mm2py.offsets.run_codec import OFFSET_MOST

VERSION: Final = "v1"
NO_OFFSET: Final = "-"
_TOPIC_ID: Final = "topic_id"


class CheckpointRefused(Mm2Error):
    """A checkpoint that cannot be relocated. Nothing was written."""


class SourceFormat(StrEnum):
    """Which kind of source a line belongs to."""

    MM2PY = "mm2py"
    KAFKA = "kafka"
    NONE = ""
    """The source has no offset in this batch."""


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Up to where one source has read with one batch."""

    format: SourceFormat
    topic_id: str
    """Of format mm2py, which stores no name; else empty."""
    topics: Mapping[str, Mapping[int, int]]
    """The next offsets by topic and partition. Of format mm2py the one topic has the empty name."""


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """The content of one file ``offsets/N``."""

    number: int
    metadata: str
    """The watermark, the time, and the settings of the query: one line, as Spark wrote it."""
    sources: tuple[SourcePosition, ...]

    def text(self) -> str:
        """Return the content of the file."""
        return "\n".join((VERSION, self.metadata, *(map(line_of, self.sources))))


@dataclass(frozen=True, slots=True)
class KeptBatches:
    """The batches that Spark needs to go on."""

    before: int | None
    """The batch before ``committed``. Spark reads its file and does not use its offsets. None: there is none, or it is
    not needed."""
    committed: int
    """The last one that was committed."""
    planned: int | None
    """The one after it, if it was planned: it is run again."""

    @property
    def counted(self) -> tuple[int, ...]:
        """Those whose offsets Spark uses."""
        return (self.committed,) if self.planned is None else (self.committed, self.planned)


def kept_batches(planned: Collection[int], committed: Collection[int]) -> KeptBatches:
    """Return the batches that Spark needs.

    Args:
        planned: the numbers of the files in ``offsets``.
        committed: likewise in ``commits``.
    Raises:
        CheckpointRefused: no batch was committed, or the files do not belong together.
    """
    if not committed:
        raise CheckpointRefused(
            "No batch of this query is committed, so it has not read anything for good.",
            remedy="Start the query on the other cluster with a new checkpointLocation.",
        )
    last, newest = max(committed), max(planned, default=-1)
    if last not in planned or newest > last + 1:
        raise CheckpointRefused(
            f"Batch {last} is the last one in commits, batch {newest} the last one in offsets: Spark writes at most one"
            " batch more in offsets.",
            remedy="Let the query run one batch and stop it. Asynchronous progress tracking is not known here.",
        )
    if newest > last:
        return KeptBatches(None, last, newest)
    return KeptBatches(last - 1 if last - 1 in planned else None, last, None)


def read_batch(number: int, text: str) -> PlannedBatch:
    """Read a file ``offsets/N``.

    Raises:
        CheckpointRefused: it is of another layout, or has a source of another kind.
    """
    name = f"offsets/{number}"
    version, *lines = text.removesuffix("\n").split("\n")
    if version != VERSION or not lines:
        raise CheckpointRefused(
            f"{name} has version {version[:20]!r}, and mm2py knows {VERSION!r} with a line for each source.",
            remedy="Start the query on the other cluster with a new checkpointLocation.",
        )
    metadata, *sources = lines
    return PlannedBatch(
        number, metadata, tuple(_position(line, f"{name}, source {at}") for at, line in enumerate(sources))
    )


def line_of(position: SourcePosition) -> str:
    """Return the line of a source, as its reader in Spark writes it."""
    if position.format is SourceFormat.NONE:
        return NO_OFFSET
    if position.format is SourceFormat.MM2PY:
        (numbers,) = position.topics.values()
        return json.dumps({_TOPIC_ID: position.topic_id, **_texts(numbers)})
    return json.dumps({topic: _texts(numbers) for topic, numbers in position.topics.items()}, separators=(",", ":"))


def _texts(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(numbers.items())}


def _position(line: str, where: str) -> SourcePosition:
    if line == NO_OFFSET:
        return SourcePosition(SourceFormat.NONE, "", {})
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if isinstance(found, dict) and isinstance(topic_id := found.get(_TOPIC_ID), str):
        numbers = _numbers({name: value for name, value in found.items() if name != _TOPIC_ID})
        if numbers and topic_id:
            return SourcePosition(SourceFormat.MM2PY, topic_id, {"": numbers})
    elif isinstance(found, dict) and found:
        topics = {topic: _numbers(value) for topic, value in found.items()}
        known = {topic: numbers for topic, numbers in topics.items() if numbers}
        if len(known) == len(topics):
            return SourcePosition(SourceFormat.KAFKA, "", known)
    raise CheckpointRefused(
        f"{where} has the position {line[:80]!r}, neither of format mm2py nor of Spark's kafka.",
        remedy="A query with such a source is not relocated: start it with a new checkpointLocation.",
    )


def _numbers(value: Any) -> dict[int, int] | None:
    """Return the offsets by partition; None: these are none."""
    if not isinstance(value, dict):
        return None
    found: dict[int, int] = {}
    for name, offset in value.items():
        is_number = name.isascii() and name.isdecimal() and int(name) <= PARTITION_MOST
        if not is_number or type(offset) is not int or not 0 <= offset <= OFFSET_MOST:
            return None
        found[int(name)] = offset
    return found
