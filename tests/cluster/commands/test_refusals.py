"""What must not be copied is refused with its way out, and nothing else stops. Real brokers, the real command."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from deploy.local.broker_settings import render_properties
from deploy.local.jars import jar_directory
from deploy.local.jvm import JavaServer
from deploy.local.kafka import KafkaCluster
from tests.cluster.kafka_client import (
    create_topic,
    delete_topic,
    new_name,
    read,
    record_count,
    values,
    write,
)
from tests.cluster.running import ANSWER_S, PATIENCE, Mm2py, one_way_properties, two_way_properties, wait_until

IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


def filled(cluster: KafkaCluster, topic: str, *records: bytes, partitions: int = 1) -> str:
    """Create a topic with these records in its first partition, and return its name."""
    create_topic(cluster, topic, partitions)
    write(cluster, topic, records)
    return topic


def stored_positions(cluster: KafkaCluster, topic: str, offsets_topic: str) -> list[dict[str, Any]]:
    """Return what was stored for partition 0 of a topic, oldest first; tombstones as empty."""
    found = []
    for message in read(cluster, offsets_topic, range(5)):
        inner = json.loads(message.key() or b"[]")[1]
        if (inner["topic"], inner["partition"]) == (topic, 0):
            found.append(json.loads(message.value() or b"{}"))
    return found


# -- single topics -----------------------------------------------------------------------------------------------------


def test_topics_are_refused_one_by_one_now_and_later_and_a_recopy_works_once(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    stem = new_name("topic")
    names = {word: f"{stem}-{word}" for word in ("steady", "full", "remade", "lost", "late-full", "late-fresh")}
    long_name = stem + "x" * (248 - len(stem))
    for word in ("steady", "remade", "lost"):
        filled(source_cluster, names[word], b"1", b"2")
    filled(source_cluster, names["full"], b"1", b"2", partitions=2)
    filled(target_cluster, f"A.{names['full']}", b"who wrote this?", partitions=2)
    filled(source_cluster, long_name, b"1")
    properties = one_way_properties(source_cluster, target_cluster, **{"A->B.topics": f"{stem}.*"})

    def copied(word: str) -> list[bytes]:
        return values(target_cluster, f"A.{names[word]}")

    with Mm2py(properties) as mm2py:
        # refused at start
        why = mm2py.wait_for_event("topic.refused", flow="A->B", topic=names["full"])["why"]
        assert why.startswith(
            f"Topic {names['full']} of A->B is refused: no position is stored for partition(s) 0, "
            f"and A.{names['full']} on B is not empty there. "
        )
        assert f"--allow-recopy 'A->B:{names['full']}' " in why
        why = mm2py.wait_for_event("topic.refused", topic=long_name)["why"]
        assert "it has 250 characters, 249 are allowed. Exclude the topic, shorten the alias," in why
        for word in ("steady", "remade", "lost"):
            mm2py.wait_until(lambda word=word: copied(word) == [b"1", b"2"], f"{word} is copied")
        assert copied("full") == [b"who wrote this?"]

        # refused when found later
        filled(target_cluster, f"A.{names['late-full']}", b"who wrote this?")
        filled(source_cluster, names["late-full"], b"1")
        filled(source_cluster, names["late-fresh"], b"1")
        mm2py.wait_for_event("topic.refused", topic=names["late-full"])
        mm2py.wait_until(lambda: copied("late-fresh") == [b"1"], "a good topic that came with it is copied")

        # refused because somebody deleted what the position speaks of, on either side
        delete_topic(source_cluster, names["remade"])
        filled(source_cluster, names["remade"], b"new 1", b"new 2", b"new 3")
        why = mm2py.wait_for_event("topic.refused", topic=names["remade"])["why"]
        assert why.startswith(
            f"Topic {names['remade']} of A->B is refused: it was deleted and recreated upstream, so the stored "
            f"position means nothing. If A.{names['remade']} on B holds its records already, go on behind them: "
        )
        assert why.endswith(
            f"Otherwise mm2py gaps {mm2py.file} accept 'A->B:{names['remade']}' copies it from its first record on."
        )
        delete_topic(target_cluster, f"A.{names['lost']}")
        write(source_cluster, names["lost"], [b"3"])
        why = mm2py.wait_for_event("topic.refused", topic=names["lost"])["why"]
        assert f"A.{names['lost']} on B was deleted" in why
        assert f"mm2py gaps {mm2py.file} accept 'A->B:{names['lost']}'" in why

        # and nothing else has stopped
        write(source_cluster, names["steady"], [b"3"])
        mm2py.wait_until(lambda: copied("steady") == [b"1", b"2", b"3"], "the others go on")
        assert copied("remade") == [b"1", b"2"]
        assert mm2py.terminate() == 0
        assert not mm2py.events("flow.failed")
        assert not mm2py.events("flow.crashed")

    recopied = [names["full"], names["remade"], names["lost"]]
    allowed = ["--allow-recopy", *(f"A->B:{name}" for name in recopied)]
    with Mm2py(properties, arguments=allowed) as mm2py:
        for name in recopied:
            mm2py.wait_for_event("topic.recopied", topic=name)
        mm2py.wait_until(lambda: copied("full") == [b"who wrote this?", b"1", b"2"], "full is copied behind")
        mm2py.wait_until(lambda: copied("remade") == [b"1", b"2", b"new 1", b"new 2", b"new 3"], "remade is copied")
        mm2py.wait_until(lambda: copied("lost") == [b"1", b"2", b"3"], "lost is copied")
        mm2py.wait_for_event("topic.refused", topic=names["late-full"])  # it was not named
        assert mm2py.terminate() == 0
    for name in recopied:
        by_operator = [
            at for at in stored_positions(target_cluster, name, "mm2-offsets.A.internal") if at["by"] == "operator"
        ]
        assert [at["next_source"] for at in by_operator] == [0]

    with Mm2py(properties, arguments=allowed) as mm2py:  # the flag was left in the unit file
        for word in ("full", "remade", "lost"):
            write(source_cluster, names[word], [b"last"])
            mm2py.wait_until(lambda word=word: copied(word)[-1] == b"last", f"{word} goes on")
        assert (len(copied("full")), len(copied("remade")), len(copied("lost"))) == (4, 6, 4)
        assert not mm2py.events("topic.recopied")
        assert mm2py.terminate() == 0


def test_a_recopy_is_not_a_licence_for_the_next_time(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic = filled(source_cluster, new_name("twice"), b"1")
    filled(target_cluster, f"A.{topic}", b"0")
    properties = one_way_properties(source_cluster, target_cluster, **{"A->B.topics": topic})
    with Mm2py(properties, arguments=["--allow-recopy", f"A->B:{topic}"]) as mm2py:
        mm2py.wait_until(lambda: values(target_cluster, f"A.{topic}") == [b"0", b"1"], "it is copied once more")
        delete_topic(source_cluster, topic)
        filled(source_cluster, topic, b"another 1")
        mm2py.wait_for_event("topic.refused", topic=topic)
        assert values(target_cluster, f"A.{topic}") == [b"0", b"1"]
        assert mm2py.terminate() == 0


def test_several_flows_into_one_topic_are_refused_unless_it_is_wished(
    source_cluster: KafkaCluster, guarded_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    stem = new_name("merge")
    both, only_a, late = f"{stem}-both", f"{stem}-only-a", f"{stem}-late"
    filled(source_cluster, both, b"a1")
    filled(guarded_cluster, both, b"b1")
    filled(source_cluster, only_a, b"a1")
    properties = {
        **one_way_properties(source_cluster, target_cluster, names=("P", "R")),
        "clusters": "P,Q,R",
        "Q.bootstrap.servers": guarded_cluster.bootstrap,
        "Q->R.enabled": True,
        "topics": f"{stem}.*",
        "replication.policy.class": IDENTITY,
    }

    with Mm2py(properties) as mm2py:
        mm2py.wait_until(lambda: values(target_cluster, both) != [], "the topic of two flows is copied by one")
        flow, other = ("Q->R", "P->R") if values(target_cluster, both) == [b"a1"] else ("P->R", "Q->R")
        assert mm2py.wait_for_event("topic.refused", flow=flow, topic=both)["why"] == (
            f"Topic {both} of {flow} is refused: {other} also leads into {both}. Exclude the topic from all but "
            "one of the flows, or set many.to.one=true on each of them: their records then mix, and each is copied "
            "at least once."
        )
        mm2py.wait_until(lambda: values(target_cluster, only_a) == [b"a1"], "the topic of one flow is copied")
        filled(source_cluster, late, b"a1")
        mm2py.wait_until(lambda: values(target_cluster, late) == [b"a1"], "a topic found later is copied")
        filled(guarded_cluster, late, b"b1")
        mm2py.wait_for_event("topic.refused", flow="Q->R", topic=late)  # the newcomer
        write(source_cluster, late, [b"a2"])
        mm2py.wait_until(lambda: values(target_cluster, late) == [b"a1", b"a2"], "who was first goes on")
        assert not mm2py.events("topic.refused", flow="P->R", topic=late)
        assert len(values(target_cluster, both)) == 1
        assert mm2py.terminate() == 0

    with Mm2py({**properties, "many.to.one": True}) as mm2py:
        for flow in ("P->R", "Q->R"):
            ready = mm2py.wait_for_event("flow.ready", flow=flow)
            assert ready["guarantee"] == "at-least-once, several flows in one topic"
        mm2py.wait_until(lambda: sorted(values(target_cluster, both)) == [b"a1", b"b1"], "both are copied")
        mm2py.wait_until(lambda: sorted(values(target_cluster, late)) == [b"a1", b"a2", b"b1"], "late is, too")
        assert mm2py.terminate() == 0


# -- whole flows -------------------------------------------------------------------------------------------------------


@contextmanager
def member_of(cluster: KafkaCluster, group: str) -> Iterator[None]:
    """A consumer group with a member, as a live MirrorMaker 2 has one."""
    topic = filled(cluster, new_name("membership"), b"1")
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.internal_bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe([topic])
        assert consumer.poll(ANSWER_S) is not None
        yield
    finally:
        consumer.close()


def test_whole_flows_are_refused_and_the_others_go_on_until_nothing_is_left(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, guarded_cluster: KafkaCluster
) -> None:
    stem = new_name("flows")
    topic = filled(source_cluster, f"{stem}-orders", b"1")
    port = source_cluster.bootstrap.rpartition(":")[2]
    live, keeper = f"L{stem}", f"D{stem}"
    create_topic(target_cluster, f"mm2-offsets.{keeper}.internal", 2, {"cleanup.policy": "delete"})
    properties = {
        **one_way_properties(source_cluster, target_cluster),
        "clusters": f"A,B,same,mixed,I,J,{live},{keeper}",
        "topics": f"{stem}.*",
        "same.bootstrap.servers": f"localhost:{port}",
        "A->same.enabled": True,
        "mixed.bootstrap.servers": f"{source_cluster.bootstrap},{guarded_cluster.bootstrap}",
        "mixed->B.enabled": True,
        "I.bootstrap.servers": source_cluster.bootstrap,
        "J.bootstrap.servers": target_cluster.bootstrap,
        "I->J.enabled": True,
        "J->I.enabled": True,
        "I->J.replication.policy.class": IDENTITY,
        "J->I.replication.policy.class": IDENTITY,
        f"{live}.bootstrap.servers": source_cluster.bootstrap,
        f"{live}->B.enabled": True,
        f"{keeper}.bootstrap.servers": source_cluster.bootstrap,
        f"{keeper}->B.enabled": True,
    }
    refusals = {
        "A->same": f"Flow A->same is refused: A and same are the same cluster, {source_cluster.cluster_id}. "
        "Correct one of the two bootstrap.servers.",
        "mixed->B": r"The addresses of mixed lead to two clusters, .* Let mixed\.bootstrap\.servers name .*",
        "I->J": r".* would come back by J -> I and be copied without end .*",
        "J->I": r".* would come back by I -> J and be copied without end .*",
        f"{live}->B": rf"Flow {live}->B is refused: MirrorMaker 2 runs it, group {live}-mm2 on B has 1 member\(s\)\. "
        r"Stop MirrorMaker 2 for this flow first: .*",
        f"{keeper}->B": rf"Flow {keeper}->B is refused: mm2-offsets\.{keeper}\.internal on B cannot keep positions, "
        r"its cleanup\.policy is delete\. Set cleanup\.policy=compact on it\.",
    }

    with member_of(target_cluster, f"{live}-mm2"):
        with Mm2py(properties) as mm2py:
            for flow, why in refusals.items():
                assert re.fullmatch(why, mm2py.wait_for_event("flow.refused", flow=flow)["why"]), flow
            mm2py.wait_until(lambda: values(target_cluster, f"A.{topic}") == [b"1"], "the good flow copies")
            assert {event["flow"] for event in mm2py.events("flow.refused")} == refusals.keys()
            assert mm2py.terminate() == 0
        with Mm2py({**properties, "A->B.enabled": False}) as mm2py:
            assert mm2py.wait() == 1
            assert {event["flow"] for event in mm2py.events("flow.refused")} == refusals.keys()
            assert mm2py.log[-1]["event"] == "worker.nothing_left"
            assert len(mm2py.log) < 30

    properties[f"{live}->B.topics"] = topic  # the way out was taken
    with Mm2py(properties) as mm2py:
        mm2py.wait_until(
            lambda: values(target_cluster, f"{live}.{topic}") == [b"1"], "MirrorMaker 2 is stopped: it runs"
        )
        assert mm2py.terminate() == 0


def test_a_live_mirrormaker_2_is_refused_and_a_stopped_one_is_taken_over(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    stem = new_name("live")
    source, target = f"S{stem}", f"T{stem}"
    topic = filled(source_cluster, f"{stem}-orders", *(b"%d" % number for number in range(100)))
    ours = two_way_properties(
        source_cluster, target_cluster, names=(source, target), **{f"{source}->{target}.topics": topic}
    )
    ours[f"{target}->{source}.topics"] = f"{stem}-none"
    theirs = {
        **one_way_properties(source_cluster, target_cluster, names=(source, target)),
        f"{source}->{target}.topics": topic,
        "emit.heartbeats.enabled": False,
        "emit.checkpoints.enabled": False,
        "sync.topic.acls.enabled": False,
        "tasks.max": 1,
        "config.storage.replication.factor": 1,
        "status.storage.replication.factor": 1,
        "offset-syncs.topic.replication.factor": 1,
        "offset.flush.interval.ms": 1000,
    }
    (tmp_path / "mm2.properties").write_text(render_properties(theirs))
    mirror_maker = JavaServer(
        "org.apache.kafka.connect.mirror.MirrorMaker",
        [str(tmp_path / "mm2.properties")],
        jars=jar_directory(),
        log_path=tmp_path / "mm2.log",
    )
    mirror_maker.start()
    try:
        wait_until(
            lambda: record_count(target_cluster, f"{source}.{topic}") == 100,
            "MirrorMaker 2 copies",
            deadline_s=120 * PATIENCE,
        )
        with Mm2py(ours) as mm2py:
            why = mm2py.wait_for_event("flow.refused", flow=f"{source}->{target}")["why"]
            assert f"MirrorMaker 2 runs it, group {source}-mm2 on {target} has 1 member(s)." in why
            assert "Stop MirrorMaker 2 for this flow" in why
            mm2py.wait_for_event("flow.ready", flow=f"{target}->{source}")  # MirrorMaker 2 does not run this one
            assert mm2py.terminate() == 0
    finally:
        mirror_maker.stop()

    write(source_cluster, topic, [b"100", b"101"])
    with Mm2py(ours) as mm2py:
        ready = mm2py.wait_for_event("flow.ready", flow=f"{source}->{target}")
        assert ready["positions"] == 1
        mm2py.wait_until(lambda: record_count(target_cluster, f"{source}.{topic}") >= 102, "it goes on")
        assert mm2py.terminate() == 0
    assert values(target_cluster, f"{source}.{topic}") == [b"%d" % number for number in range(102)]


def test_settings_that_one_cluster_cannot_keep_are_named(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """Copies of topics and of positions as MirrorMaker 2 makes them by default, on one node; and no reset."""
    topic = filled(source_cluster, new_name("reset"), b"1")
    copies, kept, keeper = new_name("R"), new_name("Q"), new_name("K")
    properties = {
        **one_way_properties(source_cluster, target_cluster, topics=topic),
        "clusters": f"A,B,{copies},{kept},{keeper}",
        "A.consumer.auto.offset.reset": "none",
        f"{copies}.bootstrap.servers": source_cluster.bootstrap,
        f"{copies}->B.enabled": True,
        f"{copies}->B.replication.factor": 2,
        f"{keeper}.bootstrap.servers": source_cluster.bootstrap,
        f"{kept}.bootstrap.servers": target_cluster.bootstrap,
        f"{kept}->{keeper}.enabled": True,
        f"{keeper}.offset.storage.replication.factor": 3,
        "B.offset.storage.replication.factor": 1,
    }
    del properties["offset.storage.replication.factor"]  # at the top of a file it would win
    with Mm2py(properties) as mm2py:
        why = mm2py.wait_for_event("topic.refused", flow="A->B", topic=topic)["why"]
        assert why.endswith("Set A.consumer.auto.offset.reset to earliest or latest.")
        why = mm2py.wait_for_event("topic.refused", flow=f"{copies}->B", topic=topic)["why"]
        assert "INVALID_REPLICATION_FACTOR" in why
        assert why.endswith("Set replication.factor (2) to what B can hold.")
        why = mm2py.wait_for_event("flow.refused", flow=f"{kept}->{keeper}")["why"]
        assert why.startswith(
            f"Flow {kept}->{keeper} is refused: mm2-offsets.{kept}.internal on {keeper} cannot keep positions"
        )
        assert "Set offset.storage.replication.factor (3) to what the cluster can hold" in why
        assert mm2py.terminate() == 0
    assert record_count(target_cluster, f"A.{topic}") == 0
