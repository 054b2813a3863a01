"""The transaction in which one attempt of a Spark task writes, and which the driver ends.

A task of a write has one transactional id, ``mm2py-write-<job>-<task>``. Each attempt initialises that id again, which
fences all earlier attempts: those of a driver that died, and those that only seemed dead. Then the attempt reads the
log of writes. If the task's rows were committed before, it writes nothing.

A batch whose outcome is unknown is not sent again: brokers do not recognise repeated old records
(docs/broker-facts.md#c1). The attempt fails, its transaction is aborted, and Spark runs another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from mm2py.backfill.frames.patience import RetryPatience
from mm2py.compiled_core import CORE
from mm2py.errors import Mm2Error
from mm2py.kafka import admin
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata
from mm2py.kafka.error_codes import (
    FENCED,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TRANSACTION_TIMEOUT,
    INVALID_TXN_STATE,
    LEADER_NOT_AVAILABLE,
    MESSAGE_TOO_LARGE,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    RECORD_LIST_TOO_LARGE,
    REQUEST_TIMED_OUT,
)
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.port import BrokerId, Brokers, PartitionProduce, ProduceRequest, TopicPartition, TopicProduce
from mm2py.kafka.producer import transactions
from mm2py.records.batch import next_sequence, stamp

REQUEST_MS: Final = 30_000
_UNKNOWN: Final = frozenset({REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND})
_ENDED: Final = FENCED | {INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING}


class TransactionLost(Mm2Error):
    """The transaction was ended by the brokers: it took too long, or a later attempt has fenced it."""

    def __init__(self, transactional_id: str, timeout_ms: int) -> None:
        super().__init__(
            f"The transaction {transactional_id} was ended by another attempt, or took longer than"
            f" {timeout_ms / 1000:g} s. Its rows were not committed.",
            remedy="Run the job again: what was committed is skipped. If it takes long, write less at a time"
            " (maxOffsetsPerTrigger, more partitions), or raise transactionTimeoutMs.",
        )


class OutcomeUnknown(Mm2Error):
    """A batch may have been stored or not. The transaction is aborted."""

    def __init__(self, topic: str, why: object) -> None:
        super().__init__(
            f"Whether rows were stored in {topic} is not known: {why}", remedy="Spark runs the task again."
        )


class OpenTransaction(NamedTuple):
    """What the driver needs to end a transaction."""

    transactional_id: str
    producer_id: int
    epoch: int


async def end(brokers: Brokers, one: OpenTransaction, *, committed: bool, timeout_ms: int) -> None:
    """Commit or abort a transaction.

    Raises:
        TransactionLost: the transaction had ended already.
        KafkaError: the coordinator is unavailable for a minute, or refuses.
    """
    patience = RetryPatience()
    while True:
        try:
            coordinator = await admin.find_coordinator(brokers, one.transactional_id, transactions=True)
            await transactions.end_txn(
                brokers, coordinator, one.transactional_id, one.producer_id, one.epoch, committed=committed
            )
            return
        except BrokerRefused as error:
            if error.code in _ENDED:
                raise TransactionLost(one.transactional_id, timeout_ms) from error
            await patience.wait(error)
        except KafkaError as error:
            await patience.wait(error)


class TaskTransaction:
    """The transaction of one attempt. Call ``begin`` first; one caller at a time."""

    def __init__(self, brokers: Brokers, transactional_id: str, *, timeout_ms: int) -> None:
        self._brokers = brokers
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._identity: OpenTransaction | None = None
        self._added: set[TopicPartition] = set()
        self._sequences: dict[TopicPartition, int] = {}
        self._topics: dict[str, TopicMetadata] = {}

    @property
    def identity(self) -> OpenTransaction:
        if self._identity is None:
            raise AssertionError("begin() was not called")
        return self._identity

    async def begin(self) -> None:
        """Take the transactional id over. The open transaction of an earlier attempt is aborted before this returns.

        Raises:
            BrokerRefused, KafkaError: the cluster grants no producer id.
        """
        patience = RetryPatience()
        while True:
            try:
                coordinator = await admin.find_coordinator(self._brokers, self._id, transactions=True)
                producer = await admin.init_producer_id(
                    self._brokers, coordinator, self._id, transaction_timeout_ms=self._timeout_ms
                )
                self._identity = OpenTransaction(self._id, *producer)
                return
            except BrokerRefused as error:
                if error.code == INVALID_TRANSACTION_TIMEOUT:
                    raise BrokerRefused(
                        f"A transaction of {self._timeout_ms} ms",
                        error.code,
                        remedy="Lower transactionTimeoutMs, or raise transaction.max.timeout.ms of the brokers.",
                    ) from error
                await patience.wait(error)
            except KafkaError as error:
                await patience.wait(error)

    async def send(self, topic: str, batches: Mapping[int, Sequence[tuple[bytearray, int]]]) -> None:
        """Append batches to partitions, in order within each partition, and wait for all acknowledgements.

        Args:
            batches: by partition, each batch with its number of records.
        Raises:
            TransactionLost, OutcomeUnknown: this attempt has failed.
            BrokerRefused: the cluster does not accept them.
        """
        await self._add({(topic, number) for number in batches} - self._added)
        waiting = {number: list(some) for number, some in batches.items()}
        while waiting := {number: some for number, some in waiting.items() if some}:
            await self._send_round(topic, {number: some.pop(0) for number, some in waiting.items()})

    async def abort(self) -> None:
        """Abort the transaction if possible. Errors are not raised: the brokers abort it at its time-out."""
        if self._identity is not None and self._added:
            try:
                await end(self._brokers, self._identity, committed=False, timeout_ms=self._timeout_ms)
            except Mm2Error:
                return

    async def _add(self, partitions: Collection[TopicPartition]) -> None:
        patience = RetryPatience()
        while partitions:
            try:
                coordinator = await admin.find_coordinator(self._brokers, self._id, transactions=True)
                codes = await transactions.add_partitions_to_txn(self._brokers, coordinator, *self.identity, partitions)
                for (topic, number), code in codes.items():
                    if code:
                        raise BrokerRefused(
                            f"Writing to {topic}-{number}",
                            code,
                            remedy=f"mm2py needs WRITE on {topic}, which must exist.",
                        )
                self._added |= set(partitions)
                return
            except BrokerRefused as error:
                if error.code in _ENDED:
                    raise TransactionLost(self._id, self._timeout_ms) from error
                await patience.wait(error)
            except KafkaError as error:
                await patience.wait(error)

    async def _send_round(self, topic: str, batches: Mapping[int, tuple[bytearray, int]]) -> None:
        """Send one batch to each of several partitions."""
        patience = RetryPatience()
        left = dict(batches)
        for number, (batch, _) in left.items():
            sequence = self._sequences.get((topic, number), 0)
            stamp(batch, self.identity.producer_id, self.identity.epoch, sequence, transactional=True, core=CORE)
        while left:
            leaders = await self._leaders(topic, left, patience)
            sends = [
                self._produce(leader, topic, {number: left[number][0] for number in numbers})
                for leader, numbers in leaders.items()
            ]
            answers = await asyncio.gather(*sends, return_exceptions=True)  # so no request is in flight after a failure
            failed: BrokerRefused | None = None
            for answer in answers:
                if isinstance(answer, BaseException):
                    raise answer
                for number, code, message in answer:
                    if code:
                        failed = self._refusal(topic, number, code, message)
                        continue
                    sequence = self._sequences.get((topic, number), 0)
                    self._sequences[topic, number] = next_sequence(sequence, left.pop(number)[1])
            if failed is not None:
                self._topics.pop(topic, None)
                await patience.wait(failed)

    def _refusal(self, topic: str, number: int, code: int, message: str | None) -> BrokerRefused:
        """Return the error if the batch was certainly not stored, so it may be sent again. Raise any other error."""
        if code in _ENDED:
            raise TransactionLost(self._id, self._timeout_ms)
        remedy = ""
        if code in {MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE}:
            remedy = f"Raise max.message.bytes of {topic}, or leave the row out."
        error = BrokerRefused(f"Writing to {topic}-{number}", code, message=message, remedy=remedy)
        if code in _UNKNOWN:
            raise OutcomeUnknown(topic, error)
        return error

    async def _leaders(
        self, topic: str, numbers: Collection[int], patience: RetryPatience
    ) -> dict[BrokerId, list[int]]:
        while True:
            try:
                if topic not in self._topics:
                    self._topics[topic] = (await fetch_metadata(self._brokers, [topic])).topics[topic]
                found: dict[BrokerId, list[int]] = {}
                for number in numbers:
                    part = self._topics[topic].partitions.get(number)
                    if part is None or part.leader is None:
                        self._topics.pop(topic)
                        raise BrokerRefused(f"Finding the leader of {topic}-{number}", LEADER_NOT_AVAILABLE)
                    found.setdefault(part.leader, []).append(number)
                return found
            except KafkaError as error:
                await patience.wait(error)

    async def _produce(
        self, leader: BrokerId, topic: str, batches: Mapping[int, bytearray]
    ) -> list[tuple[int, int, str | None]]:
        request = ProduceRequest(
            [TopicProduce(topic, None, [PartitionProduce(number, batch) for number, batch in batches.items()])],
            timeout_ms=REQUEST_MS,
            transactional_id=self._id,
        )
        try:
            reply = await self._brokers.send(leader, request, channel="produce")
        except KafkaError as error:
            raise OutcomeUnknown(topic, error) from error
        return [(part.partition, part.error_code, part.error_message) for part in reply.partitions]
