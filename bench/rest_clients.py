"""Clients of a worker's REST: 50 that ask for the flows, and 20 that read events. A process of its own.

    python -m bench.rest_clients PORT CLIENTS STREAMS EVERY_S

One asks first, as soon as the worker listens: the first answer waits until the REST process has started and has looked
at the clusters. Then they all ask until standard input closes. Then one line of JSON: the latency of the first answer
and of the others in ms, the answers that were no 200, and the events that came.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from typing import Any, Final

import httpx2 as httpx

ANSWER_S: Final = 30.0


class Clients:
    """All of them, and what they met."""

    def __init__(self, port: int) -> None:
        self.first_ms = 0.0
        self.latencies_ms: list[float] = []
        self.failed: list[str] = []
        self.events = 0
        self._at = f"http://127.0.0.1:{port}"

    def _client(self, timeout_s: float | None) -> httpx.AsyncClient:
        """Without TLS: loading its certificates for each of 70 clients would stop all of them for seconds."""
        return httpx.AsyncClient(base_url=self._at, timeout=timeout_s, verify=False)

    async def ask_first(self) -> None:
        """Ask once, and wait for the answer."""
        begun_s = time.monotonic()
        async with self._client(ANSWER_S) as client:
            answer = await client.get("/v1/flows")
        self.first_ms = (time.monotonic() - begun_s) * 1_000
        if answer.status_code != 200:
            self.failed.append(f"the first: {answer.status_code}")

    async def ask(self, number: int, clients: int, every_s: float) -> None:
        """Ask for the flows, on a connection that stays open, spread over the interval."""
        async with self._client(ANSWER_S) as client:
            await asyncio.sleep(every_s * number / clients)
            while True:
                begun_s = time.monotonic()
                try:
                    answer = await client.get("/v1/flows")
                    if answer.status_code != 200:
                        self.failed.append(str(answer.status_code))
                except httpx.HTTPError as error:
                    self.failed.append(type(error).__name__)
                else:
                    self.latencies_ms.append((time.monotonic() - begun_s) * 1_000)
                await asyncio.sleep(max(0.0, begun_s + every_s - time.monotonic()))

    async def listen(self) -> None:
        """Read events, without end."""
        async with self._client(None) as client:
            await asyncio.sleep(random.random())
            async with client.stream("GET", "/v1/events") as answer:
                if answer.status_code != 200:
                    self.failed.append(f"events: {answer.status_code}")
                async for line in answer.aiter_lines():
                    self.events += line.startswith("data:")


async def run(port: int, clients: int, streams: int, every_s: float) -> dict[str, Any]:
    """Return what the clients met until standard input closed."""
    found = Clients(port)
    await found.ask_first()
    tasks = [asyncio.create_task(found.ask(number, clients, every_s)) for number in range(clients)]
    tasks += [asyncio.create_task(found.listen()) for _ in range(streams)]
    await asyncio.to_thread(sys.stdin.buffer.read)
    for task in tasks:
        if task.done():
            found.failed.append(repr(task.exception()))
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {
        "first_ms": found.first_ms,
        "latencies_ms": found.latencies_ms,
        "failed": found.failed,
        "events": found.events,
    }


if __name__ == "__main__":
    _port, _clients, _streams = map(int, sys.argv[1:4])
    print(json.dumps(asyncio.run(run(_port, _clients, _streams, float(sys.argv[4])))), flush=True)
