"""A reply is walked over before kio reads it: no count is believed, and kio then ends where the walk did. B83."""

from __future__ import annotations

import random
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.kafka import messages
from mm2py.kafka.transport import wire
from mm2py.kafka.transport.entities import VALUES_MAX, TooManyValues, end_of, read_entity
from mm2py.kafka.transport.wire import Malformed
from tests.fuzz.messages import COUNTS, KINDS, faults, read, reply_of

ROOT = Path(__file__).resolve().parents[4]
CODEC = re.compile(r"^ *((?:from|import) kio(?!\.schema|\.static).*)$", re.MULTILINE)
each_reply = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.__name__} {kind.__version__}")


def test_kio_reads_nothing_that_was_not_walked_over() -> None:
    """A module that reads an entity some other way would believe its counts: it has to use ``read_entity``."""
    found = {
        (str(path.relative_to(ROOT)), line)
        for package in ("mm2py", "connectors", "rest")
        for path in (ROOT / package).rglob("*.py")
        for line in CODEC.findall(path.read_text())
    }
    assert found == {
        ("mm2py/kafka/transport/connection.py", "from kio.serial import entity_writer"),
        ("mm2py/kafka/transport/entities.py", "from kio.serial import entity_reader"),
    }


@each_reply
def test_every_reply_that_is_read_has_a_walk_that_ends_where_kio_does(kind: type[Any]) -> None:
    for seed in range(30):
        read(kind, reply_of(kind, random.Random(seed)))


@each_reply
def test_a_damaged_reply_costs_little_and_is_read_or_refused(kind: type[Any]) -> None:
    seeds = (seed for seed in range(10**6) if random.Random(seed).choice(KINDS) is kind)
    for _, seed in zip(range(3), seeds, strict=False):
        assert not list(faults(range(seed, seed + 1), each=100))


@each_reply
def test_a_count_put_anywhere_ends_in_a_reply_or_an_error(kind: type[Any]) -> None:
    reply = reply_of(kind, random.Random(1))
    for at in range(min(len(reply), 200)):
        for count in COUNTS:
            try:
                read(kind, reply[:at] + count + reply[at + 1 :])
            except AssertionError:
                raise
            except Exception as error:
                assert not isinstance(error, MemoryError)


ENDLESS = struct.pack(">h", 0) + b"\xff\xff\xff\xff\x0f" + bytes(20)
"""The reply to ApiVersions that ended a worker: with correlation id and length it has 35 bytes."""


def test_the_thirty_five_bytes_that_ended_a_worker_are_refused() -> None:
    with pytest.raises(Malformed, match="4294967295 announced, which is beyond 31 bits"):
        read_entity(messages.ApiVersionsResponse, ENDLESS, 0)


def test_a_count_within_31_bits_needs_bytes_for_its_elements() -> None:
    with pytest.raises(Malformed, match="2147483646 elements announced in 20 bytes"):
        read_entity(messages.ApiVersionsResponse, ENDLESS.replace(b"\xff\x0f", b"\xff\x07"), 0)


def test_a_count_of_the_old_protocol_needs_bytes_too() -> None:
    with pytest.raises(Malformed, match="2147483647 elements announced in 4 bytes"):
        read_entity(messages.SaslHandshakeResponse, struct.pack(">hi", 0, 2**31 - 1) + bytes(4), 0)


def test_a_tag_must_end_where_it_says() -> None:
    reply = struct.pack(">h", 0) + b"\x01" + bytes(4) + b"\x01" + b"\x00\x05" + b"\x01" + bytes(4)
    with pytest.raises(Malformed, match="tag 0 has not its 5 bytes"):
        read_entity(messages.ApiVersionsResponse, reply, 0)


def metadata(topics: int, partitions: int, replicas: int, name: str = "a-topic-with-a-name-of-usual-length") -> bytes:
    nodes = wire.uvarint(replicas + 1) + struct.pack(">i", 1) * replicas
    partition = struct.pack(">hiii", 0, 0, 1, 5) + nodes + nodes + b"\x01\x00"
    topic = struct.pack(">h", 0) + wire.uvarint(len(name) + 1) + name.encode() + bytes(17)
    topic += wire.uvarint(partitions + 1) + partition * partitions + struct.pack(">iB", -(2**31), 0)
    return bytes(4) + b"\x01\x00" + struct.pack(">i", 1) + wire.uvarint(topics + 1) + topic * topics + b"\x00"


def test_a_cluster_of_a_hundred_thousand_partitions_is_read_whole() -> None:
    for topics, partitions in [(100_000, 1), (1_000, 100), (1, 100_000)]:
        reply = metadata(topics, partitions, replicas=5)
        assert end_of(messages.MetadataResponse, reply, 0) == len(reply)


@pytest.mark.parametrize(("topics", "partitions"), [(1, 600_000), (600_000, 0), (20_000, 20)])
def test_more_than_the_limit_of_values_is_refused(topics: int, partitions: int) -> None:
    reply = metadata(topics, partitions, replicas=0 if topics != 20_000 else 10, name="")
    with pytest.raises(TooManyValues, match=f"more than {VALUES_MAX:,} values"):
        end_of(messages.MetadataResponse, reply, 0)


@given(cut=st.integers(0, 400))
def test_a_reply_that_is_cut_is_refused(cut: int) -> None:
    reply = metadata(2, 3, replicas=3)
    with pytest.raises(Malformed):
        end_of(messages.MetadataResponse, reply[: min(cut, len(reply) - 1)], 0)
