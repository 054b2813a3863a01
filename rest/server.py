"""The REST process of one worker, which starts it with sockets that listen already: ``python -m rest``.

It reads the same file as its worker, and ends when the channel to the worker closes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import logging
import random
import signal
import socket
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TextIO, cast

import uvicorn
from structlog.typing import FilteringBoundLogger

from mm2py.cli.command import STDERR, Connected, LineFile, connect
from mm2py.clock import SystemClock
from mm2py.config.configuration import SettingsFile, read_settings_file
from mm2py.config.settings import ClusterSettings, FlowSettings
from mm2py.connector import Flow
from mm2py.errors import Mm2Error
from mm2py.kafka.cluster import fetch_metadata
from mm2py.logs import LogFormat, make_logger
from mm2py.status.inquiry import Inquiry
from rest.app import make_app
from rest.changes import FlowChanges
from rest.live import LiveReport
from rest.services import Services
from rest.worker_link import WorkerLink

CLOSING_MOST_S = 5
"""How long requests may go on when the worker has ended."""


class Arguments(argparse.Namespace):
    """What the worker tells this process."""

    file: Path
    clusters: list[str]
    channel: int
    sockets: list[int]
    worker: str
    log_level: str
    log_format: LogFormat


def parse_arguments(arguments: Sequence[str]) -> Arguments:
    """Read the command line that ``RestProcess`` writes."""
    parser = argparse.ArgumentParser(
        prog="python -m rest", description="Started by a worker; not to be called by hand."
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--clusters", nargs="*", default=[])
    parser.add_argument("--channel", type=int, required=True)
    parser.add_argument("--sockets", type=lambda text: [int(one) for one in text.split(",")], required=True)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-format", default="text")
    return parser.parse_args(arguments, namespace=Arguments())


class _Server(uvicorn.Server):
    """Leaves signals alone: the worker drains at them, and this process ends after it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def _connected(flow: Flow, cluster: ClusterSettings, timeout_s: float, rng: random.Random) -> Connected:
    return connect("rest", flow, cluster, timeout_s=timeout_s, rng=rng)


async def serve(options: Arguments, file: SettingsFile, log: FilteringBoundLogger) -> None:
    """Serve until the worker is gone."""
    rng, clock = random.Random(), SystemClock()  # noqa: S311  (spreads retries; nothing secret)
    configuration = file.configuration()
    opened: list[Connected] = []

    def target_of(settings: FlowSettings) -> Connected:
        opened.append(_connected(settings.flow, settings.target, settings.target_request_timeout_s, rng))
        return opened[-1]

    changes = {
        settings.flow: FlowChanges(
            file, settings, functools.partial(target_of, settings), worker=options.worker, clock=clock, rng=rng
        )
        for settings in configuration.flows
    }
    inquiry = Inquiry(file, _connected, clock=clock, rng=rng)
    first = next((target_of(settings) for settings in configuration.flows), None)

    async def cluster_id() -> str | None:
        if first is None:
            return None
        with contextlib.suppress(Mm2Error, TimeoutError):
            async with asyncio.timeout(5.0):
                return (await fetch_metadata(first, [])).cluster_id
        return None

    link = WorkerLink(socket.socket(fileno=options.channel))
    live = LiveReport(inquiry.look, clock)
    app = make_app(Services(configuration, link, live, changes, clock, cluster_id))
    server = _Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=CLOSING_MOST_S,
        )
    )
    sockets = [socket.socket(fileno=descriptor) for descriptor in options.sockets]
    work = [asyncio.create_task(live.run(), name="looks"), asyncio.create_task(server.serve(sockets), name="server")]
    try:
        linked = asyncio.create_task(link.run(), name="link")
        await asyncio.wait([linked, *work], return_when=asyncio.FIRST_COMPLETED)
        for task in work:
            if task.done():
                task.result()
    finally:
        server.should_exit = True
        await asyncio.wait([work[1]], timeout=CLOSING_MOST_S)
        for task in [*work, linked]:
            task.cancel()
        await asyncio.gather(*work, linked, return_exceptions=True)
        await inquiry.close()
        for brokers in opened:
            await brokers.close()


def main() -> None:
    """Run until the worker has ended. Its signals are the worker's matter."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    logging.disable(logging.CRITICAL)  # uvicorn's own lines; what matters is logged here
    options = parse_arguments(sys.argv[1:])
    log = make_logger(options.log_level, options.log_format, cast("TextIO", LineFile(STDERR))).bind(process="rest")
    try:
        asyncio.run(serve(options, read_settings_file(options.file, options.clusters), log))
    except Mm2Error as error:
        log.error("rest.failed", why=str(error))
        sys.exit(1)
