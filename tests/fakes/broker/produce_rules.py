"""How a broker checks a produced batch and stores it: a function of the bytes, the settings and the time.

Source: ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords, LogValidator, Apache Kafka 4.3.
"""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from tests.fakes.broker.producer_state import Refused
from tests.fakes.broker.record_batch import (
    CODEC_MASK,
    CODECS,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    BadBatch,
    Batch,
    StoredRecord,
    Undecodable,
    has_valid_crc,
    parse_batch,
    read_records,
    reencode,
    rewrite,
)
from tests.fakes.broker.topic_config import TopicConfig

_LEAST_LENGTH: Final = 14
_MAGIC_AT: Final = 16


class WouldCorrupt(AssertionError):
    """The sender has a bug: a broker would store this batch without an error, and consumers would read nonsense."""


def accept(data: bytes | bytearray | memoryview, config: TopicConfig, *, now_ms: int) -> Batch:
    """Return the batch as it will be stored, except its offset and leader epoch.

    Raises:
        Refused: with the code that the broker answers.
        WouldCorrupt: offsets of records inside the batch are wrong, which no broker checks.
    """
    batch = _only_batch(data)
    if batch.base_offset != 0:
        raise Refused(
            ErrorCode.invalid_record, f"The baseOffset of the record batch should be 0, but it is {batch.base_offset}"
        )
    if len(batch.raw) > config.max_message_bytes:
        raise _too_large(batch, config)
    if not has_valid_crc(batch):
        raise Refused(ErrorCode.corrupt_message, f"Record is corrupt (stored crc = {batch.crc})")
    if batch.last_offset_delta + 1 <= 0 or batch.count <= 0 or batch.last_offset_delta + 1 != batch.count:
        raise Refused(
            ErrorCode.invalid_record,
            f"Inconsistent batch offset range [0, {batch.last_offset_delta}] and count of records {batch.count}",
        )
    if batch.control:
        raise Refused(ErrorCode.invalid_record, "Clients are not allowed to write control records")
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        raise Refused(ErrorCode.invalid_record, f"Invalid sequence number {batch.base_sequence} with a producer id")
    if batch.codec not in CODECS:
        raise Refused(ErrorCode.unknown_server_error, f"Unknown compression type id: {batch.attributes & CODEC_MASK}")
    try:
        records = read_records(batch)
    except Undecodable as cause:
        raise Refused(ErrorCode.unknown_server_error, str(cause)) from cause
    except BadBatch as cause:
        raise Refused(ErrorCode.invalid_record, str(cause)) from cause
    _check_records(batch, records, config, now_ms=now_ms)
    return _as_stored(batch, records, config, now_ms=now_ms)


def look_at_frames(data: bytes | bytearray | memoryview, *, only_first: bool = False) -> list[tuple[int, int]]:
    """Return (begin, end) of each batch, as a broker finds them before it reads any; a cut batch ends the search.

    Raises:
        Refused: an impossible length or magic number. In the first batch of any partition it refuses the
            whole request.
    """
    frames: list[tuple[int, int]] = []
    at = 0
    while len(data) - at >= LOG_OVERHEAD and not (only_first and frames):
        length = int.from_bytes(data[at + 8 : at + LOG_OVERHEAD], "big", signed=True)
        if length < _LEAST_LENGTH:
            raise Refused(ErrorCode.corrupt_message, f"Record size {length} is too small", at_the_door=True)
        if len(data) - at <= _MAGIC_AT:
            break
        magic = data[at + _MAGIC_AT]
        if magic > 2:
            raise Refused(ErrorCode.corrupt_message, f"Invalid magic found in record: {magic}", at_the_door=True)
        if len(data) - at < LOG_OVERHEAD + length:
            break
        frames.append((at, at + LOG_OVERHEAD + length))
        at += LOG_OVERHEAD + length
    return frames


def _only_batch(data: bytes | bytearray | memoryview) -> Batch:
    frames = look_at_frames(data)
    if not frames:
        raise _at_the_door("Produce requests must have at least one record batch")
    if data[frames[0][0] + _MAGIC_AT] != 2:
        raise _at_the_door("Produce requests may contain record batches of magic version 2 only")
    if len(frames) > 1:
        raise _at_the_door("Produce requests may contain exactly one record batch per partition")
    try:
        return parse_batch(data)
    except BadBatch as cause:
        raise Refused(ErrorCode.corrupt_message, str(cause)) from cause


def _at_the_door(message: str) -> Refused:
    return Refused(ErrorCode.invalid_record, message, at_the_door=True)


def _check_records(batch: Batch, records: list[StoredRecord], config: TopicConfig, *, now_ms: int) -> None:
    null_key = False
    for record in records:
        if config.compacted and record.key is None:
            null_key = True  # within a record this error wins; between two records, the timestamp's
        elif not config.log_append_time and record.timestamp_ms != NO_TIMESTAMP:
            if (
                now_ms - record.timestamp_ms > config.timestamp_before_max_ms
                or record.timestamp_ms - now_ms > config.timestamp_after_max_ms
            ):
                raise Refused(ErrorCode.invalid_timestamp, f"Timestamp {record.timestamp_ms} is out of range")
        elif batch.log_append_time:
            raise Refused(ErrorCode.invalid_timestamp, "Producer should not set timestamp type to LogAppendTime")
    if null_key:
        raise Refused(ErrorCode.invalid_record, "Compacted topic cannot accept message without key")
    if any(record.offset != index for index, record in enumerate(records)):
        raise WouldCorrupt(f"offset deltas {[record.offset for record in records]} in a batch of {batch.count}")


def _as_stored(batch: Batch, records: list[StoredRecord], config: TopicConfig, *, now_ms: int) -> Batch:
    stored = batch
    wanted = {"producer": batch.codec, "uncompressed": "none"}.get(config.compression, config.compression)
    attributes = batch.attributes & ~LOG_APPEND_TIME
    if config.log_append_time:
        max_timestamp = now_ms
        attributes |= LOG_APPEND_TIME
    else:
        max_timestamp = max(record.timestamp_ms for record in records)
    if wanted != batch.codec:
        plain = rewrite(batch, attributes=batch.attributes & ~DELETE_HORIZON)  # a rebuilt batch has no horizon
        stored = reencode(plain, records, codec=wanted)
        attributes = attributes & ~(CODEC_MASK | DELETE_HORIZON) | stored.attributes & CODEC_MASK
    if (stored.attributes, stored.max_timestamp) != (attributes, max_timestamp):
        stored = rewrite(stored, attributes=attributes, max_timestamp=max_timestamp)
    if len(stored.raw) > config.max_message_bytes:
        raise _too_large(stored, config)
    return stored


def _too_large(batch: Batch, config: TopicConfig) -> Refused:
    return Refused(
        ErrorCode.message_too_large,
        f"The record batch size is {len(batch.raw)} bytes which exceeds the maximum of {config.max_message_bytes}",
    )
