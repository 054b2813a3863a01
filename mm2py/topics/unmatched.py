"""Which entries of ``topics`` match no topic of the source. Pure.

MirrorMaker 2 says nothing of them: a name with a typing error, or a topic that it may not describe, is left out in
silence. An entry made of the characters of topic names is taken for a name. It is a pattern as well, as its dots match
any character.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

import regex

from mm2py.topics.filters import PatternList, PatternTooSlow

_NAME: Final = regex.compile(r"[a-zA-Z0-9._-]+")


class Unmatched(NamedTuple):
    """One entry that matches nothing."""

    entry: str
    is_name: bool
    """It names one topic; otherwise it is a pattern."""


def is_name(entry: str) -> bool:
    """Return whether an entry is written as the name of one topic."""
    return _NAME.fullmatch(entry) is not None


def unmatched(entries: Iterable[PatternList], names: Collection[str]) -> list[Unmatched]:
    """Return the entries that match none of the names, in their order.

    Args:
        entries: one list for each entry.
        names: those that the source shows, internal ones among them.
    """
    found: list[Unmatched] = []
    for one in entries:
        (entry,) = one.entries
        if entry not in names and not _matches(one, names):
            found.append(Unmatched(entry, is_name(entry)))
    return found


def _matches(entry: PatternList, names: Iterable[str]) -> bool:
    try:
        return any(entry.matches(name) for name in names)
    except PatternTooSlow:
        return True  # of which the topic itself is refused
