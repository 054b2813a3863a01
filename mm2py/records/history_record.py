"""The history of a flow: changes of its settings and requests to its connectors, with who, when, where and why. Pure.

The settings have one key, and so has the requested state of a connector: compaction loses their previous values. So
each change also leaves a history record with a key of its own in the order of time, like the audit of REST. ``mm2py
apply``, REST or a worker writes it in the same batch as the change. The writer deletes the oldest records beyond the
last five hundred. MirrorMaker 2 has no such history; Connect skips the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from mm2py.records.audit_record import timed_key
from mm2py.records.author import UNKNOWN, Author, author_of, plain, with_reason
from mm2py.records.direction_record import Direction, DirectionState
from mm2py.records.operator_request import (
    BY_MOST,
    MalformedRequest,
    Restart,
    RestartConnector,
    Target,
    TargetState,
    dump,
    is_count,
    load,
)
from mm2py.records.pause_record import PausedPart
from mm2py.secret import HIDDEN, may_hold_secret

HISTORY_KEY: Final = b"mm2py-history-"
KEPT_MOST: Final = 500
CHANGES_MOST: Final = 50
"""How many changed settings a record names; of further ones it keeps only the number."""
CHANGE_CHARS_MOST: Final = 500
NAME_CHARS_MOST: Final = 300
"""Limit of the name of a topic, a connector or a worker."""


class HistoryKind(StrEnum):
    """What was done."""

    SETTINGS = "settings"
    PAUSED = "paused"
    STOPPED = "stopped"
    RESUMED = "resumed"
    RESTARTED = "restarted"
    """A restart of a connector, a topic or a partition was requested."""
    MOVED = "moved"
    """The offsets of a consumer group were committed on the other cluster."""
    TURNED_ON = "turned-on"
    """The flow was standby, and copies from then on."""
    STANDBY = "standby"
    """The flow became standby, or was so from the beginning."""


KIND_OF: Final[Mapping[TargetState, HistoryKind]] = {
    TargetState.STARTED: HistoryKind.RESUMED,
    TargetState.PAUSED: HistoryKind.PAUSED,
    TargetState.STOPPED: HistoryKind.STOPPED,
}


_KIND_OF_DIRECTION: Final = {
    DirectionState.ON: HistoryKind.TURNED_ON,
    DirectionState.OFF: HistoryKind.STANDBY,
}
TURNS: Final = frozenset(_KIND_OF_DIRECTION.values())
"""Kinds that are about the flow as a whole."""


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One changed setting; of a group that was moved, one partition."""

    setting: str
    """Its name."""
    text: str
    """The old and the new value in one line; secrets are hidden. Of a partition, both offsets."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One stored change of a flow's settings, or one stored request to its connectors."""

    at_ms: int
    """When, by the clock of the machine that stored it."""
    kind: HistoryKind
    """What was done."""
    by: str
    """Who did it, in words."""
    author: Author = UNKNOWN
    """Who did it, for programs, and why."""
    writer: str = ""
    """For settings: where they come from, as ``DecidedBy``."""
    worker: str = ""
    """For settings: the worker or the command that stored them."""
    version: int = 0
    """For settings: the version that was stored. For on and standby: the generation."""
    write_id: str = ""
    """For settings: the ``write_id`` of their own record, which follows this one in the log."""
    changes: tuple[SettingChange, ...] = ()
    """For settings: what changed; empty if there were no settings before. Of a group that was moved: its offsets."""
    unnamed: int = 0
    """How many more settings changed, or how many more partitions were moved."""
    connector: str = ""
    """The connector that was paused, stopped, resumed or restarted; empty: a topic was."""
    only_failed: bool = False
    """The connector was restarted only where it had failed."""
    topic: str = ""
    """The topic that was paused, resumed or restarted."""
    partition: int | None = None
    """The partition of it that was; None: all of them."""
    group: str = ""
    """The consumer group that was moved."""
    moved_to: str = ""
    """The alias of the cluster to which it was moved."""

    @property
    def what(self) -> str:
        """What was done, in words, without the settings."""
        match self.kind:
            case HistoryKind.SETTINGS:
                return f"version {self.version} stored"
            case kind if kind in TURNS:
                return f"flow {kind.replace('-', ' ')} (generation {self.version})"
            case HistoryKind.RESTARTED if self.connector:
                return f"{self.connector} restarted{' where it had failed' if self.only_failed else ''}"
            case HistoryKind.MOVED:
                return f"group {self.group} moved to {self.moved_to}"
            case _ if self.topic:
                return f"{self.topic}{'' if self.partition is None else f'-{self.partition}'} {self.kind}"
            case _:
                return f"{self.connector} {self.kind}"

    @property
    def text(self) -> str:
        """What was done, by whom and why."""
        return f"{self.what} by {with_reason(self.by, self.author.reason)}"


def moved_entry(
    group: str, moved_to: str, changes: Sequence[SettingChange], *, at_ms: int, by: str, author: Author
) -> HistoryEntry:
    """Return the entry of a group that was moved; offsets of very many partitions are left out."""
    cut = tuple(SettingChange(one.setting, _cut(one.text)) for one in changes[:CHANGES_MOST])
    return HistoryEntry(
        at_ms,
        HistoryKind.MOVED,
        by,
        author,
        changes=cut,
        unnamed=len(changes) - len(cut),
        group=group,
        moved_to=moved_to,
    )


def settings_entry(
    changes: Sequence[SettingChange],
    *,
    at_ms: int,
    by: str,
    author: Author,
    writer: str,
    worker: str,
    version: int,
    write_id: str,
) -> HistoryEntry:
    """Return the entry of a change of settings; very many changes and long ones are cut."""
    cut = tuple(SettingChange(one.setting, _cut(one.text)) for one in changes[:CHANGES_MOST])
    return HistoryEntry(
        at_ms,
        HistoryKind.SETTINGS,
        by,
        author,
        writer=writer,
        worker=worker,
        version=version,
        write_id=write_id,
        changes=cut,
        unnamed=len(changes) - len(cut),
    )


def _cut(text: str) -> str:
    return text if len(text) <= CHANGE_CHARS_MOST else f"{text[: CHANGE_CHARS_MOST - 1]}…"


def target_entry(connector: str, target: Target) -> HistoryEntry:
    """Return the entry of a request for a connector's state."""
    return HistoryEntry(target.at_ms or 0, KIND_OF[target.state], target.by, target.author, connector=connector)


def direction_entry(direction: Direction) -> HistoryEntry | None:
    """Return the entry of a turn of the flow; None while it is only being turned on."""
    kind = _KIND_OF_DIRECTION.get(direction.state)
    if kind is None:
        return None
    return HistoryEntry(direction.at_ms, kind, direction.by, direction.author, version=direction.generation)


def pause_entry(part: PausedPart, at_ms: int, by: str, author: Author, *, is_paused: bool) -> HistoryEntry:
    """Return the entry of a pause of a topic or a partition, or of its end."""
    kind = HistoryKind.PAUSED if is_paused else HistoryKind.RESUMED
    return HistoryEntry(at_ms, kind, by, author, topic=part[0], partition=part[1])


def restart_entry(restart: Restart, at_ms: int) -> HistoryEntry:
    """Return the entry of a restart."""
    by, author = restart.by, restart.author
    if isinstance(restart, RestartConnector):
        connector, only_failed = restart.connector, restart.only_failed
        return HistoryEntry(at_ms, HistoryKind.RESTARTED, by, author, connector=connector, only_failed=only_failed)
    topic, partition = restart.topic, restart.partition
    return HistoryEntry(at_ms, HistoryKind.RESTARTED, by, author, topic=topic, partition=partition)


def history_key(at_ms: int, mark: int) -> bytes:
    """Return the key of a new record; ``mark`` distinguishes records of one millisecond."""
    return timed_key(HISTORY_KEY, at_ms, mark)


def encode_history(entry: HistoryEntry) -> bytes:
    """Return the value of a record; fields that the entry does not need are left out."""
    fields: dict[str, Any] = {
        "format": 1,
        "at_ms": entry.at_ms,
        "kind": entry.kind,
        "by": entry.by[:BY_MOST],
        **entry.author.fields,
    }
    if entry.kind in {HistoryKind.SETTINGS, HistoryKind.MOVED}:
        fields |= {"changes": [[one.setting, one.text] for one in entry.changes]}
        fields |= {"unnamed": entry.unnamed} if entry.unnamed else {}
    if entry.kind is HistoryKind.SETTINGS:
        fields |= {"writer": entry.writer, "worker": entry.worker, "version": entry.version}
        fields |= {"write_id": entry.write_id}
    elif entry.kind is HistoryKind.MOVED:
        fields |= {"group": entry.group, "moved_to": entry.moved_to}
    elif entry.kind in TURNS:
        fields |= {"version": entry.version}
    elif entry.connector:
        fields |= {"connector": entry.connector} | ({"only_failed": True} if entry.only_failed else {})
    else:
        fields |= {"topic": entry.topic, "partition": entry.partition}
    return dump(fields)


def decode_history(value: bytes) -> HistoryEntry:
    """Return the entry of a record. Fields that a later mm2py has added are ignored, and secrets are hidden.

    Raises:
        MalformedRequest: mm2py does not write such a record, or it is of a kind that a later mm2py has added.
    """
    fields = load(value)
    at_ms, kind, partition = fields.get("at_ms"), fields.get("kind"), fields.get("partition")
    if not is_count(at_ms) or not (partition is None or is_count(partition)):
        raise MalformedRequest("it says no time, or no partition")
    if not isinstance(kind, str) or kind not in list(HistoryKind):
        raise MalformedRequest("it says nothing that this mm2py knows")
    version, unnamed, changes = fields.get("version"), fields.get("unnamed"), fields.get("changes")
    return HistoryEntry(
        at_ms,
        HistoryKind(kind),
        plain(fields.get("by"), BY_MOST),
        author_of(fields),
        writer=plain(fields.get("writer"), NAME_CHARS_MOST),
        worker=plain(fields.get("worker"), NAME_CHARS_MOST),
        version=version if is_count(version) else 0,
        write_id=plain(fields.get("write_id"), NAME_CHARS_MOST),
        changes=_changes(changes),
        unnamed=unnamed if is_count(unnamed) else 0,
        connector=plain(fields.get("connector"), NAME_CHARS_MOST),
        only_failed=fields.get("only_failed") is True,
        topic=plain(fields.get("topic"), NAME_CHARS_MOST),
        partition=partition,
        group=plain(fields.get("group"), NAME_CHARS_MOST),
        moved_to=plain(fields.get("moved_to"), NAME_CHARS_MOST),
    )


def _changes(given: object) -> tuple[SettingChange, ...]:
    pairs = given[:CHANGES_MOST] if isinstance(given, list) else []
    found = [
        (plain(one[0], NAME_CHARS_MOST), plain(one[1], CHANGE_CHARS_MOST))
        for one in pairs
        if isinstance(one, list) and len(one) == 2
    ]
    return tuple(SettingChange(name, HIDDEN if may_hold_secret(name) else text) for name, text in found)
