"""``mm2py takeover FILE``: takes over from a mirror that runs as something else, with every setting accounted for.

It reads what runs, writes the settings file that does the same, shows the positions, and switches.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mm2py.cli.command import CommandParser
from mm2py.cli.dr_calls import say_lines
from mm2py.config import keys
from mm2py.config.configuration import read_settings_file
from mm2py.config.properties import read_properties
from mm2py.errors import ConfigError
from mm2py.mirror.client_file import ClientRole, read_client_file
from mm2py.mirror.properties_text import properties_text
from mm2py.mirror.request import MirrorArguments, read_request
from mm2py.output import say
from mm2py.status.exit_codes import EXIT_DONE, EXIT_WAITS
from mm2py.takeover.account import account_for_file
from mm2py.takeover.connect_rest import ConnectRest
from mm2py.takeover.connector_configs import JSON_MAX_BYTES, mirror_of, read_connectors
from mm2py.takeover.printout import lines_of_account, lines_of_fills, lines_of_refusals
from mm2py.takeover.settings_file import WrittenFile, file_of
from mm2py.takeover.strimzi import SECRETS, read_strimzi
from mm2py.takeover.what_runs import MirrorConnector, WhatRuns


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
        " which mm2py reads as it is. Exit codes: 0 done; 1 a cluster or Kafka Connect did not answer; 2 wrong file"
        " or arguments; 3 a setting is refused.",
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
    found = parser.parse_args(arguments, namespace=TakeoverArguments())
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
        return read_strimzi(_documents(path), str(path), options.secrets)
    return None


def _of_dedicated(options: TakeoverArguments) -> int:
    """Account for the settings of a dedicated MirrorMaker 2."""
    file = read_settings_file(options.file, None)
    configuration = file.configuration()
    clusters = keys.CLUSTERS.kind(file.properties.entries[keys.CLUSTERS.name].value)
    account = account_for_file(read_properties(options.file).entries, clusters, options.file.name)
    say_lines(lines_of_account(account))
    refusals = [str(error) for error in configuration.refused.values()]
    say_lines([f"Refused: {text}" for text in refusals])
    if refusals:
        return EXIT_WAITS
    say_lines([f"mm2py reads {options.file} as it is. Stop MirrorMaker 2, then start: mm2py {options.file}"])
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


def _of_mm1(options: TakeoverArguments) -> int:
    *consumers, producer = options.from_mm1
    request = read_request(
        MirrorArguments(
            source_files=[
                read_client_file(read_properties(path).entries, str(path), ClientRole.CONSUMER) for path in consumers
            ],
            target_file=read_client_file(read_properties(producer).entries, str(producer), ClientRole.PRODUCER),
            topics=options.topics,
            blacklist=options.blacklist,
            prefixes=options.prefixes,
        )
    )
    for note in request.notes:
        say(note)
    _write_text(options.file, properties_text(request))
    say(f"Wrote {options.file}; only you may read it.")
    return EXIT_DONE


def write_new(path: Path, made: WrittenFile) -> None:
    """Write the file. Raises: ConfigError, it is there already, or cannot be written."""
    _write_text(path, made.text)


def _write_text(path: Path, text: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise ConfigError(f"{path} is there already.", remedy="Name a new file.") from error
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


def _documents(path: Path) -> list[Any]:
    """Return the documents of a file in YAML or JSON, which is read without PyYAML."""
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
