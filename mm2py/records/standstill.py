"""Why topics of a flow are not copied, as workers keep it in ``mm2-status.A.internal``. Pure.

MirrorMaker 2 keeps nothing of this kind: its task is RUNNING while a topic is not copied. Each worker has one record
for each topic that it does not copy, or not completely, and deletes it when it copies all of its part again. The key
names the worker, so no worker overwrites another one's record; the flow coordinator deletes the records of workers that
are gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

FORMAT_VERSION: Final = 1
KEY: Final = "mm2py-standstill-"
CAUSES_MOST: Final = 20
"""How many causes of one topic are kept at most, the first ones, so that a record stays small."""
TEXT_MOST: Final = 1000


@dataclass(frozen=True, slots=True)
class Cause:
    """Why some partitions of a topic are not copied, or none of them."""

    reason: str
    """The value of a ``status.not_copied.Reason``. A reader does not know those of later versions."""
    why: str
    """The reason in words."""
    remedy: str
    """What an operator must do; empty: nothing, the cause ends by itself."""
    since_ms: int
    """Since when, by the worker's clock."""
    partitions: str = ""
    """As ranges, ``0-3,7``. Empty: the whole topic."""


@dataclass(frozen=True, slots=True)
class Standstill:
    """What one worker does not copy of a topic. A record with an empty topic name is about the whole flow."""

    member: str
    """The worker's id in its group."""
    topic: str
    """As the source names it, or as ``topics`` names one that is missing there."""
    causes: tuple[Cause, ...]
    """The most urgent first."""

    @property
    def key(self) -> bytes:
        return f"{KEY}{self.member}-{self.topic}".encode()


def standstill_of(member: str, topic: str, causes: Iterable[Cause]) -> Standstill:
    """Return the record of these causes, the most urgent first; long texts and causes beyond the limit are cut."""
    return Standstill(member, topic, tuple(map(cut_cause, tuple(causes)[:CAUSES_MOST])))


def cut_cause(cause: Cause) -> Cause:
    """Return a cause whose texts are not too long."""
    return replace(cause, why=_cut(cause.why), remedy=_cut(cause.remedy))


def fields_of(standstill: Standstill) -> dict[str, Any]:
    """Return the fields of a record's value."""
    causes = list(map(fields_of_cause, standstill.causes))
    return {"member": standstill.member, "topic": standstill.topic, "causes": causes}


def read_standstill(fields: Mapping[str, Any]) -> Standstill:
    """Return the record with these fields.

    Raises:
        KeyError, TypeError: mm2py writes no such record.
    """
    causes = fields["causes"]
    if not isinstance(causes, list):
        raise TypeError("causes is no list")
    return Standstill(
        _text(fields, "member"), _text(fields, "topic"), tuple(map(cause_of_fields, causes[:CAUSES_MOST]))
    )


def fields_of_cause(cause: Cause) -> dict[str, Any]:
    """Return the fields of one cause."""
    return asdict(cause)


def cause_of_fields(fields: object) -> Cause:
    """Return the cause with these fields.

    Raises: as ``read_standstill``.
    """
    if not isinstance(fields, dict):
        raise TypeError("a cause is no object")
    since_ms = fields["since_ms"]
    if type(since_ms) is not int:
        raise TypeError(f"since_ms is {json.dumps(since_ms)[:40]}")
    why, remedy = _cut(_text(fields, "why")), _cut(_text(fields, "remedy"))
    return Cause(_text(fields, "reason"), why, remedy, since_ms, _text(fields, "partitions"))


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is no text")
    return value


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_MOST else f"{text[: TEXT_MOST - 1]}…"
