"""The command ``mm2py replay``: takes records out of quarantine, into a file or into their remote topic."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from mm2py.cli.command import CommandParser
from mm2py.clock import Clock, SystemClock
from mm2py.command_lines import FILE, with_file
from mm2py.config.configuration import as_argument, load_configuration
from mm2py.config.settings import FlowSettings
from mm2py.copying.replay import ReplaySelection, append, export, order_lost, partitions_stopped, survey
from mm2py.errors import ConfigError, Mm2Error
from mm2py.flow import check_quoted, parse_flow
from mm2py.flow_clusters import target_of
from mm2py.kafka.port import Brokers
from mm2py.kafka.transport.wire import FrameMemory
from mm2py.kafka.write_gate import gated_alone
from mm2py.output import write_out
from mm2py.status.exit_codes import EXIT_DONE, EXIT_FAILED
from mm2py.topics.names import quarantine

FRAMES_BYTES: Final = 64 << 20
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


class CannotExport(Mm2Error):
    """The file cannot be written."""


class ReplayArguments(argparse.Namespace):
    """What the command line says."""

    file: Path
    what: str
    export: Path | None
    append: bool
    yes: bool
    stop_partitions: bool
    partition: int | None
    offset: int | None


def parse_arguments(arguments: Sequence[str]) -> ReplayArguments:
    """Read what follows ``replay`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "replay",
        "Takes records that the target refused out of quarantine (on.poison.record=quarantine).",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the properties file of the flow")
    parser.add_argument("what", metavar="A->B:TOPIC", help="the flow, and the topic as its source calls it")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument(
        "--export", metavar="DIR", type=Path, help="write them to DIR/TOPIC.jsonl, one line of JSON a record"
    )
    way.add_argument(
        "--append", action="store_true", help="append them to the remote topic: their order among the others is lost"
    )
    parser.add_argument("--yes", action="store_true", help="do append; without it, --append only says what it would do")
    parser.add_argument(
        "--stop-partitions",
        action="store_true",
        help="append although exactly.once.source.support=enabled stops the partitions for it",
    )
    parser.add_argument("--partition", metavar="N", type=int, help="only those of this source partition")
    parser.add_argument("--offset", metavar="N", type=int, help="only the one of this source offset")
    return parser.parse_args(arguments, namespace=ReplayArguments())


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code."""
    options = parse_arguments(arguments)
    settings, topic = _flow_and_topic(options)
    selection = ReplaySelection(topic, options.partition, options.offset)

    async def main_task() -> int:
        rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
        frames = FrameMemory(FRAMES_BYTES)
        target = target_of("replay", settings, rng, frames)
        try:
            if options.export is not None:
                return await export_to(settings, target, selection, options.export)
            return await append_to(
                settings,
                target,
                selection,
                yes=options.yes,
                stop_partitions=options.stop_partitions,
                file=as_argument(options.file),
                clock=SystemClock(),
                rng=rng,
            )
        finally:
            await target.close()

    return asyncio.run(main_task())


def _flow_and_topic(options: ReplayArguments) -> tuple[FlowSettings, str]:
    check_quoted(options.what)
    text, colon, topic = options.what.rpartition(":")
    if not colon or not _FILE_NAME.fullmatch(topic):
        raise ConfigError(f"{options.what!r} names no topic.", remedy="Write it as A->B:TOPIC.")
    flow = parse_flow(text)
    configuration = load_configuration(options.file, None)
    for settings in configuration.flows:
        if settings.flow == flow:
            return settings, topic
    refused = configuration.refused.get(flow)
    if refused is not None:
        raise refused
    raise ConfigError(f"{options.file} enables no flow {flow}.", remedy="Name a flow of the file.")


async def export_to(settings: FlowSettings, target: Brokers, selection: ReplaySelection, directory: Path) -> int:
    """Write the selected records to a new file that only its owner may read."""
    quarantine, path = _quarantine(settings), directory / f"{selection.topic}.jsonl"
    file: IO[str] | None = None

    def write(line: str) -> None:
        nonlocal file
        if file is None:
            file = _new_file(path)
        file.write(line)

    try:
        count = await export(target, quarantine, selection, write)
    except OSError as error:
        raise CannotExport(f"Writing {path} failed: {error.strerror}.", remedy="What it holds is not whole.") from error
    finally:
        if file is not None:
            file.close()
    if count:
        _say(f"{count} record(s) of {quarantine} are in {path}.")
    else:
        _say(_nothing(settings, selection))
    return EXIT_DONE


async def append_to(
    settings: FlowSettings,
    target: Brokers,
    selection: ReplaySelection,
    *,
    yes: bool,
    stop_partitions: bool = False,
    file: str = FILE,
    clock: Clock,
    rng: random.Random,
) -> int:
    """Append the selected records to the remote topic, if ``yes``; say what is done and what it costs.

    Args:
        stop_partitions: append even if the flow then stops its partitions.
        file: the file of the flow, as a command line takes it.
    """
    quarantine = _quarantine(settings)
    remote = settings.remote_topic(selection.topic)
    found = await survey(target, quarantine, selection, remote)
    if found.unreadable:
        _say(f"{quarantine} has {found.unreadable} record(s) that mm2py did not write; they are left out.")
    if not found.origins:
        _say(_nothing(settings, selection))
        return EXIT_DONE
    if found.appended:
        _say(f"{len(found.appended)} record(s) were appended to {remote} before; they are left out.")
    if not found.waiting:
        return EXIT_DONE
    _say(order_lost(found, settings.flow.target))
    is_stopped = settings.exactly_once == "enabled"
    if is_stopped:
        _say(partitions_stopped(found, settings.flow, with_file("mm2py gaps FILE accept", file)))
    if not yes or (is_stopped and not stop_partitions):
        passing = "--yes --stop-partitions" if is_stopped else "--yes"
        raise ConfigError("Nothing was appended.", remedy=f"Pass {passing} to append.")
    done = await append(gated_alone(target, clock), quarantine, found, clock=clock, rng=rng)
    _say(f"{done.records} record(s) were appended to {remote}, and marked in {quarantine}.")
    for refusal in done.refused:
        _say(f"{remote} still refuses {refusal}.")
    return EXIT_FAILED if done.refused else EXIT_DONE


def _quarantine(settings: FlowSettings) -> str:
    return quarantine(settings.flow.source).name


def _nothing(settings: FlowSettings, selection: ReplaySelection) -> str:
    return f"{_quarantine(settings)} on {settings.target.alias} holds nothing of that kind of {selection.topic}."


def _new_file(path: Path) -> IO[str]:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise CannotExport(f"{path} is there already.", remedy="Name another directory.") from None
    return open(descriptor, "w", encoding="ascii")


def _say(text: str) -> None:
    write_out(text + "\n")
