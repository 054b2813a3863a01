"""Logging: structured, one event a line, as text or JSON; trouble that lasts is said once, and so is its end.

Keys are the field's words; secrets are never passed in.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Final, Literal, TextIO

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from mm2py.clock import Clock
from mm2py.errors import Mm2Error

LogFormat = Literal["text", "json"]
LEVELS: Final = ("debug", "info", "warning", "error")
CONNECT_LEVELS: Final = {"DEBUG": "debug", "INFO": "info", "WARN": "warning", "ERROR": "error"}
"""The same by the names of Kafka Connect."""


def _one_line(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Escape what would break a line or move a cursor: names and messages come from other people's clusters."""
    return {key: _escaped(value) if isinstance(value, str) else value for key, value in event.items()}


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _text_line(_: WrappedLogger, __: str, event: EventDict) -> str:
    time, level, name = event.pop("timestamp"), event.pop("level"), event.pop("event")
    trace = event.pop("exception", None)
    fields = " ".join(f"{key}={_quoted(value)}" for key, value in event.items())
    line = f"{time} {level.upper():7} {name} {fields}".rstrip()
    return f"{line} trace={_quoted(_escaped(trace))}" if trace else line


def _quoted(value: Any) -> str:
    """Quote what could be taken for several fields: a topic may be named ``a level=error``."""
    text = str(value)
    if text and not any(char in text for char in ' "='):
        return text
    return '"' + text.replace('"', r"\"") + '"'


def make_logger(level: str, log_format: LogFormat, stream: TextIO | None = None) -> FilteringBoundLogger:
    """Return the process's logger; each flow binds its name to it."""
    rendering: list[Processor] = (
        [_one_line, structlog.processors.format_exc_info, _text_line]
        if log_format == "text"
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    )
    # A class of this logger alone, so that its level can change.
    leveled = type("LeveledLogger", (_of_level(level),), {})
    logger: FilteringBoundLogger = structlog.wrap_logger(
        structlog.PrintLogger(stream or sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *rendering,
        ],
        wrapper_class=leveled,
        context_class=dict,
    )
    return logger


def _of_level(level: str) -> type[FilteringBoundLogger]:
    return structlog.make_filtering_bound_logger(getattr(logging, level.upper()))


def set_level(logger: FilteringBoundLogger, level: str) -> None:
    """Log from now on at this level, also through all loggers of the same ``make_logger``. ``level``: of ``LEVELS``."""
    ours: Any = type(logger.bind())
    for name, value in vars(_of_level(level)).items():
        if not name.startswith("_"):
            setattr(ours, name, value)


def level_of(logger: FilteringBoundLogger) -> str:
    """Return the level of a logger, one of ``LEVELS``."""
    return logging.getLevelName(logger.get_effective_level()).lower()


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
