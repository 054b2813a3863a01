"""The kinds of values that settings have.

The settings themselves are in ``keys.py``. A kind is a function: it says which texts Kafka accepts for a boolean, a
number or a list, and what each text means. As in Kafka 4.2 and later no entry of a list is empty, and equal ones count
once. pydantic is not used: its messages quote the value, which may be a password.

Counterpart: ``ConfigDef`` of Apache Kafka's clients.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

T = TypeVar("T")
Kind = Callable[[str], T]

HostPort = tuple[str, int]

_JAVA_BLANKS = "".join(map(chr, range(0x21)))
_COMMA = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")
_NUMBER = re.compile(r"[+-]?\d+")
_ADDRESS = re.compile(r"(?:([0-9a-zA-Z\-%._]*)://)?(?:\[([0-9a-zA-Z\-%._:]*)\]|([0-9a-zA-Z\-%._]*)):([0-9]+)")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_COMMENT_BEHIND = re.compile(r"\s(?:#|//|!)")


class BadValue(ValueError):
    """A text is not of its kind. The message completes "... is" and repeats nothing of the text but ``at``."""

    def __init__(self, reason: str, *, at: str = "") -> None:
        """``at``: the one entry of a list that is wrong."""
        super().__init__(f"wrong at {at!r}: {reason}" if at else reason)
        self.unquoted = f"wrong: {reason}" if at else reason
        """The message where nothing of the text may be shown."""


def java_trim(text: str) -> str:
    """``String.trim``: drop everything up to and including the blank, control characters among it."""
    return text.strip(_JAVA_BLANKS)


def boolean(text: str) -> bool:
    word = java_trim(text).lower()
    if word not in ("true", "false"):
        raise BadValue(f"neither true nor false{_comment_hint(text)}")
    return word == "true"


def integer(low: int, high: int = 2**31 - 1, *, or_minus_one: bool = False) -> Kind[int]:
    """Return the kind of whole numbers from ``low`` to ``high``, both included; with ``or_minus_one`` also -1."""

    def parse(text: str) -> int:
        trimmed = java_trim(text)
        if not _NUMBER.fullmatch(trimmed):
            raise BadValue(f"not a whole number{_comment_hint(text)}")
        if len(trimmed) > 40 or not (low <= int(trimmed) <= high or (or_minus_one and int(trimmed) == -1)):
            wanted = f"a number from {low:,} to {high:,}" + (", and not -1" if or_minus_one else "")
            raise BadValue(f"not {wanted}")
        return int(trimmed)

    return parse


def string(text: str) -> str:
    return java_trim(text)


def raw(text: str) -> str:
    """The text as it is written, for the few settings that MirrorMaker 2 reads without its own definitions."""
    return text


def name(text: str) -> str:
    trimmed = java_trim(text)
    if not trimmed:
        raise BadValue("empty")
    return trimmed


def topic_name(text: str) -> str:
    trimmed = java_trim(text)
    if not _TOPIC.fullmatch(trimmed) or trimmed in (".", ".."):
        raise BadValue("not a legal topic name (letters, digits, '.', '_', '-'; at most 249)")
    return trimmed


def topic_name_part(text: str) -> str:
    trimmed = java_trim(text)
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,200}", trimmed):
        raise BadValue("not usable in a topic name (letters, digits, '.', '_', '-'; at most 200)")
    return trimmed


def one_of(*choices: str, any_case: bool = False) -> Kind[str]:
    def parse(text: str) -> str:
        trimmed = java_trim(text)
        for choice in choices:
            if trimmed == choice or (any_case and trimmed.lower() == choice.lower()):
                return choice
        raise BadValue(f"not one of {', '.join(choices)}{_comment_hint(text)}")

    return parse


def strings(text: str) -> tuple[str, ...]:
    """A list, separated by commas; equal entries count once. A blank text is the empty list."""
    trimmed = java_trim(text)
    if not trimmed:
        return ()
    items = tuple(dict.fromkeys(_COMMA.split(trimmed)))
    if not all(items):
        raise BadValue("a list with an empty entry")
    return items


def distinct_strings(text: str) -> tuple[str, ...]:
    """A list without duplicates. Kafka drops a duplicate; here that would hide a typing mistake."""
    items = strings(text)
    trimmed = java_trim(text)
    twice = [item for item in items if _COMMA.split(trimmed).count(item) > 1]
    if twice:
        raise BadValue(f"a list that names {', '.join(map(repr, twice[:3]))} twice")
    return items


def addresses(text: str) -> tuple[HostPort, ...]:
    """A non-empty list of ``host:port``, IPv6 addresses in brackets."""
    items = strings(text)
    if not items:
        raise BadValue("empty; write host:port, more of them separated by commas")
    return tuple(_address(item) for item in items)


def _address(text: str) -> HostPort:
    match = _ADDRESS.fullmatch(text)
    if match is None:
        if text.count(":") > 1 and re.fullmatch(r"[0-9a-fA-F:.]+", text):
            raise BadValue("an IPv6 address needs brackets, as in [::1]:9092", at=text)
        if ":" not in text:
            raise BadValue("there is no port", at=text)
        raise BadValue(f"write host:port{_comment_hint(text)}", at=text)
    scheme, bracketed, plain, port = match.groups()
    host = bracketed if bracketed is not None else plain
    if scheme is not None and scheme.upper() != "PLAINTEXT":
        raise BadValue("write the host without a protocol before it, and the protocol as security.protocol", at=text)
    if not host:
        raise BadValue("there is no host", at=text)
    if len(port) > 5 or not 1 <= int(port) <= 65535:
        raise BadValue("the port is not from 1 to 65535", at=text)
    return host, int(port)


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Where a ZooKeeper is, and the node under which everything is kept; ``chroot`` is empty or begins with ``/``."""

    servers: tuple[HostPort, ...]
    chroot: str = ""


def ensemble(text: str) -> Ensemble:
    """``host:port,host:port/chroot``: addresses; after the last one an optional chroot."""
    servers, slash, chroot = java_trim(text).partition("/")
    if "," in chroot:
        raise BadValue("wrong: the chroot stands once, behind the last server, as in h1:2181,h2:2181/chroot")
    chroot = f"/{chroot}".rstrip("/") if slash else ""
    parts = chroot.split("/")[1:]
    if any(not part or part in (".", "..") or not part.isprintable() for part in parts):
        raise BadValue("wrong at its chroot: no part of it may be empty, '.' or '..'")
    return Ensemble(addresses(servers), chroot)


def auto_offset_reset(text: str) -> Literal["earliest", "latest", "none"]:
    match java_trim(text):
        case "earliest":
            return "earliest"
        case "latest":
            return "latest"
        case "none":
            return "none"
    raise BadValue(f"not one of earliest, latest, none{_comment_hint(text)}")


def _comment_hint(text: str) -> str:
    if _COMMENT_BEHIND.search(text):
        return " (in these files a comment has a line of its own; behind a value it belongs to the value)"
    return ""
