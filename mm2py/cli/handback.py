"""``mm2py handback FILE A->B``: hands a flow back to the mirror that ran before, which goes on without a repeat."""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mm2py.cli.command import CommandParser
from mm2py.cli.dr_calls import may_change, say_lines
from mm2py.cli.flow_sides import settings_of_workers
from mm2py.cli.takeover import documents_of
from mm2py.clock import SystemClock
from mm2py.command_lines import with_file
from mm2py.config.configuration import SettingsFile, read_settings_file
from mm2py.config.settings import FlowSettings
from mm2py.dr.fence.choosing import settings_of_flow
from mm2py.errors import ConfigError
from mm2py.flow_sides import of_both, require, sides_of
from mm2py.status.exit_codes import EXIT_CHANGES, EXIT_DONE, EXIT_FAILED
from mm2py.takeover.connect_rest import ConnectRest
from mm2py.takeover.handing_back import ask_return, source_connector, to_connect, to_strimzi
from mm2py.takeover.return_plan import ReturnPlan
from mm2py.takeover.strimzi import read_strimzi
from mm2py.takeover.what_runs import RunningFlow

DEADLINE_S: Final = 120.0
"""How long reading or storing may take: a group that was killed is watched for its session time-out."""


class HandbackArguments(argparse.Namespace):
    """What follows ``handback`` on the command line."""

    file: Path
    flow: str
    to_connect: str | None
    connector: str | None
    to_strimzi: Path | None
    plan: bool
    yes: bool


def parse_arguments(arguments: Sequence[str]) -> HandbackArguments:
    """Read what follows ``handback`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "handback",
        "Hands a flow back to the mirror that ran before: its positions go to where that mirror reads them, so that"
        " it goes on without a repeat. It is refused while a worker or a mirror runs the flow, and after a worker"
        " that did not stop in order. A dedicated MirrorMaker 2 reads the positions of mm2py where they are: then"
        " nothing is written. Exit codes: 0 handed back; 1 a cluster or Kafka Connect did not answer, or it is"
        " refused; 2 wrong file or arguments, or neither a terminal to ask on nor --yes; 3 with --plan: it would be"
        " handed back.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flow ran")
    parser.add_argument("flow", metavar="A->B", help="the flow")
    to = parser.add_mutually_exclusive_group()
    to.add_argument("--to-connect", metavar="URL", help="the REST of a Kafka Connect, whose connector is stopped")
    to.add_argument("--to-strimzi", metavar="F", type=Path, help="a resource KafkaMirrorMaker2 whose pods are stopped")
    parser.add_argument(
        "--connector", metavar="NAME", help="with --to-connect: the source connector, if there are more"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--plan", action="store_true", help="only say what would be handed back")
    how.add_argument("--yes", action="store_true", help="do not ask; needed where there is no terminal")
    found = parser.parse_args(arguments, namespace=HandbackArguments())
    if found.connector is not None and found.to_connect is None:
        parser.error("--connector is for --to-connect")
    return found


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``; a cluster or Kafka Connect does not answer, or it is refused.
    """
    options = parse_arguments(arguments)
    file = read_settings_file(options.file, None)
    settings = settings_of_flow(file, options.flow)
    running = None if options.to_strimzi is None else _running(options.to_strimzi, settings)
    return asyncio.run(_hand_back(options, file, settings, running))


def _running(path: Path, settings: FlowSettings) -> RunningFlow:
    runs = read_strimzi(documents_of(path), str(path))
    for one in runs.flows:
        if one.flow == settings.flow and one.offsets_topic and one.group:
            return one
    raise ConfigError(f"{path} has no flow {settings.flow}.", remedy="Its aliases are those of the resource.")


async def _hand_back(
    options: HandbackArguments, file: SettingsFile, settings: FlowSettings, running: RunningFlow | None
) -> int:
    clock, rng = SystemClock(), random.Random()  # noqa: S311  (spreads retries; nothing secret)
    flow = settings.flow
    async with sides_of("handback", settings) as sides:
        require(sides)
        settings, _ = await settings_of_workers(file, settings, sides.target)
        asking = ask_return(file, settings, sides.answering, clock=clock, rng=rng)
        plan, users = await of_both(sides, asking, "asking what is handed back", deadline_s=DEADLINE_S)
        refusals = [*users, *plan.refusals]
        if refusals:
            say_lines([with_file(f"Refused: {text}", file.argument) for text in refusals])
            return EXIT_FAILED
        rest = None if options.to_connect is None else ConnectRest(options.to_connect)
        name = "" if rest is None else await source_connector(rest, settings, options.connector)
        say_lines(_lines(plan, settings, rest, name, running))
        if options.plan:
            return EXIT_CHANGES
        code = may_change(lambda line: say_lines([line]), f"Hand {flow} back?", yes=options.yes)
        if code is not None:
            return code
        if rest is not None:
            await to_connect(rest, name, flow.source, plan.positions)
            say_lines([f"{name} goes on at these offsets: PUT {rest}/connectors/{name}/resume."])
        elif running is not None:
            work = to_strimzi(running, settings, sides.target.brokers, plan.positions, clock=clock, rng=rng)
            await of_both(sides, work, "storing positions", deadline_s=DEADLINE_S)
            say_lines(["Give the resource its replicas back: its connectors go on there."])
        else:
            say_lines([f"Start MirrorMaker 2: it goes on there. Do not start mm2py {file.argument} again before."])
    return EXIT_DONE


def _lines(
    plan: ReturnPlan, settings: FlowSettings, rest: ConnectRest | None, name: str, running: RunningFlow | None
) -> list[str]:
    """Return what is handed back, and where to."""
    where = f"{settings.offsets_topic}, where MirrorMaker 2 reads them"
    if rest is not None:
        where = f"connector {name} at {rest}"
    elif running is not None:
        where = running.offsets_topic
    lines = [f"{settings.flow}: {len(plan.positions)} positions, of a worker that stopped in order, for {where}."]
    if settings.offset_syncs is not None:
        lines.append(f"Offset syncs are in {settings.offset_syncs.topic}, as MirrorMaker 2 reads them.")
    if settings.checkpoints is not None:
        lines.append(f"Checkpoints are in {settings.checkpoints.topic}, as MirrorMaker 2 reads them.")
    return [*lines, *plan.notes]
