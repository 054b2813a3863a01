"""What stands in a remote topic is what stood in its upstream topic: every kind of data, copied by one running worker.

The worker copies under four aliases of one source cluster: A reads committed data only, U reads everything, which is
the default, and Z and G give every batch a codec of their own.
"""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import cramjam
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from deploy.local.kafka import KafkaCluster
from tests.checker.ledger import Ledger
from tests.checker.load import Load
from tests.checker.traffic import Planned, Traffic
from tests.cluster.copies import (
    add_partitions,
    assert_copied,
    bounds_of,
    dump,
    make_topic,
    new_topic,
    now_ms,
    producer,
    send,
    send_with,
)
from tests.cluster.kafka_client import admin, new_name
from tests.cluster.raw_batches import append_batches, stored_batches
from tests.cluster.running import ANSWER_S, Mm2py, one_way_properties, wait_until
from tests.fakes.broker.record_batch import HEADER_BYTES, Record, build_batch, parse_batch, rewrite

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def run(prepared: Prepared, source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Iterator[Mm2py]:
    """A worker that copies every topic whose name begins with copying. (alias A), all. (U), zstd. (Z) or gzip. (G)."""
    properties = one_way_properties(source_cluster, target_cluster) | {
        "clusters": "A,U,Z,G,B",
        "A->B.topics": r"copying\..*",
        "A.consumer.isolation.level": "read_committed",
        "A->B.copy.mode.pass.topics": r"copying\.codecs.*",  # a busy machine reads several small batches at once
        "sync.topic.configs.enabled": False,  # tests here give remote topics settings of their own
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
    topic = new_topic(source_cluster, "copying.codecs", 3)
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
    topic = new_topic(source_cluster, "copying.headers")
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
        topic = new_topic(source_cluster, f"{stem}.codecs")
        append_batches(source_cluster, topic, _batches_of_other_clients())
        assert_copied(source_cluster, target_cluster, topic, f"{alias}.{topic}", run=run)


def _batches_of_other_clients() -> list[bytes]:
    dialects: list[tuple[str, Callable[[bytes], bytes]]] = [
        ("snappy", _xerial_snappy),
        ("snappy", lambda data: bytes(cramjam.snappy.compress_raw(data))),
        ("zstd", lambda data: bytes(cramjam.zstd.compress(data))),
        ("zstd", lambda data: _stream(cramjam.zstd.Compressor(), data)),
        ("lz4", lambda data: _stream(cramjam.lz4.Compressor(content_checksum=True, block_linked=False), data)),
        ("lz4", lambda data: _stream(cramjam.lz4.Compressor(content_checksum=False, block_linked=False), data)),
        ("gzip", lambda data: gzip.compress(data, 9, mtime=1)),
    ]
    found = []
    for number, (codec, compress) in enumerate(dialects):
        records = [Record(b"%d-%d" % (number, index) * 50, b"key", timestamp_ms=1_000 + index) for index in range(40)]
        plain = build_batch(records)
        body = compress(plain[HEADER_BYTES:])
        head = bytearray(plain[:HEADER_BYTES])
        struct.pack_into(">i", head, 8, HEADER_BYTES - 12 + len(body))
        found.append(rewrite(parse_batch(bytes(head) + body), attributes=CODECS.index(codec)).raw)
    return found


def _stream(compressor: Any, data: bytes) -> bytes:
    compressor.compress(data)
    return bytes(compressor.finish())


def _xerial_snappy(data: bytes) -> bytes:
    """Java's framing, in blocks."""
    blocks = [bytes(cramjam.snappy.compress_raw(data[at : at + 700])) for at in range(0, len(data), 700)]
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(b)) + b for b in blocks)


def test_timestamps_are_kept_whatever_they_are(
    run: Mm2py, source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """B61: none, the epoch, falling, and far in the future where the topic takes it."""
    topic, anything = new_name("copying.times"), {"message.timestamp.after.max.ms": str(2**63 - 1)}
    make_topic(target_cluster, f"A.{topic}", configs=anything)
    make_topic(source_cluster, topic, configs=anything)
    times = [-1, 0, 1, 86_400_000, 253_402_300_800_000, 5, now_ms(), 4, -1]
    one_batch = build_batch([Record(b"together", timestamp_ms=time) for time in times])
    append_batches(
        source_cluster, topic, [build_batch([Record(b"%d" % at, timestamp_ms=time)]) for at, time in enumerate(times)]
    )
    append_batches(source_cluster, topic, [one_batch])
    assert_copied(source_cluster, target_cluster, topic, f"A.{topic}", run=run)


def test_log_append_times_of_the_source_become_create_times_of_the_copy(
    run: Mm2py, source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """B62: as in MirrorMaker 2 the remote topic does not take over the timestamp type."""
    topic = new_topic(source_cluster, "copying.appended", configs={"message.timestamp.type": "LogAppendTime"})
    for codec in ("none", "zstd"):
        send(source_cluster, topic, islice(Traffic(seed=3, partitions=1).records(), 500), compression_type=codec)
    assert_copied(source_cluster, target_cluster, topic, f"A.{topic}", run=run)
    [records] = dump(target_cluster, f"A.{topic}", [0]).values()
    assert {record.timestamp_type for record in records} == {1}
    assert all(abs(record.timestamp_ms - now_ms()) < HOUR_MS for record in records)


def test_a_target_that_stamps_records_itself_gets_all_of_them(
    run: Mm2py, source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic = new_name("copying.stamped")
    make_topic(target_cluster, f"A.{topic}", configs={"message.timestamp.type": "LogAppendTime"})
    make_topic(source_cluster, topic)
    send(source_cluster, topic, islice(Traffic(seed=4, partitions=1).records(), 500))
    assert_copied(source_cluster, target_cluster, topic, f"A.{topic}", run=run)


@pytest.mark.parametrize(("alias", "codec"), [("Z", "zstd"), ("G", "gzip")])
def test_a_codec_of_the_targets_producer_is_given_to_every_batch(
    run: Mm2py, source_cluster: KafkaCluster, target_cluster: KafkaCluster, alias: str, codec: str
) -> None:
    topic = new_topic(source_cluster, f"{codec}.any")
    records = Traffic(seed=5, partitions=1).records()
    for compression_type in CODECS:
        send(source_cluster, topic, islice(records, 200), compression_type=compression_type)
    assert_copied(source_cluster, target_cluster, topic, f"{alias}.{topic}", run=run)
    assert {batch.codec for batch in stored_batches(target_cluster, f"{alias}.{topic}")} == {codec}


# Whatever the log looks like


@dataclass(frozen=True, slots=True)
class Prepared:
    """Topics that had a history before the worker started."""

    cleaned: str
    cleaned_ledger: Ledger
    trimmed: str


@pytest.fixture(scope="module")
def prepared(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Prepared:
    cleaned, ledger = _cleaned_topic(source_cluster)
    # One open segment, which no cleaner touches: what stands in the copy is what was written to it.
    make_topic(target_cluster, f"A.{cleaned}", 2, {"cleanup.policy": "compact", "segment.ms": str(2**62)})
    trimmed = new_topic(source_cluster, "copying.trimmed", 2)
    send(source_cluster, trimmed, islice(Traffic(seed=6, partitions=2).records(), 3_000))
    below = [TopicPartition(trimmed, number, 900 + number) for number in range(2)]
    client = admin(source_cluster)
    for trimmed_to in client.delete_records(below).values():
        trimmed_to.result(ANSWER_S)
    return Prepared(cleaned, ledger, trimmed)


def _cleaned_topic(cluster: KafkaCluster) -> tuple[str, Ledger]:
    """Make a compacted topic that the cleaner has gone over: batches with holes, empty ones, and delete horizons."""
    backoff = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=AlterConfigOpType.SET)
    client = admin(cluster)
    broker = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[backoff])
    for change in client.incremental_alter_configs([broker]).values():
        change.result(ANSWER_S)
    topic = new_name("copying.cleaned")
    make_topic(
        cluster, topic, 2, {"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.01"}
    )
    records = [*islice(Traffic(seed=8, partitions=2, compacted=True, keys=60).records(), 3_000)]
    # The last batch of an idempotent producer is kept although nothing is left in it.
    ledger = Ledger()
    send(
        cluster, topic, _rolls(), ledger=ledger, enable_idempotence=True
    )  # such a producer's last batch is kept, emptied
    for at, codec in enumerate((*CODECS, "none")):
        send(cluster, topic, records[500 * at : 500 * (at + 1)], ledger=ledger, compression_type=codec)

    def cleaned() -> bool:
        send(cluster, topic, _rolls(), ledger=ledger)  # begins a new segment: the one before may be cleaned
        logs = [stored_batches(cluster, topic, number) for number in range(2)]
        return all(
            any(batch.count == 0 for batch in log)
            and any(0 < batch.count <= batch.last_offset_delta for batch in log)
            and any(batch.delete_horizon_ms is not None for batch in log)
            for log in logs
        )

    wait_until(cleaned, "the cleaner went over it")
    return topic, ledger


def _rolls() -> list[Planned]:
    return [Planned(number, now_ms(), b"roll", b"%d" % now_ms(), ()) for number in range(2)]


def test_a_compacted_topic_is_copied_across_what_the_cleaner_left(
    prepared: Prepared, run: Mm2py, source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """B57, B60: holes in the offsets and empty batches are passed over; deletes are kept as long as the target says."""
    topic, ledger = prepared.cleaned, prepared.cleaned_ledger
    more = Traffic(seed=9, partitions=2, compacted=True, keys=60).records()
    send(source_cluster, topic, islice(more, 500), ledger=ledger)
    assert_copied(source_cluster, target_cluster, topic, f"A.{topic}", run=run, ledger=ledger)
    for number in range(2):
        batches = stored_batches(target_cluster, f"A.{topic}", number)
        assert all(batch.delete_horizon_ms is None for batch in batches), "the source's delete horizon came along"


def test_copying_begins_where_the_source_log_begins(
    prepared: Prepared, run: Mm2py, source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """B63: what was deleted before the first look is no gap, and offsets differ on the two sides from then on."""
    topic = prepared.trimmed
    send(source_cluster, topic, islice(Traffic(seed=10, partitions=2).records(), 500))
    assert_copied(source_cluster, target_cluster, topic, f"A.{topic}", run=run)
    assert [bound.start for bound in bounds_of(source_cluster, topic, range(2)).values()] == [900, 901]
    assert [bound.start for bound in bounds_of(target_cluster, f"A.{topic}", range(2)).values()] == [0, 0]
    assert not run.events("source.expired", topic=topic)


def test_empty_partitions_and_single_records(
    run: Mm2py, source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """B63."""
    topic = new_topic(source_cluster, "copying.few", 5)
    send(source_cluster, topic, [Planned(3, now_ms(), None, b"the only one", ())])
    assert_copied(source_cluster, target_cluster, topic, f"A.{topic}", run=run)
    never_written = new_topic(source_cluster, "copying.empty", 3)
    assert_copied(source_cluster, target_cluster, never_written, f"A.{never_written}", run=run)


def test_partitions_that_come_later_are_copied_from_their_start(
    run: Mm2py, source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """B66, F57: the remote topic grows, and nothing written before it did is missed."""
    topic = new_topic(source_cluster, "copying.grows", 2)
    load = Load(
        source_cluster.internal_bootstrap, topic, Traffic(seed=11, partitions=2), codecs=["lz4"], per_second=1_000
    )
    with load.in_background():
        wait_until(lambda: load.acknowledged > 300, "the old ones are written to")
        add_partitions(source_cluster, topic, 5)
        send(source_cluster, topic, islice(Traffic(seed=12, partitions=5).records(), 1_000))
    assert_copied(source_cluster, target_cluster, topic, f"A.{topic}", run=run)


# Sizes


def test_a_record_larger_than_one_fetch_is_fetched_anyway(
    run: Mm2py, source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """B51: larger than max.partition.fetch.bytes, and than what a read asks for in all."""
    topic = new_topic(source_cluster, "copying.large", 2, {"max.message.bytes": "12000000"})
    chance = random.Random(13)
    sizes = (1_048_576, 9_500_000, 10, 3_000_000)
    large = [Planned(0, now_ms(), b"large", chance.randbytes(size), ()) for size in sizes]
    small = islice(Traffic(seed=13, partitions=2).records(), 500)
    send(source_cluster, topic, [*small, *large], message_max_bytes=12_000_000)
    assert_copied(source_cluster, target_cluster, topic, f"A.{topic}", run=run)


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_batch_too_large_for_the_target_is_split_between_records(
    run: Mm2py, source_cluster: KafkaCluster, target_cluster: KafkaCluster, codec: str
) -> None:
    """B50."""
    topic = new_name("copying.split")
    limit = 20_000
    make_topic(target_cluster, f"A.{topic}", configs={"max.message.bytes": str(limit)})
    make_topic(source_cluster, topic)
    traffic = Traffic(seed=14, partitions=1, plain=True)
    send(
        source_cluster,
        topic,
        islice(traffic.records(), 5_000),
        compression_type=codec,
        linger_ms=500,
        batch_size=900_000,
    )
    assert max(len(batch.raw) for batch in stored_batches(source_cluster, topic)) > 5 * limit
    assert_copied(source_cluster, target_cluster, topic, f"A.{topic}", run=run)
    assert max(len(batch.raw) for batch in stored_batches(target_cluster, f"A.{topic}")) <= limit


def _too_large() -> Planned:
    return Planned(0, now_ms(), b"key", bytes(50_000), ())


@dataclass(frozen=True, slots=True)
class Poison:
    """A record that the remote topic, with these settings, does not take."""

    record: Planned
    configs: Mapping[str, str]
    event: str
    why: str
    remedy: str


POISONS = {
    "a large record": Poison(
        Planned(0, 1_000, b"key", bytes(50_000), ()),
        {"max.message.bytes": "20000"},
        "source.too_large",
        "the target takes 20000",
        "max.message.bytes",
    ),
    "a null key for a compacted topic": Poison(
        Planned(0, 1_000, None, b"x", ()),
        {"cleanup.policy": "compact", "segment.ms": str(2**62)},
        "source.null_key_on_compacted_target",
        "key",
        "cleanup.policy",
    ),
    "a time in the future": Poison(
        Planned(0, 4_000_000_000_000, b"key", b"x", ()),
        {},
        "target.refuses",
        "INVALID_TIMESTAMP",
        "message.timestamp.after.max.ms",
    ),
}


@pytest.mark.parametrize("poison", POISONS.values(), ids=POISONS)
def test_a_partition_that_cannot_go_on_says_where_and_the_others_do(
    run: Mm2py, source_cluster: KafkaCluster, target_cluster: KafkaCluster, poison: Poison
) -> None:
    """B49, B61: what the target refuses is neither skipped nor retried in silence; all before it has arrived."""
    topic = new_name("copying.poison")
    remote = f"A.{topic}"
    make_topic(target_cluster, remote, 2, poison.configs)
    make_topic(source_cluster, topic, 2, {"message.timestamp.after.max.ms": str(2**63 - 1)})
    good = [Planned(at % 2, 1_000 + at, b"key", b"%d" % at, ()) for at in range(200)]
    for records in (good, [poison.record], good):
        send(source_cluster, topic, records)
    said = run.wait_for_event(poison.event, topic=topic, partition=0)
    assert "offset 100 " in said["why"]
    assert poison.why in said["why"]
    assert poison.remedy in said["remedy"]
    run.wait_until(lambda: bounds_of(target_cluster, remote, [1])[1].end == 200, "the other partition is complete")
    run.wait_until(lambda: bounds_of(target_cluster, remote, [0])[0].end == 100, "all before it is there")
    assert [record.value for record in dump(target_cluster, remote, [0])[0]] == [b"%d" % at for at in range(0, 200, 2)]
    assert len(run.events(poison.event, topic=topic)) == 1


# Transactions


def test_committed_records_are_copied_and_aborted_ones_are_not(
    run: Mm2py, source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """B58, B59: two producers interleaved, one transaction open at the end, markers counted by nobody."""
    topic = new_topic(source_cluster, "copying.transactions", 2)
    still_open = _interleaved_transactions(source_cluster, topic)
    assert_copied(source_cluster, target_cluster, topic, f"A.{topic}", run=run, read_committed=True)
    arrived = sum(map(len, dump(target_cluster, f"A.{topic}", range(2)).values()))
    still_open.abort_transaction(ANSWER_S)
    assert_copied(source_cluster, target_cluster, topic, f"A.{topic}", run=run, read_committed=True)
    records = dump(target_cluster, f"A.{topic}", range(2))
    assert sum(map(len, records.values())) > arrived, "what stood behind the open transaction has come"
    assert not any(record.key == b"aborted" for log in records.values() for record in log)


def test_without_read_committed_all_is_copied_and_the_first_transaction_of_a_topic_is_warned_about(
    run: Mm2py, source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic, other = (new_topic(source_cluster, "all.transactions", 2) for _ in range(2))
    _interleaved_transactions(source_cluster, topic).abort_transaction(ANSWER_S)
    assert_copied(source_cluster, target_cluster, topic, f"U.{topic}", run=run)
    assert any(record.key == b"aborted" for record in dump(target_cluster, f"U.{topic}", [0])[0])
    said = run.wait_for_event("topic.transactional", topic=topic)
    assert "U.consumer.isolation.level=read_committed" in said["remedy"]
    _interleaved_transactions(source_cluster, topic).abort_transaction(ANSWER_S)
    assert_copied(source_cluster, target_cluster, topic, f"U.{topic}", run=run)
    _interleaved_transactions(source_cluster, other).abort_transaction(ANSWER_S)
    run.wait_for_event("topic.transactional", topic=other)
    assert len(run.events("topic.transactional", topic=topic)) == 1


def _interleaved_transactions(cluster: KafkaCluster, topic: str) -> Producer:
    """Write committed, aborted and plain records side by side; return the producer whose transaction is still open."""

    def send_some(client: Producer, key: bytes) -> None:
        send_with(client, topic, [Planned(at % 2, now_ms(), key, b"%d" % at, ()) for at in range(40)])

    plain = producer(cluster)
    ids = (f"{topic}-{now_ms()}-{number}" for number in range(3))
    first, second, third = (producer(cluster, transactional_id=one, delivery_timeout_ms=60_000) for one in ids)
    for client in (first, second, third):
        client.init_transactions(ANSWER_S)
    first.begin_transaction()
    second.begin_transaction()
    send_some(first, b"aborted")
    send_some(second, b"committed")
    send_some(plain, b"plain")
    send_some(first, b"aborted")
    first.abort_transaction(ANSWER_S)
    send_some(second, b"committed")
    first.begin_transaction()
    send_some(first, b"committed")
    second.commit_transaction(ANSWER_S)
    first.commit_transaction(ANSWER_S)
    first.begin_transaction()
    first.commit_transaction(ANSWER_S)  # nothing was sent in it
    send_some(plain, b"plain")
    third.begin_transaction()
    send_some(third, b"aborted")
    send_some(plain, b"behind the open one")
    return third
