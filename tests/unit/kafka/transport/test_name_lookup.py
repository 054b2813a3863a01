"""Names of brokers become addresses: who waits for a name server that is silent, and what will do meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.local.certificates import Authority, write_private
from mm2py.kafka.errors import BrokerUnreachable, NotKafka
from mm2py.kafka.security.access import Access
from mm2py.kafka.security.settings import Security, TlsSettings, TrustStore
from mm2py.kafka.transport import opening
from mm2py.kafka.transport.opening import NameLookup, connect
from mm2py.secret import Secret

pytestmark = pytest.mark.both_loops

DEAD = ["dead-1.example", "dead-2.example", "dead-3.example", "dead-4.example"]
LOCAL = "127.0.0.1"
AT_ONCE_S = 2.0
"""Far more than a loopback connection takes, far less than ``PATIENTLY_S``."""
PATIENTLY_S = 15.0
Run = Callable[[Coroutine[Any, Any, None]], None]


class NameServer:
    """Answers by a table; of names that are not in it, nothing, until the test ends."""

    def __init__(self) -> None:
        self.table: dict[str, Sequence[str] | OSError] = {}
        self.asked: list[str] = []
        self.over = threading.Event()

    def ask(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        if host not in self.table:
            self.over.wait()
        found = self.table.get(host, socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"))
        if isinstance(found, OSError):
            raise found
        return found


@pytest.fixture
def server() -> Iterator[NameServer]:
    made = NameServer()
    yield made
    made.over.set()


async def test_an_address_needs_no_lookup(server: NameServer) -> None:
    names = NameLookup(server.ask)
    for address in (LOCAL, "::1", "fe80::1%eth0"):
        assert await names.addresses(address) == [address]
    assert server.asked == []


def test_the_system_gives_each_address_of_a_name_once() -> None:
    found = opening.look_up("localhost")
    assert LOCAL in found
    assert len(found) == len(set(found))


async def test_who_asks_for_a_name_that_is_asked_for_already_waits_for_the_same_answer(server: NameServer) -> None:
    names = NameLookup(server.ask)
    async with asyncio.TaskGroup() as tasks:
        found = [tasks.create_task(names.addresses("dead")) for _ in range(20)]
        await asyncio.sleep(0)
        server.table["dead"] = ["10.0.0.1"]
        server.over.set()
    assert {tuple(one.result()) for one in found} == {("10.0.0.1",)}
    assert server.asked == ["dead"]


async def test_dead_names_hold_up_no_other_name(server: NameServer) -> None:
    names = NameLookup(server.ask)
    server.table["good"] = [LOCAL]
    waiting = [asyncio.create_task(names.addresses(f"dead-{number}")) for number in range(20)]
    await asyncio.sleep(0)
    assert await asyncio.wait_for(names.addresses("good"), AT_ONCE_S) == [LOCAL]
    server.over.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(result, socket.gaierror) for result in results)


@pytest.mark.parametrize("silent", [True, False])
async def test_a_name_keeps_its_last_addresses_while_its_server_is_silent_or_fails(
    server: NameServer, silent: bool
) -> None:
    names = NameLookup(server.ask, patience_s=0.05)
    server.table["broker"] = ["10.0.0.1", "10.0.0.2"]
    await names.addresses("broker")
    if silent:
        del server.table["broker"]
    else:
        server.table["broker"] = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    assert await asyncio.wait_for(names.addresses("broker"), AT_ONCE_S) == ["10.0.0.1", "10.0.0.2"]
    server.table["broker"] = ["10.0.0.9"]
    server.over.set()
    while await names.addresses("broker") != ["10.0.0.9"]:
        await asyncio.sleep(0)


async def test_a_name_that_is_no_more_leads_nowhere_though_it_once_did(server: NameServer) -> None:
    """Its address may be that of another cluster's broker by now, which would take our records."""
    names = NameLookup(server.ask)
    server.table["broker"] = ["10.0.0.1"]
    await names.addresses("broker")
    server.table["broker"] = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    with pytest.raises(socket.gaierror):
        await names.addresses("broker")


AGAIN = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
NO_MORE = socket.gaierror(socket.EAI_NONAME, "Name or service not known")


async def test_a_name_that_was_no_more_is_not_brought_back_by_a_server_that_fails(server: NameServer) -> None:
    names = NameLookup(server.ask)
    for answer in (["10.0.0.1"], NO_MORE, AGAIN):
        server.table["broker"] = answer
        with contextlib.suppress(socket.gaierror):
            assert await names.addresses("broker") == ["10.0.0.1"] == answer


async def test_that_a_name_is_no_more_counts_also_where_it_is_said_slowly(server: NameServer) -> None:
    names = NameLookup(server.ask, patience_s=0.05)
    server.table["broker"] = ["10.0.0.1"]
    await names.addresses("broker")
    del server.table["broker"]
    assert await names.addresses("broker") == ["10.0.0.1"], "nobody has said otherwise yet"
    server.table["broker"] = NO_MORE
    server.over.set()
    while any(thread.name == "look-up of broker" for thread in threading.enumerate()):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.01)
    server.over.clear()
    del server.table["broker"]
    later = asyncio.create_task(names.addresses("broker"))
    await asyncio.sleep(0.2)
    assert not later.done(), "there is no last address any more that would do"
    server.over.set()
    await asyncio.wait([later])
    assert later.exception() is not None


async def test_where_no_thread_can_be_started_the_look_up_fails_and_the_next_one_is_tried(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The container has as many threads as it may have, for a moment."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    names = NameLookup(server.ask)
    server.table["known"] = ["10.0.0.1"]
    await names.addresses("known")
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OSError, match="cannot be looked up: can't start new thread"):
            await names.addresses("broker")
        assert await names.addresses("known") == ["10.0.0.1"]
    server.table["broker"] = ["10.0.0.2"]
    assert await asyncio.wait_for(names.addresses("broker"), AT_ONCE_S) == ["10.0.0.2"]


async def test_what_cannot_be_asked_for_fails_and_frees_its_thread() -> None:
    names = NameLookup()
    for _ in range(3):
        with pytest.raises(UnicodeError):
            await names.addresses("a" * 64 + ".example")


@pytest.mark.real_time
async def test_a_process_ends_although_a_look_up_hangs(server: NameServer) -> None:
    """Runs no loop of the other tests: what is checked is that nothing of it waits for the thread."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(NameLookup(server.ask).addresses("dead"), 0.01)
    (hanging,) = [thread for thread in threading.enumerate() if thread.name == "look-up of dead"]
    assert hanging.daemon


# -- with connections --------------------------------------------------------------------------------------------------


async def test_dead_names_delay_no_connection_of_another_cluster(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C's name server is silent, and C has four bootstrap names; meanwhile B's connection breaks, and is made again."""
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, *rest: Any, **more: Any) -> Any:
        if host in DEAD:
            server.ask(host)
        return real(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    listening = await asyncio.start_server(hang_up, LOCAL, 0)
    port = listening.sockets[0].getsockname()[1]
    of_c = NameLookup()
    dead = [asyncio.create_task(connect(host, 9092, client_id="c", timeout_s=PATIENTLY_S, names=of_c)) for host in DEAD]
    await asyncio.sleep(0.05)
    async with asyncio.timeout(AT_ONCE_S):
        for _ in range(5):
            with contextlib.suppress(BrokerUnreachable, NotKafka):
                await connect("localhost", port, client_id="b", timeout_s=PATIENTLY_S, names=NameLookup())
    assert not any(task.done() for task in dead)
    server.over.set()
    failures = await asyncio.gather(*dead, return_exceptions=True)
    assert {str(failure).split(": ")[1][:9] for failure in failures} == {"Temporary"}, failures
    listening.close()


async def test_a_look_up_without_an_answer_names_the_name_server(server: NameServer) -> None:
    with pytest.raises(BrokerUnreachable, match="no answer of a name server"):
        await connect("dead", 9092, client_id="c", timeout_s=0.05, names=NameLookup(server.ask))


async def test_the_next_address_is_tried_where_nothing_listens_at_the_first(server: NameServer) -> None:
    reached = asyncio.Event()

    async def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        writer.close()

    listening = await asyncio.start_server(note, LOCAL, 0)
    server.table["broker"] = ["127.0.0.2", LOCAL]
    with pytest.raises(BrokerUnreachable):
        await connect(
            "broker",
            listening.sockets[0].getsockname()[1],
            client_id="b",
            timeout_s=AT_ONCE_S,
            names=NameLookup(server.ask),
        )
    assert reached.is_set()
    listening.close()


@contextlib.contextmanager
def silent_address() -> Iterator[int]:
    """Give a port at 127.0.0.2 that answers no attempt to connect, as behind a filter: its backlog is full."""
    with contextlib.ExitStack() as sockets:
        silent = sockets.enter_context(socket.socket())
        silent.bind(("127.0.0.2", 0))
        silent.listen(0)
        for _ in range(2):
            filling = sockets.enter_context(socket.socket())
            filling.setblocking(False)
            filling.connect_ex(silent.getsockname())
        yield silent.getsockname()[1]


async def test_the_next_address_is_tried_beside_a_silent_first_one(server: NameServer) -> None:
    """A name has an IPv6 address that a firewall drops everything for, and a name server that gives it first."""
    reached = asyncio.Event()

    async def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        writer.close()

    with silent_address() as port:
        listening = await asyncio.start_server(note, LOCAL, port)
        server.table["broker"] = ["127.0.0.2", LOCAL]
        began = asyncio.all_tasks()
        with pytest.raises((BrokerUnreachable, NotKafka)):
            await connect("broker", port, client_id="b", timeout_s=AT_ONCE_S, names=NameLookup(server.ask))
        assert reached.is_set()
        assert {task.get_name() for task in asyncio.all_tasks() - began if "connect to" in task.get_name()} == set()
        listening.close()


async def test_as_many_addresses_as_a_name_has_are_begun_in_half_of_the_time(server: NameServer) -> None:
    reached = asyncio.Event()

    async def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        writer.close()

    with silent_address() as port:
        listening = await asyncio.start_server(note, LOCAL, port)
        server.table["broker"] = [*["127.0.0.2"] * 9, LOCAL]
        with pytest.raises((BrokerUnreachable, NotKafka)):
            await connect("broker", port, client_id="b", timeout_s=1.5, names=NameLookup(server.ask))
        assert reached.is_set()
        listening.close()


async def test_a_broker_has_to_prove_that_it_is_the_name_and_is_told_it(server: NameServer, tmp_path: Path) -> None:
    """Addresses are what is connected to; the name is what a certificate is for, and what the server is asked for."""
    authority = Authority("ours")
    certified = authority.issue("server", ["kafka.example"])
    asked_for: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(write_private(tmp_path / "server.pem", certified.pem()))
    context.sni_callback = lambda _, name, __: asked_for.append(name)
    answered = asyncio.Event()

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            if await reader.read(1):
                answered.set()
        writer.close()

    listening = await asyncio.start_server(note, LOCAL, 0, ssl=context)
    port = listening.sockets[0].getsockname()[1]
    trust = TlsSettings(TrustStore("PEM", certificates=Secret(authority.pem().decode())))
    for name in ("kafka.example", "other.example"):
        server.table[name] = [LOCAL]
        access = Access("B", Security("SSL", tls=trust))
        with contextlib.suppress(Exception):
            await connect(name, port, client_id="b", timeout_s=5, access=access, names=NameLookup(server.ask))
        assert answered.is_set() is (name == "kafka.example")
        answered.clear()
    listening.close()
    assert asked_for == ["kafka.example", "other.example"]
