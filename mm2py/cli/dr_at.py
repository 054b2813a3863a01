"""``--at TIME`` of ``mm2py dr cutover`` and ``rollback``: nothing is done before a moment, by the wall clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from mm2py.clock import Clock
from mm2py.errors import ConfigError
from mm2py.moments import age_or_iso_ms, duration_text, span_s, time_text
from mm2py.output import TerminalLine

LOOK_EVERY_S: Final = 1.0
"""So often the wall clock is read: it may be set meanwhile."""


def moment_to_begin(text: str, now_ms: int) -> int:
    """Return the epoch milliseconds of a moment to come. Raises: ConfigError."""
    found = None if span_s(text) is not None else age_or_iso_ms(text, now_ms)
    if found is None:
        raise ConfigError(
            f"--at {text!r} is no time.", remedy="Write 2026-11-30T02:00 (UTC), or with a zone, as +01:00 behind it."
        )
    if found <= now_ms:
        raise ConfigError(f"--at {time_text(found)} is past.", remedy="Name a time to come, or leave --at out.")
    return found


async def begin_at(at_ms: int, clock: Clock, say: Callable[[str], None]) -> None:
    """Wait for a moment, and show how long it takes still. Cancelling changes nothing."""
    say(f"begins at {time_text(at_ms)}; until then nothing is done, and it may be interrupted")
    line = TerminalLine()
    try:
        while (left_s := (at_ms - clock.wall_ms()) / 1000) > 0:
            line.write(f"begins at {time_text(at_ms)}, in {duration_text(left_s)}")
            await asyncio.sleep(min(left_s, LOOK_EVERY_S))
    finally:
        line.clear()
