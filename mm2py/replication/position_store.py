"""The stored positions of one flow, in ``mm2-offsets.A.internal``: a table that is read, and a store that writes."""

from __future__ import annotations

from collections.abc import Mapping

from mm2py.clock import Clock
from mm2py.kafka.cluster import TopicMetadata
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
from mm2py.replication.reading.compacted_topic import TopicTable


class PositionStore:
    """Writes positions. All previous producers were fenced in the topic before."""

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
        """There is no such topic now. Positions wait until it is back."""
        return self._writer.is_missing

    @property
    def times_recreated(self) -> int:
        """How often the topic was recreated, without what was stored before."""
        return self._writer.times_recreated

    def number_of(self, key: tuple[str, int]) -> int:
        """Return the partition of the topic that has the position of a (source topic, partition)."""
        return partition_of(self._key(key), self._partitions)

    def trouble(self, number: int) -> str | None:
        """Return why the last attempt to write to a partition of the topic failed; None if it did not."""
        return self._writer.trouble.get(number)

    async def store(self, positions: Mapping[tuple[str, int], StoredPosition]) -> None:
        """Write positions by (source topic, partition). Return when the target has acknowledged all.

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


class PositionTable(TopicTable):
    """The stored positions for a source cluster, as of the last ``read``."""

    def __init__(self, source_alias: str) -> None:
        super().__init__()
        self.positions: dict[tuple[str, int], StoredPosition] = {}
        self.malformed: list[str] = []
        """Records that could not be understood."""
        self.malformed_at: set[tuple[str, int]] = set()
        """Partitions whose last record could not be understood."""
        self._source_alias = source_alias

    async def read(self, brokers: Brokers, topic: TopicMetadata) -> None:
        """Take in what was stored since the last call. Arguments and errors are as of ``read_table``."""
        await self._follow(brokers, topic)

    def _clear(self) -> None:
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
    """Return the stored positions for a source cluster, and what could not be understood.

    Raises: as ``read_table``.
    """
    table = PositionTable(source_alias)
    await table.read(brokers, topic)
    return table.positions, table.malformed
