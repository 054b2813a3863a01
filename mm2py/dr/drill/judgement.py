"""Whether a group would go on at the exact record after a failover: judged by the records themselves. Pure.

Two readers are compared. One is the group on the source: the record that it would read next there, and the one before.
The other one begins on the target where the group would go on after a failover. Both must meet the same record: same
key, value, headers and timestamp. The ledger is not asked for that. It is asked only why records are missing on one
side that the other side still has: deleted by retention or compaction, not copied yet, or written by another client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from mm2py.offsets.answers import Answer, AnswerKind
from mm2py.records.batch import Record


class GoesOn(StrEnum):
    """How a group would go on in one partition, in a word that keeps its meaning."""

    EXACT = "exact"
    """The next record is the same on both sides."""
    AT_END = "at-end"
    """It has read all that the target has; it goes on with the next record that is written there."""
    READS_AGAIN = "reads-again"
    """It would first read records again."""
    SKIPS = "skips"
    """It would skip records."""
    DIFFERS = "differs"
    """It would meet other records than on the source."""
    NO_PLACE = "no-place"
    """Nothing says where: its consumers would begin by auto.offset.reset."""
    NOT_KNOWN = "not-known"
    """It cannot be told."""
    LEFT = "left"
    """It is not moved by a failover, as share groups are."""


GREEN: Final = frozenset({GoesOn.EXACT, GoesOn.AT_END, GoesOn.LEFT})
"""A drill in which all is one of these has proven that no record is read again, and none is skipped."""
_LEFT_OUT: Final = frozenset({AnswerKind.GAP, AnswerKind.QUARANTINED})
_NOT_A_COPY: Final = frozenset({AnswerKind.NOT_OURS, AnswerKind.REPLAYED})
NO_RECORDS: Final[Sequence[Record]] = ()


@dataclass(frozen=True, slots=True)
class ReadFrom:
    """What was read of one log from an offset on."""

    offset: int
    records: Sequence[Record] = NO_RECORDS
    """Data records, the first ones."""
    is_whole: bool = True
    """No more of them follow."""
    before: Record | None = None
    """The last data record before the offset, if it was found close to it."""
    log_start: int = 0
    log_end: int = 0


@dataclass(frozen=True, slots=True)
class DrilledPartition:
    """What both clusters say of one partition of a group. Offsets are the next ones to read."""

    topic: str
    """Its name on the source."""
    partition: int
    other_topic: str
    """Its name on the target."""
    committed: int | None
    """What the group has committed on the source; None: nothing, although the partition holds records."""
    position: int | None = None
    """Where a failover would let it go on on the target; None: see ``why``."""
    why: str = ""
    """Why there is no position, or why nothing could be read there."""
    shadow: int | None = None
    """What the shadow group has committed, as the target tells it."""
    here: ReadFrom | None = None
    """The source, from the commit on. It was read after ``there``."""
    there: ReadFrom | None = None
    """The target, from the shadow group's commit on."""
    to_other: Mapping[int, Answer] = field(default_factory=lambda: MappingProxyType({}))
    """By offset of a record in ``here``: where its copy is, by the ledger."""
    to_source: Mapping[int, Answer] = field(default_factory=lambda: MappingProxyType({}))
    """By offset of a record in ``there``: of which source offset it is the copy, by the ledger."""
    may_lose_records: bool = False
    """Its logs may lack records from the middle, as compacted ones do."""
    own_timestamps: bool = True
    """Copies have the timestamps of their records."""


@dataclass(frozen=True, slots=True)
class PartitionDrill:
    """How a group would go on in one partition."""

    topic: str
    """Its name on the source."""
    partition: int
    """Its number on both clusters."""
    other_topic: str
    """Its name on the target."""
    committed: int | None
    """What the group has committed on the source; null: nothing."""
    position: int | None
    """Where a failover would let it go on on the target; null: nothing says where."""
    result: GoesOn
    """How it would go on."""
    records: int | None
    """How many records it would read again or skip; null: it is not known, or none."""
    text: str
    """The same in words."""
    source_record: int | None = None
    """The offset of the next record on the source; null: there is none, or it was not looked for."""
    target_record: int | None = None
    """The offset of the first record on the target; null: there is none, or it was not looked for."""

    @property
    def is_green(self) -> bool:
        """It would read no record again, and skip none."""
        return self.result in GREEN


@dataclass(frozen=True, slots=True)
class GroupDrill:
    """How a group would go on after a failover."""

    group: str
    state: str
    """On the source, in Kafka's word."""
    shadow: str
    """The name of its shadow on the target; empty: it had none."""
    partitions: tuple[PartitionDrill, ...] = ()
    why: str = ""
    """Why it was not drilled; empty: it was."""
    is_left: bool = False
    """Because a failover leaves it, too."""

    @property
    def is_green(self) -> bool:
        """It would read no record again, and skip none."""
        return self.is_left or (not self.why and all(one.is_green for one in self.partitions))


def needs_more(found: PartitionDrill) -> bool:
    """Return whether a judgement by the first records alone is to be repeated with more of them."""
    return found.result in {GoesOn.READS_AGAIN, GoesOn.SKIPS, GoesOn.DIFFERS}


def judge_partition(facts: DrilledPartition) -> PartitionDrill:
    """Return how a group would go on in one partition."""
    result, records, text = _judged(facts)
    here, there = facts.here, facts.there
    return PartitionDrill(
        facts.topic,
        facts.partition,
        facts.other_topic,
        facts.committed,
        facts.position,
        result,
        records,
        text,
        here.records[0].offset if here is not None and here.records else None,
        there.records[0].offset if there is not None and there.records else None,
    )


Judged = tuple[GoesOn, int | None, str]


def _judged(facts: DrilledPartition) -> Judged:
    here, there = facts.here, facts.there
    if facts.committed is None:
        return GoesOn.NOT_KNOWN, None, "nothing is committed: its consumers begin by auto.offset.reset, here and there"
    if facts.position is None:
        return GoesOn.NO_PLACE, None, facts.why or "no checkpoint says where it goes on"
    if facts.why or here is None or there is None:
        return GoesOn.NOT_KNOWN, None, facts.why or "it was not read"
    if facts.shadow != facts.position:
        stored = "nothing" if facts.shadow is None else f"{facts.shadow:,}"
        return GoesOn.NOT_KNOWN, None, f"the shadow group's commit is {stored}, where {facts.position:,} was committed"
    if facts.position > there.log_end:
        text = f"{facts.other_topic} ends at {there.log_end:,}: its consumers would begin by auto.offset.reset"
        return GoesOn.NO_PLACE, None, text
    if facts.committed > here.log_end:
        return GoesOn.NOT_KNOWN, None, f"its commit is beyond the end of {facts.topic}, which is {here.log_end:,}"
    if there.records and here.records:
        return _both(facts, here, there)
    if there.records:
        return _only_there(facts, there)
    return _nothing_there(facts, here, there)


def _both(facts: DrilledPartition, here: ReadFrom, there: ReadFrom) -> Judged:
    """Judge where both sides have a next record."""
    first_here, first_there = here.records[0], there.records[0]
    at = _index(first_here, there.records, facts)
    if at == 0:
        return _with_before(facts, here, there)
    if at is not None:
        return _extra_there(facts, there.records[:at], first_here.offset)
    at = _index(first_there, here.records, facts)
    if at is not None:
        return _missing_there(facts, here.records[:at], there)
    if _is_not_copied(facts, first_here.offset):
        return _extra_there(facts, there.records, first_here.offset, is_whole=there.is_whole)
    text = (
        f"the next record on the source is {first_here.offset:,}, and the target has another one at "
        f"{first_there.offset:,}"
    )
    return GoesOn.DIFFERS, None, text


def _with_before(facts: DrilledPartition, here: ReadFrom, there: ReadFrom) -> Judged:
    """Judge where the next record is the same: the one before must be the same as well.

    The story: a producer sends the same record twice, and a position is one too far. The next record is the same, and
    only the one before tells that one was skipped.
    """
    if text := _other_before(facts, here, there):
        return GoesOn.DIFFERS, None, text
    return GoesOn.EXACT, None, ""


def _other_before(facts: DrilledPartition, here: ReadFrom, there: ReadFrom) -> str:
    """Return in words that the records before the next ones are not the same; empty: they are, or it is not known."""
    before, copy = here.before, there.before
    if before is None or copy is None or facts.may_lose_records or _same(before, copy, facts):
        return ""
    origin, left_out = facts.to_source.get(copy.offset), facts.to_other.get(before.offset)
    if origin is not None and origin.kind in _NOT_A_COPY:
        return ""
    if left_out is not None and left_out.kind in _LEFT_OUT:
        return ""
    return f"the record before it differs: {before.offset:,} on the source, {copy.offset:,} on the target"


def _extra_there(
    facts: DrilledPartition, extra: Sequence[Record], next_here: int | None, *, is_whole: bool = True
) -> Judged:
    """Judge records that the target has before the one that is the group's next on the source."""
    count, least = len(extra), "" if is_whole else "at least "
    origins = [facts.to_source.get(record.offset) for record in extra]
    if any(one is not None and one.kind is AnswerKind.NOT_OURS for one in origins):
        text = f"among the {least}{count:,} record(s) before it on the target are some that this flow did not write"
        return GoesOn.DIFFERS, count, text
    if _are_deleted_here(facts, origins, next_here):
        text = f"the source has deleted {count:,} record(s) that the target still has: the group would read these first"
        return GoesOn.EXACT, None, text
    return GoesOn.READS_AGAIN, count, f"it would read {least}{count:,} record(s) again"


def _are_deleted_here(facts: DrilledPartition, origins: Sequence[Answer | None], next_here: int | None) -> bool:
    """Return whether records of the target are copies of some that the group has not read, and the source has deleted.

    The ledger alone does not prove it: it may be wrong. The source must be one that can have deleted them.
    """
    here = facts.here
    if here is None or facts.committed is None:
        return False
    end = here.log_end if next_here is None else next_here
    start = facts.committed
    for one in origins:
        if one is None or one.kind is not AnswerKind.COPIED or one.offset is None or not start <= one.offset < end:
            return False
        if not facts.may_lose_records and one.offset >= here.log_start:
            return False
    return True


def _missing_there(facts: DrilledPartition, missing: Sequence[Record], there: ReadFrom) -> Judged:
    """Judge records that are the group's next ones on the source, and that it would not meet on the target."""
    count = len(missing)
    answers = [facts.to_other.get(record.offset) for record in missing]
    if facts.may_lose_records and all(_is_copied_behind(one, facts.position) for one in answers):
        text = f"compaction has removed {count:,} record(s) on the target that the source still has"
        return GoesOn.EXACT, None, text
    text = f"it would skip {count:,} record(s)"
    if all(one is not None and one.kind in _LEFT_OUT for one in answers):
        text += " that are in a gap or in quarantine: see mm2py gaps FILE"
    elif facts.position is not None and facts.position <= there.log_start:
        text += f": the target has deleted what comes before {there.log_start:,}"
    return GoesOn.SKIPS, count, text


def _is_copied_behind(answer: Answer | None, position: int | None) -> bool:
    """Return whether the ledger has the copy of a record, at a place where the group would have met it."""
    if answer is None or answer.kind is not AnswerKind.COPIED or answer.offset is None or position is None:
        return False
    return answer.offset >= position


def _only_there(facts: DrilledPartition, there: ReadFrom) -> Judged:
    """Judge where the group has read the source to its end, and the target has records."""
    return _extra_there(facts, there.records, None, is_whole=there.is_whole)


def _nothing_there(facts: DrilledPartition, here: ReadFrom, there: ReadFrom) -> Judged:
    """Judge where the group would wait at the end of the copy."""
    if here.records:
        first = here.records[0].offset
        answer = facts.to_other.get(first)
        if answer is not None and answer.kind in _LEFT_OUT:
            text = f"record {first:,} of the source is in a gap or in quarantine: see mm2py gaps FILE"
            return GoesOn.SKIPS, None, text
        if not _is_not_copied(facts, first):
            text = f"record {first:,} of the source is copied by the ledger, and the target has none from its place on"
            return GoesOn.SKIPS, None, text
    if here.before is not None and _is_not_copied(facts, here.before.offset):
        return GoesOn.AT_END, None, "it has read records on the source that are not copied yet"
    if text := _other_before(facts, here, there):
        return GoesOn.DIFFERS, None, text
    return GoesOn.AT_END, None, "what follows on the source is not copied yet" if here.records else ""


def _is_not_copied(facts: DrilledPartition, offset: int) -> bool:
    answer = facts.to_other.get(offset)
    return answer is not None and answer.kind is AnswerKind.NOT_YET


def _index(wanted: Record, records: Sequence[Record], facts: DrilledPartition) -> int | None:
    return next((at for at, record in enumerate(records) if _same(wanted, record, facts)), None)


def _same(one: Record, other: Record, facts: DrilledPartition) -> bool:
    """Return whether two records are equal but for their offsets."""
    times = (one.timestamp_ms, other.timestamp_ms) if facts.own_timestamps else (0, 0)
    return (one.key, one.value, tuple(one.headers), times[0]) == (
        other.key,
        other.value,
        tuple(other.headers),
        times[1],
    )
