"""Trouble that lasts is said once, and so is its end."""

from __future__ import annotations

from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.errors import Mm2Error

PATIENCE_S: Final = 5.0
"""How long something may fail before that is worth a line in the log: a broker that restarts takes less."""


class Trouble:
    """What keeps one thing from working just now."""

    def __init__(self, event: str, *, clock: Clock, log: FilteringBoundLogger, effect: str) -> None:
        """``event`` begins the names of its log lines, as ``heartbeats``; ``effect`` says what it means meanwhile."""
        self._event = event
        self._effect = effect
        self._clock = clock
        self._log = log
        self._since_s: float | None = None
        self._said = ""
        self.why = ""
        """What is wrong just now, whether it was said or not; empty while it works."""

    def note(self, error: Mm2Error, *, at_once: bool = False) -> None:
        """Note a failure; it is said when it lasts, ``at_once`` if waiting mends nothing, and again if it changes."""
        now_s = self._clock.monotonic()
        if self._since_s is None:
            self._since_s = now_s
        why = self.why = str(error)
        if self._said and not at_once:
            return  # while a cluster is away the wording changes with every broker that is asked
        if why != self._said and (at_once or now_s - self._since_s >= PATIENCE_S):
            self._said = why
            self._log.warning(f"{self._event}.waiting", why=why, effect=self._effect)

    def over(self) -> None:
        """Note that it works."""
        if self._said and self._since_s is not None:
            waited_s = round(self._clock.monotonic() - self._since_s, 1)
            self._log.info(f"{self._event}.back", after_s=waited_s)
        self._since_s, self._said, self.why = None, "", ""
