"""What stands in a remote topic is what stood in its upstream topic: every kind of data, copied by one running worker.

The worker copies under four aliases of one source cluster: A reads committed data only, U reads everything, which is
the default, and Z and G give every batch a codec of their own.
"""

from __future__ import annotations

import gzip
import json
import random
import struct
from collections.abc import Iterator, Mapping
from itertools import islice

import cramjam
import pytest

from deploy.local.kafka import KafkaCluster
from tests.checker.dumped import Dumped
from tests.checker.traffic import Planned, Traffic
from tests.cluster.copies import (
    Sender,
    assert_copied,
    dump,
    ends_of,
    now_ms,
    partitions_of,
    producer,
    send,
    send_traffic,
)
from tests.cluster.kafka_client import admin, create_topic, new_name
from tests.cluster.raw_batches import append_batches, stored_batches
from tests.cluster.running import Mm2py, one_way_properties, wait_until
from tests.fakes.record_batch import HEADER_BYTES, Record, build_batch, parse_batch, rewrite

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def run(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Iterator[Mm2py]:
    """A worker that copies every topic whose name begins with copying. (alias A), all. (U), zstd. (Z) or gzip. (G)."""
    properties = one_way_properties(source_cluster, target_cluster) | {
        "clusters": "A,U,Z,G,B",
        "A->B.topics": r"copying\..*",
        "A.consumer.isolation.level": "read_committed",
    }
    for alias, stem, codec in (("U", "all", None), ("Z", "zstd", "zstd"), ("G", "gzip", "gzip")):
        properties |= {
            f"{alias}.bootstrap.servers": source_cluster.bootstrap,
            f"{alias}->B.enabled": True,
            f"{alias}->B.topics": rf"{stem}\..*",
        }
        if codec is not None:
            properties[f"{alias}->B.producer.override.compression.type"] = codec
    with Mm2py(properties) as run:
        yield run
        assert run.terminate() == 0
        assert not run.events("flow.crashed"), run.tail()


# Whatever the records look like


def test_records_of_every_shape_and_codec_arrive_as_they_were(
    run: Mm2py, source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """B46, B47, B48, B52: all codecs in turn within each partition, and their batches pass as bytes."""
    topic = new_name("copying.codecs")
    create_topic(source_cluster, topic, 3)
    records = Traffic(seed=1, partitions=3).records()
    for codec in (*CODECS, *CODECS):
        send(source_cluster, topic, islice(records, 600), compression_type=codec)
    assert_copied(source_cluster, target_cluster, topic, f"A.{topic}", run=run)
    for number in range(3):
        source, target = (
            stored_batches(source_cluster, topic, number),
            stored_batches(target_cluster, f"A.{topic}", number),
        )
        assert {batch.codec for batch in source} == set(CODECS)
        assert [batch.raw[HEADER_BYTES:] for batch in source] == [batch.raw[HEADER_BYTES:] for batch in target]


def test_ten_thousand_headers_arrive_in_order(
    run: Mm2py, source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """B47: with repeated names, null and empty values, and bytes that are no text."""
    topic = new_name("copying.headers")
    create_topic(source_cluster, topic)
    chance = random.Random(7)
    values = (None, b"", b"\xff\x00", b"text")
    headers = tuple((f"name-{chance.randrange(100)}", chance.choice(values)) for _ in range(10_000))
    send(source_cluster, topic, [Planned(0, now_ms(), None, None, headers), Planned(0, now_ms(), b"", b"", ())])
    assert_copied(source_cluster, target_cluster, topic, f"A.{topic}", run=run)


def test_codecs_as_other_clients_write_them(
    run: Mm2py, source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """B52: snappy framed and bare, zstd and lz4 with and without content size, gzip in two members; also rewritten."""
    for alias, stem in (("A", "copying"), ("Z", "zstd"), ("G", "gzip")):
        topic = new_name(f"{stem}.codecs")
        create_topic(source_cluster, topic)
        append_batches(source_cluster, topic, _batches_of_other_clients())
        assert_copied(source_cluster, target_cluster, topic, f"{alias}.{topic}", run=run)


def _batches_of_other_clients() -> list[bytes]:
    """Return batches whose compressed part is each client's own dialect of the codec."""
    found = []
    for number, (codec, dialect) in enumerate(
        (
            ("snappy", _xerial),
            ("snappy", lambda data: bytes(cramjam.snappy.compress_raw(data))),
            ("zstd", lambda data: bytes(cramjam.zstd.compress(data))),
            ("zstd", _zstd_stream),
            ("lz4", lambda data: bytes(cramjam.lz4.compress(data))),
            ("gzip", lambda data: gzip.compress(data[:10]) + gzip.compress(data[10:])),
        )
    ):
        records = [Record(b"%d-%d" % (number, index) * 50, b"key", timestamp_ms=1_000 + index) for index in range(40)]
        plain = parse_batch(build_batch(records, codec="none"))
        body = dialect(plain.raw[HEADER_BYTES:])
        head = bytearray(plain.raw[:HEADER_BYTES])
        struct.pack_into(">i", head, 8, HEADER_BYTES - 12 + len(body))
        found.append(rewrite(parse_batch(bytes(head) + body), attributes=CODECS.index(codec)).raw)
    return found
