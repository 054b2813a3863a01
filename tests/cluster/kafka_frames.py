"""Kafka's frames as the proxy sees them: whose they are, and copies of them with other brokers or other records in it.

Pure. Contents are read and written by kio, which is nothing of mm2py's own.
"""

from __future__ import annotations

import enum
import io
import random
import struct
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kio.index import load_response_schema
from kio.serial import entity_reader, entity_writer

from mm2py.kafka import messages

PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3
FIND_COORDINATOR: Final = 10
API_VERSIONS: Final = 18

NAMING_BROKERS: Final = {
    METADATA: int(messages.MetadataRequest.__version__),
    FIND_COORDINATOR: int(messages.FindCoordinatorRequest.__version__),
}
"""Replies by which a client finds brokers, in the versions mm2py asks for. Produce and Fetch may name brokers as well,
in tags that mm2py does not read."""
BATCH_CONTENT_AT: Final = 61
"""Where the records of a batch begin; all from byte 21 on is under its checksum."""

_REQUEST: Final = struct.Struct(">hhi")
Address = tuple[str, int]
Place = tuple[uuid.UUID, int]
"""A partition as a fetch reply names it: by the id of its topic."""


class Direction(enum.Enum):
    REQUEST = "request"
    REPLY = "reply"


class NotUnderstood(Exception):
    """The proxy cannot read what it has to change: a client would leave it behind."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One request or reply.

    Attributes:
        address: the broker's own.
        broker: its id; None until a reply of Metadata has told it.
        content: what follows the four bytes of length.
    """

    direction: Direction
    api_key: int
    version: int
    correlation_id: int
    address: Address
    broker: int | None
    content: bytes

    @property
    def wire(self) -> bytes:
        """What travels: length and content."""
        return struct.pack(">i", len(self.content)) + self.content


def request_frame(content: bytes, address: Address, broker: int | None) -> Frame:
    """Return the request that ``content`` is."""
    api_key, version, correlation_id = _REQUEST.unpack_from(content)
    return Frame(Direction.REQUEST, api_key, version, correlation_id, address, broker, content)


def reply_frame(content: bytes, request: Frame) -> Frame:
    """Return the reply that ``content`` is, to ``request``."""
    return replace(request, direction=Direction.REPLY, content=content)


# Replies that name brokers


def named_brokers(reply: Frame) -> dict[int, Address]:
    """Return id and address of each broker that a reply names; none for replies that are no answer to who is there.

    Raises:
        NotUnderstood: another version than mm2py asks for.
    """
    if reply.api_key not in NAMING_BROKERS:
        return {}
    if reply.version != NAMING_BROKERS[reply.api_key]:
        raise NotUnderstood(f"API {reply.api_key} in version {reply.version}, not {NAMING_BROKERS[reply.api_key]}")
    entity, _ = _body(reply)
    return {int(one.node_id): (str(one.host), int(one.port)) for one in _places(entity) if one.node_id >= 0}


def with_addresses(reply: Frame, addresses: Mapping[Address, Address]) -> Frame:
    """Return a reply that names brokers, with other addresses of them."""
    entity, head = _body(reply)

    def moved(one: Any) -> Any:
        if one.node_id < 0:
            return one
        host, port = addresses[str(one.host), int(one.port)]
        return replace(one, host=host, port=type(one.port)(port))

    changed = {_where(entity): tuple(moved(one) for one in _places(entity))}
    return _with_body(reply, head, replace(entity, **changed))


def _where(entity: Any) -> str:
    return "brokers" if hasattr(entity, "brokers") else "coordinators"


def _places(entity: Any) -> tuple[Any, ...]:
    return tuple(getattr(entity, _where(entity)))


# Replies that carry records, or tell what became of them


def records_of(fetch_reply: Frame) -> list[bytes]:
    """Return the records of each partition that has any."""
    entity, _ = _body(fetch_reply)
    return [bytes(part.records) for topic in entity.responses for part in topic.partitions if part.records]


def places_of(fetch_reply: Frame) -> set[Place]:
    """Return which partitions have any records."""
    entity, _ = _body(fetch_reply)
    return {_place(topic, part) for topic in entity.responses for part in topic.partitions if part.records}


def with_records(fetch_reply: Frame, change: Callable[[bytes], bytes], *, of: Collection[Place] | None = None) -> Frame:
    """Return a fetch reply in which the records of each partition that has any are changed.

    Args:
        of: only of these partitions.
    """
    entity, head = _body(fetch_reply)

    def changed(topic: Any, part: Any) -> Any:
        if not part.records or (of is not None and _place(topic, part) not in of):
            return part
        return replace(part, records=type(part.records)(change(bytes(part.records))))

    topics = tuple(
        replace(topic, partitions=tuple(changed(topic, part) for part in topic.partitions))
        for topic in entity.responses
    )
    return _with_body(fetch_reply, head, replace(entity, responses=topics))


def _place(topic: Any, part: Any) -> Place:
    return topic.topic_id, int(part.partition_index)


def batch_sizes(records: bytes) -> list[int]:
    """Return the size of each batch, the one included that the end cuts."""
    sizes = []
    at = 0
    while at + 12 <= len(records):
        sizes.append(12 + int.from_bytes(records[at + 8 : at + 12]))
        at += sizes[-1]
    return sizes


def flip_a_bit(records: bytes, at: int = BATCH_CONTENT_AT, bit: int = 4) -> bytes:
    """Return records with one bit changed at byte ``at``, or in the last byte if there are fewer."""
    changed = bytearray(records)
    changed[min(at, len(changed) - 1)] ^= 1 << bit
    return bytes(changed)


def flip_any_bit(records: bytes, where: range, chance: random.Random) -> bytes:
    """Return records with one bit changed, somewhere in these bytes of any batch."""
    batches = batch_sizes(records)
    number = chance.randrange(len(batches))
    at = chance.randrange(where.start, min(where.stop, batches[number]))
    return flip_a_bit(records, sum(batches[:number]) + at, bit=chance.randrange(8))


def cut_last_batch(records: bytes, *, cut_bytes: int = 20) -> bytes:
    """Return records without the end of the last batch, as a broker sends them that has filled its reply."""
    return records[: len(records) - min(cut_bytes, batch_sizes(records)[-1] - 1)]


def outcomes(produce_reply: Frame) -> list[tuple[int, int]]:
    """Return error code and base offset of each partition of a produce reply."""
    entity, _ = _body(produce_reply)
    return [
        (int(part.error_code), int(part.base_offset))
        for topic in entity.responses
        for part in topic.partition_responses
    ]


def _body(reply: Frame) -> tuple[Any, bytes]:
    """Return what a reply says, and the header before it as it is."""
    try:
        schema = load_response_schema(reply.api_key, reply.version)
        _, size = entity_reader(schema.__header_schema__)(reply.content, 0)
        return entity_reader(schema)(reply.content, size)[0], reply.content[:size]
    except Exception as error:
        raise NotUnderstood(f"a reply of API {reply.api_key} in version {reply.version}: {error!r}") from error


def _with_body(reply: Frame, head: bytes, entity: Any) -> Frame:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return replace(reply, content=head + out.getvalue())
