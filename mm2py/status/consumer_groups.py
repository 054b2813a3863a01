"""The report on the consumer groups of a flow: their lag, where they would continue, and what prevents that. Pure.

If the source does not answer, the report shows each group as the target alone knows it, by its last checkpoint. Lag is
counted in offsets, so it includes markers of transactions and records that compaction has removed.

Counterpart: Java's RemoteClusterUtils of MirrorMaker 2, by which applications ask where they may continue. It has
nothing for operators.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mm2py.kafka.consumer_groups import Commits, ListedGroup
from mm2py.kafka.port import TopicPartition
from mm2py.offsets.answers import AnswerKind
from mm2py.offsets.group_sync import why_not_moved
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.offsets.sync_store import SyncStore
from mm2py.offsets.translation import Basis, Translation, forward
from mm2py.records.checkpoint import Checkpoint

NOT_READY_MOST: Final = 5
"""How many groups that are not ready the status of a flow names."""
NEXT_CHECKPOINT: Final = "its next checkpoint is not emitted yet"
NOT_COMMITTED: Final = (
    "not committed on the target yet; if it stays so, the worker's log tells why (group_offsets.skipped)"
)
"""The status asks for rights on groups. If the target refuses a commit for another reason, only the worker knows it."""
NOT_THERE: Final = "its last records are not on the target: it has read further than what is copied"
STOPPED: Final = frozenset({"", "Empty", "Dead"})
"""States of a group without members, in Kafka's words; empty: not known."""
TARGET_AHEAD: Final = (
    "its offset on the target is ahead of it: it has read there, or its remote topic was recreated or cut back"
)
"""Group sync moves no group back unless ``sync.group.offsets.rewind`` is set."""
_HOLES: Final = frozenset({AnswerKind.COUNTED, AnswerKind.TRIMMED})


@dataclass(frozen=True, slots=True)
class ConsumerGroupFacts:
    """What both clusters say of one consumer group."""

    group: str
    source: ListedGroup | None
    """None: the source does not answer."""
    target: ListedGroup | None
    """None: the target has no such group."""
    committed: Commits
    """Its commits on the source, in topics that the flow copies. If the source does not answer: by its checkpoints."""
    committed_on_target: Commits
    refused: str
    """Why mm2py may not commit for it on the target, or not read its commits there; empty if it may."""
    left_out: tuple[str, ...] = ()
    """Other topics of the source in which it has committed, and which the flow does not copy."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupsFacts:
    """What both clusters say of the consumer groups of one flow."""

    groups: Sequence[ConsumerGroupFacts]
    remote: Mapping[TopicPartition, TopicPartition]
    """The remote partition of each source partition that a group has a commit in."""
    ends: Mapping[TopicPartition, int]
    """Where source partitions end, as far as known."""
    remote_starts: Mapping[TopicPartition, int]
    """Where the logs of remote partitions begin, as far as known."""
    ledgers: Mapping[TopicPartition, PartitionLedger]
    """The ledgers of the same source partitions."""
    stale: Mapping[TopicPartition, str]
    """Source partitions whose ledger belongs to a deleted topic, or whose topics do not exist, with that reason. Their
    ledger counts as empty."""
    syncs: SyncStore | None
    """None: the flow emits none."""
    checkpoints: Mapping[tuple[str, TopicPartition], Checkpoint]
    is_synced: bool
    """``sync.group.offsets.enabled``."""
    checkpoints_at_ms: Mapping[tuple[str, TopicPartition], int] = field(default_factory=dict)
    """The timestamps of the checkpoints' records: when the worker looked up the groups' offsets."""
    is_target_alone: bool = False
    """The source does not answer."""


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """One group in one partition. Offsets are the next ones to read."""

    topic: str
    """Its name on the source."""
    partition: int
    """Its number."""
    committed: int | None
    """What the group has committed on the source. None: the source does not answer."""
    lag: int | None
    """None: the end of the source partition is not known."""
    remote_topic: str
    """Its name on the target."""
    goes_on_at: int | None
    """Where it would continue on the target; None: there is no checkpoint."""
    reads_again_at_most: int | None
    """How many records it would read twice, at most. 0: it continues at the exact record. None: not known, or it would
    skip records."""
    committed_on_target: int | None
    """What is committed for the group on the target; None: nothing."""
    waits_for: str
    """What is missing before the group can continue on the target; empty if nothing is."""
    is_exact: bool
    """It continues at the exact record. If the source does not answer: at the exact record of its last checkpoint."""
    basis: str
    """What ``reads_again_at_most`` rests on: ``ledger``, ``offset-syncs`` or empty text."""
    note: str
    """What an operator should know although the group waits for nothing; empty if there is nothing."""
    checkpoint_source_offset: int | None = None
    """What the group had committed on the source by its last checkpoint. None: there is no checkpoint."""
    checkpoint_at_ms: int | None = None
    """When the worker looked up that commit, by its clock. A group that commits nothing new gets no new checkpoint."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupReport:
    """One consumer group."""

    group: str
    """Its id."""
    state: str
    """On the source, in Kafka's word. Empty text: the source does not answer."""
    state_on_target: str
    """On the target. Empty text: there is no such group."""
    lag: int | None
    """The sum over its partitions; None if one is not known."""
    reads_again_at_most: int | None
    """The sum over its partitions; None if one is not known."""
    ready: bool
    """It can continue on the target, in all topics that the flow copies."""
    why: str
    """Why it is not ready; empty if it is."""
    partitions: tuple[PartitionReport, ...]
    is_exact: bool
    """In each partition it continues at the exact record."""
    note: str
    """The first of its partitions' notes; else ``refused``, if the group waits for nothing; empty if there is none."""
    refused: str
    """Why mm2py may not commit for it on the target, or not read its commits there; empty if it may."""
    left_out: tuple[str, ...] = ()
    """Other topics of the source in which it has committed, and which the flow does not copy. If the source does not
    answer, they are not known."""
    follows: bool = False
    """It has members on the source, and could go on at its last checkpoint. Whether that covers its newest commit, and
    so ``ready``, changes from one checkpoint to the next."""


@dataclass(frozen=True, slots=True)
class NotReady:
    """A group that cannot continue on the target, and why."""

    group: str
    """Its id."""
    why: str
    """What it waits for."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupsReport:
    """All consumer groups of a flow, in short."""

    count: int
    """How many there are."""
    ready: int
    """How many could continue on the target now."""
    exact: int
    """How many continue at the exact record in each partition."""
    is_synced: bool
    """Their offsets are committed on the target."""
    not_ready: tuple[NotReady, ...]
    """The first few; those that only wait for their next checkpoint while they run come last."""
    reads_again_at_most: int | None
    """The most records that one group would read again; None: not known for any group."""
    reads_most_again: str
    """The group that would read the most records again; empty if not known for any group."""
    partly: int = 0
    """How many of those that are ready have also committed in topics that the flow does not copy."""
    following: int = 0
    """How many have members on the source, and could go on at their last checkpoint."""
    following_late: int = 0
    """How many of these are not ready, as their newest commit is in no checkpoint yet."""


def report_of(facts: ConsumerGroupsFacts) -> list[ConsumerGroupReport]:
    """Return the report of each group: those that are not ready first, then by name."""
    found = [_group_report(group, facts) for group in facts.groups]
    return sorted(found, key=lambda one: (one.ready, one.group))


def in_short(reports: Sequence[ConsumerGroupReport], *, is_synced: bool) -> ConsumerGroupsReport:
    """Return the summary of its groups that the status of a flow shows."""
    waiting = sorted((one for one in reports if not one.ready), key=lambda one: one.follows)
    known = [(one.reads_again_at_most, one.group) for one in reports if one.reads_again_at_most is not None]
    again, reads_most_again = max(known, default=(None, ""), key=lambda each: each[0] or 0)
    return ConsumerGroupsReport(
        len(reports),
        len(reports) - len(waiting),
        sum(one.is_exact for one in reports),
        is_synced,
        tuple(NotReady(one.group, one.why) for one in waiting[:NOT_READY_MOST]),
        again,
        reads_most_again,
        sum(one.ready and bool(one.left_out) for one in reports),
        sum(one.follows for one in reports),
        sum(one.follows for one in waiting),
    )


def _group_report(group: ConsumerGroupFacts, facts: ConsumerGroupsFacts) -> ConsumerGroupReport:
    partitions = tuple(_partition_report(group, key, facts) for key in sorted(group.committed))
    target = group.target
    moved = why_not_moved(*(None, "") if target is None else (target.state, target.protocol_type)) or ""
    why = moved
    waiting = [one for one in partitions if one.waits_for]
    if not why and any(one.waits_for == group.refused for one in waiting):
        why = group.refused
    elif not why and waiting:
        first = waiting[0]
        more = f", and {len(waiting) - 1} more partition(s) wait" if len(waiting) > 1 else ""
        why = f"{first.topic}-{first.partition}: {first.waits_for}{more}"
    runs = group.source is not None and group.source.state not in STOPPED
    noted = [one for one in partitions if one.note]
    more = f", and {len(noted) - 1} more partition(s)" if len(noted) > 1 else ""
    note = f"{noted[0].topic}-{noted[0].partition}: {noted[0].note}{more}" if noted else group.refused
    return ConsumerGroupReport(
        group.group,
        "" if group.source is None else group.source.state,
        "" if target is None else target.state,
        _sum(one.lag for one in partitions),
        _sum(one.reads_again_at_most for one in partitions),
        not why,
        why,
        partitions,
        all(one.is_exact for one in partitions),
        note,
        group.refused,
        group.left_out,
        runs and not moved and all(map(_goes_on_at_its_checkpoint, partitions)),
    )


def _goes_on_at_its_checkpoint(one: PartitionReport) -> bool:
    """Whether a group could go on at its last checkpoint, and skips nothing."""
    is_due = one.waits_for == NEXT_CHECKPOINT and one.reads_again_at_most is not None
    return one.goes_on_at is not None and (not one.waits_for or is_due)


def _partition_report(group: ConsumerGroupFacts, key: TopicPartition, facts: ConsumerGroupsFacts) -> PartitionReport:
    commit, remote, end = group.committed[key], facts.remote[key], facts.ends.get(key)
    checkpoint = facts.checkpoints.get((group.group, remote))
    on_target = group.committed_on_target.get(remote)
    there = None if on_target is None else on_target.offset
    ledger = facts.ledgers.get(key, PartitionLedger())
    translated = forward(ledger, facts.syncs, key, commit.offset)
    again, basis = None, Basis.NOTHING
    waits_for = note = ""
    alone = facts.is_target_alone
    start = facts.remote_starts.get(remote, 0)
    if translated.offset is not None and translated.offset < start:
        note = f"the target has deleted the copies before offset {start}"
        translated = translated._replace(offset=start, is_exact=False)
    at = None if checkpoint is None else max(checkpoint.downstream_offset, start)  # as group sync commits it
    skips = any(one is not None and _is_ahead(one, translated) for one in (at, there))
    if why := facts.stale.get(key, ""):
        waits_for, note = why, ""
    elif at is None or (not alone and translated.offset is not None and at < translated.offset):
        waits_for = _why_no_checkpoint(translated, key, facts)
    elif _is_ahead(at, translated):
        waits_for = NEXT_CHECKPOINT
    elif there is not None and _is_ahead(there, translated):
        waits_for = TARGET_AHEAD
    elif facts.is_synced and (there is None or there < at):
        waits_for = group.refused or NOT_COMMITTED
    if checkpoint is not None and at is not None and not (skips or note or why):
        again, basis = _reads_again(ledger, facts.syncs, key, commit.offset, checkpoint.upstream_offset, at)
    if not (waits_for or note or alone) and translated.offset is None and translated.kind is AnswerKind.NOT_YET:
        note = NOT_THERE
    return PartitionReport(
        key[0],
        key[1],
        None if alone else commit.offset,
        None if end is None else max(0, end - commit.offset),
        remote[0],
        None if checkpoint is None else checkpoint.downstream_offset,
        None if alone else again,
        there,
        waits_for,
        again == 0,
        str(basis),
        note,
        None if checkpoint is None else checkpoint.upstream_offset,
        facts.checkpoints_at_ms.get((group.group, remote)),
    )


def _is_ahead(target_offset: int, translated: Translation) -> bool:
    """Return whether a group that continues at an offset skips records, by the ledger. Holes prove nothing."""
    if translated.offset is None or translated.basis is not Basis.LEDGER or translated.kind in _HOLES:
        return False
    return target_offset > translated.offset


def _reads_again(
    ledger: PartitionLedger, syncs: SyncStore | None, key: TopicPartition, committed: int, upstream: int, at: int
) -> tuple[int | None, Basis]:
    """Return how many records a group that continues at ``at`` would read twice, and how that is known.

    Args:
        upstream: the source offset that its checkpoint translates.
    """
    there = ledger.forward(committed)
    if there.offset is not None and there.is_exact:
        return max(0, there.offset - at), Basis.LEDGER
    back = ledger.reverse(at)
    if back.offset is not None:
        return max(0, committed - back.offset), Basis.LEDGER
    pairs = [] if syncs is None else syncs.syncs(key)
    known = [synced for synced, _ in pairs if synced <= upstream]
    return (max(0, committed - known[0] - 1), Basis.OFFSET_SYNCS) if known else (None, Basis.NOTHING)


def _why_no_checkpoint(translated: Translation, key: TopicPartition, facts: ConsumerGroupsFacts) -> str:
    if translated.offset is not None:
        return NEXT_CHECKPOINT
    if translated.kind is AnswerKind.NOT_YET:
        return NOT_THERE
    if facts.syncs is not None and facts.syncs.syncs(key):
        return "it has committed an offset before the oldest offset sync"
    if key in facts.ledgers and facts.ledgers[key].ledgers:
        return "it has committed an offset before the ledger"
    return "nothing of it is known to be copied"


def _sum(numbers: Iterable[int | None]) -> int | None:
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total
