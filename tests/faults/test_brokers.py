"""Brokers that die, freeze and restart, leaders that move, quotas: each record is there once and in order.

``MM2PY_FAULTS_DOWN_S`` says how long a whole cluster stays away (F22, F23), in seconds: 60 by default, 600 for the full
length. A test prints it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from deploy.local.kafka import Broker, KafkaCluster
from tests.checker.load import Load
from tests.checker.traffic import Traffic
from tests.cluster.copies import COPY_DEADLINE_S, assert_copied, new_topic, send
from tests.cluster.kafka_client import admin, new_name, offsets, record_count
from tests.cluster.kafka_frames import Direction, Frame
from tests.cluster.kafka_proxy import KafkaProxy
from tests.cluster.kafka_rules import Action, Drop, Hold, Pass
from tests.cluster.loads import PARTITIONS
from tests.cluster.running import ANSWER_S, PATIENCE, Mm2py, Value, during, pause, wait_until
from tests.faults.asked import active_controller, coordinator_of, quota, reassign
from tests.faults.scene import (
    BEGIN_S,
    REPLICAS,
    Pair,
    Scene,
    await_in_sync,
    give_leaders_back,
    heal,
    leader_of,
    three_node_properties,
)

ADD_PARTITIONS, END_TXN = 24, 26
DOWN_S: Final = float(os.environ.get("MM2PY_FAULTS_DOWN_S", "60"))
PER_SECOND: Final = 200
REQUEST_TIMEOUT_MS: Final = 5_000
FROZEN_S: Final = 20.0
"""Longer than a request may take, and than a broker may be silent before its partitions get other leaders."""
SHUFFLED_S: Final = 30.0
SHUFFLE_EVERY_S: Final = 2.0
MEMORY_MAX_BYTES: Final = 32 << 20
MEMORY_MORE_BYTES: Final = 2 * MEMORY_MAX_BYTES
"""Memory that the process may take beyond that of quiet times: ``memory.max.bytes`` and its overhead."""
QUOTA_BYTES: Final = 60_000
"""Bytes a second for each broker. Kafka averages over ten seconds: that much passes at once before it throttles."""
BACKLOG: Final = 8_000
LATE_S: Final = 120.0 * PATIENCE
"""For work that follows a long wait on a slow machine."""


def _cluster(pair: Pair, side: str) -> KafkaCluster:
    found: KafkaCluster = getattr(pair, side)
    return found


def _topics(scene: Scene, side: str) -> Sequence[str]:
    return scene.topics if side == "source" else scene.remotes


# One broker dies


def _data_leader(scene: Scene, side: str) -> Broker:
    return leader_of(_cluster(scene.pair, side), _topics(scene, side)[0])


def _controller(scene: Scene, side: str) -> Broker:
    return active_controller(_cluster(scene.pair, side))


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("chosen", [_data_leader, _controller], ids=["leader of data", "active controller"])
def test_a_killed_broker_costs_no_record_and_copying_continues_without_it(
    pair: Pair, side: str, chosen: Callable[[Scene, str], Broker]
) -> None:
    """F14, F15, F24."""
    with Scene(pair, "broker-killed", per_second=PER_SECOND) as scene:
        scene.copy_more(1_000)
        broker = chosen(scene, side)
        broker.kill()
        scene.copy_more(2_000)
        broker.start()
        await_in_sync(_cluster(pair, side), _topics(scene, side))
        scene.copy_more(1_000)
        scene.conclude()


# The coordinator of our transactional id


def test_a_worker_killed_together_with_its_coordinator_is_fenced_as_soon_as_there_is_another(pair: Pair) -> None:
    """F16: the previous incarnation is fenced by the coordinator that replaces the dead one."""
    with Scene(pair, "coordinator", per_second=PER_SECOND) as scene:
        scene.copy_more(1_000)
        coordinator = coordinator_of(pair.target, f"mm2py-{scene.properties['mm2py.group']}-")
        scene.run.kill()
        coordinator.kill()
        scene.run.start()
        scene.copy_more(2_000)
        coordinator.start()
        scene.copy_more(1_000)
        scene.conclude()
        _assert_fenced(scene.run)


@pytest.mark.parametrize("of_copies", [False, True], ids=["of the positions", "of the copies"])
@pytest.mark.parametrize("is_carried_out", [False, True], ids=["in flight", "not acknowledged"])
def test_a_fence_completes_although_its_coordinator_dies_at_its_end(
    pair: Pair, at_target: KafkaProxy, is_carried_out: bool, of_copies: bool
) -> None:
    """F16: the end of a fence is delayed in the network, or is carried out without an answer; its coordinator dies. The
    coordinator that replaces it knows the outcome.
    """
    with Scene(pair, "fencing", target=at_target.bootstrap, per_second=PER_SECOND) as scene:
        scene.copy_more(1_000)
        scene.run.kill()
        scene.loads.wait_for(50)
        begun = at_target.rule(Pass(), Direction.REQUEST, api_key=ADD_PARTITIONS, times=None)

        def is_meant(_: Frame) -> bool:
            names_copies = any(remote.encode() in begun.frames[-1].content for remote in scene.remotes)
            return names_copies is of_copies

        action: Action
        action, direction = (Drop(), Direction.REPLY) if is_carried_out else (Hold(), Direction.REQUEST)
        struck = at_target.rule(action, direction, api_key=END_TXN, times=None, where=is_meant)
        scene.run.start()
        struck.wait_until_fired(deadline_s=BEGIN_S)
        (end,) = struck.strikes
        coordinator = next(broker for broker in pair.target.brokers if broker.node_id == end.frame.broker)
        assert is_carried_out or end.took_s is None, "the request is no longer held"
        coordinator.kill()
        assert struck.strikes == [end], "the request was sent again before its coordinator died"
        assert end.reply is None, "the request has arrived"
        struck.release()
        scene.copy_more(2_000)
        assert not coordinator.alive
        coordinator.start()
        scene.copy_more(1_000)
        scene.conclude()
        _assert_fenced(scene.run)


def test_a_worker_that_finds_no_coordinator_for_half_a_minute_waits_and_then_fences(pair: Pair) -> None:
    """F16: two of three brokers are away for longer than a new cluster needs for its first coordinator."""
    with Scene(pair, "no-coordinator", per_second=PER_SECOND) as scene:
        scene.copy_more(1_000)
        coordinator = coordinator_of(pair.target, f"mm2py-{scene.properties['mm2py.group']}-")
        another = next(broker for broker in pair.target.brokers if broker is not coordinator)
        scene.run.kill()
        for broker in (coordinator, another):
            broker.kill()
        scene.run.start()
        pause(FROZEN_S + 15, "the time of their absence is the fault")
        heal(pair.target)
        scene.copy_more(2_000)
        scene.conclude()
        _assert_fenced(scene.run)


def _assert_fenced(run: Mm2py) -> None:
    """Every incarnation has fenced the one before."""
    assert not run.events("producer.unfenced"), run.tail()
    assert not run.events("producer.degraded"), run.tail()


# Brokers freeze


def _ends(cluster: KafkaCluster, topics: Sequence[str], partitions: Sequence[tuple[int, int]]) -> list[int] | None:
    """Return the log ends of some (topic number, partition); None while one has no leader that answers."""
    with suppress(KafkaException):
        return [offsets(cluster, topics[at], number)[1] for at, number in partitions]
    return None


def _assert_all_grow(scene: Scene, partitions: Sequence[tuple[int, int]], *, within_s: float) -> float:
    """Wait until each of these partitions of the target has grown; return how long that took."""
    begun_s = time.monotonic()
    first: list[int] = []

    def grown() -> bool:
        ends = _ends(scene.pair.target, scene.remotes, partitions)
        if ends is None:
            return False
        first[:] = first or ends
        return all(now > before for before, now in zip(first, ends, strict=True))

    scene.run.wait_until(grown, f"all of {partitions} grow", deadline_s=within_s)
    return time.monotonic() - begun_s


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_frozen_broker_delays_only_its_own_partitions_until_others_lead_them(pair: Pair, side: str) -> None:
    """F18, F19: its connections stay open, and it answers nothing for longer than a request may take.

    A batch whose answer is lost is reconciled, and that asks the coordinator, which may be the frozen broker: those
    requests time out as soon as the others.
    """
    alias, client = {"source": ("A", "consumer"), "target": ("B", "producer")}[side]
    short: dict[str, Value] = {f"{alias}.{kind}.request.timeout.ms": REQUEST_TIMEOUT_MS for kind in (client, "admin")}
    cluster = _cluster(pair, side)
    with Scene(pair, "frozen", per_second=PER_SECOND, properties=short) as scene:
        scene.copy_more(1_000)
        topics = _topics(scene, side)
        frozen = leader_of(cluster, topics[0])
        everywhere = [(at, number) for at in range(len(topics)) for number in range(PARTITIONS)]
        own = [at for at in everywhere if leader_of(cluster, topics[at[0]], at[1]) is frozen]
        others = [at for at in everywhere if at not in own]
        assert own, "the broker leads nothing"
        assert others, "the broker leads everything"
        with _frozen(frozen):
            begun_s = time.monotonic()
            others_s = _assert_all_grow(scene, others, within_s=FROZEN_S * PATIENCE)
            _assert_all_grow(scene, own, within_s=FROZEN_S * PATIENCE)
            own_s = time.monotonic() - begun_s
            print(f"others continued after {others_s:.1f} s, its own after {own_s:.1f} s")
            pause(max(0.0, FROZEN_S - own_s), "so long it is frozen at least")
        await_in_sync(cluster, topics)
        scene.copy_more(1_000)
        scene.conclude()
        assert not any("defect" in event["why"] for event in scene.run.events("partition.stalled"))


@contextmanager
def _frozen(broker: Broker) -> Iterator[None]:
    broker.freeze()
    try:
        yield
    finally:
        broker.thaw()


# Rolling restarts


def _kill_and_start(broker: Broker) -> None:
    broker.kill()
    broker.start()


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("strike", [Broker.restart, _kill_and_start], ids=["clean", "hard"])
def test_a_rolling_restart_of_a_cluster_costs_no_record(
    pair: Pair, side: str, strike: Callable[[Broker], None]
) -> None:
    """F20, F21."""
    cluster = _cluster(pair, side)
    with Scene(pair, "rolling", per_second=PER_SECOND) as scene:
        scene.copy_more(500)
        for broker in cluster.brokers:
            strike(broker)
            await_in_sync(cluster)
            give_leaders_back(cluster, _topics(scene, side))
            scene.copy_more(500)
        scene.conclude()


# A whole cluster is away


@pytest.fixture(scope="module")
def third() -> Iterator[KafkaCluster]:
    """The source of a flow that uses neither of the disturbed clusters."""
    with KafkaCluster("faults-third") as cluster:
        yield cluster


def _resident_bytes(run: Mm2py) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{run.pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_cluster_that_is_away_for_long_costs_no_record_no_memory_and_no_other_flow(
    pair: Pair, third: KafkaCluster, side: str
) -> None:
    """F22, F23: the other flow comes from a third cluster, and leads to the undisturbed one."""
    cluster, (goal, alias) = _cluster(pair, side), {"source": (pair.target, "B"), "target": (pair.source, "A")}[side]
    other = new_topic(third, "apart", PARTITIONS)
    properties: dict[str, Value] = {
        "clusters": "A,B,C",
        "C.bootstrap.servers": third.bootstrap,
        f"C->{alias}.enabled": True,
        f"C->{alias}.topics": other,
        "memory.max.bytes": MEMORY_MAX_BYTES,
    }
    load = Load(third.internal_bootstrap, other, Traffic(seed=5, partitions=PARTITIONS), codecs=["lz4"], per_second=100)
    remote = f"C.{other}"
    with Scene(pair, "away", per_second=PER_SECOND, properties=properties) as scene:
        with load.in_background():
            scene.copy_more(1_000)
            before = most = _resident_bytes(scene.run)
            for broker in cluster.brokers:
                broker.kill()
            for _ in during(DOWN_S, "the time of its absence is the fault"):
                _wait_for_more(scene.run, goal, remote, 100)
                most = max(most, _resident_bytes(scene.run))
            heal(cluster)
            scene.copy_more(1_000)
            most = max(most, _resident_bytes(scene.run))
        assert_copied(third, goal, other, remote, run=scene.run)
        scene.conclude()
        print(f"{DOWN_S:g} s away; {before >> 20} MiB before, {most >> 20} MiB at most")
        assert most < before + MEMORY_MORE_BYTES, f"{before >> 20} MiB before, {most >> 20} MiB at most"
        assert {event["flow"] for event in scene.run.events("broker.lost")} == {"A->B"}
        said = {"source": "watch.failing", "target": "partitions.waiting"}[side]
        assert scene.run.events(said, flow="A->B")


def _wait_for_more(run: Mm2py, cluster: KafkaCluster, topic: str, more: int) -> None:
    goal = record_count(cluster, topic, range(PARTITIONS)) + more
    run.wait_until(
        lambda: record_count(cluster, topic, range(PARTITIONS)) >= goal,
        f"{topic} grows by {more}",
        deadline_s=COPY_DEADLINE_S,
    )


# Leaders move


def _shuffle(cluster: KafkaCluster, topics: Sequence[str]) -> int:
    """Move leaders every two seconds, alternately by removing their replica and by an election; return how often."""
    node_ids = [broker.node_id for broker in cluster.brokers]
    turn = 0
    for _ in during(SHUFFLED_S, "leaders move all the time"):
        moved_s = time.monotonic()
        first = node_ids[turn % len(node_ids)]
        if turn % 2:  # the leader loses its replica, and leads no more
            wanted = {(topic, number): _without_leader(cluster, topic, number) for topic, number in _all(topics)}
        else:  # all replicas again, and another one preferred
            others = [node_id for node_id in node_ids if node_id != first]
            wanted = {at: [first, *others] for at in _all(topics)}
        reassign(cluster, wanted)
        give_leaders_back(cluster, topics)
        turn += 1
        pause(max(0.0, moved_s + SHUFFLE_EVERY_S - time.monotonic()), "so often they move")
    reassign(cluster, dict.fromkeys(_all(topics), node_ids))
    return turn


def _all(topics: Sequence[str]) -> list[tuple[str, int]]:
    return [(topic, number) for topic in topics for number in range(PARTITIONS)]


def _without_leader(cluster: KafkaCluster, topic: str, number: int) -> list[int]:
    leader = leader_of(cluster, topic, number).node_id
    return [broker.node_id for broker in cluster.brokers if broker.node_id != leader]


@pytest.mark.parametrize("side", ["source", "target"])
def test_leaders_that_move_every_two_seconds_reorder_no_record(pair: Pair, side: str) -> None:
    """F25."""
    cluster = _cluster(pair, side)
    with Scene(pair, "shuffled", per_second=PER_SECOND) as scene:
        scene.copy_more(1_000)
        epoch_before = record_count(pair.target, scene.remotes[0], range(PARTITIONS))
        moves = _shuffle(cluster, _topics(scene, side))
        assert moves >= 5, "the cluster was too slow to move anything"
        assert record_count(pair.target, scene.remotes[0], range(PARTITIONS)) > epoch_before, "nothing was copied"
        wait_until(
            lambda: _replica_counts(cluster, _topics(scene, side)) == {REPLICAS},
            "all replicas are back",
            deadline_s=LATE_S,
        )
        scene.copy_more(1_000)
        scene.conclude()


def _replica_counts(cluster: KafkaCluster, topics: Sequence[str]) -> set[int]:
    found = admin(cluster).list_topics(timeout=ANSWER_S).topics
    return {len(part.replicas) for topic in topics for part in found[topic].partitions.values()}


# Too few replicas


def _set_topic(cluster: KafkaCluster, topics: Sequence[str], key: str, value: str) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    wanted = [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry]) for topic in topics]
    client = admin(cluster)  # the answers end with the block
    for done in client.incremental_alter_configs(wanted).values():
        done.result(ANSWER_S)


def test_too_few_replicas_in_sync_on_the_target_are_waited_for_and_named(pair: Pair) -> None:
    """F58: three must be in sync, and one is away."""
    with Scene(pair, "min-isr", per_second=PER_SECOND, properties={"stall.timeout.ms": 10_000}) as scene:
        scene.copy_more(1_000)
        _set_topic(pair.target, scene.remotes, "min.insync.replicas", "3")
        away = leader_of(pair.target, scene.remotes[0])
        away.kill()
        scene.run.wait_for_event("partition.stalled", why=re.compile("NOT_ENOUGH_REPLICAS"), deadline_s=LATE_S)
        away.start()
        scene.copy_more(2_000)
        scene.run.wait_for_event("partitions.copying", deadline_s=LATE_S)
        scene.run.wait_for_event("partition.moving", deadline_s=LATE_S)
        scene.conclude()


def test_a_target_with_one_broker_of_three_left_is_waited_for_and_named(pair: Pair) -> None:
    """F58: the broker that is left acknowledges nothing, and no leader can be elected."""
    with Scene(pair, "one-left", per_second=PER_SECOND, properties={"stall.timeout.ms": 10_000}) as scene:
        scene.copy_more(1_000)
        for broker in pair.target.brokers[:2]:
            broker.kill()
        stalled = scene.run.wait_for_event("partition.stalled", deadline_s=LATE_S)
        assert "defect" not in stalled["why"]
        print(stalled["why"])
        heal(pair.target)
        scene.copy_more(2_000)
        scene.run.wait_for_event("partition.moving", deadline_s=LATE_S)
        scene.conclude()


# Quotas


def _copy_under(pair: Pair, throttled: KafkaCluster, key: str, properties: dict[str, Value]) -> Mm2py:
    """Copy a backlog under a quota of bytes that delays requests for longer than they may take; judge the copy."""
    topic = new_topic(pair.source, "quota", PARTITIONS, replicas=REPLICAS)
    traffic = Traffic(seed=9, partitions=PARTITIONS, plain=True, value_bytes=600)
    small: dict[str, Value] = {"A->B.topics": topic, "A.consumer.max.partition.fetch.bytes": 100_000}
    with Mm2py(three_node_properties(pair.source, pair.target, **small, **properties)) as run:
        run.wait_for_event("topics.copying", deadline_s=LATE_S)
        with quota(throttled, key, QUOTA_BYTES):
            begun_s = time.monotonic()
            send(pair.source, topic, islice(traffic.records(), BACKLOG), batch_size=100_000)
            run.wait_until(
                lambda: record_count(pair.target, f"A.{topic}", range(PARTITIONS)) >= BACKLOG,
                "the backlog is copied",
                deadline_s=LATE_S,
            )
            print(f"copied after {time.monotonic() - begun_s:.1f} s")
            assert time.monotonic() - begun_s > 2 * REQUEST_TIMEOUT_MS / 1000, "the quota delayed nothing"
        assert_copied(pair.source, pair.target, topic, f"A.{topic}", run=run)
        assert run.terminate(deadline_s=LATE_S) == 0
    return run


@pytest.mark.parametrize("side", ["source", "target"])
def test_under_a_quota_of_bytes_no_request_times_out(pair: Pair, side: str) -> None:
    """F76: requests may take five seconds, and brokers stay silent for longer."""
    alias, client = {"source": ("A", "consumer"), "target": ("B", "producer")}[side]
    short: dict[str, Value] = {f"{alias}.{client}.request.timeout.ms": REQUEST_TIMEOUT_MS}
    run = _copy_under(pair, _cluster(pair, side), f"{client}_byte_rate", short)
    assert not run.events("broker.lost"), run.tail()
    assert not run.events("flow.crashed"), run.tail()


def test_a_quota_of_topic_changes_only_delays_new_topics(pair: Pair) -> None:
    """F76: the controller takes a partition a second, and refuses more."""
    stem = new_name("mutations")
    topics = [new_topic(pair.source, stem, PARTITIONS, replicas=REPLICAS) for _ in range(6)]
    for seed, topic in enumerate(topics):
        send(pair.source, topic, islice(Traffic(seed=seed, partitions=PARTITIONS).records(), 100))
    properties = three_node_properties(pair.source, pair.target, **{"A->B.topics": f"{stem}.*"})
    with quota(pair.target, "controller_mutation_rate", 1.0), Mm2py(properties) as run:
        for topic in topics:
            assert_copied(pair.source, pair.target, topic, f"A.{topic}", run=run, deadline_s=LATE_S)
        assert run.terminate() == 0
        assert not run.events("flow.crashed"), run.tail()
        assert not run.events("flow.refused"), run.tail()
