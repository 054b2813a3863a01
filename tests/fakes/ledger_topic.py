"""Writes chunks of ledgers to the ledger topic of a cluster model, as the owners of partitions do."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from mm2py.flow import TopicName
from mm2py.offsets.partition_ledger import TopicId
from mm2py.offsets.runs import Entry
from mm2py.records.ledger_record import ChunkKey, LedgerChunk, encode
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.broker.record_batch import Record

LEDGER = "mm2-ledger.A.internal"


def chunk(
    *entries: Entry,
    topic: str = "orders",
    partition: int = 0,
    number: int = 1,
    begin: tuple[int, int] = (0, 0),
    copied_to: int | None = None,
    is_whole: bool | None = None,
    is_rebuilt: bool = False,
    source_topic_id: TopicId = None,
    target_topic_id: TopicId = None,
) -> LedgerChunk:
    """Return a chunk. Without ``is_whole``, it is whole if it begins at the first offset."""
    end = entries[-1].source_end if entries else begin[0]
    return LedgerChunk(
        ChunkKey(TopicName(topic), partition, number, begin[0]),
        begin[1],
        entries,
        end if copied_to is None else copied_to,
        is_whole=begin == (0, 0) if is_whole is None else is_whole,
        source_topic_id=source_topic_id,
        target_topic_id=target_topic_id,
        is_rebuilt=is_rebuilt,
    )


def write_chunks(
    cluster: ClusterModel, chunks: Sequence[LedgerChunk], *, partitions: int = 3, topic: str = LEDGER
) -> None:
    """Append chunks, all of a source partition to the same partition of the topic. The topic is created if needed."""
    if topic not in cluster.topics:
        cluster.create_topic(topic, partitions, {"cleanup.policy": "compact"})
    batches: dict[int, list[Record]] = {}
    for one in chunks:
        record = encode(one, int(cluster.clock.wall_ms()))
        to = zlib.crc32(f"{one.key.topic}-{one.key.partition}".encode()) % partitions
        batches.setdefault(to, []).append(Record(key=record.key, value=record.value))
    for to, records in batches.items():
        cluster.append(topic, to, records)
