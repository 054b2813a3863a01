"""A settings file as ``java.util.Properties`` reads it, plus the line of each key.

MirrorMaker 2 loads its file with ``Properties.load(InputStream)``: bytes are ISO-8859-1, ``\\uXXXX`` names a UTF-16
unit, ``=``, ``:`` or blanks separate, ``#`` and ``!`` begin a comment only where a line begins, an odd number of
backslashes at the end of a line continues it, the last of equal keys wins. What Java swallows without a word is kept
as a warning here: equal keys, a byte order mark. A test compares this module with the JVM on generated files.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mm2py.config.secrets import HIDDEN, may_hold_secret, shown_unknown_key
from mm2py.errors import ConfigError

FILE_MAX_BYTES = 16 * 1024 * 1024
ENTRY_MAX_CHARS = 1024 * 1024
KEYS_MAX = 100_000
_WARNINGS_MAX = 20

_NATURAL_LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
_KEY = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*(?:[=:][ \t\f]*)?")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"
_TORN = re.compile(r"\\[ \t\f]+\Z")
_UTF8_BOM = "\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Entry:
    """One value with where it came from. ``line`` is None for a value that no file set.

    ``stray`` says why the line may be a piece of the value before it, if it looks so: then an unknown key is not shown.
    """

    value: str
    key: str
    line: int | None = None
    stray: str = field(default="", compare=False)

    def __repr__(self) -> str:
        value = HIDDEN if may_hold_secret(self.key) or self.stray else repr(self.value)
        return f"Entry({shown_unknown_key(self.key, self.stray)}={value}, line {self.line})"


@dataclass(frozen=True, slots=True)
class Properties:
    """The entries of one file by key, and what an operator should hear about the file itself."""

    entries: Mapping[str, Entry] = field(repr=False)
    warnings: tuple[str, ...] = ()


def read_properties(path: Path) -> Properties:
    """Return what the file holds.

    Raises:
        ConfigError: the file cannot be read, is no plain file, is not text, is too large, or has a malformed escape.
    """
    try:
        # Without O_NONBLOCK the opening of a FIFO would wait for a writer, for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                kind = "a directory" if stat.S_ISDIR(mode) else "not a plain file"
                raise ConfigError(f"{path} is {kind}.", remedy="Name a properties file.")
            data = file.read(FILE_MAX_BYTES + 1)
    except ValueError as error:
        raise ConfigError(f"{str(path)!a} is not a file name.", remedy="Name a properties file.") from error
    except IsADirectoryError as error:
        raise ConfigError(f"{path} is a directory.", remedy="Name a properties file.") from error
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno is not None else "unreadable"
        raise ConfigError(f"Cannot read {path}: {reason}.", remedy="Check its name and its rights.") from error
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ConfigError(f"{path} is UTF-16.", remedy="Save it as ISO-8859-1, other characters as \\uXXXX.")
    try:
        return parse_properties(data)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.what}", remedy=error.remedy) from error


def parse_properties(data: bytes) -> Properties:
    """Return what Java reads out of these bytes.

    Raises:
        ConfigError: a ``\\u`` without four hexadecimal digits, as in Java; or a limit is passed: 16 MiB in all,
            1 MiB in one entry, 100,000 keys.
    """
    if len(data) > FILE_MAX_BYTES:
        raise ConfigError(f"The file is larger than {FILE_MAX_BYTES:,} bytes.", remedy="Is it a properties file?")
    text = data.decode("latin-1")
    entries: dict[str, Entry] = {}
    warnings: list[str] = []
    if text.startswith(_UTF8_BOM):
        warnings.append(
            "the file begins with a UTF-8 byte order mark, which becomes part of its first line; save it without"
        )
    for line, logical, torn in _logical_lines(text):
        key_match = _KEY.match(logical)
        assert key_match is not None  # noqa: S101  the pattern matches nothing at all, too
        separator = _SEPARATOR.match(logical, key_match.end())
        assert separator is not None  # noqa: S101
        key = _unescape(key_match.group(), line)
        value = _unescape(logical[separator.end() :], line)
        stray = "it stands alone in its line" if key_match.end() == len(logical) else ""
        stray = "the line before ends in a backslash with a blank behind it" if torn else stray
        earlier = entries.get(key)
        if earlier is not None:
            warnings.append(
                f"line {line}: {shown_unknown_key(key, stray)} is set again (first in line {earlier.line});"
                " the last one counts"
            )
        entries[key] = Entry(value, key, line, stray)
        if len(entries) > KEYS_MAX:
            raise ConfigError(f"There are more than {KEYS_MAX:,} keys.", remedy="Is it a properties file?")
    if len(warnings) > _WARNINGS_MAX:
        warnings[_WARNINGS_MAX:] = [f"{len(warnings) - _WARNINGS_MAX} more keys are set again; the last one counts"]
    return Properties(entries, tuple(warnings))


def bom_hides_a_key(properties: Properties) -> Entry | None:
    """Return the first entry if a byte order mark made its name another than its author meant."""
    for key, entry in properties.entries.items():
        if key.startswith(_UTF8_BOM) and key[len(_UTF8_BOM) :].strip() and key[len(_UTF8_BOM)] not in "#!":
            return entry
    return None


def _logical_lines(text: str) -> list[tuple[int, str, bool]]:
    """Join continued lines, drop blank and comment lines.

    Returns:
        Each with the number of the line it begins in, and whether a backslash with blanks behind it ends what stands
        before it: its author may have meant it as a continuation.
    """
    logical_lines: list[tuple[int, str, bool]] = []
    torn = False
    parts: list[str] = []
    chars = 0
    first_line = 0
    for number, match in enumerate(_NATURAL_LINE.finditer(text), start=1):
        line, terminator = match.groups()
        if not terminator and not line:
            break  # the empty match behind the last terminator
        line = line.lstrip(_BLANKS)
        at_end = match.end() == len(text)
        if chars == 0 and (not line or line[0] in "#!"):
            # Also behind a lone backslash: Java 9 and later take the next line for a new one.
            parts.clear()
            continue
        if chars == 0:
            first_line = number
        backslashes = len(line) - len(line.rstrip("\\"))
        continued = backslashes % 2 == 1
        part = line[:-1] if continued else line
        parts.append(part)
        chars += len(part)
        if chars > ENTRY_MAX_CHARS:
            raise ConfigError(
                f"The entry of line {first_line} is longer than {ENTRY_MAX_CHARS:,} characters.",
                remedy="Is it a properties file?",
            )
        if not continued:
            logical_lines.append((first_line, "".join(parts), torn))
            torn = _TORN.search(line) is not None
            parts.clear()
            chars = 0
        elif at_end and (chars or terminator != "\r\n"):
            # A backslash as the very last thing still makes an entry, if need be one with an empty key.
            logical_lines.append((first_line, "".join(parts), torn))
            return logical_lines
    if chars:
        logical_lines.append((first_line, "".join(parts), torn))
    return logical_lines


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        code, char = match.groups()
        if code is not None:
            return chr(int(code, 16))
        if char == "u":
            raise ConfigError(
                f"The entry of line {line} has \\u without four hexadecimal digits.",
                remedy="Write \\uXXXX, or \\\\ for a backslash.",
            )
        return _CONTROL.get(char, char)

    units = _ESCAPE.sub(replace, text)
    # Two escapes may be the halves of one character beyond U+FFFF.
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
