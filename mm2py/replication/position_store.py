"""The positions of one flow: ``mm2-offsets.A.internal`` read as a table, and written record by record."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from mm2py.clock import Clock
from mm2py.kafka.cluster import TopicMetadata
from mm2py.kafka.error_codes import OFFSET_OUT_OF_RANGE
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.internal_topic import TopicWriter
from mm2py.kafka.port import Brokers
from mm2py.records.batch import NewRecord
from mm2py.records.source_offset import (
    MalformedPosition,
    SourcePartition,
    StoredPosition,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    partition_of,
)
from mm2py.replication.reading.compacted_topic import read_on


class PositionStore:
    """Writes positions. Before it writes, all other producers have been shut out of the topic."""

    def __init__(self, source_alias: str, partitions: int, writer: TopicWriter, clock: Clock) -> None:
        self._source_alias = source_alias
        self._partitions = partitions
        self._writer = writer
        self._clock = clock

    @property
    def topic(self) -> str:
        return self._writer.topic

    @property
    def is_missing(self) -> bool:
        """There is no such topic just now: what is to be stored waits until it is back."""
        return self._writer.is_missing

    @property
    def times_recreated(self) -> int:
        """How often the topic came back as another one, without what was stored before."""
        return self._writer.times_recreated

    def number_of(self, key: tuple[str, int]) -> int:
        """Return in which partition of the topic the position of a (source topic, partition) is kept."""
        return partition_of(self._key(key), self._partitions)

    def trouble(self, number: int) -> str | None:
        """Return why a partition of the topic could not be written to at the last attempt; None if it could."""
        return self._writer.trouble.get(number)

    async def store(self, positions: Mapping[tuple[str, int], StoredPosition]) -> None:
        """Write positions of (source topic, partition); returns when the target has acknowledged all of them.

        Raises: as ``TopicWriter.write``.
        """
        now_ms = self._clock.wall_ms()
        records: dict[int, list[NewRecord]] = {}
        for at, position in positions.items():
            key = self._key(at)
            record = NewRecord(key, encode_value(position), now_ms)
            records.setdefault(partition_of(key, self._partitions), []).append(record)
        await self._writer.write(records)

    def _key(self, at: tuple[str, int]) -> bytes:
        return encode_key(SourcePartition(self._source_alias, *at))


class PositionTable:
    """What is stored for a source cluster, as of the last ``read``."""

    def __init__(self, source_alias: str) -> None:
        self.positions: dict[tuple[str, int], StoredPosition] = {}
        self.malformed: list[str] = []
        """What could not be understood on the way."""
        self.malformed_at: set[tuple[str, int]] = set()
        """Of what something was stored last that could not be understood."""
        self._source_alias = source_alias
        self._topic_id: uuid.UUID | None = None
        self._read_to: dict[int, int] = {}

    async def read(self, brokers: Brokers, topic: TopicMetadata) -> None:
        """Take in what was stored since the last call.

        Args:
            topic: fresh metadata; every partition has a leader.
        Raises: as ``read_table``; the next call goes on where this one ended.
        """
        if topic.topic_id != self._topic_id:
            self._clear(topic)
        try:
            await read_on(brokers, topic, self._read_to, self._take)
        except BrokerRefused as error:
            if error.code == OFFSET_OUT_OF_RANGE:  # it was cut back: all of it is read once more
                self._clear(topic)
            raise

    def _clear(self, topic: TopicMetadata) -> None:
        self._topic_id = topic.topic_id
        self._read_to.clear()
        self.positions.clear()
        self.malformed_at.clear()

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        partition = None
        try:
            partition = decode_key(key)
            if partition is None or partition.cluster != self._source_alias:
                return
            stored = decode_value(value)
        except MalformedPosition as error:
            self.malformed.append(str(error))
            if partition is not None:
                self.malformed_at.add((partition.topic, partition.partition))
            return
        at = (partition.topic, partition.partition)
        self.malformed_at.discard(at)
        if stored is None:
            self.positions.pop(at, None)
        else:
            self.positions[at] = stored


async def read_positions(
    brokers: Brokers, topic: TopicMetadata, source_alias: str
) -> tuple[dict[tuple[str, int], StoredPosition], list[str]]:
    """Return what is stored for a source cluster, and what could not be understood on the way.

    Raises: as ``read_table``.
    """
    table = PositionTable(source_alias)
    await table.read(brokers, topic)
    return table.positions, table.malformed
