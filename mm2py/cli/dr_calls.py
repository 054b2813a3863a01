"""What the ``dr`` commands share that change something: who asks, how a plan is shown, and what is printed."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

from mm2py.cli.dr_at import begin_at
from mm2py.clock import SystemClock
from mm2py.command_lines import with_file
from mm2py.config.configuration import SettingsFile
from mm2py.config.recovery import recovery_hooks
from mm2py.dr.calls.asking import CallOutcome, Decide, RecoveryAsked, RecoveryPlan
from mm2py.dr.fence.hook import hook_words
from mm2py.login import author_here
from mm2py.output import TerminalLine, confirm, write_out
from mm2py.secret import printable
from mm2py.status.exit_codes import EXIT_CHANGES, EXIT_DONE, EXIT_FAILED, EXIT_USAGE


class CallArguments(Protocol):
    """What each of these commands takes."""

    file: Path
    flow: str
    reason: str
    plan: bool
    yes: bool
    json: bool


def call_verb(
    verb: str,
    arguments: CallArguments,
    file: SettingsFile,
    call: Callable[[RecoveryAsked, Decide], Awaitable[CallOutcome]],
    *,
    at_ms: int | None = None,
) -> int:
    """Let a verb run as the command line says, and return the exit code.

    Args:
        at_ms: what was decided begins at this moment of the wall clock; None: at once.
    Raises: as the verb.
    """
    line = TerminalLine()

    def say(text: str) -> None:
        if not arguments.json:
            say_lines([with_file(text, file.argument)])

    def progress(text: str) -> None:
        if text:
            line.write(text)
        else:
            line.clear()

    async def decide(plan: RecoveryPlan) -> int | None:
        for text in plan.lines:
            say(text)
        if plan.code is not None:
            return plan.code if arguments.plan else None
        if arguments.plan:
            return EXIT_CHANGES
        if plan.blocked:
            say(plan.blocked)
            return EXIT_FAILED
        code = may_change(say, plan.question, yes=arguments.yes)
        if code is None and at_ms is not None:
            await begin_at(at_ms, SystemClock(), say)
        return code

    async def run() -> CallOutcome:
        asked = RecoveryAsked(
            file=file,
            flow=arguments.flow,
            author=author_here(arguments.reason),
            command=f"mm2py dr {verb}",
            say=say,
            progress=progress,
            clock=SystemClock(),
            rng=random.Random(),  # noqa: S311  (spreads retries; nothing secret)
        )
        return await call(asked, decide)

    outcome = asyncio.run(run())
    if arguments.json:
        write_out(json.dumps(outcome.body, indent=2) + "\n")
    return outcome.code


def command_of(file: SettingsFile, text: str | None, option: str) -> tuple[str, ...]:
    """Return the words of a hook: those that the file has under this name, else the text is a command.

    Raises: ConfigError, it is neither.
    """
    if text is None:
        return ()
    return recovery_hooks(file.properties.entries).get(text) or hook_words(text, option)


def say_lines(lines: Sequence[str]) -> None:
    """Write lines for people."""
    write_out("".join(f"{printable(line)}\n" for line in lines))


def may_change(say: Callable[[str], None], question: str, *, yes: bool) -> int | None:
    """Ask the operator. Return the exit code if nothing may be changed, None if it may."""
    if yes:
        return None
    if not sys.stdin.isatty():
        say("Nothing was changed: without a terminal --yes is needed.")
        return EXIT_USAGE
    if not confirm(question):
        say("Nothing was changed.")
        return EXIT_DONE
    return None
