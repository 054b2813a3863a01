"""``mm2py history FILE [A->B]``: who changed flows, or sent requests to their connectors, when and why.

It reads the targets and asks no worker. MirrorMaker 2 has no history: it keeps only the last settings, and Connect's
log has the calls over REST.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from mm2py.cli.command import CommandParser, within_deadline
from mm2py.clock import SystemClock
from mm2py.config.configuration import SettingsFile, read_settings_file
from mm2py.config.settings import FlowSettings
from mm2py.errors import ConfigError, Mm2Error, for_each
from mm2py.flow import Flow, parse_flow
from mm2py.flow_clusters import Connected, target_of
from mm2py.moments import MOMENTS, moment_ms, time_text
from mm2py.output import Write, say, write_out
from mm2py.records.history_record import HistoryEntry
from mm2py.secret import printable
from mm2py.shared_settings.config_log import ConfigTable
from mm2py.status.bodies import HistoryBody, HistoryEntryBody, json_of
from mm2py.status.exit_codes import EXIT_DONE, EXIT_FAILED

FLOWS_AT_ONCE = 8

Entries = Sequence[tuple[Flow, HistoryEntry]]


class HistoryArguments(argparse.Namespace):
    """What follows ``history`` on the command line."""

    file: Path
    flow: Flow | None
    since: int | None
    """In epoch milliseconds."""
    json: bool


def parse_arguments(arguments: Sequence[str], *, now_ms: int) -> HistoryArguments:
    """Read what follows ``history`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "history",
        "Shows who changed settings of flows, paused, stopped, resumed or restarted their connectors, when "
        "and why; the newest come last. The last 500 of each flow are kept on its target. Exit codes: 0 that is all; 1 "
        "a cluster did not answer; 2 wrong file or arguments.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flows run")
    parser.add_argument("flow", metavar="A->B", nargs="?", help="only this flow")
    parser.add_argument("--since", metavar="TIME", help=f"only what was done then or later: {MOMENTS}")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    found = parser.parse_args(arguments, namespace=HistoryArguments())
    found.flow = None if found.flow is None else parse_flow(str(found.flow))
    if found.since is not None:
        text = str(found.since)
        since = moment_ms(text, now_ms)
        if since is None:
            raise ConfigError(f"--since {text!r} is no time.", remedy=f"Write {MOMENTS}.")
        found.since = since
    return found


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``, ``read_settings_file``, ``flows_of``.
    """
    options = parse_arguments(arguments, now_ms=SystemClock().wall_ms())
    file = read_settings_file(options.file, None)
    flows, refused = flows_of(file, options.flow)
    for error in refused:
        say(str(error))
    code = asyncio.run(show(options, flows, write_out, say, connect=_connect, failed=bool(refused)))
    return EXIT_FAILED if refused else code


def flows_of(file: SettingsFile, wanted: Flow | None) -> tuple[list[FlowSettings], list[Mm2Error]]:
    """Return the flows of a file, also those that it switches off, and why others are refused.

    Args:
        wanted: only this one; None: all.
    Raises:
        ConfigError: the file is wrong, or has no such flow.
    """
    configuration = file.configuration()
    flows = [*configuration.flows, *file.flows_switched_off()]
    if wanted is None:
        return flows, list(configuration.refused.values())
    if wanted in configuration.refused:
        raise configuration.refused[wanted]
    found = [settings for settings in flows if settings.flow == wanted]
    if not found:
        raise ConfigError(f"{file.path} has no flow {wanted}.", remedy=f"Set {wanted}.enabled=true, or name another.")
    return found, []


async def show(
    options: HistoryArguments,
    flows: Sequence[FlowSettings],
    write: Write,
    warn: Write,
    *,
    connect: Callable[[FlowSettings, random.Random], Connected],
    failed: bool = False,
) -> int:
    """Print the history that the targets keep; returns the exit code. A cluster without an answer stops no other.

    Args:
        failed: it is already known that some flows cannot be shown.
    """
    rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
    found: dict[Flow, list[HistoryEntry]] = {}
    errors: dict[Flow, Mm2Error] = {}

    async def read(settings: FlowSettings) -> None:
        brokers = connect(settings, rng)
        try:
            table = ConfigTable(brokers, settings.configs_topic)
            await within_deadline(settings.flow.target, table.read_patiently(rng), f"reading {settings.configs_topic}")
            found[settings.flow] = [one for one in table.records.entries() if one.at_ms >= (options.since or 0)]
        except Mm2Error as error:
            errors[settings.flow] = error
        finally:
            await brokers.close()

    await for_each(flows, read, at_once=FLOWS_AT_ONCE, name="history")
    for flow, error in errors.items():
        warn(f"{flow}: {error}")
    code = EXIT_FAILED if errors or failed else EXIT_DONE
    entries = [(settings.flow, entry) for settings in flows for entry in found.get(settings.flow, ())]
    entries.sort(key=lambda one: one[1].at_ms)
    if options.json:
        told = tuple(HistoryEntryBody.of(*one) for one in entries)
        write(json_of(HistoryBody(exit_code=code, entries=told)))
    else:
        write(text_of(entries))
        for flow in (flow for flow, those in found.items() if not those):
            warn(f"{flow}: nothing is kept{'' if options.since is None else ' of that time'}.")
    return code


def text_of(entries: Entries) -> str:
    """Return what people read: a line for each entry, and one for each changed setting."""
    lines = []
    for flow, entry in entries:
        lines.append(f"{time_text(entry.at_ms)}  {flow}  {entry.text}")
        lines += [f"    {change.text}" for change in entry.changes]
        if entry.unnamed:
            lines.append(f"    and {entry.unnamed} more")
    return "".join(f"{printable(line)}\n" for line in lines)


def _connect(settings: FlowSettings, rng: random.Random) -> Connected:
    return target_of("history", settings, rng)
