"""The source as a flow sees it that leaves the records of some producers out: they came from its target.

The story: B has taken over from A, and ``mm2py dr reinstate`` has replayed to B what only A had. B->A copies what
clients write on B, among which the replayed records lie. A has these already. So each of their batches arrives here
without records, as the cleaner of a log leaves it, and whatever reads the source goes on behind it: copying, and also
counting after a crash. MirrorMaker 2 has nothing like it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from mm2py.kafka.port import BrokerId, Brokers, FetchedPartition, FetchReply, FetchRequest
from mm2py.records.batch import (
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    NO_TIMESTAMP,
    assemble,
    crc_is_right,
    place,
    read_header,
    split,
)
from mm2py.records.compression import Codec
from mm2py.records.varints import CorruptBatch

PRODUCER_ID_AT = slice(43, 51)
LEADER_EPOCH_AT = slice(12, 16)


def without_producers(brokers: Brokers, left_out: Collection[int]) -> Brokers:
    """Return the brokers of a source without the records of these producers."""
    return cast("Brokers", SourceWithoutProducers(brokers, left_out)) if left_out else brokers


class SourceWithoutProducers:
    """See ``Brokers``."""

    def __init__(self, brokers: Brokers, left_out: Collection[int]) -> None:
        self._brokers = brokers
        self._left_out = frozenset(left_out)

    async def send(self, broker: BrokerId, request: Any, *, channel: str = "control") -> Any:
        """See ``Brokers.send``."""
        reply = await self._brokers.send(broker, request, channel=channel)
        if not isinstance(request, FetchRequest):
            return reply
        assert isinstance(reply, FetchReply)  # noqa: S101  (by the protocol)
        parts = [emptied(part, self._left_out) for part in reply.partitions]
        return FetchReply(parts, reply.size_bytes, reply.error_code, reply.throttle_ms, reply.session_id)

    def round_trip_s(self, broker: BrokerId) -> float | None:
        """See ``Brokers.round_trip_s``."""
        return self._brokers.round_trip_s(broker)

    def close_channel(self, broker: BrokerId, channel: str) -> None:
        """See ``Brokers.close_channel``."""
        self._brokers.close_channel(broker, channel)


def emptied(part: FetchedPartition, left_out: Collection[int]) -> FetchedPartition:
    """Return what was read of a partition, with the batches of these producers without records. Pure.

    A batch that is damaged, or cut at the end of the read, stays as it is: it is read again.
    """
    records, found, end, is_changed = part.records, bytearray(), 0, False
    try:
        for batch in split(records):
            end += len(batch)
            is_ours = (
                len(batch) >= HEADER_BYTES
                and batch[MAGIC_AT] == MAGIC
                and int.from_bytes(batch[PRODUCER_ID_AT], "big", signed=True) in left_out
                and not read_header(batch).is_control
                and crc_is_right(batch)
            )
            is_changed |= is_ours
            found += _without_records(batch) if is_ours else batch
    except CorruptBatch:
        return part  # the planner finds the same, and says so
    if not is_changed:
        return part
    found += records[end:]
    return part._replace(records=memoryview(found))


def _without_records(batch: memoryview) -> bytearray:
    header = read_header(batch)
    empty = assemble(b"", codec=Codec.NONE, record_count=0, base_timestamp_ms=0, max_timestamp_ms=NO_TIMESTAMP)
    place(empty, header.base_offset, header.next_offset)
    empty[LEADER_EPOCH_AT] = batch[LEADER_EPOCH_AT]  # not covered by the checksum
    return empty
