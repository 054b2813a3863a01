"""Writes the ledger of a task's partitions, which says at which target offset each record was copied.

MirrorMaker 2 has only offset syncs, which name single records. A position is stored only after the part of the ledger
before it (``PositionKeeper``). So nothing is missing after a crash: the next owner continues the ledger at the position
that it finds, and adds what it finds out about the records after it. Both topics are written under the producer id that
a successor fences.

The copier notes each acknowledgement once, for both the ledger and the offset syncs (``take_runs``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from mm2py.copying.copied_partition import CopiedPartition
from mm2py.flow import TopicName
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.internal_topic import TopicWriter
from mm2py.kafka.port import TopicPartition
from mm2py.offsets.own_ledger import LedgerOf, OwnLedger
from mm2py.offsets.runs import Run
from mm2py.records.batch import NewRecord
from mm2py.records.ledger_record import LedgerChunk, encode
from mm2py.records.source_offset import SourcePartition, partition_for
from mm2py_connectors.source.context import FlowContext

Chunks = Mapping[TopicPartition, Sequence[LedgerChunk]]


class LedgerKeeper:
    """The ledgers of one task's partitions."""

    def __init__(
        self, context: FlowContext, partitions: int, writer: TopicWriter, make_topic: Callable[[], Awaitable[object]]
    ) -> None:
        """Make one.

        Args:
            partitions: how many the ledger topic has.
            writer: does not wait for a topic that was deleted; ``make_topic`` creates it again.
        """
        self._source_alias = context.flow.source
        self._clock = context.clock
        self._log = context.log
        self._partitions = partitions
        self._writer = writer
        self._make_topic = make_topic
        self._times_recreated = writer.times_recreated
        self._ledgers: dict[CopiedPartition, OwnLedger] = {}
        self._runs: dict[CopiedPartition, list[Run]] = {}
        """What the offset syncs have not taken yet."""
        self.written_chunks = 0
        """Chunks written to the topic; one that grows is written again. ``written_entries``: the entries in them."""
        self.written_entries = 0

    def start(self, part: CopiedPartition) -> None:
        """Begin at a partition's position: continue the ledger that its stored position names, or begin a new one."""
        stored, position = part.stored, part.copier.position
        if part.ledger.number is None:
            part.ledger.number = self._clock.wall_ms()
        self._ledgers[part] = OwnLedger(
            LedgerOf(TopicName(part.source_topic), part.partition, part.source_topic_id, part.target_topic_id),
            part.ledger.number,
            (position.source_offset, position.target_offset),
            is_whole=stored is None,
            continues=stored is not None and stored.ledger is not None,
            run=None if stored is None else stored.ledger_run,
            skipped=() if stored is None else stored.skipped,
        )

    def forget(self, part: CopiedPartition) -> None:
        """Forget a partition that is not copied any more."""
        self._ledgers.pop(part, None)
        self._runs.pop(part, None)

    def take_runs(self, part: CopiedPartition) -> list[Run]:
        """Return what was acknowledged since the last call, for the offset syncs."""
        self._collect(part)
        return self._runs.pop(part, [])

    def chunks(self, part: CopiedPartition) -> Sequence[LedgerChunk]:
        """Return what must be stored before the partition's present position."""
        ledger = self._ledgers.get(part)
        if ledger is None:
            return ()
        self._collect(part)
        ledger.advance(part.copier.position.source_offset, part.copier.position.target_offset)
        part.ledger.run = ledger.run
        return ledger.chunks()

    def written(self, part: CopiedPartition, chunks: Sequence[LedgerChunk]) -> None:
        """Note that chunks of a partition are stored."""
        if (ledger := self._ledgers.get(part)) is not None:
            ledger.written(chunks)

    def trouble(self, position_key: TopicPartition) -> str | None:
        """Return why the last attempt to write the ledger of a source partition failed; None if it did not fail."""
        number = self._number_of(position_key)
        why = self._writer.trouble.get(number)
        return None if why is None else f"{self._writer.topic}-{number}: {why}"

    async def store(self, chunks: Chunks) -> None:
        """Write chunks by source partition. Return when the target has acknowledged all.

        Raises: as ``TopicWriter.write``; TableUnusable.
        """
        now_ms = self._clock.wall_ms()
        records: dict[int, list[NewRecord]] = {}
        for key, ours in chunks.items():
            records.setdefault(self._number_of(key), []).extend(encode(chunk, now_ms) for chunk in ours)
        if records:
            await self._write(records)
            self.written_chunks += sum(map(len, chunks.values()))
            self.written_entries += sum(len(chunk.entries) for ours in chunks.values() for chunk in ours)

    async def _write(self, records: Mapping[int, Sequence[NewRecord]]) -> None:
        while True:
            try:
                await self._writer.write(records)
                break
            except BrokerRefused as error:
                if error.code != UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                await self._make_topic()
        if self._times_recreated != self._writer.times_recreated:
            self._times_recreated = self._writer.times_recreated
            self._log.warning(
                "ledger.topic_recreated",
                topic=self._writer.topic,
                effect="groups whose offsets were in it go on by offset syncs, and may read some records again",
            )
            for ledger in self._ledgers.values():
                ledger.write_again()

    def _collect(self, part: CopiedPartition) -> None:
        entries, ledger = part.copier.new_runs.take(), self._ledgers.get(part)
        if not entries or ledger is None:
            return
        ledger.add(entries, self._clock.wall_ms())
        if part.ledger.number != ledger.number:
            part.ledger.number = ledger.number
            self._log.warning(
                "ledger.another_begins",
                topic=part.source_topic,
                partition=part.partition,
                why="the remote partition has lost its end, or the ledger could not be written for long",
                effect="groups that lag behind its beginning may read some records again",
            )
        self._runs.setdefault(part, []).extend([one for one in entries if type(one) is Run])

    def _number_of(self, key: TopicPartition) -> int:
        """Return the partition of the ledger topic: as in the offsets topic if both topics are equally wide."""
        return partition_for(SourcePartition(self._source_alias, *key), self._partitions)
