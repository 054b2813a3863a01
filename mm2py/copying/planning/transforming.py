"""Applies the transforms of a flow to the records of one batch. Pure, but for the functions of users.

What comes out looks like a batch of a compacted topic: offsets stay, and those of records that were left out are
missing. So all that follows is as for such a batch, the ledger and recovery included. Recovery counts the records that
come out, so it must apply the same transforms: positions have the digest of the chain.

Counterpart: AbstractWorkerSourceTask.convertTransformedRecord of Apache Kafka's Connect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from mm2py.records.batch import (
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
from mm2py.records.varints import read_raw, varint
from mm2py.transforms.chain import RunsFunctions, TopicChain, TransformFailed

_INT64_HALF: Final = 1 << 63


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
    if not transforms.chain.calls_functions:
        return _without_functions(body, transforms, wanted_offset, budget)
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


def _without_functions(
    body: RecordBody, transforms: PartitionTransforms, wanted_offset: int, budget: DecodeBudget
) -> TransformedBody:
    """Do the same where keys, values and times stay: all but the headers of a record is copied as bytes.

    Of keys and values the records that are transformed only have whether there is one. No transform but a function of a
    user looks at more of them.
    """
    data, position, headers_left = bytes(body.data), 0, budget.headers
    records: list[Record] = []
    places: list[tuple[int, int, int, int]] = []
    for _ in range(body.record_count):  # the layout was checked before
        record_at = position
        length, content_at = read_raw(data, position)
        end = position = content_at + (length >> 1)
        _, delta_at = read_raw(data, content_at + 1)
        delta, key_at = read_raw(data, delta_at)
        key, value_at = read_raw(data, key_at)
        if not key & 1:
            value_at += key >> 1
        value, headers_at = read_raw(data, value_at)
        if not value & 1:
            headers_at += value >> 1
        offset = body.base_offset + (delta >> 1)
        if offset < wanted_offset:
            continue
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if data[headers_at]:
            headers = tuple(_headers(data, headers_at))
            headers_left -= len(headers)
            if headers_left < 0:
                raise budget.too_many_headers()
        records.append(Record(offset, NO_TIMESTAMP, None if key & 1 else b"", None if value & 1 else b"", headers))
        places.append((record_at, content_at, headers_at, end))
    out = bytearray()
    kept = 0
    results = transforms.apply(records)
    for (record_at, content_at, headers_at, end), given, result in zip(places, records, results, strict=True):
        if result is None:
            continue
        kept += 1
        if result.headers is given.headers:
            out += data[record_at:end]
            continue
        content = bytearray(data[content_at:headers_at])
        _write_headers(content, result)
        out += varint(len(content))
        out += content
    return TransformedBody(body._replace(data=out, record_count=kept), len(records) - kept, None)


def _headers(data: bytes, position: int) -> Iterator[tuple[str, bytes | None]]:
    count, position = read_raw(data, position)
    for _ in range(count >> 1):
        size, position = read_raw(data, position)
        name = data[position : position + (size >> 1)].decode("utf-8", "surrogateescape")
        size, position = read_raw(data, position + (size >> 1))
        if size & 1:
            yield name, None
        else:
            yield name, data[position : position + (size >> 1)]
            position += size >> 1


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
    return list(records_in(header, body.data, budget))


def _write(records: Sequence[Record], base_offset: int, base_timestamp_ms: int) -> bytearray:
    data = bytearray()
    for record in records:
        content = bytearray(1)
        delta_ms = record.timestamp_ms - base_timestamp_ms
        content += varint((delta_ms + _INT64_HALF) % (2 * _INT64_HALF) - _INT64_HALF)  # wraps around, as in Java
        content += varint(record.offset - base_offset)
        content += _sized(record.key)
        content += _sized(record.value)
        _write_headers(content, record)
        data += varint(len(content))
        data += content
    return data


def _write_headers(content: bytearray, record: Record) -> None:
    content += varint(len(record.headers))
    for name, value in record.headers:
        content += _sized(name.encode("utf-8", "surrogateescape"))
        content += _sized(value)


def _sized(data: bytes | None) -> bytes:
    return b"\x01" if data is None else varint(len(data)) + data
