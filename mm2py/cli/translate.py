"""``mm2py translate FILE A->B --topic T --partition P --offset O``: where a source offset is on the target, or back.

It asks both clusters and no worker, and writes nothing. MirrorMaker 2 has no such command; Java programs ask its
RemoteClusterUtils for the offsets of a group.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

from mm2py.cli.command import CommandParser, number_up_to
from mm2py.cli.flow_sides import settings_of_workers
from mm2py.clock import SystemClock
from mm2py.config.configuration import SettingsFile, flow_of, read_settings_file, with_flow
from mm2py.config.settings import FlowSettings
from mm2py.connector_offsets.turning import stored_positions
from mm2py.flow import PARTITION_MOST
from mm2py.flow_sides import sides_of
from mm2py.logs import make_logger
from mm2py.offsets.run_codec import OFFSET_MOST
from mm2py.output import write_out
from mm2py.secret import printable
from mm2py.status.bodies import TranslateBody, json_of
from mm2py.status.exit_codes import exit_of_offsets
from mm2py.status.offset_inquiry import Question
from mm2py.status.offset_report import line_of, what_is_unchecked
from mm2py.status.target_alone import OffsetsQuestion, OffsetsTold


class TranslateArguments(argparse.Namespace):
    """What follows ``translate`` on the command line."""

    file: Path
    flow: str
    topic: str
    partition: int
    offset: list[int]
    reverse: bool
    json: bool


def parse_arguments(arguments: Sequence[str]) -> TranslateArguments:
    """Read what follows ``translate`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "translate",
        "Tells where an offset of a source partition is in the remote partition, or the other way round, "
        "whether that is exact, and what the offset is. Exit codes: 0 answered, also if the source does not answer and "
        "the ledger on the target tells; 1 a cluster did not answer, and an offset has no answer; 2 wrong file or "
        "arguments; 3 at least one offset has no answer yet.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flow runs")
    parser.add_argument("flow", metavar="A->B", help="the flow")
    parser.add_argument("--topic", required=True, metavar="T", help="as the source names it")
    parser.add_argument("--partition", required=True, metavar="P", type=number_up_to(PARTITION_MOST))
    parser.add_argument(
        "--offset", required=True, metavar="O", nargs="+", action="extend", type=number_up_to(OFFSET_MOST)
    )
    parser.add_argument(
        "--reverse", action="store_true", help="the offsets are the target's; --topic may be its name there, too"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    return parser.parse_args(arguments, namespace=TranslateArguments())


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``, ``flow_of``; or a cluster does not answer.
    """
    options = parse_arguments(arguments)
    file = with_flow(read_settings_file(options.file, None), options.flow)
    settings = flow_of(file, options.flow)
    at_ms, unread, reports = asyncio.run(_ask(file, settings, options))
    code = exit_of_offsets(reports, unread)
    if options.json:
        found = TranslateBody(
            exit_code=code,
            flow=str(settings.flow),
            is_reverse=options.reverse,
            at_ms=at_ms,
            unread=unread,
            offsets=tuple(reports),
        )
        write_out(json_of(found))
    else:
        lines = [line_of(one) for one in reports]
        if unread:
            lines.append(what_is_unchecked(unread, settings.flow.source, is_reverse=options.reverse))
        write_out("".join(f"{printable(line)}\n" for line in lines))
    return code


async def _ask(file: SettingsFile, settings: FlowSettings, options: TranslateArguments) -> OffsetsTold:
    async with sides_of("translate", settings) as (source, target):
        settings, _ = await settings_of_workers(file, settings, target)
        known: set[str] = set()
        if options.reverse and settings.renaming is not None:
            known = {name for name, _ in await stored_positions(settings, target.brokers, rng=random.Random())}  # noqa: S311
        topic = settings.source_topic(options.topic, is_reverse=options.reverse, known=known)
        question = Question((topic, options.partition), options.offset, options.reverse)
        asked = OffsetsQuestion(settings, source, target, SystemClock(), make_logger("warning", "text"))
        return await asked.ask(question)
