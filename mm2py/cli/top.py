"""``mm2py top FILE``: the state of all flows on a terminal, as the web page shows it in a browser.

It looks at the clusters as ``mm2py status`` does and asks no worker, except for the last hour, which workers keep
(``/v1/flows/A->B/history``). It writes nothing until an operator confirms a pause, which is stored as ``mm2py pause``
stores it. What it shows, and what keys do, is in ``mm2py/top/``. MirrorMaker 2 has nothing like it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import os
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, assert_never

from mm2py.cli.asked_histories import ToldHistories, ask_histories
from mm2py.cli.command import CommandParser, number_up_to
from mm2py.cli.pause import change_pauses
from mm2py.cli.status import seconds
from mm2py.cli.terminal import FullScreen, full_screen
from mm2py.clock import Clock, SystemClock
from mm2py.command_lines import with_file
from mm2py.config.configuration import SettingsFile, as_argument, flow_of, read_settings_file
from mm2py.config.settings import ClusterSettings
from mm2py.errors import Mm2Error
from mm2py.flow import Flow
from mm2py.flow_clusters import Connected, connect
from mm2py.flow_sides import sides_of
from mm2py.logs import make_logger
from mm2py.output import write_out
from mm2py.secret import printable
from mm2py.status.cluster_inquiry import patience_of_commands
from mm2py.status.exit_codes import EXIT_INTERRUPTED, exit_of_report
from mm2py.status.inquiry import Inquiry
from mm2py.status.report import Report, report_of
from mm2py.status.target_alone import GroupsQuestion
from mm2py.status.why import Replicated, explain_topic
from mm2py.status.why_inquiry import details_of
from mm2py.top.cells import BARS, PLAIN_BARS
from mm2py.top.keyboard import KeyReader
from mm2py.top.screen import printed, screen
from mm2py.top.state import (
    AskDetails,
    AskGroups,
    ChangeEnded,
    DetailsTold,
    GroupsRead,
    GroupsShown,
    HistoriesTold,
    LookAgain,
    LookEnded,
    PauseWanted,
    Quit,
    RedrawAll,
    StorePause,
    TopEffect,
    TopEvent,
    TopLook,
    TopState,
    step,
)
from mm2py.top.topic_rates import FlowTopic, TopicRates

LOOK_EVERY_S: Final = 2.0
HISTORY_EVERY_S: Final = 10.0
"""A point of the history is written so often."""
DRAW_EVERY_S: Final = 1.0
"""The age of the look is shown to the second."""
ESCAPE_S: Final = 0.1
"""If nothing follows an Escape within this time, it is the key, and not the beginning of another one."""
WIDE: Final = 160
"""For a reader that is no terminal."""
QUITTING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class TopArguments(argparse.Namespace):
    """What follows ``top`` on the command line."""

    file: Path
    clusters: list[str] | None
    interval: float
    once: bool
    port: int | None


def parse_arguments(arguments: Sequence[str]) -> TopArguments:
    """Read what follows ``top`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "top",
        "Shows on a terminal whether it is safe to fail each flow over, the worst topics with the reason, workers, the "
        "last hour and the last events, and looks again and again; ? lists the keys, which also pause and resume. "
        "Without a terminal, or with --once, it looks once and prints that. Exit codes: those of mm2py status, of the "
        "last look; 130: it was ended before the first look was over.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flows run")
    parser.add_argument("--clusters", nargs="+", metavar="A", help="only flows into these clusters")
    parser.add_argument("--once", action="store_true", help="look once, print it, and end")
    parser.add_argument(
        "--interval",
        type=seconds,
        default=LOOK_EVERY_S,
        metavar="SECONDS",
        help=f"how often it looks (default {LOOK_EVERY_S:g})",
    )
    parser.add_argument(
        "--port",
        type=number_up_to(65_535, least=1),
        help="where a worker on this machine serves REST, which tells the last hour, if that is not the port in "
        "listeners: with --workers, or where that is 0",
    )
    return parser.parse_args(arguments, namespace=TopArguments())


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``, ``load_configuration``.
    """
    options = parse_arguments(arguments)
    file = read_settings_file(options.file, options.clusters)
    is_dumb = os.environ.get("TERM", "dumb") == "dumb"
    if options.once or is_dumb or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return asyncio.run(_once(options, file))
    return asyncio.run(_TopRun(options, file).until_quit())


def _bars() -> str:
    return BARS if "utf" in (sys.stdout.encoding or "").lower() else PLAIN_BARS


def _inquiry(file: SettingsFile, clock: Clock) -> Inquiry:
    rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
    return Inquiry(file, _connect, clock=clock, rng=rng, patience=patience_of_commands(clock), settles=True)


def _connect(flow: Flow, cluster: ClusterSettings, timeout_s: float, rng: random.Random) -> Connected:
    return connect("top", flow, cluster, timeout_s=timeout_s, rng=rng)


async def _ask_histories(options: TopArguments, file: SettingsFile, report: Report) -> ToldHistories:
    return await ask_histories(file.configuration().rest, options.port, [one.flow for one in report.flows])


async def _once(options: TopArguments, file: SettingsFile) -> int:
    """Print one look, and return its exit code."""
    inquiry = _inquiry(file, SystemClock())
    try:
        facts = await inquiry.look()
    finally:
        await inquiry.close()
    report = report_of(facts)
    told = await _ask_histories(options, file, report)
    state = TopState(as_argument(options.file))
    for event in (LookEnded(TopLook(facts, report, {})), HistoriesTold(told.charts, told.why)):
        state, _ = step(state, event)
    width = os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else 0
    text = printed(state, width or WIDE, bars=_bars())
    with contextlib.suppress(BrokenPipeError):  # the reader has seen enough
        write_out(text.encode(sys.stdout.encoding or "ascii", "replace").decode(sys.stdout.encoding or "ascii"))
    return exit_of_report(report)


class _Quitting(Exception):
    """Ends all tasks of the command."""


class _TopRun:
    """Carries events to ``step``, does what it asks for, and draws."""

    def __init__(self, options: TopArguments, file: SettingsFile) -> None:
        self._options = options
        self._file = file
        self._clock = SystemClock()
        self._terminal = FullScreen(colours=not os.environ.get("NO_COLOR"))
        self._state = TopState(as_argument(options.file))
        self._code = EXIT_INTERRUPTED
        self._keys = KeyReader()
        self._escape: asyncio.TimerHandle | None = None
        self._work = asyncio.TaskGroup()
        self._quit = asyncio.Event()
        self._changed = asyncio.Event()
        """The screen has to be drawn."""
        self._wants_look = asyncio.Event()
        self._has_looked = asyncio.Event()

    async def until_quit(self) -> int:
        """Run until an operator, or a signal, ends it. Returns the exit code of the last look.

        A signal cancels a change that is being stored: it may be stored or not, as with ``mm2py pause``.
        """
        loop = asyncio.get_running_loop()
        for number in QUITTING:  # before the screen is taken: nothing may end the process without giving it back
            loop.add_signal_handler(number, self._quit.set)
        loop.add_signal_handler(signal.SIGWINCH, self._redraw)
        loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        loop.add_signal_handler(signal.SIGCONT, self._go_on)
        inquiry = _inquiry(self._file, self._clock)
        try:
            with full_screen(self._terminal):
                loop.add_reader(self._terminal.keyboard, self._read_keys)
                try:
                    async with self._work as work:
                        work.create_task(self._look_again_and_again(inquiry), name="top: looks")
                        work.create_task(self._ask_for_histories(), name="top: histories")
                        work.create_task(self._draw(), name="top: screen")
                        await self._quit.wait()
                        raise _Quitting
                except* _Quitting:
                    pass
                finally:
                    loop.remove_reader(self._terminal.keyboard)
        finally:
            await inquiry.close()
        if self._state.is_quitting:  # what was being stored when it was to end
            write_out("".join(f"{printable(with_file(line, self._state.file))}\n" for line in self._state.said))
        return self._code

    def _take(self, event: TopEvent) -> None:
        if self._quit.is_set():
            return
        self._state, effects = step(self._state, event)
        for effect in effects:
            self._do(effect)
        self._changed.set()

    def _do(self, effect: TopEffect) -> None:
        match effect:
            case Quit():
                self._quit.set()
            case RedrawAll():
                self._redraw()
            case LookAgain():
                self._wants_look.set()
            case StorePause(wanted):
                self._work.create_task(self._store(wanted), name=f"top: {wanted.text}")
            case AskDetails(key):
                self._work.create_task(self._ask_details(key), name=f"top: {key.topic}")
            case AskGroups(flow):
                self._work.create_task(self._ask_groups(flow), name=f"top: groups of {flow}")
            case _:
                assert_never(effect)

    # The terminal

    def _read_keys(self) -> None:
        if not (data := self._terminal.read()):
            self._quit.set()
            return
        if self._escape is not None:
            self._escape.cancel()
        for event in self._keys.take(data):
            self._take(event)
        if self._keys.is_waiting:
            self._escape = asyncio.get_running_loop().call_later(ESCAPE_S, self._give_up_waiting)

    def _give_up_waiting(self) -> None:
        for event in self._keys.give_up():
            self._take(event)

    async def _draw(self) -> None:
        while True:
            self._changed.clear()
            width, height = self._terminal.size
            try:
                lines = screen(self._state, width, height, self._clock.wall_ms(), bars=_bars())
                self._terminal.draw(lines, width)
            except OSError:  # the terminal is gone
                self._quit.set()
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DRAW_EVERY_S):
                    await self._changed.wait()

    def _redraw(self) -> None:
        self._terminal.forget()
        self._changed.set()

    def _suspend(self) -> None:
        """Stop, as Ctrl-Z asks for, with the terminal as it was. ``raise_signal`` returns when the process goes on."""
        loop = asyncio.get_running_loop()
        self._terminal.leave()
        loop.remove_signal_handler(signal.SIGTSTP)
        signal.raise_signal(signal.SIGTSTP)
        loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        self._go_on()

    def _go_on(self) -> None:
        """Take the terminal again: the process was stopped, and the shell has used it meanwhile."""
        self._terminal.enter()
        self._changed.set()

    # The clusters and the workers

    async def _look_again_and_again(self, inquiry: Inquiry) -> None:
        rates = TopicRates()
        while True:
            begun_s = self._clock.monotonic()
            self._wants_look.clear()
            facts = await inquiry.look()
            report = report_of(facts)
            self._code = exit_of_report(report)
            self._take(LookEnded(TopLook(facts, report, rates.look(facts))))
            self._has_looked.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, begun_s + self._options.interval - self._clock.monotonic())):
                    await self._wants_look.wait()

    async def _ask_for_histories(self) -> None:
        await self._has_looked.wait()
        while True:
            if self._state.look is not None:
                told = await _ask_histories(self._options, self._file, self._state.look.report)
                self._take(HistoriesTold(told.charts, told.why))
            await asyncio.sleep(HISTORY_EVERY_S)

    async def _store(self, wanted: PauseWanted) -> None:
        lines: list[str] = []
        parts = [] if wanted.part is None else [wanted.part]
        try:
            settings = flow_of(self._file, str(wanted.flow))
            lines += await change_pauses(
                self._options.file,
                settings,
                parts,
                wanted.reason,
                is_paused=wanted.is_paused,
                command="mm2py top",
                warn=lines.append,
            )
        except Mm2Error as error:
            lines.append(f"{wanted.text}: not done. {error}")
        self._take(ChangeEnded(lines))

    async def _ask_details(self, key: FlowTopic) -> None:
        facts, report = self._state.flow_facts(key.flow), self._state.flow_report(key.flow)
        if facts is None or report is None:
            return
        found = explain_topic(facts, report, key.topic, None, {})
        if found.replicated is Replicated.UNKNOWN:
            return
        at_ms = self._clock.wall_ms()
        with contextlib.suppress(Mm2Error):  # the look tells what does not answer
            async with sides_of("top", facts.settings) as (source, target):
                details = await details_of(key.topic, found, facts.settings, source, target)
            self._take(DetailsTold(key, details, at_ms))

    async def _ask_groups(self, flow: Flow) -> None:
        facts = self._state.flow_facts(flow)
        if facts is None:
            return
        try:
            async with sides_of("top", facts.settings) as (source, target):
                log = make_logger("error", "text", io.StringIO())
                told = await GroupsQuestion(facts.settings, source, target, self._clock, log).ask()
        except Mm2Error as error:
            self._take(GroupsRead(GroupsShown(flow, self._clock.wall_ms(), problem=str(error))))
            return
        self._take(GroupsRead(GroupsShown(flow, told.at_ms, told.unread, reports=tuple(told.reports))))
