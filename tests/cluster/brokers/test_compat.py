"""Each minor version of Kafka from 3.3 on, beside the one that all other tests run with: as source, and as target.

The newest version that Maven had when this was written is the last. A version before 3.3 is refused by name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Final

import pytest

from deploy.local.errors import MissingTool
from deploy.local.jars import POM, default_kafka_version
from deploy.local.kafka import KafkaCluster
from mm2py.checks.judge_clusters import NEWEST, OLDEST
from tests.checker.ledger import Ledger
from tests.checker.load import Load
from tests.checker.traffic import Traffic
from tests.cluster.copies import assert_copied, new_topic, now_ms, send
from tests.cluster.group_offsets import commit, member, take
from tests.cluster.judged_offsets import Flow
from tests.cluster.kafka_client import new_name, record_count
from tests.cluster.running import PATIENCE, Mm2py, one_way_properties, two_way_properties
from tests.cluster.version_rows import CONSUMER_GROUPS, VersionRow, lacks_of, save

pytestmark = [pytest.mark.compat, pytest.mark.timeout(600 * PATIENCE)]  # jars may have to be fetched

TOO_OLD: Final = "3.2.3"
VERSIONS: Final = (
    *("3.3.2", "3.4.1", "3.5.2", "3.6.2", "3.7.2", "3.8.1", "3.9.2"),
    *("4.0.2", "4.1.2", "4.2.2", "4.3.1", "4.4.0"),
)
PARTITIONS: Final = 3
KILLS: Final = 2
BETWEEN_KILLS: Final = 800
READ: Final = 150
SIDES: Final = ("OLD", "NOW")
WAYS: Final = (SIDES, SIDES[::-1])


def started(name: str, version: str | None) -> KafkaCluster:
    """Return a running cluster of one node; the test is skipped if the jars cannot be had."""
    cluster = KafkaCluster(name, kafka_version=version)
    try:
        cluster.start()
    except MissingTool as missing:
        pytest.skip(f"Kafka {version} cannot be had: {missing.what}")
    return cluster


@pytest.fixture(scope="module")
def now() -> Iterator[KafkaCluster]:
    with started("now", None) as cluster:
        yield cluster


class Side:
    """One of the two clusters under load: records of all codecs, transactions, and a topic that the broker stamps."""

    def __init__(self, cluster: KafkaCluster, stem: str, alias: str) -> None:
        self.cluster, self.alias, self.stem = cluster, alias, f"{stem}-{alias}"
        self.plain, self.committed = (new_topic(cluster, f"{self.stem}-{kind}", PARTITIONS) for kind in ("p", "c"))
        self.stamped = new_topic(cluster, f"{self.stem}-s", PARTITIONS, {"message.timestamp.type": "LogAppendTime"})
        self.loads = [
            Load(
                cluster.internal_bootstrap,
                topic,
                Traffic(seed=seed, partitions=PARTITIONS, first_timestamp_ms=now_ms()),
                per_second=300,
                transactional_id=transactional_id,
            )
            for seed, topic, transactional_id in ((61, self.plain, None), (62, self.committed, self.committed))
        ]
        records = Traffic(seed=63, partitions=PARTITIONS).records()
        for codec in ("none", "zstd"):
            send(cluster, self.stamped, islice(records, 200), compression_type=codec)

    @property
    def topics(self) -> tuple[str, ...]:
        return self.plain, self.committed, self.stamped

    @property
    def records(self) -> int:
        return sum(record_count(self.cluster, topic, range(PARTITIONS)) for topic in self.topics)

    def wait_for_copies(self, target: KafkaCluster, run: Mm2py) -> None:
        before = record_count(target, f"{self.alias}.{self.plain}", range(PARTITIONS))
        run.wait_until(
            lambda: record_count(target, f"{self.alias}.{self.plain}", range(PARTITIONS)) >= before + BETWEEN_KILLS,
            f"{BETWEEN_KILLS} more records of {self.alias} are copied",
        )

    def leave_groups(self, protocols: tuple[str, ...]) -> list[str]:
        """Let groups read a part and leave; return their names."""
        groups = []
        for protocol in protocols:
            groups.append(f"{self.stem}-{protocol}")
            client = member(self.cluster, groups[-1], protocol=protocol)
            take(client, self.plain, READ)
            client.close()
        groups.append(f"{self.stem}-commits")
        commit(self.cluster, groups[-1], self.stamped, READ // 2)
        return groups


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_copies_exactly_once_as_source_and_as_target(
    now: KafkaCluster, version: str, save_compat: Path | None
) -> None:
    """Records, transactions, groups and checkpoints, both ways, while the worker is killed twice."""
    stem = new_name(f"v{version.replace('.', '')}")
    with started(stem, version) as old:
        lacks = asyncio.run(lacks_of(old))
        clusters = dict(zip(SIDES, (old, now), strict=True))
        sides = {alias: Side(cluster, stem, alias) for alias, cluster in clusters.items()}
        properties = two_way_properties(old, now, names=SIDES) | {
            "topics": f"{stem}.*",
            "groups": f"{stem}.*",
            "emit.checkpoints.enabled": True,
            "emit.checkpoints.interval.seconds": 1,
            "sync.group.offsets.enabled": True,
            "sync.group.offsets.interval.seconds": 1,
            "config.storage.replication.factor": 1,
            **{f"{alias}.consumer.isolation.level": "read_committed" for alias in SIDES},
        }
        with Mm2py(properties) as run:
            for source, target in WAYS:
                run.wait_for_event("flow.ready", flow=f"{source}->{target}")
            with ExitStack() as loads:
                for side in sides.values():
                    for load in side.loads:
                        loads.enter_context(load.in_background())
                for _ in range(KILLS):
                    for source, target in WAYS:
                        sides[source].wait_for_copies(clusters[target], run)
                    run.kill()
                    run.start()
            groups = {
                alias: side.leave_groups(
                    ("classic",) if alias == "OLD" and CONSUMER_GROUPS in lacks else ("classic", "consumer")
                )
                for alias, side in sides.items()
            }
            for source, target in WAYS:
                for topic in sides[source].topics:
                    assert_copied(
                        clusters[source], clusters[target], topic, f"{source}.{topic}", run=run, read_committed=True
                    )
                flow = Flow(
                    clusters[source],
                    clusters[target],
                    source,
                    target,
                    sides[source].topics,
                    Ledger(),
                    groups=groups[source],
                )
                flow.assert_exact(run)
            _, report = run.check("--clusters", *SIDES)
            versions = {one["subject"]: one for one in report["results"] if one["code"] == "MM0301"}
            assert versions["OLD"]["state"] == "ok", versions
            assert f"Kafka {version.rpartition('.')[0]}" in versions["OLD"]["sentence"]
            assert run.terminate() == 0
            assert not run.events("flow.crashed"), run.tail()
            assert not run.events("flow.failed"), run.tail()
        if save_compat is not None:
            row = VersionRow(
                version,
                default_kafka_version(POM.read_text()),
                read=sides["OLD"].records,
                written=sides["NOW"].records,
                kills=KILLS,
                groups=min(map(len, groups.values())),
                lacks=lacks,
            )
            save(row, save_compat)


def test_all_versions_are_tested_that_the_check_calls_good() -> None:
    minors = [version.rpartition(".")[0] for version in VERSIONS]
    assert (minors[0], minors[-1]) == (OLDEST, NEWEST)


def test_a_broker_that_is_too_old_is_named_before_anything_runs(now: KafkaCluster) -> None:
    """MM0301: the last version before 3.3 starts, answers, and tells no version; mm2py knows it by what it speaks."""
    with started("too-old", TOO_OLD) as old:
        properties = one_way_properties(old, now, names=("OLD", "NOW"), **{"OLD->NOW.topics": new_name("none")})
        code, report = Mm2py(properties).check("--pre")
        found = {one["subject"]: one for one in report["results"] if one["code"] == "MM0301"}
        assert code == 1
        assert {subject: one["state"] for subject, one in found.items()} == {"OLD": "failed", "NOW": "ok"}
        assert found["OLD"]["sentence"] == "OLD has brokers before 3.3: before 3.3: broker 1"
        assert found["OLD"]["hint"] == "Upgrade these brokers."
        (spoken,) = [one for one in report["results"] if (one["code"], one["subject"]) == ("MM0302", "OLD")]
        assert spoken["state"] == "failed"
        assert "DescribeLogDirs 4 (broker 1)" in spoken["sentence"]
