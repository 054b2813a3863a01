"""Workers that share partitions, as processes on real brokers: they come, go, die and freeze under load.

The checker judges each copy as ever. Who owned what, and why it moved, is read from the control log.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import pairwise

import pytest

from deploy.local.kafka import KafkaCluster
from mm2py.flow import Kind, parse_flow
from mm2py.records.control_codec import encode
from mm2py.records.control_record import Beat, Claim, Evicted, Fenced, Joined, Left, MemberId, TaskName
from tests.checker.load import Load
from tests.checker.traffic import Traffic
from tests.cluster.commands.test_workers_option import TWO, workers_of
from tests.cluster.copies import add_partitions, assert_copied, bounds_of, make_topic, new_topic, now_ms, send
from tests.cluster.groups import Group, two_flows
from tests.cluster.kafka_client import new_name, topic_names, write
from tests.cluster.loads import AGES_MS, PATIENT
from tests.cluster.running import (
    DEADLINE_S,
    PATIENCE,
    Mm2py,
    Value,
    one_way_properties,
    pause,
    two_way_properties,
    wait_until,
)
from tests.cluster.topics.test_heartbeats import HEARTBEATS, of_pair

PARTITIONS = 6
ALIASES = ("A", "C")
SHARED = PARTITIONS * len(ALIASES) * len(AGES_MS)
"""Partitions that the workers of these tests share: of two topics, each copied by two flows."""
PER_SECOND = 300
SESSION_S = 3.0
UNHURRIED: dict[str, Value] = {"B.session.timeout.ms": 15_000}
"""Where nobody is to be evicted: a machine that is busy may hold a worker up for three seconds."""


class Copies:
    """Two topics under load while the ``with`` block lasts, each to be copied by two flows."""

    def __init__(
        self, source: KafkaCluster, target: KafkaCluster, stem: str, *, aliases: Sequence[str] = ALIASES
    ) -> None:
        self.source, self.target = source, target
        self.aliases = aliases
        self.loads = [
            Load(
                source.internal_bootstrap,
                new_topic(source, f"{stem}-{age}", PARTITIONS),
                Traffic(seed=len(stem), partitions=PARTITIONS, first_timestamp_ms=now_ms() - age_ms),
                codecs=["lz4"],
                per_second=PER_SECOND,
                settings=PATIENT,
            )
            for age, age_ms in AGES_MS.items()
        ]
        self.topics = [load.topic for load in self.loads]
        self._running = ExitStack()

    def __enter__(self) -> Copies:
        for load in self.loads:
            self._running.enter_context(load.in_background())
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def properties(self) -> dict[str, Value]:
        return two_flows(self.source, self.target, dict.fromkeys(ALIASES, ",".join(self.topics)))

    def ends(self) -> dict[TaskName, int]:
        """Return where each remote partition ends just now."""
        return {
            TaskName(parse_flow(f"{alias}->B"), Kind.SOURCE, topic, number): bounds.end
            for alias in self.aliases
            for topic in self.topics
            for number, bounds in bounds_of(self.target, f"{alias}.{topic}", range(PARTITIONS)).items()
        }

    def wait_until_all_grow(self, *, deadline_s: float = DEADLINE_S) -> None:
        """Wait until each remote partition has newer records than now."""
        before = self.ends()
        still: set[TaskName] = set(before)

        def grown() -> bool:
            now = self.ends()
            still.difference_update({share for share in still if now[share] > before[share]})
            return not still

        try:
            wait_until(grown, "every partition is copied", deadline_s=deadline_s)
        except AssertionError as error:
            error.add_note(f"not copied: {sorted(map(str, still))}")
            raise

    def assert_exact(self, run: Mm2py) -> None:
        """Once the load is over: every record is in its copy, once, in order."""
        for alias in self.aliases:
            for topic in self.topics:
                assert_copied(self.source, self.target, topic, f"{alias}.{topic}", run=run, max_rewinds=0)

    def markers(self) -> dict[TaskName, int]:
        """Return how many markers stand in the remote partitions that have some, when all is copied."""
        sent = {topic: bounds_of(self.source, topic, range(PARTITIONS)) for topic in self.topics}
        found = {share: end - sent[share.topic][share.partition].end for share, end in self.ends().items()}
        return {share: count for share, count in found.items() if count}


@contextmanager
def sharing(
    source: KafkaCluster, target: KafkaCluster, stem: str, *, workers: int = 3, **extra: Value
) -> Iterator[tuple[Group, Copies]]:
    """Workers that share all partitions, and the load on these; each copies some."""
    copies = Copies(source, target, new_name(stem))
    with Group(target, copies.properties() | extra, workers=workers) as group:
        with copies:
            group.wait_until_assigned(SHARED)
            copies.wait_until_all_grow()
            yield group, copies
        copies.assert_exact(next(worker for worker in group.workers if worker.alive))


def owned(shares: Mapping[TaskName, str], member: str) -> list[TaskName]:
    return [share for share, name in shares.items() if name == member]


def test_what_a_killed_worker_copied_goes_on_elsewhere_and_is_exact(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    with sharing(source_cluster, target_cluster, "killed") as (group, copies):
        dead = next(worker for worker in group.workers if worker is not group.leader)
        before = group.partitions()
        assert owned(before, group.member_of(dead))
        dead.kill()
        after = group.wait_until_assigned(SHARED)
        kept = {share: name for share, name in before.items() if name != group.member_of(dead)}
        assert kept.items() <= after.items(), "the others go on with what they had"
        copies.wait_until_all_grow()
    group.assert_steady()


def test_a_leader_that_is_killed_is_followed_by_another_that_takes_its_partitions_over(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    with sharing(source_cluster, target_cluster, "leader") as (group, copies):
        leader = group.leader
        leader.kill()
        group.wait_until_assigned(SHARED)
        copies.wait_until_all_grow()
        assert group.leader is not leader
        assert [record.dead for record in group.records(Evicted)] == [group.member_of(leader)]
        assert [record.of for record in group.records(Fenced)] == [group.member_of(leader)]
    group.assert_steady()


def test_a_worker_that_joins_and_one_that_stops_in_order_cost_no_fence(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    with sharing(source_cluster, target_cluster, "moved", workers=2, **UNHURRIED) as (group, copies):
        joined = group.start_another()
        shares = group.wait_until_assigned(SHARED)
        assert owned(shares, group.member_of(joined))
        copies.wait_until_all_grow()
        stopped = group.workers[0]
        assert stopped.terminate() == 0
        group.wait_until_assigned(SHARED)
        copies.wait_until_all_grow()
        assert [(record.member, record.outcome_unknown) for record in group.records(Left)] == [
            (group.member_of(stopped), False)
        ]
    assert copies.markers() == {}, "nobody was fenced there"
    assert group.records(Fenced) == group.records(Evicted) == []
    group.assert_steady()


def test_a_worker_that_froze_writes_nothing_after_it_was_evicted_and_comes_back_as_another(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    with sharing(source_cluster, target_cluster, "frozen") as (group, copies):
        frozen = next(worker for worker in group.workers if worker is not group.leader)
        was = group.member_of(frozen)
        before = owned(group.partitions(), was)
        frozen.signal(signal.SIGSTOP)
        begun_s = time.monotonic()
        group.wait_until_assigned(SHARED, among=2)
        copies.wait_until_all_grow()
        pause(max(0.0, begun_s + 10 - time.monotonic()), "so long it has been away at least")
        assert owned(group.partitions(), was) == []
        frozen.signal(signal.SIGCONT)
        again = frozen.wait_for_event("group.rejoining", member=was)
        assert frozen.wait_for_event("member.joined", after=again)["member"] != was
        group.wait_until_assigned(SHARED)
        copies.wait_until_all_grow()
    assert before
    (out,) = group.records(Evicted)
    assert out.dead == was
    group.assert_steady(but=(frozen,))


def test_a_lone_worker_that_was_killed_goes_on_after_its_session_time_out(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    with sharing(source_cluster, target_cluster, "lone", workers=1) as (group, copies):
        (worker,) = group.workers
        worker.kill()
        begun_s = time.monotonic()
        worker.start()
        group.wait_until_assigned(SHARED, among=1)
        copies.wait_until_all_grow()
        took_s = time.monotonic() - begun_s
        assert took_s >= SESSION_S - 0.5
        assert len(group.records(Claim)) == 2
    group.assert_steady()


@pytest.mark.slow
def test_all_workers_restarted_in_turn_and_stopped_at_once_cost_no_fence(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    with sharing(source_cluster, target_cluster, "rolled", **UNHURRIED) as (group, copies):
        for worker in list(group.workers):
            assert worker.terminate() == 0
            worker.start()
            group.wait_until_assigned(SHARED, among=3)
        copies.wait_until_all_grow()
        for worker in group.workers:
            worker.signal(signal.SIGTERM)
        assert [worker.wait() for worker in group.workers] == [0, 0, 0]
        assert [record.outcome_unknown for record in group.records(Left)] == [False] * 6
        for worker in group.workers:
            worker.start()
        group.wait_until_assigned(SHARED)
        copies.wait_until_all_grow()
    assert copies.markers() == {}
    assert group.records(Fenced) == group.records(Evicted) == []
    group.assert_steady()


def test_two_of_three_workers_killed_at_once(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> None:
    with sharing(source_cluster, target_cluster, "both") as (group, copies):
        leader = group.leader
        other = next(worker for worker in group.workers if worker is not leader)
        for worker in (leader, other):
            worker.signal(signal.SIGKILL)
        assert {worker.wait() for worker in (leader, other)} == {-signal.SIGKILL}
        group.wait_until_assigned(SHARED)
        copies.wait_until_all_grow()
        assert {record.of for record in group.records(Fenced)} == {group.member_of(one) for one in (leader, other)}
    group.assert_steady()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_workers_that_come_go_die_and_freeze_at_random_lose_and_repeat_nothing(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, seed: int
) -> None:
    chance = random.Random(seed)
    with sharing(source_cluster, target_cluster, "random") as (group, copies):
        frozen: list[Mm2py] = []
        for _ in range(20):
            alive = [worker for worker in group.workers if worker.alive and worker not in frozen]
            what = chance.choice(["kill", "stop", "freeze", "thaw", "start", "start"])
            if what == "start" and len(alive) < 4:
                ended = [worker for worker in group.workers if not worker.alive]
                if ended and chance.random() < 0.7:
                    chance.choice(ended).start()
                else:
                    group.start_another()
            elif what == "thaw" and frozen:
                frozen.pop(0).signal(signal.SIGCONT)
            elif len(alive) > 1:
                worker = chance.choice(alive)
                if what == "kill":
                    worker.kill()
                elif what == "freeze":
                    worker.signal(signal.SIGSTOP)
                    frozen.append(worker)
                elif what == "stop":
                    worker.signal(signal.SIGTERM)
            pause(chance.uniform(0.0, 4.0), "the moments are the fault")
        for worker in frozen:
            worker.signal(signal.SIGCONT)
        copies.wait_until_all_grow(deadline_s=60 * PATIENCE)
    assert not [event for worker in group.workers for event in worker.events("flow.crashed")]


def test_new_topics_and_partitions_are_shared_by_all_workers(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    stem = new_name("grown")
    first = new_topic(source_cluster, stem, 6)
    properties = two_flows(source_cluster, target_cluster, dict.fromkeys(ALIASES, f"{stem}.*"))
    traffic = Traffic(seed=3, partitions=9, first_timestamp_ms=now_ms()).records()
    records = [next(traffic) for _ in range(900)]
    with Group(target_cluster, properties | UNHURRIED) as group:
        before = group.wait_until_assigned(12)
        second = f"{stem}-more"
        make_topic(source_cluster, second, 6)
        send(source_cluster, second, [record for record in records if record.partition < 6])
        both = group.wait_until_assigned(24)
        assert before.items() <= both.items(), "what was there stays where it is"
        add_partitions(source_cluster, first, 9)
        group.wait_until_assigned(30)
        send(source_cluster, first, records)
        for alias in ALIASES:
            for topic in (first, second):
                assert_copied(source_cluster, target_cluster, topic, f"{alias}.{topic}", run=group.workers[0])
    assert group.records(Fenced) == []
    group.assert_steady()


@pytest.mark.slow
def test_a_control_log_that_is_away_for_long_expires_no_session(
    source_cluster: KafkaCluster, three_node_cluster: KafkaCluster
) -> None:
    """F17: its leader dies, which the others notice after nine seconds: three session time-outs."""
    copies = Copies(source_cluster, three_node_cluster, new_name("away"), aliases=["A"])
    three = dict.fromkeys(
        (
            "replication.factor",
            "offset.storage.replication.factor",
            "status.storage.replication.factor",
            "config.storage.replication.factor",
        ),
        3,
    )
    properties = one_way_properties(source_cluster, three_node_cluster, **{"A->B.topics": ",".join(copies.topics)})
    with Group(three_node_cluster, properties | three) as group:
        with copies:
            group.wait_until_assigned(2 * PARTITIONS)
            copies.wait_until_all_grow()
            leader = group.log_leader()
            three_node_cluster.broker(leader).kill()
            try:
                wait_until(lambda: group.log_leader() != leader, "another broker leads the control log")
                copies.wait_until_all_grow()
            finally:
                three_node_cluster.broker(leader).start()
            copies.wait_until_all_grow()
        copies.assert_exact(group.workers[0])
        assert {record.leader_epoch for record in group.records(Claim)} == {1}
        assert all(worker.terminate() == 0 for worker in group.workers)
    assert group.records(Evicted) == group.records(Fenced) == []
    group.assert_steady()


# Beside others


def test_a_worker_that_elects_by_other_means_is_refused(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """F68."""
    with Group(target_cluster, one_way_properties(source_cluster, target_cluster), workers=1) as group:
        group.workers[0].wait_for_event("member.joined")
        other = group.start_another(**{"leader.election": "zookeeper", "zookeeper.connect": "127.0.0.1:1"})
        assert other.wait() == 1
        (refused,) = other.events("group.refused")
        assert refused["why"].startswith("leader.election is zookeeper here, and log for worker ")
        assert "Set the same for all workers of a group" in refused["why"]


def test_a_worker_whose_target_is_another_cluster_is_refused(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """F69: the control log was copied there with the rest: somebody of the other cluster's workers stands in it."""
    group = Group(target_cluster, one_way_properties(source_cluster, target_cluster), workers=1)
    with group:
        group.workers[0].wait_for_event("member.joined")
        assert group.workers[0].terminate() == 0
        joined = group.records(Joined)[0]
        stranger = replace(
            joined,
            member=MemberId("stranger"),
            name="elsewhere:1",
            cluster_id="another",
            session_timeout_ms=int(DEADLINE_S) * 1000,  # for so long a sign of life is waited for
        )
        write(target_cluster, group.log, [encode(stranger)])
        refused = group.start_another()
        refused.wait_for_event("member.contradicted")
        write(target_cluster, group.log, [encode(Beat(stranger.member))])
        assert refused.wait() == 1
        (event,) = refused.events("group.refused")
        assert re.search(r"B is cluster \S+ here, and cluster another for worker elsewhere:1 ", event["why"])
        assert "bootstrap.servers" in event["why"]


def test_a_worker_whose_source_is_another_cluster_is_refused_and_the_others_copy_all(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, make_cluster: Callable[..., KafkaCluster]
) -> None:
    """The story: a copied file, and in it A is still the cluster of the other site, with topics of the same names."""
    elsewhere = make_cluster("elsewhere")
    topic = new_topic(source_cluster, "sites", 6)
    make_topic(elsewhere, topic, 6)
    for number in range(6):
        write(source_cluster, topic, [f"right {number}"], partition=number)
        write(elsewhere, topic, [f"wrong {number}"] * 3, partition=number)
    properties = one_way_properties(source_cluster, target_cluster, **{"A->B.topics": f"{topic}.*"})
    with Group(target_cluster, properties, workers=1) as group:
        group.wait_until_assigned(6)
        astray = group.start_another(**{"A.bootstrap.servers": elsewhere.bootstrap})
        refused = astray.wait_for_event("flow.refused", flow="A->B")
        assert re.search(r"A is cluster \S+ here, and cluster \S+ for the workers of group ", refused["why"])
        assert "A.bootstrap.servers" in refused["why"]
        second = f"{topic}-more"
        for cluster, word in ((source_cluster, "right"), (elsewhere, "wrong")):
            make_topic(cluster, second, 6)
            for number in range(6):
                write(cluster, second, [f"{word} {number}"], partition=number)
        for name in (topic, second):
            assert_copied(source_cluster, target_cluster, name, f"A.{name}", run=group.workers[0])
        assert astray.wait() == 1
        assert [gap for gap in group.workers[0].gaps()[1] if gap["topic"] in (topic, second)] == []


def test_each_target_cluster_has_a_group_of_its_own_as_far_as_it_is_served(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic = new_topic(source_cluster, "sides", 4)
    properties = two_way_properties(source_cluster, target_cluster, topics=topic)
    log = f"mm2-cluster.{properties['mm2py.group']}.internal"
    with Mm2py(properties, clusters=["B"]) as near:
        near.wait_for_event("topics.copying", flow="A->B")
        assert log in topic_names(target_cluster)
        assert log not in topic_names(source_cluster)
        with Mm2py(properties) as both:
            both.wait_for_event("topics.copying", flow="A->B")
            targets = wait_until(lambda: {event["target"] for event in both.events("member.joined")}, "it joined")
            both.wait_for_event("member.joined", target="A")
            assert log in topic_names(source_cluster)
            assert near.terminate() == 0
            write(source_cluster, topic, [b"late"], partition=3)
            assert_copied(source_cluster, target_cluster, topic, f"A.{topic}", run=both)
            assert both.terminate() == 0
    assert targets <= {"A", "B"}


def test_heartbeats_are_emitted_by_one_worker_and_go_on_when_it_dies(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    a, b = new_name("A"), new_name("B")
    properties = one_way_properties(source_cluster, target_cluster, names=(a, b)) | {"emit.heartbeats.enabled": True}
    properties |= {f"{a}->{b}.emit.heartbeats.interval.seconds": 1}
    with Group(target_cluster, properties) as group:
        for worker in group.workers:
            worker.wait_for_event("member.joined", target=b)
            worker.wait_for_event("flow.ready")

        def emitting() -> list[Mm2py]:
            return [one for one in group.workers if one.alive and one.events("heartbeats.emitting", flow=f"{a}->{b}")]

        wait_until(lambda: len(of_pair(target_cluster, HEARTBEATS, a, b)) >= 5, "five are emitted")
        (first,) = emitting()
        first.kill()
        dead_ms = now_ms()
        wait_until(emitting, "another worker emits")
        goal = len(of_pair(target_cluster, HEARTBEATS, a, b)) + 4
        wait_until(lambda: len(of_pair(target_cluster, HEARTBEATS, a, b)) >= goal, "four more are emitted")
        assert len(emitting()) == 1
    times_ms = [message.timestamp()[1] for message in of_pair(target_cluster, HEARTBEATS, a, b)]
    steps_ms = [after - before for before, after in pairwise(times_ms) if before > times_ms[1] and after < dead_ms]
    assert min(steps_ms) >= 500, steps_ms
    assert max(after - before for before, after in pairwise(times_ms)) <= 10 * (SESSION_S + 1) * 1000 * PATIENCE


def test_workers_under_one_parent_share_a_flow_also_when_one_is_killed(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    copies = Copies(source_cluster, target_cluster, new_name("parent"), aliases=["A"])
    properties: dict[str, Value] = one_way_properties(
        source_cluster, target_cluster, **{"A->B.topics": ",".join(copies.topics), "memory.max.bytes": 2**24}
    )
    group = Group(target_cluster, properties, workers=0)
    with Mm2py(properties, arguments=TWO) as run:
        with copies:
            shares = group.wait_until_assigned(2 * PARTITIONS, among=2)
            copies.wait_until_all_grow()
            os.kill(workers_of(run)[1], signal.SIGKILL)
            killed = run.wait_for_event("process.ended", worker=1, signal="SIGKILL")
            run.wait_for_event("member.joined", worker=1, after=killed)
            wait_until(lambda: group.records(Fenced), "it is fenced")
            again = group.wait_until_assigned(2 * PARTITIONS, among=2)
            copies.wait_until_all_grow()
        copies.assert_exact(run)
        assert run.terminate() == 0
        assert sorted(event["worker"] for event in run.events("worker.drained")) == [1, 2]
        assert not run.events("flow.crashed")
        assert not run.events("flow.failed")
    assert len({*shares.values()} | {*again.values()}) == 3
    assert [record.outcome_unknown for record in group.records(Left)] == [False, False]
