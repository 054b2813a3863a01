"""``mm2py status FILE``: shows the state of workers, flows and lag, as both clusters report it. It asks no worker.

It writes nothing anywhere, and works when no worker runs.

Counterpart: the REST interface of each Connect worker and its JMX metrics.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from mm2py.cli.command import CommandParser
from mm2py.clock import Clock, SystemClock
from mm2py.config.configuration import as_argument, read_settings_file
from mm2py.config.settings import ClusterSettings
from mm2py.flow import Flow
from mm2py.flow_clusters import Connected, connect
from mm2py.output import Write, write_out
from mm2py.status.bodies import StatusBody, json_of
from mm2py.status.cluster_inquiry import patience_of_commands
from mm2py.status.exit_codes import EXIT_DONE, exit_of_report
from mm2py.status.inquiry import Inquiry
from mm2py.status.printout import text_of
from mm2py.status.report import Report, report_of

WATCH_EVERY_S: Final = 2.0
_HOME, _CLEAR_LINE, _CLEAR_REST = "\x1b[H", "\x1b[K", "\x1b[J"
_CUT, _WRAP = "\x1b[?7l", "\x1b[?7h"
"""Whether a terminal cuts long lines or wraps them."""


class StatusArguments(argparse.Namespace):
    """What follows ``status`` on the command line."""

    file: Path
    clusters: list[str] | None
    json: bool
    all: bool
    watch: float | None


def parse_arguments(arguments: Sequence[str]) -> StatusArguments:
    """Read what follows ``status`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "status",
        "Shows members, leader, flows, owners, guarantee, lag and gaps, as the clusters tell; no worker is "
        "asked, and none has to run. Exit codes: 0 all is well; 1 a cluster, or a part of one, did not answer; 2 wrong "
        "file or arguments; 3 gaps are open, a topic is not copied and waits for an operator, a source does not answer "
        "its workers, a task has no worker, a flow is refused, switched off or run by another group, the file differs "
        "from what is stored, or a worker has not applied that. With --watch that of the last look."
        " Flows are shown as their workers run them.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flows run")
    parser.add_argument("--clusters", nargs="+", metavar="A", help="only flows into these clusters")
    parser.add_argument("--json", action="store_true", help="one JSON object; with --watch one a line")
    parser.add_argument("--all", action="store_true", help="do not cut long lists")
    parser.add_argument(
        "--watch",
        nargs="?",
        type=seconds,
        const=WATCH_EVERY_S,
        metavar="SECONDS",
        help=f"look again every so often (default {WATCH_EVERY_S:g}) until Ctrl-C",
    )
    return parser.parse_args(arguments, namespace=StatusArguments())


def seconds(text: str) -> float:
    """Read how often to look."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0.1 <= found <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 0.1 to 86400")
    return found


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``, ``load_configuration``.
    """
    options = parse_arguments(arguments)
    file = read_settings_file(options.file, options.clusters)
    is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    styled = is_terminal and not os.environ.get("NO_COLOR")

    async def main_task() -> int:
        rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
        clock = SystemClock()
        inquiry = Inquiry(file, _connect, clock=clock, rng=rng, patience=patience_of_commands(clock), settles=True)
        stopped = asyncio.Event()
        try:
            if options.watch is not None:
                asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stopped.set)
            screen = _screen_lines if is_terminal else None
            return await show(options, inquiry, write_out, stopped, clock=clock, styled=styled, screen=screen)
        finally:
            await inquiry.close()

    return asyncio.run(main_task())


async def show(
    options: StatusArguments,
    inquiry: Inquiry,
    write: Write,
    stopped: asyncio.Event,
    *,
    clock: Clock,
    styled: bool = False,
    screen: Callable[[], int] | None = None,
) -> int:
    """Look once, or until ``stopped``; returns the exit code of the last look.

    Args:
        screen: returns the number of lines of the terminal, to redraw it while watching; None: append.
    """
    code = EXIT_DONE
    while True:
        begun_s = clock.monotonic()
        report = await _look(inquiry, stopped)
        if report is None:
            return code
        code = exit_of_report(report)
        try:
            write(_rendered(options, report, code, styled=styled, screen=screen))
        except BrokenPipeError:  # the reader has seen enough
            return code
        if options.watch is None:
            return code
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, begun_s + options.watch - clock.monotonic())):
                await stopped.wait()
                return code


async def _look(inquiry: Inquiry, stopped: asyncio.Event) -> Report | None:
    """Return a report; None if the command was stopped before there was one."""
    looking = asyncio.ensure_future(inquiry.look())
    stopping = asyncio.ensure_future(stopped.wait())
    try:
        await asyncio.wait({looking, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return report_of(looking.result()) if looking.done() else None
    finally:
        looking.cancel()
        stopping.cancel()
        await asyncio.gather(looking, stopping, return_exceptions=True)


def _rendered(
    options: StatusArguments, report: Report, code: int, *, styled: bool, screen: Callable[[], int] | None
) -> str:
    watches = options.watch is not None
    if options.json:
        return json_of(StatusBody.of(report, exit_code=code), indent=None if watches else 2)
    text = text_of(report, everything=options.all, styled=styled, file=as_argument(options.file))
    if not watches:
        return text
    if screen is None:
        return text + "\n"
    lines, most = text.splitlines(), max(2, screen() - 1)
    if len(lines) > most:  # what comes first matters most: it must not be scrolled away
        lines = [*lines[: most - 1], f"... and {len(lines) - most + 1} more lines: make the window larger"]
    return _HOME + _CUT + "".join(f"{line}{_CLEAR_LINE}\n" for line in lines) + _WRAP + _CLEAR_REST


def _screen_lines() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).lines or 24
    except OSError:
        return 24


def _connect(flow: Flow, cluster: ClusterSettings, timeout_s: float, rng: random.Random) -> Connected:
    return connect("status", flow, cluster, timeout_s=timeout_s, rng=rng)
