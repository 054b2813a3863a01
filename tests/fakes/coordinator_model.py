"""Transactional ids: who owns one, in which epoch, and which partitions an open transaction has.

One coordinator stands for the whole cluster's; the model decides at which broker it is found.
Source: TransactionCoordinator.handleInitProducerId, TransactionMetadata, Apache Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from tests.fakes.producer_state import NO_EPOCH, Refused

_LAST_EPOCH = (1 << 15) - 2
"""From here on the coordinator gives out a new producer id instead of a higher epoch (C2)."""


@dataclass(slots=True)
class TransactionalId:
    """What the coordinator keeps of one transactional id. Times in milliseconds."""

    producer_id: int
    updated_at_ms: int
    producer_epoch: int = NO_EPOCH
    last_producer_id: int = -1
    last_producer_epoch: int = NO_EPOCH
    ongoing: dict[tuple[str, int], None] = field(default_factory=dict)
    """(topic, partition) of the open transaction, in the order they were added."""


class Coordinator:
    """Gives out producer ids and epochs. Raises ``Refused`` with the code the broker answers."""

    def __init__(self, *, first_producer_id: int, expiration_ms: int) -> None:
        self.transactional_ids: dict[str, TransactionalId] = {}
        self._next_producer_id = first_producer_id
        self._expiration_ms = expiration_ms

    def new_producer_id(self) -> int:
        self._next_producer_id += 1
        return self._next_producer_id - 1

    def init_producer_id(
        self, transactional_id: str | None, *, expected: tuple[int, int] | None, now_ms: int
    ) -> tuple[int, int]:
        """Return (producer id, epoch).

        Args:
            expected: the (producer id, epoch) the caller believes to have; a fenced one is refused by it (H3).
        Raises:
            Refused: fenced, or an open transaction has to be ended first (see ``ongoing``).
        """
        if transactional_id is None:
            return self.new_producer_id(), 0
        if not transactional_id:
            raise Refused(ErrorCode.invalid_request, "An empty transactional id")
        known = self.lookup(transactional_id, now_ms=now_ms)
        if known is None:
            known = TransactionalId(self.new_producer_id(), now_ms)
            self.transactional_ids[transactional_id] = known
        _check_expected(known, expected)
        exhausted = known.producer_epoch >= _LAST_EPOCH
        if exhausted and (expected is None or expected[1] == known.producer_epoch):
            known.last_producer_id = known.producer_id
            known.last_producer_epoch = known.producer_epoch if expected is not None else NO_EPOCH
            known.producer_id = self.new_producer_id()
            known.producer_epoch = 0
        elif expected is not None and _is_retry(known, expected):
            pass  # the answer to the first call was lost: it gets the same again
        else:
            known.last_producer_epoch = NO_EPOCH if expected is None else known.producer_epoch
            known.producer_epoch += 1
        known.updated_at_ms = now_ms
        return known.producer_id, known.producer_epoch

    def lookup(self, transactional_id: str, *, now_ms: int) -> TransactionalId | None:
        """Return what is known of an id; one that was not used for long is forgotten, its owner alive or not (C2)."""
        known = self.transactional_ids.get(transactional_id)
        if known is not None and not known.ongoing and now_ms - known.updated_at_ms >= self._expiration_ms:
            del self.transactional_ids[transactional_id]
            return None
        return known


def _check_expected(known: TransactionalId, expected: tuple[int, int] | None) -> None:
    if expected is None or known.producer_epoch == NO_EPOCH:
        return
    producer_id, epoch = expected
    same_id = known.producer_id == producer_id
    rotated = known.last_producer_id == producer_id and epoch >= _LAST_EPOCH
    fitting = epoch in (known.producer_epoch, known.last_producer_epoch)
    if not (same_id or rotated) or not fitting:
        raise Refused(ErrorCode.producer_fenced, f"{known.producer_id} is in epoch {known.producer_epoch}")


def _is_retry(known: TransactionalId, expected: tuple[int, int]) -> bool:
    return (
        known.producer_epoch != NO_EPOCH
        and expected[1] != known.producer_epoch
        and expected[1] == known.last_producer_epoch
    )
