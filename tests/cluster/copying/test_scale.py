"""A million records in 200 partitions, and a thousand partitions at once."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from itertools import islice

import pytest

from deploy.local.kafka import KafkaCluster
from tests.checker.traffic import Traffic
from tests.cluster.copies import assert_copied, bounds_of, new_topic
from tests.cluster.kafka_client import delete_topic
from tests.cluster.raw_batches import append_rows
from tests.cluster.running import PATIENCE, Mm2py, one_way_properties
from tests.fakes.broker.record_batch import CODECS, Batch, Record, build_batch, parse_batch, rewrite

DAY_MS = 86_400_000
BATCHES = (1, 40, 459, 1_500, 3_000)
"""How many records the batches of a partition hold, each in a codec of its own: 5,000 in all."""


def _rows(partitions: int, *, first_timestamp_ms: int) -> Iterator[Mapping[int, bytes]]:
    """Yield one batch for every partition, and the next. No two records are equal: their timestamps differ."""
    records = Traffic(seed=41, partitions=1, plain=True, value_bytes=40).records()
    for number, (count, codec) in enumerate(zip(BATCHES, CODECS, strict=True)):
        batch = parse_batch(
            build_batch(
                [Record(one.value, one.key, timestamp_ms=at) for at, one in enumerate(islice(records, count))],
                codec=codec,
            )
        )
        yield {
            partition: _moved(batch, first_timestamp_ms + (number * partitions + partition) * 10_000)
            for partition in range(partitions)
        }


def _moved(batch: Batch, by_ms: int) -> bytes:
    """Return the batch with all of its records' timestamps moved, which takes no more than a new header."""
    raw = bytearray(batch.raw)
    struct.pack_into(">q", raw, 27, batch.base_timestamp + by_ms)
    return rewrite(parse_batch(raw), max_timestamp=batch.max_timestamp + by_ms).raw


def _wait_for_records(run: Mm2py, target: KafkaCluster, remote: str, partitions: int, records: int) -> None:
    def there() -> bool:
        return sum(bound.end for bound in bounds_of(target, remote, range(partitions)).values()) >= records

    run.wait_until(there, f"{records:,} records are copied", deadline_s=120 * PATIENCE)


@pytest.mark.slow
def test_a_million_records_in_200_partitions_are_copied_exactly(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """In all codecs, with a stop and a start on the way."""
    topic = new_topic(source_cluster, "million", 200)
    remote = f"A.{topic}"
    with Mm2py(one_way_properties(source_cluster, target_cluster, **{"A->B.topics": topic})) as run:
        run.wait_for_event("topics.copying")
        for number, row in enumerate(_rows(200, first_timestamp_ms=20_000 * DAY_MS)):
            append_rows(source_cluster, topic, [row])
            if number == 3:
                _wait_for_records(run, target_cluster, remote, 200, 200_000)
                assert run.terminate() == 0
                run.start()
        _wait_for_records(run, target_cluster, remote, 200, 1_000_000)
        assert_copied(source_cluster, target_cluster, topic, remote, run=run)
        assert run.terminate() == 0
    delete_topic(source_cluster, topic)  # other tests look at all topics of these clusters, many times a second
    delete_topic(target_cluster, remote)


@pytest.mark.slow
def test_a_thousand_partitions_begin_at_once(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> None:
    """B64: each has a few records, and each of them arrives."""
    topic = new_topic(source_cluster, "thousand", 1_000)
    remote = f"A.{topic}"
    rows = islice(_rows(1_000, first_timestamp_ms=DAY_MS), 2)
    append_rows(source_cluster, topic, rows)
    with Mm2py(one_way_properties(source_cluster, target_cluster, **{"A->B.topics": topic})) as run:
        run.wait_until(
            lambda: sum(event["partitions"] for event in run.events("topics.copying")) == 1_000,
            "all partitions begin",
            deadline_s=60 * PATIENCE,
        )
        _wait_for_records(run, target_cluster, remote, 1_000, 1_000 * sum(BATCHES[:2]))
        assert run.terminate() == 0
    ends = {bound.end for bound in bounds_of(target_cluster, remote, range(1_000)).values()}
    assert ends == {sum(BATCHES[:2])}
