"""Real MirrorMaker 2 and mm2py hand a flow to each other, there and back, and repeat nothing.

Each goes on from the positions that the other left in ``mm2-offsets.A.internal``: so Connect reads the records that
mm2py writes there as its own, and mm2py those of Connect.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from tests.cluster.kafka_client import new_name
from tests.cluster.running import Mm2py, one_way_properties, wait_until

MM2_DEADLINE_S = 120.0
PARTITIONS = 4

pytestmark = pytest.mark.timeout(400)


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
        other = new_name("T")
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

    def _is_complete(self, topic: str) -> bool:
        source, target = self.source.internal_bootstrap, self.target.internal_bootstrap
        remote = f"{self.alias}.{topic}"  # MirrorMaker 2 has just made it: its partitions may have no leaders yet
        report = answered(lambda: check_copy(source, target, {topic: remote}, read_committed=True))
        return not any({"I1", "I12"} & verdict.breaches.keys() for verdict in report.verdicts)


@contextmanager
def _mirror_maker_2(flow: Flow, directory: Path) -> Iterator[None]:
    """Run it; leaving the block stops it in order, so that it stores where it stands."""
    properties = flow.properties | {
        "emit.heartbeats.enabled": False,
        "emit.checkpoints.enabled": False,
        "sync.topic.acls.enabled": False,
        "tasks.max": 2,
        "config.storage.replication.factor": 1,
        "status.storage.replication.factor": 1,
        "offset-syncs.topic.replication.factor": 1,
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
    stored = dump(target_cluster, f"mm2-offsets.{flow.alias}.internal", range(5))
    keys = {record.key for log in stored.values() for record in log}
    assert len(keys) == 2 * PARTITIONS, (
        "both write a partition's position under the same key, so one replaces the other"
    )
