"""What is written to a terminal so that it shows lines, in place of those that it shows. Pure.

Only lines that changed are written, so nothing flickers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mm2py.top.cells import Ink, ScreenLine, text_of_line, width_of

ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[?2004h\x1b[2J"
"""The other screen, no cursor, lines that do not wrap, pasted text in brackets."""
LEAVE: Final = "\x1b[0m\x1b[?2004l\x1b[?7h\x1b[?25h\x1b[?1049l"
_CLEAR: Final = "\x1b[2J"
_CLEAR_LINE: Final = "\x1b[K"
_PLAIN: Final = "\x1b[0m"
_COLOURS: Final[Mapping[Ink, str]] = {
    Ink.STRONG: "\x1b[1m",
    Ink.FAINT: "\x1b[2m",
    Ink.BAD: "\x1b[1;31m",
    Ink.DOUBTFUL: "\x1b[33m",
    Ink.GOOD: "\x1b[32m",
    Ink.CHOSEN: "\x1b[7m",
}
_WITHOUT_COLOURS: Final[Mapping[Ink, str]] = {Ink.STRONG: "\x1b[1m", Ink.BAD: "\x1b[1m", Ink.CHOSEN: "\x1b[7m"}


def painted(lines: Sequence[ScreenLine], before: Sequence[ScreenLine] | None, *, width: int, colours: bool) -> str:
    """Return what is to be written.

    Args:
        lines: as many as the terminal has, each with room in its width.
        before: what it shows; None: not known, or its size has changed.
    """
    shown = () if before is None else before
    changed = [at for at, one in enumerate(lines) if at >= len(shown) or shown[at] != one]
    text = "".join(f"\x1b[{at + 1};1H{_inked(lines[at], colours=colours)}{_rest(lines[at], width)}" for at in changed)
    return _CLEAR + text if before is None else text


def _rest(spans: ScreenLine, width: int) -> str:
    """Return what clears the rest of a line. Behind a whole line it would clear the last cell of it."""
    return _CLEAR_LINE if width_of(text_of_line(spans)) < width else ""


def _inked(spans: ScreenLine, *, colours: bool) -> str:
    codes = _COLOURS if colours else _WITHOUT_COLOURS
    return "".join(
        f"{codes[span.ink]}{span.text}{_PLAIN}" if span.ink in codes else span.text for span in spans if span.text
    )
