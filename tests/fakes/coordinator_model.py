"""Transactional ids: who owns one, in which epoch, and which partitions an open transaction has.

One coordinator stands for the whole cluster's; the model decides at which broker it is found.
Only transactions that are aborted are known, and a coordinator's epoch is 0 for ever.
Source: TransactionCoordinator, TransactionMetadata, Apache Kafka 4.3.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from tests.fakes.producer_state import NO_EPOCH, Refused

_LAST_EPOCH = (1 << 15) - 2
"""From here on the coordinator gives out a new producer id instead of a higher epoch (C2)."""


class TransactionState(enum.Enum):
    """Where a transactional id's present transaction stands; the values are Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_ABORT = "PrepareAbort"
    """Its markers are being written, which may go on without end."""
    COMPLETE_ABORT = "CompleteAbort"


@dataclass(slots=True)
class TransactionalId:
    """What the coordinator keeps of one transactional id. Times in milliseconds."""

    producer_id: int
    updated_at_ms: int
    producer_epoch: int = NO_EPOCH
    last_producer_id: int = -1
    last_producer_epoch: int = NO_EPOCH
    state: TransactionState = TransactionState.EMPTY
    timeout_ms: int = 60_000
    started_at_ms: int = -1
    partitions: dict[tuple[str, int], None] = field(default_factory=dict)
    """(topic, partition) of the open transaction, in the order they were added; while it is being ended, those without
    a marker."""

    @property
    def is_decided(self) -> bool:
        return self.state in {TransactionState.EMPTY, TransactionState.COMPLETE_ABORT}

    def fence(self, now_ms: int) -> None:
        """Begin to abort the open transaction in the coordinator's own name, which raises the epoch.

        The old epoch becomes the last one: its owner, if he asks with it, is given the new one like a lost answer.
        """
        self.last_producer_epoch = self.producer_epoch
        self.producer_epoch += 1
        self.state, self.updated_at_ms = TransactionState.PREPARE_ABORT, now_ms

    def complete(self, now_ms: int) -> None:
        self.state, self.updated_at_ms = TransactionState.COMPLETE_ABORT, now_ms


class Coordinator:
    """Gives out producer ids and epochs. Raises ``Refused`` with the code the broker answers."""

    def __init__(self, *, first_producer_id: int, expiration_ms: int) -> None:
        self.transactional_ids: dict[str, TransactionalId] = {}
        self.expired = 0
        """Transactional ids that were forgotten for their age."""
        self._next_producer_id = first_producer_id
        self._expiration_ms = expiration_ms

    def new_producer_id(self) -> int:
        self._next_producer_id += 1
        return self._next_producer_id - 1

    def init_producer_id(
        self,
        transactional_id: str | None,
        *,
        expected: tuple[int, int] | None,
        now_ms: int,
        timeout_ms: int = 60_000,
    ) -> tuple[int, int]:
        """Return (producer id, epoch).

        Args:
            expected: the (producer id, epoch) the caller believes to have; a fenced one is refused by it (H3), unless a
                transaction is open: then the epoch is not looked at.
            timeout_ms: how long this owner's transactions may stay open.
        Raises:
            Refused: fenced; or CONCURRENT_TRANSACTIONS, and an open transaction is PREPARE_ABORT from now on.
        """
        if transactional_id is None:
            return self.new_producer_id(), 0
        if not transactional_id:
            raise Refused(ErrorCode.invalid_request, "An empty transactional id")
        known = self.lookup(transactional_id, now_ms=now_ms)
        if known is None:
            known = TransactionalId(self.new_producer_id(), now_ms)
            self.transactional_ids[transactional_id] = known
        _check_expected_id(known, expected)
        if known.state is TransactionState.ONGOING:
            known.fence(now_ms)
        if known.state is TransactionState.PREPARE_ABORT:
            raise Refused(ErrorCode.concurrent_transactions, f"{transactional_id} has an open transaction")
        _check_expected_epoch(known, expected)
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
        known.updated_at_ms, known.timeout_ms = now_ms, timeout_ms
        known.state, known.started_at_ms = TransactionState.EMPTY, -1
        return known.producer_id, known.producer_epoch

    def add_partitions(
        self, transactional_id: str, owner: tuple[int, int], partitions: Iterable[tuple[str, int]], *, now_ms: int
    ) -> bool:
        """Add partitions to the transaction of ``owner`` = (producer id, epoch); return whether it has just begun.

        Raises:
            Refused: fenced, unknown, or the transaction before is not over.
        """
        known = self._owned(transactional_id, owner, now_ms=now_ms)
        if known.state is TransactionState.PREPARE_ABORT:
            raise Refused(ErrorCode.concurrent_transactions, f"{transactional_id} is being aborted")
        begins = known.state is not TransactionState.ONGOING
        if begins:
            known.state, known.started_at_ms = TransactionState.ONGOING, now_ms
        known.partitions.update(dict.fromkeys(partitions))
        known.updated_at_ms = now_ms
        return begins

    def end(self, transactional_id: str, owner: tuple[int, int], *, now_ms: int) -> bool:
        """Abort, and keep the epoch as EndTxn below version 5 does; return whether markers are to be written.

        Raises:
            Refused: fenced, unknown, no transaction was begun, or it is being aborted already.
        """
        known = self._owned(transactional_id, owner, now_ms=now_ms)
        match known.state:
            case TransactionState.EMPTY:
                raise Refused(ErrorCode.invalid_txn_state, f"{transactional_id} has no transaction")
            case TransactionState.PREPARE_ABORT:
                raise Refused(ErrorCode.concurrent_transactions, f"{transactional_id} is being aborted")
            case TransactionState.COMPLETE_ABORT:
                return False
            case TransactionState.ONGOING:
                known.state, known.updated_at_ms = TransactionState.PREPARE_ABORT, now_ms
                return True

    def _owned(self, transactional_id: str, owner: tuple[int, int], *, now_ms: int) -> TransactionalId:
        if not transactional_id:
            raise Refused(ErrorCode.invalid_request, "An empty transactional id")
        known = self.lookup(transactional_id, now_ms=now_ms)
        if known is None or known.producer_id != owner[0]:
            raise Refused(ErrorCode.invalid_producer_id_mapping, f"{owner[0]} is not {transactional_id}")
        if known.producer_epoch != owner[1]:
            raise Refused(ErrorCode.producer_fenced, f"{known.producer_id} is in epoch {known.producer_epoch}")
        return known

    def lookup(self, transactional_id: str, *, now_ms: int) -> TransactionalId | None:
        """Return what is known of an id; one that was not used for long is forgotten, its owner alive or not (C2)."""
        known = self.transactional_ids.get(transactional_id)
        if known is not None and known.is_decided and now_ms - known.updated_at_ms >= self._expiration_ms:
            del self.transactional_ids[transactional_id]
            self.expired += 1
            return None
        return known


def _check_expected_id(known: TransactionalId, expected: tuple[int, int] | None) -> None:
    if expected is None or known.producer_epoch == NO_EPOCH:
        return
    producer_id, epoch = expected
    if known.producer_id != producer_id and (known.last_producer_id != producer_id or epoch < _LAST_EPOCH):
        raise Refused(ErrorCode.producer_fenced, f"The producer id is {known.producer_id}")


def _check_expected_epoch(known: TransactionalId, expected: tuple[int, int] | None) -> None:
    if expected is None or known.producer_epoch == NO_EPOCH:
        return
    if expected[1] not in (known.producer_epoch, known.last_producer_epoch):
        raise Refused(ErrorCode.producer_fenced, f"{known.producer_id} is in epoch {known.producer_epoch}")


def _is_retry(known: TransactionalId, expected: tuple[int, int]) -> bool:
    return (
        known.producer_epoch != NO_EPOCH
        and expected[1] != known.producer_epoch
        and expected[1] == known.last_producer_epoch
    )
