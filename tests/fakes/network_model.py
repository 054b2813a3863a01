"""The connections between mm2py and the brokers of a model: order, latency, and how they break.

A connection belongs to one (broker, channel). Requests arrive in the order they were sent, the broker carries out one
at a time, and replies come back in that order. When the client gives a connection up, the broker may still carry out
requests in its socket buffer, at the same time as requests on the client's next connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from mm2py.kafka.errors import BrokerUnreachable, RequestTimedOut
from mm2py.kafka.port import FetchReply, PartitionProduce, ProduceReply, ProduceRequest, TopicProduce
from tests.fakes.faults import FaultSource

_SENT_WHILE_CLOSING: Final = 0.5
"""Probability that a request on a connection that was given up still arrives. Once one does not, no later one does."""


class Served(Protocol):
    """A request at its broker that is dropped when the broker dies."""

    def abandon(self) -> None: ...


@dataclass(slots=True)
class Call:
    """One request in flight, and the future that its sender waits for."""

    api: str
    request: object
    future: asyncio.Future[object]
    lost: bool = False
    timer: asyncio.TimerHandle | None = None
    outcome: str = "sent"

    def succeed(self, reply: object) -> None:
        if not self.future.done():
            self.outcome = "answered"
            self.future.set_result(reply)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.outcome = type(error).__name__
            self.future.set_exception(error)


Serve = Callable[[int, object, Callable[[object], None]], Served | None]


@dataclass(slots=True)
class Connection:
    """One connection. ``open`` is the client's view; ``silent`` means that replies get lost."""

    broker: str
    node: int
    channel: str
    serve: Serve
    faults: FaultSource
    latency_s: Callable[[], float]
    ready_at_s: float
    open: bool = True
    silent: bool = False
    deaf: bool = False
    dead: bool = False
    """The broker has died."""
    _flying: deque[Call] = field(default_factory=deque)
    _inbox: deque[Call] = field(default_factory=deque)
    _replies: deque[tuple[Call, object]] = field(default_factory=deque)
    _waiting: dict[int, Call] = field(default_factory=dict)
    _busy: Served | None = None
    _is_busy: bool = False
    _arrives_at_s: float = 0.0
    _replied_at_s: float = 0.0

    @property
    def usable(self) -> bool:
        return self.open and not self.dead

    @property
    def idle(self) -> bool:
        return not (self._flying or self._inbox or self._is_busy)

    def submit(self, call: Call, timeout_s: float) -> None:
        """Send a request; its future gets the reply, or fails after ``timeout_s``."""
        loop = asyncio.get_running_loop()
        faults = self.faults
        if faults.strikes("drop_request", faults.faults.drop_request):
            self.deaf = self.silent = True
        elif faults.strikes("drop_reply", faults.faults.drop_reply):
            self.silent = True
        elif faults.strikes("reset", faults.faults.reset):
            loop.call_later(faults.rng.uniform(0.0, 0.05), self.break_off, "connection reset by peer")
        call.lost = self.deaf
        self._waiting[id(call)] = call
        call.timer = loop.call_later(timeout_s, self._timed_out, call, timeout_s)
        call.future.add_done_callback(lambda _: self._forget(call))
        travels_s = self.latency_s() + faults.extra_delay_s()
        self._arrives_at_s = max(self._arrives_at_s, self.ready_at_s, loop.time() + travels_s)
        self._flying.append(call)
        loop.call_at(self._arrives_at_s, self._arrive)

    def break_off(self, why: str) -> None:
        """Close the connection from the client's side: all requests fail, and sent ones may still be carried out."""
        if not self.open:
            return
        self.open = False
        self.silent = True
        self._fail_all(why)
        for call in self._flying:
            if self.faults.rng.random() >= _SENT_WHILE_CLOSING:
                self.deaf = True
            call.lost = call.lost or self.deaf

    def broker_died(self) -> None:
        """Drop all requests, because the broker died."""
        self.dead = True
        self.open = False
        self._inbox.clear()
        if self._busy is not None:
            self._busy.abandon()
            self._busy = None
        self._fail_all("the connection was closed by the broker")

    def _fail_all(self, why: str) -> None:
        for call in list(self._waiting.values()):
            call.fail(BrokerUnreachable(self.broker, why))

    def _forget(self, call: Call) -> None:
        if call.timer is not None:
            call.timer.cancel()
        self._waiting.pop(id(call), None)

    def _timed_out(self, call: Call, after_s: float) -> None:
        call.fail(RequestTimedOut(self.broker, call.api, after_s))
        self.break_off(f"{call.api} was not answered within {after_s:g} s and the connection was closed")

    def _arrive(self) -> None:
        call = self._flying.popleft()
        if call.lost or self.dead:
            return
        self._inbox.append(call)
        faults = self.faults
        if isinstance(call.request, ProduceRequest) and faults.strikes(
            "duplicate_produce", faults.faults.duplicate_produce
        ):
            after_s = faults.rng.uniform(*faults.faults.duplicate_s)
            asyncio.get_running_loop().call_later(after_s, self._arrive_again, call.request)
        self._next()

    def _arrive_again(self, request: ProduceRequest) -> None:
        if not self.dead:
            with contextlib.suppress(AssertionError):  # the server records it as a complaint
                self.serve(self.node, request, lambda _: None)

    def _next(self) -> None:
        if self._is_busy or not self._inbox or self.dead:
            return
        call = self._inbox.popleft()
        self._is_busy = True
        try:
            served = self.serve(self.node, call.request, lambda reply: self._answer(call, reply))
        except Exception as error:  # a bug of the sender, or of the model: the sender must see it
            self._is_busy = False
            call.fail(error)
            return
        if self._is_busy:
            self._busy = served

    def _answer(self, call: Call, reply: object) -> None:
        self._busy = None
        loop = asyncio.get_running_loop()
        faults = self.faults
        mute_s = 0.0
        if faults.strikes("throttle", faults.faults.throttle):
            mute_s = faults.rng.uniform(*faults.faults.throttle_s)
            if isinstance(reply, FetchReply | ProduceReply):
                reply = replace(reply, throttle_ms=int(mute_s * 1000))
        if isinstance(reply, FetchReply) and faults.faults.flip_bit:
            for part in reply.partitions:
                if part.records and faults.strikes("flip_bit", faults.faults.flip_bit):
                    faults.flip_bit(part.records)
        if not self.silent:
            travels_s = self.latency_s() + faults.extra_delay_s()
            self._replied_at_s = max(self._replied_at_s, loop.time() + travels_s)
            self._replies.append((call, reply))
            loop.call_at(self._replied_at_s, self._deliver)
        loop.call_later(mute_s, self._unmute)

    def _unmute(self) -> None:
        self._is_busy = False
        self._next()

    def _deliver(self) -> None:
        call, reply = self._replies.popleft()
        if self.open and not self.silent:
            call.succeed(reply)


def random_latency(rng: random.Random, least_s: float, most_s: float) -> Callable[[], float]:
    """Return a source of one-way latencies."""
    return lambda: rng.uniform(least_s, most_s)


def frozen(request: ProduceRequest) -> ProduceRequest:
    """Return a copy that the sender cannot change any more, like bytes in a socket."""
    return ProduceRequest(
        [
            TopicProduce(
                topic.name,
                topic.topic_id,
                [PartitionProduce(one.partition, bytes(one.records)) for one in topic.partitions],
            )
            for topic in request.topics
        ],
        request.timeout_ms,
    )
