"""What is told of the consumer groups of a flow: how far each is behind, where it would go on, and what forbids that.
Pure.

MirrorMaker 2 tells an application where it may go on, if it asks with Java's RemoteClusterUtils, and tells an operator
nothing. Lag is counted in offsets, so it includes markers of transactions and records that compaction has removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mm2py.kafka.consumer_groups import Commits, ListedGroup
from mm2py.kafka.port import TopicPartition
from mm2py.offsets.group_sync import why_not_moved
from mm2py.offsets.sync_store import BEFORE_OLDEST, SyncStore
from mm2py.records.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class ConsumerGroupFacts:
    """What both clusters say of one consumer group."""

    source: ListedGroup
    target: ListedGroup | None
    """None: there is no such group."""
    committed: Commits
    """On the source, of topics that the flow copies."""
    committed_on_target: Commits


@dataclass(frozen=True, slots=True)
class ConsumerGroupsFacts:
    """What both clusters say of the consumer groups of one flow."""

    groups: Sequence[ConsumerGroupFacts]
    remote: Mapping[TopicPartition, TopicPartition]
    """The remote partition of each source partition that a group has a commit in."""
    ends: Mapping[TopicPartition, int]
    """Where source partitions end, as far as they tell."""
    syncs: SyncStore
    checkpoints: Mapping[tuple[str, TopicPartition], Checkpoint]
    is_synced: bool
    """``sync.group.offsets.enabled``."""


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """One group in one partition. Offsets are the next ones to read."""

    topic: str
    partition: int
    committed: int
    lag: int | None
    """None: the end of the source partition is not known."""
    remote_topic: str
    goes_on_at: int | None
    """Where it would go on on the target; None: no checkpoint tells."""
    reads_again_at_most: int | None
    """How many records it would read twice, at most. 0: it goes on at the exact record. None: not known."""
    committed_on_target: int | None
    waits_for: str
    """What is missing before the group can go on there; empty if nothing is."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupReport:
    """One consumer group."""

    group: str
    state: str
    """On the source, in Kafka's word."""
    state_on_target: str
    """Empty text: there is no such group."""
    lag: int | None
    """The sum over its partitions; None if one is not known."""
    reads_again_at_most: int | None
    """The same of ``PartitionReport``."""
    ready: bool
    """It can go on on the target."""
    why: str
    """Why it is not ready; empty if it is."""
    partitions: tuple[PartitionReport, ...]


def report_of(facts: ConsumerGroupsFacts) -> list[ConsumerGroupReport]:
    """Return the report of each group: those that are not ready first, then by name."""
    found = [_group_report(group, facts) for group in facts.groups]
    return sorted(found, key=lambda one: (one.ready, one.group))


def _group_report(group: ConsumerGroupFacts, facts: ConsumerGroupsFacts) -> ConsumerGroupReport:
    partitions = tuple(_partition_report(group, key, facts) for key in sorted(group.committed))
    target = group.target
    why = why_not_moved(*(None, "") if target is None else (target.state, target.protocol_type)) or ""
    waiting = [one for one in partitions if one.waits_for]
    if not why and waiting:
        first = waiting[0]
        more = f", and {len(waiting) - 1} more partition(s) wait" if len(waiting) > 1 else ""
        why = f"{first.topic}-{first.partition}: {first.waits_for}{more}"
    return ConsumerGroupReport(
        group.source.group,
        group.source.state,
        "" if target is None else target.state,
        _sum(one.lag for one in partitions),
        _sum(one.reads_again_at_most for one in partitions),
        not why,
        why,
        partitions,
    )


def _partition_report(group: ConsumerGroupFacts, key: TopicPartition, facts: ConsumerGroupsFacts) -> PartitionReport:
    commit, remote, end = group.committed[key], facts.remote[key], facts.ends.get(key)
    checkpoint = facts.checkpoints.get((group.source.group, remote))
    on_target = group.committed_on_target.get(remote)
    translated = facts.syncs.translate(key, commit.offset)
    again = None
    waits_for = ""
    if checkpoint is None or (translated is not None and checkpoint.downstream_offset < translated):
        waits_for = _why_no_checkpoint(translated)
    elif facts.is_synced and (on_target is None or on_target.offset < checkpoint.downstream_offset):
        waits_for = "not committed on the target yet"
    if checkpoint is not None:
        known = [upstream for upstream, _ in facts.syncs.syncs(key) if upstream <= checkpoint.upstream_offset]
        again = None if not known else max(0, commit.offset - known[0] - 1)
    return PartitionReport(
        key[0],
        key[1],
        commit.offset,
        None if end is None else max(0, end - commit.offset),
        remote[0],
        None if checkpoint is None else checkpoint.downstream_offset,
        again,
        None if on_target is None else on_target.offset,
        waits_for,
    )


def _why_no_checkpoint(translated: int | None) -> str:
    if translated is None:
        return "nothing of it is known to be copied"
    if translated == BEFORE_OLDEST:
        return "it has committed an offset before the oldest offset sync"
    return "its next checkpoint is not emitted yet"


def _sum(numbers: Iterable[int | None]) -> int | None:
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total
