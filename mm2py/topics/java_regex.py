"""A pattern of ``java.util.regex``, said in the dialect of the package ``regex``.

MM2's filters are Java patterns. Python's engines read many of them differently without a word: ``\\d`` and ``\\w`` take
in all of Unicode, ``$`` and ``.`` know fewer line ends, ``&&`` and ``\\Q..\\E`` are plain text. So a pattern is parsed
here by Java's grammar and written anew from the few constructs on which both agree. What has no exact counterpart is
refused with its position: a filter must never be silently different.

Refused although Java takes them, because no topic filter needs them or Java's own versions disagree: the flags
``m x d u U``, ``\\R \\X \\G \\N{..} \\b{g}``, scripts, blocks and ``java...`` properties, back references (the package
``regex`` misses matches with them), a quantifier on nothing (``a{2}{3}``), and those corners of ``&&``, of looking
behind and of counted repetition in which Java's own way of matching surprises.
"""

from __future__ import annotations

import functools
from typing import NamedTuple, NoReturn

import regex

from mm2py.topics import character_sets as sets
from mm2py.topics.character_sets import Ranges

MAX_DEPTH = 50
"""Groups or classes inside one another."""
MAX_REPEATS = 10_000
"""Largest count in ``{n,m}``; names are shorter by far, and huge counts cost memory."""

# A word is ASCII, as in Java 19 and later, but an accent written as a mark of its own belongs to the letter before it.
_WORD = sets.as_regex(sets.WORD)
_BEHIND_WORD = rf"(?<={_WORD}|[\p{{L}}\p{{Nd}}]\p{{Mn}}+)"
_BEFORE_WORD = rf"(?:(?={_WORD})|(?<=[\p{{L}}\p{{Nd}}]\p{{Mn}}*)(?=\p{{Mn}}))"
_BOUNDARY = f"(?:{_BEHIND_WORD}(?!{_BEFORE_WORD})|(?!{_BEHIND_WORD}){_BEFORE_WORD})"
_NO_BOUNDARY = f"(?!{_BOUNDARY})"
_END_OR_LAST_LINE_END = r"(?:\Z|(?=\r\n\Z)|(?=[\r\x85\u2028\u2029]\Z)|(?<!\r)(?=\n\Z))"
_ANCHORS = {"A": r"(?:\A)", "b": _BOUNDARY, "B": _NO_BOUNDARY, "Z": _END_OR_LAST_LINE_END, "z": r"(?:\Z)"}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_GROUPS = {":": "(?:", "=": "(?=", "!": "(?!", ">": "(?>", "<=": "(?<=", "<!": "(?<!"}


class NotTranslatable(ValueError):
    """The pattern is no Java pattern, or one whose meaning cannot be kept; ``position`` counts characters from 0."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(f"{reason} at character {position + 1}")
        self.reason = reason
        self.position = position


class _Token(NamedTuple):
    char: str
    quoted: bool
    position: int


def translate(pattern: str) -> str:
    """Return an expression for the package ``regex`` that matches in full what the Java pattern matches in full.

    Raises:
        NotTranslatable: a syntax error, or a construct that is refused.
    """
    return _Parser(pattern).parse()


def _tokens(pattern: str) -> list[_Token]:
    """Take ``\\Q..\\E`` out. Java does so before it parses, so a quotation may stand in a class or span a bracket."""
    found: list[_Token] = []
    quoted, at = False, 0
    while at < len(pattern):
        pair = pattern[at : at + 2]
        if quoted:
            if pair == "\\E":
                quoted = False
                at += 2
            else:
                found.append(_Token(pattern[at], True, at))
                at += 1
        elif pair == "\\Q":
            quoted = True
            at += 2
        else:
            step = 2 if pair[0] == "\\" else 1
            found.extend(_Token(char, False, at + i) for i, char in enumerate(pair[:step]))
            at += step
    return found


class _Parser:
    """Recursive descent over Java's grammar. Each method consumes what it is named for and returns its translation."""

    def __init__(self, pattern: str) -> None:
        self._tokens = _tokens(pattern)
        self._end = len(pattern)
        self._at = 0
        self._depth = 0
        self._ignore_case = False
        self._dot_all = False
        self._behind = 0
        self._conditions = 0
        """How many parts read so far depend on more than the text they match: anchors, looks, atomic parts."""
        self._group_names: set[str] = set()

    def parse(self) -> str:
        translated = self._alternatives()
        if self._at < len(self._tokens):
            self._refuse("there is a ')' without its '('")
        return translated

    # ------------------------------------------------------------------------------------------------ reading

    def _syntax(self, ahead: int = 0) -> str:
        """Return the character that may have a meaning here; "" for a quoted one, and at the end."""
        at = self._at + ahead
        return "" if at >= len(self._tokens) or self._tokens[at].quoted else self._tokens[at].char

    def _position(self) -> int:
        return self._tokens[self._at].position if self._at < len(self._tokens) else self._end

    def _take(self, syntax: str) -> bool:
        if all(self._syntax(i) == char for i, char in enumerate(syntax)):
            self._at += len(syntax)
            return True
        return False

    def _next(self, within: str) -> _Token:
        if self._at == len(self._tokens):
            self._refuse(f"{within} is not finished")
        self._at += 1
        return self._tokens[self._at - 1]

    def _digits(self, allowed: str, most: int) -> str:
        found = ""
        while len(found) < most and self._syntax() and self._syntax() in allowed:
            found += self._next("a number").char
        return found

    def _refuse(self, reason: str, position: int | None = None) -> NoReturn:
        raise NotTranslatable(reason, self._position() if position is None else position)

    # ------------------------------------------------------------------------------------------------ structure

    def _alternatives(self) -> str:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        return "|".join(branches)

    def _sequence(self) -> str:
        parts = []
        while self._at < len(self._tokens) and self._syntax() not in ("|", ")"):
            conditions = self._conditions
            atom = self._atom()
            if atom:
                parts.append(self._quantified(atom, conditional=self._conditions > conditions))
        return "".join(parts)

    def _atom(self) -> str:
        """Return one thing that a quantifier would apply to, "" for a group of flags."""
        start = self._position()
        if self._take("("):
            return self._group(start)
        if self._take("["):
            return sets.as_regex(self._class(start))
        if self._take("\\"):
            return self._escape(start)
        token = self._next("the pattern")
        match "" if token.quoted else token.char:
            case "^":
                return self._anchor("A")
            case "$":
                return self._anchor("Z")
            case ".":
                return sets.as_regex(sets.ANY if self._dot_all else sets.complement(sets.LINE_ENDS))
            case "?" | "*" | "+" | "{" as quantifier:
                self._refuse(f"there is nothing for '{quantifier}' to repeat", start)
        return self._literal(ord(token.char))

    def _anchor(self, letter: str) -> str:
        self._conditions += 1
        return _ANCHORS[letter]

    def _literal(self, code: int) -> str:
        return sets.as_regex(self._cased(((code, code),)))

    def _cased(self, ranges: Ranges) -> Ranges:
        return sets.in_both_cases(ranges) if self._ignore_case else ranges

    def _quantified(self, atom: str, *, conditional: bool) -> str:
        """Return an atom with the quantifier behind it, if there is one; ``conditional``: see ``_conditions``."""
        start = self._position()
        least, most = 0, None
        if self._take("?"):
            most = 1
        elif self._take("+"):
            least = 1
        elif self._take("{"):
            least, most = self._counts(start)
        elif not self._take("*"):
            return atom
        if self._behind and most is None:
            self._refuse("a look behind must have a greatest length", start)
        if atom.startswith("("):
            self._refuse_behind("a repeated group", start)
        if conditional and (least > 1 or (most or 0) > 1):
            # Java skips the rounds that are left after an empty one, even those that the count demands.
            self._refuse("a counted repetition must hold no anchor, look-around, atomic or possessive part", start)
        times = f"{{{least},{'' if most is None else most}}}"
        if self._take("?"):
            return f"{atom}{times}?"
        if self._take("+"):
            self._refuse_behind("a possessive quantifier", start)
            self._conditions += 1
            # Java keeps the first way in which each single round matches, not only all rounds together.
            return f"(?>(?>{atom}){times})"
        return f"{atom}{times}"

    def _refuse_behind(self, what: str, start: int) -> None:
        """The package ``regex`` looks behind from right to left: what keeps its first choice would choose another."""
        if self._behind:
            self._refuse(f"{what} is not supported in a look behind", start)

    def _counts(self, start: int) -> tuple[int, int | None]:
        least = self._digits("0123456789", 10)
        most: str | None = least
        if self._take(","):
            most = self._digits("0123456789", 10) or None
        if not least or not self._take("}"):
            self._refuse("'{' does not begin a count such as {2} or {2,5}; write a literal brace as \\{", start)
        if max(int(least), int(most or 0)) > MAX_REPEATS:
            self._refuse(f"no count may be over {MAX_REPEATS}", start)
        if most is not None and int(most) < int(least):
            self._refuse("the greatest count is below the least one", start)
        return int(least), None if most is None else int(most)

    def _group(self, start: int) -> str:
        """Return a group with its brackets; its opening bracket has been read. Flags end with the group they are in."""
        flags = self._ignore_case, self._dot_all
        opening = self._group_opening(start) if self._take("?") else "(?:"
        if not opening:
            return ""
        if opening == "(?>":
            self._refuse_behind("an atomic group", start)
        behind = opening.startswith("(?<")
        self._behind += behind
        self._deeper(start)
        body = self._alternatives()
        self._depth -= 1
        self._behind -= behind
        self._conditions += opening != "(?:"
        if not self._take(")"):
            self._refuse("a group is not closed", start)
        self._ignore_case, self._dot_all = flags
        return f"{opening}{body})"

    def _group_opening(self, start: int) -> str:
        """Return the opening of a group that began with ``(?``, "" for flags that stand alone."""
        for kind, opening in _GROUPS.items():
            if self._take(kind):
                return opening
        if self._take("<"):
            name = self._group_name(start)
            if name in self._group_names:
                self._refuse(f"there are two groups named {name}", start)
            self._group_names.add(name)
            return "(?:"
        on = True
        while self._syntax() and self._syntax() in "-isumxdUc":
            flag = self._next("a flag").char
            if flag == "-":
                if not on:
                    self._refuse("a group of flags has two '-'", start)
                on = False
            elif flag == "i":
                self._ignore_case = on
            elif flag == "s":
                self._dot_all = on
            else:
                self._refuse(f"the flag '{flag}' is not supported, only 'i' and 's' are", start)
        if self._take(")"):
            return ""
        if not self._take(":"):
            self._refuse("'(?' does not begin any known group", start)
        return "(?:"

    def _group_name(self, start: int) -> str:
        name = ""
        while self._syntax().isascii() and self._syntax().isalnum():
            name += self._next("a group name").char
        if not self._take(">") or not name or name[0].isdigit():
            self._refuse("a group name is letters and digits, a letter first, up to '>'", start)
        return name

    def _deeper(self, start: int) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._refuse(f"more than {MAX_DEPTH} brackets are open", start)

    # ------------------------------------------------------------------------------------------------ escapes

    def _escape(self, start: int) -> str:
        """Return the translation of an escape outside a class; its backslash has been read."""
        letter = self._syntax()
        if letter in ("k", *"123456789"):
            self._refuse("back references are not supported", start)
        if letter in _ANCHORS:
            self._at += 1
            if letter == "b" and self._syntax() == "{":
                self._refuse("\\b{..} is not supported", start)
            return self._anchor(letter)
        named = self._named_set(start)
        return self._literal(self._escaped_code(start)) if named is None else sets.as_regex(named)

    def _named_set(self, start: int) -> Ranges | None:
        """Return the set of ``\\d``, ``\\p{..}`` and the like, or None when the escape is for one character."""
        letter = self._syntax()
        if letter and letter in "pP":
            self._at += 1
            found = self._property(start)
        elif letter.lower() in sets.ESCAPED:
            self._at += 1
            found = sets.ESCAPED[letter.lower()]
        else:
            return None
        return sets.complement(found) if letter.isupper() else found

    def _property(self, start: int) -> Ranges:
        name = ""
        if self._take("{"):
            while not self._take("}"):
                name += self._next("\\p{..}").char
        else:
            name = self._next("\\p").char
        found = sets.property_set(name, ignore_case=self._ignore_case)
        if found is None:
            self._refuse(f"the property {name!r} is unknown or not supported here", start)
        return found

    def _escaped_code(self, start: int) -> int:
        """Return the code point of an escape that stands for one character."""
        char = self._next("an escape").char
        code: int | None = None
        match char:
            case "0":
                digits = self._digits("01234567", 3 if self._syntax() in tuple("0123") else 2)
                code = int(digits, 8) if digits else None
            case "x" if self._take("{"):
                digits = self._digits("0123456789abcdefABCDEF", 8)
                code = int(digits, 16) if digits and self._take("}") else None
            case "x" | "u":
                length = 2 if char == "x" else 4
                digits = self._digits("0123456789abcdefABCDEF", length)
                code = int(digits, 16) if len(digits) == length else None
            case "c":
                control = self._next("\\c").char
                code = ord(control) ^ 64 if control.isascii() else None
            case _ if char in _CONTROLS:
                code = ord(_CONTROLS[char])
            case _ if not (char.isascii() and char.isalnum()):
                code = ord(char)
        if code is None or code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            self._refuse(f"the escape \\{char} is unknown, unfinished or not supported here", start)
        return code

    # ------------------------------------------------------------------------------------------------ classes

    def _class(self, start: int) -> Ranges:
        """Return the set of a class; its ``[`` has been read.

        Java gives ``&&`` a parser of its own with surprises. Where a plain reading (unions of items, intersected) and
        Java's would part, the class is refused.
        """
        self._deeper(start)
        negated = self._take("^")
        found = self._operand(start, first=True)
        while self._take("&&"):
            found = sets.intersection(found, self._operand(start, first=False))
        if not self._take("]"):
            self._refuse("a character class is not closed", start)
        self._depth -= 1
        return sets.complement(found) if negated else found

    def _operand(self, start: int, *, first: bool) -> Ranges:
        """Return the union of the items up to ``&&`` or ``]``; a ``]`` that comes first of all is an item."""
        if (not first and self._syntax() in ("&", "^")) or (first and self._take("&&")):
            self._refuse("'&&' needs a set on both sides, and no '&' or '^' right behind it", start)
        items: list[Ranges] = []
        begins_nested, has_plain = self._syntax() == "[", False
        while self._at < len(self._tokens) and not self._at_operand_end(anything_read=bool(items) or not first):
            nested_at = self._position()
            if self._take("["):
                items.append(self._class(nested_at))
            else:
                if not first and begins_nested and self._syntax() == "&":
                    self._refuse("a single '&' behind '&&[..]' is ambiguous; write \\&", start)
                has_plain = True
                items.append(self._item(start))
        if not items:
            self._refuse("a character class is not closed, or '&&' has an empty side", start)
        if not first and begins_nested and has_plain and self._syntax() == "&":
            self._refuse("'&&[..]x&&' is ambiguous; put brackets around each side", start)
        return sets.union(*items)

    def _at_operand_end(self, *, anything_read: bool) -> bool:
        return (self._syntax() == "]" and anything_read) or (self._syntax() == "&" and self._syntax(1) == "&")

    def _item(self, start: int) -> Ranges:
        """Return one character, one range or one escaped set of a class."""
        low = self._item_code(start)
        if isinstance(low, tuple):
            return low
        high = low
        if self._syntax() == "-" and self._syntax(1) not in ("[", "]"):
            self._at += 1
            high_or_set = self._item_code(start)
            if isinstance(high_or_set, tuple) or high_or_set < low:
                self._refuse("a range in a character class does not go upwards", start)
            high = high_or_set
        return self._cased(((low, high),))

    def _item_code(self, start: int) -> int | Ranges:
        if not self._take("\\"):
            return ord(self._next("a character class").char)
        escape_at = self._tokens[self._at - 1].position
        if self._syntax() == "v" and self._syntax(1) == "-":
            self._refuse("\\v cannot begin a range", escape_at)
        named = self._named_set(escape_at)
        return self._escaped_code(escape_at) if named is None else named


@functools.lru_cache(maxsize=256)
def compile_java(pattern: str) -> regex.Pattern[str]:
    """Return the compiled translation; ask it with ``fullmatch`` and a timeout.

    Raises:
        NotTranslatable: see ``translate``.
    """
    try:
        return regex.compile(translate(pattern), regex.V0 | regex.UNICODE)
    except regex.error as error:
        raise NotTranslatable(f"the pattern cannot be compiled ({error})", 0) from error
