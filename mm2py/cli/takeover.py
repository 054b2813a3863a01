"""``mm2py takeover FILE``: takes over from a mirror that runs as something else, with every setting accounted for.

It reads what runs, writes the settings file that does the same, shows the positions, and switches.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from mm2py.cli.command import CommandFailed, CommandParser
from mm2py.cli.dr_calls import say_lines
from mm2py.clock import SystemClock
from mm2py.config import keys
from mm2py.config.configuration import read_settings_file
from mm2py.config.properties import read_properties
from mm2py.config.settings import FlowSettings
from mm2py.errors import ConfigError
from mm2py.flow import Flow
from mm2py.flow_sides import FlowSides, of_both, require, sides_of
from mm2py.mirror.client_file import ClientRole
from mm2py.mirror.properties_text import properties_text
from mm2py.mirror.request import MirrorArguments, read_request
from mm2py.status.exit_codes import EXIT_CHANGES, EXIT_DONE, EXIT_FAILED, EXIT_WAITS
from mm2py.takeover.account import account_for_file
from mm2py.takeover.connect_rest import ConnectRest
from mm2py.takeover.connector_configs import JSON_MAX_BYTES, mirror_of, read_connectors
from mm2py.takeover.older_mirrors import OldClientFile, account_for_clients
from mm2py.takeover.positions_plan import JudgedPosition, PositionOutcome, lines_of_positions, refusals_of
from mm2py.takeover.printout import lines_of_account, lines_of_fills, lines_of_refusals
from mm2py.takeover.settings_file import WrittenFile, file_of
from mm2py.takeover.strimzi import SECRETS, read_strimzi
from mm2py.takeover.switching import FlowTakeover
from mm2py.takeover.what_runs import MirrorConnector, RunningFlow, WhatRuns

DEADLINE_S: Final = 120.0
"""How long reading or storing may take: a group that was killed is watched for its session time-out."""


class TakeoverArguments(argparse.Namespace):
    """What follows ``takeover`` on the command line."""

    file: Path
    from_connect: str | None
    from_connect_json: list[Path]
    from_strimzi: Path | None
    from_mm1: list[Path]
    topics: str | None
    blacklist: str | None
    prefixes: list[str]
    without: list[str]
    secrets: str
    plan: bool
    yes: bool


def parse_arguments(arguments: Sequence[str]) -> TakeoverArguments:
    """Read what follows ``takeover`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "takeover",
        "Takes over from a mirror that runs as something else. It says for every setting what becomes of it: kept,"
        " renamed, means nothing here, or refused. With --from-... it writes FILE, the settings file that does the"
        " same; if a setting is refused, it writes nothing. Without it, FILE is the file of a dedicated MirrorMaker 2,"
        " which mm2py reads as it is. Then --plan shows the positions of each partition, and --yes switches: it stops"
        " the connectors of Kafka Connect and carries their positions over, so that mm2py FILE goes on at the exact"
        " record. Exit codes: 0 done; 1 a cluster or Kafka Connect did not answer, or the switch is refused; 2 wrong"
        " file or arguments; 3 a setting is refused; with --plan: positions would be carried over.",
    )
    add = parser.add_argument
    add("file", metavar="FILE", type=Path, help="the settings file of mm2py: written, or without --from-... read")
    what = parser.add_argument_group("what runs").add_mutually_exclusive_group()
    what.add_argument("--from-connect", metavar="URL", help="the REST of a Kafka Connect that runs the connectors")
    what.add_argument(
        "--from-connect-json",
        nargs="+",
        default=[],
        metavar="F",
        type=Path,
        help="the connectors of one flow or more as JSON, as Connect's REST takes or tells them",
    )
    what.add_argument(
        "--from-strimzi",
        metavar="F",
        type=Path,
        help="a resource KafkaMirrorMaker2, v1 or v1beta2, as YAML or JSON",
    )
    what.add_argument(
        "--from-mm1",
        nargs="+",
        default=[],
        metavar="F",
        type=Path,
        help="files of MirrorMaker 1 or the Go mirror maker: of its consumers, and at last of its producer",
    )
    old = parser.add_argument_group("with --from-mm1").add_argument
    old("--topics", "--whitelist", "--include", dest="topics", metavar="REGEX", help="as its --whitelist")
    old("--blacklist", metavar="REGEX", help="as its --blacklist")
    old("--prefix", dest="prefixes", action="append", default=[], metavar="P", help="as of mm2py mirror")
    add("--without", nargs="+", action="extend", default=[], metavar="NAME", help="leave these settings out")
    add("--secrets", metavar="DIR", default=SECRETS, help=f"with --from-strimzi: the folder of secrets ({SECRETS})")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--plan", action="store_true", help="FILE is written: show positions, and change nothing")
    how.add_argument("--yes", action="store_true", help="FILE is written: switch")
    found = parser.parse_args(arguments, namespace=TakeoverArguments())
    if found.from_mm1 and (found.plan or found.yes):
        parser.error("--from-mm1 takes neither --plan nor --yes: mm2py FILE begins where its group has committed")
    if found.from_connect_json and (found.plan or found.yes):
        parser.error("--from-connect-json takes neither --plan nor --yes: positions need --from-connect")
    if found.from_mm1 and len(found.from_mm1) < 2:
        parser.error("--from-mm1 takes the file of a consumer and that of the producer")
    if not found.from_mm1 and (found.topics is not None or found.blacklist is not None or found.prefixes):
        parser.error("--topics, --blacklist and --prefix are for --from-mm1")
    return found


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``; a file cannot be read, or Kafka Connect does not answer.
    """
    options = parse_arguments(arguments)
    if options.from_mm1:
        return _of_mm1(options)
    runs = what_runs(options)
    if options.plan or options.yes:
        return asyncio.run(_switch(options, runs))
    return _of_dedicated(options) if runs is None else _write(options, runs)


def what_runs(options: TakeoverArguments) -> WhatRuns | None:
    """Return what runs, by the options; None: a dedicated MirrorMaker 2 with this file.

    Raises:
        Mm2Error: a file cannot be read, or Kafka Connect does not answer.
    """
    if options.from_connect is not None:
        rest = ConnectRest(options.from_connect)
        connectors, others = read_connectors(asyncio.run(rest.connectors()), str(rest))
        return mirror_of(connectors, f"Kafka Connect at {rest}", others)
    if options.from_connect_json:
        found: list[MirrorConnector] = []
        strangers: list[str] = []
        for path in options.from_connect_json:
            some, others = read_connectors(_json(path), str(path))
            found += some
            strangers += others
        return mirror_of(found, ", ".join(path.name for path in options.from_connect_json), strangers)
    if options.from_strimzi is not None:
        path = options.from_strimzi
        return read_strimzi(documents_of(path), str(path), options.secrets)
    return None


def _of_dedicated(options: TakeoverArguments) -> int:
    """Account for the settings of a dedicated MirrorMaker 2."""
    file = read_settings_file(options.file, None)
    configuration = file.configuration()
    clusters = keys.CLUSTERS.kind(file.properties.entries[keys.CLUSTERS.name].value)
    account = account_for_file(
        read_properties(options.file).entries, clusters, options.file.name, file.properties.entries
    )
    say_lines(lines_of_account(account))
    refusals = [str(error) for error in configuration.refused.values()]
    say_lines([f"Refused: {text}" for text in refusals])
    if refusals:
        return EXIT_WAITS
    say_lines([f"mm2py reads {options.file} as it is. Its positions: add --plan."])
    return EXIT_DONE


def _write(options: TakeoverArguments, runs: WhatRuns) -> int:
    """Write the file, unless a setting is refused."""
    made = file_of(runs, options.without)
    say_lines(lines_of_account(made.account))
    for note in runs.notes:
        say_lines([f"Note: {note}"])
    if made.account.refused:
        say_lines(["", *lines_of_refusals(made.account.refused), f"{options.file} is not written."])
        return EXIT_WAITS
    write_new(options.file, made)
    say_lines(["", *lines_of_fills(runs.fills), f"Wrote {options.file}; only you may read it."])
    return EXIT_DONE


async def _switch(options: TakeoverArguments, runs: WhatRuns | None) -> int:
    """Show the positions of all flows of the file, and with ``--yes`` carry them over, flow by flow."""
    file = read_settings_file(options.file, None)
    configuration = file.configuration()
    for refused in configuration.refused.values():
        raise refused
    running = {} if runs is None else {one.flow: one for one in runs.flows}
    strangers = [settings.flow for settings in configuration.flows if runs is not None and settings.flow not in running]
    if strangers:
        raise ConfigError(
            f"{options.file} has flow {strangers[0]}, which does not run as something else.",
            remedy="Write a new file with the same --from-... and without --plan and --yes.",
        )
    rest = None if options.from_connect is None else ConnectRest(options.from_connect)
    codes = [
        await _switch_flow(options, settings, running.get(settings.flow), rest) for settings in configuration.flows
    ]
    code = max(codes, default=EXIT_DONE, key=[EXIT_DONE, EXIT_CHANGES, EXIT_FAILED].index)
    if options.yes and code == EXIT_DONE:
        say_lines([f"Start it: mm2py {file.argument}"])
    return code


async def _switch_flow(
    options: TakeoverArguments, settings: FlowSettings, running: RunningFlow | None, rest: ConnectRest | None
) -> int:
    """Show the positions of one flow, and with ``--yes`` carry them over. Returns the exit code."""
    async with sides_of("takeover", settings) as sides:
        require(sides)
        flow = FlowTakeover(
            settings,
            running,
            rest,
            source=sides.source.brokers,
            target=sides.target.brokers,
            clock=SystemClock(),
            rng=random.Random(),  # noqa: S311  (spreads retries; nothing secret)
        )
        judged = await _look(flow, sides)
        if options.plan:
            say_lines([*lines_of_positions(settings.flow, judged), *await of_both(sides, _who_runs(flow), "asking")])
            return EXIT_FAILED if refusals_of(judged) else _code_of_plan(judged)
        await of_both(sides, flow.refuse_running(), "looking who runs the flow", deadline_s=DEADLINE_S)
        _refuse(settings.flow, judged, "Nothing was changed.")
        names = await flow.stop()
        say_lines([f"{name} has stopped." for name in names])
        judged = await _look(flow, sides)
        say_lines(lines_of_positions(settings.flow, judged))
        resume = f" To let it go on there: PUT {rest}/connectors/{names[0]}/resume." if names else ""
        _refuse(settings.flow, judged, f"No position was stored.{resume}")
        count = await of_both(sides, flow.store(judged), "storing positions", deadline_s=DEADLINE_S)
        say_lines([f"{settings.flow}: {count} positions are stored in {settings.offsets_topic}."])
    return EXIT_DONE


async def _look(flow: FlowTakeover, sides: FlowSides) -> list[JudgedPosition]:
    return await of_both(sides, flow.look(), "reading positions", deadline_s=DEADLINE_S)


async def _who_runs(flow: FlowTakeover) -> list[str]:
    """Return what an operator does before the switch."""
    why = await flow.why_mirror_runs()
    return [f"  {why}", f"  {flow.how_to_stop}"] if why else []


def _code_of_plan(judged: Sequence[JudgedPosition]) -> int:
    return EXIT_CHANGES if any(one.outcome is PositionOutcome.TAKEN for one in judged) else EXIT_DONE


def _refuse(flow: Flow, judged: Sequence[JudgedPosition], remedy: str) -> None:
    """Raise: CommandFailed, if a position is refused; the first one is named."""
    refused = refusals_of(judged)
    if refused:
        first = refused[0]
        more = f", and {len(refused) - 1} more" if len(refused) > 1 else ""
        raise CommandFailed(
            f"{flow} is not taken over: {first.found.topic}-{first.found.partition}{more}: {first.why}.", remedy=remedy
        )


def _of_mm1(options: TakeoverArguments) -> int:
    """Write the file that does the same as an older mirror, unless a setting is refused."""
    *consumers, producer = (
        OldClientFile(
            str(path),
            ClientRole.PRODUCER if path is options.from_mm1[-1] else ClientRole.CONSUMER,
            read_properties(path).entries,
        )
        for path in options.from_mm1
    )
    asked = read_request(
        MirrorArguments(
            source_files=[file.client() for file in consumers],
            target_file=producer.client(),
            topics=options.topics,
            blacklist=options.blacklist,
            prefixes=options.prefixes,
        )
    )
    request, account = account_for_clients(asked, consumers, producer)
    say_lines(lines_of_account(account))
    if account.refused:
        say_lines(["", *lines_of_refusals(account.refused), f"{options.file} is not written."])
        return EXIT_WAITS
    _write_text(options.file, properties_text(request))
    say_lines([*(f"Note: {note}" for note in request.notes), f"Wrote {options.file}; only you may read it."])
    return EXIT_DONE


def write_new(path: Path, made: WrittenFile) -> None:
    """Write the file. Raises: ConfigError, it is there already, or cannot be written."""
    _write_text(path, made.text)


def _write_text(path: Path, text: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise ConfigError(
            f"{path} is there already.", remedy="Name a new file, or go on with it: add --plan or --yes."
        ) from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.", remedy="Name another file.") from error
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(JSON_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}.", remedy="Check its name and its rights.") from error
    if len(data) > JSON_MAX_BYTES:
        raise ConfigError(f"{path} is larger than {JSON_MAX_BYTES:,} bytes.", remedy="Is it the right file?")
    return data


def _json(path: Path) -> Any:
    try:
        return json.loads(_bytes(path))
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise ConfigError(f"{path} is no JSON{where}.", remedy="Save what Connect's REST answers.") from None


def documents_of(path: Path) -> list[Any]:
    """Return the documents of a file in YAML or JSON, which is read without PyYAML.

    Raises:
        ConfigError: it cannot be read, is neither, or is YAML and PyYAML is not installed.
    """
    data = _bytes(path)
    try:
        return [json.loads(data)]
    except (ValueError, RecursionError):
        pass
    try:
        import yaml  # noqa: PLC0415  (an extra: most installations never read YAML)
    except ImportError as error:
        raise ConfigError(
            f"{path} is YAML, and PyYAML is not installed.",
            remedy="Install mm2py[strimzi], or save the resource with kubectl get ... -o json.",
        ) from error
    try:
        return list(yaml.safe_load_all(data))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        raise ConfigError(f"{path} is no YAML{where}.", remedy="Save it with kubectl get ... -o yaml.") from None
