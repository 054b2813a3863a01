"""The ledgers of a flow, as stored in ``mm2-ledger.A.internal``.

MirrorMaker 2 has no such topic. There may be 50,000 partitions, and groups read few of them. So a chunk is kept as
bytes, and is decoded when its partition is asked for. A chunk that was written again replaces the one before it, as
compaction would do.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from mm2py.copying.reading.internal_table import each_placed_record
from mm2py.copying.reading.offset_tables import FollowedTopic
from mm2py.flow import TopicName
from mm2py.kafka.cluster import TopicMetadata
from mm2py.kafka.port import Brokers, TopicPartition
from mm2py.offsets.ledger import EntryOutOfOrder
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.records.java_struct import MalformedRecord
from mm2py.records.ledger_record import (
    ChunkKey,
    NewerLedgerFormat,
    bounds_of,
    decode_start,
    encoded_chunk,
    is_rebuilt,
)

BYTES_MOST: Final = 3 << 20
"""A partition whose chunks are larger loses the older half of them. It has about a million entries then."""
PLAIN_BYTES_MOST: Final = 512
"""A partition whose only chunk is no larger has nothing that would be worth forgetting."""
BYTES_AT_ONCE: Final = 4 << 10
"""Other tasks run after this many bytes of chunks. A byte is at most one entry, which takes at most 3 microseconds."""

ChunkId = tuple[int, int]
"""Number of the ledger, first source offset."""


class PlacedChunk(NamedTuple):
    """A chunk, and the partition of the ledger topic that has it."""

    ledger_partition: int
    key: ChunkKey


class _Outline(NamedTuple):
    """What is kept of a chunk besides its entries."""

    copied_to: int
    target_offset: int
    size: int
    is_rebuilt: bool


class _Chunks:
    """The chunks of one partition, in the order of the topic."""

    __slots__ = ("is_contradicted", "ledger", "ledger_partition", "newest", "taken", "waiting")

    def __init__(self, ledger_partition: int) -> None:
        self.ledger_partition = ledger_partition
        self.ledger: PartitionLedger | None = None
        self.newest: int | None = None
        """Number of the newest ledger. It is not a rebuilt one."""
        self.taken: dict[ChunkId, _Outline] = {}
        """The chunks that are part of ``ledger``."""
        self.waiting: dict[ChunkId, bytes] = {}
        self.is_contradicted = False

    def add(self, chunk: ChunkId, value: bytes) -> None:
        number = chunk[0]
        if not is_rebuilt(value):
            if number != self.newest and any(number == other for other, _ in (*self.taken, *self.waiting)):
                return  # a late chunk of an older ledger
            self.newest = number
        self.waiting.pop(chunk, None)
        self.waiting[chunk] = value

    def remove(self, chunk: ChunkId) -> None:
        self.taken.pop(chunk, None)
        self.waiting.pop(chunk, None)

    def outlines(self) -> list[tuple[ChunkId, _Outline]]:
        """Return all chunks, those of rebuilt ledgers first, then the oldest ledger's."""
        found = dict(self.taken)
        for chunk, value in self.waiting.items():
            try:
                found[chunk] = _Outline(*bounds_of(value), len(value), is_rebuilt(value))
            except MalformedRecord:
                found.pop(chunk, None)
        ranks = {number: at for at, number in enumerate(dict.fromkeys(number for number, _ in found))}
        if self.newest is not None:
            ranks[self.newest] = len(ranks)
        return sorted(found.items(), key=lambda each: (not each[1].is_rebuilt, ranks[each[0][0]], each[0][1]))


class LedgerTable(FollowedTopic):
    """The ledgers of all partitions of a flow. Without the topic there are none."""

    def __init__(self, brokers: Brokers, topic: str, log: FilteringBoundLogger) -> None:
        super().__init__(brokers, topic, log, may_be_missing=True)
        self._partitions: dict[TopicPartition, _Chunks] = {}

    async def follow(self) -> None:
        """Read what is new. Other errors: see ``FollowedTopic.follow``.

        Raises:
            NewerLedgerFormat: a newer mm2py has written a record that must not be ignored.
        """
        try:
            await super().follow()
        except NewerLedgerFormat:
            self._forget()
            raise

    async def prepare(self, keys: Iterable[TopicPartition]) -> None:
        """Decode the chunks of partitions that are about to be asked for, and let other tasks run meanwhile.

        Cancelling loses nothing.
        """
        taken = 0
        for key in keys:
            for size in self._take_in(key):
                taken += size
                if taken >= BYTES_AT_ONCE:
                    taken = 0
                    await asyncio.sleep(0)

    def topics(self) -> set[str]:
        """Return the topics of the source of which there are chunks."""
        return {name for name, _ in self._partitions}

    def of(self, key: TopicPartition) -> PartitionLedger:
        """Return the ledger of a source partition; an empty ledger if there is none."""
        for _ in self._take_in(key):
            pass
        chunks = self._partitions.get(key)
        return PartitionLedger() if chunks is None or chunks.ledger is None else chunks.ledger

    def large(self) -> list[TopicPartition]:
        """Return the partitions with entries that may be worth forgetting."""
        return [
            key
            for key, chunks in self._partitions.items()
            if len(chunks.taken) + len(chunks.waiting) > 1
            or any(one.size > PLAIN_BYTES_MOST for one in chunks.taken.values())
            or any(len(value) > PLAIN_BYTES_MOST for value in chunks.waiting.values())
        ]

    def trim(self, key: TopicPartition, source_log_start: int, target_log_start: int) -> list[PlacedChunk]:
        """Forget what both logs have deleted.

        Returns:
            The chunks of which both logs have deleted everything. The newest of a partition is never among them.
        """
        chunks = self._partitions.get(key)
        if chunks is None:
            return []
        if chunks.ledger is not None:
            chunks.ledger.trim(source_log_start, target_log_start)
        outlines = chunks.outlines()
        return [
            _placed(key, chunks, chunk)
            for at, (chunk, outline) in enumerate(outlines[:-1])
            if outline.copied_to <= source_log_start and outlines[at + 1][1].target_offset <= target_log_start
        ]

    def limit(self, key: TopicPartition) -> list[PlacedChunk]:
        """Forget the older half of a ledger that is too large, and return its chunks."""
        chunks = self._partitions.get(key)
        if chunks is None:
            return []
        outlines = chunks.outlines()
        size = sum(one.size for _, one in outlines)
        if size <= BYTES_MOST:
            return []
        found: list[PlacedChunk] = []
        while size > BYTES_MOST // 2 and len(found) < len(outlines) - 1:
            size -= outlines[len(found)][1].size
            found.append(_placed(key, chunks, outlines[len(found)][0]))
        if chunks.ledger is not None:
            chunks.ledger.forget_before(*outlines[len(found)][0])
        return found

    async def _read(self, brokers: Brokers, topic: TopicMetadata) -> None:
        async for ledger_partition, record in each_placed_record(brokers, topic, self._read_to):
            self._take_from(ledger_partition, record.key, record.value)

    def _clear(self) -> None:
        self._partitions.clear()

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        raise AssertionError("a record of this topic has a partition that counts")

    def _take_from(self, ledger_partition: int, key: bytes | None, value: bytes | None) -> None:
        try:
            found = decode_start(key, value)
        except MalformedRecord as error:
            self._pass_over(error)
            return
        if found is None:
            return
        at, chunk = (sys.intern(found.topic), found.partition), (found.number, found.source_offset)
        chunks = self._partitions.get(at)
        if value is None:
            if chunks is not None:
                chunks.remove(chunk)
            return
        if chunks is None:
            chunks = self._partitions[at] = _Chunks(ledger_partition)
        chunks.add(chunk, value)

    def _take_in(self, key: TopicPartition) -> Iterator[int]:
        """Add the waiting chunks of a partition to its ledger; yields the size of each."""
        chunks = self._partitions.get(key)
        while chunks is not None and chunks.waiting:
            chunk = next(iter(chunks.waiting))
            value = chunks.waiting.pop(chunk)
            if chunks.ledger is None:
                chunks.ledger = PartitionLedger()
            try:
                encoded = encoded_chunk(ChunkKey(TopicName(key[0]), key[1], *chunk), value)
                try:
                    chunks.ledger.take_encoded(encoded)
                except EntryOutOfOrder as error:
                    if not chunks.is_contradicted:
                        chunks.is_contradicted = True
                        self._log.warning("ledger.contradicted", topic=key[0], partition=key[1], why=str(error))
                chunks.taken.pop(chunk, None)
                outline = _Outline(encoded.copied_to, encoded.target_offset, len(value), encoded.is_rebuilt)
                chunks.taken[chunk] = outline
            except MalformedRecord as error:
                self._pass_over(error)
            yield len(value)


def _placed(key: TopicPartition, chunks: _Chunks, chunk: ChunkId) -> PlacedChunk:
    return PlacedChunk(chunks.ledger_partition, ChunkKey(TopicName(key[0]), key[1], *chunk))
