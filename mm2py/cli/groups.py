"""``mm2py groups FILE A->B``: the consumer groups of a flow, and whether each could continue on the target now.

It asks both clusters and no worker, and writes nothing. MirrorMaker 2 has no such command.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from mm2py.cli.command import CommandParser
from mm2py.cli.flow_sides import settings_of_workers, sides_of
from mm2py.clock import SystemClock
from mm2py.config.configuration import SettingsFile, flow_of, read_settings_file
from mm2py.config.origins import origins_of_filters
from mm2py.config.settings import FlowSettings
from mm2py.errors import ConfigError
from mm2py.logs import make_logger
from mm2py.moments import ago
from mm2py.offsets.translation import Basis
from mm2py.output import write_out
from mm2py.records.connector_config import FlowConfig
from mm2py.status.bodies import GroupsBody, json_of
from mm2py.status.consumer_groups import ConsumerGroupReport
from mm2py.status.exit_codes import exit_of_groups
from mm2py.status.left_out import why_left_out
from mm2py.status.printout import ROWS_MOST
from mm2py.status.target_alone import GroupsQuestion, GroupsTold
from mm2py.status.why_group import TOPICS_NAMED_MOST
from mm2py.text_table import text_table


class GroupsArguments(argparse.Namespace):
    """What follows ``groups`` on the command line."""

    file: Path
    flow: str
    group: list[str]
    json: bool
    all: bool


def parse_arguments(arguments: Sequence[str]) -> GroupsArguments:
    """Read what follows ``groups`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "groups",
        "Shows the consumer groups of a flow: how far each is behind on the source, where it would go on "
        "on the target, how many records it would read again at most, and why it is not ready. Exit codes: 0 all are "
        "ready; 1 a cluster did not answer; 2 wrong file or arguments; 3 some are not ready. If the source does not "
        "answer, the target alone tells of each group as of its last checkpoint, and the exit code is 1.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flow runs")
    parser.add_argument("flow", metavar="A->B", help="the flow")
    parser.add_argument(
        "--group", nargs="+", default=[], metavar="NAME", help="only these groups, with each of their partitions"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, with all partitions")
    parser.add_argument("--all", action="store_true", help="do not cut long lists")
    return parser.parse_args(arguments, namespace=GroupsArguments())


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``, ``load_configuration``; or a cluster does not answer.
    """
    options = parse_arguments(arguments)
    file = read_settings_file(options.file, None)
    settings = flow_of(file, options.flow)
    told, settings, stored = asyncio.run(_ask(file, settings))
    reports = told.reports
    unknown = sorted(set(options.group) - {one.group for one in reports})
    if unknown:
        raise ConfigError(
            f"{settings.flow} knows no group {unknown[0]!r} with a commit in a topic that it copies."
            + _why_filtered(unknown[0], file, settings, stored),
            remedy=f"See mm2py groups {options.file} '{settings.flow}' for those that it knows.",
        )
    if options.group:
        reports = [one for one in reports if one.group in options.group]
    code = exit_of_groups(reports, told.unread)
    if options.json:
        body = GroupsBody(
            exit_code=code, flow=str(settings.flow), at_ms=told.at_ms, unread=told.unread, groups=tuple(reports)
        )
        write_out(json_of(body))
    elif told.unread:
        write_out(text_of_target(told._replace(reports=reports), everything=options.all))
    else:
        write_out(text_of(reports, partitions=bool(options.group), everything=options.all))
    return code


def text_of(reports: Sequence[ConsumerGroupReport], *, partitions: bool = False, everything: bool = False) -> str:
    """Return what people read.

    Args:
        partitions: also list the partitions of each group.
        everything: do not cut long lists.
    """
    lines = [_in_short(reports)]
    most = None if everything else ROWS_MOST
    lines += text_table(
        ("GROUP", "STATE", "ON TARGET", "LAG", "READS AGAIN", "READY"),
        [
            (
                one.group,
                one.state,
                one.state_on_target or "-",
                _number(one.lag),
                _at_most(one.reads_again_at_most),
                one.why or "; ".join(filter(None, (_ready(one), one.note))),
            )
            for one in reports
        ],
        right=(3, 4),
        most=most,
    )
    for one in reports if partitions else ():
        lines += ["", one.group]
        lines += text_table(
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


def text_of_target(told: GroupsTold, *, everything: bool = False) -> str:
    """Return what people read if the source does not answer.

    Args:
        everything: do not cut long lists.
    """
    lines = [
        f"not known: what groups have committed on the source by now, their lag and their state there ({told.unread})",
        "The target alone tells the rest, as of the last checkpoint of each group.",
        _in_short(told.reports),
        *text_table(
            ("GROUP", "TOPIC", "PARTITION", "CHECKPOINT OF", "AGE", "GOES ON AT", "EXACT", "ON TARGET", "READY"),
            [
                (
                    one.group,
                    part.remote_topic,
                    str(part.partition),
                    _number(part.checkpoint_source_offset),
                    "?" if part.checkpoint_at_ms is None else ago(max(0, told.at_ms - part.checkpoint_at_ms)),
                    _number(part.goes_on_at),
                    "yes" if part.is_exact else "no",
                    _number(part.committed_on_target),
                    part.waits_for or one.why or "; ".join(filter(None, ("yes", part.note or one.note))),
                )
                for one in told.reports
                for part in one.partitions
            ],
            right=(2, 3, 4, 5, 7),
            most=None if everything else ROWS_MOST,
        ),
    ]
    return "".join(f"{line}\n" for line in lines)


def _in_short(reports: Sequence[ConsumerGroupReport]) -> str:
    ready = sum(one.ready for one in reports)
    partly = sum(one.ready and bool(one.left_out) for one in reports)
    more = f", {partly} of them in part" if partly else ""
    return f"{len(reports)} group{'' if len(reports) == 1 else 's'}, {ready} ready to go on on the target{more}"


def _ready(group: ConsumerGroupReport) -> str:
    if not group.left_out:
        return "yes"
    more = f" and {len(group.left_out) - TOPICS_NAMED_MOST} more" if len(group.left_out) > TOPICS_NAMED_MOST else ""
    return f"in part (not copied: {', '.join(group.left_out[:TOPICS_NAMED_MOST])}{more})"


def _number(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _at_most(number: int | None, *, by_syncs: bool = False) -> str:
    if number is None:
        return "?"
    return ("exact" if number == 0 else f"<= {number:,}") + (" (syncs)" if by_syncs else "")


def _why_filtered(group: str, file: SettingsFile, settings: FlowSettings, stored: FlowConfig | None) -> str:
    """Return which pattern leaves a group out, as one more sentence; empty if none does."""
    if settings.checkpoints is None:
        return ""
    origins = origins_of_filters(file, settings.flow, stored)
    why = why_left_out(group, settings.checkpoints.group_filter, origins)
    return f" {why}" if why else ""


async def _ask(file: SettingsFile, settings: FlowSettings) -> tuple[GroupsTold, FlowSettings, FlowConfig | None]:
    async with sides_of("groups", settings) as (source, target):
        settings, stored = await settings_of_workers(file, settings, target)
        if settings.checkpoints is None:
            raise ConfigError(f"{settings.flow} emits no checkpoints.", remedy="Set emit.checkpoints.enabled to true.")
        question = GroupsQuestion(settings, source, target, SystemClock(), make_logger("warning", "text"))
        return await question.ask(), settings, stored
