"""Numbers inside record batches: zigzag varints, as Kafka's ``ByteUtils`` reads and writes them."""

from __future__ import annotations

from mm2py.errors import Mm2Error


class CorruptBatch(Mm2Error):
    """The bytes are not a valid record batch."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            f"This is not a whole record batch: {detail}.",
            remedy="Compare with what kafka-dump-log.sh shows for the segment.",
        )


def varint(value: int) -> bytes:
    """Return ``value``, of 32 or 64 bits, as a zigzag varint."""
    rest = (value << 1) ^ (value >> 63)
    if rest < 0x80:
        return bytes((rest,))
    if rest < 0x4000:
        return bytes((rest & 0x7F | 0x80, rest >> 7))
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def read_varint(body: bytes | bytearray, position: int) -> tuple[int, int]:
    """Return the 32 bit number at ``position`` and the position after it.

    Raises:
        CorruptBatch: it is longer than 32 bits can be.
        IndexError: ``body`` ends within it.
    """
    raw, position = read_raw(body, position)
    if raw > 0xFFFFFFFF:
        raise CorruptBatch("a number in a record exceeds 32 bits")
    return (raw >> 1) ^ -(raw & 1), position


def read_varlong(body: bytes | bytearray, position: int) -> tuple[int, int]:
    """Return the 64 bit number at ``position`` and the position after it. Raises as ``read_varint`` does."""
    raw, position = read_raw(body, position)
    return (raw >> 1) ^ -(raw & 1), position


def read_raw(body: bytes | bytearray, position: int) -> tuple[int, int]:
    """Return the number at ``position`` before its zigzag is undone, and the position after it."""
    low = body[position]
    if low < 0x80:
        return low, position + 1
    high = body[position + 1]
    if high < 0x80:
        return low & 0x7F | high << 7, position + 2
    raw = shift = 0
    while True:
        byte = body[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise CorruptBatch("a number in a record exceeds 64 bits")
    if raw >> 64:
        raise CorruptBatch("a number in a record exceeds 64 bits")
    return raw, position
