"""A command on a terminal of its own: keys are typed, and its screen is read."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
import threading
from types import TracebackType
from typing import Any, Final, Self

from deploy.local.guardian import guard
from tests.cluster.running import OWN_PATH, wait_until

_PIECES: Final = re.compile(r"\x1b\[(?P<numbers>[0-9;?]*)(?P<what>[A-Za-z])|(?P<text>[^\x1b]+)")
_UNFINISHED: Final = re.compile(r"\x1b(?:\[[0-9;?]*)?\Z")


class SeenScreen:
    """What a terminal shows, by the few sequences that ``mm2py/top/painting.py`` writes."""

    def __init__(self) -> None:
        self._lines: dict[int, str] = {}
        self._row, self._column = 1, 0
        self.modes: dict[str, bool] = {}
        """Modes of the terminal that were switched, as ``1049`` for the other screen."""

    def take(self, text: str) -> None:
        for found in _PIECES.finditer(text):
            match found["what"], found["numbers"] or "":
                case None, _:
                    before = self._lines.get(self._row, "").ljust(self._column)
                    behind = before[self._column + len(found["text"]) :]
                    self._lines[self._row] = before[: self._column] + found["text"] + behind
                    self._column += len(found["text"])
                case "H", numbers:
                    row, column = map(int, numbers.split(";"))
                    self._row, self._column = row, column - 1
                case "J", "2":
                    self._lines.clear()
                case "K", "":
                    self._lines[self._row] = self._lines.get(self._row, "")[: self._column]
                case ("h" | "l") as switch, numbers:
                    self.modes[numbers.lstrip("?")] = switch == "h"

    @property
    def text(self) -> str:
        return "\n".join(self._lines.get(row, "") for row in range(1, max(self._lines, default=0) + 1))


class OnTerminal:
    """A run of ``mm2py`` on a pseudo-terminal, which controls it as a shell's would. Use it in a ``with`` block."""

    def __init__(self, *arguments: str, width: int = 110, height: int = 32, **environment: str) -> None:
        self._outer, self._inner = pty.openpty()
        self.resize(width, height)
        self._before = termios.tcgetattr(self._inner)
        self._seen, self._lock = SeenScreen(), threading.Lock()
        tty = shlex.quote(os.ttyname(self._inner))  # the first one that a new session opens controls it
        command = shlex.join([sys.executable, "-m", "mm2py", *arguments])
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command} <{tty} >{tty} 2>{tty}"],
            env={
                **os.environ,
                "PYTHONPATH": OWN_PATH,
                "PYTHONIOENCODING": "utf-8",
                "TERM": "xterm-256color",
                **environment,
                **guard().environment(),
            },
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._inner)
        self._reader.join()
        os.close(self._outer)
        if error is not None:
            error.add_note(f"The screen shows:\n{self.text}")

    def _read(self) -> None:
        decoder, rest = codecs.getincrementaldecoder("utf-8")("replace"), ""
        while True:
            try:
                text = rest + decoder.decode(os.read(self._outer, 65_536))
            except OSError:  # nobody has the other end any more
                return
            unfinished = _UNFINISHED.search(text)
            whole = len(text) if unfinished is None else unfinished.start()
            rest = text[whole:]
            with self._lock:
                self._seen.take(text[:whole])

    @property
    def text(self) -> str:
        """What the screen shows."""
        with self._lock:
            return self._seen.text

    @property
    def modes(self) -> dict[str, bool]:
        with self._lock:
            return dict(self._seen.modes)

    @property
    def is_restored(self) -> bool:
        """Whether the terminal is as it was before the command."""
        is_left = not self.modes.get("1049", False) and self.modes.get("25", True) and self.modes.get("7", True)
        return is_left and termios.tcgetattr(self._inner) == self._before

    def type(self, keys: str) -> None:
        os.write(self._outer, keys.encode())

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self._outer, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def row(self, name: str) -> list[str]:
        """Return the words of the row of a topic, without the mark of the selected one; none: it is not shown."""
        for line in reversed(self.text.splitlines()):  # verdicts are above, and name topics as well
            words = line.removeprefix("> ").split()
            if words and words[0] == name:
                return words
        return []

    def shows(self, text: str, **options: Any) -> None:
        wait_until(lambda: text in self.text, f"the screen shows {text!r}", **options)

    def ended(self) -> int:
        """Wait until the command has ended, and return its exit code."""
        wait_until(lambda: self._process.poll() is not None, "it ends")
        return self._process.returncode
