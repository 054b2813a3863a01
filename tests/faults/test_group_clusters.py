"""Workers share partitions while brokers, links, the control log or ZooKeeper fail, for all of them or for one.

The control log shows how the group reacts, and the copies are judged as in ``shared.py``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import TopicPartition

from deploy.local.kafka import KafkaCluster
from deploy.local.zookeeper import ZooKeeperEnsemble
from mm2py.records.control_record import Fenced
from tests.cluster.commands.test_apply import run_apply
from tests.cluster.copies import assert_copied, make_topic
from tests.cluster.groups import Group
from tests.cluster.kafka_client import admin, delete_topic, new_name, write
from tests.cluster.kafka_frames import PRODUCE, Direction, Frame
from tests.cluster.kafka_proxy import KafkaProxy
from tests.cluster.kafka_rules import Drip, Drop, Pass, Reset, Rule
from tests.cluster.loads import PARTITIONS
from tests.cluster.running import ANSWER_S, PATIENCE, Mm2py, Value, pause, wait_until
from tests.faults.asked import active_controller, reassign
from tests.faults.namespaces import Cable
from tests.faults.scene import (
    BEGIN_S,
    REPLICAS,
    Pair,
    await_in_sync,
    give_leaders_back,
    leader_of,
    three_node_properties,
)
from tests.faults.shared import PER_SECOND, SESSION_S, SharedScene, assert_led_by_one, cluster_of

CUT_S: Final = SESSION_S + 5 * PATIENCE


@contextmanager
def proxied(pair: Pair, side: str, scene: SharedScene) -> Iterator[tuple[Mm2py, KafkaProxy]]:
    """Start one more worker of the scene, which reaches one cluster only through a proxy."""
    with KafkaProxy(cluster_of(pair, side).bootstrap) as proxy:
        alias = {"source": "A", "target": "B"}[side]
        worker = scene.group.start_another(**{f"{alias}.bootstrap.servers": proxy.bootstrap})
        scene.wait_until_assigned()
        scene.wait_until_all_grow()
        try:
            yield worker, proxy
        finally:
            proxy.end_rules()
            worker.kill()


def cut(proxy: KafkaProxy, how: str, broker: int | None = None) -> Rule:
    """Pass no request, to one broker or to any, until the rule ends."""
    if how == "refused":
        rule = proxy.rule(Reset(), broker=broker, times=None)
        proxy.reset_all()
        return rule
    return proxy.rule(Drop(), broker=broker, times=None)


def is_data(scene: SharedScene, frame: Frame) -> bool:
    """Whether a Produce request is about copied records."""
    return any(topic.encode() in frame.content for topic in scene.loads.topics)


# Brokers


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_rolling_restart_of_a_cluster_starts_no_election_and_no_fence(pair: Pair, side: str) -> None:
    """F17, F20, F21: each broker in turn leads the control log, or two of them do."""
    cluster = cluster_of(pair, side)
    with SharedScene(pair, f"rolling-{side}") as scene:
        for broker in cluster.brokers:
            broker.restart()
            await_in_sync(cluster)
            scene.wait_until_all_grow()
        assert scene.evicted() == scene.group.records(Fenced) == []
        assert scene.group.view().leader_epoch == 1
        scene.conclude()


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_killed_controller_delays_neither_a_joining_worker_nor_a_new_topic(pair: Pair, side: str) -> None:
    """F24."""
    cluster = cluster_of(pair, side)
    stem = new_name("fresh")
    with SharedScene(pair, f"controller-{side}", workers=2, also=f"{stem}.*") as scene:
        controller = active_controller(cluster)
        controller.kill()
        try:
            scene.group.start_another()
            wait_until(lambda: made(pair.source, f"{stem}-new"), "a topic can be made again", deadline_s=BEGIN_S)
            wait_until(lambda: len(scene.group.view().members) == 3, "it has joined", deadline_s=BEGIN_S)
            write(pair.source, f"{stem}-new", [b"one"])
            assert_copied(pair.source, pair.target, f"{stem}-new", f"A.{stem}-new", run=scene.workers[0])
        finally:
            controller.start()
        await_in_sync(cluster)
        scene.conclude()


def made(cluster: KafkaCluster, topic: str) -> bool:
    with suppress(Exception):
        make_topic(cluster, topic, 1, replicas=REPLICAS)  # two of them must be in sync
        return True
    return topic in admin(cluster).list_topics(timeout=10 * PATIENCE).topics


# Links of one worker


@pytest.mark.parametrize("how", ["refused", "unanswered"])
def test_a_worker_cut_off_from_the_source_stays_a_member_and_catches_up(pair: Pair, how: str) -> None:
    """F26: it does no harm, so it is not evicted; the partitions of the others do not wait."""
    with SharedScene(pair, f"no-source-{how}", workers=2) as scene, proxied(pair, "source", scene) as (worker, proxy):
        own = {share for share, owner in scene.group.partitions().items() if owner == scene.group.member_of(worker)}
        rule = cut(proxy, how)
        begun_s = time.monotonic()
        others = {(share.topic, share.partition) for share in scene.group.partitions() if share not in own}
        before = scene.ends()
        wait_until(
            lambda: all(scene.ends()[at] > before[at] + PER_SECOND // 10 for at in others), "the others are copied"
        )
        pause(max(0.0, begun_s + CUT_S - time.monotonic()), "so long it is cut off at least")
        assert own
        assert rule.fired
        rule.end()
        scene.wait_until_all_grow()
        assert scene.evicted() == []
        scene.conclude()


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
@pytest.mark.parametrize("what", ["the target", "the broker of the control log"])
def test_a_worker_that_cannot_reach_the_control_log_stops_writing_before_others_take_over(
    pair: Pair, what: str, leads: bool
) -> None:
    """F27, F29, F30: from then on it sends no record, though it could, until it is back as another member."""
    with KafkaProxy(pair.target.bootstrap) as proxy, SharedScene(pair, "cut", workers=0 if leads else 2) as scene:
        worker = scene.group.start_another(**{"B.bootstrap.servers": proxy.bootstrap})
        worker.wait_for_event("member.joined", deadline_s=BEGIN_S)
        if leads:
            worker.wait_for_event("member.claims_leadership", deadline_s=BEGIN_S)
            for _ in range(2):
                scene.group.start_another()
        scene.wait_until_assigned()
        scene.wait_until_all_grow()
        assert (scene.group.leader is worker) is leads
        was = scene.group.member_of(worker)
        broker = None if what == "the target" else scene.group.log_leader()
        sent = proxy.rule(
            Pass(), Direction.REQUEST, api_key=PRODUCE, times=None, where=lambda frame: is_data(scene, frame)
        )
        if broker is None:
            sent.end()
        rule = cut(proxy, "unanswered", broker)
        cut_s = time.monotonic()
        scene.wait_until_assigned(among=2)
        scene.wait_until_all_grow()
        over_s = time.monotonic()
        if broker is not None:
            late = [strike.at_s - cut_s for strike in sent.strikes if cut_s + SESSION_S + 0.2 < strike.at_s < over_s]
            assert not late, f"records were sent {late} s after the cut"
        rule.end()
        rejoining = worker.wait_for_event("group.rejoining", deadline_s=BEGIN_S)
        worker.wait_for_event("member.joined", after=rejoining, deadline_s=BEGIN_S)
        scene.wait_until_assigned()
        scene.wait_until_all_grow()
        assert scene.evicted() == [was]
        scene.conclude()


def test_a_worker_cut_off_from_one_broker_copies_partitions_that_other_brokers_lead(pair: Pair) -> None:
    """F29: not the broker of the control log. Metadata show it as alive, so its partitions wait with their owner."""
    with SharedScene(pair, "bridge", workers=2) as scene, proxied(pair, "target", scene) as (worker, proxy):
        log_leader = scene.group.log_leader()
        own = [share for share, owner in scene.group.partitions().items() if owner == scene.group.member_of(worker)]
        lost = next((broker.node_id for broker in pair.target.brokers if broker.node_id != log_leader), None)
        if lost is None:
            pytest.skip("of one broker (MM2PY_FAULTS_NODES=1) no broker is left")
        lead_from(pair.target, f"A.{own[0].topic}", own[0].partition, lost)
        led = {
            (share.topic, share.partition): leader_of(pair.target, f"A.{share.topic}", share.partition) for share in own
        }
        rule = cut(proxy, "unanswered", lost)
        pause(CUT_S, "the time of the cut is the fault")
        free = {(at, number) for at in scene.loads.topics for number in range(PARTITIONS)} - {
            at for at, broker in led.items() if broker.node_id == lost
        }
        before = scene.ends()
        wait_until(lambda: all(scene.ends()[at] > before[at] for at in free), "what others lead is copied")
        rule.end()
        scene.wait_until_all_grow()
        assert scene.evicted() == []
        scene.conclude()


def lead_from(cluster: KafkaCluster, topic: str, partition: int, node_id: int) -> None:
    """Let a broker lead a partition of which it has a replica."""
    others = [broker.node_id for broker in cluster.brokers if broker.node_id != node_id]
    reassign(cluster, {(topic, partition): [node_id, *others]})

    def leads() -> bool:
        give_leaders_back(cluster, [topic])
        return leader_of(cluster, topic, partition).node_id == node_id

    wait_until(leads, f"broker {node_id} leads {topic}-{partition}")


def test_a_worker_whose_cable_is_pulled_is_evicted_and_returns(pair: Pair) -> None:
    """F26, F27, F39 by the kernel: it runs in a network namespace, and neither side is told of the cut."""
    with (
        Cable() as cable,
        KafkaProxy(pair.source.bootstrap, host=cable.here) as source,
        KafkaProxy(pair.target.bootstrap, host=cable.here) as target,
        SharedScene(pair, "cable", workers=2) as scene,
    ):
        with cable.entered():
            worker = scene.group.start_another(
                **{"A.bootstrap.servers": source.bootstrap, "B.bootstrap.servers": target.bootstrap}
            )
        scene.wait_until_assigned()
        scene.wait_until_all_grow()
        was = scene.group.member_of(worker)
        cable.pull()
        scene.wait_until_assigned(among=2)
        scene.wait_until_all_grow()
        cable.plug()
        rejoining = worker.wait_for_event("group.rejoining", deadline_s=BEGIN_S)
        worker.wait_for_event("member.joined", after=rejoining, deadline_s=BEGIN_S)
        scene.wait_until_assigned()
        scene.wait_until_all_grow()
        assert scene.evicted() == [was]
        scene.conclude()


# The control log


def test_a_control_log_that_is_deleted_under_its_group_is_recreated(pair: Pair) -> None:
    """F55: all join again. No record names the previous owners, and they are fenced."""
    with SharedScene(pair, "deleted-log") as scene:
        delete_topic(pair.target, scene.group.log)
        for worker in scene.workers:
            rejoining = worker.wait_for_event("group.rejoining", deadline_s=BEGIN_S)
            worker.wait_for_event("member.joined", after=rejoining, deadline_s=BEGIN_S)
        scene.wait_until_assigned()
        scene.wait_until_all_grow()
        scene.conclude()


def test_a_control_log_whose_records_are_deleted_does_not_mislead_a_joining_worker(pair: Pair) -> None:
    """All its records are gone, and the running workers know it; a joining one must not believe that it is alone."""
    with SharedScene(pair, "cut-log", workers=2) as scene:
        shared = scene.group.view()
        gone = TopicPartition(scene.group.log, 0, -1)
        client = admin(pair.target)  # its answer is lost with it
        client.delete_records([gone])[gone].result(ANSWER_S)
        joiner = scene.group.start_another()
        joiner.wait_for_event("member.joined", deadline_s=BEGIN_S)
        scene.wait_until_all_grow()
        pause(2 * SESSION_S, "nobody claims leadership meanwhile")
        assert not joiner.events("member.claims_leadership"), "the worker believes that there is no leader"
        for worker in scene.workers:
            assert not worker.events("group.rejoining"), worker.tail()
        scene.wait_until_all_grow()
        assert shared.leader is not None
        scene.conclude()


# ZooKeeper


def test_a_zookeeper_ensemble_that_loses_its_leader_and_then_its_quorum_costs_no_partition(pair: Pair) -> None:
    """F65, F66, F67: while no worker may claim, all continue with what they own; the leader may lead again."""
    with ZooKeeperEnsemble() as ensemble:
        election: dict[str, Value] = {"B.leader.election": "zookeeper", "B.zookeeper.connect": ensemble.connect}
        with SharedScene(pair, "ensemble", properties=election) as scene:
            first = ensemble.leader()
            first.kill()
            pause(CUT_S, "sessions expire meanwhile")
            scene.wait_until_all_grow()
            second = next(server for server in ensemble.servers if server is not first)
            second.kill()
            pause(CUT_S, "sessions expire meanwhile")
            scene.wait_until_all_grow()
            assert scene.evicted() == scene.group.records(Fenced) == []
            for server in (first, second):
                server.launch()
            for server in (first, second):
                server.await_ready()
            wait_until(lambda: scene.group.view().leader is not None, "there is a leader again", deadline_s=BEGIN_S)
            dead = scene.group.leader
            dead.kill()
            scene.wait_until_assigned()
            scene.wait_until_all_grow()
            assert scene.evicted() == [scene.group.member_of(dead)]
            scene.conclude()


# An unhealthy source beside a healthy flow


@pytest.mark.parametrize("how", ["away", "slow", "silent"])
def test_an_unhealthy_source_delays_start_discovery_change_and_failover_of_another_flow_by_less_than_a_second(
    pair: Pair, how: str, tmp_path: Path
) -> None:
    """Each is measured without the unhealthy flow first, and then beside it. A change counts from when it is stored."""
    without = measured(pair, None, tmp_path)
    beside = measured(pair, how, tmp_path)
    print("".join(f"\n{what}: {without[what]:.2f} s alone, {beside[what]:.2f} s beside" for what in without))
    for what, alone_s in without.items():
        assert beside[what] < alone_s + 1.0 * PATIENCE, f"{what}: {alone_s:.2f} s alone, {beside[what]:.2f} s beside"


def measured(pair: Pair, how: str | None, folder: Path) -> dict[str, float]:
    """Return the seconds that start, new topic, changed setting and failover take, beside an unhealthy flow if any."""
    stem = new_name("beside")
    make_topic(pair.source, f"{stem}-old", 4, replicas=REPLICAS)
    took: dict[str, float] = {}
    with KafkaProxy(pair.source.bootstrap) as ill:
        properties = three_node_properties(pair.source, pair.target, **{"A->B.topics": f"{stem}-.*"})
        if how is not None:
            action = {"away": Reset(), "slow": Drip(0.2), "silent": Drop()}[how]
            ill.rule(action, Direction.REPLY if how == "slow" else None, times=None)
            flow = {"clusters": "A,C,B", "C.bootstrap.servers": ill.bootstrap, "C->B.enabled": True}
            properties |= {**flow, "C->B.topics": f"{stem}-.*"}
        with Group(pair.target, properties, workers=0) as group:

            def until_copied(what: str, topic: str) -> None:
                begun_s = time.monotonic()
                for number in range(4):
                    write(pair.source, topic, [what.encode()], partition=number)
                wait_until(lambda: arrived(pair.target, f"A.{topic}", what), what, deadline_s=BEGIN_S)
                took[what] = time.monotonic() - begun_s

            group.start_another()
            until_copied("start", f"{stem}-old")
            group.start_another()
            wait_until(lambda: len(set(group.partitions().values())) == 2, "two share", deadline_s=BEGIN_S)
            make_topic(pair.source, f"{stem}-new", 4, replicas=REPLICAS)
            until_copied("new topic", f"{stem}-new")
            wait_until(lambda: len(group.partitions()) == 8, "all are shared", deadline_s=BEGIN_S)
            make_topic(pair.source, f"also-{stem}", 4, replicas=REPLICAS)
            properties["A->B.topics"] = f"{stem}-.*,also-{stem}"
            code, _, error = run_apply(folder / "mm2.properties", properties, "--yes")
            assert (code, error) == (0, "")
            until_copied("configuration change", f"also-{stem}")
            group.leader.kill()
            until_copied("failover", f"{stem}-new")
            assert_led_by_one(group)
    return took


def arrived(target: KafkaCluster, topic: str, what: str) -> bool:
    """Return whether each partition of a copy ends with this record."""
    from tests.cluster.kafka_client import topic_names, values

    return topic in topic_names(target) and all(what.encode() in values(target, topic, [n]) for n in range(4))
