"""One connection to one broker: framing, replies in order, versions, time-outs, and peers that are no brokers."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import socket
import struct
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v17.request import FetchRequest as FetchRequestV17
from kio.schema.fetch.v17.response import FetchableTopicResponse, PartitionData
from kio.schema.fetch.v17.response import FetchResponse as FetchResponseV17
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32, i64
from kio.static.protocol import Payload

from mm2py.kafka import messages
from mm2py.kafka.errors import (
    BrokerRefused,
    BrokerUnreachable,
    CorruptReply,
    KafkaError,
    NotKafka,
    RequestTimedOut,
    UnsupportedVersion,
)
from mm2py.kafka.port import FetchReply, FetchRequest, PartitionFetch, TopicFetch
from mm2py.kafka.transport.connection import (
    MAX_FIRST_FRAME_BYTES,
    MAX_FRAME_BYTES,
    MAX_MESSAGE_BYTES,
    TLS_PIECE_BYTES,
    WAKE_AT_ONCE_BYTES,
    WAKE_BYTES,
    Connection,
    FrameStream,
    tls_pieces,
)
from mm2py.kafka.transport.opening import ConnectionOptions, connect

pytestmark = pytest.mark.both_loops  # each has its own idea of a buffered protocol

METADATA = messages.MetadataRequest(
    topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False
)
METADATA_KEY, FETCH_KEY, API_VERSIONS_KEY = 3, 1, 18
RANGES = {0: (0, 13), FETCH_KEY: (4, 17), METADATA_KEY: (0, 13), API_VERSIONS_KEY: (0, 4)}

Answer = Callable[["Request"], Awaitable[bytes | None] | bytes | None]


# -- a server that does as it is told ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    api_key: int
    version: int
    correlation_id: int
    body: bytes
    """What follows the correlation id: client id, tags, request."""


def frame(correlation_id: int, body: bytes, *, header_tags: bytes = b"\0") -> bytes:
    content = struct.pack(">i", correlation_id) + header_tags + body
    return struct.pack(">i", len(content)) + content


def written(entity: Payload) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def api_versions(correlation_id: int, ranges: Mapping[int, tuple[int, int]] = RANGES, error: int = 0) -> bytes:
    from kio.schema.api_versions.v3.response import ApiVersion

    reply = messages.ApiVersionsResponse(
        error_code=ErrorCode(error),
        api_keys=tuple(
            ApiVersion(api_key=i16(key), min_version=i16(low), max_version=i16(high))
            for key, (low, high) in ranges.items()
        ),
        throttle_time=NO_TIME,
    )
    return frame(correlation_id, written(reply), header_tags=b"")


def metadata_reply(correlation_id: int, pause_ms: int = 0) -> bytes:
    reply = messages.MetadataResponse(
        throttle_time=_time(pause_ms), brokers=(), cluster_id="the cluster", controller_id=CONTROLLER, topics=()
    )
    return frame(correlation_id, written(reply))


def _time(milliseconds: int) -> Any:
    import datetime

    from kio.static.primitive import i32Timedelta

    return i32Timedelta.parse(datetime.timedelta(milliseconds=milliseconds))


NO_TIME = _time(0)
CONTROLLER = cast("Any", i32(1))


@dataclass
class Server:
    """Listens on loopback; ``seen`` holds the requests in order."""

    port: int
    seen: list[Request] = field(default_factory=list)

    async def connect(self, **options: Any) -> Connection:
        return await connect(
            "127.0.0.1", self.port, client_id="test", timeout_s=5, options=ConnectionOptions(**options)
        )


@contextlib.asynccontextmanager
async def server(
    answer: Answer | None = None, *, ranges: Mapping[int, tuple[int, int]] = RANGES
) -> AsyncIterator[Server]:
    """A broker that tells its versions; to all else it answers what ``answer`` returns, or never if that is None."""
    made = Server(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                content = await reader.readexactly(size)
                request = Request(*struct.unpack(">hhi", content[:8]), content[8:])
                made.seen.append(request)
                if request.api_key == API_VERSIONS_KEY:
                    writer.write(api_versions(request.correlation_id, ranges))
                    continue
                reply = None if answer is None else answer(request)
                if isinstance(reply, Awaitable):
                    reply = await reply
                if reply == b"":
                    writer.close()
                elif reply is not None:
                    writer.write(cast("bytes", reply))

    async with raw_server(serve) as port:
        made.port = port
        yield made


@contextlib.asynccontextmanager
async def raw_server(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    """Listens and leaves every byte to ``serve``."""
    running: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await serve(reader, writer)
        finally:
            running.discard(task)
            writer.transport.abort()

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def ask(connection: Connection, timeout_s: float = 5) -> messages.MetadataResponse:
    reply = await connection.request(METADATA, timeout_s)
    assert isinstance(reply, messages.MetadataResponse)
    return reply


async def refused(what: Awaitable[object], kind: type[KafkaError]) -> str:
    """Return the message of the error that ``what`` raises."""
    with pytest.raises(kind) as raised:
        await what
    return str(raised.value)


# -- framing -----------------------------------------------------------------------------------------------------------


class Wire(asyncio.Transport):
    """A transport that keeps what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.aborted = False

    def writelines(self, list_of_data: Any) -> None:
        self.sent += b"".join(list_of_data)

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


def open_stream(*, is_broker: bool = True) -> tuple[FrameStream, Wire]:
    stream, transport = FrameStream("broker:9092", "test"), Wire()
    stream.connection_made(transport)
    if is_broker:
        stream.max_frame_bytes = MAX_FRAME_BYTES
    return stream, transport


def feed(stream: FrameStream, data: bytes) -> None:
    """Hand over bytes as an event loop does: into the buffer that the stream offers, as much as fits."""
    while data:
        buffer = stream.get_buffer(-1)
        taken = min(len(buffer), len(data))
        buffer[:taken] = data[:taken]
        data = data[taken:]
        stream.buffer_updated(taken)


def send(stream: FrameStream, max_reply_bytes: int = MAX_FRAME_BYTES) -> asyncio.Future[bytearray]:
    return stream.send(METADATA_KEY, 12, [b"body"], flexible=True, max_reply_bytes=max_reply_bytes)


@given(bodies=st.lists(st.binary(max_size=40), min_size=1, max_size=4), cuts=st.lists(st.integers(0, 200), max_size=40))
def test_frames_arrive_whole_however_the_network_cuts_them(bodies: list[bytes], cuts: list[int]) -> None:
    async def main() -> None:
        stream, _ = open_stream()
        replies = [send(stream) for _ in bodies]
        data = b"".join(frame(number, body) for number, body in enumerate(bodies))
        ends = sorted({0, *(cut % (len(data) + 1) for cut in cuts), len(data)})
        for start, end in itertools.pairwise(ends):
            feed(stream, data[start:end])
        assert [bytes(reply.result()) for reply in replies] == [
            struct.pack(">i", number) + b"\0" + body for number, body in enumerate(bodies)
        ]
        assert stream.is_open

    asyncio.run(main())


class Counted(FrameStream):
    """Counts how often the event loop was woken for it."""

    updates = 0

    def buffer_updated(self, nbytes: int) -> None:
        self.updates += 1
        super().buffer_updated(nbytes)


async def counted(port: int) -> Counted:
    loop = asyncio.get_running_loop()
    _, stream = await loop.create_connection(lambda: Counted("broker:9092", "test"), "127.0.0.1", port)
    stream.max_frame_bytes = MAX_FRAME_BYTES
    return stream


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux is told when to wake the event loop")
async def test_a_large_frame_that_drips_wakes_the_event_loop_seldom() -> None:
    """Over a long link each packet came alone. What follows the frame comes at once, though it is small."""
    sizes = [WAKE_AT_ONCE_BYTES, 1 << 20, 10, (1 << 20) + 3, WAKE_BYTES + 1, 0]

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for data in [frame(number, bytes(size)) for number, size in enumerate(sizes)]:
            for start in range(0, len(data), 1400):
                writer.write(data[start : start + 1400])
                await writer.drain()
                await asyncio.sleep(0)
        await asyncio.Event().wait()

    async with raw_server(drip) as port:
        stream = await counted(port)
        replies = [send(stream) for _ in sizes]
        assert len(await replies[0]) == 5 + sizes[0]
        before = stream.updates
        assert [len(await reply) for reply in replies[1:]] == [5 + size for size in sizes[1:]]
        assert stream.updates - before < 100  # 1,600 pieces


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux is told when to wake the event loop")
async def test_the_first_bytes_of_a_connection_are_read_at_once_so_that_the_kernel_widens_its_window() -> None:
    """A connection over 100 ms kept its first window of 64 KB for seconds: all of it had come before it was read."""
    sent = asyncio.Event()

    async def stop_within(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = frame(0, bytes(WAKE_AT_ONCE_BYTES))
        writer.write(first[: len(first) // 2])
        await sent.wait()
        writer.write(first[len(first) // 2 :] + frame(1, bytes(1 << 20))[: WAKE_BYTES // 2])
        await asyncio.Event().wait()

    async with raw_server(stop_within) as port:
        stream = await counted(port)
        first, _ = send(stream), send(stream)
        while not stream.updates:
            await asyncio.sleep(0)
        assert wakes_at(stream) == 1
        sent.set()
        await first
        while wakes_at(stream) == 1:
            await asyncio.sleep(0)
        assert wakes_at(stream) == WAKE_BYTES


def wakes_at(stream: Counted) -> int:
    """Return how many bytes must have come before the kernel wakes the event loop."""
    found = stream._transport.get_extra_info("socket")  # type: ignore[union-attr]
    return int(found.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT))


async def test_a_connection_that_ends_within_a_large_frame_is_noticed_at_once() -> None:
    async def break_off(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frame(0, bytes(1 << 20))[: WAKE_BYTES + 100])
        await writer.drain()

    async with raw_server(break_off) as port:
        stream = await counted(port)
        await refused(send(stream), BrokerUnreachable)


@pytest.mark.real_time
async def test_a_frame_may_come_byte_by_byte() -> None:
    stream, _ = open_stream()
    reply = send(stream)
    for byte in frame(0, b"a body"):
        assert not reply.done()
        feed(stream, bytes([byte]))
    assert bytes(reply.result()) == b"\0\0\0\0\0a body"


@pytest.mark.parametrize("limit", [MAX_FRAME_BYTES, MAX_MESSAGE_BYTES])
@pytest.mark.parametrize("size", [MAX_FRAME_BYTES + 1, 2**31 - 1, 3, 0, -1, -(2**31)])
@pytest.mark.real_time
async def test_a_size_that_cannot_be_ends_the_connection_before_memory_is_taken(limit: int, size: int) -> None:
    stream, transport = open_stream()
    reply = send(stream, max_reply_bytes=limit)
    feed(stream, struct.pack(">i", size))
    assert transport.aborted
    assert not stream.is_open
    assert stream._frame is None
    with pytest.raises(CorruptReply, match=rf"a frame of {size} bytes, the limit is {limit}"):
        reply.result()


@pytest.mark.real_time
async def test_who_has_not_proved_to_be_a_broker_is_trusted_with_less() -> None:
    for size, trusted in [(MAX_FIRST_FRAME_BYTES, True), (MAX_FIRST_FRAME_BYTES + 1, False)]:
        stream, transport = open_stream(is_broker=False)
        reply = send(stream)
        feed(stream, struct.pack(">i", size))
        assert transport.aborted is not trusted
        if not trusted:
            with pytest.raises(NotKafka, match="it begins with the bytes 00010001"):
                reply.result()


@pytest.mark.real_time
async def test_a_reply_to_another_request_ends_the_connection() -> None:
    stream, transport = open_stream()
    first, second = send(stream), send(stream)
    feed(stream, frame(1, b"too early"))
    assert transport.aborted
    for reply in (first, second):
        with pytest.raises(CorruptReply, match="reply to request 1, which is not the oldest one open"):
            reply.result()
    with pytest.raises(CorruptReply):
        send(stream)


@pytest.mark.real_time
async def test_a_reply_without_a_request_ends_the_connection() -> None:
    stream, transport = open_stream()
    feed(stream, frame(0, b"hello"))
    assert transport.aborted


@pytest.mark.real_time
async def test_correlation_ids_start_again_before_they_turn_negative() -> None:
    stream, _ = open_stream()
    stream._next_correlation_id = 2**31 - 1
    replies = [send(stream), send(stream)]
    feed(stream, frame(2**31 - 1, b"") + frame(0, b""))
    assert all(reply.done() for reply in replies)
    assert stream.is_open


# -- asking ------------------------------------------------------------------------------------------------------------


async def test_the_reply_to_a_cancelled_request_is_dropped() -> None:
    go = asyncio.Event()

    async def later(request: Request) -> bytes:
        await go.wait()
        return metadata_reply(request.correlation_id)

    async with server(later) as broker:
        connection = await broker.connect()
        gone = asyncio.create_task(ask(connection))
        patient = asyncio.create_task(ask(connection))
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        go.set()
        assert (await patient).cluster_id == "the cluster"
        assert connection.is_open


async def test_a_reply_that_does_not_come_in_time_closes_the_connection() -> None:
    async with server() as broker:
        connection = await broker.connect()
        other = asyncio.create_task(ask(connection))
        text = await refused(ask(connection, 0.05), RequestTimedOut)
        assert text.startswith(f"127.0.0.1:{broker.port} did not answer Metadata within 0.05 s.")
        assert not connection.is_open
        await refused(other, RequestTimedOut)  # the stream cannot be trusted any more: all that is open fails


async def test_a_broker_that_drips_is_timed_out_all_the_same() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(api_versions(0))
        await reader.read(1000)
        for byte in metadata_reply(1):
            writer.write(bytes([byte]))
            await asyncio.sleep(0.04)

    async with raw_server(drip) as port:
        connection = await Server(port).connect()
        await refused(ask(connection, 0.2), RequestTimedOut)


async def test_a_long_poll_may_take_its_wait_on_top_of_the_time_out() -> None:
    topic_id = uuid.uuid4()

    async def after_the_wait(request: Request) -> bytes:
        await asyncio.sleep(0.3)
        return frame(request.correlation_id, struct.pack(">ihi", 0, 0, 0) + b"\1\0")

    fetch = FetchRequest([TopicFetch("t", topic_id, [PartitionFetch(0, 0, 1)])], 600, 1, 1, read_committed=False)
    async with server(after_the_wait) as broker:
        connection = await broker.connect()
        assert await connection.request(fetch, 0.1) == FetchReply([], size_bytes=17)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (lambda number: frame(number, b"\xff" * 50), "cannot be read"),
        (lambda number: frame(number, b""), "cannot be read"),
        (lambda number: frame(number, metadata_reply(number)[9:], header_tags=b"\1\5\1x"), "tags in the reply header"),
        (lambda number: frame(number + 1, b"x"), "which is not the oldest one open"),
        (lambda _: struct.pack(">i", 2**31 - 1), "a frame of 2147483647 bytes"),
    ],
    ids=["noise", "empty", "tags", "wrong number", "two gigabytes"],
)
async def test_a_reply_that_cannot_be_read_says_so_and_closes(reply: Callable[[int], bytes], why: str) -> None:
    async with server(lambda request: reply(request.correlation_id)) as broker:
        connection = await broker.connect()
        text = await refused(ask(connection), CorruptReply)
        assert text.startswith(f"127.0.0.1:{broker.port} sent a reply that cannot be read")
        assert why in text
        assert not connection.is_open


async def test_an_error_that_is_younger_than_mm2py_is_named_by_its_number() -> None:
    def answer(request: Request) -> bytes:
        return frame(request.correlation_id, struct.pack(">ihqh", 0, 999, -1, -1) + b"\0")

    async with server(answer, ranges={**RANGES, 22: (0, 5)}) as broker:
        connection = await broker.connect()
        asked = messages.InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout=NO_TIME,
            producer_id=cast("Any", i64(-1)),
            producer_epoch=i16(-1),
        )
        with pytest.raises(BrokerRefused) as raised:
            await connection.request(asked, 5)
        assert raised.value.code == 999
        assert str(raised.value) == (
            f"InitProducerId on 127.0.0.1:{broker.port} was refused with an error code unknown to mm2py (999). "
            "Kafka's list of protocol errors says what it means; a newer mm2py may know it."
        )
        assert connection.is_open  # the reply was whole, only its meaning is unknown


async def test_a_damaged_fetch_reply_says_so_and_closes() -> None:
    async with server(lambda request: frame(request.correlation_id, b"\xff" * 12)) as broker:
        connection = await broker.connect()
        fetch = FetchRequest([], 0, 0, 0, read_committed=False)
        assert "Fetch: bad varint" in await refused(connection.request(fetch, 1), CorruptReply)
        assert not connection.is_open


# -- quotas ------------------------------------------------------------------------------------------------------------


def throttled(request: Request, pause_ms: int) -> bytes:
    """A fetch reply without records that names a pause."""
    return frame(request.correlation_id, struct.pack(">ihi", pause_ms, 0, 0) + b"\1\0")


def unsessioned_fetch() -> FetchRequest:
    wanted = [TopicFetch("t", uuid.UUID(int=7), [PartitionFetch(0, 0, 1)])]
    return FetchRequest(wanted, 0, 1, 1, read_committed=False, answer_all=True)


async def test_a_request_on_its_way_when_a_quota_silences_the_broker_is_not_timed_out() -> None:
    """It lies unread until the pause is over, and has the whole of its time then."""

    async def answer(request: Request) -> bytes:
        if len(broker.seen) == 2:  # behind the question for versions
            return throttled(request, 400)
        await asyncio.sleep(0.4)
        return throttled(request, 0)

    async with server(answer) as broker:
        connection = await broker.connect()
        first = asyncio.create_task(connection.request(unsessioned_fetch(), 0.25))
        second = asyncio.create_task(connection.request(unsessioned_fetch(), 0.25))
        assert await first == FetchReply([], size_bytes=17, throttle_ms=400)
        assert await second == FetchReply([], size_bytes=17)
        assert connection.is_open


async def test_what_comes_while_a_quota_silences_the_broker_is_sent_afterwards_and_in_order() -> None:
    async with server(lambda request: throttled(request, 300 if len(broker.seen) == 2 else 0)) as broker:
        connection = await broker.connect()
        loop = asyncio.get_running_loop()
        await connection.request(unsessioned_fetch(), 5)
        begun_s = loop.time()
        order: list[int] = []

        async def one(number: int) -> None:
            await connection.request(unsessioned_fetch(), 0.2)
            order.append(number)

        async with asyncio.TaskGroup() as later:
            for number in range(4):
                later.create_task(one(number))
            await asyncio.sleep(0.15)
            assert len(broker.seen) == 2, "it was sent into the pause"
        assert order == [0, 1, 2, 3]
        assert loop.time() - begun_s >= 0.29


async def test_a_request_that_is_no_read_and_no_write_obeys_a_quota_as_well() -> None:
    def answer(request: Request) -> bytes:
        pause_ms = 300 if len(broker.seen) == 2 else 0
        return metadata_reply(request.correlation_id, pause_ms)

    async with server(answer) as broker:
        connection = await broker.connect()
        await ask(connection)
        begun_s = asyncio.get_running_loop().time()
        await ask(connection, 0.2)
        assert asyncio.get_running_loop().time() - begun_s >= 0.29


async def test_closing_a_connection_ends_a_quota_pause() -> None:
    async with server(lambda request: throttled(request, 60_000)) as broker:
        connection = await broker.connect()
        await connection.request(unsessioned_fetch(), 5)
        waits = asyncio.create_task(connection.request(unsessioned_fetch(), 5))
        await asyncio.sleep(0.05)
        connection.close()
        await refused(waits, BrokerUnreachable)


# -- fetch sessions ----------------------------------------------------------------------------------------------------

TOPIC_ID = uuid.UUID(int=7)


def sent_as(request: Request) -> tuple[int, int, list[int]]:
    """Return session id, epoch and partitions of a fetch request as it travelled."""
    body, _ = entity_reader(FetchRequestV17)(request.body[2 + len("test") + 1 :], 0)
    return body.session_id, body.session_epoch, [part.partition for topic in body.topics for part in topic.partitions]


def fetch_answer(request: Request, *, session_id: int, error: int = 0, partitions: Sequence[int] = ()) -> bytes:
    parts = tuple(
        PartitionData(
            partition_index=i32(number),
            error_code=ErrorCode(0),
            high_watermark=i64(9),
            aborted_transactions=None,
            records=None,
        )
        for number in partitions
    )
    topics = (FetchableTopicResponse(topic_id=TOPIC_ID, partitions=parts),) if parts else ()
    reply = FetchResponseV17(
        throttle_time=NO_TIME, error_code=ErrorCode(error), session_id=i32(session_id), responses=topics
    )
    return frame(request.correlation_id, written(reply))


def two_partitions() -> FetchRequest:
    wanted = [PartitionFetch(0, 9, 1), PartitionFetch(1, 9, 1)]
    return FetchRequest([TopicFetch("t", TOPIC_ID, wanted)], 500, 1, 1, read_committed=False)


async def fetched(connection: Connection) -> tuple[int, list[int]]:
    """Return error and partitions of a reply."""
    reply = await connection.request(two_partitions(), 5)
    assert isinstance(reply, FetchReply)
    return reply.error_code, [part.partition for part in reply.partitions]


async def test_what_a_broker_remembers_is_not_sent_again() -> None:
    def answer(request: Request) -> bytes:
        return fetch_answer(request, session_id=5, partitions=() if sent_as(request)[1] else [0, 1])

    async with server(answer) as broker:
        connection = await broker.connect()
        assert await fetched(connection) == (0, [0, 1])
        before = connection.traffic_bytes
        assert await fetched(connection) == (0, [])
        assert [sent_as(request) for request in broker.seen[1:]] == [(0, 0, [0, 1]), (5, 1, [])]
        sent, received = (now - then for now, then in zip(connection.traffic_bytes, before, strict=True))
        assert (sent, received) == (4 + 8 + 6 + 1 + 21 + 4, 4 + 4 + 1 + 10 + 2)


async def test_a_broker_that_grants_no_fetch_session_is_reported() -> None:
    said: list[str] = []

    def refuse(request: Request) -> bytes:
        return fetch_answer(request, session_id=0, partitions=[0, 1])

    def lose(request: Request) -> bytes:
        if sent_as(request)[1] > 0:
            return fetch_answer(request, session_id=0, error=70)
        return fetch_answer(request, session_id=5, partitions=[0, 1])

    def grant(request: Request) -> bytes:
        return fetch_answer(request, session_id=5, partitions=[0, 1])

    for answer, reported in ((refuse, True), (lose, True), (grant, False)):
        said.clear()
        async with server(answer) as broker:
            connection = await broker.connect(report_no_session=said.append)
            assert [await fetched(connection) for _ in range(2)] == [(0, [0, 1])] * 2
            assert set(said) == ({f"127.0.0.1:{broker.port}"} if reported else set()), answer.__name__


async def test_a_fetch_that_is_sent_again_waits_until_the_connection_is_authenticated_again() -> None:
    """The story: the broker lost the fetch session while another request was renewing the authentication. The fetch
    went out again between handshake and proof, and the broker closed the connection."""
    log: list[str] = []

    class Authenticated:
        async def ensure(self) -> None:
            log.append("ensured")
            await asyncio.sleep(0)

    def answer(request: Request) -> bytes:
        log.append("fetch")
        if sent_as(request)[1] > 0:
            return fetch_answer(request, session_id=0, error=70)
        return fetch_answer(request, session_id=5, partitions=[0, 1])

    async with server(answer) as broker:
        connection = await broker.connect()
        connection._session = cast("Any", Authenticated())
        await fetched(connection)
        await fetched(connection)
        sends = [at for at, what in enumerate(log) if what == "fetch"]
        assert len(sends) == 3
        assert all(log[at - 1] == "ensured" for at in sends), log


async def test_a_fetch_that_is_cancelled_ends_the_session() -> None:
    """Its answer comes all the same, and told of news that nobody heard."""
    go = asyncio.Event()

    async def answer(request: Request) -> bytes:
        if sent_as(request)[1] > 0:
            await go.wait()
        return fetch_answer(request, session_id=5, partitions=[0, 1])

    async with server(answer) as broker:
        connection = await broker.connect()
        await fetched(connection)
        gone = asyncio.create_task(fetched(connection))
        while len(broker.seen) < 3:
            await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        go.set()
        assert await fetched(connection) == (0, [0, 1])
        assert [sent_as(request) for request in broker.seen[1:]] == [(0, 0, [0, 1]), (5, 1, []), (5, 0, [0, 1])]


async def test_two_fetches_at_once_do_not_share_the_session() -> None:
    def answer(request: Request) -> bytes:
        _, epoch, partitions = sent_as(request)
        return fetch_answer(request, session_id=0 if epoch < 0 else 5, partitions=partitions)

    async with server(answer) as broker:
        connection = await broker.connect()
        await fetched(connection)
        answers = await asyncio.gather(fetched(connection), fetched(connection))
        assert answers == [(0, []), (0, [0, 1])]
        await fetched(connection)
        epochs = [sent_as(request)[:2] for request in broker.seen[1:]]
        assert epochs == [(0, 0), (5, 1), (0, -1), (5, 2)]


async def test_who_wants_every_partition_answered_reads_outside_the_session() -> None:
    def answer(request: Request) -> bytes:
        return fetch_answer(request, session_id=5, partitions=sent_as(request)[2])

    async with server(answer) as broker:
        connection = await broker.connect()
        await fetched(connection)
        reply = await connection.request(replace(two_partitions(), answer_all=True), 5)
        assert isinstance(reply, FetchReply)
        assert len(reply.partitions) == 2
        await fetched(connection)
        assert [sent_as(request)[:2] for request in broker.seen[1:]] == [(0, 0), (0, -1), (5, 1)]


# -- versions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offered", "cap", "topic_id", "wanted"),
    [
        ((4, 17), None, uuid.UUID(int=1), 17),
        ((4, 18), None, uuid.UUID(int=1), 17),
        ((4, 13), None, uuid.UUID(int=1), 13),
        ((4, 17), 13, uuid.UUID(int=1), 13),
        ((4, 17), 12, uuid.UUID(int=1), 12),
        ((4, 17), None, None, 12),
        ((4, 12), 20, None, 12),
    ],
)
async def test_the_highest_version_is_used_that_both_speak_and_no_cap_forbids(
    offered: tuple[int, int], cap: int | None, topic_id: uuid.UUID | None, wanted: int
) -> None:
    async with server(
        lambda request: frame(request.correlation_id, struct.pack(">ihi", 0, 0, 0) + b"\1\0"),
        ranges={**RANGES, FETCH_KEY: offered},
    ) as broker:
        connection = await broker.connect(version_caps={} if cap is None else {FETCH_KEY: cap})
        fetch = FetchRequest([TopicFetch("t", topic_id, [])], 0, 0, 0, read_committed=False)
        await connection.request(fetch, 5)
        assert broker.seen[-1].version == wanted
        assert connection.reads_topic_ids is (min(offered[1], cap or 99) >= 13)


@pytest.mark.parametrize(
    ("ranges", "wanted"),
    [
        ({**RANGES, METADATA_KEY: (0, 11)}, "speaks Metadata in versions 0-11, mm2py in 12-12."),
        ({**RANGES, METADATA_KEY: (13, 14)}, "speaks Metadata in versions 13-14, mm2py in 12-12."),
        ({API_VERSIONS_KEY: (0, 4)}, "speaks Metadata in versions none, mm2py in 12-12."),
    ],
)
async def test_no_common_version_names_api_and_versions(ranges: Mapping[int, tuple[int, int]], wanted: str) -> None:
    async with server(ranges=ranges) as broker:
        connection = await broker.connect()
        text = await refused(ask(connection), UnsupportedVersion)
        assert text == f"127.0.0.1:{broker.port} {wanted} mm2py works with brokers from 3.3 to 4.4."
        assert connection.is_open


async def test_a_broker_of_before_2_4_is_told_from_something_else() -> None:
    async def old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(frame(0, struct.pack(">hi", 35, 0), header_tags=b""))
        await reader.read()

    async with raw_server(old) as port:
        text = await refused(Server(port).connect(), UnsupportedVersion)
        assert "speaks ApiVersions in versions older ones only, mm2py in 3." in text


# -- what is no broker -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("says", "kind", "why"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", NotKafka, "it begins with the text 'HTTP'"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", NotKafka, "it begins with the text 'SSH-'"),
        (b"\x15\x03\x03\x00\x02\x02\x46", NotKafka, "it speaks TLS, and security.protocol is PLAINTEXT"),
        (b"\x7f\xff\xff\xff", NotKafka, "it begins with the bytes 7fffffff"),
        (b"\x00\x00\x00\x10" + b"\x00" * 16, NotKafka, "its first reply cannot be read"),
        (frame(7, b"\0" * 20), CorruptReply, "reply to request 7, which is not the oldest one open"),
        (b"", BrokerUnreachable, "the connection broke"),
    ],
    ids=["HTTP", "SSH", "TLS", "two gigabytes", "zeros", "wrong number", "hangs up"],
)
async def test_what_is_no_broker_is_named(says: bytes, kind: type[KafkaError], why: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(says)
        if says:
            await reader.read()

    async with raw_server(serve) as port:
        text = await refused(Server(port).connect(), kind)
        assert text.startswith(f"127.0.0.1:{port} ")
        assert why in text


async def test_who_accepts_and_says_nothing_is_given_up() -> None:
    async def serve(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with raw_server(serve) as port:
        silent = connect("127.0.0.1", port, client_id="test", timeout_s=0.7)
        assert "it accepts connections but says nothing within 0.7 s" in await refused(silent, NotKafka)


@given(sizes=st.lists(st.sampled_from([0, 1, 7, 100, 65_535, 65_536, 65_537, 200_000]), max_size=6))
def test_over_tls_a_request_goes_in_pieces_of_one_size_and_in_order(sizes: list[int]) -> None:
    parts = [bytes([number]) * size for number, size in enumerate(sizes)]
    pieces = [bytes(piece) for piece in tls_pieces(parts)]
    assert b"".join(pieces) == b"".join(parts)
    assert all(len(piece) == TLS_PIECE_BYTES for piece in pieces[:-1])
    assert all(0 < len(piece) <= TLS_PIECE_BYTES for piece in pieces)


class SlowWire(Wire):
    """Takes three pieces, then asks to wait, as an event loop whose socket is full."""

    stream: FrameStream

    def write(self, data: Any) -> None:
        self.sent += data
        self.pieces = getattr(self, "pieces", 0) + 1
        if self.pieces % 3 == 0:
            self.stream.pause_writing()


@pytest.mark.real_time
async def test_over_tls_no_more_is_encrypted_than_the_socket_takes() -> None:
    """What is encrypted is a copy. Requests of 40 MB in flight were there twice, once of them in no account."""
    stream, transport = FrameStream("broker:9092", "test", "SSL"), SlowWire()
    transport.stream = stream
    stream.connection_made(transport)
    bodies = [bytes([number]) * (5 * TLS_PIECE_BYTES) for number in (1, 2)]
    replies = [stream.send(METADATA_KEY, 12, [body], flexible=True) for body in bodies]
    assert len(transport.sent) == 3 * TLS_PIECE_BYTES
    while len(transport.sent) < 10 * TLS_PIECE_BYTES:
        before = len(transport.sent)
        stream.resume_writing()
        assert before < len(transport.sent) <= before + 3 * TLS_PIECE_BYTES
    stream.resume_writing()
    sent = bytes(transport.sent)
    first = 4 + int.from_bytes(sent[:4])
    assert sent[:first].endswith(bodies[0])
    assert sent[first:].endswith(bodies[1])
    assert len(sent) == first + 4 + int.from_bytes(sent[first : first + 4])
    stream.abort(BrokerUnreachable("broker:9092", "over"))
    assert all(isinstance(reply.exception(), BrokerUnreachable) for reply in replies)
