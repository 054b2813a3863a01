"""Workers and brokers that stop, die and freeze under load: nothing is lost, nothing changes places.

A worker that stops in order repeats nothing either. One that is killed comes back to its last stored position, so each
kill may cost one rewind of each partition; so may a broker that forgets what it had stored.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import pytest
from confluent_kafka import ElectionType, TopicPartition

from deploy.local.kafka import Broker, KafkaCluster, start_clusters
from tests.cluster.copies import COPY_DEADLINE_S
from tests.cluster.kafka_client import admin, new_name
from tests.cluster.loads import PARTITIONS, Loads
from tests.cluster.running import ANSWER_S, Mm2py, one_way_properties, wait_until

# Workers


def test_a_clean_stop_causes_no_duplicates(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> None:
    """F02, F03: SIGTERM under load, three times over; the copy is exact."""
    loads = Loads(source_cluster, new_name("stopped"))
    run = Mm2py(one_way_properties(source_cluster, target_cluster, **{"A->B.topics": ",".join(loads.topics)}))
    with run:
        with loads:
            run.wait_for_event("topics.copying")
            for _ in range(3):
                loads.wait_for_copies(target_cluster, run, 2_000)
                assert run.terminate() == 0
                loads.wait_for(500)
                run.start()
        loads.assert_copied(target_cluster, run, max_rewinds=0)
        assert run.terminate() == 0
        assert not run.events("drain.failed")


def _kill_workers(loads: Loads, target: KafkaCluster, run: Mm2py, kills: int, chance: random.Random) -> None:
    for number in range(kills):
        if number % 3 == 2:  # while it is still starting
            loads.wait_for(chance.randrange(200, 2_000))
        else:
            loads.wait_for_copies(target, run, chance.randrange(1, 4_000))
        run.kill()
        run.start()


def test_a_killed_worker_loses_and_reorders_nothing(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> None:
    """F01, F05: SIGKILL under load, also while it is starting."""
    loads = Loads(source_cluster, new_name("killed"))
    run = Mm2py(one_way_properties(source_cluster, target_cluster, **{"A->B.topics": ",".join(loads.topics)}))
    with run:
        with loads:
            run.wait_for_event("topics.copying")
            _kill_workers(loads, target_cluster, run, 4, random.Random(1))
        loads.assert_copied(target_cluster, run, max_rewinds=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_worker_killed_over_and_over_loses_and_reorders_nothing(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, seed: int
) -> None:
    """F04."""
    loads = Loads(source_cluster, new_name("killed"))
    run = Mm2py(one_way_properties(source_cluster, target_cluster, **{"A->B.topics": ",".join(loads.topics)}))
    with run:
        with loads:
            run.wait_for_event("topics.copying")
            _kill_workers(loads, target_cluster, run, 12, random.Random(seed))
        loads.assert_copied(target_cluster, run, max_rewinds=0)


# Brokers


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[KafkaCluster, KafkaCluster]]:
    """Source and target whose brokers may be killed and frozen."""
    with start_clusters([KafkaCluster("fragile-source"), KafkaCluster("fragile-target")]) as (source, target):
        yield source, target


@pytest.fixture(scope="module")
def run(pair: tuple[KafkaCluster, KafkaCluster]) -> Iterator[Mm2py]:
    """One worker that lives through all that happens to the brokers."""
    with Mm2py(one_way_properties(*pair, **{"A->B.topics": "broker-.*"})) as run:
        run.wait_for_event("flow.ready")
        yield run
        assert run.terminate() == 0
        assert not run.events("flow.crashed"), run.tail()


def _kill_and_start(cluster: KafkaCluster) -> None:
    cluster.brokers[0].kill()
    cluster.brokers[0].start()


def _restart(cluster: KafkaCluster) -> None:
    cluster.brokers[0].restart()


FAULTS: dict[str, tuple[int, Callable[[KafkaCluster], None]]] = {
    "a source broker that restarts": (0, _restart),
    "a source broker that is killed": (0, _kill_and_start),
    "a target broker that restarts": (1, _restart),
    "a target broker that is killed": (1, _kill_and_start),
}


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=[pytest.mark.slow] if "restarts" in fault else []) for fault in FAULTS]
)
def test_a_broker_that_goes_and_comes_back_costs_no_record(
    pair: tuple[KafkaCluster, KafkaCluster], run: Mm2py, fault: str
) -> None:
    """F14, F15, F22, F23."""
    side, strike = FAULTS[fault]
    source, target = pair
    loads = Loads(source, new_name("broker"))
    with loads:
        loads.wait_for_copies(target, run, 2_000)
        strike(pair[side])
        loads.wait_for_copies(target, run, 2_000)
    loads.assert_copied(target, run, max_rewinds=0)


@pytest.mark.slow
def test_a_target_broker_that_freezes_for_a_while_costs_no_record(
    pair: tuple[KafkaCluster, KafkaCluster], run: Mm2py
) -> None:
    """F19: its connections stay open and nothing answers."""
    source, target = pair
    loads = Loads(source, new_name("broker"))
    with loads:
        loads.wait_for_copies(target, run, 2_000)
        for _ in range(3):
            target.brokers[0].freeze()
            loads.wait_for(3_000)
            target.brokers[0].thaw()
            loads.wait_for_copies(target, run, 1_000)
    loads.assert_copied(target, run, max_rewinds=0)


# Leaders


def _wait_for_replicas(cluster: KafkaCluster, topics: Sequence[str]) -> None:
    """Wait until every replica of the topics has caught up: the next broker may go."""
    client = admin(cluster)

    def all_in_sync() -> bool:
        found = client.list_topics(timeout=ANSWER_S).topics
        parts = [part for topic in topics for part in found[topic].partitions.values()]
        return all(len(part.isrs) == len(cluster.brokers) for part in parts)

    wait_until(all_in_sync, "all replicas are in sync", deadline_s=COPY_DEADLINE_S)


def _give_leaders_back(cluster: KafkaCluster, topics: Sequence[str]) -> None:
    """Let each partition be led by its preferred replica again."""
    client = admin(cluster)
    partitions = [TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS)]
    client.elect_leaders(ElectionType.PREFERRED, partitions).result(ANSWER_S)


def _shake(
    source: KafkaCluster, target: KafkaCluster, strikes: Sequence[Callable[[Broker], None]], *, max_rewinds: int
) -> None:
    """Strike the brokers of a target one after the other, under load, and move all leaders back after each."""
    loads = Loads(source, new_name("shaken"), per_second=1_000)
    properties = one_way_properties(source, target, **{"A->B.topics": ",".join(loads.topics)})
    properties |= {
        "replication.factor": 3,
        "offset.storage.replication.factor": 3,
        "status.storage.replication.factor": 3,
    }
    remotes = [f"A.{topic}" for topic in loads.topics]
    with Mm2py(properties) as run:
        with loads:
            run.wait_for_event("topics.copying")
            loads.wait_for_copies(target, run, 1_000)
            for number, strike in enumerate(strikes):
                strike(target.brokers[number % len(target.brokers)])
                _wait_for_replicas(target, remotes)
                _give_leaders_back(target, remotes)
                loads.wait_for_copies(target, run, 1_000)
        loads.assert_copied(target, run, max_rewinds=max_rewinds)
        assert run.terminate() == 0
        assert not run.events("flow.crashed")


@pytest.mark.slow
def test_leaders_that_move_and_brokers_that_restart_change_no_order(
    source_cluster: KafkaCluster, three_node_cluster: KafkaCluster
) -> None:
    """F21, F25."""
    _shake(source_cluster, three_node_cluster, [Broker.restart] * 3, max_rewinds=0)


def _kill_and_start_broker(broker: Broker) -> None:
    broker.kill()
    broker.start()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_brokers_killed_in_turn_lose_and_reorder_nothing(
    source_cluster: KafkaCluster, three_node_cluster: KafkaCluster, seed: int
) -> None:
    """F15, F21, F25, over and over."""
    chance = random.Random(seed)
    strikes = [chance.choice([Broker.restart, _kill_and_start_broker]) for _ in range(9)]
    _shake(source_cluster, three_node_cluster, strikes, max_rewinds=0)
