"""A proxy between mm2py and one cluster that does to single Kafka frames what a bad network does.

    with KafkaProxy(cluster.bootstrap) as proxy, Mm2py(one_way_properties(source, proxy.bootstrap)) as run:
        lost = proxy.rule(Drop(), Direction.REPLY, api_key=PRODUCE, times=3)
        lost.wait_until_fired(3)

Each broker gets a port on loopback, and replies that name brokers name these ports: a client stays behind the proxy.
Frames go one behind the other in each direction of a connection; the first rule that wants a frame decides about it.
It runs in a thread of its own. PLAINTEXT only, and only for mm2py: what it has to read and cannot is an error, which
``with`` raises at its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Final, Self, TypeVar, assert_never

from tests.cluster.kafka_frames import (
    Address,
    Direction,
    Frame,
    NotUnderstood,
    named_brokers,
    reply_frame,
    request_frame,
    with_addresses,
)
from tests.cluster.kafka_rules import (
    DEADLINE_S,
    Action,
    Alter,
    Cut,
    Drip,
    Drop,
    Hold,
    Pass,
    Repeat,
    Reset,
    Rule,
    Strike,
)
from tests.cluster.running import PATIENCE, paused, within

LOOPBACK: Final = "127.0.0.1"
LINGER_S: Final = 10.0 * PATIENCE
"""How long a broker may take to answer what it got from a client that has left."""
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
T = TypeVar("T")


class KafkaProxy:
    """Stands before one cluster while the ``with`` block lasts."""

    def __init__(self, bootstrap: str, *, host: str = LOOPBACK) -> None:
        """Stand before a cluster.

        Args:
            bootstrap: the cluster's own addresses, as in ``bootstrap.servers``; hosts are IPv4 or names.
            host: the address of this machine at which clients meet it.
        """
        self._host = host
        self._bootstrap = [(host, int(port)) for host, port in (one.rsplit(":", 1) for one in bootstrap.split(","))]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kafka proxy", daemon=True)
        self._listeners: dict[Address, asyncio.Server] = {}
        self._broker_ids: dict[Address, int] = {}
        self._rules: list[Rule] = []
        self._links: set[_Link] = set()
        self._running: set[asyncio.Task[None]] = set()
        self._listening = asyncio.Lock()
        self.failures: list[str] = []
        """What it could not do for a client, in words."""

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._run(self._listen(self._bootstrap))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()
        text = "; ".join(self.failures)
        if error is not None and text:
            error.add_note(f"The proxy failed: {text}")
        else:
            assert not text, f"the proxy failed: {text}"

    @property
    def bootstrap(self) -> str:
        """What a client writes as ``bootstrap.servers``."""
        return ",".join(f"{self._host}:{self.port_of(address)}" for address in self._bootstrap)

    def port_of(self, address: Address) -> int:
        """Return the port behind which a broker stands."""
        port: int = self._listeners[address].sockets[0].getsockname()[1]
        return port

    @property
    def connections(self) -> int:
        """How many are open just now."""
        return len(self._links)

    def rule(
        self,
        action: Action,
        direction: Direction | None = None,
        *,
        api_key: int | None = None,
        broker: int | None = None,
        skip: int = 0,
        times: int | None = 1,
        where: Callable[[Frame], bool] = lambda _: True,
    ) -> Rule:
        """Install a rule, behind those there are: it sees only frames on which none of them fires.

        Args:
            direction, api_key, broker: only such frames; None: any.
            skip: how many of these pass first.
            times: how often it fires; None: until it is ended.
            where: a further condition; called in the proxy's thread.
        """

        def wants(frame: Frame) -> bool:
            return (
                direction in (None, frame.direction)
                and api_key in (None, frame.api_key)
                and broker in (None, frame.broker)
                and where(frame)
            )

        rule = Rule(action, wants, skip, times, self._loop)
        self._rules.append(rule)
        return rule

    def end_rules(self) -> None:
        """Let all rules fire no more, and let go of what they hold."""
        for rule in self._rules:
            rule.release()
        self._rules = []

    def deliver(self, requests: Iterable[Frame]) -> list[Frame]:
        """Send requests to their brokers on a connection of the proxy's own, and return the replies."""

        async def deliver() -> list[Frame]:
            return [await _ask(request) for request in requests]

        return self._run(deliver())

    def reset_all(self) -> int:
        """Reset both sides of every connection there is, and return how many there were."""

        async def reset() -> int:
            links = list(self._links)
            for link in links:
                link.reset()
            return len(links)

        return self._run(reset())

    def silence_all(self) -> int:
        """Let nothing more pass on any connection there is, which stays open, and return how many there were: the peer
        is gone, and nobody has said so. New connections pass."""

        async def silence() -> int:
            links = list(self._links)
            for link in links:
                link.silence()
            return len(links)

        return self._run(silence())

    # For connections

    def struck_by(self, frame: Frame) -> tuple[Rule, Strike] | None:
        """Return the rule that fires on a frame."""
        for rule in self._rules:
            if strike := rule.take(frame):
                return rule, strike
        return None

    def broker_at(self, address: Address) -> int | None:
        """Return a broker's id, once it is known."""
        return self._broker_ids.get(address)

    async def behind_the_proxy(self, reply: Frame) -> Frame:
        """Return a reply with our own addresses in it, where it names brokers."""
        brokers = named_brokers(reply)
        if not brokers:
            return reply
        self._broker_ids |= {address: broker for broker, address in brokers.items()}
        await self._listen(brokers.values())
        return with_addresses(reply, {address: (self._host, self.port_of(address)) for address in brokers.values()})

    # Helpers

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)

    async def _listen(self, addresses: Iterable[Address]) -> None:
        async with self._listening:
            for address in addresses:
                if address not in self._listeners:
                    self._listeners[address] = await asyncio.start_server(self._accept(address), self._host, 0)

    def _accept(self, address: Address) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = self._loop.create_task(self._serve(address, reader, writer))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

        return accept

    async def _serve(self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            broker = await asyncio.open_connection(*address)
        except OSError:
            _reset(writer)  # nobody is there: the client sees a broker that is not either
            return
        link = _Link(self, address, (reader, writer), broker)
        self._links.add(link)
        try:
            await link.run()
        except Exception as error:
            self.failures.append(str(error) if isinstance(error, NotUnderstood) else repr(error))
        finally:
            self._links.discard(link)
            link.close()

    def _end(self) -> None:
        async def end() -> None:
            for listener in self._listeners.values():
                listener.close()
            running = list(self._running)
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

        self._run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()


# One connection

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Link:
    """A client's connection, and the one to the broker that belongs to it."""

    def __init__(self, proxy: KafkaProxy, address: Address, client: _Streams, broker: _Streams) -> None:
        self._proxy = proxy
        self._address = address
        self._readers = {Direction.REQUEST: client[0], Direction.REPLY: broker[0]}
        self._writers = {Direction.REQUEST: broker[1], Direction.REPLY: client[1]}
        """By the direction they write in."""
        self._open: dict[int, Frame] = {}
        """Requests on their way or without an answer, by correlation id."""
        self._struck: dict[int, tuple[Rule, Strike]] = {}
        """Of those the ones that met a rule."""
        self._silent: set[Direction] = set()
        self._client_left = False
        """By itself, and all it sent before has been dealt with."""
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Pass frames on until one side has left and all that it is owed is done.

        Raises:
            NotUnderstood: a reply cannot be read.
        """
        try:
            async with asyncio.TaskGroup() as self._tasks:
                requests = self._tasks.create_task(self._pass_requests())
                replies = self._tasks.create_task(self._pass_replies())
                await asyncio.wait([requests, replies], return_when=asyncio.FIRST_COMPLETED)
                if self._client_left and self._open:
                    # What a client sent before it left is carried out, however long it was held.
                    await asyncio.wait([replies], timeout=LINGER_S)
                for task in (requests, replies):
                    task.cancel()
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def reset(self) -> None:
        for writer in self._writers.values():
            _reset(writer)

    def silence(self) -> None:
        self._silent.update(Direction)

    async def _pass_requests(self) -> None:
        async for content in _frames(self._readers[Direction.REQUEST]):
            frame = request_frame(content, self._address, self._proxy.broker_at(self._address))
            self._open[frame.correlation_id] = frame
            if not await self._treat(frame):
                return
        self._client_left = True

    async def _pass_replies(self) -> None:
        async for content in _frames(self._readers[Direction.REPLY]):
            correlation_id = int.from_bytes(content[:4], signed=True)
            if correlation_id not in self._open:
                raise NotUnderstood(f"a reply to request {correlation_id}, which nobody made")
            frame = await self._proxy.behind_the_proxy(reply_frame(content, self._open[correlation_id]))
            if correlation_id in self._struck:
                rule, strike = self._struck.pop(correlation_id)
                rule.note_reply(strike, frame)
            if not await self._treat(frame):
                return
            self._open.pop(correlation_id, None)
            if self._client_left and not self._open:
                return

    async def _treat(self, frame: Frame) -> bool:
        """Do with a frame what the rules say; False ends the connection."""
        struck = self._proxy.struck_by(frame)
        if struck is None:
            return await self._forward(frame)
        rule, strike = struck
        if frame.direction is Direction.REQUEST:
            self._struck[frame.correlation_id] = struck
        if isinstance(rule.action, Hold) and rule.action.alone:
            assert self._tasks is not None
            self._tasks.create_task(self._act(frame, rule, strike))
            return True
        return await self._act(frame, rule, strike)

    async def _act(self, frame: Frame, rule: Rule, strike: Strike) -> bool:
        try:
            match rule.action:
                case Pass():
                    return await self._forward(frame)
                case Hold():
                    await rule.released.wait()
                    return await self._forward(frame)
                case Drop():
                    self._open.pop(frame.correlation_id, None)
                    return True
                case Cut(keep_bytes, then_silence):
                    await self._write(frame.direction, frame.wire[:keep_bytes])
                    self._silent.add(frame.direction)
                    return then_silence
                case Repeat():
                    goes_on = await self._forward(frame)
                    assert self._tasks is not None
                    self._tasks.create_task(self._repeat(frame, rule))
                    return goes_on
                case Alter(change):
                    return await self._forward(change(frame))
                case Drip(every_s):
                    return await self._drip(frame, every_s)
                case Reset():
                    self.reset()
                    return False
                case _:
                    assert_never(rule.action)
        finally:
            rule.note_end(strike)

    async def _drip(self, frame: Frame, every_s: float) -> bool:
        for byte in frame.wire:
            if not await self._write(frame.direction, bytes([byte])):
                return False
            await paused(every_s, "that is what dripping is")
        return True

    async def _repeat(self, frame: Frame, rule: Rule) -> None:
        rule.note_answer(await _ask(frame))

    async def _forward(self, frame: Frame) -> bool:
        """Pass a frame on. A client that has left does not hinder its broker from answering: False only for brokers."""
        return await self._write(frame.direction, frame.wire) or frame.direction is Direction.REPLY

    async def _write(self, direction: Direction, data: bytes) -> bool:
        """Return False if nobody is there any more."""
        if direction in self._silent:
            return True
        writer = self._writers[direction]
        if writer.is_closing():
            return False
        writer.write(data)
        try:
            await writer.drain()
        except OSError:
            return False
        return True


async def _frames(reader: asyncio.StreamReader) -> Any:
    """Yield the contents of frames until the other side has left; read ahead, whatever the taker waits for."""
    queue: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def read() -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                size = int.from_bytes(await reader.readexactly(4), signed=True)
                queue.put_nowait(await reader.readexactly(size))
        queue.put_nowait(None)

    reading = asyncio.create_task(read())
    try:
        while (content := await queue.get()) is not None:
            yield content
    finally:
        reading.cancel()


async def _ask(request: Frame) -> Frame:
    """Send a request on a new connection and return the reply."""
    async with within(DEADLINE_S):
        reader, writer = await asyncio.open_connection(*request.address)
        try:
            writer.write(request.wire)
            size = int.from_bytes(await reader.readexactly(4), signed=True)
            return reply_frame(await reader.readexactly(size), request)
        finally:
            writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with RST instead of FIN."""
    if not writer.is_closing():
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()
