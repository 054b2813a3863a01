"""Events from ``mm2-configs.A.internal``: changes and requests for a flow, the user who asked, and the outcome.

One record is one event. A call over REST leaves its own record and, after it, the record of its audit. A change leaves
an entry of the history before its own record. Then the entry is the event, also after the record was overwritten, and
the record is no event. Records of earlier versions and of other writers have no such entry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, Final

from mm2py.config.settings import FlowSettings
from mm2py.records.audit_record import AUDIT_KEY, AuditRecord, MalformedAudit, decode_audit
from mm2py.records.author import Author, author_of
from mm2py.records.backfill_record import BACKFILL_KEY, Backfill, BackfillState, decode_backfill
from mm2py.records.batch import Record
from mm2py.records.connector_config import FLOW_KEY, ConfigRecords, FlowConfig
from mm2py.records.history_record import (
    HISTORY_KEY,
    KEPT_MOST,
    TURNS,
    HistoryEntry,
    HistoryKind,
    decode_history,
    restart_entry,
    target_entry,
)
from mm2py.records.operator_request import (
    LOG_LEVEL,
    RESTART_CONNECTOR,
    RESTART_PARTITIONS,
    TARGET_STATE,
    MalformedRequest,
    decode_log_level,
    decode_restart,
    decode_target,
    load,
    read_author,
)
from mm2py.secret import printable
from mm2py.shared_settings.flow_config import entry_of, storable
from mm2py_rest.events.event import Event, EventKind
from mm2py_rest.events.sources import ToBrokers, TopicSource

NAMED_MOST: Final = 20
"""How many changed settings are named in an event."""
SHOWN_MOST: Final = 500
"""How many characters an event shows of a name that a caller has sent."""
_WORD_OF: Final = {HistoryKind.RESUMED: "running", HistoryKind.PAUSED: "paused", HistoryKind.STOPPED: "stopped"}


class ConfigsSource(TopicSource):
    """``mm2-configs.A.internal``: settings, pauses, restarts, log levels, backfills, and the audit of REST."""

    def __init__(self, settings: FlowSettings, target: ToBrokers) -> None:
        super().__init__(settings.flow, settings.configs_topic, target)
        self._records = ConfigRecords(settings.configs_topic)
        self._backfills: dict[str, tuple[BackfillState, int]] = {}
        """State and run in the last event of each backfill, by its id."""
        self._told: deque[Hashable] = deque(maxlen=KEPT_MOST)
        """Marks of the entries of the history that were events, see ``_mark``."""

    def _events(self, record: Record) -> Iterator[Event]:
        key, value = record.key, record.value
        if key is None or value is None:
            return
        if key == FLOW_KEY:
            before = self._records.flow
            self._records.take(key, value, record.offset)
            stored = self._records.flow
            if stored is not None and stored != before and stored.write_id not in self._told:
                yield from self._changed(None if before is None else storable(before), storable(stored))
        elif key.startswith(AUDIT_KEY):
            with suppress(MalformedAudit):
                yield _audited(decode_audit(value))
        elif key.startswith(HISTORY_KEY):
            with suppress(MalformedRequest):
                yield self._kept(decode_history(value))
        elif key.startswith(BACKFILL_KEY):
            with suppress(MalformedRequest):
                yield from self._backfilled(decode_backfill(key, value))
        else:
            with suppress(MalformedRequest):
                yield from self._asked(key, value, record.offset, record.timestamp_ms)

    def _kept(self, entry: HistoryEntry) -> Event:
        """Return the event of an entry of the history."""
        self._told.append(_mark(entry))
        if entry.kind is HistoryKind.SETTINGS:
            return self._settings_event(entry)
        if entry.kind is HistoryKind.MOVED:
            group, to = printable(entry.group[:SHOWN_MOST]), printable(entry.moved_to[:SHOWN_MOST])
            text, data = f"Group {group} was moved to {to}", {"group": group, "moved_to": to}
            return self._event(EventKind.GROUP_MOVED, entry.at_ms, text, data, entry.by, entry.author)
        return self._request_event(entry)

    def _asked(self, key: bytes, value: bytes, offset: int, written_ms: int) -> Iterator[Event]:
        """Yield an operator's request to all workers, unless an entry of the history was its event."""
        fields = load(value)
        (by, at_ms), author = read_author(fields), author_of(fields)
        asked_ms = written_ms if at_ms is None else at_ms
        if key.startswith(TARGET_STATE):
            entry = target_entry(_name(key, TARGET_STATE), replace(decode_target(value, offset), at_ms=asked_ms))
        elif key.startswith((RESTART_CONNECTOR, RESTART_PARTITIONS)):
            restart = decode_restart(key, value)
            assert restart is not None  # noqa: S101  (there is a value)
            entry = restart_entry(restart, asked_ms)
        elif key == LOG_LEVEL:
            level = printable((decode_log_level(value) or "")[:SHOWN_MOST])
            yield self._event(
                EventKind.LOG_LEVEL, asked_ms, f"All workers are to log at {level}", {"level": level}, by, author
            )
            return
        else:
            return
        if _mark(entry) not in self._told:
            yield self._request_event(entry)

    def _request_event(self, entry: HistoryEntry) -> Event:
        connector, topic = printable(entry.connector[:SHOWN_MOST]), printable(entry.topic[:SHOWN_MOST])
        data: dict[str, Any]
        number = "" if entry.partition is None else f"-{entry.partition}"
        if entry.kind in TURNS:
            is_on = entry.kind is HistoryKind.TURNED_ON
            text = f"{self._flow} is {'turned on' if is_on else 'standby'}"
            data = {"state": "on" if is_on else "standby", "generation": entry.version}
            return self._event(EventKind.DIRECTION, entry.at_ms, text, data, entry.by, entry.author)
        if entry.kind is not HistoryKind.RESTARTED and topic:
            word = _WORD_OF[entry.kind]
            kind, text = EventKind.TOPIC_STATE, f"{topic}{number} is to be {word}"
            data = {"topic": topic, "partition": entry.partition, "state": word}
        elif entry.kind is not HistoryKind.RESTARTED:
            word = _WORD_OF[entry.kind]
            kind, text, data = EventKind.CONNECTOR_STATE, f"{connector} is to be {word}", {"state": word}
            data = {"connector": connector, **data}
        elif connector:
            kind, text = EventKind.RESTART, f"{connector} is to restart{' where it has failed' * entry.only_failed}"
            data = {"connector": connector, "only_failed": entry.only_failed}
        else:
            kind, text = EventKind.RESTART, f"{topic}{number} is to restart"
            data = {"topic": topic, "partition": entry.partition}
        return self._event(kind, entry.at_ms, text, data, entry.by, entry.author)

    def _event(self, kind: EventKind, at_ms: int, text: str, data: dict[str, Any], by: str, author: Author) -> Event:
        who = by or "another writer of the configs topic than mm2py"
        return Event(
            kind=kind,
            at_ms=at_ms,
            flow=str(self._flow),
            text=f"{text}, by {who}.{_why(author)}",
            data={**data, "by": by, **asdict(author)},
        )

    def _backfilled(self, backfill: Backfill) -> Iterator[Event]:
        """Yield the event of a changed backfill. Its driver writes the record every few seconds, mostly unchanged."""
        now = backfill.state, backfill.run
        if self._backfills.get(backfill.id) == now:
            return
        self._backfills[backfill.id] = now
        topics = [printable(topic[:SHOWN_MOST]) for topic in sorted(backfill.topics)]
        reason = printable(backfill.reason[:SHOWN_MOST])
        told = f": {reason.rstrip('.')}" if reason else ""
        yield Event(
            kind=EventKind.BACKFILL,
            at_ms=backfill.seen_at_ms,
            flow=str(self._flow),
            text=f"Backfill {backfill.id} of {len(topics)} topic(s) is {backfill.state}{told}.",
            data={
                "id": backfill.id,
                "state": str(backfill.state),
                "run": backfill.run,
                "topics": topics[:NAMED_MOST],
                "by": printable(backfill.by[:SHOWN_MOST]),
                "reason": reason,
            },
        )

    def _changed(self, before: FlowConfig | None, stored: FlowConfig) -> Iterator[Event]:
        """Yield the event of changed settings that have no entry of the history."""
        worker = stored.worker
        entry = entry_of(before, stored, at_ms=stored.at_ms, author=stored.author, worker=worker, again="")
        if entry is not None:  # None: a worker has stored the settings of its file
            yield self._settings_event(entry)

    def _settings_event(self, entry: HistoryEntry) -> Event:
        named = entry.changes[:NAMED_MOST]
        unnamed = len(entry.changes) - len(named) + entry.unnamed
        text = f"Version {entry.version} of its settings was stored by {entry.by}"
        if named:
            more = f" and {unnamed} more" if unnamed else ""
            text += f": {', '.join(change.setting for change in named)}{more} changed"
        return Event(
            kind=EventKind.SETTINGS_CHANGED,
            at_ms=entry.at_ms,
            flow=str(self._flow),
            text=f"{text}.{_why(entry.author)}",
            data={
                "version": entry.version,
                "by": entry.writer,
                "worker": entry.worker,
                **asdict(entry.author),
                "settings": [change.setting for change in named],
                "changes": [change.text for change in named],
            },
        )


def _mark(entry: HistoryEntry) -> Hashable:
    """Return a mark by which the record of an entry is recognized. It follows the entry in the same batch."""
    if entry.kind is HistoryKind.SETTINGS:
        return entry.write_id
    return entry.kind, entry.at_ms, entry.connector, entry.topic, entry.partition, entry.group


def _why(author: Author) -> str:
    return f" Reason: {author.reason.rstrip('.')}." if author.reason else ""


def _name(key: bytes, prefix: bytes) -> str:
    return printable(key[len(prefix) :].decode(errors="replace")[:SHOWN_MOST])


def _audited(record: AuditRecord) -> Event:
    """Return a call as an event. The event leaves out the caller's address, which the log and the topic have."""
    path, user = printable(record.path[:SHOWN_MOST]), printable(record.user[:SHOWN_MOST])
    done = "done" if 200 <= record.status < 300 else "not done"
    return Event(
        kind=EventKind.AUDIT,
        at_ms=record.at_ms,
        flow=printable(record.flow[:SHOWN_MOST]) or None,
        text=f"{user} asked for {printable(record.method[:20])} {path}: {done}, {record.status}.",
        data={
            "user": user,
            "proof": printable(record.proof[:SHOWN_MOST]),
            "method": printable(record.method[:20]),
            "path": path,
            "status": record.status,
            "version": printable(record.version[:SHOWN_MOST]),
            "body": printable(record.body),
            "worker": printable(record.worker[:SHOWN_MOST]),
        },
    )
