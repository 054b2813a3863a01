"""Numbers of partitions as text, ``0-3,7``, for people and for stored records. Pure.

MirrorMaker 2 has nothing of this kind.
"""

from __future__ import annotations

from typing import Final

NUMBERS_MOST: Final = 200_000
"""How many partitions are read from a text at most; no topic has more."""
DIGITS_MOST: Final = 9


def ranges(numbers: list[int]) -> str:
    """Return ascending numbers as ``0-3,7``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def numbers(text: str) -> list[int]:
    """Return the numbers in a text of ``ranges``. The text is not trusted: parts that are no range are ignored."""
    found: list[int] = []
    for span in text.split(","):
        first, _, last = span.partition("-")
        if _is_number(first) and (not last or _is_number(last)):
            room = NUMBERS_MOST - len(found)
            found.extend(range(int(first), min(int(last or first) + 1, int(first) + room)))
    return found


def _is_number(text: str) -> bool:
    return len(text) <= DIGITS_MOST and text.isascii() and text.isdecimal()
