"""Whether this life of a flow may still write: not after it was out of touch with the target for long.

The story: a machine is suspended over a weekend. A successor has fenced its worker, and the target forgets that fence
after ``producer.id.expiration.ms`` (H4 of docs/broker-facts.md). The worker wakes, and the next batch it sends is
stored. So a life that did nothing, or heard nothing from the target, for a quarter of that time is over before it sends
anything; the flow comes back as a new one, which first looks who has taken over. MirrorMaker 2 leaves this to its
group: who was away too long must join again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, overload

from kio.static.protocol import Payload

from mm2py.clock import Clock
from mm2py.kafka.errors import KafkaError
from mm2py.kafka.port import BrokerId, Brokers, FetchReply, FetchRequest, ProduceReply, ProduceRequest

FEEL_EVERY_S: Final = 1.0
LIMIT_LEAST_S: Final = 10.0
"""A pause shorter than this is a busy machine."""


class OutOfTouch(KafkaError):
    """This life was out of touch for so long that a fence against it may be over: nothing more is sent under its id."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"{why}: somebody else may have taken the flow over, and been forgotten by the target since.",
            remedy="The flow comes back under a new producer id.",
        )


class Pulse:
    """Notes when this life ran and when it heard from the target."""

    def __init__(self, clock: Clock) -> None:
        self.limit_s = float("inf")
        """How long it may be out of touch."""
        self._clock = clock
        self._ran_at_s = clock.boottime()
        self._longest_s = 0.0
        self._unheard_since_s: float | None = None

    def obey(self, producer_expiry_ms: int) -> None:
        """Take a quarter of the target's ``producer.id.expiration.ms`` for the limit."""
        self.limit_s = max(LIMIT_LEAST_S, producer_expiry_ms / 4000)

    def check(self) -> None:
        """Return if this life may go on.

        Raises:
            OutOfTouch: it may not, now and for ever.
        """
        now_s = self._clock.boottime()
        self._longest_s = max(self._longest_s, now_s - self._ran_at_s)
        self._ran_at_s = now_s
        if self._longest_s > self.limit_s:
            raise OutOfTouch(f"The worker was asleep for {self._longest_s:.0f} s")
        if self._unheard_since_s is not None and now_s - self._unheard_since_s > self.limit_s:
            raise OutOfTouch(f"The target did not answer for {now_s - self._unheard_since_s:.0f} s")

    def heard(self) -> None:
        """The target has answered. What was asked before a sleep, and is answered after it, does not count."""
        self.check()
        self._unheard_since_s = None

    def missed(self) -> None:
        """The target did not answer."""
        if self._unheard_since_s is None:
            self._unheard_since_s = self._clock.boottime()

    async def run(self) -> None:
        """Feel it until cancelled. Raises: OutOfTouch."""
        while True:
            self.check()
            await asyncio.sleep(FEEL_EVERY_S)


@dataclass(frozen=True, slots=True)
class Watched:
    """A target that is asked for nothing by a life that is over; stands in front of its ``Brokers``."""

    brokers: Brokers
    pulse: Pulse

    @overload
    async def send(self, broker: BrokerId, request: FetchRequest, *, channel: str = ...) -> FetchReply: ...
    @overload
    async def send(self, broker: BrokerId, request: ProduceRequest, *, channel: str = ...) -> ProduceReply: ...
    @overload
    async def send(self, broker: BrokerId, request: Payload, *, channel: str = ...) -> Payload: ...

    async def send(
        self, broker: BrokerId, request: FetchRequest | ProduceRequest | Payload, *, channel: str = "control"
    ) -> object:
        """See ``Brokers.send``.

        Raises:
            OutOfTouch: nothing was sent.
        """
        self.pulse.check()
        try:
            reply = await self.brokers.send(broker, request, channel=channel)
        except KafkaError as error:
            if error.retriable:
                self.pulse.missed()
            raise
        self.pulse.heard()
        return reply
