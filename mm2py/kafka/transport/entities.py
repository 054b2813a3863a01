"""Reads a kio entity from untrusted bytes: first a walk over the bytes by the schema, then kio. Pure.

kio's compiled reader reserves memory for as many elements as an array says it has, before it reads the first one. The
story: 35 bytes announced 2^32 - 1 elements, the system did not have 34 GB, and the process of all flows ended. So no
count is believed here: an array needs bytes for its elements, and a reply has a limit of values. If the walk accepts an
entity, kio reads it to the same end; ``make fuzz ARGS="--target messages"`` compares the two.

The walk is made once for each entity class, from its fields. Adjacent fields of fixed size are passed over together,
so a small reply costs some microseconds.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from kio.serial import entity_reader
from kio.static.protocol import Entity

from mm2py.kafka.transport.wire import Malformed

VALUES_MAX: Final = 3_000_000
"""Limit of values in one reply: entities, their fields and the elements of arrays. Each takes up to about 50 bytes of
memory.

The metadata of 100,000 topics with one partition of five replicas each has 2.6 million."""

D = TypeVar("D")
E = TypeVar("E", bound=Entity)
T = TypeVar("T")


class TooManyValues(Malformed):
    """The bytes may be the right reply, but it has too many values."""


def read_entity(kind: type[E], data: bytes, position: int) -> E:
    """Return the entity that begins at ``position``.

    Raises:
        TooManyValues: it has more than ``VALUES_MAX`` values.
        Malformed: the bytes are no such entity.
        Exception: kio can do nothing with one of its values, such as an error code that it does not know.
    """
    end_of(kind, data, position)
    return entity_reader(kind)(data, position)[0]


def value_or_error(read: Callable[[D], T], data: D) -> T | Exception:
    """Return what ``read`` finds in the data, or the error that it raises, without the tracebacks that keep the data.

    A traceback keeps the local variables of every function that the error has passed. Errors live long: in the
    connection, in its waiting callers, and in reference cycles that only a full garbage collection ends.
    """
    try:
        return read(data)
    except Exception as error:
        step: BaseException | None = error
        while step is not None:
            step.__traceback__ = None
            step = step.__cause__ or step.__context__
        return error


def end_of(kind: type[Entity], data: bytes, position: int) -> int:
    """Return where the entity that begins at ``position`` ends, and check all its counts.

    Raises: TooManyValues, Malformed: as ``read_entity``.
    """
    try:
        end = walk_of(kind).step(data, position, _Allowance())
    except IndexError:
        end = len(data) + 1
    if end > len(data):
        raise Malformed(f"it ends within a field, after {len(data)} bytes")
    return end


class _Allowance:
    """How many values the rest of a reply may have."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = VALUES_MAX

    def take(self, count: int, walk: EntityWalk, bytes_left: int) -> None:
        """Check a count: there must be bytes for all its elements, and not too many elements."""
        if count * walk.least_bytes > bytes_left:
            raise Malformed(f"{count} elements announced in {bytes_left} bytes")
        self.left -= count * walk.values
        if self.left < 0:
            raise TooManyValues(f"more than {VALUES_MAX:,} values")


Step = Callable[[bytes, int, _Allowance], int]
"""Passes over a value that begins at a position, and returns where the value ends. Its end may lie beyond the data: the
next read there raises IndexError."""


@dataclasses.dataclass(frozen=True, slots=True)
class EntityWalk:
    """How to pass over an entity or a field.

    Attributes:
        least_bytes: the smallest size that it may have.
        values: how many values it has at least; elements of its arrays are counted when their length is read.
        fixed_bytes: its size if the size is always the same, else None.
    """

    step: Step
    least_bytes: int
    values: int = 1
    fixed_bytes: int | None = None


def _fixed(size: int) -> EntityWalk:
    return EntityWalk(lambda data, at, allowance: at + size, size, fixed_bytes=size)


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at ``at``, of up to 31 bits, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise Malformed("a number has more than five bytes")
    if value >> 31:
        raise Malformed(f"{value} announced, which is beyond 31 bits")
    return value, at


def _compact_bytes(data: bytes, at: int, allowance: _Allowance) -> int:
    size = data[at]
    at += 1
    if size > 0x7F:
        size, at = _uvarint(data, at - 1)
    return at + size - 1 if size else at


def _legacy_bytes(data: bytes, at: int, allowance: _Allowance) -> int:
    size = int.from_bytes(data[at : at + 2], "big", signed=True)
    return at + 2 + max(0, size)


def _array(of: EntityWalk, *, flexible: bool) -> EntityWalk:
    step, size = of.step, of.fixed_bytes

    def elements(data: bytes, at: int, count: int, allowance: _Allowance) -> int:
        allowance.take(count, of, len(data) - at)
        if size is not None:
            return at + count * size
        for _ in range(count):
            at = step(data, at, allowance)
        return at

    def compact(data: bytes, at: int, allowance: _Allowance) -> int:
        count = data[at]
        at += 1
        if count > 0x7F:
            count, at = _uvarint(data, at - 1)
        return elements(data, at, count - 1, allowance) if count > 1 else at

    def legacy(data: bytes, at: int, allowance: _Allowance) -> int:
        count = int.from_bytes(data[at : at + 4], "big", signed=True)
        return elements(data, at + 4, max(0, count), allowance)

    return EntityWalk(compact, 1) if flexible else EntityWalk(legacy, 4)


def _tags(known: Mapping[int, EntityWalk]) -> EntityWalk:
    one = EntityWalk(_compact_bytes, 2)

    def step(data: bytes, at: int, allowance: _Allowance) -> int:
        if data[at] == 0:  # nearly always
            return at + 1
        count, at = _uvarint(data, at)
        allowance.take(count, one, len(data) - at)
        for _ in range(count):
            tag, at = _uvarint(data, at)
            size, at = _uvarint(data, at)
            if tag in known and known[tag].step(data, at, allowance) != at + size:
                raise Malformed(f"tag {tag} has not its {size} bytes")
            at += size
        return at

    return EntityWalk(step, 1)


_SIZES: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "error_code": 2,
    "int32": 4,
    "timedelta_i32": 4,
    "datetime_i64": 8,
    "int64": 8,
    "timedelta_i64": 8,
    "uuid": 16,
}


@functools.cache
def walk_of(kind: type[Entity]) -> EntityWalk:
    """Return the walk over an entity.

    Raises:
        TypeError: it has a field of a kind that no reply to mm2py had when this was written.
    """
    pieces: list[tuple[int, Step]] = []
    """A step, and how many bytes of fixed fields come before it."""
    known: dict[int, EntityWalk] = {}
    gap = least_bytes = values = 0
    for field in dataclasses.fields(kind):
        walk = _field(kind, field)
        if "tag" in field.metadata:
            known[field.metadata["tag"]] = walk
            continue
        least_bytes += walk.least_bytes
        values += walk.values
        if walk.fixed_bytes is not None:
            gap += walk.fixed_bytes
        else:
            pieces.append((gap, walk.step))
            gap = 0
    if kind.__flexible__:
        pieces.append((gap, _tags(known).step))
        least_bytes += 1
        gap = 0

    def step(data: bytes, at: int, allowance: _Allowance) -> int:
        for before, piece in pieces:
            at = piece(data, at + before, allowance)
        return at + gap

    return EntityWalk(step, least_bytes, 1 + values + len(known), None if pieces else least_bytes)


def _field(kind: type[Entity], field: dataclasses.Field[Any]) -> EntityWalk:
    declared = field.type
    if isinstance(declared, types.UnionType):
        (declared,) = (one for one in typing.get_args(declared) if one is not types.NoneType)
    if typing.get_origin(declared) is tuple:
        is_primitive = "kafka_type" in field.metadata
        of = _primitive(kind, field) if is_primitive else walk_of(typing.get_args(declared)[0])
        return _array(of, flexible=kind.__flexible__)
    if declared is field.type and dataclasses.is_dataclass(declared):
        return walk_of(typing.cast("type[Entity]", declared))  # null is not possible: nothing comes before it
    return _primitive(kind, field)


def _primitive(kind: type[Entity], field: dataclasses.Field[Any]) -> EntityWalk:
    name = field.metadata.get("kafka_type")
    if name in _SIZES:
        return _fixed(_SIZES[name])
    if kind.__flexible__ and name in ("string", "bytes"):
        return EntityWalk(_compact_bytes, 1)
    if name == "string":
        return EntityWalk(_legacy_bytes, 2)
    raise TypeError(f"{kind.__name__}.{field.name} is of a kind that no walk knows: {name}")
