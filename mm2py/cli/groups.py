"""``mm2py groups FILE A->B``: the consumer groups of a flow, and whether each could continue on the target now.

It asks both clusters and no worker, and writes nothing, unless ``--move`` or ``--move-back`` names a group
(``group_move.py``). MirrorMaker 2 has no such command.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mm2py.cli.command import CommandParser, number_up_to
from mm2py.cli.flow_sides import settings_of_workers
from mm2py.cli.group_move import MoveWanted, run_move
from mm2py.clock import SystemClock
from mm2py.config.configuration import SettingsFile, flow_of, read_settings_file, with_flow
from mm2py.config.origins import origins_of_filters
from mm2py.config.settings import FlowSettings
from mm2py.errors import ConfigError
from mm2py.flow_sides import sides_of
from mm2py.logs import make_logger
from mm2py.moments import ago
from mm2py.offsets.translation import Basis
from mm2py.output import write_out
from mm2py.records.author import REASON_MOST, checked_reason
from mm2py.records.connector_config import FlowConfig
from mm2py.status.bodies import GroupsBody, json_of
from mm2py.status.consumer_groups import ConsumerGroupReport
from mm2py.status.exit_codes import exit_of_groups
from mm2py.status.left_out import why_left_out
from mm2py.status.printout import ROWS_MOST
from mm2py.status.target_alone import GroupsQuestion, GroupsTold
from mm2py.status.why_group import TOPICS_NAMED_MOST
from mm2py.text_table import text_table

TIMEOUT_S: Final = 60
TIMEOUT_MOST_S: Final = 86_400


class GroupsArguments(argparse.Namespace):
    """What follows ``groups`` on the command line."""

    file: Path
    flow: str
    group: list[str]
    json: bool
    all: bool
    move: str | None
    move_back: str | None
    leave_topic: list[str]
    plan: bool
    yes: bool
    timeout: int | None
    reason: str

    @property
    def move_wanted(self) -> MoveWanted | None:
        """The group to be moved; None: groups are shown."""
        group = self.move if self.move is not None else self.move_back
        if group is None:
            return None
        return MoveWanted(
            group,
            self.move is None,
            tuple(self.leave_topic),
            self.plan,
            self.yes,
            self.json,
            TIMEOUT_S if self.timeout is None else self.timeout,
            self.reason,
        )


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
        "answer, the target alone tells of each group as of its last checkpoint, and the exit code is 1. With --move "
        "or --move-back: 0 the group is moved, was there before, or would be moved (--plan), or the answer was N; 1 a "
        "cluster did not answer, or the group changed meanwhile; 2 also where there is neither a terminal to ask on "
        "nor --yes; 3 it cannot be moved, or not yet.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flow runs")
    parser.add_argument("flow", metavar="A->B", help="the flow")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--group", nargs="+", default=[], metavar="NAME", help="only these groups, with each of their partitions"
    )
    what.add_argument(
        "--move", metavar="G", help="commit on the target where this idle group goes on there, all partitions or none"
    )
    what.add_argument("--move-back", metavar="G", help="the same from the target to the source")
    parser.add_argument("--json", action="store_true", help="one JSON object, with all partitions")
    parser.add_argument("--all", action="store_true", help="do not cut long lists")
    moving = parser.add_argument_group("with --move and --move-back")
    moving.add_argument("--plan", action="store_true", help="say what would be committed, and do nothing")
    moving.add_argument("--yes", action="store_true", help="do not ask; needed where there is no terminal")
    moving.add_argument(
        "--leave-topic",
        nargs="+",
        default=[],
        metavar="T",
        help="topics in which the group stays, as the cluster that it leaves names them",
    )
    moving.add_argument(
        "--timeout",
        type=number_up_to(TIMEOUT_MOST_S),
        metavar="SECONDS",
        help=f"how long to wait until the copy has what the group has read; {TIMEOUT_S} by default",
    )
    moving.add_argument(
        "--reason",
        default="",
        metavar="TEXT",
        help=f"why, for those who read mm2py history: one line of at most {REASON_MOST} characters",
    )
    found = parser.parse_args(arguments, namespace=GroupsArguments())
    found.reason = checked_reason(found.reason)
    if found.move_wanted is None:
        if found.plan or found.yes or found.leave_topic or found.timeout is not None or found.reason:
            parser.error("--plan, --yes, --leave-topic, --timeout and --reason take --move or --move-back")
    elif found.all:
        parser.error("--all is for the list of groups; --move shows all partitions")
    elif found.json and not (found.plan or found.yes):
        parser.error("--move with --json asks nothing: it takes --plan or --yes")
    return found


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``, ``load_configuration``; or a cluster does not answer.
    """
    options = parse_arguments(arguments)
    file = read_settings_file(options.file, None)
    wanted = options.move_wanted
    if wanted is not None:
        file = with_flow(file, options.flow)
        return run_move(file, flow_of(file, options.flow), wanted)
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
