"""The operator's own command that stops producers, and lets them go on again.

It runs without a shell. Its words are split as a shell would, then come ``fence`` or ``unfence``; the topics stand in
its standard input, as one JSON object. Exit code 0: done. It may be called again after it was done.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
from collections.abc import Sequence
from typing import Final

from mm2py.dr.fence.record import FenceRecord
from mm2py.errors import ConfigError, Mm2Error
from mm2py.secret import printable

HOOK_TIMEOUT_S: Final = 60.0
SHOWN_MOST: Final = 500


class HookFailed(Mm2Error):
    """The command of the operator did not do what was asked."""

    def __init__(self, program: str, verb: str, flow: str, why: str) -> None:
        super().__init__(
            f"The hook {program} {verb} {why}.",
            remedy="Mend it and begin again, or take back what was done: mm2py dr unfence FILE"
            f" '{flow}' --hook-fence CMD. It may be called twice.",
        )


def hook_words(text: str) -> tuple[str, ...]:
    """Return the words of ``--hook-fence``. Raises: ConfigError, there is none, or a quote is open."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"--hook-fence cannot be split into words: {error}.", remedy="Close the quote.") from error
    if not words:
        raise ConfigError("--hook-fence names no command.", remedy="Name a program and its arguments.")
    return tuple(words)


async def run_hook(words: Sequence[str], verb: str, record: FenceRecord, *, timeout_s: float = HOOK_TIMEOUT_S) -> None:
    """Run the command, and wait until it ends.

    Raises:
        HookFailed: it cannot be started, took longer than ``timeout_s``, or did not end with exit code 0.
    Cancelling ends the command, and what it has started.
    """
    program = words[0]
    told = {"verb": verb, "flow": record.flow, "topics": list(record.topics), "by": record.by}
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
        raise HookFailed(program, verb, record.flow, f"cannot be started: {error.strerror or error}") from error
    try:
        async with asyncio.timeout(timeout_s):
            said, _ = await process.communicate(json.dumps(told).encode())
    except TimeoutError as error:
        raise HookFailed(program, verb, record.flow, f"did not end within {timeout_s:g} s") from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        shown = printable(said.decode(errors="replace").strip()[-SHOWN_MOST:])
        said_so = f", saying: {shown}" if shown else ""
        raise HookFailed(program, verb, record.flow, f"ended with exit code {process.returncode}{said_so}")
