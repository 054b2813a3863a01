"""A stranger at a broker's port answers with counts and sizes: its connection ends, and the event loop goes on. B83."""

from __future__ import annotations

import asyncio
import gc
import struct
import uuid
import weakref
from collections.abc import Callable

import pytest

from mm2py.kafka.cluster import PARTITIONS_AT_ONCE, fetch_metadata
from mm2py.kafka.errors import CorruptReply, NotKafka, ReplyTooLarge
from mm2py.kafka.port import FetchRequest, PartitionFetch, ProduceRequest, TopicFetch, TopicProduce
from mm2py.kafka.transport import wire
from mm2py.kafka.transport.connection import LARGE_REPLY_BYTES, MAX_FRAME_BYTES, MAX_MESSAGE_BYTES
from mm2py.kafka.transport.opening import connect
from mm2py.kafka.transport.wire import Frame, FrameMemory
from tests.unit.kafka.test_cluster import cluster_at
from tests.unit.kafka.transport.test_connection import Request, ask, frame, raw_server, refused, server
from tests.unit.kafka.transport.test_entities import ENDLESS, metadata

pytestmark = pytest.mark.both_loops

TOPIC_ID = uuid.UUID(int=7)
FETCH = FetchRequest([TopicFetch("t", TOPIC_ID, [PartitionFetch(0, 0, 1)])], 0, 1, 1, read_committed=True)


async def test_thirty_five_bytes_at_the_port_are_no_broker() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)
        writer.write(frame(0, ENDLESS, header_tags=b""))
        await reader.read()

    async with raw_server(serve) as port:
        text = await refused(connect("127.0.0.1", port, client_id="test", timeout_s=5), NotKafka)
        assert "its first reply cannot be read: 4294967295 announced" in text


async def test_a_broker_that_announces_more_than_it_sends_is_named_with_what_it_was_asked() -> None:
    body = bytes(4) + b"\xff\xff\xff\xff\x07" + bytes(20)
    async with server(lambda request: frame(request.correlation_id, body)) as broker:
        connection = await broker.connect()
        assert await refused(ask(connection), CorruptReply) == (
            f"127.0.0.1:{broker.port} sent a reply that cannot be read: Metadata: 2147483646 elements announced in"
            " 20 bytes. mm2py reconnects and asks again."
        )
        assert not connection.is_open


async def test_a_reply_of_too_many_values_ends_its_connection_while_the_event_loop_goes_on() -> None:
    reply = metadata(1, 600_000, replicas=0)
    async with server(lambda request: frame(request.correlation_id, reply)) as broker:
        connection = await broker.connect()
        text = await refused(ask(connection, 20), ReplyTooLarge)
        assert text.startswith(f"127.0.0.1:{broker.port} answered Metadata with more than 3,000,000 values.")
        assert not connection.is_open


async def test_other_tasks_run_while_a_large_reply_is_read() -> None:
    """Read on the event loop, it would leave others the few turns in which its bytes come."""
    reply = metadata(4_000, 20, replicas=3)
    assert len(reply) > LARGE_REPLY_BYTES
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.001)

    async with server(lambda request: frame(request.correlation_id, reply)) as broker:
        connection = await broker.connect()
        assert len((await ask(connection)).topics) == 4_000  # its bytes have come once: what follows is reading
        other = asyncio.create_task(count())
        await ask(connection)
        other.cancel()
        assert turns > 5


async def test_all_of_a_large_cluster_is_learnt_in_pieces() -> None:
    reply = metadata(3, 2 * PARTITIONS_AT_ONCE, replicas=1)
    async with server(lambda request: frame(request.correlation_id, reply)) as broker:
        cluster = cluster_at(broker)
        found = await fetch_metadata(cluster, None)
        (topic,) = found.topics.values()  # three entries of one name
        assert topic.partitions[0].leader_epoch == 5
        await cluster.close()


@pytest.mark.parametrize(
    ("size", "request_", "limit"),
    [
        (MAX_MESSAGE_BYTES + 1, None, MAX_MESSAGE_BYTES),
        (MAX_FRAME_BYTES + 1, FETCH, MAX_FRAME_BYTES),
        (MAX_MESSAGE_BYTES + 1, ProduceRequest([TopicProduce("t", TOPIC_ID, [])], 0), MAX_MESSAGE_BYTES),
    ],
    ids=["metadata", "fetch", "produce"],
)
async def test_a_frame_has_a_limit_by_what_was_asked(
    size: int, request_: FetchRequest | ProduceRequest | None, limit: int
) -> None:
    async with server(lambda _: struct.pack(">i", size)) as broker:
        connection = await broker.connect()
        asked = ask(connection) if request_ is None else connection.request(request_, 5)
        assert f"a frame of {size} bytes, the limit is {limit}" in await refused(asked, CorruptReply)


def fetched(partitions: bytes, topics: bytes = b"\x02") -> Callable[[Request], bytes]:
    body = struct.pack(">ihi", 0, 0, 0) + topics + TOPIC_ID.bytes + partitions
    return lambda request: frame(request.correlation_id, body)


PARTITION = struct.pack(">ihqqq", 0, 0, 1, 1, 0)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (fetched(b"\x03" + (PARTITION + b"\x01" + bytes(6)) * 2), "2 elements announced, 1 were asked for"),
        (fetched(b"\x01\x00" * 9, topics=b"\x03"), "2 elements announced, 1 were asked for"),
        (fetched(b"\x02" + PARTITION + wire.uvarint(300_001) + bytes(17) * 300_000), "more elements than such a reply"),
        (fetched(b"\x02" + PARTITION + b"\x01" + bytes(5) + wire.uvarint(10**6) + bytes(9)), "more elements than such"),
    ],
    ids=["partitions", "topics", "aborted transactions", "tags"],
)
async def test_a_fetch_reply_has_no_more_than_was_asked_for(answer: Callable[[Request], bytes], why: str) -> None:
    async with server(answer) as broker:
        connection = await broker.connect()
        assert f"Fetch: {why}" in await refused(connection.request(FETCH, 5), CorruptReply)
        assert not connection.is_open


async def test_the_reply_to_what_was_not_asked_is_not_waited_for_in_memory() -> None:
    """A frame that no request waits for may be as large as a first one, and no larger."""
    unasked = struct.pack(">i", 10**8)
    async with server(lambda request: frame(request.correlation_id, metadata(1, 1, 1)) + unasked) as broker:
        connection = await broker.connect()
        await ask(connection)
        while connection.is_open:
            await asyncio.sleep(0)
        with pytest.raises(CorruptReply, match=f"a frame of 100000000 bytes, the limit is {LARGE_REPLY_BYTES}"):
            await ask(connection)


class Kept(bytearray):
    """A frame that can be asked whether it is still there."""


class WatchedFrames(FrameMemory):
    def __init__(self) -> None:
        super().__init__()
        self.frames: list[weakref.ref[Kept]] = []

    def take(self, size: int, now_s: float) -> Frame:
        made = Kept(size)
        self.frames.append(weakref.ref(made))
        return made


@pytest.mark.parametrize(
    ("body", "request_", "error"),
    [
        (metadata(1, 600_000, replicas=0), None, ReplyTooLarge),
        (bytes(4) + b"\xff\xff\xff\xff\x07" + bytes(20), None, CorruptReply),
        (fetched(b"\x01\x00" * 9, topics=b"\x03"), FETCH, CorruptReply),
    ],
    ids=["large", "small", "fetch"],
)
async def test_the_error_about_a_reply_does_not_keep_the_reply(
    body: bytes | Callable[[Request], bytes], request_: FetchRequest | None, error: type[Exception]
) -> None:
    """The story: a source answered 12 MB again and again. Each error held its reply, in the frames of its traceback,
    until all garbage was looked for; the worker grew by 11 MB a second."""

    async def main() -> None:
        memory = WatchedFrames()
        async with server(body if callable(body) else lambda request: frame(request.correlation_id, body)) as broker:
            connection = await broker.connect(frames=memory)
            with pytest.raises(error) as held:
                await (ask(connection, 20) if request_ is None else connection.request(request_, 5))
            assert len(memory.frames) == 2, "that of the versions, and this one"
            assert held.value.__cause__ is not None
            async with asyncio.timeout(20):  # this turn of the loop and the thread that read it are about to let go
                while any(one() is not None for one in memory.frames):
                    await asyncio.sleep(0.01)

    gc.disable()
    try:
        await main()
    finally:
        gc.enable()


def test_what_is_no_utf_8_is_not_kept_by_the_error_about_it() -> None:
    """Of versions that name topics; the decoder's own error has the bytes in it."""
    body = struct.pack(">ihi", 0, 0, 0) + b"\x02" + wire.uvarint(10_001) + b"\xff" * 10_000 + bytes(9)
    with pytest.raises(wire.Malformed, match="not UTF-8") as held:
        wire.decode_fetch(memoryview(body), 0, 12, {}, asked=1)
    assert held.value.__cause__ is None
    assert held.value.__context__ is None
