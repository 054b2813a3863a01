"""One event, and the cursor that names a place in all topics that events come from. Pure.

A cursor is the id of a server-sent event. With the last cursor a stream continues at any worker, because the cursor
says how far each partition was read, and not what this process has sent.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from pydantic import Field

from mm2py.moments import MOMENTS, moment_ms
from mm2py.status.bodies import JsonBody
from mm2py_rest.errors import RestError

CURSOR_MOST: Final = 16_000
_PART: Final = re.compile(r"[0-9a-f]{8}[0-9a-f]{1,16}")


class EventKind(StrEnum):
    """What has happened."""

    SETTINGS_CHANGED = "settings.changed"
    CONNECTOR_STATE = "connector.state"
    """A connector was paused, stopped or resumed."""
    DIRECTION = "flow.direction"
    """A flow was turned on, or is standby from then on."""
    TOPIC_STATE = "topic.state"
    """A topic or a partition was paused or resumed."""
    RESTART = "restart"
    """A connector, a topic or a partition is to restart."""
    GROUP_MOVED = "group.moved"
    """The offsets of a consumer group were committed on the other cluster."""
    LOG_LEVEL = "log.level"
    BACKFILL = "backfill"
    """A backfill has begun, was resumed, or has ended."""
    AUDIT = "audit"
    """A call over REST that changes something, or would have: who, what, and what came of it."""
    GAP = "gap"
    """A gap was found, or something was done about one."""
    QUARANTINED = "quarantined"
    MEMBER_JOINED = "member.joined"
    MEMBER_LEFT = "member.left"
    MEMBER_EVICTED = "member.evicted"
    LEADER_ELECTED = "leader.elected"
    ASSIGNMENT_CHANGED = "assignment.changed"
    NOT_COPIED = "not-copied"
    """A worker does not copy a topic or a flow from now on, or copies it again. Only ``/history`` tells it."""
    VERDICT = "verdict"
    """Whether it is safe to fail over has changed. Only ``/history`` tells it."""
    LAG = "lag"
    """A flow has fallen behind by more than a minute, ten minutes or an hour, or keeps up again. Only ``/history``."""
    EVENTS_MISSED = "events.missed"
    """Between the last event and the next one there were others, which this process cannot tell."""


class Event(JsonBody):
    """Something that has happened to a flow or to a group of workers."""

    kind: EventKind
    """What it is; also the ``event`` of the server-sent event."""
    at_ms: int = Field(examples=[1764000000000])
    """When, by the clock of the writer; of members, leaders and assignments by that of the target's brokers."""
    flow: str | None = Field(default=None, examples=["A->B"])
    """The flow; null: it concerns a group, or a call that names no flow."""
    group: str | None = Field(default=None, examples=["mm2py on B"])
    """The group of workers and its target, as ``mm2py on B``; null: it concerns a flow."""
    text: str
    """The same in a sentence."""
    data: Mapping[str, Any]
    """The same for programs, by kind; see docs/v1.md."""


class Happened(NamedTuple):
    """An event and its place."""

    key: str
    """The partition, see ``key_of``."""
    offset: int
    is_old: bool
    """The record was already there when this process began to read the partition."""
    event: Event


Cursor = Mapping[str, int]
"""The next offset of partitions, by ``key_of``."""


class WrongEventCursor(RestError):
    """The text is no cursor."""

    def __init__(self) -> None:
        super().__init__(400, "Last-Event-ID is no id of these events.")


class WrongSince(RestError):
    """The text is neither a cursor nor a time."""

    def __init__(self) -> None:
        super().__init__(400, f"since is no id of these events, and no time: write {MOMENTS}.")


def key_of(cluster: str, topic: str, partition: int) -> str:
    """Return a short name of a partition: a hash of 8 digits, as a cursor may name hundreds."""
    return f"{zlib.crc32(f'{cluster}/{topic}/{partition}'.encode()):08x}"


def written(cursor: Cursor) -> str:
    """Return a cursor as the id of an event."""
    return ".".join(f"{key}{offset:x}" for key, offset in sorted(cursor.items()))


def read(text: str) -> dict[str, int]:
    """Return the cursor that ``written`` wrote. Raises: WrongEventCursor."""
    parts = text.split(".") if text else []
    if len(text) > CURSOR_MOST or not all(map(_PART.fullmatch, parts)):
        raise WrongEventCursor
    return {part[:8]: int(part[8:], 16) for part in parts}


def read_since(text: str, now_ms: int) -> tuple[dict[str, int] | None, int | None]:
    """Return the cursor that ``since`` names, or the time in epoch milliseconds. A text of digits only is a time.

    Raises:
        WrongSince: it is neither.
    """
    from_ms = moment_ms(text, now_ms)
    if from_ms is not None:
        return None, from_ms
    try:
        return read(text), None
    except WrongEventCursor:
        raise WrongSince from None
