"""Topics whose batches are made one, passed, or both by turns, between real brokers: the checker judges every record.

Small batches come as producers without linger leave them, of all codecs, next to large ones, in transactions, and
compacted. Workers are stopped, killed and given another copy mode meanwhile; the target's broker goes and comes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import islice, pairwise

import pytest

from deploy.local.broker_settings import render_properties
from deploy.local.kafka import KafkaCluster, start_clusters
from tests.checker.ledger import Ledger
from tests.checker.load import Load
from tests.checker.traffic import Traffic
from tests.cluster.copies import COPY_DEADLINE_S, assert_copied, new_topic, send
from tests.cluster.kafka_client import record_count
from tests.cluster.raw_batches import stored_batches
from tests.cluster.running import Mm2py, Value, one_way_properties, wait_until
from tests.fakes.broker.record_batch import CONTROL, HEADER_BYTES, Batch

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SMALL = {"batch.num.messages": 2, "linger.ms": 0}
PARTITIONS = 2
PER_SECOND = 200
"""Records of each topic under load, in requests of two at most, which is what such a load costs brokers."""


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[KafkaCluster, KafkaCluster]]:
    """Source and target; the target's broker may be stopped."""
    with start_clusters([KafkaCluster("repack-source"), KafkaCluster("repack-target")]) as (source, target):
        yield source, target


def with_mode(pair: tuple[KafkaCluster, KafkaCluster], mode: str, **extra: Value) -> dict[str, Value]:
    return one_way_properties(
        *pair,
        **{
            "A->B.copy.mode": mode,
            "A->B.copy.mode.pass.topics": r"raw-.*",
            "A->B.copy.mode.repack.topics": r"small-.*",
            **extra,
        },
    )


def change_mode(run: Mm2py, properties: Mapping[str, Value]) -> None:
    """Stop in order, and start with other settings."""
    assert run.terminate() == 0
    run.file.write_text(render_properties(properties))
    run.start()


@contextmanager
def loads(source: KafkaCluster, stems: Mapping[str, str], *, per_second: int = PER_SECOND) -> Iterator[list[Load]]:
    """Keep topics under load, small batches of one codec each and of all in turn."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                Load(
                    source.internal_bootstrap,
                    new_topic(source, stem, PARTITIONS),
                    Traffic(seed=number, partitions=PARTITIONS),
                    codecs=CODECS if codec == "all" else [codec],
                    per_second=per_second,
                    settings=SMALL,
                ).in_background()
            )
            for number, (stem, codec) in enumerate(stems.items())
        ]


def wait_for_copies(target: KafkaCluster, run: Mm2py, topics: list[str], more: int) -> None:
    """Wait until each remote topic has grown by so many records."""
    goals = {topic: record_count(target, f"A.{topic}", range(PARTITIONS)) + more for topic in topics}
    run.wait_until(
        lambda: all(record_count(target, f"A.{topic}", range(PARTITIONS)) >= goal for topic, goal in goals.items()),
        f"{more} more records of each are copied",
        deadline_s=COPY_DEADLINE_S,
    )


def batch_counts(source: KafkaCluster, target: KafkaCluster, topic: str) -> tuple[int, int]:
    """Return how many batches of records both sides have."""
    return (
        sum(len(data_batches(source, topic, number)) for number in range(PARTITIONS)),
        sum(len(data_batches(target, f"A.{topic}", number)) for number in range(PARTITIONS)),
    )


def data_batches(cluster: KafkaCluster, topic: str, partition: int) -> list[Batch]:
    """Return the batches of records: an attempt that failed on a slow machine leaves the marker of its fence."""
    return [batch for batch in stored_batches(cluster, topic, partition) if not batch.attributes & CONTROL]


def test_a_backlog_of_small_batches_is_repacked_or_passed_as_the_lists_say(
    pair: tuple[KafkaCluster, KafkaCluster],
) -> None:
    """Records of every shape, all codecs side by side; what passes keeps its bytes."""
    source, target = pair
    topics = {}
    for stem in ("small-none", "small-zstd", "small-all", "raw-all", "auto-none", "auto-large"):
        topic = topics[stem] = new_topic(source, stem, PARTITIONS)
        records = Traffic(seed=len(topics), partitions=PARTITIONS).records()
        for codec in CODECS if stem.endswith("all") else [stem.partition("-")[2].replace("large", "lz4")]:
            small = {} if stem == "auto-large" else SMALL
            send(
                source,
                topic,
                islice(records, 800),
                compression_type=codec,
                **{name.replace(".", "_"): value for name, value in small.items()},
            )
    with Mm2py(with_mode(pair, "auto", **{"A->B.topics": ",".join(topics.values())})) as run:
        for topic in topics.values():
            assert_copied(source, target, topic, f"A.{topic}", run=run)
        assert run.terminate() == 0
    for stem, topic in topics.items():
        before, after = batch_counts(source, target, topic)
        if stem in ("small-none", "auto-none"):
            assert after * 5 < before, f"{stem}: {before} batches became {after}"
        elif stem == "small-zstd":  # librdkafka leaves what does not shrink uncompressed, and codecs are not mixed
            assert after < before
        elif stem == "raw-all":
            assert after == before, [event for event in run.events() if event["level"] != "info"]
    for number in range(PARTITIONS):
        logs = [
            data_batches(source, topics["raw-all"], number),
            data_batches(target, f"A.{topics['raw-all']}", number),
        ]
        first, second = ([batch.raw[HEADER_BYTES:] for batch in log] for log in logs)
        assert first == second


@pytest.mark.slow
def test_stops_and_other_modes_under_load_repeat_nothing(pair: tuple[KafkaCluster, KafkaCluster]) -> None:
    """Drained restarts, each with another mode, while producers go on."""
    source, target = pair
    stems = {"small-lz4": "lz4", "raw-zstd": "zstd", "any-none": "none", "any-all": "all"}
    with ExitStack() as stack:
        with loads(source, stems) as running:
            topics = [load.topic for load in running]
            names = {"A->B.topics": ",".join(topics)}
            run = stack.enter_context(Mm2py(with_mode(pair, "repack", **names)))
            run.wait_for_event("topics.copying")
            for mode in ("pass", "auto", "repack"):
                wait_for_copies(target, run, topics, 300)
                change_mode(run, with_mode(pair, mode, **names))
            wait_for_copies(target, run, topics, 300)
        for topic in topics:
            assert_copied(source, target, topic, f"A.{topic}", run=run, max_rewinds=0)
        assert run.terminate() == 0
        assert not run.events("drain.failed")
        assert not [event for event in run.events("partitions.reconciled") if "why" in event]


@pytest.mark.slow
def test_kills_and_a_target_that_goes_and_comes_back_lose_and_reorder_nothing(
    pair: tuple[KafkaCluster, KafkaCluster],
) -> None:
    """Each kill and each broker that forgets may cost one rewind of each partition, and not a far one."""
    source, target = pair
    stems = {"small-none": "none", "small-gzip": "gzip", "raw-none": "none", "any-all": "all"}
    with ExitStack() as stack:
        with loads(source, stems) as running:
            topics = [load.topic for load in running]
            names = {"A->B.topics": ",".join(topics)}
            run = stack.enter_context(Mm2py(with_mode(pair, "repack", **names)))
            run.wait_for_event("topics.copying")
            for number in range(3):
                wait_for_copies(target, run, topics, 200)
                run.kill()
                mode = ("auto", "pass", "repack")[number]
                run.file.write_text(render_properties(with_mode(pair, mode, **names)))
                run.start()
            wait_for_copies(target, run, topics, 200)
            target.brokers[0].restart()
            wait_for_copies(target, run, topics, 200)
            target.brokers[0].kill()
            target.brokers[0].start()
            wait_for_copies(target, run, topics, 200)
        for topic in topics:
            report = assert_copied(
                source, target, topic, f"A.{topic}", run=run, max_rewinds=5, max_rewound_records=5 * 10 * PER_SECOND
            )
            print(report)
        assert run.terminate() == 0


def test_transactions_are_repacked_without_those_that_were_aborted(pair: tuple[KafkaCluster, KafkaCluster]) -> None:
    source, target = pair
    topic = new_topic(source, "small-committed", PARTITIONS)
    load = Load(
        source.internal_bootstrap,
        topic,
        Traffic(seed=3, partitions=PARTITIONS),
        codecs=["none", "lz4"],
        transactional_id=topic,
        settings=SMALL,
    )
    load.run(records=1_500)
    properties = with_mode(pair, "auto", **{"A->B.topics": topic, "A.consumer.isolation.level": "read_committed"})
    with Mm2py(properties) as run:
        assert_copied(source, target, topic, f"A.{topic}", run=run, read_committed=True)
        load.run(records=300)
        assert_copied(source, target, topic, f"A.{topic}", run=run, read_committed=True)
        assert run.terminate() == 0
    before, after = batch_counts(source, target, topic)
    assert after < before / 2


@pytest.mark.slow
def test_a_topic_that_the_cleaner_goes_over_is_repacked_across_what_it_leaves(
    pair: tuple[KafkaCluster, KafkaCluster],
) -> None:
    """Whole batches are gone between those that are merged, others have holes: the latest of each key is there."""
    source, target = pair
    topic = new_topic(
        source,
        "small-cleaned",
        PARTITIONS,
        {"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.01"},
    )
    ledger, records = Ledger(), Traffic(seed=8, partitions=PARTITIONS, compacted=True, keys=60).records()

    def write(count: int) -> None:
        send(source, topic, islice(records, count), ledger=ledger, batch_num_messages=3, linger_ms=0)

    write(1_500)

    def cleaned() -> bool:
        write(20)  # begins a new segment: the one before may be cleaned
        return all(len({*gaps(source, topic, number)}) > 3 for number in range(PARTITIONS))

    wait_until(cleaned, "the cleaner went over it", deadline_s=COPY_DEADLINE_S)
    with Mm2py(with_mode(pair, "auto", **{"A->B.topics": topic})) as run:
        write(500)
        assert_copied(source, target, topic, f"A.{topic}", run=run, ledger=ledger)
        assert run.terminate() == 0


def gaps(cluster: KafkaCluster, topic: str, partition: int) -> list[int]:
    """Return where whole batches are missing."""
    log = stored_batches(cluster, topic, partition)
    return [batch.base_offset for before, batch in pairwise(log) if batch.base_offset > before.last_offset + 1]


@pytest.mark.parametrize("codec", ["zstd", "none"])
def test_small_batches_get_the_codec_of_the_targets_producer_together(
    pair: tuple[KafkaCluster, KafkaCluster], codec: str
) -> None:
    source, target = pair
    topic = new_topic(source, "small-codec", PARTITIONS)
    records = Traffic(seed=5, partitions=PARTITIONS).records()
    for usual in CODECS:
        send(source, topic, islice(records, 400), compression_type=usual, batch_num_messages=2, linger_ms=0)
    properties = with_mode(pair, "auto", **{"A->B.topics": topic, "A->B.producer.override.compression.type": codec})
    with Mm2py(properties) as run:
        assert_copied(source, target, topic, f"A.{topic}", run=run)
        assert run.terminate() == 0
    before, after = batch_counts(source, target, topic)
    assert after * 2 < before
    batches = [batch for number in range(PARTITIONS) for batch in stored_batches(target, f"A.{topic}", number)]
    assert {batch.codec for batch in batches} == {codec}
