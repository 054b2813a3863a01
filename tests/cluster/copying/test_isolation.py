"""One bad partition, topic or broker leaves all others at full speed, and what was held up is copied afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice

import pytest
from confluent_kafka.admin import AclOperation

from deploy.local.kafka import Broker, KafkaCluster
from tests.checker.traffic import Traffic
from tests.cluster.copies import assert_copied, make_topic, new_topic, send, without_right
from tests.cluster.kafka_client import admin, new_name, record_count
from tests.cluster.patience import now_s
from tests.cluster.running import ANSWER_S, Mm2py, one_way_properties, wait_until

PACE_RECORDS = 10_000
SLOWER_MOST, SLOWER_MOST_S = 3.0, 4.0
"""A copy beside a fault may take so much longer than before: a stuck neighbour shows as ten seconds and more."""


class Pace:
    """Some partitions of a topic, by which the speed of a flow is measured: the same load again and again."""

    def __init__(
        self, source: KafkaCluster, target: KafkaCluster, topic: str, remote: str, partitions: Sequence[int]
    ) -> None:
        self._source = source
        self._target = target
        self._topic = topic
        self._remote = remote
        self._partitions = partitions
        self._records = Traffic(seed=21, partitions=len(partitions), plain=True).records()

    def measure(self, run: Mm2py) -> float:
        """Send records and return how long it takes until they are copied, in seconds."""
        records = [
            record._replace(partition=self._partitions[record.partition])
            for record in islice(self._records, PACE_RECORDS)
        ]
        begun_s = now_s()
        send(self._source, self._topic, records)
        wanted = record_count(self._source, self._topic, self._partitions)
        run.wait_until(
            lambda: record_count(self._target, self._remote, self._partitions) >= wanted, "the records are copied"
        )
        return now_s() - begun_s


def _assert_not_held_up(before_s: float, beside_s: float) -> None:
    assert beside_s < SLOWER_MOST * before_s + SLOWER_MOST_S, (
        f"{beside_s:.1f} s beside the fault, {before_s:.1f} s before"
    )


# A right is missing


def test_topics_that_may_not_be_read_or_written_hold_up_no_other(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, guarded_cluster: KafkaCluster
) -> None:
    """One flow out of the guarded cluster, one into it; each has a topic that is closed to it, and one that is not."""
    unreadable, readable = (new_topic(guarded_cluster, stem, 3) for stem in ("unreadable", "readable"))
    unwritable, writable = (new_topic(source_cluster, stem, 3) for stem in ("unwritable", "writable"))
    properties = one_way_properties(guarded_cluster, target_cluster, names=("A", "T")) | {
        "clusters": "A,T,S",
        "S.bootstrap.servers": source_cluster.bootstrap,
        "S->A.enabled": True,
        "A->T.topics": f"{unreadable},{readable}",
        "S->A.topics": f"{unwritable},{writable}",
    }
    paces = [
        Pace(guarded_cluster, target_cluster, readable, f"A.{readable}", range(3)),
        Pace(source_cluster, guarded_cluster, writable, f"S.{writable}", range(3)),
    ]
    with Mm2py(properties) as run:
        run.wait_for_event("topics.copying", flow="A->T")
        run.wait_for_event("topics.copying", flow="S->A")
        before_s = [pace.measure(run) for pace in paces]
        with (
            without_right(guarded_cluster, unreadable, AclOperation.READ),
            without_right(guarded_cluster, f"S.{unwritable}", AclOperation.WRITE),
        ):
            for cluster, topic in ((guarded_cluster, unreadable), (source_cluster, unwritable)):
                send(cluster, topic, islice(Traffic(seed=22, partitions=3).records(), 500))
            assert "may not read" in run.wait_for_event("source.denied", topic=unreadable)["why"]
            assert "may not write" in run.wait_for_event("target.denied", topic=unwritable)["why"]
            for pace, before in zip(paces, before_s, strict=True):
                _assert_not_held_up(before, pace.measure(run))
        for topic in (readable, unreadable):
            assert_copied(guarded_cluster, target_cluster, topic, f"A.{topic}", run=run)
        for topic in (writable, unwritable):
            assert_copied(source_cluster, guarded_cluster, topic, f"S.{topic}", run=run)
        assert run.terminate() == 0


# A leader is broken


def _by_leader(cluster: KafkaCluster, topic: str, partitions: int) -> dict[int, list[int]]:
    """Return the partitions that each broker leads; all brokers lead some."""
    client = admin(cluster)

    def led() -> dict[int, list[int]] | None:
        found: dict[int, list[int]] = {broker.node_id: [] for broker in cluster.brokers}
        for number, partition in client.list_topics(topic, timeout=ANSWER_S).topics[topic].partitions.items():
            found.setdefault(partition.leader, []).append(number)
        counts = [len(found[broker.node_id]) for broker in cluster.brokers]
        return found if sum(counts) == partitions and all(counts) else None

    found = wait_until(led, f"all brokers lead partitions of {topic}")
    assert found is not None
    return found


@contextmanager
def _frozen(broker: Broker) -> Iterator[None]:
    broker.freeze()
    try:
        yield
    finally:
        broker.thaw()


@contextmanager
def _killed(broker: Broker) -> Iterator[None]:
    broker.kill()
    try:
        yield
    finally:
        broker.start()


BREAKS: dict[str, Callable[[Broker], AbstractContextManager[None]]] = {"frozen": _frozen, "killed": _killed}


@pytest.mark.parametrize("how", [pytest.param("frozen", marks=pytest.mark.slow), "killed"])
def test_a_broken_source_leader_holds_up_no_other_partition(
    three_node_cluster: KafkaCluster, target_cluster: KafkaCluster, how: str
) -> None:
    """F18, F29."""
    topic = new_topic(three_node_cluster, "led", 12)
    led = _by_leader(three_node_cluster, topic, 12)
    broken, *healthy = sorted(led)
    numbers = [number for broker in healthy for number in led[broker]]
    pace = Pace(three_node_cluster, target_cluster, topic, f"A.{topic}", numbers)
    properties = one_way_properties(three_node_cluster, target_cluster, **{"A->B.topics": topic})
    properties["refresh.topics.enabled"] = how == "frozen"  # without it, too, the new leader has to be found
    with Mm2py(properties) as run:
        run.wait_for_event("topics.copying")
        send(three_node_cluster, topic, islice(Traffic(seed=24, partitions=12).records(), 2_000))
        before_s = pace.measure(run)
        with BREAKS[how](three_node_cluster.broker(broken)):
            beside_s = pace.measure(run)
        _assert_not_held_up(before_s, beside_s)
        send(three_node_cluster, topic, islice(Traffic(seed=25, partitions=12).records(), 2_000))
        assert_copied(three_node_cluster, target_cluster, topic, f"A.{topic}", run=run)
        assert run.terminate() == 0


@pytest.mark.parametrize("how", [pytest.param("frozen", marks=pytest.mark.slow), "killed"])
def test_a_broken_target_leader_holds_up_no_other_partition(
    source_cluster: KafkaCluster, three_node_cluster: KafkaCluster, how: str
) -> None:
    """F15, F19: what waits for the broken one must not take the memory that the others need."""
    topic = new_name("led")
    make_topic(three_node_cluster, f"A.{topic}", 48)
    make_topic(source_cluster, topic, 48)
    led = _by_leader(three_node_cluster, f"A.{topic}", 48)
    broken, *healthy = sorted(led)
    numbers = [number for broker in healthy for number in led[broker]]
    pace = Pace(source_cluster, three_node_cluster, topic, f"A.{topic}", numbers)
    properties = one_way_properties(
        source_cluster, three_node_cluster, **{"A->B.topics": topic, "memory.max.bytes": 2**24}
    )
    properties["refresh.topics.enabled"] = how == "frozen"
    large = Traffic(seed=26, partitions=len(led[broken]), plain=True, value_bytes=4_000)
    with Mm2py(properties) as run:
        run.wait_for_event("topics.copying")
        before_s = pace.measure(run)
        with BREAKS[how](three_node_cluster.broker(broken)):
            held_up = (record._replace(partition=led[broken][record.partition]) for record in large.records())
            send(source_cluster, topic, islice(held_up, 12_000))
            beside_s = pace.measure(run)
        _assert_not_held_up(before_s, beside_s)
        assert_copied(source_cluster, three_node_cluster, topic, f"A.{topic}", run=run, max_rewinds=1)
        assert run.terminate() == 0
