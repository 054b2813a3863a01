"""A settings file as ``java.util.Properties`` reads it, plus the line of each key.

MirrorMaker 2 loads its file with ``Properties.load(InputStream)``. The package ``javaproperties`` reads the same; a
test compares both on generated files. They differ for a backslash that continues nothing; such a file is refused. A key
that is set twice is kept as a warning: Java accepts it silently.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import javaproperties

from mm2py.errors import ConfigError
from mm2py.secret import HIDDEN, Secret, may_hold_secret, shown_unknown_key

FILE_MAX_BYTES: Final = 1024 * 1024
_WARNINGS_MAX: Final = 20

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_CONTINUES_NOTHING: Final = re.compile(r"\A[ \t\f]*\\(?:[\r\n]|\Z)|(?<!\\)(?:\\\\)*\\[ \t\f]*(?:\r\n|\r|\n)?\Z")
_HALF_OF_A_CHARACTER: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class PropertyEntry:
    """One value with its key and line. ``line`` is None for a value that no file set."""

    value: str
    key: str
    line: int | None = None
    written: str | None = None
    """The text in the file, if the value came from a config provider."""

    @property
    def text(self) -> str:
        """The value as the file has it, for messages: what a config provider has given is never shown."""
        return self.value if self.written is None else self.written

    def __repr__(self) -> str:
        value = HIDDEN if may_hold_secret(self.key) or not self.value else repr(self.text)
        return f"Entry({shown_unknown_key(self.key, self.value)}={value}, line {self.line})"


@dataclass(frozen=True, slots=True)
class Properties:
    """The entries of one file by key, and what an operator should know about the file itself."""

    entries: Mapping[str, PropertyEntry] = field(repr=False)
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """What is wrong with its references to config providers; no flow runs then."""
    secrets: tuple[Secret, ...] = ()
    """The credentials that config providers have given: no message shows them, not even inside a longer text."""


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


def parse_properties(data: bytes | str) -> Properties:
    """Return what Java reads out of these bytes, or out of a text.

    Raises:
        ConfigError: a ``\\u`` without four hexadecimal digits, as in Java; or half of a UTF-16 character, a byte order
            mark, a backslash that continues nothing, or more than 1 MiB.
    """
    if len(data) > FILE_MAX_BYTES:
        raise ConfigError(f"The file is larger than {FILE_MAX_BYTES:,} bytes.", remedy="Is it a properties file?")
    if data.startswith("\ufeff") if isinstance(data, str) else data.startswith(b"\xef\xbb\xbf"):
        # Java makes it a part of the first key, which then does nothing.
        raise ConfigError("The file begins with a UTF-8 byte order mark.", remedy="Save it without.")
    entries: dict[str, PropertyEntry] = {}
    warnings: list[str] = []
    line = 1
    try:
        for element in javaproperties.parse(data):
            if not isinstance(element, javaproperties.Comment) and _CONTINUES_NOTHING.search(element.source):
                raise ConfigError(
                    f"The entry of line {line} has a backslash that continues nothing.", remedy="Remove the backslash."
                )
            if isinstance(element, javaproperties.KeyValue):
                entry = _entry(element, line)
                earlier = entries.get(entry.key)
                if earlier is not None:
                    warnings.append(
                        f"line {line}: {shown_unknown_key(entry.key, entry.value)} is set again (first in line"
                        f" {earlier.line}); the last one counts"
                    )
                entries[entry.key] = entry
            line += len(_LINE_END.findall(element.source))
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigError(
            f"The entry of line {line} has \\u without four hexadecimal digits.",
            remedy="Write \\uXXXX, or \\\\ for a backslash.",
        ) from error
    if len(warnings) > _WARNINGS_MAX:
        warnings[_WARNINGS_MAX:] = [f"{len(warnings) - _WARNINGS_MAX} more keys are set again; the last one counts"]
    return Properties(entries, tuple(warnings))


def _entry(element: javaproperties.KeyValue, line: int) -> PropertyEntry:
    if _HALF_OF_A_CHARACTER.search(element.key + element.value):
        key = shown_unknown_key(element.key, element.value)
        raise ConfigError(
            f"line {line}: {key} holds half of a character (\\uD800 to \\uDFFF).",
            remedy="Write the character itself, or both of its halves.",
        )
    return PropertyEntry(element.value, element.key, line)
