"""What a process writes to its standard output and error, by whole lines."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable
from typing import Final

from mm2py.secret import printable

STDERR: Final = 2
WIDE: Final = 200


Write = Callable[[str], object]


def write_out(text: str) -> None:
    """Write to standard output."""
    sys.stdout.write(text)
    sys.stdout.flush()


def confirm(question: str) -> bool:
    """Ask on a terminal."""
    sys.stdout.write(f"{question} [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def say(text: str) -> None:
    """Write one line to standard error. The logger may not exist yet."""
    file = LineFile(STDERR)
    file.write(f"mm2py: {printable(text)}\n")
    file.flush()


class LineFile(io.TextIOBase):
    """Writes whole lines to a descriptor. It drops them where the disk is full or the reader is gone, so that the log
    stops neither a flow nor the process.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pending = ""

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, text: str) -> int:
        self._pending += text
        return len(text)

    def flush(self) -> None:
        data, self._pending = self._pending.encode(errors="backslashreplace"), ""
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._descriptor, data) :]


def _columns() -> int:
    """Return the width of the terminal; a wide one where it does not say."""
    with contextlib.suppress(OSError):
        return os.get_terminal_size(STDERR).columns or WIDE
    return WIDE


class TerminalLine:
    """One line on standard error that is written again and again, such as a bar; nothing where that is no terminal."""

    def __init__(self) -> None:
        self.is_terminal = sys.stderr.isatty()
        self._width = 0

    def write(self, text: str) -> None:
        """Write a line in place of the one before. What the terminal has no room for is cut off."""
        if self.is_terminal:
            self._write(printable(text)[: _columns() - 1])

    def clear(self) -> None:
        """Remove the line: what is printed next takes its place."""
        if self._width:
            self._write("")
            sys.stderr.write("\r")

    def keep(self) -> None:
        """Leave the line as it is: what is printed next goes below it."""
        if self._width:
            sys.stderr.write("\n")
            sys.stderr.flush()
            self._width = 0

    def _write(self, text: str) -> None:
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)
