"""The fields of MM2's own records, as Kafka's class Struct lays them out: heartbeats, offset syncs, checkpoints. Pure.

Numbers are big-endian; a text (STRING) is its length in bytes as i16, then UTF-8. Fields follow each other without
names and without tags. Like Java's reader, ours ignores what follows the last field.
Source: Struct, Schema and Type.STRING, Apache Kafka, clients.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from mm2py.errors import Mm2Error

PARTITION: Final = struct.Struct(">i")
_LENGTH: Final = struct.Struct(">h")
_TEXT_MAX_BYTES: Final = 2**15 - 1


class MalformedRecord(Mm2Error):
    """The bytes are not the record that the topic should hold."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(
            f"This is no {kind}: {what}.", remedy="See with kafka-dump-log.sh who else writes to the topic."
        )


def encode_text(text: str) -> bytes:
    """Return a STRING.

    Raises:
        ValueError: it is longer than 32767 bytes.
    """
    data = text.encode()
    if len(data) > _TEXT_MAX_BYTES:
        raise ValueError(f"a text of {len(data)} bytes does not fit into a record, whose limit is {_TEXT_MAX_BYTES}")
    return _LENGTH.pack(len(data)) + data


class FieldReader:
    """Reads the fields of a key or of a value, in their order."""

    __slots__ = ("_at", "_data", "_kind", "_part")

    def __init__(self, kind: str, part: str, data: bytes | None) -> None:
        """Begin at the first field.

        Args:
            kind: what the record should be, for errors: "checkpoint".
            part: "key" or "value".
            data: the bytes of the key or value, None if it is null.
        Raises:
            MalformedRecord: it is null.
        """
        if data is None:
            raise MalformedRecord(kind, f"it has no {part}")
        self._kind = kind
        self._part = part
        self._data = data
        self._at = 0

    def text(self, what: str) -> str:
        """Return the STRING that comes next. ``what`` names it in errors: "the group".

        Raises:
            MalformedRecord: the bytes end inside it, or it is not UTF-8.
        """
        data, begin = self._data, self._at + _LENGTH.size
        size = _LENGTH.unpack_from(data, self._at)[0] if begin <= len(data) else -1
        if size < 0 or begin + size > len(data):
            raise self.malformed(f"its {self._part} of {len(data)} bytes ends inside {what}")
        self._at = begin + size
        try:
            return data[begin : self._at].decode()
        except UnicodeDecodeError:
            raise self.malformed(f"{what} in its {self._part} is not UTF-8") from None

    def numbers(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Return the numbers that come next.

        Raises:
            MalformedRecord: the bytes end inside them.
        """
        begin = self._at
        self._at += layout.size
        if self._at > len(self._data):
            raise self.malformed(f"its {self._part} has {len(self._data)} bytes instead of {self._at}")
        return layout.unpack_from(self._data, begin)

    def partition(self) -> int:
        """Return the partition number (i32) that comes next.

        Raises:
            MalformedRecord: the bytes end inside it, or it is negative.
        """
        (partition,) = self.numbers(PARTITION)
        if partition < 0:
            raise self.malformed(f"its partition is {partition}")
        return int(partition)

    def malformed(self, what: str) -> MalformedRecord:
        return MalformedRecord(self._kind, what)
