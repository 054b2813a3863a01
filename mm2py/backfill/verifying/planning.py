"""Plans which ranges of a partition are compared, and notes what is not compared, and why. Pure.

The ledger pairs the offsets. Offsets that it does not cover need a reason: expired, lost in a gap, in quarantine, or
dropped like markers and aborted records. All other records that it does not cover, on either side, are differences.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Final

from mm2py.backfill.verifying.ranges import LEAF_OFFSETS, ComparedRange, Interval, overlaps
from mm2py.backfill.verifying.returned import Returned
from mm2py.offsets.partition_ledger import NumberedLedger
from mm2py.offsets.runs import Hole, HoleCause, Run
from mm2py.records.gap_record import Gap

NOT_RETURNED: Final = Returned()
RANGE_BYTES: Final = 64 << 20
RUNS_A_RANGE: Final = 20_000


class Why(StrEnum):
    """Why something was not compared. None of these is a difference."""

    SAMPLE = "sample"
    """Not in the sample."""
    SINCE = "older than --since"
    BEFORE_LAST = "before the last records, which were wanted"
    EXPIRED = "expired"
    """A log has deleted the records."""
    GAP = "gap"
    """Lost in a gap that ``mm2py gaps --all`` lists."""
    QUARANTINE = "quarantine"
    COUNTED = "counted"
    """After a crash only the number of copies was found."""
    NOT_IN_LEDGER = "not in the ledger"
    """Copied before the ledger was kept, or a part of it is lost."""
    BEFORE_COPYING = "before the copying began"
    CUT_BACK = "cut back"
    """The source has lost the end of its log, as after an unclean election."""
    NOT_YET = "not copied yet"
    BEHIND_LEDGER = "behind the ledger"
    """Target records that the ledger does not have yet."""
    RETURNED = "brought by the flow back"
    """Under the identity policy: the flow that leads back has copied it, in the other direction."""
    FILTERED = "filtered"
    """Copied by a backfill with ``--where`` or ``--select``: the copies may differ, and be fewer."""
    FOREIGN_FLOWS = "other flows"
    """Several flows write to the remote partition."""
    UNREADABLE = "no answer"
    """A leader does not answer, a remote partition does not exist, or copies after the ledger's end are unreadable."""


@dataclass(frozen=True, slots=True)
class NotCompared:
    """Offsets of one partition that were not compared."""

    why: Why
    topic: str
    partition: int
    start: int
    """A source offset, like ``end``; both are target offsets if ``is_target``."""
    end: int
    count: int
    """How many offsets."""
    is_target: bool = False


@dataclass(frozen=True)
class VerifyFacts:
    """The facts about one partition that are known before anything is compared."""

    topic: str
    partition: int
    remote_topic: str
    ledgers: Sequence[NumberedLedger]
    """Those of the present topics, oldest first."""
    source_bounds: Interval
    """First offset of the log, and the offset after its last record."""
    target_bounds: Interval
    log_ends: Interval | None = None
    """Where source and target ended after the ledger was read, if that is known."""
    since: int | None = None
    """The first source offset that is wanted."""
    gaps: Sequence[Gap] = ()
    """Of this partition."""
    quarantined: Collection[int] = ()
    """Source offsets."""
    is_compacted: bool = False
    is_shared: bool = False
    read_committed: bool = False
    own_timestamps: bool = True
    """See ``ComparedRange``."""
    bytes_per_offset: float = 1000.0
    returned: Returned = NOT_RETURNED
    """What the flow back has brought."""
    filtered: Sequence[Interval] = ()
    """Source offsets of backfills with ``--where`` or ``--select``."""
    is_last_wanted: bool = False
    """Offsets before ``since`` are left out because only the last records are wanted."""

    @property
    def template(self) -> ComparedRange:
        """A range without offsets."""
        ids = self.ledgers[-1] if self.ledgers else None
        return ComparedRange(
            0,
            self.topic,
            self.partition,
            self.remote_topic,
            (0, 0),
            (0, 0),
            (),
            is_compacted=self.is_compacted,
            is_shared=self.is_shared,
            read_committed=self.read_committed,
            own_timestamps=self.own_timestamps,
            source_topic_id=None if ids is None else ids.source_topic_id,
            target_topic_id=None if ids is None else ids.target_topic_id,
        )


@dataclass(slots=True)
class PartitionPlan:
    """What is to be compared of one partition."""

    facts: VerifyFacts
    ranges: list[ComparedRange] = field(default_factory=list)
    not_compared: list[NotCompared] = field(default_factory=list)
    tail: Interval | None = None
    """Target offsets after the end of the ledger. They must be copies of source records from ``tail_source`` on."""
    tail_source: int = 0

    @property
    def is_unknown(self) -> bool:
        """True if there are records without a ledger, or records that could not be read."""
        return self.has_no_ledger or any(one.why is Why.UNREADABLE for one in self.not_compared)

    @property
    def has_no_ledger(self) -> bool:
        """True if there are records, and no ledger of them."""
        return not self.facts.ledgers and bool(self.not_compared)

    def note(self, why: Why, interval: Interval, *, count: int | None = None, is_target: bool = False) -> None:
        """Note offsets that are not compared. An empty interval is not noted."""
        start, end = interval
        if why in (Why.GAP, Why.NOT_IN_LEDGER):
            returned = self.facts.returned
            known = returned.on_target if is_target else returned.on_source
            why = Why.RETURNED if any(low <= start and end <= high for low, high in known) else why
        count = end - start if count is None else count
        if count > 0:
            facts = self.facts
            self.not_compared.append(NotCompared(why, facts.topic, facts.partition, start, end, count, is_target))


def plan_partition(facts: VerifyFacts, *, range_bytes: int = RANGE_BYTES) -> PartitionPlan:
    """Return what is to be compared of one partition."""
    plan = PartitionPlan(facts)
    log_start, log_end = facts.source_bounds
    if not facts.ledgers:
        plan.note(Why.NOT_IN_LEDGER, facts.source_bounds)
        plan.note(Why.NOT_IN_LEDGER, facts.target_bounds, is_target=True)
        return plan
    stretches = _stretches(plan, facts)
    wide = []
    for stretch in stretches:
        left = stretch.without_expired(log_start, facts.target_bounds[0])
        plan.note(Why.EXPIRED, (stretch.source[0], stretch.source[1] if left is None else left.source[0]))
        if left is not None and facts.since is not None and facts.since > left.source[0]:
            why = Why.BEFORE_LAST if facts.is_last_wanted else Why.SINCE
            plan.note(why, (left.source[0], min(facts.since, left.source[1])))
            left = left.cut(facts.since, left.source[1]) if facts.since < left.source[1] else None
        if left is not None and (whole := _within_ends(plan, left)) is not None:
            wide += _unfiltered(plan, _explained(plan, whole))
    for one in wide:
        plan.ranges += _pieces(one, facts, range_bytes)
    newest = facts.ledgers[-1].ledger
    plan.note(Why.NOT_YET, (max(newest.copied_to, log_start), log_end))
    if newest.target_end < facts.target_bounds[1]:
        plan.tail = (max(newest.target_end, facts.target_bounds[0]), facts.target_bounds[1])
        plan.tail_source = max(newest.copied_to, log_start)
    if facts.is_compacted and not facts.filtered and (newest.copied_to < log_end or plan.tail is not None):
        later = facts.template
        source = (min(newest.copied_to, log_end), log_end)
        plan.ranges.append(replace(later, source=source, target=plan.tail or (0, 0), is_later=True))
    return plan


def _within_ends(plan: PartitionPlan, one: ComparedRange) -> ComparedRange | None:
    """Return the part that both logs still have. Copies that the target has lost at its end are differences."""
    if plan.facts.log_ends is None:
        return one
    source_end, target_end = plan.facts.log_ends
    if source_end < one.source[1]:
        plan.note(Why.CUT_BACK, (max(source_end, one.source[0]), one.source[1]))
        if source_end <= one.source[0]:
            return None
        one = one.cut(one.source[0], source_end)
    return replace(one, target=(min(one.target[0], target_end), min(one.target[1], target_end)))


def _stretches(plan: PartitionPlan, facts: VerifyFacts) -> list[ComparedRange]:
    """Return a range for each ledger, from its start to the start of the next one."""
    found: list[ComparedRange] = []
    source_end, target_end = facts.source_bounds[0], facts.target_bounds[0]
    after: list[NumberedLedger | None] = [*facts.ledgers[1:], None]
    for one, following in zip(facts.ledgers, after, strict=True):
        ledger = one.ledger
        is_known = ledger.is_whole or (found and ledger.source_start <= source_end)
        plan.note(Why.BEFORE_COPYING if ledger.is_whole else Why.NOT_IN_LEDGER, (source_end, ledger.source_start))
        target_start = min(target_end, ledger.target_start)
        if not is_known:
            plan.note(Why.NOT_IN_LEDGER, (target_end, ledger.target_start), is_target=True)
            target_start = ledger.target_start
        limit = None if following is None else following.ledger.target_start
        found.append(_stretch(plan, facts, one, target_start, limit))
        source_end, target_end = max(source_end, ledger.copied_to), found[-1].target[1]
    return found


def _stretch(
    plan: PartitionPlan, facts: VerifyFacts, one: NumberedLedger, target_start: int, limit: int | None
) -> ComparedRange:
    """Return the range of one ledger. ``limit`` is the target offset at which the next ledger begins."""
    ledger = one.ledger
    runs: list[Run] = []
    source_out: list[Interval] = []
    target_out: list[Interval] = []
    source_end = ledger.copied_to
    for entry in ledger.entries():
        if limit is not None and entry.target_offset >= limit and isinstance(entry, Run):
            source_end = entry.source_offset  # an unclean leader of the target has lost its copies
            break
        if isinstance(entry, Run):
            runs.append(entry if limit is None else entry._replace(record_count=min(entry[2], limit - entry[1])))
            if runs[-1].record_count < entry.record_count:
                source_end = runs[-1].source_end
                break
            continue
        source_out.append((entry.source_offset, entry.source_end))
        if entry.target_count:
            target_out.append((entry.target_offset, entry.target_end))
        plan.note(_why(entry), (entry.source_offset, entry.source_end))
    end = ledger.target_end if limit is None else limit
    return replace(
        facts.template,
        source=(ledger.source_start, source_end),
        target=(target_start, max(end, target_start)),
        runs=tuple(runs),
        source_left_out=tuple(source_out),
        target_left_out=tuple(target_out),
    )


def _why(hole: Hole) -> Why:
    match hole.cause:
        case HoleCause.GAP:
            return Why.GAP
        case HoleCause.QUARANTINED:
            return Why.QUARANTINE
        case HoleCause.TRIMMED:
            return Why.EXPIRED
        case HoleCause.COUNTED:
            return Why.COUNTED


def _unfiltered(plan: PartitionPlan, whole: ComparedRange) -> list[ComparedRange]:
    """Return the parts that no filtered backfill has copied. A compacted partition can only be compared as a whole."""
    filtered = joined(overlaps(plan.facts.filtered, whole.source))
    if not filtered:
        return [whole]
    if plan.facts.is_compacted:
        plan.note(Why.FILTERED, whole.source)
        return []
    for one in filtered:
        plan.note(Why.FILTERED, one)
    edges = [(whole.source[0], whole.source[0]), *filtered, (whole.source[1], whole.source[1])]
    return [whole.cut(one[1], other[0]) for one, other in pairwise(edges) if one[1] < other[0]]


def _explained(plan: PartitionPlan, whole: ComparedRange) -> ComparedRange:
    """Return a range without the gaps and the quarantined records that the ledger does not have as holes."""
    facts = plan.facts
    added: list[Interval] = []
    for gap in facts.gaps:
        if gap.first_offset is None or gap.last_offset is None or gap.kind.is_unexpected:
            continue
        if gap.topic_id is not None and gap.topic_id != str(whole.source_topic_id):
            continue
        for interval in uncovered(whole, (gap.first_offset, gap.last_offset + 1)):
            plan.note(Why.GAP, interval)
            added.append(interval)
    for offset in sorted(facts.quarantined):
        for interval in uncovered(whole, (offset, offset + 1)):
            plan.note(Why.QUARANTINE, interval)
            added.append(interval)
    returned = facts.returned
    added += overlaps(returned.on_source, whole.source)
    originals = overlaps(returned.on_target, whole.target)
    if not (added or originals):
        return whole
    return replace(
        whole,
        source_left_out=joined([*whole.source_left_out, *added]),
        target_left_out=joined([*whole.target_left_out, *originals]),
    )


def uncovered(whole: ComparedRange, interval: Interval) -> list[Interval]:
    """Return the parts of an interval of source offsets that neither a run nor a left-out interval covers."""
    left = list(overlaps([interval], whole.source))
    if not left:
        return []
    low, high = left[0]
    covered = [(run.source_offset, run.source_end) for run in whole.runs if run.source_end > low]
    taken = joined(overlaps([*covered, *whole.source_left_out], (low, high)))
    edges = [(low, low), *taken, (high, high)]
    return [(one[1], other[0]) for one, other in pairwise(edges) if one[1] < other[0]]


def joined(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Return intervals in order, with overlapping ones joined."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return tuple(found)


def _pieces(whole: ComparedRange, facts: VerifyFacts, range_bytes: int) -> list[ComparedRange]:
    """Cut a range into pieces that one task reads at a time. Each ends where a leaf of the Merkle tree ends."""
    step = int(range_bytes / max(facts.bytes_per_offset, 1.0))
    step = max(step // LEAF_OFFSETS, 1) * LEAF_OFFSETS
    found, start, end = [], whole.source[0], whole.source[1]
    if start >= end:
        return [whole] if whole.target[0] < whole.target[1] else []
    while start < end:
        stop = min((start // LEAF_OFFSETS) * LEAF_OFFSETS + step, end)
        part = whole.cut(start, stop)
        while len(part.runs) > RUNS_A_RANGE and stop - start > LEAF_OFFSETS:
            stop = start + (stop - start) // 2 // LEAF_OFFSETS * LEAF_OFFSETS or start + LEAF_OFFSETS
            stop = stop // LEAF_OFFSETS * LEAF_OFFSETS
            part = whole.cut(start, stop)
        found.append(part)
        start = stop
    return found


def sampled(plans: Sequence[PartitionPlan], percent: float, seed: int) -> None:
    """Keep this many percent of the ranges of all partitions, at least one, and note the others.

    A compacted partition is kept as a whole: only the whole of it shows which value is the latest.
    """
    places = [(plan, one) for plan in plans if not plan.facts.is_compacted for one in plan.ranges]
    keep = min(len(places), max(1, round(len(places) * percent / 100)))
    kept = set(random.Random(seed).sample(range(len(places)), keep))  # noqa: S311  (a sample, nothing secret)
    for plan in plans:
        if not plan.facts.is_compacted:
            plan.ranges.clear()
    for at, (plan, one) in enumerate(places):
        if at in kept:
            plan.ranges.append(one)
        else:
            plan.note(Why.SAMPLE, one.source)


def numbered(plans: Sequence[PartitionPlan]) -> list[ComparedRange]:
    """Number all ranges in order, and return them."""
    number = 0
    for plan in plans:
        for at, one in enumerate(plan.ranges):
            plan.ranges[at] = replace(one, number=number)
            number += 1
    return [one for plan in plans for one in plan.ranges]
