"""``mm2-configs.A.internal``: Kafka Connect's records of its connectors' settings, and mm2py's own records. Pure.

Connect keeps ``connector-<name>`` with ``{"properties":{...}}``, or null for a deleted connector. Its other keys are
``task-<name>-<n>``, ``commit-<name>``, ``target-state-<name>``, ``tasks-fencing-<name>``, ``session-key``,
``restart-connector-<name>`` and ``logger-cluster-<name>``. In MM2's dedicated mode the names are those of three
classes.

The settings that mm2py's workers share are under our own key, ``mm2py-flow``, with their author and their previous
version. Connect skips an unknown key with a line in its log. Before it, in the same batch, the same settings are
written under Connect's keys, as MM2 would write them, for Connect's readers. So a record under Connect's key of the
source connector *after* ours in the log was written by MM2.

The batch also says that the connectors have no tasks. MM2 creates tasks again only if the tasks that a connector wants
differ from the stored ones. The story: MM2 ran two tasks, then mm2py ran the flow for a week. MM2 comes back, and
starts the two tasks before it has replaced our settings. They fail, and as it wants just these two, it never starts
them again.

A source connector that MM2 has switched off (``enabled=false``) is no configuration of the flow: MM2 only emits
heartbeats with it. We never overwrite it, because such an MM2 may run at the same time as mm2py, and would copy with
our settings, or fail.
Source: KafkaConfigBackingStore, Apache Kafka, connect/runtime.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from mm2py.errors import Mm2Error
from mm2py.records.audit_record import AUDIT_KEY
from mm2py.records.author import UNKNOWN, Author, author_of, plain, with_reason
from mm2py.records.backfill_record import BACKFILL_KEY, Backfill, BackfillTooNew, decode_backfill
from mm2py.records.direction_record import DIRECTION_KEY, DirectionRecords
from mm2py.records.history_record import HISTORY_KEY, HistoryEntry, decode_history
from mm2py.records.operator_request import (
    LOG_LEVEL,
    NUMBER_MOST,
    RESTART_CONNECTOR,
    RESTART_PARTITIONS,
    RUNNING,
    TARGET_STATE,
    MalformedRequest,
    Restart,
    Target,
    decode_log_level,
    decode_restart,
    decode_target,
    json_object,
)
from mm2py.records.owner_record import OWNER_KEY, OwnerRecords
from mm2py.records.pause_record import PAUSE_KEY, PausedPart, Pauses, TopicPause, decode_pause, paused_part

FORMAT_VERSION: Final = 1
"""Format of our own record. A reader that is older than ``readable_from`` in it must not act on it."""
FLOW_KEY: Final = b"mm2py-flow"
CONNECTORS: Final = ("MirrorSourceConnector", "MirrorCheckpointConnector", "MirrorHeartbeatConnector")
_PACKAGE: Final = "org.apache.kafka.connect.mirror"
_CONNECTOR: Final = b"connector-"
_COMMIT: Final = b"commit-"
SOURCE_KEY: Final = _CONNECTOR + CONNECTORS[0].encode()
_KINDS: Final = (
    b"task-",
    _COMMIT,
    b"tasks-fencing-",
    b"session-key",
    b"logger-cluster-",
    b"mm2py-",
)
MALFORMED_KEPT_MOST: Final = 20
MALFORMED_KEY_SHOWN: Final = 100
PREVIOUS_MOST: Final = 3
"""How many previous versions in one record are read; mm2py writes two at most."""
WRITES_KEPT_MOST: Final = 100
RESTARTS_KEPT_MOST: Final = 100
APPLY_COMMAND: Final = "mm2py apply"
"""Takes the place of the worker's name in records that the command stores."""


class DecidedBy(StrEnum):
    """Who decided the settings of a flow."""

    MM2 = "mm2"
    """MirrorMaker 2, or another writer under Connect's keys."""
    FILE = "file"
    """A worker, from its own file."""
    APPLY = "apply"
    """An operator, by ``mm2py apply`` or ``--apply``."""
    REST = "rest"
    """An operator, over REST."""


def told_writer(by: DecidedBy, author: Author, worker: str) -> str:
    """Return who has decided settings, in words; records of earlier versions name no user and no host.

    Args:
        worker: ``FlowConfig.worker``.
    """
    if author == UNKNOWN:
        return str(by)
    if by is DecidedBy.REST:
        return author.by_rest
    if by is DecidedBy.APPLY and worker == APPLY_COMMAND:
        return author.by_command(APPLY_COMMAND)
    return author.by_command(f"--apply of worker {worker}" if by is DecidedBy.APPLY else f"the file of worker {worker}")


class MalformedConfig(ValueError):
    """A record is not what Connect or mm2py writes under its key."""


class ConfigTooNew(Mm2Error):
    """A newer mm2py has stored settings that this one must not apply."""

    def __init__(self, topic: str, written_by: str) -> None:
        super().__init__(
            f"{topic} holds a configuration that this mm2py cannot read: mm2py {written_by} wrote it.",
            remedy=f"Run mm2py {written_by} or later.",
        )


@dataclass(frozen=True, slots=True)
class FlowConfig:
    """The stored settings that the workers of a flow share."""

    properties: Mapping[str, str]
    by: DecidedBy
    version: int
    """Goes up by one with each change; 0: MM2 wrote the settings."""
    write_id: str = ""
    """Unique for each write, so that a writer recognises its own."""
    based_on: str = ""
    """The write_id that the writer had read. Another write in between shows that two wrote at the same time."""
    written_by: str = ""
    """The version of mm2py."""
    worker: str = ""
    at_ms: int = 0
    seen: tuple[str, ...] = ()
    """Digests of workers' files during this decision or since. Such files count as unchanged."""
    decided: tuple[str, ...] = ()
    """Digests of operators' decisions since a file last decided. A file with the same content counts as unchanged."""
    previous: FlowConfig | None = None
    """The previous settings, one step back."""
    author: Author = UNKNOWN
    """The user who decided it, on which host, and why."""

    @property
    def who(self) -> str:
        """Who has decided it, in words."""
        return told_writer(self.by, self.author, self.worker)

    @property
    def who_and_why(self) -> str:
        """``who`` with the reason, if one was given."""
        return with_reason(self.who, self.author.reason)


def encode_connectors(properties: Mapping[str, str], source_alias: str, target_alias: str) -> dict[bytes, bytes]:
    """Return Connect's records of a flow's connectors, as MM2 writes them, without addresses and credentials.

    Like MM2, leave out a checkpoint connector with nothing to do: it would be shown as failed.
    """
    return {
        _CONNECTOR + name.encode(): _json(
            {
                "properties": {
                    **properties,
                    "name": name,
                    "connector.class": f"{_PACKAGE}.{name}",
                    "source.cluster.alias": source_alias,
                    "target.cluster.alias": target_alias,
                }
            }
        )
        for name in CONNECTORS
        if name != "MirrorCheckpointConnector" or not _is_without_checkpoints(properties)
    }


def encode_no_tasks(tasks: Mapping[str, int]) -> dict[bytes, bytes]:
    """Return Connect's records that set the number of tasks of a flow's connectors to 0, where it is not 0.

    The topic may belong to a Kafka Connect cluster with other connectors. Their tasks are left alone.

    Args:
        tasks: by the connector's name, as ``ConfigRecords.tasks``.
    """
    return {_COMMIT + name.encode(): _json({"tasks": 0}) for name in sorted(CONNECTORS) if tasks.get(name)}


def _is_without_checkpoints(properties: Mapping[str, str]) -> bool:
    names = ("emit.checkpoints.enabled", "emit.offset-syncs.enabled")
    return any(properties.get(name, "").strip().lower() == "false" for name in names)


def encode_flow(config: FlowConfig) -> bytes:
    """Return the value of our own record; its key is FLOW_KEY."""
    return _json({"format": FORMAT_VERSION, "readable_from": FORMAT_VERSION, **_fields(config)})


def _fields(config: FlowConfig) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "version": config.version,
        "by": config.by,
        "mm2py": config.written_by,
        "worker": config.worker,
        "at_ms": config.at_ms,
        **config.author.fields,
        "write_id": config.write_id,
        "based_on": config.based_on,
        "seen": list(config.seen),
        "decided": list(config.decided),
        "properties": dict(sorted(config.properties.items())),
    }
    if config.previous is not None:
        fields["previous"] = _fields(config.previous)
    return fields


def _json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def decode_connector(value: bytes) -> dict[str, str]:
    """Return the settings of a connector.

    Raises:
        MalformedConfig: they are not as Connect writes them.
    """
    properties = _object(value).get("properties")
    if not isinstance(properties, dict):
        raise MalformedConfig("it has no properties")
    return _texts(properties)


def decode_flow(value: bytes, topic: str) -> FlowConfig:
    """Return our own record.

    Raises:
        MalformedConfig: it is not as mm2py writes it.
        ConfigTooNew: a newer mm2py wrote it, and this one must not ignore it.
    """
    fields = _object(value)
    readable_from = fields.get("readable_from")
    if not isinstance(readable_from, int) or isinstance(readable_from, bool):
        raise MalformedConfig("it has no format")
    if readable_from > FORMAT_VERSION:
        raise ConfigTooNew(topic, _plain(fields.get("mm2py")))
    try:
        return _read_flow(fields)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise MalformedConfig(f"it lacks a field, or one is of another type: {error}") from None


def _plain(version: object) -> str:
    """Return a version without characters that could control a terminal."""
    return plain(version if isinstance(version, str) else "of a later version", 40)


def _read_flow(fields: Mapping[str, Any], steps_back: int = 0) -> FlowConfig:
    numbers = fields["version"], fields["at_ms"]
    seen, decided = tuple(fields["seen"]), tuple(fields.get("decided", ()))
    texts = fields["write_id"], fields["based_on"], fields["mm2py"], fields["worker"], *seen, *decided
    if any(not isinstance(one, int) or isinstance(one, bool) or not 0 <= one <= NUMBER_MOST for one in numbers):
        raise TypeError("version or at_ms")
    if any(not isinstance(one, str) for one in texts):
        raise TypeError("a text")
    if fields["by"] not in list(DecidedBy):
        raise TypeError("by")
    if steps_back > PREVIOUS_MOST:
        raise TypeError("previous")
    previous = fields.get("previous")
    return FlowConfig(
        _texts(fields["properties"]),
        DecidedBy(fields["by"]),
        fields["version"],
        write_id=fields["write_id"],
        based_on=fields["based_on"],
        written_by=fields["mm2py"],
        worker=fields["worker"],
        at_ms=fields["at_ms"],
        seen=seen,
        decided=decided,
        previous=None if previous is None else _read_flow(previous, steps_back + 1),
        author=author_of(fields),
    )


def _texts(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return settings as a connector sees them: Connect omits those without a value."""
    found = {name: value for name, value in properties.items() if value is not None}
    if not all(isinstance(value, str) for value in found.values()):
        raise MalformedConfig("a setting is no text")
    return found


def _object(value: bytes) -> dict[str, Any]:
    found = json_object(value)
    if isinstance(found, str):
        raise MalformedConfig(found)
    return found


class ConfigRecords:
    """The state of a configs topic after the records read so far, in the order of the log."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.flow: FlowConfig | None = None
        """The settings under our own key."""
        self.foreign: Mapping[str, str] | None = None
        """The source connector's settings under Connect's key, if another writer wrote them after ours."""
        self.connectors: dict[str, Mapping[str, str]] = {}
        """All settings under Connect's keys, by the connector's name."""
        self.tasks: dict[str, int] = {}
        """How many tasks each connector has by Connect's records."""
        self.audit: dict[bytes, bytes] = {}
        """Records of changes over REST, by key (``audit_record.py``)."""
        self.history: dict[bytes, bytes] = {}
        """Records of changes and requests, by key (``history_record.py``)."""
        self.targets: dict[str, Target] = {}
        """Requested states of connectors, by name; connectors that are not here should run."""
        self.restarts: deque[Restart] = deque(maxlen=RESTARTS_KEPT_MOST)
        """Requests to restart, from records that were read since the caller last emptied this."""
        self.log_level: str | None = None
        """The level at which workers should log, from records that were read since the caller last reset this."""
        self.requests = 0
        """How many requests of operators (states, pauses, restarts, log levels) and backfill records were read."""
        self.owner = OwnerRecords(topic)
        """Which group runs the flow."""
        self.direction = DirectionRecords(topic)
        """Whether the flow is on or standby."""
        self.backfills: dict[str, Backfill] = {}
        """Backfills, by id; also those that have ended."""
        self._pauses: dict[PausedPart, TopicPause] = {}
        self.skipped: Counter[str] = Counter()
        """Records without settings of a flow, by kind."""
        self.malformed: list[str] = []
        """The first records that could not be read since the caller last emptied this list."""
        self.writes = 0
        """How many records under our own key were read."""
        self._latest_writes: deque[FlowConfig] = deque(maxlen=WRITES_KEPT_MOST)
        self.too_new: ConfigTooNew | None = None
        """Set while the last record under our own key is one of a newer mm2py, which must not be applied."""
        self.newer_backfills: dict[bytes, BackfillTooNew] = {}
        """Backfills of a newer mm2py, by key: no reader knows which topics they hold."""

    def take(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        """Add the next record. A record that cannot be read is noted in ``malformed`` and changes nothing."""
        try:
            if key == FLOW_KEY:
                self._take_flow(value)
            elif key == OWNER_KEY:
                self.owner.take(value)
            elif key == DIRECTION_KEY:
                self.direction.take(value, offset)
            elif key is not None and key.startswith(_CONNECTOR):
                self._take_connector(key, value)
            elif key is not None and key.startswith(AUDIT_KEY):
                self._take_kept(self.audit, key, value)
            elif key is not None and key.startswith(HISTORY_KEY):
                self._take_kept(self.history, key, value)
            elif key is not None and key.startswith(TARGET_STATE):
                self._take_target(key, value, offset)
            elif key is not None and key.startswith((RESTART_CONNECTOR, RESTART_PARTITIONS)):
                self._take_restart(key, value)
            elif key is not None and key.startswith(BACKFILL_KEY):
                self._take_backfill(key, value)
            elif key is not None and key.startswith(PAUSE_KEY):
                self._take_pause(key, value)
            elif key == LOG_LEVEL:
                self.log_level = decode_log_level(value)
                self.requests += 1
            else:
                self.skipped[self._kind(key)] += 1
                if key is not None and key.startswith(_COMMIT) and value is not None:
                    self._take_commit(key, value)
        except (MalformedConfig, MalformedRequest) as error:
            if len(self.malformed) < MALFORMED_KEPT_MOST:
                text = (key or b"")[:MALFORMED_KEY_SHOWN].decode(errors="replace")
                shown = "".join(char if char.isprintable() else "?" for char in text)
                self.malformed.append(f"{self.topic}-0 at offset {offset}, {shown}: {error}")

    def writes_behind(self, count: int) -> list[FlowConfig]:
        """Return the records under our own key after the first ``count``, in the order of the log."""
        newer = self.writes - count
        return list(self._latest_writes)[-newer:] if newer > 0 else []

    def entries(self) -> Iterator[HistoryEntry]:
        """Yield the entries of the history, the oldest first. Entries that cannot be read are left out."""
        for key in sorted(self.history):
            with suppress(MalformedRequest):
                yield decode_history(self.history[key])

    def target_of(self, connector: str) -> Target:
        """Return the requested state of a connector."""
        return self.targets.get(connector, RUNNING)

    @property
    def is_beside_mm2(self) -> bool:
        """Whether an MM2 may run next to mm2py only for heartbeats; then mm2py does not write Connect's keys."""
        found = self.connectors.get(CONNECTORS[0])
        return found is not None and found.get("enabled", "").strip().lower() == "false" and self._is_of_mm2(found)

    @staticmethod
    def _is_of_mm2(properties: Mapping[str, str]) -> bool:
        """Whether MM2 wrote settings: it always writes addresses, and we never do."""
        return any(name.startswith(("source.cluster.", "target.cluster.")) for name in _beyond_aliases(properties))

    def _take_flow(self, value: bytes | None) -> None:
        self.too_new = None
        if value is None:
            self.flow = self.foreign = None
            return
        try:
            self.flow = decode_flow(value, self.topic)
        except ConfigTooNew as error:
            self.too_new = error
            return
        self.foreign = None
        self.writes += 1
        self._latest_writes.append(self.flow)

    def _take_connector(self, key: bytes, value: bytes | None) -> None:
        name = key[len(_CONNECTOR) :].decode(errors="replace")
        if value is None:
            self.connectors.pop(name, None)
            if key == SOURCE_KEY:
                self.foreign = None
            return
        properties = decode_connector(value)
        self.connectors[name] = properties
        if key == SOURCE_KEY:
            self.foreign = properties

    @staticmethod
    def _take_kept(kept: dict[bytes, bytes], key: bytes, value: bytes | None) -> None:
        if value is None:
            kept.pop(key, None)
        else:
            kept[key] = value

    def _take_commit(self, key: bytes, value: bytes) -> None:
        number = _object(value).get("tasks")
        self.tasks[key[len(_COMMIT) :].decode(errors="replace")] = number if isinstance(number, int) else 0

    def _take_target(self, key: bytes, value: bytes | None, offset: int) -> None:
        name = key[len(TARGET_STATE) :].decode(errors="replace")
        if value is None:
            self.targets.pop(name, None)
        else:
            self.targets[name] = decode_target(value, offset)
        self.requests += 1

    def _take_restart(self, key: bytes, value: bytes | None) -> None:
        restart = decode_restart(key, value)
        if restart is not None:
            self.restarts.append(restart)
            self.requests += 1

    def _take_backfill(self, key: bytes, value: bytes | None) -> None:
        self.requests += 1
        self.newer_backfills.pop(key, None)
        if value is None:
            self.backfills.pop(key[len(BACKFILL_KEY) :].decode(errors="replace"), None)
            return
        try:
            found = decode_backfill(key, value)
        except BackfillTooNew as error:
            self.newer_backfills[key] = error
            return
        self.backfills[found.id] = found

    def _take_pause(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self._pauses.pop(paused_part(key), None)
        else:
            found = decode_pause(key, value)
            self._pauses[found.part] = found
        self.requests += 1

    @property
    def pauses(self) -> Pauses:
        """The topics and partitions that operators have paused."""
        return Pauses.of(self._pauses.values())

    @staticmethod
    def _kind(key: bytes | None) -> str:
        return next((kind.decode().rstrip("-") for kind in _KINDS if (key or b"").startswith(kind)), "unknown")


def _beyond_aliases(properties: Mapping[str, str]) -> list[str]:
    return [name for name in properties if name not in ("source.cluster.alias", "target.cluster.alias")]
