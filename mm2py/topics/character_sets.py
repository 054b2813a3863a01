"""Sets of characters as Java's patterns mean them: ``\\d``, ``\\p{Alpha}``, ``\\p{IsAlphabetic}``, ``[a-z&&[^aeiou]]``.

A set is a tuple of inclusive ranges of code points, ascending and apart. Classes of a pattern are computed here and
written out as plain ranges, so that no engine's own idea of ``\\w`` or ``&&`` can come between.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable

import regex

Ranges = tuple[tuple[int, int], ...]


def ranges_of(text: str) -> Ranges:
    """Return a set from single characters and ``a-z`` ranges, as in ``"a-zA-Z_"``; a minus sign comes last."""
    found, at = [], 0
    while at < len(text):
        is_range = text[at + 1 : at + 2] == "-" and at + 2 < len(text)
        found.append((ord(text[at]), ord(text[at + 2] if is_range else text[at])))
        at += 3 if is_range else 1
    return union(found)


def union(*sets: Iterable[tuple[int, int]]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(pair for one in sets for pair in one):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def complement(ranges: Ranges) -> Ranges:
    edges = [-1, *(edge for pair in ranges for edge in pair), sys.maxunicode + 1]
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return tuple((before + 1, after - 1) for before, after in pairs if before + 1 < after)


def intersection(one: Ranges, other: Ranges) -> Ranges:
    return complement(union(complement(one), complement(other)))


def in_both_cases(ranges: Ranges) -> Ranges:
    """Add the other case of every ASCII letter: all that Java's ``(?i)`` does without ``(?u)``."""
    swapped = [
        (ord(chr(code).swapcase()),) * 2
        for first, last in (*intersection(ranges, _UPPER), *intersection(ranges, _LOWER))
        for code in range(first, last + 1)
    ]
    return union(ranges, swapped)


def as_regex(ranges: Ranges) -> str:
    """Return an expression for exactly one character of the set, in the dialect of the package ``regex``."""
    if not ranges:
        return "(?!)"
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _code(ranges[0][0])
    inverse = complement(ranges)
    if 0 < len(inverse) < len(ranges):
        return f"[^{_items(inverse)}]"
    return f"[{_items(ranges)}]"


def _items(ranges: Ranges) -> str:
    return "".join(_code(first) if first == last else f"{_code(first)}-{_code(last)}" for first, last in ranges)


def _code(code: int) -> str:
    if chr(code).isascii() and chr(code).isalnum():
        return chr(code)
    return f"\\x{code:02x}" if code < 0x100 else f"\\U{code:08x}"


_LOWER, _UPPER, _DIGIT = ranges_of("a-z"), ranges_of("A-Z"), ranges_of("0-9")
LETTERS_ASCII = union(_LOWER, _UPPER)
WORD = union(LETTERS_ASCII, _DIGIT, ranges_of("_"))
SPACE = ranges_of("\t-\r ")
HORIZONTAL_SPACE = ranges_of("\t \xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000")
VERTICAL_SPACE = ranges_of("\n-\r\x85\u2028\u2029")
LINE_ENDS = ranges_of("\n\r\x85\u2028\u2029")
ANY = complement(())

ESCAPED = {"d": _DIGIT, "w": WORD, "s": SPACE, "h": HORIZONTAL_SPACE, "v": VERTICAL_SPACE}
"""What ``\\d`` and its like stand for, ASCII only as in Java; the capital letter is the complement."""

_POSIX = {
    "Lower": _LOWER,
    "Upper": _UPPER,
    "ASCII": ranges_of("\0-\x7f"),
    "Alpha": LETTERS_ASCII,
    "Digit": _DIGIT,
    "Alnum": union(LETTERS_ASCII, _DIGIT),
    "Punct": ranges_of("!-/:-@[-`{-~"),
    "Graph": ranges_of("!-~"),
    "Print": ranges_of(" -~"),
    "Blank": ranges_of("\t "),
    "Cntrl": ranges_of("\0-\x1f\x7f"),
    "XDigit": ranges_of("0-9A-Fa-f"),
    "Space": SPACE,
    "L1": ranges_of("\0-\xff"),
    "all": ANY,
}
_SUBCATEGORIES = {"L": "ultmo", "M": "nec", "N": "dlo", "Z": "slp", "C": "cfosn", "P": "dsecoif", "S": "mcko"}
_CATEGORIES = frozenset(major + minor for major, minors in _SUBCATEGORIES.items() for minor in ("", *minors))
_UNICODE = {
    "ALPHABETIC": r"\p{Alphabetic}",
    "ALPHA": r"\p{Alphabetic}",
    "LETTER": r"\p{L}",
    "DIGIT": r"\p{Nd}",
    "ALNUM": r"\p{Alphabetic}\p{Nd}",
    "LOWERCASE": r"\p{Lowercase}",
    "LOWER": r"\p{Lowercase}",
    "UPPERCASE": r"\p{Uppercase}",
    "UPPER": r"\p{Uppercase}",
    "TITLECASE": r"\p{Lt}",
    "PUNCTUATION": r"\p{P}",
    "PUNCT": r"\p{P}",
    "WHITE_SPACE": r"\p{Z}\t-\r\x85",
    "WHITESPACE": r"\p{Z}\t-\r\x85",
    "SPACE": r"\p{Z}\t-\r\x85",
    "WORD": r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\u200c\u200d",
}
_CASED = frozenset({"Lower", "Upper", "Lu", "Ll", "Lt", "LOWERCASE", "LOWER", "UPPERCASE", "UPPER", "TITLECASE"})


def property_set(name: str, *, ignore_case: bool) -> Ranges | None:
    """Return the characters that Java's ``\\p{name}`` stands for, None for a name that is not known here.

    Known are the POSIX names (ASCII, as in Java), the general categories as ``Lu``, ``IsLu`` and ``gc=Lu``, and the
    common Unicode properties such as ``IsAlphabetic``; not known are scripts, blocks and ``java...`` methods. Under
    ``ignore_case`` nothing that tells cases apart is known: Java's versions disagree there.

    The Unicode version is that of the package ``regex``: younger characters may be unassigned for a given Java.
    """
    key, equals, value = name.partition("=")
    if equals:
        return _category(value, ignore_case) if key.lower() in ("gc", "general_category") else None
    if name in _POSIX:
        return None if _tells_case(name, ignore_case) else _POSIX[name]
    if not name.startswith("Is"):
        return _category(name, ignore_case)
    short = name[2:]
    if short.upper() in _UNICODE:
        return None if _tells_case(short.upper(), ignore_case) else _scan(_UNICODE[short.upper()])
    return _category(short, ignore_case)


def _category(name: str, ignore_case: bool) -> Ranges | None:
    known = name in _CATEGORIES and not _tells_case(name, ignore_case)
    return _scan(rf"\p{{{name}}}") if known else None


def _tells_case(name: str, ignore_case: bool) -> bool:
    return ignore_case and name in _CASED


@functools.cache
def _scan(class_body: str) -> Ranges:
    """Read a property off the package ``regex`` by showing it every character there is; 30 ms, once a property."""
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    return tuple((run.start(), run.end() - 1) for run in regex.finditer(f"[{class_body}]+", every))
