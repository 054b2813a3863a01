"""Replies of a broker, whole and damaged, from a seed; and what reading one may cost.

All are there that mm2py reads: the entities of kio that ``messages`` names, and Fetch and Produce in each version. A
stranger at a broker's port may send any bytes: reading them must end in a reply or in an error, within little time and
memory. An entity that the walk lets through must be read by kio to the same end.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import random
import resource
import time
import types
import typing
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from mm2py.kafka import messages
from mm2py.kafka.transport import wire
from mm2py.kafka.transport.entities import end_of, read_entity
from mm2py.kafka.transport.wire import Malformed

SECONDS_MOST: Final = 1.0
"""Of a processor, for one reply of a few kilobytes."""
MEMORY_MOST: Final = 64 << 20
"""By which the process may grow for one such reply."""
COUNTS: Final = tuple(bytes.fromhex(text) for text in ("ffffffff0f", "ffffffff07", "ffffff7f", "ffffffff", "8000"))
EDGES: Final = (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)
Read = Callable[[bytes], None]


def _versions(api: str, versions: tuple[int, int]) -> list[type[Any]]:
    return [
        importlib.import_module(f"kio.schema.{api}.v{version}.response").__dict__[f"{api.capitalize()}Response"]
        for version in range(versions[0], versions[1] + 1)
    ]


KINDS: Final[list[type[Any]]] = [
    *messages.REPLY_TO.values(),
    *_versions("fetch", wire.FETCH_VERSIONS),
    *_versions("produce", wire.PRODUCE_VERSIONS),
]


def reply_of(kind: type[Any], rng: random.Random) -> bytes:
    """Return the bytes of a reply with any content."""
    out = io.BytesIO()
    entity_writer(kind)(out, _entity(kind, rng))
    return out.getvalue()


def _entity(kind: type[Any], rng: random.Random) -> Any:
    return kind(**{field.name: _value(field, rng) for field in dataclasses.fields(kind)})


def _value(field: dataclasses.Field[Any], rng: random.Random) -> Any:
    if "tag" in field.metadata and rng.random() < 0.5:
        return field.default
    declared: Any = field.type
    if isinstance(declared, types.UnionType):
        if rng.random() < 0.2:
            return None
        (declared,) = (one for one in typing.get_args(declared) if one is not types.NoneType)
    if typing.get_origin(declared) is tuple:
        element = typing.get_args(declared)[0]
        return tuple(_single(element, field, rng) for _ in range(rng.choice([0, 1, 1, 2, 3])))
    return _single(declared, field, rng)


def _single(declared: Any, field: dataclasses.Field[Any], rng: random.Random) -> Any:
    if dataclasses.is_dataclass(declared):
        return _entity(typing.cast("type[Any]", declared), rng)
    match field.metadata["kafka_type"]:
        case "bool":
            return rng.random() < 0.5
        case "error_code":
            return rng.choice(list(ErrorCode))
        case "uuid":
            return uuid.UUID(int=rng.choice([7, 8]))
        case "string":
            return "x" * rng.choice([0, 1, 5, 40, 200])
        case "bytes" | "records":
            return rng.randbytes(rng.choice([0, 1, 70, 300]))
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=rng.choice([0, 100]))
        case "datetime_i64":
            return datetime.datetime.fromtimestamp(10**9, datetime.UTC)
        case "int8":
            return rng.choice([0, -1, 100])
        case "int16" | "uint16":
            return rng.choice([0, 1, 3000])
        case "int32":
            return rng.choice([0, 1, -1, 10**6])
        case "int64":
            return rng.choice([0, 1, -1, 10**12])
        case other:
            raise AssertionError(f"{field.name} is of a kind that the fuzz does not know: {other}")


def damaged(reply: bytes, rng: random.Random) -> bytes:
    """Return the reply with some bytes changed, taken out or put in."""
    data = bytearray(reply)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(8):
            case 0 | 1:
                data[at : at + rng.choice([1, 1, 5])] = rng.choice(COUNTS)
            case 2:
                data[at : at + 1] = bytes([rng.choice(EDGES)])
            case 3:
                data[at : at + 1] = rng.randbytes(1)
            case 4:
                del data[at : at + rng.randint(1, 8)]
            case 5:
                data[at:at] = rng.randbytes(rng.randint(1, 4))
            case 6:
                data[at:at] = data[at : at + rng.randint(1, 60)] * rng.choice([1, 20])
            case _:
                del data[at:]
    return bytes(data)


def read(kind: type[Any], data: bytes) -> None:
    """Read a reply as a connection does. Raises: AssertionError if kio reads another end than the walk found."""
    version, names = int(kind.__version__), {uuid.UUID(int=number): "orders" for number in (0, 7, 8)}
    match kind.__name__:
        case "FetchResponse":
            wire.decode_fetch(bytearray(data), 0, version, names, asked=9)
        case "ProduceResponse":
            wire.decode_produce(bytearray(data), 0, version, names, asked=9)
        case _:
            end = end_of(kind, data, 0)
            read_entity(kind, data, 0)
            assert entity_reader(kind)(data, 0)[1] == end, f"kio does not end at {end}"


def fault(kind: type[Any], data: bytes) -> str:
    """Return what is wrong with how a reply is read; empty if nothing is."""
    began_s, had_kb = time.thread_time(), _peak_kb()
    try:
        read(kind, data)
    except AssertionError as error:
        return str(error)
    except Malformed:
        pass
    except Exception as error:
        if kind.__name__ in ("FetchResponse", "ProduceResponse"):
            return f"{type(error).__name__}: {error}"
    except BaseException as error:  # a panic within kio: no handler of a worker would see it
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{type(error).__name__}: {error}"
    if (took_s := time.thread_time() - began_s) > SECONDS_MOST:
        return f"it took {took_s:.1f} s"
    if (grew_kb := _peak_kb() - had_kb) > MEMORY_MOST >> 10:
        return f"the process grew by {grew_kb} KB"
    return ""


def _peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def faults(seeds: range, *, each: int, tell: Callable[[int], None] = lambda _: None) -> Iterator[str]:
    """Read the reply of each seed, and ``each`` damaged ones, and yield what is wrong."""
    for seed in seeds:
        rng = random.Random(seed)
        kind = rng.choice(KINDS)
        reply = reply_of(kind, rng)
        for number in range(each):
            data = damaged(reply, rng)
            if found := fault(kind, data):
                yield f"seed {seed}, damage {number}: {kind.__module__}: {data.hex()}\n{found}"
        tell(seed)
