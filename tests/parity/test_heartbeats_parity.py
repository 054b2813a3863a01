"""Heartbeats beside MirrorMaker 2: its own class reads ours and writes the same bytes, its client finds our topics, and
it may go on emitting where mm2py copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway

from deploy.local.broker_settings import render_properties
from deploy.local.jars import jar_directory
from deploy.local.jvm import JavaServer
from deploy.local.kafka import KafkaCluster, start_clusters
from mm2py.flow import ClusterAlias, Flow
from mm2py.records.heartbeat import Heartbeat, decode, encode
from tests.cluster.kafka_client import read, topic_names
from tests.cluster.running import PATIENCE, Mm2py, Value, one_way_properties, wait_until
from tests.parity.test_policies_parity import java_map, java_objects, reflected

MM2_DEADLINE_S = 150.0 * PATIENCE
PAIRS = [("A", "B"), ("", ""), ("eu-west", "ü-東京"), ("x" * 300, "y")]
TIMES = [0, 1, -1, 1_700_000_000_000, 2**63 - 1, -(2**63)]

pytestmark = pytest.mark.timeout(400 * PATIENCE)


# -- records -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize("at_ms", TIMES)
def test_mm2s_own_class_writes_the_same_bytes_and_reads_ours(
    jvm: JavaGateway, source: str, target: str, at_ms: int
) -> None:
    ours = Heartbeat(Flow(ClusterAlias(source), ClusterAlias(target)), at_ms)
    record = encode(ours)
    java_heartbeat = jvm.jvm.org.apache.kafka.connect.mirror.Heartbeat
    theirs = java_heartbeat(source, target, _long(jvm, at_ms))
    written = [
        bytes(reflected(jvm, "Heartbeat", "getDeclaredMethods", name, 0).invoke(theirs, java_objects(jvm)))
        for name in ("recordKey", "recordValue")
    ]
    assert written == [record.key, record.value]
    assert decode(*written) == ours
    read_back = java_heartbeat.deserializeRecord(
        jvm.jvm.org.apache.kafka.clients.consumer.ConsumerRecord(
            "heartbeats", 0, _long(jvm, 0), (record.key or b"") + b"more", (record.value or b"") + b"more"
        )
    )
    found = (read_back.sourceClusterAlias(), read_back.targetClusterAlias(), read_back.timestamp())
    assert found == (source, target, at_ms)


def _long(jvm: JavaGateway, value: int) -> Any:
    """py4j sends a small number as an int, which no method that wants a long takes by reflection."""
    return jvm.jvm.java.lang.Long.valueOf(str(value))


# -- topics ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trio() -> Iterator[dict[str, KafkaCluster]]:
    with start_clusters([KafkaCluster(name) for name in ("A", "B", "C")]) as clusters:
        yield {cluster.name: cluster for cluster in clusters}


def chain(trio: Mapping[str, KafkaCluster]) -> dict[str, Value]:
    """A->B->C; heartbeats of every pair."""
    return one_way_properties(trio["A"], trio["B"]) | {
        "clusters": "A,B,C",
        "C.bootstrap.servers": trio["C"].bootstrap,
        "B->C.enabled": True,
        "topics": "nothing",
        "emit.heartbeats.enabled": True,
        "heartbeats.replication.enabled": True,
    }


def test_mirror_client_finds_hops_and_upstream_clusters_by_our_topics(
    jvm: JavaGateway, trio: Mapping[str, KafkaCluster]
) -> None:
    with Mm2py(chain(trio)) as run:
        run.wait_until(lambda: "B.A.heartbeats" in topic_names(trio["C"]), "two hops", deadline_s=90 * PATIENCE)
        run.wait_for_event("path.proven", flow="B->C", deadline_s=90 * PATIENCE)
        assert run.terminate() == 0
    client = jvm.jvm.org.apache.kafka.connect.mirror.MirrorClient(
        java_map(jvm, {"bootstrap.servers": trio["C"].internal_bootstrap})
    )
    try:
        assert set(client.heartbeatTopics()) == {"heartbeats", "B.heartbeats", "B.A.heartbeats"}
        assert set(client.upstreamClusters()) == {"A", "B"}
        assert [client.replicationHops(alias) for alias in ("A", "B", "C")] == [2, 1, -1]
    finally:
        client.close()


def test_mirrormaker_2_that_copies_the_other_way_may_go_on_emitting(tmp_path: Path) -> None:
    """MirrorMaker 2 runs A->B only, but holds a worker for B->A, too, for its heartbeats. mm2py is to run B->A."""
    with start_clusters([KafkaCluster(name) for name in ("west", "east")]) as (west, east):
        ours = one_way_properties(west, east) | {
            "B->A.enabled": True,
            "topics": "nothing",
            "emit.heartbeats.enabled": True,
            "heartbeats.replication.enabled": True,
        }
        theirs = ours | {
            "B->A.enabled": False,
            "sync.topic.acls.enabled": False,
            "config.storage.replication.factor": 1,
            "status.storage.replication.factor": 1,
            "checkpoints.topic.replication.factor": 1,
            "offset-syncs.topic.replication.factor": 1,
        }
        del theirs["topics.watch.interval.ms"]
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
                lambda: _beats(west, "heartbeats") and _beats(east, "heartbeats"),
                "MirrorMaker 2 emits both ways",
                deadline_s=MM2_DEADLINE_S,
            )
            idle = Mm2py(ours)

            def problems() -> dict[str, str]:
                return {problem["where"]: problem["text"] for problem in idle.status()[1]["problems"]}

            runs = "MirrorMaker 2 runs it: group A-mm2 on B has 1 member."
            wait_until(lambda: problems().get("A->B") == runs, "the status says so", deadline_s=60 * PATIENCE)
            assert "B->A" not in problems(), "it only emits heartbeats there"
            with Mm2py(ours) as run:
                assert (
                    "MirrorMaker 2 runs it"
                    in run.wait_for_event("flow.refused", flow="A->B", deadline_s=60 * PATIENCE)["why"]
                )
                assert (
                    run.wait_for_event("mm2.only_heartbeats", flow="B->A", deadline_s=60 * PATIENCE)["group"] == "B-mm2"
                )
                run.wait_for_event("flow.ready", flow="B->A", deadline_s=60 * PATIENCE)
                run.wait_for_event("path.proven", flow="B->A", deadline_s=60 * PATIENCE)
                count = len(_beats(west, "heartbeats"))
                run.wait_until(
                    lambda: len(_beats(west, "heartbeats")) >= count + 4, "both emit", deadline_s=60 * PATIENCE
                )
                assert run.terminate() == 0
        finally:
            mirror_maker.stop()
        found = _beats(west, "heartbeats")
        assert {beat.flow for beat, _ in found} == {Flow(ClusterAlias("B"), ClusterAlias("A"))}
        assert {(shape[0], shape[2:]) for _, shape in found} == {(0, (1, None))}
        assert all(beat.timestamp_ms == shape[1] for beat, shape in found), "record times are those of the values"


def _beats(cluster: KafkaCluster, topic: str) -> list[tuple[Heartbeat, tuple[object, ...]]]:
    """Each heartbeat with the rest of its record: partition, time, what kind of time, headers."""
    if topic not in topic_names(cluster):
        return []
    return [
        (
            decode(message.key(), message.value()),
            (message.partition(), message.timestamp()[1], message.timestamp()[0], message.headers()),
        )
        for message in read(cluster, topic)
    ]
