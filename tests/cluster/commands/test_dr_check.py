"""``mm2py dr check`` on real brokers: ready, each thing that stands in the way, and a source that is lost."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.broker_settings import render_properties
from deploy.local.kafka import KafkaCluster
from mm2py.clock import SystemClock
from mm2py.dr.journal import JournalsDisagree
from mm2py.dr.journal_report import report_text
from mm2py.dr.journal_topic import JournalTopics
from mm2py.dr.journal_writer import JournalTakenOver, JournalWriter
from mm2py.dr.states import RecoveryEvent, RecoveryFacts, RecoveryState
from mm2py.flow import ClusterAlias, Flow
from mm2py.kafka.cluster import Cluster
from mm2py.records.author import Author
from mm2py.topics.names import recovery_topic
from tests.cluster.copies import new_topic
from tests.cluster.group_offsets import commit
from tests.cluster.kafka_client import delete_topic, new_name, record_count, topic_config, write
from tests.cluster.running import ANSWER_S, COMMAND_S, OWN_PATH, Mm2py, Value, one_way_properties, wait_until, within

E, S = RecoveryEvent, RecoveryState


def dr_check(file: Path, flow: str) -> tuple[int, dict[str, Any]]:
    """Run the command; returns its exit code and its JSON."""
    ended = subprocess.run(
        [sys.executable, "-m", "mm2py", "dr", "check", str(file), flow, "--json"],
        capture_output=True,
        timeout=COMMAND_S,
        check=False,
        env={**os.environ, "PYTHONPATH": OWN_PATH},
    )
    assert ended.stdout, ended.stderr.decode()
    found: dict[str, Any] = json.loads(ended.stdout)
    assert found["exit_code"] == ended.returncode
    return ended.returncode, found


def kinds(found: dict[str, Any]) -> list[str]:
    return [one["kind"] for one in found["obstacles"]]


class Scene:
    """A worker that runs both directions, a topic with a group, and files that differ from the worker's."""

    worker: Mm2py

    def __init__(self, source: KafkaCluster, target: KafkaCluster, folder: Path) -> None:
        self.source, self.target, self.folder = source, target, folder
        self.a, self.b = (new_name(one).replace("-", "") for one in "AB")
        self.flow, self.back = f"{self.a}->{self.b}", f"{self.b}->{self.a}"
        self.topic = new_topic(source, "orders", 1)
        self.group = new_name("billing")
        self.properties: dict[str, Value] = one_way_properties(
            source,
            target,
            names=(self.a, self.b),
            **{
                f"{self.back}.enabled": True,
                "config.storage.replication.factor": 1,
                f"{self.flow}.topics": self.topic,
                f"{self.back}.topics": f"{self.topic}-back",
                f"{self.flow}.groups": f"{self.group}.*",
                f"{self.flow}.emit.checkpoints.enabled": True,
                f"{self.flow}.emit.checkpoints.interval.seconds": 1,
                f"{self.flow}.sync.group.offsets.enabled": True,
                f"{self.flow}.sync.group.offsets.interval.seconds": 1,
                f"{self.b}.session.timeout.ms": 60_000,  # a frozen worker counts as alive
                f"{self.a}.session.timeout.ms": 60_000,
            },
        )

    def file(self, **changes: Value | None) -> Path:
        """Return a file that differs from the worker's; None leaves a line out."""
        lines = {key: value for key, value in {**self.properties, **changes}.items() if value is not None}
        path = self.folder / f"{new_name('file')}.properties"
        path.write_text(render_properties({"listeners": "", **lines}))
        return path

    def check(self, **changes: Value | None) -> tuple[int, dict[str, Any]]:
        return dr_check(self.file(**changes), self.flow)

    def wait_until_ready(self) -> dict[str, Any]:
        """Wait until everything is ready, and return that answer."""

        def ready() -> dict[str, Any] | None:
            code, found = self.check()
            return found if code == 0 else None

        return wait_until(ready, "it is ready for both", deadline_s=ANSWER_S)


@pytest.fixture(scope="module")
def scene(
    source_cluster: KafkaCluster, guarded_cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    """``guarded_cluster`` is the source here: a test may freeze it."""
    found = Scene(guarded_cluster, source_cluster, tmp_path_factory.mktemp("files"))
    write(found.source, found.topic, [f"{at}" for at in range(50)])
    commit(found.source, found.group, found.topic, 20)
    with Mm2py(found.properties) as found.worker:
        found.wait_until_ready()
        yield found


def test_a_flow_is_ready_for_both_and_says_what_would_be_lost(scene: Scene) -> None:
    ready = scene.wait_until_ready()
    assert (ready["cutover"], ready["failover"], ready["obstacles"]) == ("yes", "yes", [])
    assert (ready["lost_records"], ready["is_lost_at_least"]) == (0, False)
    assert 0 <= ready["lost_s"] < 10
    assert ready["safe_at_ms"] <= ready["at_ms"]
    assert ready["text"].startswith("Ready for cutover: yes.\nReady for failover: yes, ")


def test_what_the_way_back_lacks_stands_in_the_way_of_a_cutover(scene: Scene) -> None:
    no_way_back = {key: None for key in scene.properties if key.startswith(scene.back)}
    code, found = scene.check(**no_way_back)
    assert (code, found["cutover"], found["failover"], kinds(found)) == (3, "no", "yes", ["no-way-back"])

    code, found = scene.check(**{f"{scene.back}.replication.factor": 3})
    assert (code, found["cutover"], found["failover"]) == (3, "no", "yes")
    assert set(kinds(found)) == {"way-back-checks"}
    assert "MM0704" in found["obstacles"][0]["text"]

    code, found = scene.check(**{"mm2py.group": new_name("other")})
    assert (code, found["cutover"]) == (3, "no")
    assert "no-worker-at-source" in kinds(found)


def test_a_group_that_cannot_go_on_stands_in_the_way_of_both(scene: Scene) -> None:
    ahead = f"{scene.group}-ahead"
    commit(scene.source, ahead, scene.topic, 20)
    commit(scene.target, ahead, f"{scene.a}.{scene.topic}", 45)
    found = wait_until(lambda: _with(scene, "groups"), "the group is seen", deadline_s=ANSWER_S)
    assert (found["cutover"], found["failover"]) == ("no", "no")
    assert ahead in found["obstacles"][0]["text"]
    commit(scene.source, ahead, scene.topic, 50)
    scene.wait_until_ready()


def test_a_topic_that_is_not_copied_stands_in_the_way_of_both(scene: Scene) -> None:
    scene.worker.ordered("pause", scene.flow, "--topic", scene.topic, "--reason", "a test")
    write(scene.source, scene.topic, ["more"] * 7)
    found = wait_until(lambda: _with(scene, "not-copied"), "the pause is seen", deadline_s=ANSWER_S)
    assert (found["cutover"], found["failover"]) == ("no", "no")
    scene.worker.ordered("resume", scene.flow, "--topic", scene.topic)
    scene.wait_until_ready()


def test_a_flow_that_is_behind_is_not_ready_for_a_cutover_and_says_what_a_failover_loses(scene: Scene) -> None:
    scene.worker.signal(signal.SIGSTOP)
    try:
        write(scene.source, scene.topic, ["while it is frozen"] * 3)
        found = wait_until(lambda: _with(scene, "behind"), "it is behind", deadline_s=ANSWER_S)
        assert (found["cutover"], found["failover"], found["lost_records"]) == ("no", "yes", 3)
        assert found["lost_s"] > 10
    finally:
        scene.worker.signal(signal.SIGCONT)
    scene.wait_until_ready()


def test_a_source_that_is_lost_leaves_the_answer_about_a_failover(scene: Scene) -> None:
    scene.source.brokers[0].freeze()
    try:
        code, found = scene.check()
        assert (code, found["cutover"]) == (1, "no")
        assert "source-away" in kinds(found)
        found = wait_until(
            lambda: _with(scene, "source-away", alone=True), "the worker knows, too", deadline_s=ANSWER_S
        )
        assert (found["cutover"], found["failover"], found["is_lost_at_least"]) == ("no", "yes", True)
        assert found["safe_at_ms"] is not None
    finally:
        scene.source.brokers[0].thaw()
    scene.wait_until_ready()


def test_a_recovery_that_has_not_ended_is_told_with_its_ways_out(scene: Scene) -> None:
    asyncio.run(_store(scene, E.CUTOVER_ASKED))
    code, found = scene.check()
    assert (code, found["cutover"], found["failover"], kinds(found)) == (3, "no", "yes", ["unfinished"])
    assert found["standing"]["state"] == "Fencing"
    assert "takes it back" in found["obstacles"][0]["way_out"]
    asyncio.run(_store(scene, E.TAKE_BACK_ASKED, E.ALL_REMOVED))
    assert scene.wait_until_ready()["standing"]["state"] == "TakenBack"


def test_a_flow_without_a_worker_is_ready_for_nothing(scene: Scene) -> None:
    assert scene.worker.terminate() == 0
    found = wait_until(lambda: _with(scene, "not-running"), "no worker runs", deadline_s=ANSWER_S)
    assert (found["cutover"], found["failover"]) == ("no", "no")


def _with(scene: Scene, kind: str, *, alone: bool = False) -> dict[str, Any] | None:
    """Return the answer if this stands in the way; ``alone``: and nothing else."""
    _, found = scene.check()
    return found if kinds(found) == [kind] or (not alone and kind in kinds(found)) else None


# The journal


def clusters_of(scene: Scene) -> dict[ClusterAlias, Cluster]:
    """Connect to both clusters; the caller closes them."""
    rng = random.Random(1)
    found = {}
    for alias, cluster in ((scene.a, scene.source), (scene.b, scene.target)):
        host, _, port = cluster.bootstrap.split(",")[0].rpartition(":")
        name = ClusterAlias(alias)
        found[name] = Cluster(name, [(host, int(port))], rng=rng, client_id="test")  # type: ignore[list-item]
    return found


async def _opened(scene: Scene, clusters: dict[ClusterAlias, Cluster]) -> JournalWriter:
    flow, clock, rng = _flow(scene), SystemClock(), random.Random()
    store = JournalTopics(flow, clusters, clock=clock, rng=rng)
    async with within(ANSWER_S):
        return await JournalWriter.open(store, author=Author("ann", "ops1", "a test"), clock=clock, rng=rng)


def _flow(scene: Scene) -> Flow:
    return Flow(ClusterAlias(scene.a), ClusterAlias(scene.b))


async def _store(scene: Scene, *events: RecoveryEvent) -> None:
    clusters = clusters_of(scene)
    try:
        writer = await _opened(scene, clusters)
        for event in events:
            await writer.append(event, _flow(scene), topics=[scene.topic])
    finally:
        for cluster in clusters.values():
            await cluster.close()


def test_the_journal_is_kept_on_both_clusters_and_one_process_writes_it(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    scene = Scene(source_cluster, target_cluster, tmp_path)
    asyncio.run(_two_writers(scene))


async def _two_writers(scene: Scene) -> None:
    flow, clusters = _flow(scene), clusters_of(scene)
    ends = RecoveryFacts(source_ends={f"{scene.topic}-0": 50})
    try:
        first = await _opened(scene, clusters)
        assert (first.term, first.entries, first.waits_s) == (1, (), 0.0)
        await first.append(E.CUTOVER_ASKED, flow, topics=[scene.topic], kept={"acls": ["x"]})
        await first.append(E.FENCE_SET, flow)
        assert first.may_act

        second = await _opened(scene, clusters)
        assert second.term == 2
        assert [one.state for one in second.entries] == [S.FENCING, S.FENCED]
        assert second.waits_s > 0
        with pytest.raises(JournalTakenOver):
            await first.append(E.FENCE_HOLDS, flow, seen=ends)
        await second.append(E.RESTARTED, flow)
        await second.append(E.FENCE_HOLDS, flow, seen=ends)

        source, target = clusters
        alone = await _opened(scene, {source: clusters[source]})  # the target is away
        await alone.append(E.TAKE_BACK_ASKED, flow, text="an operator asked")
        await alone.append(E.ALL_REMOVED, flow)

        both = await _opened(scene, clusters)
        assert both.entries == alone.entries
        assert both.entries[-1].state is S.TAKEN_BACK
        only_target = await _opened(scene, {target: clusters[target]})
        assert [one.mark for one in only_target.entries] == [one.mark for one in both.entries]
        text = report_text(both.entries, 0)
        assert "TakenBack" in text and "ann@ops1: a test" in text and f"ends {scene.topic}-0: 50" in text

        name = str(recovery_topic(flow).name)
        for cluster in (scene.source, scene.target):
            assert topic_config(cluster, name, "cleanup.policy") == "delete"
            assert topic_config(cluster, name, "retention.ms") == "-1"
            assert record_count(cluster, name) > 5
        delete_topic(scene.target, name)
        with pytest.raises(JournalsDisagree, match="was deleted, or made again"):
            await _opened(scene, clusters)
    finally:
        for cluster in clusters.values():
            await cluster.close()
