"""A backfill of topics, as a record of the configs topic: it names the topics that the live flow must not copy. Pure.

The key is ``mm2py-backfill-<id>``. As long as its state is ``copying``, the workers of the flow do not copy its topics.
A worker that starts later reads the record and waits, too. The driver of the backfill writes the record again every few
seconds; if a record gets old, its driver has died. MirrorMaker 2 has no backfill, and Connect skips such keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from mm2py.errors import Mm2Error
from mm2py.kafka.port import TopicPartition
from mm2py.records.operator_request import MalformedRequest, dump, is_count, load

BACKFILL_KEY: Final = b"mm2py-backfill-"
FORMAT_VERSION: Final = 1
"""A reader ignores a record that mm2py does not write: the previous one counts, if there is one. It stops at one that
only a later mm2py can read: it would copy what the backfill copies."""
ID_CHARS: Final = 8
ID: Final = re.compile(f"[0-9a-f]{{{ID_CHARS}}}")
DEAD_AFTER_MS: Final = 20_000
"""A driver that has not written for this long counts as dead; it writes every few seconds."""
RECORD_BYTES_MOST: Final = 900_000
"""Brokers accept records of a million bytes by default."""


class BackfillTooNew(Mm2Error):
    """A later mm2py runs a backfill that this one cannot read."""

    def __init__(self, backfill_id: str) -> None:
        super().__init__(
            f"A later mm2py has begun backfill {backfill_id} in a way that this mm2py cannot read.",
            remedy="Update mm2py here to the version that began it, or to a later one.",
        )


class BackfillState(StrEnum):
    """The state of a backfill."""

    COPYING = "copying"
    """The live flow waits."""
    DONE = "done"
    """All of it is copied; the live flow continues at the seam."""
    STOPPED = "stopped"
    """An operator has stopped it, or it failed; the live flow copies the rest."""


class Range(NamedTuple):
    """Source offsets of a partition: from ``first`` up to the seam, where the live flow continues."""

    first: int
    seam: int


@dataclass(frozen=True, slots=True)
class Backfill:
    """A backfill as it was written last."""

    id: str
    """Eight hexadecimal digits."""
    topics: Mapping[str, Mapping[int, Range]]
    """By source topic and partition."""
    tasks: tuple[tuple[TopicPartition, ...], ...]
    """For each task of Spark, the partitions that it copies."""
    state: BackfillState = BackfillState.COPYING
    run: int = 0
    """How often it was resumed."""
    begun_at_ms: int = 0
    seen_at_ms: int = 0
    """When its driver last wrote this."""
    by: str = ""
    """Who began it, in words."""
    reason: str = ""
    """Why it was stopped."""
    where: str = ""
    """SQL: which records are copied; empty: all."""
    select: str = ""
    """SQL: how records are changed; empty: not at all."""

    @property
    def holds(self) -> bool:
        """Whether the live flow waits for it."""
        return self.state is BackfillState.COPYING

    @property
    def is_filtered(self) -> bool:
        """Whether its copies may differ from the source's records."""
        return bool(self.where or self.select)

    def ranges(self) -> dict[TopicPartition, Range]:
        """Return what is to be copied, by source partition."""
        return {(topic, number): at for topic, parts in self.topics.items() for number, at in parts.items()}


def backfill_key(backfill_id: str) -> bytes:
    return BACKFILL_KEY + backfill_id.encode()


def encode_backfill(backfill: Backfill) -> bytes:
    """Return the value of a record."""
    return dump(
        {
            "format": FORMAT_VERSION,
            "readable_from": FORMAT_VERSION,
            "topics": {
                topic: [[number, *at] for number, at in sorted(parts.items())]
                for topic, parts in backfill.topics.items()
            },
            "tasks": [[[*key] for key in task] for task in backfill.tasks],
            "state": backfill.state,
            "run": backfill.run,
            "begun_at_ms": backfill.begun_at_ms,
            "seen_at_ms": backfill.seen_at_ms,
            "by": backfill.by,
            "reason": backfill.reason,
            "where": backfill.where,
            "select": backfill.select,
        }
    )


def decode_backfill(key: bytes, value: bytes) -> Backfill:
    """Return the backfill of a record.

    Raises:
        MalformedRequest: mm2py does not write such a record.
        BackfillTooNew: a later mm2py wrote it, and this one must not ignore it.
    """
    backfill_id = key[len(BACKFILL_KEY) :].decode(errors="replace")
    if ID.fullmatch(backfill_id) is None:
        raise MalformedRequest("its key names no backfill")
    fields = load(value)
    readable_from = fields.get("readable_from")
    if is_count(readable_from) and readable_from > FORMAT_VERSION:
        raise BackfillTooNew(backfill_id)
    try:
        topics = {
            _text(topic): {_count(number): Range(_count(first), _count(seam)) for number, first, seam in parts}
            for topic, parts in _object(fields["topics"]).items()
        }
        return Backfill(
            backfill_id,
            topics,
            tuple(tuple((_text(topic), _count(number)) for topic, number in task) for task in fields["tasks"]),
            BackfillState(fields["state"]),
            _count(fields["run"]),
            _count(fields["begun_at_ms"]),
            _count(fields["seen_at_ms"]),
            _text(fields["by"]),
            _text(fields["reason"]),
            _text(fields["where"]),
            _text(fields["select"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedRequest("it is no backfill as this version of mm2py writes it") from error


@dataclass(frozen=True, slots=True)
class Holds:
    """The topics that the live flow leaves to running backfills."""

    topics: Mapping[str, str] = field(default_factory=dict)
    """By source topic: the id of the backfill."""
    ids: frozenset[str] = frozenset()
    """The ids of these backfills."""

    @classmethod
    def of(cls, backfills: Iterable[Backfill]) -> Holds:
        holding = [one for one in backfills if one.holds]
        return cls({topic: one.id for one in holding for topic in one.topics}, frozenset(one.id for one in holding))

    def is_of_backfill(self, process: str) -> bool:
        """Whether the process in a transactional id is a task of a running backfill."""
        return process[:ID_CHARS] in self.ids


def process_of(backfill_id: str, task: int) -> str:
    """Return the process part of a task's transactional ids: the same in all its attempts."""
    return f"{backfill_id}{task:08x}"


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(value)
    return value
