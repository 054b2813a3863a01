"""A cluster's brokers come, move and go; and how long their answers are waited for."""

from __future__ import annotations

import asyncio
import contextlib
import io
import random
import re
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from kio.schema.metadata.v12.response import MetadataResponseBroker
from kio.static.primitive import i32

from mm2py.cli.main import make_herder
from mm2py.clock import SystemClock
from mm2py.config.configuration import read_settings_file
from mm2py.flow import ClusterAlias
from mm2py.kafka import messages
from mm2py.kafka.cluster import Cluster
from mm2py.kafka.errors import BrokerUnreachable, KafkaError, RequestTimedOut
from mm2py.kafka.port import ANY_BROKER, BrokerId, FetchRequest
from mm2py.logs import make_logger
from mm2py.status.cluster_inquiry import InquirySide, patience_of_commands
from tests.unit.kafka.transport.test_connection import (
    CONTROLLER,
    METADATA,
    METADATA_KEY,
    NO_TIME,
    Request,
    Server,
    fetch_answer,
    frame,
    raw_server,
    refused,
    server,
    two_partitions,
    written,
)

pytestmark = pytest.mark.real_time

FETCH = FetchRequest([], 0, 0, 0, read_committed=False)
ONE, TWO = BrokerId(1), BrokerId(2)


def metadata(correlation_id: int, ports: Mapping[BrokerId, int]) -> bytes:
    brokers = tuple(
        MetadataResponseBroker(node_id=cast("Any", i32(broker)), host="127.0.0.1", port=i32(port), rack=None)
        for broker, port in ports.items()
    )
    reply = messages.MetadataResponse(
        throttle_time=NO_TIME, brokers=brokers, cluster_id="the cluster", controller_id=CONTROLLER, topics=()
    )
    return frame(correlation_id, written(reply))


def cluster_at(broker: Server, **timeouts: float) -> Cluster:
    return Cluster("A", [("127.0.0.1", broker.port)], rng=random.Random(1), client_id="test", **timeouts)


async def two_brokers(
    story: Callable[[Cluster, dict[BrokerId, int], asyncio.Event, Server], Coroutine[Any, Any, None]],
) -> None:
    """Run a story with a cluster of two brokers: what metadata says can be changed, the second answers when it may."""
    named: dict[BrokerId, int] = {}
    answers = asyncio.Event()
    answers.set()

    def first(request: Request) -> bytes:
        return metadata(request.correlation_id, named)

    async def second(request: Request) -> bytes:
        await answers.wait()
        return fetch_answer(request, session_id=0)

    async with server(first) as one, server(second) as two:
        named.update({ONE: one.port, TWO: two.port})
        cluster = cluster_at(one)
        await cluster.send(TWO, FETCH, channel="fetch")
        await story(cluster, named, answers, two)
        await cluster.close()


async def learn(cluster: Cluster) -> None:
    await cluster.send(ANY_BROKER, METADATA)


async def test_a_broker_that_left_the_cluster_is_forgotten_with_its_connections() -> None:
    async def story(cluster: Cluster, named: dict[BrokerId, int], _: asyncio.Event, two: Server) -> None:
        slot = cluster._slots[TWO, "fetch"]
        port = named.pop(TWO)
        await learn(cluster)
        assert slot.connection is not None
        assert not slot.connection.is_open
        assert set(cluster._slots) == {(ANY_BROKER, "control")}
        text = await refused(cluster.send(TWO, FETCH, channel="fetch"), BrokerUnreachable)
        assert text.startswith("Broker 2 of A cannot be reached: the cluster names no such broker.")
        named[TWO] = port
        await cluster.send(TWO, FETCH, channel="fetch")  # it is back

    await two_brokers(story)


async def test_what_a_leaving_broker_still_answers_is_waited_for() -> None:
    async def story(cluster: Cluster, named: dict[BrokerId, int], answers: asyncio.Event, two: Server) -> None:
        answers.clear()
        under_way = asyncio.create_task(cluster.send(TWO, FETCH, channel="fetch"))
        asked = len(two.seen)
        while len(two.seen) == asked:
            await asyncio.sleep(0)
        del named[TWO]
        await learn(cluster)
        answers.set()
        assert (await under_way).error_code == 0
        await learn(cluster)
        assert (TWO, "fetch") not in cluster._slots

    await two_brokers(story)


async def test_metadata_without_brokers_are_not_believed() -> None:
    async def story(cluster: Cluster, named: dict[BrokerId, int], _: asyncio.Event, two: Server) -> None:
        connection = cluster._slots[TWO, "fetch"].connection
        named.clear()
        await learn(cluster)
        await cluster.send(TWO, FETCH, channel="fetch")
        assert cluster._slots[TWO, "fetch"].connection is connection

    await two_brokers(story)


async def test_a_broker_that_moved_is_reached_at_its_new_address() -> None:
    async def story(cluster: Cluster, named: dict[BrokerId, int], _: asyncio.Event, two: Server) -> None:
        async with server(lambda request: fetch_answer(request, session_id=0)) as elsewhere:
            named[TWO] = elsewhere.port
            await learn(cluster)
            before = len(two.seen)
            await cluster.send(TWO, FETCH, channel="fetch")
            assert (len(two.seen), len(elsewhere.seen)) == (before, 2)

    await two_brokers(story)


async def test_a_broker_that_does_not_answer_reads_is_not_asked_who_leads_instead() -> None:
    """It is frozen: its connections stay open, and the one for metadata leads to it as well."""
    frozen = asyncio.Event()
    named: dict[BrokerId, int] = {}

    async def first(request: Request) -> bytes | None:
        if frozen.is_set():
            return None
        return metadata(request.correlation_id, named)

    def second(request: Request) -> bytes:
        return metadata(request.correlation_id, named)

    async with server(first) as one, server(second) as two:
        named.update({ONE: one.port, TWO: two.port})
        cluster = cluster_at(one, request_timeout_s=0.2, admin_timeout_s=15.0)
        await learn(cluster)
        frozen.set()
        await refused(cluster.send(ONE, FETCH, channel="fetch"), RequestTimedOut)
        for _ in range(5):
            await learn(cluster)
            await cluster.send(ANY_BROKER, METADATA, channel="another")
        assert [request.api_key for request in two.seen].count(METADATA_KEY) == 10
        await cluster.close()


@pytest.mark.parametrize(
    ("timeouts", "request_", "within"),
    [
        ({"request_timeout_s": 9.0, "admin_timeout_s": 0.7}, METADATA, "Metadata within 0.7 s"),
        ({"request_timeout_s": 0.7, "admin_timeout_s": 9.0}, FETCH, "Fetch within 0.7 s"),
        ({"request_timeout_s": 0.7}, METADATA, "Metadata within 0.7 s"),
    ],
)
async def test_records_and_administration_have_time_outs_of_their_own(
    timeouts: Mapping[str, float], request_: Any, within: str
) -> None:
    async with server(lambda _: None) as broker:
        cluster = cluster_at(broker, **timeouts)
        assert within in await refused(cluster.send(ANY_BROKER, request_), RequestTimedOut)
        await cluster.close()


async def test_looking_at_a_bootstrap_address_takes_the_time_of_administration() -> None:
    async with server(lambda request: None if request.api_key == METADATA_KEY else b"") as broker:
        cluster = cluster_at(broker, request_timeout_s=9.0, admin_timeout_s=0.7)
        assert "Metadata within 0.7 s" in await refused(cluster.check_bootstrap(), KafkaError)


async def test_each_side_of_a_flow_takes_its_time_outs_from_the_file(tmp_path: Path) -> None:
    async with server(lambda _: None) as broker:
        lines = {
            "clusters": "A,B",
            "A.bootstrap.servers": f"127.0.0.1:{broker.port}",
            "B.bootstrap.servers": f"127.0.0.1:{broker.port}",
            "A->B.enabled": "true",
            "emit.heartbeats.enabled": "false",
            "A.admin.request.timeout.ms": "100",
            "B.admin.request.timeout.ms": "200",
            "A.consumer.request.timeout.ms": "600",
            "B.producer.request.timeout.ms": "700",
        }
        file = tmp_path / "mm2.properties"
        file.write_text("\n".join(f"{name} = {value}" for name, value in lines.items()))
        settings_file = read_settings_file(file, None)
        assert settings_file.configuration().warnings == ()
        _, opened = make_herder(settings_file, {}, make_logger("info", "text", io.StringIO()))

        async def waits(cluster: Cluster) -> tuple[str, list[str]]:
            said = [await refused(cluster.send(ANY_BROKER, asked), RequestTimedOut) for asked in (METADATA, FETCH)]
            return cluster.alias, [one.split(" within ")[1][:5] for one in said]

        waited = dict(await asyncio.gather(*map(waits, opened())))
        assert waited == {"A": ["0.1 s", "0.6 s"], "B": ["0.2 s", "0.7 s"]}


async def test_a_group_waits_for_no_answer_longer_than_a_session_whatever_the_flow_may_wait(tmp_path: Path) -> None:
    """A frozen broker that was asked who leads the control log held up the beats, and all copying, for 30 s."""
    async with server(lambda _: None) as broker:
        lines = {
            "clusters": "A,B",
            "A.bootstrap.servers": f"127.0.0.1:{broker.port}",
            "B.bootstrap.servers": f"127.0.0.1:{broker.port}",
            "A->B.enabled": "true",
            "emit.heartbeats.enabled": "false",
            "B.session.timeout.ms": "300",
            "B.heartbeat.interval.ms": "100",
        }
        file = tmp_path / "mm2.properties"
        file.write_text("\n".join(f"{name} = {value}" for name, value in lines.items()))
        _, opened = make_herder(read_settings_file(file, None), {}, make_logger("info", "text", io.StringIO()))
        of_group = opened()[0]
        assert of_group.alias == "B"
        assert "Metadata within 0.3 s" in await refused(of_group.send(ANY_BROKER, METADATA), RequestTimedOut)
        assert "Fetch within 0.15 s" in await refused(of_group.send(ANY_BROKER, FETCH), RequestTimedOut)


SESSION = {"session.timeout.ms": "600", "heartbeat.interval.ms": "200"}
LINES = {
    "clusters": "A,B",
    "A->B.enabled": "true",
    "B->A.enabled": "true",
    "emit.heartbeats.enabled": "false",
    **{f"{alias}.{name}": value for alias in "AB" for name, value in SESSION.items()},
}


def clusters_of(folder: Path, port: int, **lines: str) -> list[Cluster]:
    """Return all connections of a worker whose clusters are both at one port: first those of its groups."""
    addresses = {f"{alias}.bootstrap.servers": f"127.0.0.1:{port}" for alias in "AB"}
    file = folder / "mm2.properties"
    file.write_text("\n".join(f"{name} = {value}" for name, value in {**LINES, **addresses, **lines}.items()))
    settings_file = read_settings_file(file, None)
    _, opened = make_herder(settings_file, {}, make_logger("info", "text", io.StringIO()))
    return list(opened())


@pytest.mark.parametrize(
    ("lines", "of_groups", "of_data"),
    [
        ({}, {"mm2py|cluster"}, {"A->B|mm2py", "B->A|mm2py"}),
        ({"mm2py.group": "west"}, {"west|cluster"}, {"A->B|mm2py", "B->A|mm2py"}),
        (
            {f"{alias}.{client}.client.id": "mirror" for alias in "AB" for client in ("consumer", "producer")},
            {"mirror|cluster"},
            {"mirror"},
        ),
        ({"B.producer.client.id": "b"}, {"mm2py|cluster", "b|cluster"}, {"b", "A->B|mm2py", "B->A|mm2py"}),
    ],
)
async def test_what_a_quota_holds_back_is_either_the_beats_or_the_data(
    tmp_path: Path, lines: dict[str, str], of_groups: set[str], of_data: set[str]
) -> None:
    """A quota on the client id of the records muted the beats as well: the group evicted and fenced healthy workers."""
    async with server(lambda request: metadata(request.correlation_id, {})) as broker:
        clusters = clusters_of(tmp_path, broker.port, **lines)
        sent: list[set[str]] = []
        for cluster in clusters:
            broker.seen.clear()
            await cluster.send(ANY_BROKER, METADATA)
            sent.append({client_id(request) for request in broker.seen})
            await cluster.close()
        assert all(len(ids) == 1 for ids in sent), "the first request, which asks for versions, says it too"
        assert (set.union(*sent[:2]), set.union(*sent[2:])) == (of_groups, of_data)


def client_id(request: Request) -> str:
    length = int.from_bytes(request.body[:2], "big", signed=True)
    return request.body[2 : 2 + length].decode()


async def test_a_group_gives_a_host_that_says_nothing_up_within_half_a_session(tmp_path: Path) -> None:
    """The host that led the control log was gone; workers waited 10 s for it, longer than it took to elect another
    leader of the log and to evict them."""

    async def say_nothing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with raw_server(say_nothing) as port:
        of_group, _, of_data, *_ = clusters_of(tmp_path, port)
        assert "says nothing within 0.3 s" in await refused(of_group.send(ANY_BROKER, METADATA), KafkaError)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await of_data.send(ANY_BROKER, METADATA)
    with nobody_home() as port:
        of_group, *_ = clusters_of(tmp_path, port)
        assert "no connection within 0.3 s" in await refused(of_group.send(ANY_BROKER, METADATA), KafkaError)


@contextlib.contextmanager
def nobody_home() -> Iterator[int]:
    """A port where no attempt to connect is answered, as at a host that is gone: its queue is full."""
    with contextlib.ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(listener.getsockname())
        yield listener.getsockname()[1]


async def test_a_broker_that_takes_no_connection_is_not_asked_who_leads_either() -> None:
    """Its machine is gone, and closed its connections first: the next to look for a leader would wait there again."""
    async with server(lambda request: metadata(request.correlation_id, {TWO: there.port})) as there:
        with nobody_home() as gone:
            cluster = Cluster(
                "A",
                [("127.0.0.1", gone), ("127.0.0.1", there.port)],
                rng=random.Random(1),
                client_id="test",
                request_timeout_s=1.5,
            )
            cluster._addresses = {ONE: ("127.0.0.1", gone)}
            await refused(cluster.send(ONE, FETCH), BrokerUnreachable)
            async with asyncio.timeout(1.4):
                await learn(cluster)
            await cluster.close()


async def test_a_broker_that_grants_no_fetch_session_is_reported_once(tmp_path: Path) -> None:
    def answer(request: Request) -> bytes:
        return fetch_answer(request, session_id=0, partitions=[0, 1])

    async with server(answer) as first, server(answer) as second:
        lines = {
            "clusters": "A,B,C",
            "A.bootstrap.servers": f"127.0.0.1:{first.port}",
            "B.bootstrap.servers": f"127.0.0.1:{second.port}",
            "C.bootstrap.servers": f"127.0.0.1:{second.port}",
            "A->B.enabled": "true",
            "A->C.enabled": "true",
            "emit.heartbeats.enabled": "false",
        }
        file = tmp_path / "mm2.properties"
        file.write_text("\n".join(f"{name} = {value}" for name, value in lines.items()))
        log = io.StringIO()
        _, opened = make_herder(read_settings_file(file, None), {}, make_logger("info", "text", log))
        clusters = [cluster for cluster in opened() if cluster.alias in {"A", "B"}]
        assert [cluster.alias for cluster in clusters].count("A") == 2
        for cluster in clusters:
            for channel in ("fetch", "fetch", "idle"):
                await cluster.send(ANY_BROKER, two_partitions(), channel=channel)
            await cluster.close()
        said = [line for line in log.getvalue().splitlines() if " broker.no_fetch_session " in line]
        assert sorted(re.findall(r"cluster=(\S+) broker=(\S+)", "\n".join(said))) == [
            ("A", f"127.0.0.1:{first.port}"),
            ("B", f"127.0.0.1:{second.port}"),
        ]
        assert all("max.incremental.fetch.session.cache.slots" in line for line in said)


async def test_requests_that_waited_for_a_connection_keep_their_order() -> None:
    """Batches of one partition wait for a new connection; one more comes in the very moment in which it is there."""
    sent: list[str] = []

    class Recorded:
        is_open = is_idle = True

        async def request(self, request: str, _: float) -> None:
            sent.append(request)

    connected = asyncio.get_running_loop().create_future()

    class Connecting(Cluster):
        async def _connect(self, broker: BrokerId) -> Any:
            await connected
            return Recorded()

    cluster = Connecting("A", [("127.0.0.1", 1)], rng=random.Random(1), client_id="test")

    def send(name: str) -> asyncio.Task[Any]:
        return asyncio.create_task(cluster.send(TWO, cast("Any", name), channel="produce"))

    tasks = [send("first"), send("second"), send("third")]
    await asyncio.sleep(0)
    connected.set_result(None)
    tasks.append(send("last"))
    await asyncio.gather(*tasks)
    assert sent == ["first", "second", "third", "last"]


async def test_a_connection_is_made_again_at_the_last_address_while_the_name_server_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control log's broker restarts while no name server answers: beats must not be late for that."""
    silent, over, real = threading.Event(), threading.Event(), socket.getaddrinfo

    def getaddrinfo(host: Any, *rest: Any, **more: Any) -> Any:
        if host == "broker.example" and silent.is_set():
            over.wait()
        return real("127.0.0.1" if host == "broker.example" else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    async def main() -> None:
        async with server(lambda request: metadata(request.correlation_id, {})) as one:
            cluster = Cluster("A", [("broker.example", one.port)], rng=random.Random(1), client_id="test")
            await learn(cluster)
            connection = cluster._slots[ANY_BROKER, "control"].connection
            assert connection is not None
            connection.close()
            silent.set()
            async with asyncio.timeout(2):
                await learn(cluster)
            await cluster.close()

    try:
        await main()
    finally:
        over.set()


async def test_a_bootstrap_address_that_says_nothing_does_not_make_its_cluster_silent() -> None:
    """One of two brokers is frozen: a client that had chosen it called the whole cluster silent."""

    async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    def first(request: Request) -> bytes:
        return metadata(request.correlation_id, {})

    async with raw_server(nothing) as frozen, server(first) as good:
        for seed in range(6):
            bootstrap = [("127.0.0.1", frozen), ("127.0.0.1", good.port)]
            cluster = Cluster("A", bootstrap, rng=random.Random(seed), client_id="test")
            side = InquirySide(ClusterAlias("A"), cluster, patience_of_commands(SystemClock()))
            await side.probe()
            assert side.away == ""
            assert cluster.step_s() > 0, "a step of connecting was answered"
            await side.close()
            await cluster.close()
