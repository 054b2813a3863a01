"""Under which producer id a flow writes: one for each life of a worker and each flow.

The id is asked for with a transactional id, although no transaction is ever begun with it: only so can a successor
fence it (docs/broker-facts.md, section 5: batches without the transactional bit are accepted under such an id). Asking
plainly happens once (H3); later the epoch is raised with our own id and epoch, so that one who was fenced notices.
Where the target grants no transactional id, writing goes on under a plain producer id, and that is reported.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection
from typing import Final

from mm2py.clock import Clock
from mm2py.kafka import admin
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.fencing import Markers, Overtaken
from mm2py.kafka.port import ANY_BROKER, BrokerId, Brokers, ProducerIdentity
from mm2py.kafka.retry import Backoff, Reaction, reaction_to

COORDINATOR_PATIENCE_S: Final = 20.0
"""How long a missing transaction coordinator is waited for: a new cluster creates its topic on the first request."""
WAITING_REPORT_S: Final = 5.0
_FENCED: Final = frozenset({47, 90})
_UNAVAILABLE: Final = frozenset({14, 15, 16})


class Fenced(KafkaError):
    """Somebody took over under our transactional id: this incarnation is over and never asks for the id again."""

    def __init__(self, transactional_id: str | None) -> None:
        super().__init__(
            f"Another process has fenced {transactional_id or 'this producer'}.",
            remedy="The flow comes back under a new producer id.",
        )


class EpochRefused(KafkaError):
    """The target does not raise our epoch: this life of the flow cannot go on, the next asks for a new id."""

    def __init__(self, error: BrokerRefused) -> None:
        super().__init__(f"The producer epoch cannot be raised: {error}", remedy="The flow begins anew.")


class Incarnation:
    """The producer id of one flow in one life of a worker. ``start`` once, then ``renew`` whenever state was lost."""

    def __init__(
        self,
        brokers: Brokers,
        transactional_id: str | None,
        *,
        clock: Clock,
        rng: random.Random,
        report: Callable[[str], None],
        waiting: Callable[[str], None],
    ) -> None:
        """``report`` is told when the id is a lesser one, ``waiting`` every few seconds why there is none yet.

        Without ``transactional_id`` it is a plain producer id, which nobody can fence.
        """
        self._brokers = brokers
        self._transactional_id = transactional_id
        self._markers: Markers | None = None
        if transactional_id is not None:
            self._markers = Markers(brokers, transactional_id, rng=rng)
        self._clock = clock
        self._rng = rng
        self._report = report
        self._waiting = waiting
        self._lock = asyncio.Lock()
        self._identity: ProducerIdentity | None = None
        self.degraded: str | None = None
        """Why there is no transactional id, if there is none."""

    @property
    def identity(self) -> ProducerIdentity:
        if self._identity is None:
            raise AssertionError("the incarnation was not started")
        return self._identity

    async def start(self) -> ProducerIdentity:
        """Ask for the producer id; without end while the target cannot be reached.

        Raises:
            BrokerRefused: the target refuses even a plain producer id.
        """
        backoff = Backoff(self._rng, most_s=1.0)
        begun_s = said_at_s = self._clock.monotonic()
        while True:
            try:
                self._identity = await self._ask((-1, -1))
                return self._identity
            except BrokerRefused as error:
                why = str(error)
                reaction = reaction_to(error.code)
                patient = self._clock.monotonic() - begun_s < COORDINATOR_PATIENCE_S
                if reaction in {Reaction.RETRY, Reaction.REFRESH} and (patient or self._transactional_id is None):
                    pass
                elif self._transactional_id is not None:
                    self._degrade(error)
                else:
                    raise
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
        """Return an identity with a higher epoch than ``seen``; many callers at once raise it once.

        Raises:
            Fenced: somebody else raised it.
            EpochRefused: the target refuses for another reason.
        """
        async with self._lock:
            backoff = Backoff(self._rng, most_s=2.0)
            while self.identity == seen:
                try:
                    expected = (-1, -1) if seen.transactional_id is None else (seen.producer_id, seen.epoch)
                    self._identity = await self._ask(expected)
                    break
                except BrokerRefused as error:
                    if error.code in _FENCED:
                        raise Fenced(self._transactional_id) from error
                    if reaction_to(error.code) in {Reaction.FAIL, Reaction.DENIED}:
                        raise EpochRefused(error) from error
                except KafkaError as error:
                    if not error.retriable:
                        raise
                await asyncio.sleep(backoff.next_s())
            return self.identity

    async def fence_itself(self, seen: ProducerIdentity, partitions: Collection[tuple[str, int]]) -> ProducerIdentity:
        """Shut our own writes under ``seen`` out of partitions, and return the identity under which to go on.

        The epoch is raised for all; partitions that are not among these go on under the old one until they are. Markers
        are written where there is a transactional id; without one nothing is shut out (``degraded``).

        Raises: as ``renew``.
        """
        identity = await self.renew(seen)
        while self._markers is not None:
            try:
                await self._markers.write(identity.producer_id, identity.epoch, partitions)
                break
            except Overtaken:  # by ourselves meanwhile, by the coordinator that gave our transaction up, or by a fence
                identity = await self.renew(identity)
            except BrokerRefused as error:
                raise EpochRefused(error) from error
        return identity

    async def keep_alive(self, partition: tuple[str, int]) -> None:
        """Use the transactional id once, so that the target does not forget it (C2); the epoch stays.

        Raises:
            Fenced: somebody else has raised the epoch.
            BrokerRefused: the target does not grant it any more.
        """
        if self._markers is None:
            return
        identity = self.identity
        try:
            await self._markers.write(identity.producer_id, identity.epoch, [partition])
        except Overtaken:
            await self.renew(identity)

    async def _ask(self, expected: tuple[int, int]) -> ProducerIdentity:
        broker: BrokerId = ANY_BROKER
        if self._transactional_id is not None:
            broker = await admin.find_coordinator(self._brokers, self._transactional_id, transactions=True)
        producer_id, epoch = await admin.init_producer_id(
            self._brokers, broker, self._transactional_id, expected=expected
        )
        return ProducerIdentity(producer_id, epoch, self._transactional_id)

    def _degrade(self, error: BrokerRefused) -> None:
        self.degraded = str(error)
        self._transactional_id = self._markers = None
        why = "has no transaction coordinator" if error.code in _UNAVAILABLE else "grants no transactional id"
        self._report(
            f"The target {why} ({error.what.rstrip('.')}): writing goes on under a plain producer id, which a "
            "successor cannot fence. Grant WRITE and DESCRIBE on transactional ids with prefix mm2py-, or let "
            "__transaction_state be created."
        )


class OwnFence:
    """Shuts what we wrote ourselves under an identity out of partitions, see ``Incarnation.fence_itself``."""

    def __init__(self, incarnation: Incarnation, seen: ProducerIdentity) -> None:
        self._incarnation = incarnation
        self._seen = seen

    async def shut_out(self, partitions: Collection[tuple[str, int]]) -> int | None:
        """See ``Fence.shut_out``.

        Raises: as ``Incarnation.renew``.
        """
        identity = await self._incarnation.fence_itself(self._seen, partitions)
        return None if identity.transactional_id is None else identity.epoch
