"""The record of a fence: what it adds and what was there before, stored before anything is changed. Pure.

One record replaces the one before it. ``serial`` grows with each, on both clusters alike, so of two copies the one with
the higher serial counts. The last record of a fence says that it was lifted; nothing is deleted.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from mm2py import __version__
from mm2py.errors import Mm2Error
from mm2py.records.author import UNKNOWN, Author, author_of, plain, with_reason
from mm2py.topics.acls import Operation, Pattern, Permission, TopicAcl

FORMAT: Final = 1
"""The version of the layout. A reader that is older than ``readable_from`` of a record must not act on it."""
BINDINGS_MOST: Final = 10_000
"""How many bindings one fence adds at most: the record names each."""
TEXT_MOST: Final = 300
ANY_HOST: Final = "*"


class FencedKind(StrEnum):
    """What a binding of the fence is about."""

    TOPIC = "topic"
    TRANSACTIONAL_ID = "transactional id"


class FenceWay(StrEnum):
    """How a fence stops producers."""

    ACLS = "ACLs"
    HOOK = "hook"
    SIZE = "max.message.bytes"


class FenceState(StrEnum):
    """How far a fence is, by the last step that was begun."""

    RAISING = "raising"
    STANDING = "standing"
    LIFTING = "lifting"
    LIFTED = "lifted"


@dataclass(frozen=True, slots=True, order=True)
class FenceBinding:
    """One ACL of a fence: DENY WRITE from any host, on the topic or the transactional id of exactly this name."""

    kind: FencedKind
    name: str
    principal: str

    @property
    def acl(self) -> TopicAcl:
        """The same as brokers list it. ACLs of transactional ids have the same form as those of topics."""
        return TopicAcl(
            self.name,
            int(Pattern.LITERAL),
            self.principal,
            ANY_HOST,
            int(Operation.WRITE),
            int(Permission.DENY),
        )

    def __str__(self) -> str:
        return f"DENY WRITE on {self.kind} {self.name} for {self.principal}"


@dataclass(frozen=True, slots=True)
class FenceRecord:
    """What is known of the fence of one flow."""

    flow: str
    serial: int
    mark: str
    """Random, of the process that wrote it: tells whether its record counts, or another one with that serial."""
    state: FenceState
    way: FenceWay
    topics: tuple[str, ...]
    """The fenced topics, as the source names them."""
    bindings: tuple[FenceBinding, ...] = ()
    """The bindings that the fence adds: none of them was there before."""
    sizes: Mapping[str, str | None] = field(default_factory=dict)
    """By topic, the value of ``max.message.bytes`` that it had of its own before the fence; None: it had none."""
    hook: str = ""
    """The program of the hook, without its arguments, which may hold a secret."""
    at_ms: int = 0
    by: str = ""
    """Who asked, in words."""
    author: Author = UNKNOWN

    @property
    def is_up(self) -> bool:
        """Whether anything of it may be in force."""
        return self.state is not FenceState.LIFTED

    @property
    def who_and_why(self) -> str:
        """Who asked, and why, in words."""
        return with_reason(self.by or "an unknown user", self.author.reason)


class FenceTooNew(Mm2Error):
    """A newer mm2py has written the record of a fence in a way that this one cannot read."""

    def __init__(self, version: str) -> None:
        super().__init__(
            f"The record of the fence was written by mm2py {version}, in a way that this one cannot read.",
            remedy="Use that version: this one would not know what to give back.",
        )


class FenceUnreadable(Mm2Error):
    """A record of a fence is none that mm2py writes. Nothing is changed by guess."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"A record of a fence cannot be read: {why}.",
            remedy="Look who else writes to that topic. What the fence had added is in the records before it"
            " (kafka-console-consumer.sh); remove it by hand, then delete the topic.",
        )


def counting(records: Iterable[FenceRecord]) -> FenceRecord | None:
    """Return the record that counts, of those of one flow in the order of a log.

    A record counts if its serial is higher than that of the one that counted before. So of two that were written at the
    same time, the first in the log counts, and the writer of the second sees that it lost.
    """
    found: FenceRecord | None = None
    for record in records:
        if found is None or record.serial > found.serial:
            found = record
    return found


def fences_up(records: Collection[FenceRecord]) -> list[FenceRecord]:
    """Return the record of each flow whose fence may be in force, of those in the order of a log."""
    last = (counting(one for one in records if one.flow == flow) for flow in sorted({one.flow for one in records}))
    return [one for one in last if one is not None and one.is_up]


def fence_key(flow: str) -> bytes:
    """Return the key of the records of a flow's fence."""
    return flow.encode()


def encode_fence(record: FenceRecord) -> bytes:
    """Return the value of a record."""
    by_name: dict[tuple[FencedKind, str], list[str]] = {}
    for one in record.bindings:
        by_name.setdefault((one.kind, one.name), []).append(one.principal)
    fields = {
        "format": FORMAT,
        "readable_from": FORMAT,
        "mm2py": __version__,
        "flow": record.flow,
        "serial": record.serial,
        "mark": record.mark,
        "state": record.state,
        "way": record.way,
        "topics": record.topics,
        "bindings": [
            {"kind": kind, "name": name, "principals": principals} for (kind, name), principals in by_name.items()
        ],
        "sizes": dict(record.sizes),
        "hook": record.hook,
        "at_ms": record.at_ms,
        "by": record.by[:TEXT_MOST],
        **record.author.fields,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_fence(value: bytes) -> FenceRecord:
    """Return a record.

    Raises:
        FenceTooNew: only a newer mm2py understands it.
        FenceUnreadable: mm2py writes no such record.
    """
    try:
        fields: Any = json.loads(value)
        if not isinstance(fields, dict):
            raise TypeError
        if _number(fields["readable_from"]) > FORMAT:
            raise FenceTooNew(plain(fields.get("mm2py"), 40) or "of a later version")
        bindings = [
            FenceBinding(FencedKind(one["kind"]), _text(one["name"]), _text(principal))
            for one in fields["bindings"]
            for principal in one["principals"]
        ]
        sizes = {_text(topic): None if size is None else _text(size) for topic, size in fields["sizes"].items()}
        return FenceRecord(
            flow=_text(fields["flow"]),
            serial=_number(fields["serial"]),
            mark=_text(fields["mark"]),
            state=FenceState(fields["state"]),
            way=FenceWay(fields["way"]),
            topics=tuple(map(_text, fields["topics"])),
            bindings=tuple(sorted(bindings)),
            sizes=sizes,
            hook=plain(fields["hook"], TEXT_MOST),
            at_ms=_number(fields["at_ms"]),
            by=plain(fields["by"], TEXT_MOST),
            author=author_of(fields),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FenceUnreadable(f"{type(error).__name__} in {len(value)} bytes") from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    return value
