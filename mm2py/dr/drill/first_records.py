"""Reads what a consumer would read first from an offset of one partition on, and the record before it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from mm2py.copying.reading.internal_table import each_record
from mm2py.dr.drill.judgement import ReadFrom
from mm2py.kafka.cluster import TopicMetadata
from mm2py.kafka.port import Brokers
from mm2py.records.batch import Record

BEFORE_OFFSETS: Final = 10
"""How far before the offset the last record is looked for. Markers of transactions may lie between."""
FETCH_BYTES: Final = 64 << 10
"""A broker gives one whole batch at least."""
KEPT_BYTES_MOST: Final = 16 << 20
"""Of the records of one partition that are kept at the same time."""


async def read_from(
    brokers: Brokers,
    topic: TopicMetadata,
    partition: int,
    offset: int,
    bounds: tuple[int, int],
    *,
    most: int,
    read_committed: bool = True,
) -> ReadFrom:
    """Return the first data records from an offset on.

    Args:
        bounds: where the log begins and ends.
        most: how many records.
    Raises:
        BrokerRefused, DamagedTopic, KafkaError: as ``each_record``.
    """
    log_start, log_end = bounds
    begin = max(log_start, offset - BEFORE_OFFSETS)
    if begin >= log_end:
        return ReadFrom(offset, log_start=log_start, log_end=log_end)
    only = replace(topic, partitions={partition: topic.partitions[partition]})
    found, before, kept = list[Record](), None, 0
    is_whole = True
    records = each_record(brokers, only, {partition: begin}, read_committed=read_committed, fetch_bytes=FETCH_BYTES)
    async for record in records:
        if record.offset < offset:
            before = record
            continue
        if len(found) == most or kept > KEPT_BYTES_MOST:
            is_whole = False
            break
        found.append(record)
        kept += len(record.key or b"") + len(record.value or b"")
    return ReadFrom(offset, tuple(found), is_whole, before, log_start, log_end)
