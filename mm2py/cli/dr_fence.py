"""``mm2py dr fence FILE A->B``: stops the producers of chosen topics on A, and verifies that nobody writes any more.

What it changes is stored on both clusters first; ``mm2py dr unfence`` gives exactly that back. MirrorMaker 2 has no
such command.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from mm2py.cli.command import CommandParser, number_up_to
from mm2py.cli.dr_calls import call_verb, command_of
from mm2py.config.configuration import read_settings_file
from mm2py.dr.calls.fence_call import FenceCall, FenceOptions
from mm2py.dr.fence.choosing import named_principals
from mm2py.dr.fence.hook import HOOK_TIMEOUT_S
from mm2py.dr.fence.verifying import TIMEOUT_S
from mm2py.records.author import REASON_MOST, checked_reason


class FenceArguments(argparse.Namespace):
    """What follows ``dr fence`` on the command line."""

    file: Path
    flow: str
    topics: list[str]
    principal: list[str]
    own_principal: list[str]
    by_size: bool
    hook_fence: str | None
    accept_unproven_fence: bool
    end_hanging: bool
    timeout: int
    reason: str
    plan: bool
    yes: bool
    json: bool


def parse_arguments(arguments: Sequence[str]) -> FenceArguments:
    """Read what follows ``dr fence`` on the command line.

    Raises:
        ConfigError: it cannot be understood.
    """
    parser = CommandParser(
        "dr fence",
        "Stops the producers of topics on A: by ACLs that deny WRITE to the principals that A's ACLs name, or by a "
        "command of yours. What is changed is stored on both clusters first, and mm2py dr unfence gives exactly that "
        "back. Then it watches until nothing was written for 10 s. Exit codes: 0 fenced and verified; 1 a cluster did "
        "not answer, or the fence is refused; 2 wrong file or arguments, or neither a terminal to ask on nor --yes; 3 "
        "the fence stands and is not verified, or with --plan: it would be raised.",
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the file with which the flow runs")
    parser.add_argument("flow", metavar="A->B", help="the flow")
    parser.add_argument(
        "--topics", nargs="+", action="extend", default=[], metavar="T", help="only these, as the source names them"
    )
    parser.add_argument(
        "--principal",
        action="append",
        default=[],
        metavar="P",
        help="also deny this principal, as User:app; may be repeated",
    )
    parser.add_argument(
        "--own-principal",
        action="append",
        default=[],
        metavar="P",
        help="a name of mm2py itself on A that the file does not tell: it stays free",
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument(
        "--hook-fence",
        metavar="CMD",
        help="stop producers by this command, which gets the word fence or unfence; run without a shell, "
        f"{HOOK_TIMEOUT_S:g} s at most",
    )
    way.add_argument(
        "--by-size",
        action="store_true",
        help="where A has no authorizer and no producer is transactional: by max.message.bytes of the topics",
    )
    parser.add_argument(
        "--accept-unproven-fence", action="store_true", help="raise it although --plan names what it cannot prove"
    )
    parser.add_argument(
        "--end-hanging", action="store_true", help="abort the transactions that are open on the topics then"
    )
    parser.add_argument(
        "--timeout",
        type=number_up_to(86_400, least=1),
        default=TIMEOUT_S,
        metavar="S",
        help="how long it may take to be verified (default: %(default)s)",
    )
    parser.add_argument(
        "--reason", default="", metavar="TEXT", help=f"why: one line of at most {REASON_MOST} characters"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--plan", action="store_true", help="only print what would be done")
    how.add_argument("--yes", action="store_true", help="do not ask; needed where there is no terminal")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    found = parser.parse_args(arguments, namespace=FenceArguments())
    found.reason = checked_reason(found.reason)
    return found


def run(arguments: Sequence[str]) -> int:
    """Do what the command line says, and return the exit code.

    Raises:
        Mm2Error: see ``parse_arguments``; a cluster does not answer, or the fence is refused.
    """
    found = parse_arguments(arguments)
    file = read_settings_file(found.file, None)
    options = FenceOptions(
        topics=tuple(found.topics),
        principals=named_principals(found.principal),
        own_principals=named_principals(found.own_principal),
        by_size=found.by_size,
        hook_words=command_of(file, found.hook_fence, "--hook-fence"),
        accepts_unproven=found.accept_unproven_fence,
        ends_hanging=found.end_hanging,
        timeout_s=found.timeout,
    )
    return call_verb("fence", found, file, lambda asked, decide: FenceCall(asked, options).run(decide))
