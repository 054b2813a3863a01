"""The operator's own commands: one stops producers and lets them go on again, one switches clients to another cluster.

A command runs without a shell. Its words are split as a shell would, then comes what is asked for (``fence``,
``unfence``, ``switch``); what it is about stands in its standard input, as one JSON object. Exit code 0: done. It may
be called again after it was done.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from typing import Final

from mm2py.dr.fence.record import FenceRecord
from mm2py.errors import ConfigError, Mm2Error
from mm2py.secret import printable

HOOK_TIMEOUT_S: Final = 60.0
SHOWN_MOST: Final = 500


class HookFailed(Mm2Error):
    """The command of the operator did not do what was asked."""

    def __init__(self, program: str, verb: str, why: str, *, remedy: str) -> None:
        super().__init__(f"The hook {program} {verb} {why}.", remedy=remedy)


def hook_words(text: str, option: str = "--hook-fence") -> tuple[str, ...]:
    """Return the words of an option that names a command. Raises: ConfigError, there is none, or a quote is open."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{option} cannot be split into words: {error}.", remedy="Close the quote.") from error
    if not words:
        raise ConfigError(f"{option} names no command.", remedy="Name a program and its arguments.")
    return tuple(words)


async def run_hook(words: Sequence[str], verb: str, record: FenceRecord, *, timeout_s: float = HOOK_TIMEOUT_S) -> None:
    """Run the command of a fence. Raises, cancelling: as ``run_command``."""
    told = {"verb": verb, "flow": record.flow, "topics": list(record.topics), "by": record.by}
    remedy = (
        "Mend it and begin again, or take back what was done: mm2py dr unfence FILE"
        f" '{record.flow}' --hook-fence CMD. It may be called twice."
    )
    await run_command(words, verb, told, timeout_s=timeout_s, remedy=remedy)


async def run_command(
    words: Sequence[str],
    verb: str,
    told: Mapping[str, object],
    *,
    remedy: str,
    timeout_s: float = HOOK_TIMEOUT_S,
) -> None:
    """Run a command of the operator, and wait until it ends.

    Args:
        told: what stands in its standard input.
        remedy: what an operator can do if it fails.
    Raises:
        HookFailed: it cannot be started, took longer than ``timeout_s``, or did not end with exit code 0.
    Cancelling ends the command, and what it has started.
    """
    program = words[0]
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            verb,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise HookFailed(program, verb, f"cannot be started: {error.strerror or error}", remedy=remedy) from error
    try:
        async with asyncio.timeout(timeout_s):
            said, _ = await process.communicate(json.dumps(told).encode())
    except TimeoutError as error:
        raise HookFailed(program, verb, f"did not end within {timeout_s:g} s", remedy=remedy) from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        shown = printable(said.decode(errors="replace").strip()[-SHOWN_MOST:])
        why = f"ended with exit code {process.returncode}{f', saying: {shown}' if shown else ''}"
        raise HookFailed(program, verb, why, remedy=remedy)
