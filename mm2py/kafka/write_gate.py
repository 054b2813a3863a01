"""The gate before every request that changes the target: may this incarnation still write?

The story: a machine is suspended over a weekend. A successor has fenced its worker, and the target forgets a fence
after ``producer.id.expiration.ms`` (docs/broker-facts.md#h4). The worker wakes, and the next batch that it sends is
stored. Another story: a worker cannot reach the control log any more, but it reaches the partitions that it copies. The
group evicts it and gives its partitions to another worker.

So two limits count from the last heartbeat that was acknowledged, on a clock that also runs while the machine sleeps:

* After one session time-out requests wait. The next acknowledged heartbeat lets them continue.
* After a quarter of the producer expiry the incarnation ends. Nothing is sent under its ids any more.

Safety rests on the fence while the target remembers the fence. The first limit keeps an evicted worker from being
fenced in the middle of a batch. The second one ends the worker's incarnation before its fence can be forgotten.
Connect's workers stop nothing when they lose their coordinator. Only the control log is written without a gate: its
heartbeats open the gates of all other requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, overload

from kio.static.protocol import Payload

from mm2py.clock import Clock
from mm2py.kafka.errors import KafkaError
from mm2py.kafka.messages import (
    ApiVersionsRequest,
    ConsumerGroupDescribeRequest,
    DescribeAclsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
    ListOffsetsRequest,
    ListTransactionsRequest,
    MetadataRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
)
from mm2py.kafka.port import BrokerId, Brokers, FetchReply, FetchRequest, ProduceReply, ProduceRequest

DEFAULT_PRODUCER_EXPIRY_MS: Final = 86_400_000
"""Kafka's default of ``producer.id.expiration.ms``."""
LIMIT_LEAST_S: Final = 10.0
"""The second limit is at least this long: a shorter pause may just be a busy machine."""
READS: Final = (
    ApiVersionsRequest,
    ConsumerGroupDescribeRequest,
    DescribeAclsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
    ListOffsetsRequest,
    ListTransactionsRequest,
    MetadataRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
)
"""Requests that change nothing. All other requests wait at the gate, also those that are added to mm2py later."""


class IncarnationEnded(KafkaError):
    """Nothing more is sent under this incarnation's ids."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"This worker may write nothing more under its present id: {why.rstrip('.')}.",
            remedy="It goes on under a new id by itself.",
        )


class Gate:
    """Decides whether one incarnation may change the target. Without a group every answer of the target renews it."""

    def __init__(
        self,
        clock: Clock,
        *,
        producer_expiry_ms: int,
        session_timeout_s: float | None = None,
        on_wait: Callable[[], None] = lambda: None,
    ) -> None:
        """Make a gate.

        Args:
            producer_expiry_ms: the target's ``producer.id.expiration.ms``: how long it remembers a fence.
            session_timeout_s: of the member whose heartbeats open the gate, which is closed until the first one. None:
                there is no group, and the gate is open from the start.
            on_wait: is called when a request begins to wait.
        """
        self._clock = clock
        self._session_timeout_s = session_timeout_s
        self._limit_s = max(LIMIT_LEAST_S, producer_expiry_ms / 4000)
        self.on_wait = on_wait
        self._renewed_at_s = clock.boottime()
        self._is_confirmed = session_timeout_s is None
        self._renewed = asyncio.Event()
        self._ended = ""
        self.is_exempt = False
        """This member is alone in its group and can be fenced, so it need not wait for heartbeats. The story: one of
        three brokers dies, and for nine seconds the control log accepts no records. No other member could declare a
        lone worker's session expired. A worker that joins writes to the same log, and fences the lone worker first."""
        self.waits = 0
        """How many requests wait."""

    @property
    def has_group(self) -> bool:
        return self._session_timeout_s is not None

    @property
    def is_open(self) -> bool:
        """Whether a request that changes the target is sent at once."""
        if self._ended or self._age_s() > self._limit_s:
            return False
        return self.is_fresh or (self._is_confirmed and self.is_exempt)

    @property
    def is_fresh(self) -> bool:
        """Whether a heartbeat sent within the last session time-out was acknowledged."""
        if not self._is_confirmed:
            return False
        return self._session_timeout_s is None or self._age_s() < self._session_timeout_s

    def renew(self, sent_at_s: float) -> None:
        """Note that a heartbeat sent at ``sent_at_s`` (``Clock.boottime``) was acknowledged.

        The limits count from its sending, not from its answer: it was appended at some time in between.

        Raises:
            IncarnationEnded: it comes too late.
        """
        self.check()
        if sent_at_s >= self._renewed_at_s:
            self._renewed_at_s = sent_at_s
            self._is_confirmed = True
        if self.is_open:
            self._renewed.set()

    def check(self) -> None:
        """Return if the gate is open, or may open again.

        Raises:
            IncarnationEnded: the gate is closed for good.
        """
        if not self._ended and self._age_s() > self._limit_s:
            what = "heartbeat" if self.has_group else "request"
            self.end(f"the target has acknowledged no {what} for {self._age_s():.0f} s")
        if self._ended:
            raise IncarnationEnded(self._ended)

    def end(self, why: str) -> None:
        """Close the gate for good. Requests that wait at it fail."""
        if not self._ended:
            self._ended = why
            self._renewed.set()

    async def passed(self) -> None:
        """Wait until the gate is open. Cancelling costs nothing.

        Raises:
            IncarnationEnded: the gate is closed for good.
        """
        self.check()
        while not self.is_open:
            self._renewed.clear()
            self.waits += 1
            self.on_wait()
            try:
                await self._renewed.wait()
            finally:
                self.waits -= 1
            self.check()

    def _age_s(self) -> float:
        return self._clock.boottime() - self._renewed_at_s


@dataclass(frozen=True, slots=True)
class GatedBrokers:
    """A target's ``Brokers`` with a gate before them; ``gate_of`` returns the gate that applies to a request now."""

    brokers: Brokers
    gate_of: Callable[[], Gate]
    clock: Clock

    @overload
    async def send(self, broker: BrokerId, request: FetchRequest, *, channel: str = ...) -> FetchReply: ...
    @overload
    async def send(self, broker: BrokerId, request: ProduceRequest, *, channel: str = ...) -> ProduceReply: ...
    @overload
    async def send(self, broker: BrokerId, request: Payload, *, channel: str = ...) -> Payload: ...

    async def send(
        self, broker: BrokerId, request: FetchRequest | ProduceRequest | Payload, *, channel: str = "control"
    ) -> object:
        """See ``Brokers.send``. A request that changes the target waits at the gate; cancelled there, it was not sent.

        Raises:
            IncarnationEnded: the request was not sent, and no later one will be.
        """
        gate = self.gate_of()
        if not isinstance(request, READS):
            await gate.passed()
        sent_at_s = self.clock.boottime()
        reply = await self.brokers.send(broker, request, channel=channel)
        if not gate.has_group:
            gate.renew(sent_at_s)
        return reply

    def round_trip_s(self, broker: BrokerId) -> float | None:
        """See ``Brokers.round_trip_s``."""
        return self.brokers.round_trip_s(broker)

    def close_channel(self, broker: BrokerId, channel: str) -> None:
        """See ``Brokers.close_channel``."""
        self.brokers.close_channel(broker, channel)


def gated_alone(brokers: Brokers, clock: Clock) -> GatedBrokers:
    """Return a target's brokers with a gate of their own, for a command, which is in no group."""
    gate = Gate(clock, producer_expiry_ms=DEFAULT_PRODUCER_EXPIRY_MS)
    return GatedBrokers(brokers, lambda: gate, clock)
