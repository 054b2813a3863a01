"""One connection to one broker: frames on a socket, and requests with their replies in the versions the broker speaks.

Kafka answers requests in the order in which they were sent, so a queue of futures is enough to match them. Frames are
sent with ``writelines``, and each is received into one buffer of its size. A frame that is too large, or a reply to no
open request, closes the connection: the stream cannot be trusted.

Counterpart: Selector and NetworkClient of Apache Kafka's clients; for quotas maybeThrottle and
InFlightRequests.incrementThrottleTime (KIP-219).
"""

from __future__ import annotations

import asyncio
import io
import math
import re
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar, cast

from kio.schema.request_header.v2.header import RequestHeader
from kio.serial import entity_writer
from kio.static.protocol import Payload

from mm2py.kafka import messages
from mm2py.kafka.errors import (
    BrokerRefused,
    BrokerUnreachable,
    CorruptReply,
    KafkaError,
    NotKafka,
    ReplyTooLarge,
    RequestTimedOut,
    UnsupportedVersion,
)
from mm2py.kafka.port import FetchReply, FetchRequest, ProduceReply, ProduceRequest
from mm2py.kafka.security.access import Access, SaslSession
from mm2py.kafka.security.sasl import Conversation
from mm2py.kafka.transport import wire
from mm2py.kafka.transport.entities import TooManyValues, read_entity, value_or_error
from mm2py.kafka.transport.fetch_session import FetchSession, SessionFetch, outside
from mm2py.kafka.transport.wire import Frame, FrameMemory

MAX_FRAME_BYTES: Final = 128 << 20
"""Limit of a fetch reply: larger than any that we ask for (``max_bytes`` or one batch). Checked before memory is
taken."""
MAX_MESSAGE_BYTES: Final = 32 << 20
"""Limit of every other reply. The metadata of 100,000 partitions with five replicas and long names takes half of it."""
LARGE_REPLY_BYTES: Final = 64 << 10
"""A larger reply without records is read in a thread: one of 8 MB takes a third of a second. The event loop runs during
the walk over the bytes, and waits while kio makes the objects, 0.1 s at most (``VALUES_MAX``).

A smaller reply blocks the event loop for 10 ms at most."""
MAX_FIRST_FRAME_BYTES: Final = LARGE_REPLY_BYTES
"""Limit until the peer has proved to be a Kafka broker. Replies about versions and SASL take a kilobyte or two."""

WAKE_BYTES: Final = 64 << 10
"""A large frame is received in pieces of this size.

Otherwise each packet that arrives alone wakes the event loop. In two runs on loopback this took about a tenth of a
worker's CPU."""
WAKE_AT_ONCE_BYTES: Final = 1 << 20
"""Until a connection has received this many bytes, each packet wakes the event loop.

The kernel widens the receive window only while bytes are read as soon as they arrive. The story: over 100 ms the window
is 64 KB at first. A full window had arrived before it was read, so the window stayed at 64 KB for five seconds, and the
connection carried a third of what the broker would have sent."""
TLS_PIECE_BYTES: Final = 64 << 10
"""How many bytes are encrypted and sent at once: this many stay in the processor's cache. A small part sent alone would
be a TLS record of its own, and a request sent as a whole was copied twice, plain and encrypted."""
_LOW_WATER: Final = getattr(socket, "SO_RCVLOWAT", None) if sys.platform == "linux" else None
"""Used on Linux only, where tests show that the end of a connection still wakes the event loop at once."""

_LARGE_REPLIES: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large replies")
"""Reads the large replies of all clusters one after the other, so that only one at a time takes memory."""

_HEAD: Final = struct.Struct(">ihhi")
_TLS_ALERT: Final = b"\x15\x03"


@dataclass(slots=True)
class _Pending:
    correlation_id: int
    reply: asyncio.Future[Frame]
    max_bytes: int


class FrameStream(asyncio.BufferedProtocol):
    """Kafka's framing on a socket: a four-byte length, then that many bytes."""

    def __init__(
        self,
        peer: str,
        client_id: str,
        protocol: str = "PLAINTEXT",
        frames: FrameMemory | None = None,
        explain: Callable[[Exception], KafkaError | None] = lambda _: None,
    ) -> None:
        """Make a stream; the event loop connects it.

        Args:
            protocol: as ``security.protocol``, for messages, and for how bytes are passed on.
            explain: returns what a broken connection means, None if nothing more is known.
        """
        self.peer = peer
        self._explain = explain
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
        self._socket: socket.socket | None = None
        """None: the kernel is not told how many bytes to wait for."""
        self._wake_bytes = 1
        """How many bytes must have arrived before the kernel wakes the event loop."""
        self._unsent: deque[wire.Part] = deque()
        """Pieces that are still to be encrypted."""
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's has its methods, not its class
        if _LOW_WATER is not None and not self._is_tls:
            self._socket = transport.get_extra_info("socket")

    def get_buffer(self, sizehint: int) -> memoryview:
        target = self._length if self._frame is None else self._frame
        return memoryview(target)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._frame is None:
            if self._filled == 4:
                self._start_frame()
            return
        left = len(self._frame) - self._filled
        if max(left, 1) < self._wake_bytes:
            self._wake_at(left or 1)
        if not left:
            frame, self._frame, self._filled = self._frame, None, 0
            self._deliver(frame)

    def _start_frame(self) -> None:
        size = int.from_bytes(self._length, "big", signed=True)
        self._filled = 0
        limit = min(self.max_frame_bytes, self._pending[0].max_bytes if self._pending else MAX_FIRST_FRAME_BYTES)
        if 4 <= size <= limit:
            if size > WAKE_BYTES and self.received_bytes >= WAKE_AT_ONCE_BYTES:
                self._wake_at(WAKE_BYTES)
            self.received_bytes += 4 + size
            self._frame = self._frames.take(size, self._loop.time())
        elif self.max_frame_bytes == MAX_FIRST_FRAME_BYTES:
            self.abort(NotKafka(self.peer, _guess_protocol(bytes(self._length), self.protocol), self.protocol))
        else:
            self.abort(CorruptReply(self.peer, f"a frame of {size} bytes, the limit is {limit}"))

    def _wake_at(self, size: int) -> None:
        """Have the kernel wake the event loop when this many bytes have arrived, or the connection has ended."""
        if self._socket is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, cast("int", _LOW_WATER), size)
            self._wake_bytes = size

    def _deliver(self, frame: Frame) -> None:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if not self._pending or self._pending[0].correlation_id != correlation_id:
            self.abort(CorruptReply(self.peer, f"reply to request {correlation_id}, which is not the oldest one open"))
            return
        pending = self._pending.popleft()
        if not pending.reply.done():  # else the caller was cancelled: its reply is dropped here
            pending.reply.set_result(frame)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._send_more()

    def _send_more(self) -> None:
        """Encrypt and send while the socket takes bytes. Encrypted bytes are a copy that no memory limit counts."""
        while self._unsent and not self._is_paused and self._transport is not None:
            self._transport.write(self._unsent.popleft())

    def connection_lost(self, exc: Exception | None) -> None:
        self._frame = None  # half a frame: its memory is free for others
        explained = self._explain(exc) if exc is not None else None
        why = f"the connection broke ({exc or 'closed by the broker'}{self._hint() if exc is None else ''})"
        self._fail(self._why or explained or BrokerUnreachable(self.peer, why))

    def _hint(self) -> str:
        """Return what the broker may have missed, judged by how far we got: it tells its versions to any client."""
        if self._next_correlation_id == 1 and self._is_tls:
            return "; a listener that asks for another client certificate does so"
        if self._next_correlation_id == 2 and not self.protocol.startswith("SASL"):
            return "; a listener that asks for SASL does so"
        return ""

    def _fail(self, why: KafkaError) -> None:
        self._why = why
        self._unsent.clear()
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

    def send(
        self,
        api_key: int,
        version: int,
        body: Sequence[wire.Part],
        *,
        flexible: bool,
        max_reply_bytes: int = MAX_MESSAGE_BYTES,
    ) -> asyncio.Future[Frame]:
        """Send one request; the future gets the whole reply frame, correlation id included."""
        if not self.is_open or self._transport is None:
            raise self._why or BrokerUnreachable(self.peer, "the connection is closed")
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        client = struct.pack(">h", len(self._client_id)) + self._client_id + (b"\x00" if flexible else b"")
        size = 8 + len(client) + sum(map(len, body))
        head = _HEAD.pack(size, api_key, version, correlation_id)
        reply: asyncio.Future[Frame] = self._loop.create_future()
        self._pending.append(_Pending(correlation_id, reply, max_reply_bytes))
        self.sent_bytes += 4 + size
        if self._is_tls:
            self._unsent.extend(tls_pieces([head + client, *body]))
            self._send_more()
        else:
            self._transport.writelines([head + client, *body])
        return reply


def tls_pieces(parts: Iterable[wire.Part]) -> Iterator[wire.Part]:
    """Yield the bytes of ``parts`` in pieces of ``TLS_PIECE_BYTES``, the last one smaller. Small parts are joined,
    large ones are cut without a copy."""
    piece = bytearray()
    for part in parts:
        view, at = memoryview(part), 0
        if piece:
            at = min(len(view), TLS_PIECE_BYTES - len(piece))
            piece += view[:at]
            if len(piece) == TLS_PIECE_BYTES:
                yield piece
                piece = bytearray()
        while len(view) - at >= TLS_PIECE_BYTES:
            yield view[at : at + TLS_PIECE_BYTES]
            at += TLS_PIECE_BYTES
        piece += view[at:]
    if piece:
        yield piece


def _guess_protocol(first_bytes: bytes, protocol: str) -> str:
    if first_bytes.startswith(_TLS_ALERT) and not protocol.endswith("SSL"):
        return f"it speaks TLS, and security.protocol is {protocol}"
    if first_bytes.isascii() and first_bytes.decode("ascii").isprintable():
        return f"it begins with the text {first_bytes.decode('ascii')!r}"
    return f"it begins with the bytes {first_bytes.hex()}"


_UNKNOWN_CODE: Final = re.compile(r"(-?\d+) is not a valid ErrorCode")

VersionRanges = Mapping[int, tuple[int, int]]
T = TypeVar("T")


class Connection:
    """A broker that has said which versions it speaks."""

    def __init__(
        self, stream: FrameStream, ranges: VersionRanges, report_no_session: Callable[[str], None] = lambda _: None
    ) -> None:
        """``report_no_session`` gets the broker's address with every read for which it grants no fetch session."""
        self._stream = stream
        self._ranges = ranges
        self._report_no_session = report_no_session
        self.peer = stream.peer
        self.round_trip_s = math.inf
        """How long the answer to its first request took."""
        self._session: SaslSession | None = None
        self._fetch_session = FetchSession()
        self._quota = Quota(stream.closed)

    @property
    def is_open(self) -> bool:
        return self._stream.is_open

    @property
    def is_idle(self) -> bool:
        """No request waits for its answer."""
        return self._stream.is_idle

    @property
    def traffic_bytes(self) -> tuple[int, int]:
        """How many bytes were sent and received so far."""
        return self._stream.sent_bytes, self._stream.received_bytes

    @property
    def reads_topic_ids(self) -> bool:
        return self._ranges.get(wire.FETCH_KEY, (0, 0))[1] >= wire.FIRST_WITH_TOPIC_IDS

    def close(self) -> None:
        self._stream.abort(BrokerUnreachable(self.peer, "mm2py closed the connection"))

    async def request(
        self, request: FetchRequest | ProduceRequest | Payload, timeout_s: float
    ) -> FetchReply | ProduceReply | Payload:
        """Send one request and return its reply; see ``Brokers.send`` for the errors."""
        if self._session is not None:
            await self._session.ensure()
        match request:
            case FetchRequest():
                return await self._fetch(request, timeout_s + request.max_wait_ms / 1000)
            case ProduceRequest():
                version = wire.usable_version(
                    request, self._version("Produce", wire.PRODUCE_KEY, wire.PRODUCE_VERSIONS)
                )
                await self._quota.wait()
                body = wire.encode_produce(request, version)
                names, asked = wire.names_by_id(request), wire.partition_count(request)
                reply = await self._reply(
                    "Produce",
                    self._stream.send(wire.PRODUCE_KEY, version, body, flexible=True),
                    timeout_s,
                    lambda frame: wire.decode_produce(frame, _after_header(frame), version, names, asked=asked),
                )
                self._quota.told(reply.throttle_ms / 1000)
                return reply
            case _:
                return await self._request_entity(request, timeout_s)

    async def _fetch(self, request: FetchRequest, timeout_s: float) -> FetchReply:
        """Read within the connection's fetch session; outside of it while another read uses the session."""
        version = wire.usable_version(request, self._version("Fetch", wire.FETCH_KEY, wire.FETCH_VERSIONS))
        names = wire.names_by_id(request)
        session = self._fetch_session
        if session.is_busy or request.answer_all:
            return await self._fetch_once(request, outside(request), version, names, timeout_s)
        by_id, waits, clock = version >= wire.FIRST_WITH_TOPIC_IDS, request.max_wait_ms > 0, asyncio.get_running_loop()
        try:
            while True:
                sent = session.next(request, by_id=by_id, now_s=clock.time())
                reply = await self._fetch_once(request, sent, version, names, timeout_s)
                is_for_caller = session.answered(sent, reply, waits=waits, now_s=clock.time())
                if session.is_refused:
                    self._report_no_session(self.peer)
                if is_for_caller:
                    return reply
        except BaseException:
            session.forget()  # the broker may have answered: what it remembers now is unknown
            raise

    async def _fetch_once(
        self, request: FetchRequest, sent: SessionFetch, version: int, names: wire.NamesById, timeout_s: float
    ) -> FetchReply:
        if self._session is not None:  # again: ``_fetch`` may send a request twice, and time has passed since
            await self._session.ensure()
        await self._quota.wait()
        body = wire.encode_fetch(request, version, sent)
        asked = wire.partition_count(request)
        reply = await self._reply(
            "Fetch",
            self._stream.send(wire.FETCH_KEY, version, body, flexible=True, max_reply_bytes=MAX_FRAME_BYTES),
            timeout_s,
            lambda frame: wire.decode_fetch(frame, _after_header(frame), version, names, asked=asked),
        )
        self._quota.told(reply.throttle_ms / 1000)
        return reply

    async def _request_entity(self, request: Payload, timeout_s: float) -> Payload:
        api = type(request).__name__.removesuffix("Request")
        version = int(request.__version__)
        self._version(api, int(request.__api_key__), (version, version))
        reply_type = messages.REPLY_TO[type(request)]
        await self._quota.wait()
        reply: Payload = await self._reply(
            api,
            self._stream.send(int(request.__api_key__), version, [encode(request)], flexible=_flexible(request)),
            timeout_s,
            lambda frame: read_entity(reply_type, bytes(frame), _after_header(frame) if _has_tags(reply_type) else 4),
            beside_loop=True,
        )
        if (pause := getattr(reply, "throttle_time", None)) is not None:
            self._quota.told(pause.total_seconds())
        return reply

    async def authenticate(self, access: Access, host: str, conversation: Conversation, timeout_s: float) -> None:
        """Authenticate, and from now on again whenever the broker wants it; see ``Access.authenticate``."""

        async def ask(request: Payload) -> Payload:
            return await self._request_entity(request, timeout_s)

        async def again() -> float | None:
            admission = await access.prepare(host)
            assert admission.conversation is not None  # noqa: S101  (there was one before)
            try:
                return await access.authenticate(self.peer, admission.conversation, ask)
            except BaseException as error:  # half authenticated, the connection is of no use
                given_up = BrokerUnreachable(self.peer, "authenticating it again was given up")
                self._stream.abort(error if isinstance(error, KafkaError) else given_up)
                raise

        lifetime_s = await access.authenticate(self.peer, conversation, ask)
        self._session = access.session(lifetime_s, again)

    async def _within(self, timeout_s: float, api: str, reply: asyncio.Future[Frame]) -> Frame:
        """Wait for a reply, ``timeout_s`` in total: a broker that sends one byte a second must not block us for longer.

        Pauses that a quota makes the broker take do not count.
        """
        try:
            async with asyncio.timeout(timeout_s) as deadline:
                with self._quota.counted(deadline):
                    return await reply
        except TimeoutError:
            error = RequestTimedOut(self.peer, api, timeout_s)
            self._stream.abort(error)
            raise error from None

    async def _reply(
        self,
        api: str,
        answer: asyncio.Future[Frame],
        timeout_s: float,
        read: Callable[[Frame], T],
        *,
        beside_loop: bool = False,
    ) -> T:
        """Wait for an answer and return what it holds. The connection is closed if its bytes cannot be read.

        Neither this function nor its callers keep the answer in a variable when they raise: see ``value_or_error``.

        Args:
            beside_loop: read a large answer in a thread.
        """
        frame = await self._within(timeout_s, api, answer)
        del answer
        if beside_loop and len(frame) > LARGE_REPLY_BYTES:
            found = await asyncio.get_running_loop().run_in_executor(_LARGE_REPLIES, value_or_error, read, frame)
        else:
            found = value_or_error(read, frame)
        del frame
        if isinstance(found, Exception):
            raise self._unreadable(api, found) from found
        return found

    def _unreadable(self, api: str, error: Exception) -> KafkaError:
        """Return the error for a reply, and close the connection unless the reply just has an unknown error code."""
        if unknown := _UNKNOWN_CODE.fullmatch(str(error)):  # kio cannot read a code newer than itself
            return self._refused(api, int(unknown[1]))
        reason: KafkaError = CorruptReply(self.peer, f"{api}: {str(error) or type(error).__name__}")
        if isinstance(error, TooManyValues):
            reason = ReplyTooLarge(self.peer, api, str(error))
        self._stream.abort(reason)
        return reason

    def _refused(self, api: str, code: int) -> BrokerRefused:
        return BrokerRefused(
            f"{api} on {self.peer}",
            code,
            remedy="Kafka's list of protocol errors says what it means; a newer mm2py may know it.",
        )

    def _version(self, api: str, key: int, ours: tuple[int, int]) -> int:
        lowest, highest = self._ranges.get(key, (0, -1))
        chosen = min(highest, ours[1])
        if chosen < max(lowest, ours[0]):
            offered = f"{lowest}-{highest}" if highest >= 0 else "none"
            raise UnsupportedVersion(self.peer, api, wanted=f"{ours[0]}-{ours[1]}", offered=offered)
        return chosen


class Quota:
    """The pauses that the broker's quotas impose on one connection."""

    def __init__(self, closed: asyncio.Future[None]) -> None:
        """``closed`` is done when the connection is closed; then no caller waits any longer."""
        self._closed = closed
        self._until_s = 0.0
        self._waiting = 0
        self._turn = asyncio.Lock()
        self._deadlines: set[asyncio.Timeout] = set()

    async def wait(self) -> None:
        """Wait until the broker reads again. Callers return in the order in which they came, so requests keep theirs.

        The story: five batches of one partition wait for the same moment. Timers that are due together fire in any
        order, and the broker would refuse the second batch because the first is missing.
        """
        loop = asyncio.get_running_loop()
        if not self._waiting and self._until_s <= loop.time():
            return
        self._waiting += 1
        try:
            async with self._turn:
                while not self._closed.done() and (left_s := self._until_s - loop.time()) > 0:
                    await asyncio.wait([self._closed], timeout=left_s)
        finally:
            self._waiting -= 1

    @contextmanager
    def counted(self, deadline: asyncio.Timeout) -> Iterator[None]:
        """Move the deadline of a sent request by each pause that a reply names before the block ends."""
        self._deadlines.add(deadline)
        try:
            yield
        finally:
            self._deadlines.discard(deadline)

    def told(self, pause_s: float) -> None:
        """Note the pause that a reply names, 0 if there is none."""
        if pause_s <= 0:
            return
        self._until_s = max(self._until_s, asyncio.get_running_loop().time() + pause_s)
        for deadline in self._deadlines:
            at_s = deadline.when()
            if at_s is not None and not deadline.expired():
                deadline.reschedule(at_s + pause_s)


def encode(entity: Payload) -> bytes:
    """Return the bytes of a request's body."""
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def _flexible(request: Payload) -> bool:
    return request.__header_schema__ is RequestHeader


def _has_tags(reply_type: type[Payload]) -> bool:
    """Whether a reply's header has tags. The reply about versions keeps the old header: any client can read it."""
    return bool(reply_type.__flexible__) and reply_type is not messages.ApiVersionsResponse


def _after_header(frame: bytes | Frame) -> int:
    """Return the position of the body, after correlation id and tags (which brokers leave empty)."""
    if frame[4] != 0:
        raise wire.Malformed("tags in the reply header")
    return 5
