"""Gaps, standstills, commands and answers in ``mm2-status.A.internal``: a table that reads, and a log that also writes.

Only records under our own keys count. Kafka Connect keeps the states of its connectors in the same topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from mm2py.clock import Clock
from mm2py.copying.reading.internal_table import TopicTable
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.internal_topic import TopicWriter
from mm2py.kafka.port import Brokers
from mm2py.records.batch import NewRecord
from mm2py.records.gap_record import (
    Command,
    CommandAnswer,
    Gap,
    GapLogRecord,
    MalformedGapRecord,
    decode,
    encode_value,
    is_own_key,
)
from mm2py.records.source_offset import partition_of
from mm2py.records.standstill import Standstill

ANSWERS_KEPT_MS: Final = 24 * 60 * 60 * 1000
"""An answer is removed after this time, whether it was read or not."""
MALFORMED_KEPT_MOST: Final = 20
READ_AGAIN_S: Final = 0.5


class GapTable(TopicTable):
    """The status topic of one flow. Reading it changes nothing on the cluster."""

    def __init__(self, brokers: Brokers, topic: str) -> None:
        super().__init__()
        self.topic = topic
        self.records: dict[bytes, GapLogRecord] = {}
        self.malformed: list[str] = []
        """The first records that could not be understood since this list was last emptied."""
        self.is_missing = False
        """There was no such topic at the last read."""
        self._brokers = brokers
        self._metadata: TopicMetadata | None = None
        self._taken = 0

    async def read(self) -> int:
        """Read what is new since the last call. Return how many of the new records are ours.

        Raises: as ``read_table``.
        """
        self._taken = 0
        try:
            if self._metadata is None:
                self._metadata = await self._find()
            if self._metadata is not None:
                await self._follow(self._brokers, self._metadata)
        except KafkaError:
            self._metadata = None  # its leaders may have moved
            raise
        return self._taken

    async def read_patiently(self) -> None:
        """Read what is new, however long the target does not answer. Raises: KafkaError, it refuses."""
        while True:
            try:
                await self.read()
                return
            except KafkaError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(READ_AGAIN_S)

    @property
    def partitions(self) -> int:
        """How many partitions the topic has; 0 while that is not known."""
        return 0 if self._metadata is None else len(self._metadata.partitions)

    def gaps(self) -> list[Gap]:
        """Return all gaps, by topic, partition and time."""
        found = [record for record in self.records.values() if isinstance(record, Gap)]
        return sorted(found, key=lambda gap: (gap.topic, gap.partition, gap.at_ms))

    def standstills(self) -> list[Standstill]:
        """Return the workers' records about topics that they do not copy in full."""
        return [record for record in self.records.values() if isinstance(record, Standstill)]

    def unanswered(self) -> list[Command]:
        """Return the commands without an answer, oldest first."""
        answered = {record.command_id for record in self.records.values() if isinstance(record, CommandAnswer)}
        commands = [record for record in self.records.values() if isinstance(record, Command)]
        return sorted((one for one in commands if one.command_id not in answered), key=lambda one: one.at_ms)

    def answer_to(self, command: Command) -> CommandAnswer | None:
        found = self.records.get(CommandAnswer(command.command_id, False, "", 0).key)
        return found if isinstance(found, CommandAnswer) else None

    async def _find(self) -> TopicMetadata | None:
        topic = (await fetch_metadata(self._brokers, [self.topic])).topics.get(self.topic)
        self.is_missing = topic is None or topic.error_code == UNKNOWN_TOPIC_OR_PARTITION
        if topic is None or self.is_missing:
            return None
        if topic.error_code:
            remedy = f"mm2py needs DESCRIBE and READ on {self.topic}."
            raise BrokerRefused(f"Reading {self.topic}", topic.error_code, remedy=remedy)
        return topic

    def _clear(self) -> None:
        self.records.clear()

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        if key is None or not is_own_key(key):
            return
        self._taken += 1
        if value is None:
            self.records.pop(key, None)
            return
        try:
            record = decode(key, value)
        except MalformedGapRecord as error:
            if len(self.malformed) < MALFORMED_KEPT_MOST:
                self.malformed.append(str(error))
            return
        if record is not None:
            self.records[key] = record


class GapLog(GapTable):
    """The status topic of one flow, for the worker that also writes to it."""

    def __init__(self, brokers: Brokers, topic: str, partitions: int, writer: TopicWriter, clock: Clock) -> None:
        super().__init__(brokers, topic)
        self._partitions = partitions
        self._writer = writer
        self._clock = clock

    async def put(self, records: Iterable[GapLogRecord]) -> None:
        """Write records. Return when the target has acknowledged all.

        Raises: as ``TopicWriter.write``.
        """
        records = list(records)
        await self._write({record.key: encode_value(record) for record in records})
        self.records.update({one.key: one for one in records})

    async def remove(self, keys: Iterable[bytes]) -> None:
        """Delete records. Raises: as ``TopicWriter.write``."""
        keys = list(keys)
        await self._write(dict.fromkeys(keys))
        for key in keys:
            self.records.pop(key, None)

    async def answer(self, answers: Mapping[Command, CommandAnswer]) -> None:
        """Answer commands, then delete them. After a crash in between they are answered again.

        Raises: as ``TopicWriter.write``.
        """
        await self.put(answers.values())
        await self.remove(command.key for command in answers)

    def old_answers(self) -> list[bytes]:
        """Return the keys of answers to be removed."""
        before_ms = self._clock.wall_ms() - ANSWERS_KEPT_MS
        return [key for key, one in self.records.items() if isinstance(one, CommandAnswer) and one.at_ms < before_ms]

    async def _write(self, values: dict[bytes, bytes | None]) -> None:
        now_ms = self._clock.wall_ms()
        records: dict[int, list[NewRecord]] = {}
        for key, value in values.items():
            records.setdefault(partition_of(key, self._partitions), []).append(NewRecord(key, value, now_ms))
        if records:
            await self._writer.write(records)
