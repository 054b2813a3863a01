"""Events out of ``mm2-configs.A.internal``: what was changed or asked of a flow, the user who asked, and the outcome.

One record is one event. A call over REST leaves its own record and, behind it, that of its audit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from mm2py.config.settings import FlowSettings
from mm2py.records.audit_record import AUDIT_KEY, AuditRecord, MalformedAudit, decode_audit
from mm2py.records.backfill_record import BACKFILL_KEY, Backfill, State, decode_backfill
from mm2py.records.batch import Record
from mm2py.records.connector_config import FLOW_KEY, ConfigRecords, FlowConfig
from mm2py.records.operator_request import (
    LOG_LEVEL,
    RESTART_CONNECTOR,
    RESTART_PARTITIONS,
    TARGET_STATE,
    MalformedRequest,
    RestartConnector,
    decode_log_level,
    decode_restart,
    decode_target,
    load,
    read_author,
)
from mm2py.secret import printable
from mm2py.shared_settings.flow_config import difference, storable
from rest.events.event import Event, EventKind
from rest.events.sources import ToBrokers, TopicSource

NAMED_MOST: Final = 20
"""So many changed settings are named in an event."""
SHOWN_MOST: Final = 500
"""So many characters of a name that a caller has sent."""


class ConfigsSource(TopicSource):
    """``mm2-configs.A.internal``: settings, pauses, restarts, log levels, backfills, and the audit of REST."""

    def __init__(self, settings: FlowSettings, target: ToBrokers) -> None:
        super().__init__(settings.flow, settings.configs_topic, target)
        self._records = ConfigRecords(settings.configs_topic)
        self._backfills: dict[str, tuple[State, int]] = {}
        """What was told last of each."""

    def _events(self, record: Record) -> Iterator[Event]:
        key, value = record.key, record.value
        if key is None or value is None:
            return
        if key == FLOW_KEY:
            before = self._records.flow
            self._records.take(key, value, record.offset)
            stored = self._records.flow
            if stored is not None and stored != before:
                yield from self._changed(None if before is None else storable(before), storable(stored))
        elif key.startswith(AUDIT_KEY):
            with suppress(MalformedAudit):
                yield _audited(decode_audit(value))
        elif key.startswith(BACKFILL_KEY):
            with suppress(MalformedRequest):
                yield from self._backfilled(decode_backfill(key, value))
        else:
            with suppress(MalformedRequest):
                yield from self._asked(key, value, record.offset, record.timestamp_ms)

    def _asked(self, key: bytes, value: bytes, offset: int, written_ms: int) -> Iterator[Event]:
        """Yield what an operator has asked of all workers."""
        if key.startswith(TARGET_STATE):
            connector = _name(key, TARGET_STATE)
            word = decode_target(value, offset).word
            kind, text = EventKind.CONNECTOR_STATE, f"{connector} is to be {word}"
            data: dict[str, Any] = {"connector": connector, "state": word}
        elif key.startswith((RESTART_CONNECTOR, RESTART_PARTITIONS)):
            restart, kind = decode_restart(key, value), EventKind.RESTART
            if isinstance(restart, RestartConnector):
                name = printable(restart.connector[:SHOWN_MOST])
                text = f"{name} is to restart{' where it has failed' if restart.only_failed else ''}"
                data = {"connector": name, "only_failed": restart.only_failed}
            elif restart is not None:
                topic = printable(restart.topic[:SHOWN_MOST])
                text = f"{topic}{'' if restart.partition is None else f'-{restart.partition}'} is to restart"
                data = {"topic": topic, "partition": restart.partition}
        elif key == LOG_LEVEL:
            level = printable((decode_log_level(value) or "")[:SHOWN_MOST])
            kind, text, data = EventKind.LOG_LEVEL, f"All workers are to log at {level}", {"level": level}
        else:
            return
        by, at_ms = read_author(load(value))
        yield Event(
            kind=kind,
            at_ms=written_ms if at_ms is None else at_ms,
            flow=str(self._flow),
            text=f"{text}, by {by or 'another writer of the configs topic than mm2py'}.",
            data={**data, "by": by},
        )

    def _backfilled(self, backfill: Backfill) -> Iterator[Event]:
        """Its driver writes the record every few seconds: only what changes is an event."""
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
        changes = difference({} if before is None else before.properties, stored.properties)
        if before is not None and not changes:
            return  # a worker has noted its file
        names = [change.name for change in changes]
        more = f" and {len(names) - NAMED_MOST} more" if len(names) > NAMED_MOST else ""
        text = f"Version {stored.version} of its settings was stored by {stored.by} ({stored.worker})"
        if before is not None:
            text += f": {', '.join(names[:NAMED_MOST])}{more} changed"
        yield Event(
            kind=EventKind.SETTINGS_CHANGED,
            at_ms=stored.at_ms,
            flow=str(self._flow),
            text=f"{text}.",
            data={
                "version": stored.version,
                "by": str(stored.by),
                "worker": stored.worker,
                "settings": names[:NAMED_MOST] if before is not None else [],
                "changes": [str(change) for change in changes[:NAMED_MOST]] if before is not None else [],
            },
        )


def _name(key: bytes, prefix: bytes) -> str:
    return printable(key[len(prefix) :].decode(errors="replace")[:SHOWN_MOST])


def _audited(record: AuditRecord) -> Event:
    """Return a call as an event. From which address it came stays in the log and in the topic."""
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
