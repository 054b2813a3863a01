"""A replica's state of the producers of one partition: which may write, and which sequence comes next.

Every replica keeps its own table: each forgets by its own clock, and a restart of one affects only its own table. The
rules are those of Kafka 4.3; docs/broker-facts.md names the surprising ones (C1, H1, H2).
Source: ProducerAppendInfo, ProducerStateManager, ProducerStateEntry, Apache Kafka, storage/.../internals/log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from kio.schema.errors import ErrorCode

from tests.fakes.broker.record_batch import SEQUENCES, Batch, read_marker

CACHED_BATCHES: Final = 5
NO_EPOCH: Final = -1
NO_SEQUENCE: Final = -1


class Refused(Exception):
    """The broker answers this error for the partition, and stores nothing.

    ``at_the_door``: the batch was refused before the log was read, so the answer lacks the log's start.
    """

    def __init__(self, code: ErrorCode, message: str, *, at_the_door: bool = False) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
        self.at_the_door = at_the_door


@dataclass(frozen=True, slots=True)
class CachedBatch:
    """One of a producer's last batches, by which a resent one is recognised."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    max_timestamp: int


@dataclass(slots=True)
class Producer:
    """One producer id in one partition."""

    epoch: int = NO_EPOCH
    batches: deque[CachedBatch] = field(default_factory=lambda: deque(maxlen=CACHED_BATCHES))
    last_timestamp: int = -1
    transaction_first_offset: int | None = None
    coordinator_epoch: int = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def enter_epoch(self, epoch: int) -> None:
        if self.epoch != epoch:
            self.batches.clear()
            self.epoch = epoch


class ProducerTable:
    """The producers of one partition as one replica knows them.

    Args:
        expiration_ms: ``producer.id.expiration.ms``.
        check_interval_ms: ``producer.id.expiration.check.interval.ms``; the first check is so much after ``since_ms``.
    """

    def __init__(self, *, expiration_ms: int, check_interval_ms: int, since_ms: int) -> None:
        self.expiration_ms = expiration_ms
        self.check_interval_ms = check_interval_ms
        self.producers: dict[int, Producer] = {}
        self.expired = 0
        """Producers that have expired."""
        self._since_ms = since_ms
        self._last_tick = 0

    def check(self, batch: Batch) -> CachedBatch | None:
        """Check a client's batch before it is stored; the table does not change.

        Returns:
            The stored batch, if this batch was sent again; else None.
        Raises:
            Refused: with the error that the broker answers.
        """
        if batch.producer_id < 0:
            return None
        known = self.producers.get(batch.producer_id)
        if known is None:
            return None  # without state any first sequence is accepted (docs/broker-facts.md#h2)
        if known.epoch == batch.producer_epoch:
            for cached in known.batches:
                if (cached.first_sequence, cached.last_sequence) == (batch.base_sequence, batch.last_sequence):
                    return cached
        if batch.producer_epoch < known.epoch:
            raise Refused(
                ErrorCode.invalid_producer_epoch,
                f"Epoch of producer {batch.producer_id} is {batch.producer_epoch}, which is smaller than the last seen "
                f"epoch {known.epoch}",
            )
        if batch.producer_epoch != known.epoch:
            if batch.base_sequence != 0 and known.epoch != NO_EPOCH:
                raise Refused(
                    ErrorCode.out_of_order_sequence_number,
                    f"Invalid sequence number for new epoch of producer {batch.producer_id}: {batch.base_sequence}",
                )
        elif known.epoch != NO_EPOCH and batch.base_sequence != (known.last_sequence + 1) % SEQUENCES:
            raise Refused(
                ErrorCode.out_of_order_sequence_number,
                f"Out of order sequence number for producer {batch.producer_id}: {batch.base_sequence} (incoming), "
                f"{known.last_sequence} (current)",
            )
        if known.transaction_first_offset is not None and not batch.transactional:
            raise Refused(
                ErrorCode.invalid_txn_state, f"Expected transactional write from producer {batch.producer_id}"
            )
        return None

    def check_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
        """Check a marker before it is stored; equal epochs are allowed (docs/broker-facts.md#m1).

        Raises:
            Refused: the partition has seen a higher epoch, of the producer or of its coordinator.
        """
        known = self.producers.get(producer_id)
        if known is None:
            return
        if producer_epoch < known.epoch:
            raise Refused(ErrorCode.invalid_producer_epoch, f"marker of epoch {producer_epoch}, seen is {known.epoch}")
        if coordinator_epoch < known.coordinator_epoch:
            raise Refused(
                ErrorCode.transaction_coordinator_fenced,
                f"marker of coordinator epoch {coordinator_epoch}, seen is {known.coordinator_epoch}",
            )

    def learn(self, batch: Batch) -> None:
        """Update the table with a stored batch, the leader's own or a replicated one."""
        if batch.producer_id < 0:
            return
        if batch.control:
            marker = read_marker(batch)
            if marker is None:
                return
            producer = self.producers.setdefault(batch.producer_id, Producer())
            producer.enter_epoch(batch.producer_epoch)
            producer.last_timestamp = batch.max_timestamp
            producer.transaction_first_offset = None
            producer.coordinator_epoch = marker[1]
            return
        producer = self.producers.setdefault(batch.producer_id, Producer())
        producer.enter_epoch(batch.producer_epoch)
        producer.batches.append(
            CachedBatch(
                first_sequence=batch.base_sequence,
                last_sequence=batch.last_sequence,
                first_offset=batch.base_offset,
                last_offset=batch.last_offset,
                max_timestamp=batch.max_timestamp,
            )
        )
        producer.last_timestamp = batch.max_timestamp
        if batch.transactional and producer.transaction_first_offset is None:
            producer.transaction_first_offset = batch.base_offset

    def tick(self, now_ms: int) -> None:
        """Remove the producers that the periodic check would have removed by now, by the times of their *records*."""
        ticks = (now_ms - self._since_ms) // self.check_interval_ms
        if ticks != self._last_tick:
            self._last_tick = ticks
            self._drop_expired(self._since_ms + ticks * self.check_interval_ms)

    def reload(self, now_ms: int) -> None:
        """Apply a restart: the snapshot has only each producer's last batch, and no expired producer."""
        self._drop_expired(now_ms)
        for producer in self.producers.values():
            while len(producer.batches) > 1:
                producer.batches.popleft()

    def rebuild(self, batches: Iterable[Batch]) -> None:
        """Rebuild the table from the log alone, as after a truncation."""
        self.producers.clear()
        for batch in batches:
            self.learn(batch)

    def _drop_expired(self, at_ms: int) -> None:
        before = len(self.producers)
        self.producers = {
            producer_id: producer
            for producer_id, producer in self.producers.items()
            if producer.transaction_first_offset is not None or at_ms - producer.last_timestamp < self.expiration_ms
        }
        self.expired += before - len(self.producers)
