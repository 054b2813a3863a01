"""The producer ids under which one incarnation of a flow writes: one after the other, each with its epochs.

Each id is requested with a transactional id, although no transaction carries our records. Only then can a successor
fence it. Brokers accept batches without the transactional bit under such an id (docs/broker-facts.md, section 5).

An incarnation starts with one id. When we fence a partition against our own requests, it continues under the next id,
which is requested when first needed and shared by all partitions that leave the same id. The story: a request gets
stuck in the network, and the partition continues under the same id with a higher epoch. Its records are old, so the
broker forgets the id with all its epochs, and stores the request when it arrives (docs/broker-facts.md#c1). If the id
writes nothing more, its last batch is the marker, whose time is now: the fence holds for a day.

If the target grants no transactional id, plain producer ids are used, and that is reported.

Records are written under the epoch that an id began with, and under no other. Only a fence raises the epoch: that of a
successor, or our own when the outcome of our requests is unknown. For our own fence we name our id and epoch, so that
the target refuses it if we were fenced meanwhile (docs/broker-facts.md#h3).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from mm2py.clock import Clock
from mm2py.kafka import admin
from mm2py.kafka.cluster import WAITING_REPORT_S, until_answered
from mm2py.kafka.error_codes import FENCED, INVALID_PRODUCER_ID_MAPPING, NO_COORDINATOR
from mm2py.kafka.errors import Backoff, BrokerRefused, KafkaError
from mm2py.kafka.port import ANY_BROKER, BrokerId, Brokers, ProducerIdentity, TopicPartition
from mm2py.kafka.producer import transactions
from mm2py.kafka.producer.fencing import Markers, Overtaken


class IncarnationFenced(KafkaError):
    """Another process has fenced our transactional id. This incarnation ends, and never asks for the id again."""

    def __init__(self, transactional_id: str | None) -> None:
        super().__init__(
            f"Another process has fenced {transactional_id or 'this producer'}.",
            remedy="The flow comes back under a new producer id.",
        )


class EpochRefused(KafkaError):
    """The target gives us no further epoch or id. This incarnation ends; the next one asks for a new id."""

    def __init__(self, error: BrokerRefused | str) -> None:
        super().__init__(f"There is no further producer epoch or id: {error}", remedy="The flow restarts by itself.")


class OwnProducer:
    """A producer id, and the later epochs that fences use. Call ``ask`` or ``begin`` first."""

    def __init__(self, brokers: Brokers, transactional_id: str | None, *, rng: random.Random) -> None:
        """Without ``transactional_id`` it is a plain producer id, which cannot be fenced."""
        self.ids: set[int] = set()
        """The producer id; if a plain id was replaced, also the later ones."""
        self._brokers = brokers
        self._transactional_id = transactional_id
        self._markers = None if transactional_id is None else Markers(brokers, transactional_id, rng=rng)
        self._rng = rng
        self._lock = asyncio.Lock()
        self._identity: ProducerIdentity | None = None
        self._latest: ProducerIdentity | None = None
        """The last id and epoch that the coordinator gave us."""

    @property
    def identity(self) -> ProducerIdentity:
        """The id and epoch that records are written under."""
        if self._identity is None:
            raise AssertionError("this producer id was not asked for")
        return self._identity

    async def ask(self) -> ProducerIdentity:
        """Ask for the id once, without naming an expected epoch. Raises: KafkaError."""
        self._identity = await self._init((-1, -1))
        return self._identity

    async def begin(self) -> ProducerIdentity:
        """Ask for the id until it is there.

        Raises:
            EpochRefused: the target refuses.
        """
        try:
            return await until_answered(self.ask, rng=self._rng)
        except BrokerRefused as error:
            raise EpochRefused(error) from error

    async def renew(self, seen: ProducerIdentity) -> ProducerIdentity:
        """Return an identity with a higher epoch than ``seen``. Concurrent callers raise it once.

        Raises:
            IncarnationFenced: another process raised it.
            EpochRefused: the target refuses for another reason.
        """
        async with self._lock:
            backoff = Backoff(self._rng, most_s=2.0)
            while self._latest is None or self._latest == seen:
                try:
                    return await self._init(
                        (-1, -1) if self._transactional_id is None else (seen.producer_id, seen.epoch)
                    )
                except BrokerRefused as error:
                    if error.code in FENCED:
                        raise IncarnationFenced(self._transactional_id) from error
                    if not error.retriable:
                        raise EpochRefused(error) from error
                except KafkaError as error:
                    if not error.retriable:
                        raise
                await asyncio.sleep(backoff.next_s())
            return self._latest

    async def fence(self, partitions: Collection[TopicPartition]) -> int | None:
        """Fence ``identity`` in these partitions; other partitions continue under it.

        Returns:
            The epoch of the markers. None: it is a plain id, and nothing is fenced.
        Raises: as ``renew``.
        """
        if self._markers is None:
            return None
        latest = await self.renew(self.identity)
        while True:
            if (
                latest.producer_id != self.identity.producer_id
            ):  # forgotten: the next incarnation fences it by other means
                raise EpochRefused(f"the target has forgotten {self._transactional_id}")
            try:
                await self._markers.write(latest.producer_id, latest.epoch, partitions)
                return latest.epoch
            except Overtaken:  # by ourselves, by a coordinator that gave our transaction up, or by a fence
                latest = await self.renew(latest)
            except BrokerRefused as error:
                raise EpochRefused(error) from error

    async def keep_alive(self, partition: TopicPartition) -> None:
        """Use the transactional id once, so that the target does not forget it; the epoch stays.

        See docs/broker-facts.md#c2.

        Raises:
            IncarnationFenced: another process has raised the epoch.
            EpochRefused: the target has already forgotten the id. No successor could fence this incarnation by it.
            BrokerRefused: the target does not grant it any more.
        """
        if self._markers is None or self._latest is None:
            return
        latest = self._latest
        try:
            await self._markers.write(latest.producer_id, latest.epoch, [partition])
        except Overtaken:
            await self.renew(latest)
        except BrokerRefused as error:
            if error.code == INVALID_PRODUCER_ID_MAPPING:
                raise EpochRefused(f"the target has forgotten {self._transactional_id}") from error
            raise

    async def _init(self, expected: tuple[int, int]) -> ProducerIdentity:
        broker: BrokerId = ANY_BROKER
        if self._transactional_id is not None:
            broker = await admin.find_coordinator(self._brokers, self._transactional_id, transactions=True)
        producer_id, epoch = await admin.init_producer_id(
            self._brokers, broker, self._transactional_id, expected=expected
        )
        self._latest = ProducerIdentity(producer_id, epoch, self._transactional_id)
        self.ids.add(producer_id)
        return self._latest


__all__ = ["EpochRefused", "Incarnation", "IncarnationFenced", "OwnFence"]

COORDINATOR_PATIENCE_S: Final = 20.0
"""How long to wait for a transaction coordinator while its topic does not exist: the first request creates the
topic."""


async def _announce_nowhere(_: ProducerIdentity) -> None:
    """The default of ``announce``: no group needs to know the id."""


class Incarnation:
    """The producer ids of one incarnation of a flow. Call ``start`` once, ``next_identity`` when one is used up."""

    def __init__(
        self,
        brokers: Brokers,
        transactional_id: Callable[[int], str] | None,
        *,
        clock: Clock,
        rng: random.Random,
        report: Callable[[str], None],
        waiting: Callable[[str], None],
        announce: Callable[[ProducerIdentity], Awaitable[None]] = _announce_nowhere,
    ) -> None:
        """Make an incarnation; no request is sent yet.

        Args:
            transactional_id: returns the transactional id of each producer id, counted from 0. None: producer ids are
                plain and cannot be fenced.
            report: is called with a message when the target grants plain producer ids only.
            waiting: is called every few seconds with the reason why there is no id yet.
            announce: makes each id, also a plain one, known to the other workers before anything is written under it.
        """
        self.degraded: str | None = None
        """Why there is no transactional id; None while there is one."""
        self._brokers = brokers
        self._transactional_id = transactional_id
        self._clock = clock
        self._rng = rng
        self._report = report
        self._waiting = waiting
        self._announce = announce
        self._lock = asyncio.Lock()
        self._producers: list[OwnProducer] = []

    @property
    def identity(self) -> ProducerIdentity:
        """The first id of this incarnation. Positions and our other records are written under it to the end."""
        if not self._producers:
            raise AssertionError("the incarnation was not started")
        return self._producers[0].identity

    @property
    def ids(self) -> frozenset[int]:
        """All producer ids that this incarnation has had."""
        return frozenset(producer_id for producer in self._producers for producer_id in producer.ids)

    @property
    def identities(self) -> list[ProducerIdentity]:
        """The identities under which this incarnation writes, in the order in which they were asked for."""
        return [producer.identity for producer in self._producers]

    async def start(self) -> ProducerIdentity:
        """Ask for the first producer id, and repeat this while the target cannot be reached.

        Raises:
            BrokerRefused: the target refuses even a plain producer id.
        """
        backoff = Backoff(self._rng, most_s=1.0)
        begun_s = said_at_s = self._clock.monotonic()
        while True:
            try:
                producer = self._make(0)
                await producer.ask()
                await self._announce(producer.identity)
                self._producers = [producer]
                return producer.identity
            except BrokerRefused as error:
                why = str(error)
                patient = self._clock.monotonic() - begun_s < COORDINATOR_PATIENCE_S
                if error.retriable and (patient or self._transactional_id is None):
                    pass
                elif self._transactional_id is None:
                    raise
                elif error.code not in NO_COORDINATOR or not await self._has_transactions():
                    self._degrade(error)
            except KafkaError as error:
                why = str(error)
                if not error.retriable:
                    raise
                begun_s = self._clock.monotonic()  # patience is for a reachable target without a coordinator
            if self._clock.monotonic() - said_at_s >= WAITING_REPORT_S:
                said_at_s = self._clock.monotonic()
                self._waiting(why)
            await asyncio.sleep(backoff.next_s())

    async def renew(self, seen: ProducerIdentity) -> ProducerIdentity:
        """Return a higher epoch of the first id than ``seen``, for our own records.

        Raises: as ``OwnProducer.renew``.
        """
        return await self._producers[0].renew(seen)

    async def next_identity(self, identity: ProducerIdentity) -> ProducerIdentity:
        """Return the identity that follows one of our producer ids. Concurrent callers make it once.

        Raises:
            EpochRefused: the target refuses.
            KafkaError: as ``announce``.
        """
        async with self._lock:
            number = self._number(identity.producer_id) + 1
            if number == len(self._producers):
                producer = self._make(number)
                await producer.begin()
                await self._announce(producer.identity)
                self._producers.append(producer)
            return self._producers[number].identity

    def behind(self, producer_id: int) -> ProducerIdentity | None:
        """Return the identity that ``next_identity`` has made after a producer id; None if that id is not ours."""
        if producer_id not in self.ids:
            return None
        return self._producers[self._number(producer_id) + 1].identity

    def latest(self, identities: Collection[ProducerIdentity]) -> ProducerIdentity:
        """Return the identity that was made last."""
        return max(identities, key=lambda identity: self._number(identity.producer_id))

    async def fence_itself(self, identity: ProducerIdentity, partitions: Collection[TopicPartition]) -> int | None:
        """Fence one of our own ids in these partitions. They continue under the next id (``behind``), others stay.

        Returns: as ``OwnProducer.fence``.
        Raises: as ``OwnProducer.fence`` and ``next_identity``.
        """
        epoch = await self._producers[self._number(identity.producer_id)].fence(partitions)
        await self.next_identity(identity)
        return epoch

    async def keep_alive(self, partition: TopicPartition) -> None:
        """Use all transactional ids once, see ``OwnProducer.keep_alive``.

        Unused ids are among them: if a successor finds an id forgotten, it cannot know whether the owner still writes.
        """
        for producer in list(self._producers):
            await producer.keep_alive(partition)

    async def _has_transactions(self) -> bool:
        """Whether the topic of transactional ids exists: then its coordinators come back, so waiting for them is right.

        Previous incarnations have ids there. Without a coordinator none of them could be fenced.
        """
        with contextlib.suppress(KafkaError):
            found = await transactions.find_topic(self._brokers)
            return found is not None and bool(found.partitions)
        return True

    def _make(self, number: int) -> OwnProducer:
        text = None if self._transactional_id is None else self._transactional_id(number)
        return OwnProducer(self._brokers, text, rng=self._rng)

    def _number(self, producer_id: int) -> int:
        return next(number for number, producer in enumerate(self._producers) if producer_id in producer.ids)

    def _degrade(self, error: BrokerRefused) -> None:
        self.degraded = str(error)
        self._transactional_id = None
        why = "has no transaction coordinator" if error.code in NO_COORDINATOR else "grants no transactional id"
        self._report(
            f"The target {why} ({error.what.rstrip('.')}): writing goes on under a plain producer id, which a "
            "successor cannot fence. Grant WRITE and DESCRIBE on transactional ids with prefix mm2py-, or let "
            "__transaction_state be created."
        )


class OwnFence:
    """Fences one of our own identities in partitions, see ``Incarnation.fence_itself``."""

    def __init__(self, incarnation: Incarnation, seen: ProducerIdentity) -> None:
        self._incarnation = incarnation
        self._seen = seen

    async def fence(self, partitions: Collection[TopicPartition]) -> int | None:
        """See ``Fence.fence``.

        Raises: as ``Incarnation.fence_itself``.
        """
        return await self._incarnation.fence_itself(self._seen, partitions)
