"""``mm2py gaps FILE``: lists the gaps of all flows from their status topics, and lets stopped partitions continue.

Listing writes nothing. ``accept`` writes a command with the position that the gap names; the process that runs the flow
carries it out and answers. The command is refused if the partition has moved on since the gap was listed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mm2py.cli.command import CommandParser, within_deadline
from mm2py.clock import Clock, SystemClock
from mm2py.config.configuration import load_configuration
from mm2py.config.settings import FlowSettings
from mm2py.copying.gap_commands import GapCommands, gaps_to_accept
from mm2py.copying.gap_log import READ_AGAIN_S, GapTable
from mm2py.errors import ConfigError, Mm2Error
from mm2py.flow import Flow, check_quoted, parse_flow
from mm2py.flow_clusters import Connected, target_of
from mm2py.flow_sides import DEADLINE_S
from mm2py.kafka.errors import KafkaError
from mm2py.kafka.port import Brokers
from mm2py.moments import time_text
from mm2py.output import Write, say, write_out
from mm2py.records.gap_record import Command, Gap
from mm2py.secret import printable
from mm2py.status.bodies import GapBody, json_of
from mm2py.status.exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_WAITS
from mm2py.text_table import text_table


class WantedPartition(NamedTuple):
    """What ``accept`` names: one partition of a topic, or all that are stopped (None)."""

    flow: Flow
    topic: str
    partition: int | None

    def __str__(self) -> str:
        return f"{self.flow}:{self.topic}" + ("" if self.partition is None else f":{self.partition}")


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """The outcome of one command. ``text`` is the owner's answer, or why there is none."""

    wanted: WantedPartition
    carried_out: bool
    text: str


class GapsArguments(argparse.Namespace):
    """What follows ``gaps`` on the command line."""

    file: Path
    clusters: list[str] | None
    format: str
    all: bool
    action: str | None
    partitions: list[str]


def parse_arguments(arguments: Sequence[str]) -> GapsArguments:
    """Read what follows ``gaps`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "gaps",
        "Lists gaps that wait for an operator. Exit codes: 0 there are none, or all were accepted; 1 a "
        "cluster did not answer, or a partition was not accepted; 2 wrong file or arguments; 3 gaps are open.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flows run")
    parser.add_argument("action", nargs="?", choices=("accept",), help="let stopped partitions go on")
    parser.add_argument(
        "partitions", nargs="*", metavar="A->B:TOPIC[:PARTITION]", help="which; without a number all of the topic"
    )
    parser.add_argument("--clusters", nargs="+", metavar="A", help="only flows into these clusters")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--json", dest="format", action="store_const", const="json", help="as --format json")
    parser.add_argument("--all", action="store_true", help="also list gaps that need no operator")
    found = parser.parse_intermixed_args(arguments, namespace=GapsArguments())
    if found.action == "accept" and not found.partitions:
        parser.error("accept names no partition")
    return found


def wanted_of(texts: Sequence[str]) -> list[WantedPartition]:
    """Read ``A->B:TOPIC`` and ``A->B:TOPIC:PARTITION``.

    Raises:
        ConfigError: one of them is neither.
    """
    found = []
    for text in texts:
        check_quoted(text)
        flow, _, rest = text.partition(":")
        topic, colon, number = rest.partition(":")
        if not topic or (colon and not (number.isascii() and number.isdecimal())):
            raise ConfigError(f"{text!r} names no partition.", remedy="Write it as A->B:TOPIC:PARTITION, in quotes.")
        found.append(WantedPartition(parse_flow(flow), topic, int(number) if colon else None))
    return found


async def read_gaps(settings: FlowSettings, brokers: Brokers) -> list[Gap]:
    """Return the gaps of one flow, by topic and partition.

    Raises:
        CommandFailed: they cannot be read in time.
    """
    table = GapTable(brokers, settings.status_topic)
    await within_deadline(settings.flow.target, table.read_patiently(), f"reading {settings.status_topic}")
    return table.gaps()


async def accept(
    settings: FlowSettings, brokers: Brokers, wanted: Sequence[WantedPartition], *, clock: Clock, rng: random.Random
) -> list[CommandOutcome]:
    """Write a command for each open gap that ``wanted`` names, and wait for the answers.

    Raises:
        CommandFailed: the status topic cannot be read or written.
    Cancelling does not undo commands that were written: they are still carried out.
    """
    target, topic = settings.flow.target, settings.status_topic
    commands = GapCommands(
        brokers,
        topic,
        group=settings.group,
        request_timeout_s=settings.target_request_timeout_s,
        clock=clock,
        rng=rng,
    )
    gaps = await within_deadline(target, commands.gaps(), f"reading {topic}")
    outcomes: list[CommandOutcome] = []
    named: list[tuple[WantedPartition, Gap]] = []
    for one in wanted:
        found = gaps_to_accept(gaps, one.topic, one.partition)
        if not found:
            outcomes.append(CommandOutcome(one, False, "no gap of it is open."))
        named += [(one._replace(partition=gap.partition), gap) for gap in found]
    if not named:
        return outcomes
    written = await within_deadline(target, commands.accept([gap for _, gap in named]), f"writing to {topic}")
    return outcomes + await _answers(commands, [one for one, _ in named], written)


async def _answers(
    commands: GapCommands, wanted: Sequence[WantedPartition], written: Sequence[Command]
) -> list[CommandOutcome]:
    left = {command: one for one, command in zip(wanted, written, strict=True)}
    outcomes: list[CommandOutcome] = []
    why = ""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while left:
                answers = await commands.answers(left)
                for command in [command for command in left if command.command_id in answers]:
                    answer = answers[command.command_id]
                    outcomes.append(CommandOutcome(left.pop(command), answer.carried_out, answer.text))
                await asyncio.sleep(READ_AGAIN_S if left else 0)
    except TimeoutError:
        why = f"no worker answered within {DEADLINE_S:g} s"
    except KafkaError as error:
        why = f"whether it was carried out cannot be read ({error.what.rstrip('.')})"
    silent = "it is still being carried out, or will be once {} runs."
    outcomes += [CommandOutcome(one, False, f"{why}: {silent.format(one.flow)}") for one in left.values()]
    return outcomes


# -- the command -------------------------------------------------------------------------------------------------------


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``, ``load_configuration``.
    """
    options = parse_arguments(arguments)
    wanted = wanted_of(options.partitions)
    configuration = load_configuration(options.file, options.clusters)
    flows = {settings.flow: settings for settings in configuration.flows}
    strangers = [one for one in wanted if one.flow not in flows]
    if strangers:
        raise ConfigError(f"{strangers[0].flow} is no flow that runs.", remedy="Name a flow of the file.")
    for error in configuration.refused.values():
        say(str(error))
    work = list_or_accept(options, list(flows.values()), wanted, write_out, say, connect=_connect, clock=SystemClock())
    return asyncio.run(work)


async def list_or_accept(
    options: GapsArguments,
    flows: Sequence[FlowSettings],
    wanted: Sequence[WantedPartition],
    write: Write,
    warn: Write,
    *,
    connect: Callable[[FlowSettings, random.Random], Connected],
    clock: Clock,
) -> int:
    """List the gaps of ``flows``, or accept those that are ``wanted``; returns the exit code.

    If a cluster cannot be read, the others are still shown: ``warn`` gets what could not be listed, and what could not
    be accepted is among the outcomes.
    """
    rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
    found: list[tuple[Flow, Gap]] = []
    outcomes: list[CommandOutcome] = []
    unread: list[Flow] = []
    for settings in flows:
        ours = [one for one in wanted if one.flow == settings.flow]
        if wanted and not ours:
            continue
        brokers = connect(settings, rng)
        try:
            if ours:
                outcomes += await accept(settings, brokers, ours, clock=clock, rng=rng)
            else:
                gaps = await read_gaps(settings, brokers)
                found += [(settings.flow, gap) for gap in gaps if gap.is_open or options.all]
        except Mm2Error as error:
            unread.append(settings.flow)
            outcomes += [CommandOutcome(one, False, str(error)) for one in ours]
            if not ours:
                warn(f"{settings.flow} cannot be listed: {error}")
        finally:
            await brokers.close()
    if wanted:
        write(outcomes_json(outcomes) if options.format == "json" else outcomes_text(outcomes))
        return EXIT_DONE if all(one.carried_out for one in outcomes) else EXIT_FAILED
    if found or not unread or options.format == "json":
        write(gaps_json(found) if options.format == "json" else gaps_text(found))
    if unread:
        return EXIT_FAILED
    return EXIT_WAITS if any(gap.is_open for _, gap in found) else EXIT_DONE


def _connect(settings: FlowSettings, rng: random.Random) -> Connected:
    return target_of("gaps", settings, rng)


# -- what is shown -----------------------------------------------------------------------------------------------------


def gaps_text(found: Sequence[tuple[Flow, Gap]]) -> str:
    """Return a table with a line for each gap; the text of the gap comes last, because it is long."""
    if not found:
        return "No gap is open.\n"
    head = ("PARTITION", "KIND", "OFFSETS", "DONE", "POSITION", "SINCE", "WHAT")
    rows = [
        (
            f"{flow}:{gap.topic}:{gap.partition}",
            str(gap.kind),
            _offsets(gap),
            str(gap.done),
            str(gap.position),
            time_text(gap.at_ms),
            gap.text,
        )
        for flow, gap in found
    ]
    return "".join(f"{line}\n" for line in text_table(head, rows))


def gaps_json(found: Sequence[tuple[Flow, Gap]]) -> str:
    """Return the same as one JSON array."""
    return json_of([GapBody.of(flow, gap) for flow, gap in found])


def outcomes_text(outcomes: Sequence[CommandOutcome]) -> str:
    return "".join(
        printable(f"{one.wanted}: {'accepted' if one.carried_out else 'not accepted'}, {one.text}") + "\n"
        for one in outcomes
    )


def outcomes_json(outcomes: Sequence[CommandOutcome]) -> str:
    rows = [
        {
            "flow": str(one.wanted.flow),
            "topic": one.wanted.topic,
            "partition": one.wanted.partition,
            "accepted": one.carried_out,
            "text": one.text,
        }
        for one in outcomes
    ]
    return json.dumps(rows, indent=2) + "\n"


def _offsets(gap: Gap) -> str:
    first = "?" if gap.first_offset is None else gap.first_offset
    return f"{first}..{'?' if gap.last_offset is None else gap.last_offset}"
