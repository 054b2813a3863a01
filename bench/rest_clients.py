"""Clients of a worker's REST: 50 that ask for the flows, and 20 that read events. They run in a separate process.

    python -m bench.rest_clients CLIENTS STREAMS EVERY_S

The process waits for a line with the port. One client asks first: its answer waits until the REST process has started
and has looked at the clusters. After a line ``on`` all clients ask, until a line ``off``. When standard input closes,
the process prints JSON: the latency of the first answer and of the others in ms, the answers with a status other than
200, the number of events, and how late timers of this process fired meanwhile: a process waits that long for a core.

In production such clients run on other machines. Here they share two cores with the brokers and the worker, so they
send plain HTTP over a socket, without a client library.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from contextlib import closing
from typing import Any, Final

ANSWER_S: Final = 30.0
TIMER_S: Final = 0.02
LENGTH: Final = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Connection:
    """A connection to REST, which stays open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, path: str) -> int:
        """Ask, read the whole answer, and return its status. Raises: OSError, EOFError, TimeoutError."""
        async with asyncio.timeout(ANSWER_S):
            status, head, reader = await self.begin(path)
            length = LENGTH.search(head)
            if length is None:
                raise OSError(f"no length in {head!r}")
            await reader.readexactly(int(length[1]))
        return status

    async def begin(self, path: str) -> tuple[int, bytes, asyncio.StreamReader]:
        """Ask, and return the status and the head of the answer, and its reader. Raises: OSError, EOFError."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1]), head, reader

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class Clients:
    """All clients, and their results."""

    def __init__(self, port: int) -> None:
        self.first_ms = 0.0
        self.latencies_ms: list[float] = []
        self.failed: list[str] = []
        self.events = 0
        self.late_ms: list[float] = []
        self._port = port

    async def ask_first(self) -> None:
        """Ask once, and wait for the answer."""
        begun_s = time.monotonic()
        status = await Connection(self._port).ask("/v1/flows")
        self.first_ms = (time.monotonic() - begun_s) * 1_000
        if status != 200:
            self.failed.append(f"the first: {status}")

    async def ask(self, number: int, clients: int, every_s: float) -> None:
        """Ask for the flows repeatedly. Each client has its own time within the interval, whenever the load begins."""
        await asyncio.sleep((every_s * number / clients - time.monotonic()) % every_s)
        with closing(Connection(self._port)) as connection:
            while True:
                begun_s = time.monotonic()
                try:
                    status = await connection.ask("/v1/flows")
                    if status != 200:
                        self.failed.append(str(status))
                except (OSError, EOFError) as error:  # a time-out is an OSError
                    self.failed.append(repr(error))
                    connection.close()
                else:
                    self.latencies_ms.append((time.monotonic() - begun_s) * 1_000)
                await asyncio.sleep(max(0.0, begun_s + every_s - time.monotonic()))

    async def listen(self) -> None:
        """Read events, without end."""
        with closing(Connection(self._port)) as connection:
            status, _, reader = await connection.begin("/v1/events")
            if status != 200:
                self.failed.append(f"events: {status}")
            while line := await reader.readline():
                self.events += line.startswith(b"data:")
        self.failed.append("a stream of events ended")

    async def watch(self) -> None:
        """Note how late timers fire."""
        while True:
            due_s = time.monotonic() + TIMER_S
            await asyncio.sleep(TIMER_S)
            self.late_ms.append((time.monotonic() - due_s) * 1_000)

    async def _all(self, clients: int, streams: int, every_s: float) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(clients):
                tasks.create_task(self.ask(number, clients, every_s))
            for _ in range(streams):
                tasks.create_task(self.listen())
            tasks.create_task(self.watch())

    def begin(self, clients: int, streams: int, every_s: float) -> asyncio.Task[None]:
        """Let all clients ask, until the task is cancelled."""
        return asyncio.create_task(self._all(clients, streams, every_s))

    async def end(self, asking: asyncio.Task[None]) -> None:
        """Stop all clients, and close their connections."""
        asking.cancel()
        try:
            await asking
        except asyncio.CancelledError:
            return
        except BaseException as error:
            self.failed.append(repr(error))


async def run(clients: int, streams: int, every_s: float) -> dict[str, Any]:
    """Run the clients until standard input closes, and return their results."""
    lines = sys.stdin.buffer
    found = Clients(int(await asyncio.to_thread(lines.readline)))
    await found.ask_first()
    while await asyncio.to_thread(lines.readline) == b"on\n":
        asking = found.begin(clients, streams, every_s)
        await asyncio.to_thread(lines.readline)
        await found.end(asking)
    return {
        "first_ms": found.first_ms,
        "latencies_ms": found.latencies_ms,
        "failed": found.failed,
        "events": found.events,
        "late_ms": found.late_ms,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))), flush=True)
