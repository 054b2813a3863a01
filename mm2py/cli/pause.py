"""``mm2py pause FILE A->B`` and ``mm2py resume FILE A->B``: a whole flow, some of its topics, or some partitions.

What is paused is stored on the target (``mm2-configs.A.internal``) with the user and the reason, and all workers follow
it within about a second. It stays paused until it is resumed, whatever happens to workers. Counterpart: ``PUT
/connectors/NAME/pause`` of Connect, which pauses a whole connector only.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from mm2py.cli.command import CommandParser, within_deadline
from mm2py.clock import SystemClock
from mm2py.command_lines import with_file
from mm2py.config.configuration import as_argument, flow_of, read_settings_file
from mm2py.config.settings import FlowSettings
from mm2py.errors import ConfigError
from mm2py.flow import PARTITION_MOST, Flow, Kind
from mm2py.flow_clusters import Connected, target_of
from mm2py.kafka.cluster import until_answered
from mm2py.kafka.write_gate import gated_alone
from mm2py.login import author_here
from mm2py.output import say, write_out
from mm2py.records.author import REASON_MOST, Author, checked_reason
from mm2py.records.operator_request import Target, TargetState, told_by
from mm2py.records.partition_ranges import numbers, ranges
from mm2py.records.pause_record import PausedPart, name_of_part, parts_to_resume
from mm2py.secret import printable
from mm2py.shared_settings.config_log import PARTS_MOST, ConfigLog
from mm2py.shared_settings.flow_owner import refuse_another_group
from mm2py.shared_settings.running_mm2 import look_for_mm2
from mm2py.status.exit_codes import EXIT_DONE
from mm2py.status.flow_look import look_at_flow
from mm2py.status.pausable import why_not_pausable
from mm2py.status.pause_report import pause_reports

_EXIT_CODES: Final = (
    "Exit codes: 0 it is stored, or was so before; 1 the target did not answer, or another group or a MirrorMaker 2 "
    "runs the flow; 2 wrong file or arguments, or the flow has no such topic."
)
_ABOUT: Final = {
    "pause": "Pauses a flow, or only some topics or partitions of it: workers stop reading within about a second, and "
    "keep their positions. It stays so, also when workers restart, until mm2py resume. " + _EXIT_CODES,
    "resume": "Lets a flow go on that was paused or stopped, or only some topics or partitions of it. They continue at "
    "the next record. A topic is resumed with all its partitions. " + _EXIT_CODES,
}


class PauseArguments(argparse.Namespace):
    """What follows ``pause`` or ``resume`` on the command line."""

    file: Path
    flow: str
    topic: list[str]
    partition: list[list[PausedPart]]
    reason: str
    parts: list[PausedPart]
    """All topics and partitions that are named; empty: the whole flow."""


def parse_arguments(arguments: Sequence[str], command: str = "pause") -> PauseArguments:
    """Read what follows ``pause`` on the command line, or ``resume``.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(command, _ABOUT[command])
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flow runs")
    parser.add_argument("flow", metavar="A->B", help="the flow; without a topic or a partition, all of it")
    parser.add_argument(
        "--topic", metavar="T", action="append", default=[], help="a topic, as the source names it; may be repeated"
    )
    parser.add_argument(
        "--partition",
        metavar="T/N",
        type=_partitions,
        action="append",
        default=[],
        help="partitions of a topic, as orders/3 or orders/0-3,7; may be repeated",
    )
    parser.add_argument(
        "--reason",
        default="",
        metavar="TEXT",
        help=f"why, for those who read mm2py status and mm2py history: one line of at most {REASON_MOST} characters",
    )
    found = parser.parse_args(arguments, namespace=PauseArguments())
    found.reason = checked_reason(found.reason)
    named = [(topic, None) for topic in found.topic] + [part for parts in found.partition for part in parts]
    found.parts = list(dict.fromkeys(named))
    if len(found.parts) > PARTS_MOST:
        raise ConfigError(
            f"{len(found.parts)} topics and partitions are named.",
            remedy=f"Name at most {PARTS_MOST} at once; a topic without a partition is all of it.",
        )
    return found


def _partitions(text: str) -> list[PausedPart]:
    """Read ``orders/3`` or ``orders/0-3,7``."""
    topic, _, spans = text.rpartition("/")
    found = sorted(set(numbers(spans)))
    if not topic or not found or found[-1] > PARTITION_MOST or ranges(found) != spans:
        raise argparse.ArgumentTypeError(f"{text!r} names no partition; write it as orders/3 or orders/0-3,7")
    return [(topic, number) for number in found]


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says after ``pause``, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``, ``flow_of``; or what the exit codes say.
    """
    return run_command("pause", arguments)


def run_command(command: str, arguments: Sequence[str]) -> int:
    """Do the same for ``pause`` or ``resume``."""
    options = parse_arguments(arguments, command)
    settings = flow_of(read_settings_file(options.file, None), options.flow)
    work = change_pauses(
        options.file, settings, options.parts, options.reason, is_paused=command == "pause", command=f"mm2py {command}"
    )
    text = asyncio.run(work)
    write_out("".join(f"{printable(with_file(line, as_argument(options.file)))}\n" for line in text))
    return EXIT_DONE


async def change_pauses(
    file: Path,
    settings: FlowSettings,
    parts: Sequence[PausedPart],
    reason: str,
    *,
    is_paused: bool,
    command: str,
    warn: Callable[[str], object] = say,
) -> list[str]:
    """Check the names, and store it. Return what is said to the operator.

    Args:
        parts: topics and partitions; none: the whole flow.
        command: the command that asks for it, as the history tells it.
        warn: takes what the operator should know besides.
    Raises:
        Mm2Error: it is not stored. The text says why.
    """
    if is_paused and parts:
        found = await look_at_flow("pause", file, settings, settles=False)
        for part in parts:
            if why := why_not_pausable(found.facts, found.flow, part):
                shows = with_file("mm2py status FILE --all shows what it copies.", as_argument(file))
                raise ConfigError(why, remedy=shows)
    change = _Change(settings.flow, parts, author_here(reason), command, is_paused=is_paused)
    rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
    brokers = target_of("pause", settings, rng)
    try:
        work = _store(settings, brokers, change, rng, warn)
        return await within_deadline(settings.flow.target, work, f"writing {settings.configs_topic}")
    finally:
        await brokers.close()


class _Change:
    """Stores what the operator asks for."""

    def __init__(
        self, flow: Flow, wanted: Sequence[PausedPart], author: Author, command: str, *, is_paused: bool
    ) -> None:
        self._flow = flow
        self._wanted = wanted
        self._is_paused = is_paused
        self._author = author
        self._command = command

    async def store(self, log: ConfigLog) -> list[str]:
        """Store it. Return what is said to the operator. Raises: as ``ConfigLog.write_target``; PausedAsAWhole."""
        by = self._author.by_command(self._command)
        if not self._wanted:
            return await self._store_flow(log, by)
        before = {one.part: one for one in log.records.pauses.all()}
        parts = self._wanted if self._is_paused else parts_to_resume(log.records.pauses, self._wanted)
        changed = await log.write_pauses(parts, is_paused=self._is_paused, by=by, author=self._author)
        word = "paused" if self._is_paused else "resumed"
        lines = [f"{self._flow}: {', '.join(map(name_of_part, changed))} {word}."] if changed else []
        ended = {(topic, None) for topic, _ in changed if (topic, None) in self._wanted}  # with their partitions
        for part in self._wanted:
            if self._is_paused and part in before:
                lines.append(f"{self._flow}: {name_of_part(part)} is paused already, by {before[part].who_and_why}.")
            elif not self._is_paused and part not in changed and (part[0], None) not in ended:
                lines.append(f"{self._flow}: {name_of_part(part)} was not paused.")
        return [*lines, *self._flow_is_held(log)]

    async def _store_flow(self, log: ConfigLog, by: str) -> list[str]:
        state = TargetState.PAUSED if self._is_paused else TargetState.STARTED
        before = log.records.target_of(Kind.SOURCE)
        await log.write_target(Kind.SOURCE, state, by=by, author=self._author)
        now = log.records.target_of(Kind.SOURCE)
        lines = [f"{self._flow}: {_what_is_so(now) if before == now else _what_was_done(now)}."]
        left = [] if self._is_paused else pause_reports(self._flow, log.records.pauses)
        return lines + [f"{self._flow}: {one.name} is still {one.text}" for one in left]

    def _flow_is_held(self, log: ConfigLog) -> list[str]:
        """Return a hint if topics are resumed, and the whole flow is paused or stopped."""
        target = log.records.target_of(Kind.SOURCE)
        if self._is_paused or target.state is TargetState.STARTED:
            return []
        remedy = f"To copy it again: mm2py resume FILE '{self._flow}'"
        return [f"{self._flow}: nothing is copied, as the whole flow is {target.text}. {remedy}"]


def _what_is_so(now: Target) -> str:
    if now.state is TargetState.STARTED:
        return "it is running already"
    return f"it is {now.word} already, by {told_by(now.by, now.author)}"


def _what_was_done(now: Target) -> str:
    return f"resumed by {told_by(now.by, now.author)}" if now.state is TargetState.STARTED else now.text


async def _store(
    settings: FlowSettings, brokers: Connected, change: _Change, rng: random.Random, warn: Callable[[str], object]
) -> list[str]:
    found = await until_answered(lambda: look_for_mm2(settings, brokers), rng=rng)
    if found.unknown:
        warn(f"{settings.flow}: {found.unknown} {found.remedy}")
    clock = SystemClock()
    log = ConfigLog(gated_alone(brokers, clock), settings, worker="mm2py pause", clock=clock, rng=rng)
    await log.read_patiently(rng)
    await refuse_another_group(settings, log, brokers, clock=clock, rng=rng)
    return await change.store(log)
