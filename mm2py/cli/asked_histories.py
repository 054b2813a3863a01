"""Asks a worker over REST for the last hour of flows, for ``mm2py top``. It only reads, and sends no credentials.

The address is that of ``mm2py open``. Any worker tells the history of all flows of its file.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

from mm2py.cli.open_page import address_of, listener_of
from mm2py.config.rest import RestSettings
from mm2py.errors import ConfigError
from mm2py.flow import Flow
from mm2py.secret import printable
from mm2py.top.flow_chart import QUERY, FlowChart, chart_of

ANSWER_MOST_S: Final = 3.0
BODY_MOST: Final = 8_000_000


class HistoryUntold(Exception):
    """A worker does not tell a history. The text says why."""


class ToldHistories(NamedTuple):
    """What was told."""

    charts: Mapping[Flow, FlowChart]
    why: str
    """Why the history of a flow is missing; empty: none is."""


async def ask_histories(settings: RestSettings, port: int | None, flows: Sequence[Flow]) -> ToldHistories:
    """Return what a worker tells.

    Args:
        port: where it listens, if that is not the port in ``listeners``.
    """
    try:
        address = address_of(listener_of(settings, port)).rstrip("/")
    except ConfigError as error:
        return ToldHistories({}, str(error))
    found = await asyncio.gather(*(_told_at(address, flow) for flow in flows), return_exceptions=True)
    charts: dict[Flow, FlowChart] = {}
    whys: list[str] = []
    for flow, one in zip(flows, found, strict=True):
        if isinstance(one, FlowChart):
            charts[flow] = one
        elif isinstance(one, HistoryUntold):
            whys.append(f"{address} {one}")
        else:
            raise one
    return ToldHistories(charts, whys[0] if whys else "")


async def _told_at(address: str, flow: Flow) -> FlowChart:
    """Return the history that is told at an address. Raises: HistoryUntold."""
    try:
        async with asyncio.timeout(ANSWER_MOST_S):
            status, body = await _get(address, f"/v1/flows/{quote(str(flow), safe='')}/history?{QUERY}")
    except TimeoutError:
        raise HistoryUntold(f"does not answer within {ANSWER_MOST_S:g} s.") from None
    except (OSError, ssl.SSLError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise HistoryUntold(f"does not answer: {printable(str(error))}.") from None
    if status in {401, 403}:
        raise HistoryUntold(f"answers {status}: it asks for a user (rest.users.file). mm2py open FILE shows its page.")
    if status != 200:
        raise HistoryUntold(f"answers {status} for {flow}: it may be the worker of another file.")
    try:
        return chart_of(body)
    except ValueError as error:
        raise HistoryUntold(f"answers something else: {printable(str(error))}.") from None


async def _get(address: str, path: str) -> tuple[int, bytes]:
    """Return the status and the body of an answer. Raises: OSError, ValueError and what streams raise."""
    parts = urlsplit(address)
    if parts.hostname is None or parts.scheme not in {"http", "https"}:
        raise ValueError("it is no address")
    is_tls = parts.scheme == "https"
    port = parts.port or (443 if is_tls else 80)
    reader, writer = await asyncio.open_connection(
        parts.hostname, port, ssl=ssl.create_default_context() if is_tls else None, limit=BODY_MOST
    )
    try:
        lines = [f"GET {path} HTTP/1.0", f"Host: {parts.netloc.rpartition('@')[2]}", "Accept: application/json", "", ""]
        writer.write("\r\n".join(lines).encode("ascii", "replace"))
        head = await reader.readuntil(b"\r\n\r\n")
        status = _status(head)
        body = await reader.read(BODY_MOST)
        while len(body) < BODY_MOST and (more := await reader.read(BODY_MOST)):
            body += more
        return status, body
    finally:
        writer.close()


def _status(head: bytes) -> int:
    words = head.split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise ValueError("it is no answer of HTTP")
    return int(words[1])
