"""The records in quarantine of one flow, without keys and values: origin, reason of the refusal, time of the replay.

MirrorMaker 2 has no quarantine. Reading continues where it ended, so only the first answer reads the whole topic.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import Final

from mm2py.copying.reading.internal_table import each_record
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.error_codes import OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import Brokers
from mm2py.records.batch import Record
from mm2py.records.quarantined import NotQuarantined, QuarantineEntry, RecordOrigin, decode

KEPT_MOST: Final = 20_000
"""If there are more records, only the last ones are shown."""


@dataclass(frozen=True, slots=True)
class QuarantinedRecord:
    """One record that the target refused. ``mm2py replay`` exports or appends it."""

    topic: str
    """As the source names it."""
    partition: int
    """Of the source topic."""
    offset: int
    """In the source partition."""
    topic_id: str | None
    """Of the source topic, which may have been recreated since; null: its brokers have no topic ids."""
    flow: str
    """The flow that copies it."""
    timestamp_ms: int
    """The source record's."""
    error_code: int
    """The Kafka error code of the refusal."""
    error_text: str
    """Why the target refused it."""
    quarantined_at_ms: int
    """When it was put in quarantine, by the worker's clock."""
    key_bytes: int | None
    """How large its key is; null: it has none."""
    value_bytes: int | None
    """How large its value is; null: it has none."""
    replayed_at_ms: int | None
    """When ``mm2py replay`` appended it to its remote topic; null: it did not."""


def record_of(kept: QuarantineEntry) -> QuarantinedRecord:
    """Return the public description of a record in quarantine."""
    origin, provenance, record = kept.provenance.origin, kept.provenance, kept.record
    return QuarantinedRecord(
        origin.topic,
        origin.partition,
        origin.offset,
        origin.topic_id,
        provenance.flow,
        provenance.timestamp_ms,
        provenance.error_code,
        provenance.error_text,
        provenance.quarantined_at_ms,
        None if record.key is None else len(record.key),
        None if record.value is None else len(record.value),
        None,
    )


def key_of(record: QuarantinedRecord) -> tuple[str, int, int, str]:
    """Return the sort key of a record."""
    return record.topic, record.partition, record.offset, record.topic_id or ""


class QuarantineTable:
    """Table of the records in one source's quarantine topic."""

    def __init__(self, brokers: Brokers, topic: str) -> None:
        self._brokers = brokers
        self._topic = topic
        self._topic_id: uuid.UUID | None = None
        self._read_to: dict[int, int] = {}
        self._records: dict[RecordOrigin, QuarantinedRecord] = {}

    def records(self) -> list[QuarantinedRecord]:
        """Return all records, by topic, partition and offset."""
        return sorted(self._records.values(), key=key_of)

    async def follow(self) -> None:
        """Read the new records. After an error or cancelling, the next call continues at the same place.

        Raises: as ``each_record``; BrokerRefused, a right is missing.
        """
        topic = (await fetch_metadata(self._brokers, [self._topic])).topics.get(self._topic)
        if topic is None or topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
            self._start_again(None)
            return
        if topic.error_code:
            remedy = f"mm2py needs DESCRIBE and READ on {self._topic}."
            raise BrokerRefused(f"Reading {self._topic}", topic.error_code, remedy=remedy)
        if topic.topic_id != self._topic_id:
            self._start_again(topic.topic_id)
        try:
            async for record in each_record(self._brokers, topic, self._read_to):
                self._take(record)
        except BrokerRefused as error:
            if error.code == OFFSET_OUT_OF_RANGE:  # the topic was truncated
                self._start_again(topic.topic_id)
            raise

    def _start_again(self, topic_id: uuid.UUID | None) -> None:
        self._topic_id = topic_id
        self._read_to.clear()
        self._records.clear()

    def _take(self, record: Record) -> None:
        try:
            entry = decode(record)
        except NotQuarantined:
            return
        if isinstance(entry, QuarantineEntry):
            self._records[entry.provenance.origin] = record_of(entry)
            if len(self._records) > KEPT_MOST:
                del self._records[next(iter(self._records))]
        elif entry.origin in self._records:
            self._records[entry.origin] = replace(self._records[entry.origin], replayed_at_ms=entry.replayed_at_ms)
