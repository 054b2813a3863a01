"""A member's leave to write: as long as its beats are acknowledged, and for one session time-out after the last.

After so long without a record of it, others may call a member silent and take its partitions over; so it stops by
itself before. The story: w1 loses the way to the control log's leader, not to those of its partitions. The group puts
it out, and gives its partitions to w2; w1 has sent nothing since its leave was over. The fence stays what safety rests
on: this keeps who is out from writing into it. The clock goes on while the machine sleeps. Connect's workers stop
nothing of their own when they lose the coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import overload

from kio.static.protocol import Payload

from mm2py.clock import Clock
from mm2py.kafka.errors import KafkaError
from mm2py.kafka.port import BrokerId, Brokers, FetchReply, FetchRequest, ProduceReply, ProduceRequest
from mm2py.kafka.pulse import LIMIT_LEAST_S, OutOfTouch


class PutOutError(KafkaError):
    """This member is out: nothing is sent in its name any more."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"This worker is no longer a member of its group: {why.rstrip('.')}.",
            remedy="The flow comes back under a new id.",
        )


class Lease:
    """Whether a member may write just now. ``acknowledged`` renews it, ``end`` ends it for good."""

    def __init__(
        self, session_timeout_s: float, producer_expiry_ms: int, clock: Clock, *, waiting: Callable[[], None]
    ) -> None:
        """Begin without leave.

        Args:
            producer_expiry_ms: the target's ``producer.id.expiration.ms``: a fence holds for so long (H4).
            waiting: is told when somebody begins to wait for the lease.
        """
        self._session_timeout_s = session_timeout_s
        self._limit_s = max(LIMIT_LEAST_S, producer_expiry_ms / 4000)
        self._clock = clock
        self._waiting = waiting
        self._sent_at_s = clock.boottime()
        self._held = False
        self._renewed = asyncio.Event()
        self._over: str | None = None
        self.is_exempt = False
        """It is the only member of its group, and can be fenced. The story: one of three brokers dies, for nine seconds
        the control log takes nothing. There is nobody who could call a lone worker silent; who joins has to write to
        the same log, and fences it. So that pauses nothing. Whom nobody could fence would write on beside who joined:
        for that one the time-out is all there is."""
        self.waits = 0
        """How many wait for it."""

    @property
    def is_valid(self) -> bool:
        return self._held and self._over is None and (self.is_exempt or self.is_fresh)

    @property
    def is_fresh(self) -> bool:
        """Whether the control log has taken a record of this member within its session time-out."""
        return self._held and self._age_s() < self._session_timeout_s

    @property
    def is_over(self) -> bool:
        return self._over is not None

    def acknowledged(self, sent_at_s: float) -> None:
        """A record of this member is in the log that was sent at ``sent_at_s`` (``clock.boottime``).

        Its sending counts, not its answer: it was appended at some time in between.
        """
        self.check()
        if sent_at_s >= self._sent_at_s:
            self._sent_at_s = sent_at_s
            self._held = True
        if self.is_valid:
            self._renewed.set()

    def check(self) -> None:
        """Return if this member may still come back.

        Raises:
            OutOfTouch: its last acknowledged record is so old that a fence against it may be forgotten already.
        """
        if self._age_s() > self._limit_s:
            raise OutOfTouch(f"The control log has taken no beat for {self._age_s():.0f} s")

    def end(self, why: str) -> None:
        """The member is out; whoever waits is told."""
        if self._over is None:
            self._over = why
            self._renewed.set()

    async def hold(self) -> None:
        """Return when the lease is valid.

        Raises:
            PutOutError: it never will be again.
        """
        while not self.is_valid:
            if self._over is not None:
                raise PutOutError(self._over)
            self._renewed.clear()
            self.waits += 1
            self._waiting()
            try:
                await self._renewed.wait()
            finally:
                self.waits -= 1

    def _age_s(self) -> float:
        return self._clock.boottime() - self._sent_at_s


@dataclass(frozen=True, slots=True)
class Leased:
    """A target to which nothing is written without the lease; stands in front of its ``Brokers``."""

    brokers: Brokers
    lease: Lease

    @overload
    async def send(self, broker: BrokerId, request: FetchRequest, *, channel: str = ...) -> FetchReply: ...
    @overload
    async def send(self, broker: BrokerId, request: ProduceRequest, *, channel: str = ...) -> ProduceReply: ...
    @overload
    async def send(self, broker: BrokerId, request: Payload, *, channel: str = ...) -> Payload: ...

    async def send(
        self, broker: BrokerId, request: FetchRequest | ProduceRequest | Payload, *, channel: str = "control"
    ) -> object:
        """See ``Brokers.send``. What writes records waits for the lease; cancelled there, nothing was sent.

        Raises:
            PutOutError: nothing was sent, nor ever will be.
        """
        if isinstance(request, ProduceRequest):
            await self.lease.hold()
        return await self.brokers.send(broker, request, channel=channel)
