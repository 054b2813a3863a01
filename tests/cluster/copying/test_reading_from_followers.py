"""``client.rack`` on real brokers: what is copied comes from the follower in the worker's rack, and nothing is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined, unused-ignore]

from deploy.local.kafka import KafkaCluster
from tests.checker.traffic import Traffic
from tests.cluster.copies import KEEP, assert_copied, send
from tests.cluster.kafka_client import admin, new_name
from tests.cluster.kafka_frames import FETCH, Direction, Frame, records_of
from tests.cluster.kafka_proxy import KafkaProxy
from tests.cluster.kafka_rules import Pass
from tests.cluster.running import ANSWER_S, PATIENCE, Mm2py, one_way_properties, wait_until

FOLLOWER: Final = 2
"""It leads nothing, and stands in the worker's rack."""
READ_AGAIN_S: Final = 90.0 * PATIENCE


@pytest.fixture(scope="module")
def racks() -> Iterator[KafkaCluster]:
    """Three brokers in racks of their own."""
    with KafkaCluster(
        "racks",
        nodes=3,
        settings={"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"},
        node_settings={node: {"broker.rack": "near" if node == FOLLOWER else f"far-{node}"} for node in (1, 2, 3)},
    ) as cluster:
        yield cluster


class Flow:
    """A topic of two partitions, led by brokers 1 and 3, and a worker that copies it from behind a proxy."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster, topic: str, run: Mm2py) -> None:
        self.source, self.target, self.topic, self.run = source, target, topic, run
        self.read_bytes: Counter[int | None] = Counter()
        """Of records, by the broker that sent them to the worker."""
        self._seed = 0

    def note(self, frame: Frame) -> bool:
        self.read_bytes[frame.broker] += sum(map(len, records_of(frame)))
        return False

    def send(self, count: int) -> None:
        self._seed += 1
        send(self.source, self.topic, islice(Traffic(seed=self._seed, partitions=2).records(), count))

    def copied(self) -> None:
        assert_copied(self.source, self.target, self.topic, f"A.{self.topic}", run=self.run)

    def sources_of(self, count: int) -> set[int | None]:
        """Send so many records, and return the brokers that the worker got them from."""
        self.read_bytes.clear()
        self.send(count)
        self.copied()
        return set(+self.read_bytes)


@contextmanager
def copying(source: KafkaCluster, target: KafkaCluster, **extra: str) -> Iterator[Flow]:
    topic = new_name("near")
    made = NewTopic(topic, 2, replica_assignment=[[1, FOLLOWER, 3], [3, FOLLOWER, 1]], config=KEEP)
    client = admin(source)  # its answers would be lost with it
    client.create_topics([made])[topic].result(ANSWER_S)
    with KafkaProxy(source.bootstrap) as proxy:
        properties = one_way_properties(proxy.bootstrap, target, **{"A->B.topics": topic, **extra})
        run = Mm2py(properties)
        flow = Flow(source, target, topic, run)
        proxy.rule(Pass(), Direction.REPLY, api_key=FETCH, where=flow.note, times=None)
        flow.send(2_000)
        with run:
            flow.copied()
            yield flow
            assert run.terminate() == 0


@pytest.mark.slow
def test_records_come_from_the_follower_near_the_worker_also_after_its_death(
    racks: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    with copying(racks, target_cluster, **{"A.consumer.client.rack": "near"}) as flow:
        assert flow.sources_of(2_000) == {FOLLOWER}
        racks.broker(FOLLOWER).kill()
        assert flow.sources_of(1_000) <= {1, 3}
        racks.broker(FOLLOWER).start()
        wait_until(lambda: flow.sources_of(100) == {FOLLOWER}, "the follower is read again", deadline_s=READ_AGAIN_S)


@pytest.mark.slow
def test_without_a_rack_records_come_from_the_leaders(racks: KafkaCluster, target_cluster: KafkaCluster) -> None:
    with copying(racks, target_cluster) as flow:
        assert flow.sources_of(1_000) == {1, 3}
