"""The part of ``java.util.regex`` that means the same in the package ``regex``. A pattern outside of it is refused.

MM2's filters are Java patterns. The package ``regex`` reads a Java pattern differently in some places, without a word.
A filter must never be silently different. So ``check`` lets only those constructs pass on which both agree for names
without line ends (topic names have none), and ``compile_java`` then hands the unchanged pattern to ``regex``: with
``ASCII``, so that ``\\d``, ``\\w``, ``\\s`` and ``(?i)`` know only ASCII, and with ``V1``, so that ``(?i:..)`` applies
to its group alone.

Refused although Java accepts them: sets within sets (``[a-z&&[^b]]``), ``\\D \\W \\S`` within sets (``regex`` reads
``[^\\D\\d]`` wrongly), ``\\p{..}`` and all other escapes of letters but ``\\d \\w \\s \\b`` and their capitals,
``\\Q..\\E``, back references, named and atomic groups, all flags but ``i`` (``regex`` may
apply a ``(?i)`` within a pattern to what stands before it), quantifiers within a look behind, and a few
combinations in which Java's own way of matching is surprising.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

import regex

MAX_DEPTH: Final = 50
"""Groups inside one another."""
MAX_REPEATS: Final = 10_000
"""Largest count in ``{n,m}``. Names are shorter by far, and huge counts cost memory."""

_PART: Final = regex.compile(
    r"""
    (?P<flag> ^\(\?i\) )
    | (?P<open> \( (?: (?!\?) | \?(?: : | = | ! | <= | <! | -?i: ) ) )
    | (?P<close> \) )
    | (?P<set> \[ \^?+ (?!\]) (?: \\[^A-Za-z0-9] | \\[dws] | [^\\\[\]] )+ \] )
    | (?P<times> (?: [?*+] | \{[0-9]+(?:,[0-9]*)?\} ) [?+]? )
    | (?P<anchor> [\^$] | \\[bB] )
    | (?P<or> \| )
    | (?P<one> \\[^A-Za-z0-9] | \\[dDwWsS] | [^\\\[({] )
    """,
    regex.VERBOSE | regex.DOTALL,
)
_AMBIGUOUS_IN_SET: Final = regex.compile(r"&&|\|\||--|~~|-\\[dws]")
_REASONS: Final = (
    ("\\p", "\\p{..} is not supported; list the characters, for example [a-zA-Z]"),
    ("\\P", "\\P{..} is not supported; list the characters, for example [^a-zA-Z]"),
    ("\\Q", "\\Q..\\E is not supported; write a dot as \\. instead"),
    ("\\", "this escape is unknown or not supported; write the character itself, or one of \\d \\w \\s \\b"),
    ("[", "this character class is not closed or not supported; list characters and ranges, and write \\[ for a '['"),
    ("{", "'{' does not begin a count such as {2} or {2,5}; write a literal brace as \\{"),
    ("(?>", "an atomic group is not supported; write (?:..)"),
    ("(?<", "a named group is not supported; write (..)"),
    ("(?i)", "(?i) may only stand before the whole list; write (?i:..)"),
    ("(?", "'(?' may only begin (?:..) (?=..) (?!..) (?<=..) (?<!..) and (?i:..)"),
)


class NotTranslatable(ValueError):
    """The pattern is no Java pattern, or one whose meaning cannot be kept; ``position`` counts characters from 0."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"{reason} at character {position + 1}")
        self.reason = reason
        self.position = position


@functools.lru_cache(maxsize=256)
def compile_java(pattern: str) -> regex.Pattern[str]:
    """Return the compiled pattern; call its ``fullmatch`` with a timeout.

    Raises:
        NotTranslatable: the pattern has a syntax error or a construct that is refused.
    """
    check(pattern)
    try:
        return regex.compile(pattern, regex.V1 | regex.ASCII)
    except regex.error as error:
        reason = str(error).partition(" at position ")[0]
        raise NotTranslatable(f"the pattern cannot be compiled ({reason})", getattr(error, "pos", 0)) from error


@dataclass(slots=True)
class _Group:
    """A group that is open. ``conditional``: whether it matches depends on more than the text it matches."""

    opening: str
    position: int
    in_look_behind: bool = False
    conditional: bool = False

    @property
    def is_look(self) -> bool:
        return self.opening.startswith(("(?=", "(?!", "(?<"))


def check(pattern: str) -> None:
    """Raises: NotTranslatable, at the first construct that is not known to mean the same in Java and in ``regex``."""
    groups = [_Group("", 0)]
    repeatable: _Group | str = ""
    """What a quantifier would apply to: a group, or the text of one character or character class."""
    at = 0
    while at < len(pattern):
        part = _PART.match(pattern, at)
        if part is None:
            raise NotTranslatable(next(why for start, why in _REASONS if pattern.startswith(start, at)), at)
        text, before, repeatable = part.group(), repeatable, ""
        match part.lastgroup:
            case "open":
                groups.append(_Group(text, at, text.startswith("(?<") or groups[-1].in_look_behind))
                if len(groups) > MAX_DEPTH:
                    raise NotTranslatable(f"more than {MAX_DEPTH} brackets are open", at)
            case "close":
                if len(groups) == 1:
                    raise NotTranslatable("there is a ')' without its '('", at)
                closed = groups.pop()
                groups[-1].conditional |= closed.conditional or closed.is_look
                repeatable = "" if closed.is_look else closed
            case "times":
                _check_quantifier(text, before, groups[-1], at)
            case "anchor":
                groups[-1].conditional = True
            case "set" if ambiguous := _AMBIGUOUS_IN_SET.search(text):
                why = f"{ambiguous.group()!r} in a character class is ambiguous; put a backslash before '-' '&' '|' '~'"
                raise NotTranslatable(why, at + ambiguous.start())
            case "set" | "one":
                repeatable = text
        at = part.end()
    if len(groups) > 1:
        raise NotTranslatable("a group is not closed", groups[-1].position)


def _check_quantifier(text: str, repeated: _Group | str, around: _Group, at: int) -> None:
    """Raises: NotTranslatable, if Java and ``regex`` may repeat differently."""
    counts = [int(count) for count in regex.findall("[0-9]+", text)]
    is_possessive = len(text) > 1 and text.endswith("+")
    if not repeated:
        raise NotTranslatable(f"there is nothing for '{text}' to repeat", at)
    if around.in_look_behind:
        raise NotTranslatable("a quantifier is not supported in a look behind", at)
    if max(counts, default=0) > MAX_REPEATS:
        raise NotTranslatable(f"no count may be over {MAX_REPEATS}", at)
    if isinstance(repeated, _Group) and is_possessive:
        raise NotTranslatable("a possessive quantifier on a group is not supported; remove its second '+'", at)
    if isinstance(repeated, _Group) and repeated.conditional and max(counts, default=0) > 1:
        # Java skips the rounds that are left after an empty one, even those that the count demands.
        raise NotTranslatable("a counted group must hold no anchor, look-around or possessive quantifier", at)
    around.conditional |= is_possessive
