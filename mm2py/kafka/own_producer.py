"""One producer id of ours, asked for with a transactional id: only so can it be shut out of partitions.

Records are written under the epoch it began with, and under no other. What raises the epoch is a fence: of those who
come after us, or our own, where nobody can tell any more what became of our requests (H3: then with our own id and
epoch, so that one who was fenced notices).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from typing import Final

from mm2py.kafka import admin
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.fencing import Key, Markers, Overtaken
from mm2py.kafka.port import ANY_BROKER, BrokerId, Brokers, ProducerIdentity
from mm2py.kafka.retry import Backoff, Reaction, reaction_to

_FENCED: Final = frozenset({47, 90})
_FORGOTTEN: Final = 49


class Fenced(KafkaError):
    """Somebody took over under our transactional id: this incarnation is over and never asks for the id again."""

    def __init__(self, transactional_id: str | None) -> None:
        super().__init__(
            f"Another process has fenced {transactional_id or 'this producer'}.",
            remedy="The flow comes back under a new producer id.",
        )


class EpochRefused(KafkaError):
    """The target gives us no further epoch or id: this life of the flow cannot go on, the next asks for a new id."""

    def __init__(self, error: BrokerRefused | str) -> None:
        super().__init__(f"There is no further producer epoch or id: {error}", remedy="The flow begins anew.")


class OwnProducer:
    """A producer id and, behind it, the epochs that fences take. ``ask`` or ``begin`` first."""

    def __init__(self, brokers: Brokers, transactional_id: str | None, *, rng: random.Random) -> None:
        """Without ``transactional_id`` it is a plain producer id, which nobody can fence."""
        self.ids: set[int] = set()
        """The producer id; where it is a plain one, also those that came in its place."""
        self._brokers = brokers
        self._transactional_id = transactional_id
        self._markers = None if transactional_id is None else Markers(brokers, transactional_id, rng=rng)
        self._rng = rng
        self._lock = asyncio.Lock()
        self._identity: ProducerIdentity | None = None
        self._latest: ProducerIdentity | None = None
        """As the coordinator has it, as far as we know."""

    @property
    def identity(self) -> ProducerIdentity:
        """What records are written under."""
        if self._identity is None:
            raise AssertionError("nobody has asked for this producer id")
        return self._identity

    async def ask(self) -> ProducerIdentity:
        """Ask for the id, plainly and once. Raises: KafkaError."""
        self._identity = await self._init((-1, -1))
        return self._identity

    async def begin(self) -> ProducerIdentity:
        """Ask for the id until it is there.

        Raises:
            EpochRefused: the target refuses.
        """
        backoff = Backoff(self._rng, most_s=2.0)
        while True:
            try:
                return await self.ask()
            except BrokerRefused as error:
                if reaction_to(error.code) in {Reaction.FAIL, Reaction.DENIED}:
                    raise EpochRefused(error) from error
            except KafkaError as error:
                if not error.retriable:
                    raise
            await asyncio.sleep(backoff.next_s())

    async def renew(self, seen: ProducerIdentity) -> ProducerIdentity:
        """Return an identity with a higher epoch than ``seen``; many callers at once raise it once.

        Raises:
            Fenced: somebody else raised it.
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
                    if error.code in _FENCED:
                        raise Fenced(self._transactional_id) from error
                    if reaction_to(error.code) in {Reaction.FAIL, Reaction.DENIED}:
                        raise EpochRefused(error) from error
                except KafkaError as error:
                    if not error.retriable:
                        raise
                await asyncio.sleep(backoff.next_s())
            return self._latest

    async def shut_out(self, partitions: Collection[Key]) -> int | None:
        """Shut what was written under ``identity`` out of partitions; others go on under it undisturbed.

        Returns:
            The epoch of the markers, the same for all; None: it is a plain id, and nothing is shut out.
        Raises: as ``renew``.
        """
        if self._markers is None:
            return None
        latest = await self.renew(self.identity)
        while True:
            if latest.producer_id != self.identity.producer_id:  # forgotten (C2): the next life fences it otherwise
                raise EpochRefused(f"the target has forgotten {self._transactional_id}")
            try:
                await self._markers.write(latest.producer_id, latest.epoch, partitions)
                return latest.epoch
            except Overtaken:  # by ourselves meanwhile, by the coordinator that gave our transaction up, or by a fence
                latest = await self.renew(latest)
            except BrokerRefused as error:
                raise EpochRefused(error) from error

    async def keep_alive(self, partition: Key) -> None:
        """Use the transactional id once, so that the target does not forget it (C2); the epoch stays.

        Raises:
            Fenced: somebody else has raised the epoch.
            EpochRefused: the target has forgotten the id already; nobody could shut this life out by it.
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
            if error.code == _FORGOTTEN:
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
