"""Fences a previous producer: begins and aborts an empty transaction under its transactional id.

The coordinator raises the epoch of the id. The abort writes a marker with that epoch into every partition of the
transaction, after all that the old producer had written. From then on the partition's leader refuses the old epoch.
The coordinator's answer does not prove that a marker was written (docs/broker-facts.md#c3). The caller proves it by
reading the marker back.

A process finds the producers it has to fence by their transactional ids. ``find_producer_expiry_ms`` finds how long a
fence, or a resend, can rely on the broker's producer state (docs/broker-facts.md#c1).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, Protocol

from structlog.typing import FilteringBoundLogger

from mm2py.errors import Mm2Error
from mm2py.kafka import admin
from mm2py.kafka.admin import ConfigEntry
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.error_codes import (
    BROKER_NOT_AVAILABLE,
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_NOT_AVAILABLE,
    FENCED,
    INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE,
    OPERATION_NOT_ATTEMPTED,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTION_COORDINATOR_FENCED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from mm2py.kafka.errors import Backoff, BrokerRefused, KafkaError, Reaction, reaction_to
from mm2py.kafka.list_offsets import by_leader, chunks
from mm2py.kafka.port import BrokerId, Brokers, TopicPartition
from mm2py.kafka.producer import transactions
from mm2py.kafka.write_gate import DEFAULT_PRODUCER_EXPIRY_MS

FENCES_AT_ONCE: Final = 16
"""How many producers are fenced at a time: each takes some round trips, and there may be thousands."""
PREFIX = "mm2py-"
_FORM = r"mm2py-{group}-(?P<process>[0-9a-f]{{8,32}})-(?P<attempt>[0-9]+)(\.(?P<number>[0-9]+))?-(?P<flow>.+)"


class TransactionalId(NamedTuple):
    """One transactional id of one incarnation of a flow."""

    group: str
    process: str
    """Hexadecimal, new for each process."""
    attempt: int
    """The attempt: grows each time the flow is started again in this process."""
    flow: str
    number: int = 0
    """0 is the id that an incarnation begins with. Partitions that it fences against itself continue under the next."""

    def __str__(self) -> str:
        number = f".{self.number}" if self.number else ""
        return f"{PREFIX}{self.group}-{self.process}-{self.attempt}{number}-{self.flow}"

    def at(self, number: int) -> str:
        """Return this incarnation's id of a number, as the target knows it."""
        return str(self._replace(number=number))

    @property
    def first(self) -> TransactionalId:
        """The id with which this incarnation began."""
        return self._replace(number=0)


def is_another(text: str | None, own: TransactionalId) -> bool:
    """Whether an id belongs to mm2py, and to another group or flow than ``own``."""
    if text is None or not text.startswith(PREFIX):
        return False
    found = parse(text, own.group)
    return found is None or found.flow != own.flow


def parse(text: str, group: str) -> TransactionalId | None:
    """Return the parts of an id, None if it is not an id of mm2py in ``group``."""
    found = re.fullmatch(_FORM.format(group=re.escape(group)), text, re.DOTALL)
    if found is None:
        return None
    return TransactionalId(group, found["process"], int(found["attempt"]), found["flow"], int(found["number"] or 0))


PRODUCER_EXPIRY: Final = "producer.id.expiration.ms"


async def find_producer_expiry_ms(brokers: Brokers, log: FilteringBoundLogger) -> int:
    """Return how long the target remembers what a producer stored; Kafka's default if the target does not say.

    Raises:
        KafkaError: no broker answered; ask again if it is ``retriable``. If a day were assumed and the target forgot
            sooner, batches would be stored twice.
    """
    found = await _broker_setting(brokers, PRODUCER_EXPIRY)
    if found is None:  # brokers before 3.4 (KIP-854) use another setting
        found = await _broker_setting(brokers, "transactional.id.expiration.ms")
        if isinstance(found, str) and found.isdecimal():
            return min(int(found), DEFAULT_PRODUCER_EXPIRY_MS)
    if isinstance(found, str) and found.isdecimal():
        return int(found)
    log.warning(
        "producer_expiry.assumed",
        assumed_ms=DEFAULT_PRODUCER_EXPIRY_MS,
        why=str(found) if isinstance(found, BrokerRefused) else f"brokers answer {found!r} for {PRODUCER_EXPIRY}",
        effect="should the target forget producers sooner, records may be there twice after a lost answer",
        remedy=f"Grant DESCRIBE_CONFIGS on the cluster, or make sure that {PRODUCER_EXPIRY} is not lower there.",
    )
    return DEFAULT_PRODUCER_EXPIRY_MS


async def _broker_setting(brokers: Brokers, key: str) -> str | BrokerRefused | None:
    """Ask one broker after the other until one answers; None if it does not have the setting, or hides it."""
    silent: KafkaError | None = None
    for broker in (await fetch_metadata(brokers, [])).brokers:
        try:
            found = await admin.broker_config_entry(brokers, broker, key)
        except KafkaError as error:
            if not error.retriable:
                raise
            silent = error  # it may be down, but still listed
            continue
        if isinstance(found, BrokerRefused) and found.retriable:
            raise found
        return found.value if isinstance(found, ConfigEntry) else found
    raise silent or BrokerRefused(f"Asking for {key}", BROKER_NOT_AVAILABLE)


PARTITIONS_A_CALL: Final = 1000
FENCE_ATTEMPTS_MOST: Final = 10
CONCURRENT_PATIENCE_S: Final = 60.0
"""How long the coordinator may be busy ending a transaction before the id is given up: a marker written directly can
block it (docs/broker-facts.md#h11)."""
EPOCH_MOST: Final = (1 << 15) - 2
_HIGHER_MARKER: Final = frozenset({INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED})
_REFUSED_PARTITION: Final = frozenset({UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED})
"""One of these keeps all other partitions out of the transaction: AddPartitionsToTxn is all or nothing
(docs/broker-facts.md#h8)."""


class Overtaken(Mm2Error):
    """Another process has raised the epoch of a transactional id after us."""

    def __init__(self, transactional_id: str) -> None:
        super().__init__(
            f"Another process has raised the epoch of {transactional_id}.", remedy="mm2py looks at it again."
        )


class NotFenceable(Mm2Error):
    """A previous producer cannot be fenced."""

    def __init__(self, transactional_id: str | None, why: str) -> None:
        super().__init__(
            f"{transactional_id or 'A producer without a transactional id'} cannot be fenced: {why}.",
            remedy="Grant WRITE and DESCRIBE on transactional ids with prefix mm2py-, or ALTER on the cluster.",
        )


class Markers:
    """Writes markers under one transactional id. One transaction at a time.

    Other processes may write markers under the same id and epoch at the same time. Then all share a transaction, and
    the first process that ends it ends it for all. Partitions that others added before get their markers too.
    Partitions that they add later wait until these markers are written, and begin the next transaction. So every
    partition that was added is in a transaction that was ended.
    """

    def __init__(self, brokers: Brokers, transactional_id: str, *, rng: random.Random) -> None:
        self.transactional_id = transactional_id
        self._brokers = brokers
        self._rng = rng
        self._lock = asyncio.Lock()

    async def write(self, producer_id: int, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """Have the coordinator write markers into partitions; they may arrive only some time after this returns.

        Partitions that do not exist or that we may not write to are left out.

        Raises:
            Overtaken: the epoch is no longer that of the id.
            BrokerRefused: the target does not grant the id.
        """
        for some in chunks(list(partitions), PARTITIONS_A_CALL):
            async with self._lock:
                await self._write_some(producer_id, epoch, some)

    async def _write_some(self, producer_id: int, epoch: int, wanted: Sequence[TopicPartition]) -> None:
        refused: set[TopicPartition] = set()
        added: set[TopicPartition] = set()
        backoff = Backoff(self._rng, first_s=0.02, most_s=1.0)
        while left := [key for key in wanted if key not in refused and key not in added]:
            try:
                coordinator = await admin.find_coordinator(self._brokers, self.transactional_id, transactions=True)
                codes = await transactions.add_partitions_to_txn(
                    self._brokers, coordinator, self.transactional_id, producer_id, epoch, left
                )
            except KafkaError as error:
                self._judge(error)
            else:
                added |= {key for key, code in codes.items() if code == 0}
                refused |= {key for key, code in codes.items() if code in _REFUSED_PARTITION}
                others = {
                    code for code in codes.values() if code not in {0, OPERATION_NOT_ATTEMPTED, *_REFUSED_PARTITION}
                }
                for code in others:
                    self._judge(BrokerRefused(f"Fencing {self.transactional_id}", code))
                if not others:
                    continue
            await asyncio.sleep(backoff.next_s())
        backoff.reset()
        while added:
            try:
                coordinator = await admin.find_coordinator(self._brokers, self.transactional_id, transactions=True)
                await transactions.end_txn(self._brokers, coordinator, self.transactional_id, producer_id, epoch)
                break
            except KafkaError as error:
                if isinstance(error, BrokerRefused) and error.code == INVALID_TXN_STATE:
                    break  # it has ended: the answer to the first call was lost, or another process ended it
                self._judge(error)
            await asyncio.sleep(backoff.next_s())

    def _judge(self, error: KafkaError) -> None:
        """Return if asking again may help, else raise."""
        if isinstance(error, BrokerRefused):
            if error.code in FENCED:
                raise Overtaken(self.transactional_id) from error
            if error.code == INVALID_TXN_STATE:
                return
        if not error.retriable:  # CONCURRENT_TRANSACTIONS is: another process is ending a transaction under this id
            raise error


class Fence(Protocol):
    """Something that fences a producer in partitions."""

    async def fence(self, partitions: Collection[TopicPartition]) -> int | None:
        """Have markers written into partitions of the target; partitions that it refuses are left out.

        Returns:
            The epoch: a marker of the producer's id with at least this epoch proves that it is fenced. None: it
            cannot be proven.
        Raises:
            NotFenceable: neither the coordinator nor the partitions' leaders allow it.
            KafkaError: retriable ones; ask again.
        """
        ...


class PreviousProducer:
    """A producer of a previous incarnation, which may still be writing."""

    def __init__(
        self, brokers: Brokers, transactional_id: str | None, producer_id: int, epoch: int, *, rng: random.Random
    ) -> None:
        """``epoch`` is the highest epoch that it is known to have written under."""
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.epoch = epoch
        self._brokers = brokers
        self._rng = rng
        self._fence_epoch: int | None = None
        self._markers: Markers | None = None
        """Writes markers through the coordinator. None: they go directly to the leaders of the partitions."""
        self._was_told = False
        """Another worker has reported the epoch, and we have written nothing with it yet."""
        self._lock = asyncio.Lock()

    def learn_fence_epoch(self, epoch: int) -> None:
        """Write further markers with the epoch that another member of our group has raised.

        The story: a worker that owned 10,000 partitions dies, and 20 others take them over. If each of them raised
        the epoch for itself, each would overtake all others, again and again.
        """
        if self._fence_epoch is None or epoch > self._fence_epoch:
            self._go_on_with(epoch, self.transactional_id)
            self._was_told = True

    async def fence(self, partitions: Collection[TopicPartition]) -> int:
        """See ``Fence.fence``."""
        async with self._lock:
            for _ in range(FENCE_ATTEMPTS_MOST):  # two processes that fence the same producer overtake each other
                if self._fence_epoch is None:
                    await self._raise_fence_epoch(partitions)
                if self._was_told and self._markers is not None and await self._has_no_coordinator():
                    self._markers = None  # the other worker had no coordinator either
                self._was_told = False
                epoch, markers = self._fence_epoch, self._markers
                assert epoch is not None  # noqa: S101  (_raise_fence_epoch raises if it finds none)
                try:
                    if markers is None:
                        await self._write_directly(epoch, partitions)
                    else:
                        await markers.write(self.producer_id, epoch, partitions)
                except Overtaken:
                    if self._fence_epoch == epoch:  # else another worker reported a new one
                        self._fence_epoch = None
                        await asyncio.sleep(self._rng.uniform(0.1, 0.5))
                except BrokerRefused as error:
                    if error.code != INVALID_PRODUCER_ID_MAPPING:
                        raise NotFenceable(self.transactional_id, str(error)) from error
                    self._fence_epoch = None  # the epoch was raised without the coordinator
                else:
                    return epoch
        raise NotFenceable(self.transactional_id, "others raise its epoch again and again")

    def _go_on_with(self, epoch: int, transactional_id: str | None) -> None:
        self._fence_epoch = epoch
        self._markers = None if transactional_id is None else Markers(self._brokers, transactional_id, rng=self._rng)

    async def _raise_fence_epoch(self, partitions: Collection[TopicPartition]) -> None:
        """Raise the epoch of the transactional id. This fences only if the target answers with the producer id that is
        to be fenced (docs/broker-facts.md#c2).

        An id that the target has forgotten, or never granted, is fenced by markers sent directly to the leaders.
        """
        why = "it has no transactional id"
        if self.transactional_id is not None:
            try:
                raised = await self._raise_epoch(self.transactional_id)
            except BrokerRefused as error:  # a marker without its coordinator blocks it (docs/broker-facts.md#h11)
                raise NotFenceable(self.transactional_id, str(error)) from error
            if raised is not None and raised[0] == self.producer_id:
                self._go_on_with(raised[1], self.transactional_id)
                return
            why = "the target has no transaction coordinator"
            if raised is not None:
                why = f"the target has forgotten its id, and answers producer {raised[0]} for {self.producer_id}"
        try:
            seen = [active.epoch for active in await self._active(partitions)]
        except BrokerRefused as error:
            raise NotFenceable(self.transactional_id, f"{why}; {error.what}") from error
        epoch = max([self.epoch, *seen]) + 1
        if epoch > EPOCH_MOST:
            raise NotFenceable(self.transactional_id, f"{why}; no epoch is left above {epoch - 1}")
        self._go_on_with(epoch, None)

    async def _raise_epoch(self, transactional_id: str) -> tuple[int, int] | None:
        """Ask the coordinator to raise the epoch until it answers; None where no id was ever granted.

        See docs/broker-facts.md#m8.

        The story: on a small target w1 writes under a plain producer id and is killed. Its record names the
        transactional id that it asked for, and w2 would wait for ever for a coordinator.
        """
        backoff = Backoff(self._rng, first_s=0.02, most_s=1.0)
        waited_s = 0.0
        while True:
            try:
                coordinator = await admin.find_coordinator(self._brokers, transactional_id, transactions=True)
                return await admin.init_producer_id(self._brokers, coordinator, transactional_id)
            except BrokerRefused as error:
                if error.code == CONCURRENT_TRANSACTIONS:
                    if waited_s > CONCURRENT_PATIENCE_S:
                        raise
                elif not error.retriable:
                    raise
                elif error.code == COORDINATOR_NOT_AVAILABLE and await self._has_no_coordinator():
                    return None
            except KafkaError as error:
                if not error.retriable:
                    raise
            pause_s = backoff.next_s()
            waited_s += pause_s
            await asyncio.sleep(pause_s)

    async def _has_no_coordinator(self) -> bool:
        """Whether there is no topic for transactional ids. A topic that we may not see counts as existing."""
        with contextlib.suppress(KafkaError):
            return await transactions.find_topic(self._brokers) is None
        return False

    async def _active(self, partitions: Collection[TopicPartition]) -> list[transactions.ActiveProducer]:
        """Return what the partitions' leaders remember of the producer; partitions without a leader are left out."""
        known: list[transactions.ActiveProducer] = []
        for leader, keys in (await self._by_leader(partitions)).items():
            found = await transactions.describe_producers(self._brokers, leader, keys)
            for active in found.values():
                if not isinstance(active, int):
                    known += [producer for producer in active if producer.producer_id == self.producer_id]
        return known

    async def _write_directly(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """Write markers without the coordinator. Leaders refuse a lower coordinator epoch than that of the last marker.

        Raises:
            Overtaken: a partition has a marker of a higher epoch, or of a coordinator that was not known yet.
        """
        try:
            active = await self._active(partitions)
            coordinator_epoch = max([0, *(producer.coordinator_epoch for producer in active)])
            for leader, keys in (await self._by_leader(partitions)).items():
                codes = await transactions.write_txn_markers(
                    self._brokers,
                    leader,
                    self.producer_id,
                    epoch,
                    keys,
                    coordinator_epoch=coordinator_epoch,
                    channel="markers",
                )
                if any(reaction_to(code) is Reaction.DENIED for code in codes.values() if code):
                    raise NotFenceable(self.transactional_id, "writing markers needs ALTER on the cluster")
                if not _HIGHER_MARKER.isdisjoint(codes.values()):
                    raise Overtaken(self.transactional_id or f"producer {self.producer_id}")
        except BrokerRefused as error:
            raise NotFenceable(self.transactional_id, error.what) from error

    async def _by_leader(self, partitions: Collection[TopicPartition]) -> dict[BrokerId, list[TopicPartition]]:
        metadata = await fetch_metadata(self._brokers, sorted({topic for topic, _ in partitions}))
        return by_leader({key: metadata.leader_of(*key) for key in partitions})
