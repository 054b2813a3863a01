"""The codec of the messages that carry record batches, Fetch 12-17 and Produce 9-13, and the memory of their frames.

Everything else is a kio entity. Here nothing is copied: the batches of a fetch reply stay views of the received frame,
and the batches of a produce request go to the socket as they are. From Fetch 13 and Produce 13 on, topics travel by id,
so a recreated topic is not mistaken for the old one.

A frame of a backlog has megabytes and lives for milliseconds. If the system provided the memory each time, it would
clear each page again; on the heap, a mirror at full load grew by 5 MB every few minutes. So large frames get blocks of
pages outside the heap, which are reused. Blocks that were not needed for a while are freed. No caller gives a block
back: code that still reads from a frame has a view of it, and a ``mmap`` with views refuses to change its size. This
shows whether a block is free, without a count that could go wrong.

``keep_large_blocks`` tells the C library to keep other large blocks, such as merged batches, for the next use. By
default glibc returns them at once, and each use costs a page fault per 4 KB.
Source: FetchRequest.json, FetchResponse.json, ProduceRequest.json, ProduceResponse.json, Apache Kafka 4.3.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import uuid
from collections.abc import Mapping
from typing import Final

from mm2py.kafka.port import (
    FetchedPartition,
    FetchReply,
    FetchRequest,
    ProducedPartition,
    ProduceReply,
    ProduceRequest,
)
from mm2py.kafka.transport.fetch_session import SessionFetch, outside

KEPT_BLOCK_BYTES: Final = 32 << 20
"""Blocks up to this size come from the heap. This is the highest value: where glibc checks it, it refuses more than
half of HEAP_MAX_SIZE, which is 64 MB on 64-bit systems by default."""
KEPT_HEAP_BYTES: Final = 16 << 20
"""The heap shrinks when more than this is free at its end. At full load memory was flat only with this and with the
blocks of ``FrameMemory``."""
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3


def keep_large_blocks() -> bool:
    """Make the C library of this process keep large blocks, as the module's docstring says.

    Returns False where it has no such setting: everything works there too, but slower.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    taken = [mallopt(_MMAP_THRESHOLD, KEPT_BLOCK_BYTES), mallopt(_TRIM_THRESHOLD, KEPT_HEAP_BYTES)]
    return all(taken)


Frame = bytearray | memoryview

KEPT_FROM_BYTES: Final = 512 << 10
"""Smaller frames are left to the allocator."""
STEP_BYTES: Final = 256 << 10
"""Blocks have a multiple of this size."""
MOST_SPARE: Final = 1.5
"""A block more than this many times as large as a frame is left for a larger frame: memory is counted by frames."""
KEPT_S: Final = 30.0
"""A block that was not needed for this long goes back to the system."""
LIMIT_BYTES: Final = 48 << 20
"""The default for how much blocks may take; the command gives them half of ``memory.max.bytes``."""


class _Block:
    __slots__ = ("memory", "size", "used_at_s")

    def __init__(self, size: int) -> None:
        self.size = size
        self.memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.used_at_s = 0.0

    @property
    def is_free(self) -> bool:
        try:
            self.memory.resize(self.size)
        except BufferError:
            return False
        except (SystemError, OSError):  # the system cannot or may not resize; Python found no views before
            return True
        return True


class FrameMemory:
    """The blocks of all connections of a process."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        """``limit_bytes``: when blocks would take more than that, free blocks are dropped before one is added."""
        self._limit_bytes = limit_bytes
        self._blocks: list[_Block] = []
        """In the order of their last use."""
        self._look_again_at_s = 0.0

    @property
    def kept_bytes(self) -> int:
        return sum(block.size for block in self._blocks)

    def take(self, size: int, now_s: float) -> Frame:
        """Return ``size`` writable bytes with any content. They are free again when no view of them is left."""
        if now_s >= self._look_again_at_s:
            self._look_again_at_s = now_s + KEPT_S / 2
            self._blocks = [block for block in self._blocks if now_s - block.used_at_s < KEPT_S or not block.is_free]
        if size < KEPT_FROM_BYTES:
            return bytearray(size)
        block = self._free_block(size) or self._new_block(-(-size // STEP_BYTES) * STEP_BYTES)
        block.used_at_s = now_s
        self._blocks.append(block)
        return memoryview(block.memory)[:size]

    def _free_block(self, size: int) -> _Block | None:
        """Remove and return the smallest free block that fits; None if there is none."""
        fitting = [block for block in self._blocks if size <= block.size <= MOST_SPARE * size and block.is_free]
        if not fitting:
            return None
        best = min(fitting, key=lambda block: block.size)
        self._blocks.remove(best)
        return best

    def _new_block(self, size: int) -> _Block:
        excess = self.kept_bytes + size - self._limit_bytes
        for block in list(self._blocks):
            if excess > 0 and block.is_free:
                self._blocks.remove(block)
                excess -= block.size
        return _Block(size)


PRODUCE_KEY: Final = 0
FETCH_KEY: Final = 1
PRODUCE_VERSIONS: Final = (9, 13)
FETCH_VERSIONS: Final = (12, 17)
FIRST_WITH_TOPIC_IDS: Final = 13
"""Both Fetch and Produce name topics by id from this version on."""
LAST_OF_PLAIN_TRANSACTIONS: Final = 11
"""Last version of Produce with which each partition is added to its transaction before records are sent."""

_FETCH_HEAD: Final = struct.Struct(">iiibii")
_FETCH_PARTITION: Final = struct.Struct(">iiqiqiB")
_FETCHED_PARTITION: Final = struct.Struct(">ihqqq")
_ABORTED: Final = struct.Struct(">qq")
_PRODUCED_PARTITION: Final = struct.Struct(">ihqqq")
_NOTHING_ELSE: Final = b"\x01\x00\x00"
"""Ends a partition's part of a produce reply: no record errors, no message, no tags."""
_EPOCH_END: Final = struct.Struct(">iq")
_DIVERGING_EPOCH_TAG: Final = 0
_ACKS_ALL: Final = -1

NamesById = Mapping[uuid.UUID, str]
Part = bytes | bytearray | memoryview


class Malformed(ValueError):
    """The bytes are not the reply that was asked for."""


def uvarint(value: int) -> bytes:
    """Return ``value`` as an unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _compact_string(text: str) -> bytes:
    raw = text.encode()
    return uvarint(len(raw) + 1) + raw


def _topic_key(name: str, topic_id: uuid.UUID | None, *, by_id: bool) -> bytes:
    if not by_id:
        return _compact_string(name)
    if topic_id is None:
        raise ValueError(f"Topic {name} has no id; the version must be chosen with usable_version().")
    return topic_id.bytes


def usable_version(request: FetchRequest | ProduceRequest, highest: int) -> int:
    """Return the highest version up to ``highest`` that can name every topic of the request.

    From version 12 of Produce on, a broker assumes that a transaction follows the second version of Kafka's protocol.
    """
    if isinstance(request, ProduceRequest) and request.transactional_id is not None:
        return min(highest, LAST_OF_PLAIN_TRANSACTIONS)
    if highest >= FIRST_WITH_TOPIC_IDS and any(topic.topic_id is None for topic in request.topics):
        return FIRST_WITH_TOPIC_IDS - 1
    return highest


def encode_fetch(request: FetchRequest, version: int, sent: SessionFetch | None = None) -> list[Part]:
    """Return the body of a fetch request in parts.

    Args:
        sent: the part of it that is sent within a fetch session; None sends all of it, outside of any session.
    """
    sent = sent or outside(request)
    by_id = version >= FIRST_WITH_TOPIC_IDS
    out = bytearray()
    if version <= 14:
        out += b"\xff\xff\xff\xff"  # replica id -1: a consumer; later versions send it only for replicas
    isolation = 1 if request.read_committed else 0
    out += _FETCH_HEAD.pack(
        request.max_wait_ms, request.min_bytes, request.max_bytes, isolation, sent.session_id, sent.epoch
    )
    out += uvarint(len(sent.topics) + 1)
    for topic in sent.topics:
        out += _topic_key(topic.name, topic.topic_id, by_id=by_id)
        out += uvarint(len(topic.partitions) + 1)
        for want in topic.partitions:
            out += _FETCH_PARTITION.pack(
                want.partition,
                want.current_leader_epoch,
                want.fetch_offset,
                want.last_fetched_epoch,
                -1,
                want.max_bytes,
                0,
            )
        out.append(0)
    out += uvarint(len(sent.forgotten) + 1)
    for name, topic_id, numbers in sent.forgotten:
        out += _topic_key(name, topic_id, by_id=by_id)
        out += uvarint(len(numbers) + 1)
        out += struct.pack(f">{len(numbers)}i", *numbers)
        out.append(0)
    out += _compact_string(request.rack)
    out.append(0)  # no tags
    return [out]


def encode_produce(request: ProduceRequest, version: int) -> list[Part]:
    """Return the body of a produce request in parts; the batches among them are the caller's own buffers."""
    transactional_id = request.transactional_id
    head = bytearray(b"\x00" if transactional_id is None else _compact_string(transactional_id))
    head += struct.pack(">hi", _ACKS_ALL, request.timeout_ms)
    head += uvarint(len(request.topics) + 1)
    parts: list[Part] = []
    for topic in request.topics:
        head += _topic_key(topic.name, topic.topic_id, by_id=version >= FIRST_WITH_TOPIC_IDS)
        head += uvarint(len(topic.partitions) + 1)
        for number, records in topic.partitions:
            head += number.to_bytes(4)
            head += uvarint(len(records) + 1)
            parts.append(head)
            parts.append(records)
            head = bytearray(1)  # no tags
        head.append(0)
    head.append(0)
    parts.append(head)
    return parts


class _Reader:
    """Reads a frame from ``position`` on; every length is checked against the frame before it is used."""

    __slots__ = ("allowance", "end", "position", "view")

    def __init__(self, view: memoryview, position: int, allowance: int = 0) -> None:
        """``allowance``: how many elements it may have in total whose number our request does not limit."""
        self.view = view
        self.position = position
        self.end = len(view)
        self.allowance = allowance

    def take(self, size: int) -> memoryview:
        start = self.position
        if size < 0 or start + size > self.end:
            raise Malformed(f"{size} bytes announced at {start} of {self.end}")
        self.position = start + size
        return self.view[start : self.position]

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        start = self.position
        if start + layout.size > self.end:
            raise Malformed(f"cut at {self.end}")
        self.position = start + layout.size
        return layout.unpack_from(self.view, start)

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def int16(self) -> int:
        return int.from_bytes(self.take(2), "big", signed=True)

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            if self.position >= self.end or shift > 28:
                raise Malformed("bad varint")
            byte = self.view[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def array_length(self, *, least_size: int, most: int | None = None) -> int:
        """Length of a compact array (0 for null); refused when the rest of the frame cannot hold that many.

        Args:
            most: how many we asked for; None: our request does not limit them, and they count against the allowance.
        """
        length = max(0, self.uvarint() - 1)
        if length * least_size > self.end - self.position:
            raise Malformed(f"{length} elements announced in {self.end - self.position} bytes")
        if most is None:
            self.spend(length)
        elif length > most:
            raise Malformed(f"{length} elements announced, {most} were asked for")
        return length

    def spend(self, count: int) -> None:
        """Take this many elements from the allowance."""
        self.allowance -= count
        if self.allowance < 0:
            raise Malformed("more elements than such a reply can have")

    def compact_string(self) -> str | None:
        length = self.uvarint()
        if length == 0:
            return None
        try:
            text = str(self.take(length - 1), "utf-8")
        except UnicodeDecodeError:
            text = None  # a Malformed raised here would keep this error, and with it the bytes
        if text is None:
            raise Malformed("a string is not UTF-8")
        return text

    def tags(self) -> dict[int, memoryview]:
        if self.position < self.end and self.view[self.position] == 0:  # nearly always
            self.position += 1
            return {}
        found = {}
        count = self.uvarint()
        self.spend(count)
        for _ in range(count):
            tag = self.uvarint()
            found[tag] = self.take(self.uvarint())
        return found

    def topic(self, *, by_id: bool, names: NamesById) -> str:
        if by_id:
            topic_id = uuid.UUID(bytes=bytes(self.take(16)))
            if topic_id not in names:
                raise Malformed(f"topic id {topic_id} was not asked for")
            return names[topic_id]
        name = self.compact_string()
        if name is None:
            raise Malformed("topic without a name")
        return name


SPARE_ELEMENTS: Final = 250_000
"""How many more elements a reply may have, about 30 MB: aborted transactions that end beyond the read, or whose records
compaction has removed; tags of later versions."""
ABORTED_BYTES: Final = 2 * 61 + 17
"""How many bytes an aborted transaction takes in a read, at least: a batch, its marker and its entry in the list."""
RECORD_ERRORS_MOST: Final = 200_000
"""Limit of the record errors in a reply: more than a batch of a megabyte has records."""


def decode_fetch(
    frame: bytearray | memoryview, position: int, version: int, names: NamesById, *, asked: int
) -> FetchReply:
    """Return the reply whose body starts at ``position``; record batches are views of ``frame``.

    Args:
        asked: about how many partitions the broker was asked.
    Raises:
        Malformed: the bytes are not a fetch reply of this version.
    """
    reader = _Reader(memoryview(frame), position, SPARE_ELEMENTS + len(frame) // ABORTED_BYTES)
    by_id = version >= FIRST_WITH_TOPIC_IDS
    throttle_ms = reader.int32()
    error_code = reader.int16()
    session_id = reader.int32()
    partitions: list[FetchedPartition] = []
    for _ in range(reader.array_length(least_size=3, most=asked)):
        name = reader.topic(by_id=by_id, names=names)
        count = reader.array_length(least_size=37, most=asked - len(partitions))
        partitions += [_fetched_partition(reader, name) for _ in range(count)]
        reader.tags()
    reader.tags()
    return FetchReply(
        partitions, size_bytes=len(frame), error_code=error_code, throttle_ms=throttle_ms, session_id=session_id
    )


def _fetched_partition(reader: _Reader, topic: str) -> FetchedPartition:
    partition, error_code, high_watermark, last_stable, log_start = reader.unpack(_FETCHED_PARTITION)
    aborted: list[tuple[int, int]] = []
    for _ in range(reader.array_length(least_size=17)):
        producer_id, first_offset = reader.unpack(_ABORTED)
        aborted.append((producer_id, first_offset))
        reader.tags()
    preferred_replica = reader.int32()
    size = reader.uvarint() - 1
    records = reader.take(max(0, size))
    diverging = reader.tags().get(_DIVERGING_EPOCH_TAG)
    if diverging is not None and len(diverging) < _EPOCH_END.size:
        raise Malformed("diverging epoch is cut")
    return FetchedPartition(
        topic,
        partition,
        error_code,
        high_watermark,
        last_stable,
        log_start,
        records,
        aborted,
        None if diverging is None else _epoch_end(diverging),
        preferred_replica,
    )


def _epoch_end(raw: memoryview) -> tuple[int, int]:
    epoch, end_offset = _EPOCH_END.unpack_from(raw)
    return epoch, end_offset


def decode_produce(
    frame: bytearray | memoryview, position: int, version: int, names: NamesById, *, asked: int
) -> ProduceReply:
    """Return the reply whose body starts at ``position``.

    Args:
        asked: how many partitions were written to.
    Raises:
        Malformed: the bytes are not a produce reply of this version.
    """
    reader = _Reader(memoryview(frame), position, RECORD_ERRORS_MOST)
    by_id = version >= FIRST_WITH_TOPIC_IDS
    partitions: list[ProducedPartition] = []
    for _ in range(reader.array_length(least_size=3, most=asked)):
        name = reader.topic(by_id=by_id, names=names)
        count = reader.array_length(least_size=33, most=asked - len(partitions))
        partitions += [_produced_partition(reader, name) for _ in range(count)]
        reader.tags()
    throttle_ms = reader.int32()
    reader.tags()
    return ProduceReply(partitions, throttle_ms=throttle_ms)


def _produced_partition(reader: _Reader, topic: str) -> ProducedPartition:
    partition, error_code, base_offset, append_time_ms, log_start = reader.unpack(_PRODUCED_PARTITION)
    after = reader.position + len(_NOTHING_ELSE)
    if reader.view[reader.position : after].tobytes() == _NOTHING_ELSE:  # nearly always
        reader.position = after
        return ProducedPartition(topic, partition, error_code, base_offset, append_time_ms, log_start)
    reasons: list[str] = []
    for _ in range(reader.array_length(least_size=6)):
        reader.int32()
        reasons.append(reader.compact_string() or "")
        reader.tags()
    message = reader.compact_string()
    reader.tags()
    text = "; ".join(filter(None, [message, *reasons[:3]])) or None
    return ProducedPartition(topic, partition, error_code, base_offset, append_time_ms, log_start, text)


def partition_count(request: FetchRequest | ProduceRequest) -> int:
    return sum(len(topic.partitions) for topic in request.topics)


def names_by_id(request: FetchRequest | ProduceRequest) -> NamesById:
    """Return the topic names of a request by topic id."""
    return {topic.topic_id: topic.name for topic in request.topics if topic.topic_id is not None}
