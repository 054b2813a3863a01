"""Applies the transforms of a flow to the records of one batch. Pure, but for the functions of users.

What comes out looks like a batch of a compacted topic: offsets stay, and those of records that were left out are
missing. So all that follows is as for such a batch, the ledger and recovery included. Recovery counts the records that
come out, so it must apply the same transforms: positions have the digest of the chain.

Counterpart: AbstractWorkerSourceTask.convertTransformedRecord of Apache Kafka's Connect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mm2py.records.batch import (
    INT64_MAX,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    Record,
    records_in,
)
from mm2py.records.compression import DecodeBudget
from mm2py.records.record_formats import RecordBody
from mm2py.records.varints import varint
from mm2py.transforms.chain import RunsFunctions, TopicChain, TransformFailed


@dataclass(frozen=True, slots=True)
class PartitionTransforms:
    """The transforms for the records of one partition."""

    chain: TopicChain
    remote_topic: str
    partition: int
    functions: RunsFunctions | None = None
    """Calls the functions of users; None: the chain has none."""

    @property
    def digest(self) -> str:
        """See ``TopicChain.digest``."""
        return self.chain.digest

    def apply(self, records: Sequence[Record]) -> Sequence[Record | None]:
        """Raises: TransformFailed."""
        return self.chain.apply(records, topic=self.remote_topic, partition=self.partition, functions=self.functions)


class TransformedBody(NamedTuple):
    """What came out of one batch."""

    body: RecordBody
    """Up to the first record that did not come out."""
    filtered: int
    """How many records were left out."""
    failure: TransformFailed | None
    """Why the record after ``body`` did not come out; None: all did."""


def transformed(
    body: RecordBody, transforms: PartitionTransforms, *, wanted_offset: int, budget: DecodeBudget
) -> TransformedBody:
    """Transform the records of a surveyed body from the wanted offset on; those before it are left away.

    Raises:
        BatchOverBudget: they have too many headers.
    """
    records = [record for record in _read(body, budget) if record.offset >= wanted_offset]
    failure: TransformFailed | None = None
    results: Sequence[Record | None] = ()
    while records:
        try:
            results = transforms.apply(records)
            break
        except TransformFailed as error:  # those before it come out, also if an earlier one fails now
            failure = error
            records = [record for record in records if record.offset < error.offset]
    kept = [record for record in results if record is not None]
    data = _write(kept, body.base_offset, body.base_timestamp_ms)
    next_offset = body.next_offset if failure is None else failure.offset
    rebuilt = body._replace(data=data, record_count=len(kept), next_offset=next_offset, one_timestamp=False)
    return TransformedBody(rebuilt, len(results) - len(kept), failure)


def _read(body: RecordBody, budget: DecodeBudget) -> list[Record]:
    header = BatchHeader(
        body.base_offset,
        0,
        body.leader_epoch,
        MAGIC,
        0,
        LOG_APPEND_TIME if body.one_timestamp else 0,
        body.next_offset - body.base_offset - 1,
        body.base_timestamp_ms,
        body.base_timestamp_ms,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        body.record_count,
    )
    records = []
    for record in records_in(header, body.data, budget):
        # Java's sums wrap around; no producer means such a time, and nothing but 64 bits can be written
        time_ms = min(max(record.timestamp_ms, NO_TIMESTAMP), INT64_MAX)
        records.append(record if time_ms == record.timestamp_ms else record._replace(timestamp_ms=time_ms))
    return records


def _write(records: Sequence[Record], base_offset: int, base_timestamp_ms: int) -> bytearray:
    data = bytearray()
    for record in records:
        content = bytearray(1)
        content += varint(record.timestamp_ms - base_timestamp_ms)
        content += varint(record.offset - base_offset)
        content += _sized(record.key)
        content += _sized(record.value)
        content += varint(len(record.headers))
        for name, value in record.headers:
            content += _sized(name.encode("utf-8", "surrogateescape"))
            content += _sized(value)
        data += varint(len(content))
        data += content
    return data


def _sized(data: bytes | None) -> bytes:
    return b"\x01" if data is None else varint(len(data)) + data
