"""Transforms under kill -9: no record that comes out of them is lost or repeated, none that is dropped comes back."""

from __future__ import annotations

import random
import signal
from pathlib import Path

from confluent_kafka import Producer

from deploy.local.broker_settings import render_properties
from deploy.local.kafka import KafkaCluster
from tests.cluster.copies import COPY_DEADLINE_S, new_topic
from tests.cluster.kafka_client import read, record_count, values, write
from tests.cluster.running import ANSWER_S, Mm2py, Value, one_way_properties, wait_until

RECORDS = 24_000
FILTER: dict[str, Value] = {
    "A->B.transforms": "site, clean",
    "A->B.transforms.site.type": "org.apache.kafka.connect.transforms.InsertHeader",
    "A->B.transforms.site.header": "site",
    "A->B.transforms.site.value.literal": "a",
    "A->B.transforms.clean.type": "org.apache.kafka.connect.transforms.Filter",
    "A->B.transforms.clean.predicate": "deleted",
    "A->B.predicates": "deleted",
    "A->B.predicates.deleted.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
}


def _is_dropped(number: int) -> bool:
    return number % 3 == 0 or 5_000 <= number < 5_600


def _fill(cluster: KafkaCluster, topic: str, first: int, count: int) -> None:
    """Write records with their number as the key; those that are dropped have no value."""
    producer = Producer({"bootstrap.servers": cluster.internal_bootstrap, "log_level": 0, "batch.num.messages": 50})
    for number in range(first, first + count):
        value = None if _is_dropped(number) else b"v%d" % number + bytes(80)
        producer.produce(topic, value, b"%d" % number, partition=0)
        producer.poll(0)
    assert producer.flush(ANSWER_S) == 0


def _numbers(cluster: KafkaCluster, topic: str) -> list[int]:
    messages = read(cluster, topic)
    assert all(message.headers() == [("site", b"a")] for message in messages)
    return [int(message.key() or b"") for message in messages]


def _wait_for(cluster: KafkaCluster, topic: str, records: int) -> None:
    wait_until(
        lambda: record_count(cluster, topic) >= records,
        f"{records} records are copied",
        deadline_s=COPY_DEADLINE_S,
    )


def test_a_killed_worker_with_a_filter_loses_and_repeats_nothing(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic = new_topic(source_cluster, "transformed")
    _fill(source_cluster, topic, 0, RECORDS)
    wanted = [number for number in range(RECORDS) if not _is_dropped(number)]
    limit = {"A->B.topics": topic, "A->B.bytes.per.second.max": 150_000}
    chance = random.Random(7)
    with Mm2py(one_way_properties(source_cluster, target_cluster, **FILTER, **limit)) as run:
        for _ in range(5):
            run.wait_for_event("topics.copying")
            before = record_count(target_cluster, f"A.{topic}")
            _wait_for(target_cluster, f"A.{topic}", min(before + chance.randrange(200, 3_000), len(wanted)))
            run.kill()
            run.log.clear()
            run.start()
        wait_until(
            lambda: _numbers(target_cluster, f"A.{topic}")[-1:] == wanted[-1:],
            "the last record is copied",
            deadline_s=COPY_DEADLINE_S,
        )
        assert _numbers(target_cluster, f"A.{topic}") == wanted
        assert run.terminate() == 0


def test_another_chain_after_a_kill_stops_the_partition_and_the_old_one_goes_on(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic = new_topic(source_cluster, "rechained")
    _fill(source_cluster, topic, 0, RECORDS)
    wanted = [number for number in range(RECORDS) if not _is_dropped(number)]
    properties = one_way_properties(
        source_cluster, target_cluster, **FILTER, **{"A->B.topics": topic, "A->B.bytes.per.second.max": 150_000}
    )
    without_filter = {**properties, "A->B.transforms": "site"}
    with Mm2py(properties) as run:
        run.wait_for_event("topics.copying")
        _wait_for(target_cluster, f"A.{topic}", 2_000)
        run.signal(signal.SIGKILL)
        run.wait()
        run.log.clear()
        run.file.write_text(render_properties({"listeners": "", **without_filter}))
        run.start()
        said = run.wait_for_event("transforms.changed")
        assert (said["topic"], said["partition"], said["done"]) == (topic, 0, "stopped")
        assert "transforms back" in said["remedy"] and f"accept 'A->B:{topic}:0'" in said["remedy"]
        stood = _numbers(target_cluster, f"A.{topic}")
        assert stood == wanted[: len(stood)]
        assert run.terminate() == 0
        assert _numbers(target_cluster, f"A.{topic}") == stood, "nothing is copied behind what cannot be counted"
        run.log.clear()
        run.file.write_text(render_properties({"listeners": "", **properties}))
        run.start()
        wait_until(
            lambda: _numbers(target_cluster, f"A.{topic}")[-1:] == wanted[-1:],
            "the last record is copied",
            deadline_s=COPY_DEADLINE_S,
        )
        assert _numbers(target_cluster, f"A.{topic}") == wanted


FUNCTIONS = """\
import time

def mask(record):
    if record.value == b"hang":
        time.sleep(3600)
    return record._replace(value=b"***")
"""


def test_a_function_that_hangs_stops_its_partition_and_no_heartbeat(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    good, bad = (new_topic(source_cluster, stem) for stem in ("masked", "hanging"))
    module = tmp_path / "mask.py"
    module.write_text(FUNCTIONS)
    properties = one_way_properties(
        source_cluster,
        target_cluster,
        **{
            "A->B.topics": f"{good},{bad}",
            "A->B.transforms": "mask",
            "A->B.transforms.mask.type": "python",
            "A->B.transforms.mask.module": str(module),
            "A->B.transforms.mask.function": "mask",
            "A->B.transforms.mask.timeout.ms": 5_000,
        },
    )
    write(source_cluster, bad, ["1", "2", "hang", "4"])
    with Mm2py(properties) as run:
        failed = run.wait_for_event("source.transform_failed", deadline_s=COPY_DEADLINE_S)
        assert (failed["topic"], failed["partition"]) == (bad, 0)
        assert "source offset 2 cannot be copied" in failed["why"] and "did not answer within 5 s" in failed["why"]
        write(source_cluster, good, [f"secret {number}" for number in range(500)])
        wait_until(
            lambda: values(target_cluster, f"A.{good}") == [b"***"] * 500,
            "another topic is copied meanwhile",
            deadline_s=COPY_DEADLINE_S,
        )
        assert values(target_cluster, f"A.{bad}") == [b"***"] * 2, "what stands before it, and nothing behind it"
        assert not run.events("member.evicted"), "heartbeats go on"
        shown = run.ordered("preview", "A->B", "--topic", good, "--records", "2")
        assert shown.count("'***'") == 2 and "A second run gave the same" in shown
        assert run.terminate() == 0
