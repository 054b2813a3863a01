"""What operators ask of a running connector, as records of the configs topic: to pause, stop, resume or restart. Pure.

Connect keeps ``target-state-<name>`` with ``{"state":"PAUSED","state.v2":"STOPPED"}``: readers before Kafka 3.5 do not
know STOPPED and use ``state``. Ours also says who asked, when and why; Connect ignores these fields. A target state
applies until the next one.

Restarts count once, for workers that run when they are written: ``restart-connector-<name>`` is Connect's, with
``{"include-tasks":true,"only-failed":false}``; ``mm2py-restart`` is ours, for one topic or partition of a flow.
``logger-cluster-root`` is Connect's as well, and counts once in the same way: all workers log more, or less.
Source: KafkaConfigBackingStore, Apache Kafka, connect/runtime.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeGuard

from mm2py.records.author import UNKNOWN, Author, author_of, plain, with_reason

TARGET_STATE: Final = b"target-state-"
RESTART_CONNECTOR: Final = b"restart-connector-"
RESTART_PARTITIONS: Final = b"mm2py-restart"
LOG_LEVEL: Final = b"logger-cluster-root"
FORMAT_VERSION: Final = 1
"""Format of our own record. A reader that is older than ``readable_from`` in it skips it."""
NUMBER_MOST: Final = (1 << 63) - 1
"""The largest number that mm2py writes; a larger one in a record is not from mm2py."""
BY_MOST: Final = 200
"""How many characters of ``by``, the text that says who asked, are kept."""


class MalformedRequest(ValueError):
    """A record is not what Connect or mm2py writes under its key."""


class TargetState(StrEnum):
    """Connect's names for the requested states of a connector, and one of ours."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    """The connector runs nowhere, and its tasks stay assigned."""
    STOPPED = "STOPPED"
    """As ``PAUSED``, and its offsets may be altered."""
    STANDBY = "STANDBY"
    """As ``PAUSED``, because the flow is standby (``direction_record.py``). No record of Connect's has it."""
    BOTH_ON = "BOTH-ON"
    """Likewise, because the flow back is on as well, and only one of the two may be."""


OF_DIRECTION: Final = frozenset({TargetState.STANDBY, TargetState.BOTH_ON})
"""States that follow from the direction of the flow, not from a request to a connector."""


@dataclass(frozen=True, slots=True)
class Target:
    """The requested state of a connector, and who asked for it."""

    state: TargetState
    by: str = ""
    """Who asked, in words; empty if another writer than mm2py asked."""
    at_ms: int | None = None
    offset: int = -1
    """Its offset in the configs topic: workers use it to report which request they have followed."""
    author: Author = UNKNOWN
    """Who asked, for programs, and why."""

    @property
    def word(self) -> str:
        """The state of the connector once the request is done: running, paused, stopped, standby or both-on."""
        return "running" if self.state is TargetState.STARTED else self.state.lower()

    @property
    def text(self) -> str:
        """The state with who asked for it and why, in words."""
        if self.state is TargetState.BOTH_ON:
            return f"{self.word}: {self.by}"
        return f"{self.word} by {told_by(self.by, self.author)}"


RUNNING: Final = Target(TargetState.STARTED)


def told_by(by: str, author: Author) -> str:
    """Return who asked and why, in words; ``by`` is empty if another writer than mm2py asked."""
    return with_reason(by or "another writer of the configs topic than mm2py", author.reason)


def target_key(connector: str) -> bytes:
    return TARGET_STATE + connector.encode()


def encode_target(target: Target) -> bytes:
    """Return the value with Connect's fields and ours."""
    old = TargetState.PAUSED if target.state is TargetState.STOPPED else target.state
    author = {"by": target.by[:BY_MOST], "at_ms": target.at_ms, **target.author.fields}
    return dump({"state": old, "state.v2": target.state, **author})


def decode_target(value: bytes, offset: int) -> Target:
    """Return a target state.

    Raises:
        MalformedRequest: it is no target state. Then the previous one is kept, as in Connect.
    """
    fields = load(value)
    named = fields.get("state.v2")
    if not isinstance(named, str):
        named = str(fields.get("state"))
    try:
        state = TargetState(named)
    except ValueError:
        state = TargetState.STANDBY
    if state in OF_DIRECTION:
        raise MalformedRequest("it names no state that Connect knows")
    return Target(state, *read_author(fields), offset, author_of(fields))


@dataclass(frozen=True, slots=True)
class RestartConnector:
    """A request to drain a connector and start it again on every worker. In mm2py it has no separate tasks."""

    connector: str
    only_failed: bool = False
    """Where the connector runs, it continues; where it has failed, it is tried again at once."""
    by: str = field(default="", compare=False)
    """Who asks, in words; empty if another writer than mm2py asks."""
    author: Author = field(default=UNKNOWN, compare=False)


@dataclass(frozen=True, slots=True)
class RestartPartitions:
    """A request to read partitions again from their positions, and to forget batches that were not acknowledged."""

    topic: str
    partition: int | None = None
    """None: all of the topic."""
    by: str = field(default="", compare=False)
    """As in ``RestartConnector``."""
    author: Author = field(default=UNKNOWN, compare=False)


Restart = RestartConnector | RestartPartitions


def encode_restart(restart: Restart, *, request_id: str, at_ms: int) -> tuple[bytes, bytes]:
    """Return key and value; ``request_id`` distinguishes two requests for the same partitions."""
    author = {"by": restart.by[:BY_MOST], "at_ms": at_ms, **restart.author.fields}
    if isinstance(restart, RestartConnector):
        fields = {"include-tasks": True, "only-failed": restart.only_failed}
        return RESTART_CONNECTOR + restart.connector.encode(), dump({**fields, **author})
    ours = {"format": FORMAT_VERSION, "readable_from": FORMAT_VERSION, "id": request_id}
    return RESTART_PARTITIONS, dump({**ours, "topic": restart.topic, "partition": restart.partition, **author})


def decode_restart(key: bytes, value: bytes | None) -> Restart | None:
    """Return a restart; None if there is none, because the record was deleted.

    Raises:
        MalformedRequest: it is not as Connect or mm2py writes it.
    """
    if value is None:
        return None
    fields = load(value)
    (by, _), author = read_author(fields), author_of(fields)
    if key != RESTART_PARTITIONS:
        name = key[len(RESTART_CONNECTOR) :].decode(errors="replace")
        return RestartConnector(name, fields.get("only-failed") is True, by, author)
    readable_from, topic, partition = fields.get("readable_from"), fields.get("topic"), fields.get("partition")
    if not is_count(readable_from) or readable_from > FORMAT_VERSION:
        raise MalformedRequest("it is of another version of mm2py")
    if not isinstance(topic, str) or not (partition is None or is_count(partition)):
        raise MalformedRequest("it names no topic, or no partition")
    return RestartPartitions(topic, partition, by, author)


def encode_log_level(level: str, *, by: str, at_ms: int, author: Author = UNKNOWN) -> bytes:
    """Return the value; ``level`` is as Connect names it: DEBUG, INFO, WARN or ERROR."""
    return dump({"level": level, "by": by[:BY_MOST], "at_ms": at_ms, **author.fields})


def decode_log_level(value: bytes | None) -> str | None:
    """Return the level at which workers should log, by Connect's name; None if the record names none.

    Raises:
        MalformedRequest: it is not as Connect writes it.
    """
    level = None if value is None else load(value).get("level")
    return level if isinstance(level, str) else None


def is_count(value: Any) -> TypeGuard[int]:
    """Whether a field is a number that mm2py may have written."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= NUMBER_MOST


def read_author(fields: Mapping[str, Any]) -> tuple[str, int | None]:
    """Return who asked and when; empty or None if the record does not say it."""
    at_ms = fields.get("at_ms")
    return plain(fields.get("by"), BY_MOST), at_ms if is_count(at_ms) else None


def dump(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def load(value: bytes) -> dict[str, Any]:
    """Return the fields of a record. Raises: MalformedRequest."""
    found = json_object(value)
    if isinstance(found, str):
        raise MalformedRequest(found)
    return found


def json_object(value: bytes) -> dict[str, Any] | str:
    """Return the JSON object that a record holds, or why there is none, or none that can be written again."""
    try:
        text = value.decode()
        found = json.loads(text)
        if "\\u" in text:
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "it holds half a character"
    except (ValueError, RecursionError):
        return "it is no JSON"
    return found if isinstance(found, dict) else "it is no JSON object"
