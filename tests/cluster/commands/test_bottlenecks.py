"""What limits a flow, on real brokers: each cause is made, and the command, ``/v1`` and the metrics name it.

A scarce memory and long links are in ``tests/scenarios/copying/test_bottlenecks.py``, on models of brokers.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from deploy.local.kafka import KafkaCluster
from tests.cluster.copies import new_topic, producer
from tests.cluster.kafka_client import record_count
from tests.cluster.kafka_frames import FETCH, PRODUCE, Direction
from tests.cluster.kafka_proxy import KafkaProxy
from tests.cluster.kafka_rules import Drip
from tests.cluster.rest.serving import LISTENERS, Asked, asked
from tests.cluster.running import ANSWER_S, PATIENCE, Mm2py, Value, one_way_properties
from tests.faults.asked import quota

SMALL: Final = 40_000
"""Bytes of a read: so small, a backlog takes many of them."""
QUOTA_BYTES: Final = 50_000
"""Bytes a second. Kafka averages over ten seconds: that much passes at once before it throttles."""
DRIP_S: Final = 0.01
LATE_S: Final = 180.0 * PATIENCE
"""A backlog counts when it is ten seconds old, and the last ten seconds count."""


def send(
    cluster: KafkaCluster, topic: str, records: int, *, values: Sequence[bytes] = (b"x" * 1000,), **settings: Any
) -> None:
    client = producer(cluster, **{"batch_size": 16_384, **settings})
    for number in range(records):
        while True:
            try:
                client.produce(topic, values[number % len(values)], key=b"%d" % (number // 7))
            except BufferError:
                client.poll(0.1)
            else:
                break
    assert client.flush(ANSWER_S) == 0


class Limited:
    """A worker of one flow with a backlog, and what everyone says of it."""

    def __init__(self, run: Mm2py, client: Asked) -> None:
        self.run, self.client = run, client

    def said(self) -> dict[str, Any]:
        (flow,) = self.run.status()[1]["flows"]
        found: dict[str, Any] = flow["bottleneck"]
        return found

    def over_rest(self) -> set[str]:
        """Return the causes that both answers over REST, and the metrics, name."""
        (short,) = self.client.told("GET", "/v1/flows", 200)["items"]
        whole = self.client.told("GET", f"/v1/flows/{self.client.flow}", 200)["report"]
        text = httpx2.get(f"{self.client.address}/metrics", timeout=ANSWER_S).text
        samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
        shown = {one.labels["cause"] for one in samples if one.name == "mm2py_flow_bottleneck"}
        return {short["bottleneck"]["cause"], whole["bottleneck"]["cause"], *shown}

    def wait_for(self, cause: str) -> dict[str, Any]:
        """Wait until all of them name a cause, and return what the command says."""
        found = self.run.wait_until(
            lambda: said if (said := self.said())["cause"] == cause else None, f"{cause} is named", deadline_s=LATE_S
        )
        self.run.wait_until(lambda: self.over_rest() == {cause}, f"{cause} is named over REST", deadline_s=LATE_S)
        print(found["text"], found["remedy"], sep="\n")
        return found


@contextmanager
def limited(
    source: KafkaCluster | str,
    target: KafkaCluster | str,
    topic: str,
    **extra: Value,
) -> Iterator[Limited]:
    settings: dict[str, Value] = {
        "A->B.topics": topic,
        "listeners": LISTENERS,
        "B.session.timeout.ms": 60_000,  # heartbeats may be delayed like everything else
        **extra,
    }
    with Mm2py(one_way_properties(source, target, **settings)) as run:
        yield Limited(run, asked(run, "A->B"))


def test_a_quota_of_the_source_is_named_and_nothing_waits_when_it_is_gone_and_all_is_copied(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic = new_topic(source_cluster, "quota")
    with limited(source_cluster, target_cluster, topic, **{"A.consumer.max.partition.fetch.bytes": SMALL}) as flow:
        flow.wait_for("nothing-waits")
        with quota(source_cluster, "consumer_byte_rate", QUOTA_BYTES):
            send(source_cluster, topic, 10_000)
            found = flow.wait_for("quota")
            assert found["text"].startswith("a quota of A delays ") and "consumer_byte_rate" in found["remedy"]
            assert f"what limits it: {found['text'].partition(' delays ')[0]}" in flow.run.status_text()[1]
            code, why = flow.run.why("A->B", "--topic", topic)
            assert code == 0 and "What limits the flow: a quota of A delays " in why, why
        flow.run.wait_until(
            lambda: record_count(target_cluster, f"A.{topic}") == 10_000, "all is copied", deadline_s=LATE_S
        )
        flow.wait_for("nothing-waits")


def test_a_quota_of_the_target_is_named(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> None:
    topic = new_topic(source_cluster, "quota")
    with (
        limited(source_cluster, target_cluster, topic, **{"A.consumer.max.partition.fetch.bytes": SMALL}) as flow,
        quota(target_cluster, "producer_byte_rate", QUOTA_BYTES),
    ):
        send(source_cluster, topic, 20_000)
        found = flow.wait_for("quota")
        assert found["text"].startswith("a quota of B delays ") and "producer_byte_rate" in found["remedy"]


@pytest.mark.parametrize(("side", "cause"), [("source", "source-read"), ("target", "target-write")])
def test_brokers_that_answer_late_are_named(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, side: str, cause: str
) -> None:
    """Frames come byte by byte: requests to the source, so that it answers late, and replies of the target."""
    topic = new_topic(source_cluster, "slow")
    send(source_cluster, topic, 10_000)
    clusters = {"source": source_cluster, "target": target_cluster}
    with KafkaProxy(clusters[side].bootstrap) as proxy:
        if side == "source":
            proxy.rule(Drip(DRIP_S), Direction.REQUEST, api_key=FETCH, times=None)
        else:
            proxy.rule(Drip(DRIP_S), Direction.REPLY, api_key=PRODUCE, times=None)
        ways = {name: proxy.bootstrap if name == side else one for name, one in clusters.items()}
        with limited(ways["source"], ways["target"], topic, **{"A.consumer.max.partition.fetch.bytes": SMALL}) as flow:
            found = flow.wait_for(cause)
            assert found["percent"] > 50
            proxy.end_rules()
            flow.run.wait_until(
                lambda: record_count(target_cluster, f"A.{topic}") == 10_000, "all is copied", deadline_s=LATE_S
            )
            flow.wait_for("nothing-waits")


def test_one_core_that_compresses_anew_is_named(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> None:
    """600 MB of what gzip finds hard: a core needs about a minute for it."""
    rng = random.Random(1)
    hard = [bytes(rng.choices(b"acgt", k=10_000)) for _ in range(64)]  # further apart than gzip looks back
    topic = new_topic(source_cluster, "busy", partitions=4)
    send(source_cluster, topic, 60_000, values=hard, batch_size=500_000, compression_type="zstd")
    with limited(source_cluster, target_cluster, topic, **{"B.producer.compression.type": "gzip"}) as flow:
        found = flow.wait_for("planning")
        assert "core" in found["text"] or "busy with rebuilding batches (compression)" in found["text"]
