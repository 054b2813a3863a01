"""The report of ``mm2py translate`` on an offset: where it is in the other log, how exact that is, and why. Pure.

Counterpart: RemoteClusterUtils.translateOffsets of Apache Kafka's Connect, mirror-client, which knows groups only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from mm2py.offsets.answers import AnswerKind
from mm2py.offsets.translation import Basis, Translation
from mm2py.records.gap_record import Gap, GapKind

WORDS: Final = {
    AnswerKind.COPIED: "copied",
    AnswerKind.DROPPED: "nothing to copy there: a marker, aborted or compacted away; the next copied record",
    AnswerKind.GAP: "lost in a gap; the next copied record",
    AnswerKind.QUARANTINED: "in quarantine; the next copied record",
    AnswerKind.COUNTED: "only counted after a crash; where that stretch begins",
    AnswerKind.TRIMMED: "the target had deleted the copies before they were noted; where that stretch begins",
    AnswerKind.END: "behind the last copied record",
    AnswerKind.NOT_YET: "not copied yet",
    AnswerKind.EXPIRED: "expired; the first copied record",
    AnswerKind.BEFORE_LEDGER: "before the ledger",
    AnswerKind.REPLAYED: "appended by mm2py replay; its record in quarantine",
    AnswerKind.NOT_OURS: "not this flow's: a marker, or a foreign writer's; the next copied record",
}
"""In the other direction NOT_YET and END mean the same of the remote partition."""
_DELETED: Final = "expired; the records before it were deleted there"
"""The words for EXPIRED that is not exact."""
_NO_SYNC: Final = ", and no offset sync is as old"
_LOST: Final = frozenset({GapKind.EXPIRED, GapKind.TRUNCATED})
"""Gaps whose offsets belong to the same topic as the ledger's, and were not copied."""
_NEXT_COPY: Final = frozenset({AnswerKind.DROPPED, AnswerKind.END, AnswerKind.EXPIRED})
"""Answers that are also given for a lost or quarantined record, because owners need not note these in the ledger."""
MAY_BE_REPLAYED: Final = frozenset({AnswerKind.NOT_OURS, AnswerKind.END, AnswerKind.NOT_YET})
"""What the ledger says of a record that ``mm2py replay`` has appended."""


@dataclass(frozen=True, slots=True)
class WayBack:
    """Where a flow from the target back to the source begins, under the identity policy, and what it leaves out."""

    begins_at: int
    """The target offset after the last copy."""
    left_out: int
    """How many target offsets before ``begins_at`` hold no copy: a marker, or a record of a foreign writer."""
    first_left_out: int | None
    """The first record among them; null: they are markers."""
    is_read: bool
    """False: what is at ``first_left_out`` was not read, and the first record may be later."""
    log_end: int
    """Where the target's log ends. A flow that begins here does not copy back what is after ``begins_at``."""


@dataclass(frozen=True, slots=True)
class OffsetReport:
    """One offset, and where it is in the other log."""

    topic: str
    """The topic on the side that was asked about."""
    partition: int
    """The partition of both topics."""
    offset: int
    """The offset that was asked about."""
    other_topic: str
    """The topic on the other side."""
    other_offset: int | None
    """None: there is no answer."""
    is_exact: bool
    """A reader that continues at ``other_offset`` skips no record and reads none again."""
    kind: str
    """What the offset is: the name of an ``AnswerKind`` in lower case."""
    basis: str
    """``ledger``, ``offset-syncs``; empty without an answer."""
    text: str
    """The same in words."""
    way_back: WayBack | None = None
    """Only for offsets after the last copied record, if the topic has the same name on the target."""


def report_of(
    topic: str,
    partition: int,
    offset: int,
    other_topic: str,
    translation: Translation,
    *,
    note: str = "",
    why: str = "",
    syncs_unread: bool = False,
) -> OffsetReport:
    """Return the report of a translation.

    Args:
        note: what else is known of the record.
        why: why the ledger does not count, empty if it does.
        syncs_unread: the cluster that keeps the offset syncs does not answer.
    """
    is_deleted = translation.kind is AnswerKind.EXPIRED and not translation.is_exact
    text = why or (_DELETED if is_deleted else WORDS[translation.kind]) + (f"; {note}" if note else "")
    if translation.basis is Basis.OFFSET_SYNCS:
        text += "; by offset syncs, records may be read again"
    elif translation.kind is AnswerKind.BEFORE_LEDGER and not why:
        text += ", and the source, which has the offset syncs, does not tell" if syncs_unread else _NO_SYNC
    return OffsetReport(
        topic,
        partition,
        offset,
        other_topic,
        translation.offset,
        translation.is_exact,
        translation.kind.name.lower(),
        str(translation.basis),
        text,
    )


def is_behind_copies(translation: Translation, *, is_reverse: bool) -> bool:
    """Return whether an offset is after the last copied record. No record there on the target is a copy."""
    return translation.kind is AnswerKind.END or (is_reverse and translation.kind is AnswerKind.NOT_YET)


def with_way_back(report: OffsetReport, found: WayBack, source: str) -> OffsetReport:
    """Add to a report where a flow back to ``source``, an alias, begins, and what that flow leaves out."""
    begins_at, first, log_end = found.begins_at, found.first_left_out, found.log_end
    text = f"{report.text}; a flow back to {source} begins at {begins_at}"
    if log_end > begins_at:
        text += f", not at the end of the log, {log_end}: the {log_end - begins_at} offsets between hold no copy"
    elif log_end < begins_at:
        text += (
            f", and the log ends at {log_end}: copies are missing there. What is written before {begins_at} from now on"
            " is left out by it"
        )
    if first is not None:
        where = f"the first record at {first}" if found.is_read else f"not read from {first} on, where records may be"
        text += (
            f". Of the offsets before {begins_at} it leaves out {found.left_out} that hold no copy, {where}. To take"
            f" them along, begin at {first}: the copies behind it come twice"
        )
    return replace(report, text=text, way_back=found)


def may_be_lost(translation: Translation) -> bool:
    """Whether the record may have been lost in a gap or put in quarantine without a line in the ledger."""
    return translation.kind in _NEXT_COPY


def with_gaps(translation: Translation, gaps: Iterable[Gap], source_offset: int) -> Translation:
    """Return the translation, as GAP if one of the partition's gaps covers the source offset."""
    if may_be_lost(translation) and any(_covers(gap, source_offset) for gap in gaps):
        return translation._replace(kind=AnswerKind.GAP)
    return translation


def with_log_start(translation: Translation, log_start: int) -> Translation:
    """Return the translation, as EXPIRED if the other log has deleted the record at its offset.

    Args:
        log_start: the first offset of the other log.
    """
    if translation.offset is None or translation.offset >= log_start:
        return translation
    return translation._replace(kind=AnswerKind.EXPIRED, offset=log_start, is_exact=False)


def _covers(gap: Gap, offset: int) -> bool:
    first, last = gap.first_offset, gap.last_offset
    return gap.kind in _LOST and first is not None and last is not None and first <= offset <= last


def line_of(report: OffsetReport) -> str:
    """Return what people read."""
    asked = f"{report.topic}-{report.partition} offset {report.offset}"
    other = f"{report.other_topic}-{report.partition}"
    if report.other_offset is None:
        return f"{asked} -> {other}: no answer ({report.text})"
    how = "exact" if report.is_exact else "not exact"
    return f"{asked} -> {other} offset {report.other_offset}, {how} ({report.text})"


def what_is_unchecked(unread: str, source: str, *, is_reverse: bool) -> str:
    """Return what people read if the target alone has answered.

    Args:
        unread: why the source does not answer.
        source: its alias.
    """
    starts = f", and where its log on {source} starts now" if is_reverse else ""
    return f"not checked: whether the topic was recreated on {source}{starts} ({unread})"
