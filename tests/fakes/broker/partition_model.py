"""One partition with its replicas: which one leads, which are in sync, and how far each has copied.

The model has one log, the leader's. A follower has an offset up to which it has copied that log, a high watermark, and
a producer table of its own. If it is elected, the log is truncated to its offset. So an answered record is on every
replica in sync, and an unanswered record may vanish with its leader, as on a real cluster.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from tests.fakes.broker.log_model import PartitionLog
from tests.fakes.broker.produce_rules import accept
from tests.fakes.broker.producer_state import ProducerTable, Refused
from tests.fakes.broker.record_batch import Batch, build_marker, parse_batch, rewrite
from tests.fakes.broker.topic_config import TopicConfig

NO_LEADER = -1


@dataclass(slots=True)
class Replica:
    """One broker's copy of the log."""

    table: ProducerTable
    end_offset: int = 0
    high_watermark: int = 0
    diverged: bool = False
    """Its log was truncated: the producer table no longer matches the log."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Where a produced batch was stored."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Leadership:
    """The leader from a certain time on. Answers to metadata requests use the leader of a little earlier."""

    since_s: float
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]


@dataclass(slots=True)
class Partition:
    """The partition. ``watchers`` are called after each change that a waiting request could wait for."""

    topic: str
    topic_id: uuid.UUID
    index: int
    replicas: dict[int, Replica]
    leader: int
    isr: list[int]
    leader_epoch: int = 0
    log: PartitionLog = field(default_factory=PartitionLog)
    history: list[Leadership] = field(default_factory=list)
    watchers: dict[int, Callable[[], None]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def high_watermark(self) -> int:
        if self.leader == NO_LEADER:
            return max(replica.high_watermark for replica in self.replicas.values())
        return self.replicas[self.leader].high_watermark

    @property
    def epoch_start_offset(self) -> int:
        """The offset at which the present leader's epoch started."""
        return self.log.epochs[-1][1] if self.log.epochs else 0

    def obey(self, config: TopicConfig) -> None:
        """Apply the topic's settings about segments."""
        self.log.segment_bytes, self.log.segment_ms = config.segment_bytes, config.segment_ms

    def notify(self) -> None:
        for watcher in list(self.watchers.values()):
            watcher()

    def append_from_client(
        self, data: bytes | bytearray | memoryview, config: TopicConfig, *, now_ms: int
    ) -> tuple[Stored, Batch | None]:
        """Store a produced batch on the leader, unless it is stored already; then the batch returned is None.

        Raises:
            Refused: with the error that the broker answers; nothing was stored.
        """
        if len(self.isr) < config.min_insync_replicas:
            raise Refused(
                ErrorCode.not_enough_replicas,
                f"The size of the current ISR {self.isr} is insufficient to satisfy the min.isr requirement of "
                f"{config.min_insync_replicas} for partition {self}",
            )
        batch = accept(data, config, now_ms=now_ms)
        table = self.replicas[self.leader].table
        table.tick(now_ms)
        self.log.roll_for(batch)  # before the producer is checked: a resent batch may start a new segment
        duplicate = table.check(batch)
        if duplicate is not None:
            return Stored(duplicate.first_offset, duplicate.last_offset, duplicate.max_timestamp, duplicate=True), None
        stored = self.append_as_leader(batch)
        time_ms = stored.max_timestamp if stored.log_append_time else -1
        return Stored(stored.base_offset, stored.last_offset, time_ms), stored

    def append_as_leader(self, batch: Batch) -> Batch:
        """Append a batch to the leader's log without a check; followers lack it until ``replicate``."""
        placed = rewrite(batch, base_offset=self.log.end_offset, partition_leader_epoch=self.leader_epoch)
        self.log.append(placed)
        leader = self.replicas[self.leader]
        leader.table.learn(placed)
        leader.end_offset = self.log.end_offset
        if self.isr == [self.leader]:
            leader.high_watermark = leader.end_offset
            self.notify()
        return placed

    def append_marker(
        self, *, commit: bool, producer_id: int, producer_epoch: int, now_ms: int, coordinator_epoch: int = 0
    ) -> int:
        """Store the end of a transaction and return its offset.

        Raises:
            Refused: the partition has seen a higher epoch of this producer, or of its coordinator.
        """
        table = self.replicas[self.leader].table
        table.tick(now_ms)
        table.check_marker(producer_id, producer_epoch, coordinator_epoch)
        raw = build_marker(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp_ms=now_ms,
            coordinator_epoch=coordinator_epoch,
        )
        return self.append_as_leader(parse_batch(raw)).base_offset

    def replicate(self, alive: Sequence[int], *, now_ms: int) -> bool:
        """Let the living followers in sync copy what they lack; return whether the high watermark moved.

        Followers learn a new high watermark one round later. A follower out of sync copies nothing until ``catch_up``.
        """
        if self.leader == NO_LEADER:
            return False
        leader = self.replicas[self.leader]
        known = [replica.high_watermark for replica in self.replicas.values()]
        for node in self.isr:
            if node != self.leader and node in alive:
                self.catch_up(node, now_ms=now_ms)
        high_watermark = min(self.replicas[node].end_offset for node in self.isr)
        moved = high_watermark > leader.high_watermark
        leader.high_watermark = max(leader.high_watermark, high_watermark)
        if known != [replica.high_watermark for replica in self.replicas.values()]:
            self.notify()
        return moved

    def catch_up(self, node: int, *, now_ms: int) -> None:
        """Let one follower copy everything that it lacks."""
        replica = self.replicas[node]
        replica.table.tick(now_ms)
        if replica.diverged:
            replica.diverged = False
            replica.table.rebuild(self.log.batches)
        else:
            for batch in self.log.from_offset(replica.end_offset, self.log.end_offset):
                replica.table.learn(batch)
        replica.end_offset = self.log.end_offset
        replica.high_watermark = min(self.replicas[self.leader].high_watermark, replica.end_offset)

    def settle(self, alive: Sequence[int], *, now_ms: int) -> None:
        """Replicate at once until all replicas are equal."""
        self.replicate(alive, now_ms=now_ms)
        self.replicate(alive, now_ms=now_ms)
        self.notify()

    def elect(self, leader: int, isr: Sequence[int], *, now_s: float) -> None:
        """Make ``leader`` lead in a new epoch, or none with ``NO_LEADER``; the log is truncated to its offset."""
        self.leader = leader
        self.isr = list(isr)
        self.leader_epoch += 1
        if leader != NO_LEADER:
            elected = self.replicas[leader]
            self._cut_to(elected.end_offset)
            if elected.diverged:
                elected.diverged = False
                elected.table.rebuild(self.log.batches)
            self.log.assign_epoch(self.leader_epoch, self.log.end_offset)
            if self.isr == [leader]:
                elected.high_watermark = elected.end_offset
        self.remember(now_s)
        self.notify()

    def set_isr(self, isr: Sequence[int], *, now_s: float) -> None:
        """Change the replicas in sync without a new leader epoch."""
        self.isr = list(isr)
        if self.isr == [self.leader]:
            leader = self.replicas[self.leader]
            leader.high_watermark = leader.end_offset
        self.remember(now_s)
        self.notify()

    def truncate(self, offset: int) -> None:
        """Lose the end of the log on every replica, answered or not, as an unclean election does."""
        self.log.truncate_to(offset)
        end_offset = self.log.end_offset
        for replica in self.replicas.values():
            replica.end_offset = end_offset
            replica.high_watermark = min(replica.high_watermark, end_offset)
            replica.diverged = False
            replica.table.rebuild(self.log.batches)

    def remember(self, now_s: float) -> None:
        self.history.append(Leadership(now_s, self.leader, self.leader_epoch, tuple(self.isr)))

    def as_of(self, at_s: float) -> Leadership:
        """Return the leader at a time; before the first entry, the first leader."""
        for leadership in reversed(self.history):
            if leadership.since_s <= at_s:
                return leadership
        return self.history[0]

    def _cut_to(self, offset: int) -> None:
        if offset >= self.log.end_offset:
            return
        self.log.truncate_to(offset)
        for replica in self.replicas.values():
            if replica.end_offset > self.log.end_offset:
                replica.end_offset = self.log.end_offset
                replica.high_watermark = min(replica.high_watermark, replica.end_offset)
                replica.diverged = True
