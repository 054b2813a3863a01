"""Transactional ids: the owner and epoch of each, and the partitions in its open transaction.

One coordinator represents all coordinators of the cluster; the model decides at which broker it is found. Transactions
can only be aborted, and the coordinator epoch is always 0.
Source: TransactionCoordinator, TransactionMetadata, Apache Kafka 4.3.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from tests.fakes.broker.producer_state import NO_EPOCH, Refused

_LAST_EPOCH = (1 << 15) - 2
"""From this epoch on the coordinator assigns a new producer id instead of a higher epoch."""


class TransactionState(enum.Enum):
    """The state of a transactional id's present transaction; the values are Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_ABORT = "PrepareAbort"
    """Its markers are being written. The state may last for ever."""
    COMPLETE_ABORT = "CompleteAbort"


@dataclass(slots=True)
class TransactionalId:
    """The coordinator's state of one transactional id. Times are in milliseconds."""

    producer_id: int
    updated_at_ms: int
    producer_epoch: int = NO_EPOCH
    last_producer_id: int = -1
    last_producer_epoch: int = NO_EPOCH
    state: TransactionState = TransactionState.EMPTY
    timeout_ms: int = 60_000
    started_at_ms: int = -1
    partitions: dict[tuple[str, int], None] = field(default_factory=dict)
    """(topic, partition) of the open transaction, in order. While it is being ended: those that still lack a marker."""

    @property
    def is_decided(self) -> bool:
        return self.state in {TransactionState.EMPTY, TransactionState.COMPLETE_ABORT}

    def fence(self, now_ms: int) -> None:
        """Start to abort the open transaction on the coordinator's own account, which raises the epoch.

        The old epoch is remembered: an owner that asks with it gets the new one, as if it repeated a request whose
        answer was lost.
        """
        self.last_producer_epoch = self.producer_epoch
        self.producer_epoch += 1
        self.state, self.updated_at_ms = TransactionState.PREPARE_ABORT, now_ms

    def complete(self, now_ms: int) -> None:
        self.state, self.updated_at_ms = TransactionState.COMPLETE_ABORT, now_ms


class Coordinator:
    """Assigns producer ids and epochs. Raises ``Refused`` with the code that the broker answers."""

    def __init__(self, *, first_producer_id: int, expiration_ms: int) -> None:
        self.transactional_ids: dict[str, TransactionalId] = {}
        self.expired = 0
        """Transactional ids that have expired."""
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
            expected: the (producer id, epoch) that the caller believes to have. A fenced caller is refused because of
                it (docs/broker-facts.md#h3), unless a transaction is open: then the epoch is not checked.
            timeout_ms: how long this owner's transactions may stay open.
        Raises:
            Refused: fenced; or CONCURRENT_TRANSACTIONS: an open transaction becomes PREPARE_ABORT.
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
            pass  # the answer to the first call was lost: return the same again
        else:
            known.last_producer_epoch = NO_EPOCH if expected is None else known.producer_epoch
            known.producer_epoch += 1
        known.updated_at_ms, known.timeout_ms = now_ms, timeout_ms
        known.state, known.started_at_ms = TransactionState.EMPTY, -1
        return known.producer_id, known.producer_epoch

    def add_partitions(
        self, transactional_id: str, owner: tuple[int, int], partitions: Iterable[tuple[str, int]], *, now_ms: int
    ) -> bool:
        """Add partitions to the transaction of ``owner`` = (producer id, epoch); return whether it has just started.

        Raises:
            Refused: fenced, unknown, or the previous transaction is not over.
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
        """Abort, and keep the epoch as EndTxn below version 5 does; return whether markers must be written.

        Raises:
            Refused: fenced, unknown, no transaction was started, or it is being aborted already.
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
        """Return the state of an id; an id that was unused for long expires (docs/broker-facts.md#c2)."""
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
