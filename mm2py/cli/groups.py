"""``mm2py groups FILE A->B``: the consumer groups of a flow, and whether each could go on on the target now.

It asks both clusters and no worker, and writes nothing. MirrorMaker 2 has no such command.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

from mm2py.cli.command import (
    EXIT_DONE,
    EXIT_WAITS,
    CommandParser,
    as_workers_run,
    connect,
    flow_of,
    within_deadline,
    write_out,
)
from mm2py.config.configuration import SettingsFile, read_settings_file
from mm2py.config.settings import FlowSettings
from mm2py.errors import ConfigError
from mm2py.logs import make_logger
from mm2py.offsets.translation import Basis
from mm2py.status.bodies import GroupsBody, json_of
from mm2py.status.consumer_group_inquiry import ConsumerGroupInquiry
from mm2py.status.consumer_groups import ConsumerGroupReport, report_of
from mm2py.status.printout import ROWS_MOST, table_of


class Arguments(argparse.Namespace):
    """What follows ``groups`` on the command line."""

    file: Path
    flow: str
    group: list[str]
    json: bool
    all: bool


def parse_arguments(arguments: Sequence[str]) -> Arguments:
    """Read what follows ``groups`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        prog="mm2py groups",
        description="Shows the consumer groups of a flow: how far each is behind on the source, where it would go on "
        "on the target, how many records it would read again at most, and why it is not ready. Exit codes: 0 all are "
        "ready; 1 a cluster did not answer; 2 wrong file or arguments; 3 some are not ready.",
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flow runs")
    parser.add_argument("flow", metavar="A->B", help="the flow")
    parser.add_argument(
        "--group", nargs="+", default=[], metavar="NAME", help="only these groups, with each of their partitions"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, with all partitions")
    parser.add_argument("--all", action="store_true", help="do not cut long lists")
    return parser.parse_args(arguments, namespace=Arguments())


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: as of ``parse_arguments``, ``load_configuration``; or a cluster does not tell.
    """
    options = parse_arguments(arguments)
    file = read_settings_file(options.file, None)
    settings = flow_of(file, options.flow)
    reports = asyncio.run(_ask(file, settings))
    unknown = sorted(set(options.group) - {one.group for one in reports})
    if unknown:
        raise ConfigError(
            f"{settings.flow} knows no group {unknown[0]!r} with a commit in a topic that it copies.",
            remedy=f"See mm2py groups {options.file} '{settings.flow}' for those that it knows.",
        )
    if options.group:
        reports = [one for one in reports if one.group in options.group]
    code = EXIT_DONE if all(one.ready for one in reports) else EXIT_WAITS
    if options.json:
        write_out(json_of(GroupsBody(exit_code=code, flow=str(settings.flow), groups=tuple(reports))))
    else:
        write_out(text_of(reports, partitions=bool(options.group), everything=options.all))
    return code


def text_of(reports: Sequence[ConsumerGroupReport], *, partitions: bool = False, everything: bool = False) -> str:
    """Return what people read.

    Args:
        partitions: also list the partitions of each group.
        everything: do not cut long lists.
    """
    ready = sum(one.ready for one in reports)
    lines = [f"{len(reports)} group{'' if len(reports) == 1 else 's'}, {ready} ready to go on on the target"]
    most = None if everything else ROWS_MOST
    lines += table_of(
        ("GROUP", "STATE", "ON TARGET", "LAG", "READS AGAIN", "READY"),
        [
            (
                one.group,
                one.state,
                one.state_on_target or "-",
                _number(one.lag),
                _at_most(one.reads_again_at_most),
                one.why or "; ".join(filter(None, ("yes", one.note))),
            )
            for one in reports
        ],
        right=(3, 4),
        most=most,
    )
    for one in reports if partitions else ():
        lines += ["", one.group]
        lines += table_of(
            ("TOPIC", "PARTITION", "COMMITTED", "LAG", "GOES ON AT", "READS AGAIN", "ON TARGET", "NOTE"),
            [
                (
                    part.remote_topic,
                    str(part.partition),
                    _number(part.committed),
                    _number(part.lag),
                    _number(part.goes_on_at),
                    _at_most(part.reads_again_at_most, by_syncs=part.basis == Basis.OFFSET_SYNCS),
                    _number(part.committed_on_target),
                    part.waits_for or part.note,
                )
                for part in one.partitions
            ],
            right=(1, 2, 3, 4, 5, 6),
            most=most,
        )
    return "".join(f"{line}\n" for line in lines)


def _number(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _at_most(number: int | None, *, by_syncs: bool = False) -> str:
    if number is None:
        return "?"
    return ("exact" if number == 0 else f"<= {number:,}") + (" (syncs)" if by_syncs else "")


async def _ask(file: SettingsFile, settings: FlowSettings) -> list[ConsumerGroupReport]:
    rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
    source, target = (
        connect("groups", settings.flow, cluster, timeout_s=timeout_s, rng=rng)
        for cluster, timeout_s in (
            (settings.source, settings.source_request_timeout_s),
            (settings.target, settings.target_request_timeout_s),
        )
    )
    try:
        alias = settings.flow.target
        settings = await within_deadline(alias, as_workers_run(file, settings, target), "reading settings")
        if settings.checkpoints is None:
            raise ConfigError(f"{settings.flow} emits no checkpoints.", remedy="Set emit.checkpoints.enabled to true.")
        log = make_logger("warning", "text")
        work = ConsumerGroupInquiry(settings, source, target, log).look()
        return report_of(await within_deadline(alias, work, "asking for groups"))
    finally:
        await source.close()
        await target.close()
