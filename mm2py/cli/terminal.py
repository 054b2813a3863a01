"""The terminal of a command that takes the whole screen: its keys, its size, and what it was before.

However the block ends, also by an exception, the terminal is as it was. While it lasts, what others write to standard
error is held back, if that is the terminal, and written behind it: it would tear the screen.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import termios
from collections.abc import Iterator, Sequence
from typing import IO, Final, NamedTuple

from mm2py.output import STDERR
from mm2py.top.cells import ScreenLine
from mm2py.top.painting import ENTER, LEAVE, painted

READ_MOST: Final = 65_536
_LOCAL: Final = 3
_INPUT: Final = 0
"""Places in what ``tcgetattr`` returns."""


class TerminalSize(NamedTuple):
    """How many cells a terminal has."""

    width: int
    height: int


class FullScreen:
    """The whole screen of a terminal, between ``enter`` and ``leave``."""

    def __init__(self, *, colours: bool) -> None:
        self.keyboard = sys.stdin.fileno()
        self._screen = sys.stdout.fileno()
        self._encoding = sys.stdout.encoding or "ascii"
        self._colours = colours
        self._before = termios.tcgetattr(self.keyboard)
        self._shown: Sequence[ScreenLine] | None = None
        self._is_entered = False

    @property
    def size(self) -> TerminalSize:
        with contextlib.suppress(OSError):
            found = os.get_terminal_size(self._screen)
            if found.columns and found.lines:
                return TerminalSize(found.columns, found.lines)
        return TerminalSize(80, 24)

    def enter(self) -> None:
        """Take the screen. Keys come one by one, and are not shown; Ctrl-C and Ctrl-Z still send signals."""
        self._is_entered = True
        mode = termios.tcgetattr(self.keyboard)
        mode[_LOCAL] &= ~(termios.ECHO | termios.ICANON)
        mode[_INPUT] &= ~termios.IXON  # Ctrl-S would stop the screen, and with it the command
        termios.tcsetattr(self.keyboard, termios.TCSADRAIN, mode)
        self._write(ENTER)
        self._shown = None

    def leave(self) -> None:
        """Give the screen back. What was typed and not read is dropped: the shell must not run it."""
        if self._is_entered:
            self._is_entered = False
            with contextlib.suppress(OSError):
                self._write(LEAVE)
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(self.keyboard, termios.TCSAFLUSH, self._before)

    def forget(self) -> None:
        """The terminal may show anything: the next lines are written whole."""
        self._shown = None

    def draw(self, lines: Sequence[ScreenLine], width: int) -> None:
        """Show lines, as many as the screen has. Raises: OSError, the terminal is gone."""
        text = painted(lines, self._shown, width=width, colours=self._colours)
        self._shown = lines
        self._write(text)

    def read(self) -> bytes:
        """Return the bytes of keys that have come; empty: the terminal is gone."""
        try:
            return os.read(self.keyboard, READ_MOST)
        except OSError:
            return b""

    def _write(self, text: str) -> None:
        data = text.encode(self._encoding, "replace")
        while data:
            data = data[os.write(self._screen, data) :]


@contextlib.contextmanager
def full_screen(terminal: FullScreen) -> Iterator[None]:
    """Take the screen, and give it back however the block ends."""
    with _held_back_errors():
        try:
            terminal.enter()
            yield
        finally:
            terminal.leave()


@contextlib.contextmanager
def _held_back_errors() -> Iterator[None]:
    """Hold back what is written to standard error, if that is a terminal, until the block has ended."""
    if not os.isatty(STDERR):
        yield
        return
    kept = os.dup(STDERR)
    with tempfile.TemporaryFile() as held:
        sys.stderr.flush()
        os.dup2(held.fileno(), STDERR)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, STDERR)
            os.close(kept)
            _copy(held)


def _copy(held: IO[bytes]) -> None:
    held.seek(0)
    with contextlib.suppress(OSError):
        while data := held.read(READ_MOST):
            os.write(STDERR, data)
