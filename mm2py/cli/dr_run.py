"""What the verbs of ``mm2py dr`` that the runner drives share: their options, and how they call their verb."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from mm2py.cli.command import CommandParser, number_up_to
from mm2py.cli.dr_at import moment_to_begin
from mm2py.cli.dr_calls import call_verb
from mm2py.clock import SystemClock
from mm2py.config.configuration import read_settings_file
from mm2py.config.recovery import recovery_hooks
from mm2py.dr.calls.asking import CallOutcome, Decide, RecoveryAsked
from mm2py.dr.calls.fence_call import hook_of
from mm2py.dr.calls.run_call import RunCall
from mm2py.dr.cutover.pair import MAX_LAG, TIMEOUT_S, CutoverOptions
from mm2py.dr.fence.choosing import named_principals
from mm2py.dr.fence.hook import HOOK_TIMEOUT_S, hook_words
from mm2py.dr.fence.record import FenceWay
from mm2py.dr.runner import RecoveryGoal
from mm2py.moments import span_s
from mm2py.records.author import REASON_MOST, checked_reason

NO_HOOKS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({})


class RunArguments(argparse.Namespace):
    """What follows the verb on the command line."""

    file: Path
    flow: str
    topics: list[str]
    groups: list[str]
    leave_group: list[str]
    leave_topic: list[str]
    leave_extras: bool
    timeout: int
    max_lag: int
    postpone: Path | None
    hook_switch: str | None
    hook_fence: str | None
    by_size: bool
    reverse_window: str | None
    accept_unproven_fence: bool
    accept_coupled: bool
    end_hanging: bool
    principal: list[str]
    own_principal: list[str]
    unverified: bool
    max_mb_per_second: int
    to: str
    accept_loss: bool
    source_is_lost: bool
    export: Path | None
    export_topic: str
    replay: bool
    leave: list[str]
    leave_all: bool
    at: str | None
    at_ms: int | None
    reason: str
    plan: bool
    yes: bool
    json: bool


def common_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what all of the verbs take."""
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flows run")
    parser.add_argument("flow", metavar="A->B", help="the flow of the cutover")
    parser.add_argument(
        "--reason", default="", metavar="TEXT", help=f"why: one line of at most {REASON_MOST} characters"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--plan", action="store_true", help="only print what would be done, with positions")
    how.add_argument("--yes", action="store_true", help="do not ask; needed where there is no terminal")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def moving_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what cutover and rollback take."""
    parser.add_argument("--groups", nargs="+", action="extend", default=[], metavar="G", help="only these groups move")
    parser.add_argument(
        "--leave-group", action="append", default=[], metavar="G", help="this group stays; may be repeated"
    )
    parser.add_argument(
        "--leave-topic", action="append", default=[], metavar="T", help="groups stay in this topic; may be repeated"
    )
    parser.add_argument(
        "--timeout",
        type=number_up_to(86_400, least=1),
        default=TIMEOUT_S,
        metavar="S",
        help="from the fence to the switch; then all is taken back (default: %(default)s)",
    )
    parser.add_argument(
        "--max-lag",
        type=number_up_to(10**12),
        default=MAX_LAG,
        metavar="N",
        help="do not begin while more records than that are not copied (default: %(default)s)",
    )
    parser.add_argument(
        "--postpone",
        metavar="PATH",
        type=Path,
        help="when all is ready, wait while this file is there, --timeout at most",
    )
    parser.add_argument(
        "--hook-switch",
        metavar="CMD",
        help="the command that sends clients to the other cluster, or its name in the file (dr.hook.NAME): it gets "
        "the word switch; run without a shell, "
        f"{HOOK_TIMEOUT_S:g} s at most. Without it you do that by hand",
    )
    fence_arguments(parser)
    parser.add_argument(
        "--accept-coupled", action="store_true", help="move topics although transactions write to others with them"
    )
    parser.add_argument(
        "--at", metavar="TIME", help="begin at that time, as 2026-11-30T02:00 (UTC); until then nothing is done"
    )


def fence_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what says how producers are stopped."""
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--hook-fence", metavar="CMD", help="as for mm2py dr fence, where there is no authorizer")
    way.add_argument("--by-size", action="store_true", help="as for mm2py dr fence")
    parser.add_argument(
        "--accept-unproven-fence", action="store_true", help="fence although --plan names what it cannot prove"
    )
    parser.add_argument(
        "--end-hanging", action="store_true", help="abort the transactions that are open on the fenced topics"
    )
    parser.add_argument(
        "--principal", action="append", default=[], metavar="P", help="also deny this principal; may be repeated"
    )
    parser.add_argument(
        "--own-principal", action="append", default=[], metavar="P", help="a name of mm2py itself: it stays free"
    )


def run_arguments(parser: CommandParser, arguments: Sequence[str]) -> RunArguments:
    """Read the command line. Raises: ConfigError, it cannot be understood."""
    found = parser.parse_args(arguments, namespace=_defaults())
    found.at_ms = None if found.at is None else moment_to_begin(found.at, SystemClock().wall_ms())
    if found.reverse_window is not None and span_s(found.reverse_window) is None:
        parser.error("--reverse-window takes a span as 30m, 2h or 7d")
    found.reason = checked_reason(found.reason)
    return found


def _defaults() -> RunArguments:
    """Return what a verb does not take."""
    return RunArguments(
        topics=[],
        groups=[],
        leave_group=[],
        leave_topic=[],
        leave_extras=False,
        timeout=TIMEOUT_S,
        max_lag=MAX_LAG,
        postpone=None,
        hook_switch=None,
        hook_fence=None,
        by_size=False,
        reverse_window=None,
        accept_unproven_fence=False,
        accept_coupled=False,
        end_hanging=False,
        principal=[],
        own_principal=[],
        unverified=False,
        to="latest",
        accept_loss=False,
        source_is_lost=False,
        export=None,
        export_topic="",
        replay=False,
        leave=[],
        leave_all=False,
        at=None,
        at_ms=None,
    )


def options_of(found: RunArguments, hooks: Mapping[str, tuple[str, ...]] = NO_HOOKS) -> CutoverOptions:
    """Return what the command line asks for.

    Args:
        hooks: the commands that the file names.
    Raises: ConfigError.
    """
    fence_words = () if found.hook_fence is None else hooks.get(found.hook_fence) or hook_words(found.hook_fence)
    switch, way = found.hook_switch, FenceWay.HOOK if fence_words else FenceWay.ACLS
    return CutoverOptions(
        topics=tuple(found.topics),
        groups=tuple(found.groups),
        left_groups=tuple(found.leave_group),
        left_topics=tuple(found.leave_topic),
        timeout_s=float(found.timeout),
        max_lag=found.max_lag,
        postponed_by="" if found.postpone is None else str(found.postpone.absolute()),
        switch_words=() if switch is None else hooks.get(switch) or hook_words(switch, "--hook-switch"),
        window_s=None if found.reverse_window is None else span_s(found.reverse_window),
        way=FenceWay.SIZE if found.by_size else way,
        fence_hook=hook_of(fence_words),
        fence_hook_name=fence_words[0] if fence_words else "",
        principals=named_principals(found.principal),
        accepts_unproven=found.accept_unproven_fence,
        accepts_coupled=found.accept_coupled,
        ends_hanging=found.end_hanging,
        leaves_extras=found.leave_extras,
    )


def run_goal(goal: RecoveryGoal, arguments: RunArguments) -> int:
    """Bring a pair of clusters to a goal, and return the exit code.

    Raises:
        Mm2Error: a cluster does not answer, or nothing was begun.
    """
    return run_call(
        str(goal), arguments, lambda asked, options, own, decide: RunCall(goal, asked, options, own).run(decide)
    )


def run_call(
    verb: str,
    arguments: RunArguments,
    call: Callable[[RecoveryAsked, CutoverOptions, tuple[str, ...], Decide], Awaitable[CallOutcome]],
) -> int:
    """Call a verb by its command line, and return the exit code.

    Args:
        call: gets what is asked for, and under which names mm2py itself is known.
    Raises:
        Mm2Error: a cluster does not answer, or nothing was begun.
    """
    file = read_settings_file(arguments.file, None)
    options = options_of(arguments, recovery_hooks(file.properties.entries))
    own = named_principals(arguments.own_principal)
    return call_verb(
        verb, arguments, file, lambda asked, decide: call(asked, options, own, decide), at_ms=arguments.at_ms
    )
