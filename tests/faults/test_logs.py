"""Logs lose their end or start, are deleted and recreated: no record is lost silently.

Wherever records are lost, or a topic is not the one that was copied, the gap stands in the log and in the status topic
with its partition and offsets, ``mm2py gaps`` lists it, and ``on.source.gap`` and ``on.target.loss`` decide (I9).
"""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition

from deploy.local.kafka import KafkaCluster
from tests.checker.load import Load
from tests.checker.traffic import Traffic
from tests.cluster.copies import add_partitions, bounds_of, make_topic, now_ms, producer
from tests.cluster.kafka_client import admin, create_topic, delete_topic, offsets, record_count, topic_names
from tests.cluster.loads import PARTITIONS
from tests.cluster.running import ANSWER_S, Mm2py, Value, wait_until
from tests.faults.numbered import (
    SLOW_S,
    Numbered,
    elect_the_stale,
    make_unclean,
    numbered,
    set_config,
    shrink,
    write_era,
)
from tests.faults.scene import REPLICAS, Pair, Scene, heal

QUIET_PER_SECOND = 150
OLD = numbered("old", 30)
LOST = numbered("lost", 20)

# Open transactions


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "aborted"])
def test_an_open_transaction_stops_only_its_partition_and_is_named(pair: Pair, commits: bool) -> None:
    """F46: the partition stops at the last stable offset, logs that, and resumes when the transaction has ended."""
    flow = Numbered(pair, "hung", **{"stall.timeout.ms": 5_000})
    flow.properties[f"{flow.alias}.consumer.isolation.level"] = "read_committed"
    topic = flow.topic()
    write_era(pair.source, topic, "old", 30, (0, 1))
    hung = producer(pair.source, transactional_id=flow.stem, transaction_timeout_ms=600_000)
    with Mm2py(flow.properties) as run:
        flow.wait_for(run, topic, OLD, OLD)
        hung.init_transactions(ANSWER_S)
        hung.begin_transaction()
        for value in numbered("hung", 5):
            hung.produce(topic, value, partition=0)
        assert hung.flush(ANSWER_S) == 0
        write_era(pair.source, topic, "new", 30, (0, 1))
        flow.wait_for(run, topic, OLD, OLD + numbered("new", 30))
        stalled = run.wait_for_event("partition.stalled", topic=topic, deadline_s=SLOW_S)
        assert (stalled["partitions"], stalled["first"]) == (1, 0)
        assert "a transaction on the source has not ended" in stalled["why"]
        if commits:
            hung.commit_transaction(ANSWER_S)
        else:
            hung.abort_transaction(ANSWER_S)
        new = [*(numbered("hung", 5) if commits else ()), *numbered("new", 30)]
        flow.wait_for(run, topic, OLD + new, OLD + numbered("new", 30))
        run.wait_for_event("partition.moving", topic=topic)
        assert run.gaps("--all") == (0, [])
        assert run.terminate() == 0
        assert not run.events("flow.crashed"), run.tail()


# Unclean elections


@pytest.mark.parametrize("count", [5, 60], ids=["shorter", "longer"])
@pytest.mark.parametrize("policy", ["stop", "restart"])
def test_a_source_log_that_an_unclean_election_truncated_is_not_spliced(pair: Pair, policy: str, count: int) -> None:
    """F49: the leader epoch reveals the records that replaced the lost ones, even if the new log is longer."""
    flow = Numbered(pair, "cut-source")
    if policy != "stop":
        flow.properties["on.source.gap"] = policy
    topic = f"{flow.stem}-log"
    make_unclean(pair.source, topic)
    write_era(pair.source, topic, "old", 30, (0, 1))
    new = numbered("new", count)
    with Mm2py(flow.properties) as run:
        flow.wait_for(run, topic, OLD, OLD)
        shrink(pair.source, topic)
        write_era(pair.source, topic, "lost", 20)
        flow.wait_for(run, topic, OLD + LOST, OLD)
        elect_the_stale(pair.source, topic)
        write_era(pair.source, topic, "new", count, (0, 1))
        met = run.wait_for_event("source.truncated", topic=topic, partition=0, deadline_s=SLOW_S, done=_done(policy))
        assert (met["first_offset"], met["last_offset"]) == (30, 49)
        gap = flow.gap(run, topic, kind="truncated", done=_done(policy))
        assert (gap["first_offset"], gap["last_offset"], gap["position"]) == (30, 49, 50)
        heal(pair.source)
        if policy == "stop":
            flow.wait_for(run, topic, OLD + LOST, OLD + new)
            assert run.gaps()[0] == 3
            code, (answer,) = flow.accept(run, f"{topic}:0")
            assert (code, answer["accepted"]) == (0, True), answer
            flow.wait_for(run, topic, OLD + LOST + new, OLD + new)
        else:
            flow.wait_for(run, topic, OLD + LOST + OLD + new, OLD + new)
        assert run.gaps() == (0, [])
        assert run.terminate() == 0
        assert not run.events("flow.crashed"), run.tail()
    flow.judge(topic, {0: (new if policy == "stop" else OLD)[0]})


def _done(policy: str) -> str:
    return {"stop": "stopped", "restart": "restarted", "recopy": "restarted"}[policy]


@pytest.mark.parametrize(
    ("policy", "is_idle"),
    [
        ("stop", False),
        ("recopy", False),
        ("stop", True),
    ],
    ids=["stop", "recopy", "idle"],
)
def test_a_copy_that_an_unclean_election_truncated_is_noticed(pair: Pair, policy: str, is_idle: bool) -> None:
    """F50: the target has lost acknowledged records."""
    flow = Numbered(pair, "cut-target", **{"on.target.loss": policy})
    topic = flow.topic()
    make_unclean(pair.target, flow.remote(topic))
    write_era(pair.source, topic, "old", 30, (0, 1))
    new = [] if is_idle else numbered("new", 40)
    with Mm2py(flow.properties) as run:
        flow.wait_for(run, topic, OLD, OLD)
        shrink(pair.target, flow.remote(topic))
        write_era(pair.source, topic, "lost", 20)
        flow.wait_for(run, topic, OLD + LOST, OLD)
        elect_the_stale(pair.target, flow.remote(topic))
        write_era(pair.source, topic, "new", len(new), (0, 1))
        met = run.wait_for_event("target.truncated", topic=topic, partition=0, deadline_s=SLOW_S, done=_done(policy))
        assert "30" in met["why"] and "50" in met["why"], "both ends are named"
        gap = flow.gap(run, topic, kind="target-truncated", done=_done(policy))
        assert gap["last_offset"] == 49
        heal(pair.target)
        if policy == "stop":
            flow.wait_for(run, topic, OLD, OLD + new)
            assert run.gaps()[0] == 3
            code, (answer,) = flow.accept(run, f"{topic}:0")
            assert (code, answer["accepted"]) == (0, True), answer
            flow.wait_for(run, topic, OLD + new, OLD + new)
        else:
            flow.wait_for(run, topic, OLD + OLD + LOST + new, OLD + new)
        assert run.terminate() == 0
        assert not run.events("flow.crashed"), run.tail()
    if new:
        flow.judge(topic, {0: (new if policy == "stop" else OLD)[0]})


# Expired records


@pytest.mark.parametrize("policy", ["", "stop"], ids=["default", "stop"])
def test_records_that_expired_while_no_worker_ran_are_named_to_the_offset(pair: Pair, policy: str) -> None:
    """F51."""
    flow = Numbered(pair, "expired", **({"on.source.gap": policy} if policy else {}))
    topic = flow.topic()
    write_era(pair.source, topic, "old", 30, (0, 1))
    done = "stopped" if policy else "continued"
    with Mm2py(flow.properties) as run:
        flow.wait_for(run, topic, OLD, OLD)
        assert run.terminate() == 0
        write_era(pair.source, topic, "lost", 20)
        set_config(pair.source, topic, retention_ms="1", segment_ms="1000")
        wait_until(lambda: offsets(pair.source, topic)[0] == 50, "all has expired", deadline_s=SLOW_S)
        set_config(pair.source, topic, retention_ms="-1")
        write_era(pair.source, topic, "new", 40, (0, 1))
        run.start()
        met = run.wait_for_event("source.expired", topic=topic, partition=0, deadline_s=SLOW_S)
        assert (met["first_offset"], met["last_offset"], met["done"]) == (30, 49, done)
        gap = flow.gap(run, topic, kind="expired", done=done)
        assert (gap["first_offset"], gap["last_offset"], gap["position"]) == (30, 49, 30)
        if policy:
            flow.wait_for(run, topic, OLD, OLD + numbered("new", 40))
            code, (answer,) = flow.accept(run, f"{topic}:0")
            assert (code, answer["accepted"]) == (0, True), answer
        flow.wait_for(run, topic, OLD + numbered("new", 40), OLD + numbered("new", 40))
        assert {gap["partition"] for gap in run.gaps("--all")[1]} == {0}, (
            "no gap is reported for a partition without expired records"
        )
        assert run.terminate() == 0
    flow.judge(topic, {0: b"new 0", 1: b"new 0"})


def _delete_before(cluster: KafkaCluster, topic: str, before: dict[int, int]) -> None:
    wanted = [TopicPartition(topic, number, offset) for number, offset in before.items()]
    client = admin(cluster)
    for done in client.delete_records(wanted).values():
        done.result(ANSWER_S)


def test_records_that_are_deleted_before_the_position_cost_nothing(pair: Pair) -> None:
    """F52: under load."""
    starts: dict[tuple[str, int], int] = {}
    with Scene(pair, "deleted-below", per_second=QUIET_PER_SECOND) as scene:
        for _ in range(3):
            scene.copy_more(300)
            for topic in scene.topics:
                ends = bounds_of(pair.target, f"A.{topic}", range(PARTITIONS))
                _delete_before(pair.source, topic, {number: bound.end for number, bound in ends.items()})
                starts |= {(topic, number): bound.end for number, bound in ends.items()}  # the same on both sides
        scene.copy_more(300)
        scene.conclude(target_starts=starts)


def test_records_that_are_deleted_before_they_were_copied_are_a_gap_with_exact_offsets(pair: Pair) -> None:
    """F52: under load, while no worker runs; the remaining records are copied without a further hole."""
    with Scene(pair, "deleted-above", per_second=QUIET_PER_SECOND) as scene:
        scene.copy_more(500)
        assert scene.run.terminate() == 0
        scene.loads.wait_for(500)
        topic = scene.topics[0]
        copied = bounds_of(pair.target, f"A.{topic}", range(PARTITIONS))
        ends = bounds_of(pair.source, topic, range(PARTITIONS))
        _delete_before(pair.source, topic, {number: bound.end for number, bound in ends.items()})
        scene.run.start()
        scene.copy_more(500)
        starts = {(topic, number): bound.end for number, bound in copied.items()}
        scene.conclude(gaps={"expired"}, target_starts=starts)
        found = {gap["partition"]: (gap["first_offset"], gap["last_offset"]) for gap in scene.gaps()}
        assert found == {number: (copied[number].end, ends[number].end - 1) for number in range(PARTITIONS)}
        assert {gap["topic"] for gap in scene.gaps()} == {topic}


# Recreated topics

RECREATED = {"shorter": (2, 10), "longer": (2, 60), "same": (2, 30), "fewer": (1, 30), "more": (4, 30)}
"""Partitions, and records of each, of a recreated topic that had two of thirty records before."""


@pytest.mark.parametrize("is_down", [False, True], ids=["running", "down"])
@pytest.mark.parametrize("policy", ["stop", "restart"])
def test_recreated_topics_are_never_spliced_silently(pair: Pair, policy: str, is_down: bool) -> None:
    """F53: shorter, longer, equal, narrower and wider than they were."""
    flow = Numbered(pair, "recreated", **{"on.source.gap": policy})
    topics = {name: flow.topic(name) for name in RECREATED}
    for topic in topics.values():
        write_era(pair.source, topic, "old", 30, (0, 1))
    with Mm2py(flow.properties) as run:
        for topic in topics.values():
            flow.wait_for(run, topic, OLD, OLD)
        if is_down:
            assert run.terminate() == 0
        for name, topic in topics.items():
            partitions, count = RECREATED[name]
            delete_topic(pair.source, topic)
            make_topic(pair.source, topic, partitions, replicas=REPLICAS)
            write_era(pair.source, topic, "new", count, range(partitions))
        if is_down:
            run.start()
        named = {(topics[name], number) for name, (width, _) in RECREATED.items() for number in range(min(2, width))}
        found = flow.gaps(run, named, kind="recreated", done=_done(policy))
        assert {(gap["first_offset"], gap["position"]) for gap in found} == {(30, 30)}
        if policy == "stop":
            for topic in topics.values():
                run.wait_for_event("topic.refused", topic=topic)
                assert [flow.copied(topic, number) for number in (0, 1)] == [OLD, OLD], topic
            _, answers = flow.accept(run, *topics.values())
            assert all(answer["accepted"] for answer in answers), answers
        for name, topic in topics.items():
            partitions, count = RECREATED[name]
            new = [numbered("new", count) if number < partitions else [] for number in range(4)]
            flow.wait_for(run, topic, OLD + new[0], OLD + new[1], *new[2:partitions])
        assert run.gaps() == (0, [])
        assert run.terminate() == 0
        assert not run.events("flow.crashed"), run.tail()
    for name, topic in topics.items():
        if name != "fewer":  # the remote topic keeps its partitions: there is nothing to compare its second one with
            flow.judge(topic, dict.fromkeys(range(RECREATED[name][0]), b"new 0"))


# Deleted remote topics


@pytest.mark.parametrize("policy", ["stop", "recopy"])
def test_a_remote_topic_that_is_deleted_under_load_is_not_filled_from_its_middle(pair: Pair, policy: str) -> None:
    """F54: it is copied from the start, by policy or when an operator says so; the other topic is copied meanwhile."""
    properties: dict[str, Value] = {"on.target.loss": policy}
    with Scene(pair, "lost-copy", per_second=QUIET_PER_SECOND, properties=properties) as scene:
        scene.copy_more(500)
        topic, other = scene.topics
        before = record_count(pair.target, f"A.{other}", range(PARTITIONS))
        delete_topic(pair.target, f"A.{topic}")
        if policy == "stop":
            scene.run.wait_for_event("topic.refused", topic=topic, deadline_s=SLOW_S)
            scene.run.wait_until(
                lambda: record_count(pair.target, f"A.{other}", range(PARTITIONS)) > before + 300,
                "the other one is copied",
            )
            assert f"A.{topic}" not in topic_names(pair.target)
            wait_until(lambda: len(scene.gaps()) == PARTITIONS, "each partition is named", deadline_s=SLOW_S)
            _, answers = scene.run.gaps("accept", f"A->B:{topic}")
            assert all(answer["accepted"] for answer in answers), answers
        scene.run.wait_until(
            lambda: record_count(pair.target, f"A.{topic}", range(PARTITIONS)) > 500,
            "it is copied once more",
            deadline_s=SLOW_S,
        )
        scene.copy_more(300)
        scene.conclude(gaps={"target-deleted"})
        assert {gap["done"] for gap in scene.gaps()} == {"restarted" if policy == "recopy" else "accepted"}


# Internal topics


def test_an_offsets_topic_that_would_lose_positions_is_refused_at_start(pair: Pair) -> None:
    """F56."""
    flow = Numbered(pair, "expiring-positions")
    create_topic(pair.target, flow.offsets_topic, 5, {"cleanup.policy": "delete"}, replicas=REPLICAS)
    flow.topic()
    with Mm2py(flow.properties) as run:
        assert run.wait(deadline_s=SLOW_S) == 1
        why = run.wait_for_event("flow.refused", flow=f"{flow.alias}->B")["why"]
        assert f"{flow.offsets_topic} on B cannot keep positions, its cleanup.policy is delete" in why
        assert "Set cleanup.policy=compact on it" in why
        assert run.log[-1]["event"] == "worker.nothing_left"


def test_a_flow_whose_positions_were_deleted_while_no_worker_ran_does_not_start_as_if_it_were_new(pair: Pair) -> None:
    """F55: topics that have been copied are refused, and new ones are copied."""
    flow = Numbered(pair, "no-positions")
    topic, empty = flow.topic(), flow.topic("empty", 1)
    write_era(pair.source, topic, "old", 30, (0, 1))
    with Mm2py(flow.properties) as run:
        flow.wait_for(run, topic, OLD, OLD)
        assert run.terminate() == 0
        delete_topic(pair.target, flow.offsets_topic)
        write_era(pair.source, topic, "new", 30, (0, 1))
        write_era(pair.source, empty, "new", 30)
        run.start()
        why = run.wait_for_event("topic.refused", topic=topic, deadline_s=SLOW_S)["why"]
        assert "no position is stored for partition(s) 0, 1" in why and "--allow-recopy" in why
        flow.wait_for(run, empty, numbered("new", 30))
        assert [flow.copied(topic, number) for number in (0, 1)] == [OLD, OLD]
        assert run.terminate() == 0


def test_positions_that_are_deleted_under_load_are_reported_and_stored_again_when_their_topic_is_back(
    pair: Pair,
) -> None:
    """F55: copying continues; after a later kill all positions are there."""
    flow = Numbered(pair, "positions-gone")
    topic, idle = flow.topic(), flow.topic("idle", 1)
    write_era(pair.source, topic, "old", 30, (0, 1))
    write_era(pair.source, idle, "old", 30)
    with Mm2py(flow.properties) as run:
        flow.wait_for(run, topic, OLD, OLD)
        flow.wait_for(run, idle, OLD)
        delete_topic(pair.target, flow.offsets_topic)
        write_era(pair.source, topic, "new", 40, (0, 1))
        flow.wait_for(run, topic, OLD + numbered("new", 40), OLD + numbered("new", 40))
        said = run.wait_for_event("positions.topic_gone", topic=flow.offsets_topic, deadline_s=SLOW_S)
        assert "cleanup.policy=compact" in said["remedy"]
        create_topic(pair.target, flow.offsets_topic, 5, {"cleanup.policy": "compact"}, replicas=REPLICAS)
        run.wait_for_event("positions.back", deadline_s=SLOW_S)
        run.kill()
        run.start()
        write_era(pair.source, topic, "last", 10, (0, 1))
        write_era(pair.source, idle, "last", 10)
        both = OLD + numbered("new", 40) + numbered("last", 10)
        flow.wait_for(run, topic, both, both)
        flow.wait_for(run, idle, OLD + numbered("last", 10))
        assert not run.events("topic.refused") and run.gaps("--all") == (0, [])
        assert run.terminate() == 0
    flow.judge(topic)
    flow.judge(idle)


def test_gaps_whose_topic_is_deleted_under_load_are_listed_again(pair: Pair) -> None:
    """F55: a partition that waits for an operator does not vanish from the list with the topic that kept its gap."""
    flow = Numbered(pair, "gaps-gone")
    topic = flow.topic(partitions=1)
    write_era(pair.source, topic, "old", 30)
    with Mm2py(flow.properties) as run:
        flow.wait_for(run, topic, OLD)
        delete_topic(pair.source, topic)
        make_topic(pair.source, topic, 1, replicas=REPLICAS)
        flow.gap(run, topic, kind="recreated", done="stopped", position=30)
        delete_topic(pair.target, flow.status_topic)
        run.wait_for_event("status.topic_gone", topic=flow.status_topic, deadline_s=SLOW_S)
        flow.gap(run, topic, kind="recreated", done="stopped", position=30)
        assert run.gaps()[0] == 3
        write_era(pair.source, topic, "new", 10)
        code, (answer,) = flow.accept(run, f"{topic}:0")
        assert (code, answer["accepted"]) == (0, True), answer
        flow.wait_for(run, topic, OLD + numbered("new", 10))
        assert run.terminate() == 0


def test_heartbeats_whose_topic_is_deleted_are_written_to_a_new_one(pair: Pair) -> None:
    """F55: that topic holds nothing that could be lost."""
    flow = Numbered(pair, "heartbeats-gone", **{"emit.heartbeats.enabled": True, "emit.heartbeats.interval.seconds": 1})
    topic = flow.topic(partitions=1)
    with Mm2py(flow.properties) as run:
        emitting = run.wait_for_event("heartbeats.emitting", deadline_s=SLOW_S)
        delete_topic(pair.target, "heartbeats")
        run.wait_for_event("heartbeats.topic_created", after=emitting, deadline_s=SLOW_S)
        run.wait_until(lambda: record_count(pair.target, "heartbeats") > 1, "they are written", deadline_s=SLOW_S)
        write_era(pair.source, topic, "old", 30)
        flow.wait_for(run, topic, OLD)
        assert run.terminate() == 0
    delete_topic(pair.target, "heartbeats")


# Growing topics


def test_partitions_that_are_added_under_load_are_copied_from_their_first_record(pair: Pair) -> None:
    """F57."""
    with Scene(pair, "grows", per_second=QUIET_PER_SECOND) as scene:
        scene.copy_more(300)
        for topic, wider in zip(scene.topics, (6, 9), strict=True):
            traffic = Traffic(seed=wider, partitions=wider, producer=1, first_timestamp_ms=now_ms())
            add_partitions(pair.source, topic, wider)
            load = Load(pair.source.internal_bootstrap, topic, traffic, codecs=["lz4"], per_second=QUIET_PER_SECOND)
            with load.in_background():
                scene.copy_more(500)
                wait_until(lambda load=load: load.acknowledged > 300, "all partitions are written to")
        scene.conclude()
