"""Kafka's frames on one socket: out with ``writelines``, each frame in into one buffer of its size.

Requests are answered in the order they were sent (Kafka promises it), so a queue of futures is all the bookkeeping.
Anything odd (a frame too large, a reply to no open request) closes the connection: the stream cannot be trusted after
it. Answers to Selector of Apache Kafka's clients.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, cast

from mm2py.kafka.errors import (
    BrokerUnreachable,
    CorruptReply,
    KafkaError,
    NotKafka,
)
from mm2py.kafka.transport import wire
from mm2py.kafka.transport.frames import Frame, FrameMemory

MAX_FRAME_BYTES: Final = 128 << 20
"""Larger than any reply to what we ask (a fetch: ``max_bytes`` or one batch); checked before memory is taken."""
MAX_FIRST_FRAME_BYTES: Final = 1 << 20
"""Until the peer has proved to be a Kafka broker, it is trusted with less."""

_HEAD: Final = struct.Struct(">ihhi")
_TLS_ALERT: Final = b"\x15\x03"


@dataclass(slots=True)
class _Pending:
    correlation_id: int
    reply: asyncio.Future[Frame]


class FrameStream(asyncio.BufferedProtocol):
    """Kafka's framing on a socket: a four-byte length, then that many bytes."""

    def __init__(
        self, peer: str, client_id: str, protocol: str = "PLAINTEXT", frames: FrameMemory | None = None
    ) -> None:
        """``protocol`` is what ``security.protocol`` says, for messages, and for how bytes are handed over."""
        self.peer = peer
        self.explain: Callable[[Exception], KafkaError | None] = lambda _: None
        """Tells what a broken connection means, where more is known about it."""
        self.protocol = protocol
        self._is_tls = protocol.endswith("SSL")
        self.max_frame_bytes = MAX_FIRST_FRAME_BYTES
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sent_bytes = 0
        self.received_bytes = 0
        """Frames with their four bytes of length, before encryption."""
        self._client_id = client_id.encode()
        self._loop = asyncio.get_running_loop()
        self._frames = frames or FrameMemory()
        self._transport: asyncio.Transport | None = None
        self._length = bytearray(4)
        self._frame: Frame | None = None
        self._filled = 0
        self._pending: deque[_Pending] = deque()
        self._next_correlation_id = 0
        self._why: KafkaError | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its class

    def get_buffer(self, sizehint: int) -> memoryview:
        target = self._length if self._frame is None else self._frame
        return memoryview(target)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._frame is None:
            if self._filled == 4:
                self._start_frame()
        elif self._filled == len(self._frame):
            frame, self._frame, self._filled = self._frame, None, 0
            self._deliver(frame)

    def _start_frame(self) -> None:
        size = int.from_bytes(self._length, "big", signed=True)
        self._filled = 0
        if 4 <= size <= self.max_frame_bytes:
            self.received_bytes += 4 + size
            self._frame = self._frames.take(size, self._loop.time())
        elif self.max_frame_bytes == MAX_FIRST_FRAME_BYTES:
            self.abort(NotKafka(self.peer, _guess_protocol(bytes(self._length), self.protocol), self.protocol))
        else:
            self.abort(CorruptReply(self.peer, f"a frame of {size} bytes, the limit is {self.max_frame_bytes}"))

    def _deliver(self, frame: Frame) -> None:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if not self._pending or self._pending[0].correlation_id != correlation_id:
            self.abort(CorruptReply(self.peer, f"reply to request {correlation_id}, which is not the oldest one open"))
            return
        pending = self._pending.popleft()
        if not pending.reply.done():  # else the caller was cancelled: its reply is dropped here
            pending.reply.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self._frame = None  # half a frame: its memory is free for others
        explained = self.explain(exc) if exc is not None else None
        why = f"the connection broke ({exc or 'closed by the broker'}{self._hint() if exc is None else ''})"
        self._fail(self._why or explained or BrokerUnreachable(self.peer, why))

    def _hint(self) -> str:
        """What the broker may have missed, judged by how far we got: it answers the question for versions to anyone."""
        if self._next_correlation_id == 1 and self._is_tls:
            return "; a listener that asks for another client certificate does so"
        if self._next_correlation_id == 2 and not self.protocol.startswith("SASL"):
            return "; a listener that asks for SASL does so"
        return ""

    def _fail(self, why: KafkaError) -> None:
        self._why = why
        while self._pending:
            reply = self._pending.popleft().reply
            if not reply.done():
                reply.set_exception(why)
        if not self.closed.done():
            self.closed.set_result(None)

    def abort(self, why: KafkaError) -> None:
        """Close at once; everything still open fails with ``why``."""
        if self._why is None:
            self._why = why
        if self._transport is not None:
            self._transport.abort()
        self._fail(self._why)

    @property
    def is_open(self) -> bool:
        return self._why is None and self._transport is not None and not self._transport.is_closing()

    @property
    def is_idle(self) -> bool:
        return not self._pending

    def send(self, api_key: int, version: int, body: Sequence[wire.Part], *, flexible: bool) -> asyncio.Future[Frame]:
        """Send one request; the future gets the whole reply frame, correlation id included."""
        if not self.is_open or self._transport is None:
            raise self._why or BrokerUnreachable(self.peer, "the connection is closed")
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        client = struct.pack(">h", len(self._client_id)) + self._client_id + (b"\x00" if flexible else b"")
        size = 8 + len(client) + sum(map(len, body))
        head = _HEAD.pack(size, api_key, version, correlation_id)
        reply: asyncio.Future[Frame] = self._loop.create_future()
        self._pending.append(_Pending(correlation_id, reply))
        self.sent_bytes += 4 + size
        if self._is_tls:  # each part would become a record of its own, with its own tag and its own call
            self._transport.write(b"".join([head + client, *body]))
        else:
            self._transport.writelines([head + client, *body])
        return reply


def _guess_protocol(first_bytes: bytes, protocol: str) -> str:
    if first_bytes.startswith(_TLS_ALERT) and not protocol.endswith("SSL"):
        return f"it speaks TLS, and security.protocol is {protocol}"
    if first_bytes.isascii() and first_bytes.decode("ascii").isprintable():
        return f"it begins with the text {first_bytes.decode('ascii')!r}"
    return f"it begins with the bytes {first_bytes.hex()}"
