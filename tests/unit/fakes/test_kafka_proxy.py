"""The proxy of ``tests/cluster/copying/test_proxy_faults.py``: it does to a frame what a rule says, and to no other."""

from __future__ import annotations

import datetime
import io
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v17.response import FetchableTopicResponse, FetchResponse, PartitionData
from kio.schema.find_coordinator.v4.response import Coordinator
from kio.schema.metadata.v12.response import MetadataResponseBroker
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import Records, i32, i32Timedelta, i64
from kio.static.protocol import Payload

from mm2py.kafka import messages
from tests.cluster.kafka_frames import (
    FETCH,
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
    Direction,
    Frame,
    batch_sizes,
    cut_last_batch,
    flip_a_bit,
    records_of,
    with_records,
)
from tests.cluster.kafka_proxy import KafkaProxy
from tests.cluster.kafka_rules import Alter, Cut, Drop, Hold, Pass, Reset

ANSWER_S = 5.0
QUIET_S = 0.1
"""So long nothing came, where nothing is to come."""
NO_TIME = i32Timedelta.parse(datetime.timedelta(0))
REQUEST, REPLY = Direction.REQUEST, Direction.REPLY


# -- a broker that repeats what it is told, and a client ---------------------------------------------------------------


@dataclass
class Toy:
    """A broker. ``seen`` holds each request's text in order; ``answer`` returns the body of a reply."""

    port: int = 0
    seen: list[str] = field(default_factory=list)
    answer: Callable[[int, bytes], bytes] = lambda _, text: text

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"


@contextmanager
def toy() -> Iterator[Toy]:
    made = Toy()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while (content := read_frame(self.rfile)) is not None:
                api_key, _, correlation_id = struct.unpack(">hhi", content[:8])
                made.seen.append(content[8:].decode())
                write_frame(self.request, struct.pack(">i", correlation_id) + made.answer(api_key, content[8:]))

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A connection that ends in any way is what these tests are about."""

    with Server(("127.0.0.1", 0), Handler) as server:
        made.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        server.shutdown()
        thread.join()


def read_frame(stream: Any) -> bytes | None:
    length = stream.read(4)
    content = stream.read(int.from_bytes(length)) if len(length) == 4 else b""
    return content if content and len(content) == int.from_bytes(length) else None


def write_frame(to: socket.socket, content: bytes) -> None:
    to.sendall(struct.pack(">i", len(content)) + content)


class Client:
    """One connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), ANSWER_S)
        self._stream = self.socket.makefile("rb")
        self._asked = 0

    def send(self, text: str = "", api_key: int = PRODUCE, version: int = 9) -> None:
        write_frame(self.socket, struct.pack(">hhi", api_key, version, self._asked) + text.encode())
        self._asked += 1

    def receive(self) -> bytes | None:
        """Return the next reply's body; None if the connection has ended."""
        content = read_frame(self._stream)
        return None if content is None else content[4:]

    def ask(self, text: str = "", api_key: int = PRODUCE, version: int = 9) -> bytes | None:
        self.send(text, api_key, version)
        return self.receive()

    def hears_nothing(self) -> bool:
        self.socket.settimeout(QUIET_S)
        try:
            return not self.socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(ANSWER_S)

    def close(self) -> None:
        self._stream.close()
        self.socket.close()


@pytest.fixture
def broker() -> Iterator[Toy]:
    with toy() as made:
        yield made


@pytest.fixture
def proxy(broker: Toy) -> Iterator[KafkaProxy]:
    with KafkaProxy(broker.bootstrap) as made:
        yield made


@pytest.fixture
def client(proxy: KafkaProxy) -> Iterator[Client]:
    made = new_client(proxy)
    yield made
    made.close()


def new_client(proxy: KafkaProxy) -> Client:
    return Client(int(proxy.bootstrap.rsplit(":", 1)[1]))


def until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + ANSWER_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.005)


# -- frames that nobody wants, and those a rule wants ------------------------------------------------------------------


def test_a_rule_fires_on_its_api_its_direction_and_its_turn_only(proxy: KafkaProxy, client: Client) -> None:
    dropped = proxy.rule(Drop(), REPLY, api_key=FETCH, skip=1, times=2)
    counted = proxy.rule(Pass(), REQUEST, api_key=FETCH, times=None)
    for number in range(4):
        client.send(f"fetch {number}", FETCH, 12)
        client.send(f"produce {number}", PRODUCE)
    answers = [client.receive() for _ in range(6)]
    assert answers == [b"fetch 0", b"produce 0", b"produce 1", b"produce 2", b"fetch 3", b"produce 3"]
    assert dropped.fired == 2
    assert counted.fired == 4
    assert counted.frames[0].content[8:] == b"fetch 0"


def test_the_first_rule_that_wants_a_frame_has_it(proxy: KafkaProxy, client: Client) -> None:
    first, second = proxy.rule(Drop(), REQUEST), proxy.rule(Pass(), REQUEST)
    client.send("one")
    assert client.ask("two") == b"two"
    assert (first.fired, second.fired) == (1, 1)
    assert second.frames[0].content.endswith(b"two")


def test_waiting_for_a_rule_that_does_not_fire_fails(proxy: KafkaProxy) -> None:
    rule = proxy.rule(Drop())
    with pytest.raises(AssertionError, match=r"(?s)the rule fires 1 times.*fired 0"):
        rule.wait_until_fired(deadline_s=0.01)


# -- actions -----------------------------------------------------------------------------------------------------------


def test_what_is_behind_a_held_request_waits_with_it(broker: Toy, proxy: KafkaProxy, client: Client) -> None:
    rule = proxy.rule(Hold(), REQUEST)
    client.send("first")
    client.send("second")
    rule.wait_until_fired()
    assert client.hears_nothing()
    assert broker.seen == []
    rule.release()
    assert [client.receive(), client.receive()] == [b"first", b"second"]


@pytest.mark.parametrize("resets", [False, True])
def test_a_held_request_reaches_the_broker_after_its_client_has_left(
    broker: Toy, proxy: KafkaProxy, client: Client, resets: bool
) -> None:
    """F41: the client gives up, asks again on another connection, and then the first request arrives."""
    rule = proxy.rule(Hold(), REQUEST)
    client.send("late")
    client.send("later")
    rule.wait_until_fired()
    if resets:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    other = new_client(proxy)
    assert other.ask("again") == b"again"
    other.close()
    rule.release()
    assert [reply.content[4:] for reply in rule.wait_for_replies()] == [b"late"]
    until(lambda: broker.seen == ["again", "late", "later"])
    until(lambda: proxy.connections == 0)


def test_a_reply_that_is_cut_ends_the_connection(proxy: KafkaProxy, client: Client) -> None:
    proxy.rule(Cut(keep_bytes=10), REPLY)
    client.send("some text")
    whole = struct.pack(">ii", 4 + len("some text"), 0) + b"some text"
    got = b""
    while more := client.socket.recv(100):
        got += more
    assert got == whole[:10]
    until(lambda: proxy.connections == 0)


def test_after_a_reply_that_is_cut_there_may_be_silence(broker: Toy, proxy: KafkaProxy, client: Client) -> None:
    proxy.rule(Cut(keep_bytes=10, then_silence=True), REPLY)
    client.send("some text")
    client.send("more")
    assert len(client.socket.recv(10, socket.MSG_WAITALL)) == 10
    until(lambda: len(broker.seen) == 2)
    assert client.hears_nothing()
    assert proxy.connections == 1


def test_a_request_that_was_kept_can_be_delivered_again_later(broker: Toy, proxy: KafkaProxy, client: Client) -> None:
    rule = proxy.rule(Pass(), REQUEST)
    client.ask("early")
    client.ask("other")
    assert [frame.content[4:] for frame in proxy.deliver(rule.frames)] == [b"early"]
    assert broker.seen == ["early", "other", "early"]


def test_a_frame_can_be_altered(proxy: KafkaProxy, client: Client) -> None:
    def shout(frame: Frame) -> Frame:
        return Frame(
            frame.direction,
            frame.api_key,
            frame.version,
            frame.correlation_id,
            frame.address,
            frame.broker,
            frame.content.upper(),
        )

    proxy.rule(Alter(shout), REPLY)
    assert [client.ask("text"), client.ask("text")] == [b"TEXT", b"text"]


def test_a_reset_is_a_reset(broker: Toy, proxy: KafkaProxy, client: Client) -> None:
    rule = proxy.rule(Reset(), REQUEST)
    client.send("text")
    with pytest.raises(ConnectionResetError):
        client.socket.recv(1)
    assert rule.fired == 1
    assert broker.seen == []


def test_a_broker_that_is_gone_looks_gone(broker: Toy) -> None:
    with toy() as other:
        pass
    with KafkaProxy(other.bootstrap) as proxy, pytest.raises(ConnectionResetError):  # when it connects or when it reads
        new_client(proxy).socket.recv(1)


# -- clients stay behind it --------------------------------------------------------------------------------------------


def written(entity: Payload) -> bytes:
    """The body of a reply, with the tags of its header."""
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return b"\0" + out.getvalue()


def metadata_of(*ports: int) -> bytes:
    brokers = tuple(
        MetadataResponseBroker(node_id=cast("Any", i32(node_id)), host="127.0.0.1", port=i32(port), rack=None)
        for node_id, port in enumerate(ports)
    )
    reply = messages.MetadataResponse(
        throttle_time=NO_TIME, brokers=brokers, cluster_id="c", controller_id=cast("Any", i32(0)), topics=()
    )
    return written(reply)


def ports_in(reply: bytes | None) -> list[int]:
    assert reply is not None
    entity, _ = entity_reader(messages.MetadataResponse)(reply, 1)
    return [int(one.port) for one in entity.brokers]


def test_a_client_finds_every_broker_behind_the_proxy() -> None:
    with toy() as first, toy() as second, KafkaProxy(first.bootstrap) as proxy:
        first.answer = lambda api_key, text: metadata_of(first.port, second.port) if api_key == METADATA else text
        client = new_client(proxy)
        ports = ports_in(client.ask(api_key=METADATA, version=12))
        assert ports == ports_in(client.ask(api_key=METADATA, version=12))
        assert not {first.port, second.port} & set(ports)
        only_second = proxy.rule(Drop(), REQUEST, broker=1)
        assert client.ask("to the first") == b"to the first"
        other = Client(ports[1])
        other.send("vanishes")
        assert other.ask("to the second") == b"to the second"
        assert second.seen == ["to the second"]
        assert [frame.broker for frame in only_second.frames] == [1]
        client.close()
        other.close()


def test_a_coordinator_is_behind_the_proxy_and_none_is_none(broker: Toy, proxy: KafkaProxy, client: Client) -> None:
    def coordinator(node_id: int, host: str, port: int) -> Coordinator:
        code = ErrorCode.none if node_id >= 0 else ErrorCode.coordinator_not_available
        return Coordinator(
            key="k",
            node_id=cast("Any", i32(node_id)),
            host=host,
            port=i32(port),
            error_code=code,
            error_message=None,
        )

    found = (coordinator(7, "127.0.0.1", broker.port), coordinator(-1, "", -1))
    broker.answer = lambda *_: written(messages.FindCoordinatorResponse(throttle_time=NO_TIME, coordinators=found))
    reply = client.ask(api_key=FIND_COORDINATOR, version=4)
    assert reply is not None
    entity, _ = entity_reader(messages.FindCoordinatorResponse)(reply, 1)
    assert [int(one.port) for one in entity.coordinators] == [int(proxy.bootstrap.rsplit(":", 1)[1]), -1]
    assert int(entity.coordinators[0].node_id) == 7


@pytest.mark.parametrize(
    ("version", "body", "what"),
    [(11, metadata_of(1), "API 3 in version 11, not 12"), (12, b"\0\0\0", "a reply of API 3 in version 12")],
)
def test_a_reply_that_it_cannot_read_is_said_loudly(broker: Toy, version: int, body: bytes, what: str) -> None:
    """Passed on as it is, it would lead the client past the proxy, and the test would prove nothing."""
    broker.answer = lambda *_: body
    with pytest.raises(AssertionError, match=what), KafkaProxy(broker.bootstrap) as proxy:
        client = new_client(proxy)
        assert client.ask(api_key=METADATA, version=version) is None
        client.close()


# -- records -----------------------------------------------------------------------------------------------------------


def batch(size: int) -> bytes:
    return bytes(8) + (size - 12).to_bytes(4) + b"\x55" * (size - 12)


def fetched(*records: bytes | None) -> Frame:
    parts = tuple(
        PartitionData(
            partition_index=i32(number),
            error_code=ErrorCode.none,
            high_watermark=i64(5),
            last_stable_offset=i64(5),
            log_start_offset=i64(0),
            aborted_transactions=None,
            records=None if one is None else Records(one),
        )
        for number, one in enumerate(records)
    )
    reply = FetchResponse(
        throttle_time=NO_TIME,
        error_code=ErrorCode.none,
        session_id=i32(3),
        responses=(FetchableTopicResponse(topic_id=None, partitions=parts),),
    )
    content = struct.pack(">i", 9) + written(reply)
    return Frame(REPLY, FETCH, 17, 9, ("127.0.0.1", 1), None, content)


def test_records_can_be_read_and_put_back_as_they_were() -> None:
    reply = fetched(batch(70) + batch(80), None, b"")
    assert records_of(reply) == [batch(70) + batch(80)]
    assert with_records(reply, lambda records: records) == reply


def test_one_bit_is_flipped_in_each_partition_that_has_records() -> None:
    changed = records_of(with_records(fetched(batch(70), None, batch(80)), flip_a_bit))
    difference = [
        [at for at in range(len(now)) if now[at] != was[at]]
        for now, was in zip(changed, [batch(70), batch(80)], strict=True)
    ]
    assert difference == [[61], [61]]


def test_a_reply_ends_within_its_last_batch() -> None:
    reply = with_records(fetched(batch(70) + batch(80)), cut_last_batch)
    assert records_of(reply) == [(batch(70) + batch(80))[:-20]]
    assert batch_sizes(records_of(reply)[0]) == [70, 80]
    assert len(reply.content) == len(fetched(batch(70) + batch(80)).content) - 20


def test_the_only_batch_is_cut_but_not_away() -> None:
    assert cut_last_batch(batch(70), cut_bytes=1_000) == batch(70)[:1]
