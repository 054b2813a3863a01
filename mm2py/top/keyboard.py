"""Which keys the bytes are that a terminal sends. Pure.

A pasted text is told as such: a line break in it must not confirm anything.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

ESCAPE: Final = "\x1b"
PASTE_MOST: Final = 10_000
"""How many characters of a pasted text are kept."""
_PASTE, _PASTED = "\x1b[200~", "\x1b[201~"
_SEQUENCE: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[@-~]|[^\x1b\[O])", re.DOTALL)
_UNFINISHED: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?")
_NAMED: Final[Mapping[str, str]] = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1bOH": "home",
    "\x1bOF": "end",
    "\x1b[1~": "home",
    "\x1b[7~": "home",
    "\x1b[4~": "end",
    "\x1b[8~": "end",
    "\x1b[5~": "page-up",
    "\x1b[6~": "page-down",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\b": "backspace",
    "\x15": "clear",
    "\x0c": "redraw",
    "\x04": "q",
}


@dataclass(frozen=True, slots=True)
class KeyTyped:
    """A key: a character, or the name of another one, as ``up`` or ``enter``."""

    key: str


@dataclass(frozen=True, slots=True)
class TextPasted:
    """A text that was pasted, in one line."""

    text: str


class KeyReader:
    """Makes keys of bytes as they come."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""

    @property
    def is_waiting(self) -> bool:
        """Whether it is not decided yet what the last bytes are: an Escape, or the beginning of another key."""
        return bool(self._text) and not self._text.startswith(_PASTE)

    def take(self, data: bytes) -> list[KeyTyped | TextPasted]:
        """Return the keys that these bytes complete."""
        self._text += self._decoder.decode(data)
        return list(self._keys())

    def give_up(self) -> list[KeyTyped | TextPasted]:
        """Nothing more came for a while: what waits is the key Escape, and not the beginning of another one."""
        if not self.is_waiting:
            return []
        self._text = ""
        return [KeyTyped("escape")]

    def _keys(self) -> Iterator[KeyTyped | TextPasted]:
        while self._text:
            if self._text.startswith(_PASTE):
                pasted, found, rest = self._text.removeprefix(_PASTE).partition(_PASTED)
                if not found:
                    return
                self._text = rest
                yield TextPasted("".join(char if char.isprintable() else " " for char in pasted[:PASTE_MOST]).strip())
                continue
            if self._text[0] == ESCAPE:
                if _UNFINISHED.fullmatch(self._text):
                    return
                found_key = _SEQUENCE.match(self._text)
                if found_key is None:  # an Escape, and then a key of its own
                    self._text = self._text[1:]
                    yield KeyTyped("escape")
                    continue
                sequence, self._text = found_key[0], self._text[found_key.end() :]
            else:
                sequence, self._text = self._text[0], self._text[1:]
            if sequence in _NAMED:
                yield KeyTyped(_NAMED[sequence])
            elif len(sequence) == 1 and sequence.isprintable():
                yield KeyTyped(sequence)
