"""Real MirrorMaker 2 and mm2py hand a flow to each other, there and back, and repeat nothing.

Each goes on from the positions that the other left in ``mm2-offsets.A.internal``: so Connect reads the records that
mm2py writes there as its own, and mm2py those of Connect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from deploy.local.broker_settings import render_properties
from deploy.local.jars import jar_directory
from deploy.local.jvm import JavaServer
from deploy.local.kafka import KafkaCluster
from tests.checker.check import Report, check_copy
from tests.checker.load import Load
from tests.checker.traffic import Traffic
from tests.cluster.copies import answered, assert_copied, dump, new_topic, send
from tests.cluster.kafka_client import admin, new_name, topic_names
from tests.cluster.running import PATIENCE, Mm2py, one_way_properties, pause, wait_until

MM2_DEADLINE_S = 120.0 * PATIENCE
PARTITIONS = 4
OFFSETS_PARTITIONS = 5
FLUSH_S = 20

pytestmark = pytest.mark.timeout(400 * PATIENCE)


class Flow:
    """One flow from a source to a target, with two topics: one plain, one written in transactions."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster) -> None:
        self.source, self.target = source, target
        self.alias = new_name("S")
        self.plain = new_topic(source, f"{self.alias}-plain", PARTITIONS)
        self.committed = new_topic(source, f"{self.alias}-committed", PARTITIONS)
        self._records = Traffic(seed=71, partitions=PARTITIONS).records()
        self._transactions = Load(
            source.internal_bootstrap,
            self.committed,
            Traffic(seed=72, partitions=PARTITIONS),
            codecs=["none", "zstd"],
            transactional_id=self.alias,
        )
        self.target_alias = other = new_name("T")
        self.properties = one_way_properties(source, target, names=(self.alias, other)) | {
            f"{self.alias}->{other}.topics": f"{self.plain},{self.committed}",
            f"{self.alias}.consumer.isolation.level": "read_committed",
        }

    def write(self) -> None:
        """Write some more to both topics; not all of the transactions are committed."""
        for codec in ("none", "lz4"):
            send(self.source, self.plain, islice(self._records, 500), compression_type=codec)
        self._transactions.run(records=600)

    def assert_copied(self, run: Mm2py | None = None) -> list[Report]:
        """Judge both topics: everything is there, once."""
        return [
            assert_copied(self.source, self.target, topic, f"{self.alias}.{topic}", run=run, read_committed=True)
            for topic in (self.plain, self.committed)
        ]

    def wait_for_mm2(self) -> None:
        """Wait until MirrorMaker 2 has copied all there is."""
        for topic in (self.plain, self.committed):
            wait_until(
                lambda topic=topic: self._is_complete(topic), f"it has copied {topic}", deadline_s=MM2_DEADLINE_S
            )

    def stored(self) -> dict[bytes | None, bytes | None]:
        """Return the positions that stand in the offsets topic, as they are."""
        topic = f"mm2-offsets.{self.alias}.internal"
        if topic not in topic_names(self.target):
            return {}
        logs = answered(lambda: dump(self.target, topic, range(OFFSETS_PARTITIONS)))
        return {record.key: record.value for log in logs.values() for record in log}

    def _is_complete(self, topic: str) -> bool:
        source, target = self.source.internal_bootstrap, self.target.internal_bootstrap
        remote = f"{self.alias}.{topic}"  # MirrorMaker 2 has just made it: its partitions may have no leaders yet
        report = answered(lambda: check_copy(source, target, {topic: remote}, read_committed=True))
        return not any({"I1", "I12"} & verdict.breaches.keys() for verdict in report.verdicts)


@contextmanager
def _mirror_maker_2(
    flow: Flow, directory: Path, *, is_killed: bool = False, settings: Mapping[str, object] | None = None
) -> Iterator[None]:
    """Run it; leaving the block stops it in order, so that it stores where it stands, or kills it."""
    properties = flow.properties | {
        "emit.heartbeats.enabled": False,
        "emit.checkpoints.enabled": False,
        "sync.topic.acls.enabled": False,
        "tasks.max": 2,
        "config.storage.replication.factor": 1,
        "status.storage.replication.factor": 1,
        "offset-syncs.topic.replication.factor": 1,
        **(settings or {}),
    }
    del properties["topics.watch.interval.ms"]
    (directory / "mm2.properties").write_text(render_properties(properties))
    server = JavaServer(
        "org.apache.kafka.connect.mirror.MirrorMaker",
        [str(directory / "mm2.properties")],
        jars=jar_directory(),
        log_path=directory / "mm2.log",
    )
    server.start()
    try:
        yield
    finally:
        if is_killed:
            server.kill()
        else:
            server.stop(timeout_s=60)


def test_a_flow_goes_from_mirrormaker_2_to_mm2py_and_back_and_nothing_is_repeated(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    flow = Flow(source_cluster, target_cluster)
    flow.write()
    with _mirror_maker_2(flow, tmp_path):
        flow.wait_for_mm2()
    flow.write()
    with Mm2py(flow.properties) as run:
        assert run.wait_for_event("flow.ready")["positions"] == 2 * PARTITIONS
        flow.assert_copied(run)
        flow.write()
        flow.assert_copied(run)
        assert run.terminate() == 0
    flow.write()
    with _mirror_maker_2(flow, tmp_path):
        flow.wait_for_mm2()
    flow.assert_copied()
    with Mm2py(flow.properties) as run:
        flow.write()
        flow.assert_copied(run)
        assert run.terminate() == 0
    assert len(flow.stored()) == 2 * PARTITIONS, (
        "both write a partition's position under the same key, so one replaces the other"
    )


@pytest.mark.slow
def test_what_a_killed_mirrormaker_2_copied_behind_its_last_positions_is_not_copied_again(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """It stores positions every 20 seconds here, and is killed under load, long after it did."""
    flow = Flow(source_cluster, target_cluster)
    flow.write()
    settings = {f"{flow.target_alias}.offset.flush.interval.ms": FLUSH_S * 1000}
    load = Load(
        source_cluster.internal_bootstrap,
        flow.plain,
        Traffic(seed=73, partitions=PARTITIONS),
        codecs=["none", "lz4"],
        per_second=300,
    )
    with load.in_background():
        with _mirror_maker_2(flow, tmp_path, is_killed=True, settings=settings):
            wait_until(
                lambda: len(flow.stored()) == 2 * PARTITIONS, "it has stored positions", deadline_s=2 * MM2_DEADLINE_S
            )
            flow.write()
            pause(FLUSH_S / 4, "how far it gets is not told by anything that is stored")
        members = admin(target_cluster)
        wait_until(lambda: not members.list_groups(f"{flow.alias}-mm2")[0].members, "its group is empty")
        with Mm2py(flow.properties) as run:
            resumed = run.wait_for_event("partitions.resumed_from_mm2")
            flow.write()
            pause(2, "it copies on for a while")
            run.kill()
    assert resumed["partitions"] == 2 * PARTITIONS
    assert resumed["records"] > 100, "else nothing was there to be repeated"
    assert (resumed["ambiguous"], resumed["unproven"]) == (0, 0)
    with Mm2py(flow.properties) as run:
        flow.assert_copied(run)
        assert run.terminate() == 0
