"""The judge: whether a target partition is a legal copy of its source partition.

``judge_partition`` reads both dumps in parallel and returns a ``Verdict``. It has no I/O and does not know how the copy
was made. For a topic without compaction it checks:

* I1: every source record from ``start`` on is in the target.
* I2: the first occurrences of the source's records are in the source's order, and none is skipped.
* I3: each repeated record belongs to a rewind, and rewinds are within the allowed number; a clean stop allows none.
* I5: every target record is equal to a source record, by content.

A breach never hides the next one: the judge resynchronises after each breach.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import inf
from typing import NamedTuple

from tests.checker.alignment import Alignment
from tests.checker.compacted import judge_compacted
from tests.checker.dumped import Dumped, Sent, difference, digest, is_like
from tests.checker.verdict import Verdict


def judge_partition(
    source: Iterable[Dumped],
    target: Iterable[Dumped],
    *,
    topic: str = "",
    partition: int = 0,
    start: int = 0,
    source_start: int = 0,
    source_end: int | None = None,
    target_end: int | None = None,
    max_rewinds: int | None = 0,
    max_rewound_records: int | None = None,
    compacted: bool = False,
    ledger: Sequence[Sent] | None = None,
    timestamps: bool = True,
    max_findings: int = 20,
) -> Verdict:
    """Judge one partition.

    Args:
        source: the dump at the flow's isolation level, ascending by offset. Read once, as far as needed.
        target: the dump of the remote partition, ascending by offset.
        topic: its name for the findings, as ``partition``.
        start: the source offset, in records, at which the copy's scope begins (records below it had expired before).
        source_start: where the source log begins; earlier records have expired since and may be missing.
        source_end, target_end: where the dumps end, exclusive; None if that is unknown.
        max_rewinds: how often the copy may go back. 0 is exact: nothing twice, as after a clean stop. None: any number.
        max_rewound_records: how many records all rewinds together may go back over; None: any number.
        compacted: a cleaner may have removed records on either side since; then the ledger is the reference.
        ledger: the acknowledged sends of this partition, ascending by offset. Needed if compacted; else it proves the
            source cluster, whose own losses are findings of ``A``.
        timestamps: False if the target stamps records itself (``message.timestamp.type=LogAppendTime``).
        max_findings: how many findings of each invariant the verdict keeps.
    Raises:
        ValueError: compacted without a ledger: a compacted record looks like a lost one.
    """
    verdict = Verdict(topic, partition, max_findings=max_findings)
    if ledger is not None:
        ledger = [entry for entry in ledger if start <= entry.offset < (inf if source_end is None else source_end)]
    in_scope = (record for record in source if record.offset >= start)
    if compacted:
        if ledger is None:
            raise ValueError(f"{topic} is compacted: give the ledger of its acknowledged sends.")
        if not timestamps:
            raise ValueError(f"{topic} is compacted and stamped by the target: the ledger cannot know its digests.")
        judge_compacted(
            list(in_scope),
            list(target),
            verdict,
            ledger=ledger,
            source_start=source_start,
            target_end=target_end,
            exact=max_rewinds == 0,
        )
    else:
        proven: Iterable[Dumped] = in_scope
        if ledger is not None:
            proven = _proven(in_scope, [entry for entry in ledger if entry.offset >= source_start], verdict)
        if not timestamps:
            proven = (record._replace(timestamp_ms=0) for record in proven)
            target = (record._replace(timestamp_ms=0) for record in target)
        _judge_log(proven, iter(target), verdict)
    verdict.judge_rewinds(max_rewinds=max_rewinds, max_rewound_records=max_rewound_records)
    return verdict


def _judge_log(source: Iterable[Dumped], target: Iterator[Dumped], verdict: Verdict) -> None:
    alignment = Alignment(source)
    pending = alignment.pending
    skipped: defaultdict[bytes, list[_Skipped]] = defaultdict(list)
    record = next(target, None)
    while record is not None:
        verdict.target_records += 1
        following = next(target, None)
        if skipped and (late := skipped.get(digest(record))):
            verdict.add(
                "I2",
                "arrived late: the target showed later source records first",
                source_offset=late.pop(0).offset,
                target_offset=record.offset,
            )
        elif not alignment.accepts(record):
            distance = pending.distance(digest(record))
            if distance is None:
                _judge_unknown(record, following, alignment, verdict)
            else:
                for _ in range(distance):
                    assert pending.head is not None
                    gap = _Skipped(alignment.frontier, pending.head.offset, instead_at=record.offset)
                    skipped[digest(pending.head)].append(gap)
                    alignment.go_past_head(target_offset=None)
                explained = alignment.accepts(record)
                assert explained, "the next source record was just found to be this one"
        record = following
    verdict.rewinds = alignment.rewinds()
    verdict.repeated_records = alignment.repeated
    _judge_missing([gap for gaps in skipped.values() for gap in gaps], verdict)
    _judge_unreached(alignment, verdict)
    verdict.source_records = pending.read


class _Skipped(NamedTuple):
    place: int
    offset: int
    instead_at: int
    """The offset of the target record in its place."""


def _judge_unknown(record: Dumped, following: Dumped | None, alignment: Alignment, verdict: Verdict) -> None:
    """Record a finding for a target record that the source does not have: a changed or a foreign one."""
    head = alignment.pending.head
    head_follows = head is not None and following is not None and following.content == head.content
    if head is not None and not head_follows and is_like(head, record):
        verdict.add("I5", difference(head, record), source_offset=head.offset, target_offset=record.offset)
        alignment.go_past_head(target_offset=record.offset)
    else:
        verdict.add("I5", "the source has no such record", source_offset=None, target_offset=record.offset)


def _judge_missing(skipped: list[_Skipped], verdict: Verdict) -> None:
    """Record the skipped records that never came, with one finding for each unbroken range."""
    skipped.sort()
    for _, group in groupby(enumerate(skipped), key=lambda numbered: numbered[1].place - numbered[0]):
        gaps = [gap for _, gap in group]
        verdict.add(
            "I1",
            f"{len(gaps)} records are not in the target, source offsets {gaps[0].offset} to {gaps[-1].offset}",
            source_offset=gaps[0].offset,
            target_offset=gaps[0].instead_at,
            times=len(gaps),
        )


def _judge_unreached(alignment: Alignment, verdict: Verdict) -> None:
    first = last = alignment.pending.head
    count = 0
    while (record := alignment.pending.head) is not None:
        last = record
        count += 1
        alignment.pending.pop()
    verdict.unreached_records = count
    if first is not None and last is not None:
        verdict.add(
            "I1",
            f"the target ends {count} records early, source offsets {first.offset} to {last.offset} are not there",
            source_offset=first.offset,
            target_offset=None,
            times=count,
        )


def _proven(source: Iterable[Dumped], ledger: Sequence[Sent], verdict: Verdict) -> Iterator[Dumped]:
    """Yield the source's records; record a finding where one differs from the acknowledged send, or is missing."""
    unseen = {entry.offset: entry.digest for entry in ledger if not entry.is_aborted}
    for record in source:
        acknowledged = unseen.pop(record.offset, None)
        if acknowledged is not None and acknowledged != digest(record):
            verdict.add(
                "A",
                "the source holds other bytes than it acknowledged",
                source_offset=record.offset,
                target_offset=None,
            )
        yield record
    if unseen:
        verdict.add(
            "A",
            f"the source lost {len(unseen)} acknowledged sends, this is the first",
            source_offset=min(unseen),
            target_offset=None,
            times=len(unseen),
        )
