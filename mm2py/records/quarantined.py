"""A record in quarantine: a record that the target refused, with its origin. Pure.

MirrorMaker 2 has no such record. One record of ``mm2-quarantine.A.internal`` is one source record:

- **key**: ``["orders",3,17]``, topic, partition and source offset. A record stored twice has the same key twice.
- **value**: the source record's value, unchanged, null as null. Any consumer shows it, and no encoding makes it larger.
- **timestamp**: when it was put here. The source's timestamp, which the target may have refused, is in the provenance.
- **headers**: first ``mm2py-quarantined`` (the provenance, as JSON), then ``mm2py-key`` (the source record's key
  unchanged, null as null), then the source record's own headers, unchanged and in order.

Readers find our headers by their place and not by their name: a source record that was in quarantine on another cluster
may have headers of the same names.

A record whose first header is ``mm2py-replayed`` is a *mark*: the record with its key was appended to the remote topic.
One with ``mm2py-replaying`` is a *claim*: a run of ``mm2py replay`` is about to append it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from mm2py.errors import Mm2Error
from mm2py.records.batch import NewRecord, Record

FORMAT_VERSION: Final = 1
PROVENANCE_HEADER: Final = "mm2py-quarantined"
KEY_HEADER: Final = "mm2py-key"
REPLAYED_HEADER: Final = "mm2py-replayed"


class NotQuarantined(Mm2Error):
    """A record of the quarantine topic was not written by mm2py."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            f"This is no record of a quarantine topic: {detail}.",
            remedy="Only mm2py writes there; look at it with kafka-console-consumer.sh.",
        )


class RecordOrigin(NamedTuple):
    """The source record's place. ``topic_id`` changes if the topic is recreated; None if brokers have no topic ids."""

    topic: str
    partition: int
    offset: int
    topic_id: str | None = None


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a record came from and why it is here."""

    flow: str
    source_cluster: str | None
    origin: RecordOrigin
    timestamp_ms: int
    """The source record's timestamp."""
    error_code: int
    """The Kafka error code that the target answered, or would have answered."""
    error_text: str
    quarantined_at_ms: int


@dataclass(frozen=True, slots=True)
class QuarantineEntry:
    provenance: Provenance
    record: NewRecord
    """The source record as it was: key, value, timestamp, headers."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The mark of a record that was appended to its remote topic."""

    origin: RecordOrigin
    remote_topic: str
    replayed_at_ms: int


def encode_quarantined(kept: QuarantineEntry) -> NewRecord:
    """Return the record to be written."""
    origin, record, provenance = kept.provenance.origin, kept.record, kept.provenance
    fields = {
        "mm2py": FORMAT_VERSION,
        "flow": provenance.flow,
        "source_cluster": provenance.source_cluster,
        **origin._asdict(),
        "timestamp_ms": provenance.timestamp_ms,
        "error_code": provenance.error_code,
        "error_text": provenance.error_text,
        "quarantined_at_ms": provenance.quarantined_at_ms,
    }
    headers = [(PROVENANCE_HEADER, _dump(fields)), (KEY_HEADER, record.key), *record.headers]
    return NewRecord(_key(origin), record.value, provenance.quarantined_at_ms, headers)


def encode_replayed(mark: Replayed) -> NewRecord:
    fields = {
        "mm2py": FORMAT_VERSION,
        **mark.origin._asdict(),
        "remote_topic": mark.remote_topic,
        "replayed_at_ms": mark.replayed_at_ms,
    }
    return NewRecord(_key(mark.origin), None, mark.replayed_at_ms, [(REPLAYED_HEADER, _dump(fields))])


def decode(record: Record | NewRecord) -> QuarantineEntry | Replayed:
    """Return the meaning of a record of the quarantine topic.

    Raises:
        NotQuarantined: mm2py did not write it, or in a layout that is unknown here.
    """
    headers = list(record.headers)
    if not headers or headers[0][0] not in {PROVENANCE_HEADER, REPLAYED_HEADER}:
        raise NotQuarantined("its first header is not ours")
    name, text = headers[0]
    try:
        fields = json.loads(text or b"")
        if fields["mm2py"] != FORMAT_VERSION:
            raise NotQuarantined(f"it has layout {fields['mm2py']!r}, known here is {FORMAT_VERSION}")
        origin = RecordOrigin(
            _of(str, fields, "topic"),
            _of(int, fields, "partition"),
            _of(int, fields, "offset"),
            _of_or_none(str, fields, "topic_id"),
        )
        if name == REPLAYED_HEADER:
            return Replayed(origin, _of(str, fields, "remote_topic"), _of(int, fields, "replayed_at_ms"))
        provenance = Provenance(
            _of(str, fields, "flow"),
            _of_or_none(str, fields, "source_cluster"),
            origin,
            _of(int, fields, "timestamp_ms"),
            _of(int, fields, "error_code"),
            _of(str, fields, "error_text"),
            _of(int, fields, "quarantined_at_ms"),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NotQuarantined(f"its provenance cannot be read ({error})") from error
    if len(headers) < 2 or headers[1][0] != KEY_HEADER:
        raise NotQuarantined("its second header is not the source record's key")
    return QuarantineEntry(
        provenance, NewRecord(headers[1][1], record.value, provenance.timestamp_ms, tuple(headers[2:]))
    )


def _key(origin: RecordOrigin) -> bytes:
    return _dump([origin.topic, origin.partition, origin.offset])


def _dump(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def _of(kind: type, fields: dict[str, Any], name: str) -> Any:
    value = fields[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(f"{name} is no {kind.__name__}")
    return value


def _of_or_none(kind: type, fields: dict[str, Any], name: str) -> Any:
    return None if fields.get(name) is None else _of(kind, fields, name)
