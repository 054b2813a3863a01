"""``mm2py dr fence FILE A->B``: stops the producers of chosen topics on A, and verifies that nobody writes any more.

What it changes is stored on both clusters first; ``mm2py dr unfence`` gives exactly that back. MirrorMaker 2 has no
such command.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import secrets
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from mm2py.cli.command import DEADLINE_S, CommandFailed, CommandParser, number_up_to, within_deadline
from mm2py.cli.dr_standing import standing_run
from mm2py.cli.flow_sides import FlowSides, settings_of_workers, sides_of
from mm2py.clock import SystemClock
from mm2py.config.configuration import SettingsFile, read_settings_file
from mm2py.config.settings import FlowSettings
from mm2py.dr.fence.asking import FenceInquiry
from mm2py.dr.fence.choosing import chosen_topics, named_principals, own_principals, settings_of_flow
from mm2py.dr.fence.fence_log import FenceChangedMeanwhile, FenceLog, FenceStore
from mm2py.dr.fence.fenced_cluster import ClusterFence
from mm2py.dr.fence.hook import HOOK_TIMEOUT_S, HookFailed, hook_words, run_hook
from mm2py.dr.fence.plan import FencePlan, FenceWanted, plan_fence
from mm2py.dr.fence.printout import body_of, plan_lines, record_lines, stillness_lines
from mm2py.dr.fence.raising import FenceRefused, FenceWrite, Hook, raise_fence
from mm2py.dr.fence.record import FenceRecord, FenceWay
from mm2py.dr.fence.stillness import Stillness
from mm2py.dr.fence.verifying import TIMEOUT_S, end_what_is_open, verify_fence
from mm2py.dr.open_run import refuse_fence_beside
from mm2py.errors import Mm2Error
from mm2py.kafka.cluster import fetch_metadata
from mm2py.login import author_here
from mm2py.output import TerminalLine, confirm, write_out
from mm2py.records.author import REASON_MOST, checked_reason
from mm2py.secret import printable
from mm2py.status.exit_codes import EXIT_CHANGES, EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_WAITS

COMMAND: Final = "mm2py dr fence"
T = TypeVar("T")


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
    options = parse_arguments(arguments)
    file = read_settings_file(options.file, None)
    settings = settings_of_flow(file, options.flow)
    words = None if options.hook_fence is None else hook_words(options.hook_fence)
    own = own_principals(file, settings.flow.source, named_principals(options.own_principal))
    return asyncio.run(_FenceJob(options, file, settings, words, own).run())


@dataclass(slots=True)
class _FenceJob:
    """One call of the command."""

    options: FenceArguments
    file: SettingsFile
    settings: FlowSettings
    words: tuple[str, ...] | None
    """The command of the hook."""
    own: frozenset[str]
    """mm2py's own principals on the source."""

    async def run(self) -> int:
        rng, clock = random.Random(), SystemClock()  # noqa: S311  (spreads retries; nothing secret)
        flow, options = self.settings.flow, self.options
        async with sides_of("dr", self.settings) as sides:
            require(sides)
            self.settings, _ = await settings_of_workers(self.file, self.settings, sides.target)
            cluster = ClusterFence(flow.source, sides.source.brokers)
            inquiry = FenceInquiry(flow.source, sides.source.brokers, cluster)
            store = store_of(self.settings, sides, rng)
            plan, standing = await self._look(sides, inquiry, store)
            run = await standing_run(flow, sides, lambda line: self._say([line]))
            refuse_fence_beside(run, flow, plan.wanted.topics, clock.wall_ms())
            self._say(plan_lines(plan, str(flow), standing))
            code = self._may_go_on(plan)
            if code is not None:
                self._tell(body_of(code, str(flow), plan=plan, record=standing))
                return code
            if not options.yes:
                again, _ = await self._look(sides, inquiry, store)  # the answer may have taken minutes
                if not again.is_same(plan):
                    raise CommandFailed(
                        f"{flow.source} has changed since the plan was made.", remedy="Look at it again, with --plan."
                    )
            write = FenceWrite(author_here(options.reason), COMMAND, clock.wall_ms(), secrets.token_hex(8))
            hook = None if self.words is None else hook_of(self.words)
            raising = raise_fence(
                plan, str(flow), store, cluster, write, hook=hook, hook_name="" if self.words is None else self.words[0]
            )
            record = await self._raised(sides, raising)
            self._say(record_lines(record))
            ended: list[str] = []
            try:
                if options.end_hanging:
                    ended, failed = await end_what_is_open(
                        inquiry, sides.source.brokers, record.topics, clock=clock, rng=rng
                    )
                    self._say([*(f"aborted: {one}" for one in ended), *failed])
                found = await self._verified(inquiry, record)
            except Mm2Error as error:
                raise CommandFailed(
                    f"The fence stands, and is not verified: {error}",
                    remedy=f"Give the same command again, or take it back: {self._unfence}",
                ) from error
            self._say(stillness_lines(found))
            code = EXIT_DONE if found.is_proven else EXIT_WAITS
            if code:
                self._say([f"The fence stands. Take it back: {self._unfence}"])
            self._tell(body_of(code, str(flow), plan=plan, record=record, stillness=found, ended=ended))
            return code

    @property
    def _unfence(self) -> str:
        """The command that takes the fence back."""
        hook = " --hook-fence CMD" if self.words else ""
        return f"mm2py dr unfence {self.file.argument} '{self.settings.flow}'{hook}"

    async def _raised(self, sides: FlowSides, raising: Coroutine[Any, Any, FenceRecord]) -> FenceRecord:
        try:
            return await of_both(sides, raising, "raising the fence", deadline_s=DEADLINE_S + HOOK_TIMEOUT_S)
        except (FenceRefused, FenceChangedMeanwhile, HookFailed):
            raise  # these say themselves what stands
        except Mm2Error as error:
            raise CommandFailed(
                f"{error.what} {error.remedy}".strip(),
                remedy=f"A part of the fence may stand: give the same command again, or take it back: {self._unfence}",
            ) from error

    async def _look(
        self, sides: FlowSides, inquiry: FenceInquiry, store: FenceStore
    ) -> tuple[FencePlan, FenceRecord | None]:
        async def look() -> tuple[FencePlan, FenceRecord | None]:
            there = (await fetch_metadata(sides.source.brokers, None)).topics
            topics = chosen_topics(self.settings, [*there], self.options.topics)
            return plan_fence(self._wanted(topics), await inquiry.facts(topics)), await store.read()

        return await of_both(sides, look(), "reading what a fence needs")

    def _wanted(self, topics: tuple[str, ...]) -> FenceWanted:
        way = FenceWay.SIZE if self.options.by_size else FenceWay.ACLS if self.words is None else FenceWay.HOOK
        named = named_principals(self.options.principal)
        keeps_names = self.settings.policy.keeps_names
        return FenceWanted(self.settings.flow.source, topics, way, named, self.own, keeps_names)

    def _may_go_on(self, plan: FencePlan) -> int | None:
        """Return the exit code if nothing is to be done; None: the fence is to be raised."""
        options = self.options
        if plan.refused:
            self._say(["Nothing was changed: the fence is refused."])
            return EXIT_FAILED
        if plan.unproven and not options.accept_unproven_fence and not options.plan:
            self._say(["Nothing was changed: what cannot be proven needs --accept-unproven-fence."])
            return EXIT_FAILED
        if options.plan:
            return EXIT_CHANGES
        return may_change(self._say, "Raise the fence?", yes=options.yes)

    async def _verified(self, inquiry: FenceInquiry, record: FenceRecord) -> Stillness:
        line = TerminalLine()

        def tell(found: Stillness) -> None:
            line.write(f"nothing has moved for {found.still_s:.0f} s, {len(found.open)} transaction(s) are open")

        try:
            return await verify_fence(
                inquiry, record.topics, clock=SystemClock(), timeout_s=self.options.timeout, tell=tell
            )
        finally:
            line.clear()

    def _say(self, lines: Sequence[str]) -> None:
        if not self.options.json:
            say_lines(lines)

    def _tell(self, body: dict[str, Any]) -> None:
        if self.options.json:
            write_out(json.dumps(body, indent=2) + "\n")


def say_lines(lines: Sequence[str]) -> None:
    """Write lines for people."""
    write_out("".join(f"{printable(line)}\n" for line in lines))


def require(sides: FlowSides, *, needs_target: bool = True) -> None:
    """Raise CommandFailed if a cluster that is needed does not answer."""
    for side in sides if needs_target else (sides.source,):
        if side.away:
            raise CommandFailed(side.away, remedy="")


async def of_both(sides: FlowSides, work: Coroutine[Any, Any, T], doing: str, *, deadline_s: float = DEADLINE_S) -> T:
    """Return what ``work`` returns, which asks both clusters.

    Raises: CommandFailed, as ``within_deadline``; if the target is the one that is silent, it is named.
    """
    try:
        return await within_deadline(sides.source.alias, work, doing, deadline_s=deadline_s)
    except CommandFailed as error:
        was_away = sides.target.away
        if isinstance(error.__cause__, TimeoutError) and not was_away:
            await sides.target.probe()
            if sides.target.away:
                raise CommandFailed(f"{doing[:1].upper()}{doing[1:]}: {sides.target.away}", remedy="") from error
        raise


def store_of(settings: FlowSettings, sides: FlowSides, rng: random.Random) -> FenceStore:
    """Return the records of a flow's fence. A target that does not answer is left out."""
    make = partial(FenceLog, replication_factor=settings.configs_topic_replication_factor, rng=rng)
    target = None if sides.target.away else make(settings.flow.target, sides.target.brokers)
    return FenceStore(str(settings.flow), make(settings.flow.source, sides.source.brokers), target)


def hook_of(words: tuple[str, ...]) -> Hook:
    """Return what runs the operator's command."""

    async def hook(verb: str, record: FenceRecord) -> None:
        await run_hook(words, verb, record)

    return hook


def may_change(say: Callable[[Sequence[str]], None], question: str, *, yes: bool) -> int | None:
    """Ask the operator. Return the exit code if nothing may be changed, None if it may."""
    if yes:
        return None
    if not sys.stdin.isatty():
        say(["Nothing was changed: without a terminal --yes is needed."])
        return EXIT_USAGE
    if not confirm(question):
        say(["Nothing was changed."])
        return EXIT_DONE
    return None
