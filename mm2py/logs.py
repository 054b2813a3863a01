"""Logging: structured, one event a line, as text or JSON; a lasting problem is logged once, and so is its end.

A person reads text on a terminal: there a line is short and coloured, and the remedy is on a line of its own.
JSON, and text in a file or a pipe, have every field in full.

Keys are the field's words; secrets are never passed in.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TextIO

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from mm2py.clock import Clock
from mm2py.command_lines import FILE, with_file
from mm2py.errors import Mm2Error

LogFormat = Literal["text", "json"]
LEVELS: Final = ("debug", "info", "warning", "error")
CONNECT_LEVELS: Final = {"DEBUG": "debug", "INFO": "info", "WARN": "warning", "ERROR": "error"}
"""The same levels by the names of Kafka Connect."""


_COLOURS: Final = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "31"}
_FIRST: Final = ("flow", "topic", "partition", "connector", "why")
"""The fields that people look for, in this order."""
LINE_CHARS: Final = 200
"""The approximate length of a line on a terminal; its last field may make it longer."""
VALUE_CHARS: Final = 160
"""The most characters of one value on a terminal; the remedy is shown whole."""


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


def _terminal_lines(*, coloured: bool) -> Processor:
    """Return the processor that makes a short line of an event, and one more for the remedy."""

    def paint(text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if coloured else text

    def lines(_: WrappedLogger, __: str, event: EventDict) -> str:
        time, level, name = event.pop("timestamp"), event.pop("level"), event.pop("event")
        trace, remedy = event.pop("exception", None), event.pop("remedy", None)
        fields = sorted(event.items(), key=lambda one: _FIRST.index(one[0]) if one[0] in _FIRST else len(_FIRST))
        shown, left = "", len(fields)
        while left and len(shown) < LINE_CHARS:
            key, value = fields[-left]
            text = str(value)
            shown += f" {key}={_quoted(text if len(text) <= VALUE_CHARS else f'{text[:VALUE_CHARS]}…')}"
            left -= 1
        if left:
            shown += f" … {left} more"
        found = [f"{time[11:19]} {paint(f'{level.upper():7}', _COLOURS[level])} {paint(name, '1')}{shown}"]
        if remedy:
            found.append(f"         {paint('To do:', '1')} {remedy}")
        found += [f"         {_escaped(line)}" for line in (trace or "").splitlines()]
        return "\n".join(found)

    return lines


def _quoted(value: Any) -> str:
    """Quote what could be taken for several fields: a topic may be named ``a level=error``."""
    text = str(value)
    if text and not any(char in text for char in ' "='):
        return text
    return '"' + text.replace('"', r"\"") + '"'


RECORDER: Final = "recorder"
"""A logger that has bound a ``Recorder`` under this name gives it each of its lines, besides writing them."""
Recorder = Callable[[str, Mapping[str, Any]], None]
"""Takes the level of a line and its fields."""


def _to_recorder(_: WrappedLogger, level: str, event: EventDict) -> EventDict:
    recorder: Recorder | None = event.pop(RECORDER, None)
    if recorder is not None:
        recorder(level, event)
    return event


def _naming(file: str) -> Processor:
    """Return the processor that puts the file of this process into the commands that its lines advise."""

    def name(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        return {key: with_file(value, file) if isinstance(value, str) else value for key, value in event.items()}

    return name


def make_logger(
    level: str, log_format: LogFormat, stream: TextIO | None = None, *, file: str = FILE
) -> FilteringBoundLogger:
    """Return the process's logger; each flow binds its name to it. ``NO_COLOR`` in the environment turns colours off.

    Args:
        file: the settings file of the process, as a command line takes it.
    """
    stream = stream or sys.stderr
    text = _terminal_lines(coloured=not os.environ.get("NO_COLOR")) if stream.isatty() else _text_line
    rendering: list[Processor] = (
        [_one_line, structlog.processors.format_exc_info, text]
        if log_format == "text"
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    )
    # A class of this logger alone, so that its level can change.
    leveled = type("LeveledLogger", (_of_level(level),), {})
    logger: FilteringBoundLogger = structlog.wrap_logger(
        structlog.PrintLogger(stream),
        processors=[
            _to_recorder,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _naming(file),
            *rendering,
        ],
        wrapper_class=leveled,
        context_class=dict,
    )
    return logger


def _of_level(level: str) -> type[FilteringBoundLogger]:
    return structlog.make_filtering_bound_logger(getattr(logging, level.upper()))


def set_level(logger: FilteringBoundLogger, level: str) -> None:
    """Log at this level from now on, in all loggers of the same ``make_logger``. ``level``: one of ``LEVELS``."""
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
    """A failure of one thing, which is logged when it lasts, and when it is over."""

    def __init__(self, event: str, *, clock: Clock, log: FilteringBoundLogger, effect: str) -> None:
        """``event`` begins the names of its log lines, as ``heartbeats``; ``effect`` says what the failure means."""
        self._event = event
        self._effect = effect
        self._clock = clock
        self._log = log
        self._since_s: float | None = None
        self._said = ""
        self.why = ""
        """What is wrong now, whether it was logged or not; empty while it works."""

    def note(self, error: Mm2Error, *, at_once: bool = False) -> None:
        """Note a failure. It is logged once, when it lasts for ``PATIENCE_S``.

        Args:
            at_once: waiting does not help. The failure is logged now, and again when its text changes.
        """
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
        """Note that it works again."""
        if self._said and self._since_s is not None:
            waited_s = round(self._clock.monotonic() - self._since_s, 1)
            self._log.info(f"{self._event}.back", after_s=waited_s)
        self._since_s, self._said, self.why = None, "", ""
