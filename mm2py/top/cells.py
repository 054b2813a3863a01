"""Text on a screen of cells: spans with a style, cut, padded and wrapped to a width; small charts. Pure.

Topic names, group ids and reasons come from other people's clusters. A span makes its text printable, and the screen
takes nothing but spans, so no control character of theirs reaches the terminal.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from mm2py.secret import printable

CUT: Final = "…"
BARS: Final = "·▁▂▃▄▅▆▇█"
"""The first one stands where a number is not known."""
PLAIN_BARS: Final = " _.:-=+*#"
"""For a terminal that shows ASCII only."""


class Ink(Enum):
    """How a span looks. It never says anything that its text does not say as well."""

    PLAIN = "plain"
    STRONG = "strong"
    FAINT = "faint"
    BAD = "bad"
    DOUBTFUL = "doubtful"
    GOOD = "good"
    CHOSEN = "chosen"
    """The selected row."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a line in one style."""

    text: str
    ink: Ink = Ink.PLAIN

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", printable(self.text))


ScreenLine = tuple[Span, ...]


def line(text: str, ink: Ink = Ink.PLAIN) -> ScreenLine:
    """Return a line of one span."""
    return (Span(text, ink),)


def text_of_line(spans: ScreenLine) -> str:
    """Return a line without its styles."""
    return "".join(span.text for span in spans)


def width_of(text: str) -> int:
    """Return how many cells a printable text takes: Chinese characters take two, accents that combine none."""
    if text.isascii():
        return len(text)
    return sum(map(_width_of_char, text))


def _width_of_char(char: str) -> int:
    if unicodedata.category(char) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cut(text: str, width: int) -> str:
    """Return a text that takes at most so many cells; what is cut off ends with an ellipsis."""
    text = printable(text)
    if width_of(text) <= width:
        return text
    if width < 1:
        return ""
    kept, room = "", width - 1
    for char in text:
        room -= _width_of_char(char)
        if room < 0:
            break
        kept += char
    return kept + CUT


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return a text that takes exactly so many cells."""
    shown = cut(text, width)
    blanks = " " * (width - width_of(shown))
    return blanks + shown if right else shown + blanks


def wrapped(text: str, width: int, most: int, *, indent: str = "") -> list[str]:
    """Return a text in at most so many lines, broken at blanks; the last one is cut.

    Args:
        indent: what the second line and those behind it begin with.
    """
    left = printable(text).strip()
    lines: list[str] = []
    while left:
        start = indent if lines else ""
        room = max(1, width - len(start))
        if width_of(left) <= room or len(lines) == most - 1:
            return [*lines, start + cut(left, room)]
        head = cut(left, room + 1)[:-1]  # as much as fits, without the ellipsis
        broken = head.rpartition(" ")[0] if not left[len(head) : len(head) + 1].isspace() else head
        head = broken.rstrip() or head
        lines.append(start + head)
        left = left[len(head) :].lstrip()
    return lines


def fitted(spans: ScreenLine, width: int) -> ScreenLine:
    """Return a line that takes at most so many cells."""
    kept: list[Span] = []
    for span in spans:
        if width <= 0:
            break
        kept.append(Span(cut(span.text, width), span.ink))
        width -= width_of(kept[-1].text)
    return tuple(kept)


def sparkline(numbers: Sequence[float | None], bars: str = BARS) -> str:
    """Return a bar for each number, the highest one for the largest number."""
    known = [one for one in numbers if one is not None and math.isfinite(one)]
    most = max(known, default=0.0)
    return "".join(
        bars[0] if one is None or not math.isfinite(one) else bars[1 + _height(one, most, len(bars) - 1)]
        for one in numbers
    )


def _height(number: float, most: float, heights: int) -> int:
    """Return the height of a bar, from 0 on. Only 0 has the lowest one: what is small is not shown as nothing."""
    if number <= 0 or most <= 0:
        return 0
    return max(1, min(heights - 1, math.ceil(number / most * (heights - 1))))
