"""``mm2-status.A.internal`` as a table: read at start, followed while we run, and written record by record.

Only records under our own keys are looked at; Kafka Connect keeps the states of its connectors in the same topic.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Final

from mm2py.clock import Clock
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata
from mm2py.kafka.error_codes import OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.internal_topic import TopicWriter
from mm2py.kafka.port import Brokers
from mm2py.records.batch import NewRecord
from mm2py.records.source_offset import partition_of
from mm2py.records.status_record import (
    Answer,
    Command,
    Gap,
    MalformedStatus,
    StatusRecord,
    decode,
    encode_value,
    is_own_key,
)
from mm2py.replication.reading.compacted_topic import read_on

ANSWERS_KEPT_MS: Final = 24 * 60 * 60 * 1000
"""An answer that nobody has read by then never will be."""
MALFORMED_KEPT_MOST: Final = 20


class StatusTable:
    """What stands in the status topic of one flow. Reading it changes nothing on the cluster."""

    def __init__(self, brokers: Brokers, topic: str) -> None:
        self.topic = topic
        self.records: dict[bytes, StatusRecord] = {}
        self.malformed: list[str] = []
        """What could not be understood, the first few since somebody last looked."""
        self.is_missing = False
        """There was no such topic at the last look."""
        self._brokers = brokers
        self._metadata: TopicMetadata | None = None
        self._topic_id: uuid.UUID | None = None
        self._read_to: dict[int, int] = {}

    async def read(self) -> int:
        """Take in what is new since the last call; returns how many records of ours that were.

        Raises: as ``read_table``; the next call goes on where this one ended.
        """
        before = len(self._read_to)
        count = 0

        def take(key: bytes | None, value: bytes | None) -> None:
            nonlocal count
            if key is not None and is_own_key(key):
                count += 1
                self._take(key, value)

        try:
            if self._metadata is None:
                self._metadata = await self._find()
            if self._metadata is not None:
                await read_on(self._brokers, self._metadata, self._read_to, take)
        except KafkaError as error:
            self._metadata = None  # its leaders may have moved
            if isinstance(error, BrokerRefused) and error.code == OFFSET_OUT_OF_RANGE and before:
                self._read_to.clear()  # it was cut back: all of it is read once more
                self.records.clear()
            raise
        return count

    @property
    def partitions(self) -> int:
        """How many partitions the topic has; 0 while that is not known."""
        return 0 if self._metadata is None else len(self._metadata.partitions)

    def gaps(self) -> list[Gap]:
        """Return all gaps, by topic, partition and time."""
        found = [record for record in self.records.values() if isinstance(record, Gap)]
        return sorted(found, key=lambda gap: (gap.topic, gap.partition, gap.at_ms))

    def unanswered(self) -> list[Command]:
        """Return the commands that nobody has answered yet, oldest first."""
        answered = {record.command_id for record in self.records.values() if isinstance(record, Answer)}
        commands = [record for record in self.records.values() if isinstance(record, Command)]
        return sorted((one for one in commands if one.command_id not in answered), key=lambda one: one.at_ms)

    def answer_to(self, command: Command) -> Answer | None:
        found = self.records.get(Answer(command.command_id, False, "", 0).key)
        return found if isinstance(found, Answer) else None

    async def _find(self) -> TopicMetadata | None:
        topic = (await fetch_metadata(self._brokers, [self.topic])).topics.get(self.topic)
        self.is_missing = topic is None or topic.error_code == UNKNOWN_TOPIC_OR_PARTITION
        if topic is None or self.is_missing:
            return None
        if topic.error_code:
            what = f"Reading {self.topic}"
            raise BrokerRefused(
                what,
                topic.error_code,
                remedy=f"mm2py needs DESCRIBE and READ on {self.topic}.",
            )
        if topic.topic_id != self._topic_id:
            self._topic_id = topic.topic_id  # made anew: what was read is of another topic
            self._read_to.clear()
            self.records.clear()
        return topic

    def _take(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self.records.pop(key, None)
            return
        try:
            record = decode(key, value)
        except MalformedStatus as error:
            if len(self.malformed) < MALFORMED_KEPT_MOST:
                self.malformed.append(str(error))
            return
        if record is not None:
            self.records[key] = record


class StatusLog(StatusTable):
    """The table of a flow that also writes to it."""

    def __init__(self, brokers: Brokers, topic: str, partitions: int, writer: TopicWriter, clock: Clock) -> None:
        super().__init__(brokers, topic)
        self._partitions = partitions
        self._writer = writer
        self._clock = clock

    async def put(self, records: Iterable[StatusRecord]) -> None:
        """Write records; returns when the target has acknowledged all of them.

        Raises: as ``TopicWriter.write``.
        """
        records = list(records)
        await self._write({record.key: encode_value(record) for record in records})
        self.records.update({one.key: one for one in records})

    async def remove(self, keys: Iterable[bytes]) -> None:
        """End records. Raises: as ``TopicWriter.write``."""
        keys = list(keys)
        await self._write(dict.fromkeys(keys))
        for key in keys:
            self.records.pop(key, None)

    async def answer(self, answers: Mapping[Command, Answer]) -> None:
        """Say what became of commands. They end only then: a crash in between answers them once more.

        Raises: as ``TopicWriter.write``.
        """
        await self.put(answers.values())
        await self.remove(command.key for command in answers)

    def old_answers(self) -> list[bytes]:
        """Return the keys of answers that need not be kept any longer."""
        before_ms = self._clock.wall_ms() - ANSWERS_KEPT_MS
        return [key for key, one in self.records.items() if isinstance(one, Answer) and one.at_ms < before_ms]

    async def _write(self, values: dict[bytes, bytes | None]) -> None:
        now_ms = self._clock.wall_ms()
        records: dict[int, list[NewRecord]] = {}
        for key, value in values.items():
            records.setdefault(partition_of(key, self._partitions), []).append(NewRecord(key, value, now_ms))
        if records:
            await self._writer.write(records)
