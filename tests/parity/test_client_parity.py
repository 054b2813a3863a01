"""Our client beside Java's MirrorClient and RemoteClusterUtils: the same answers about topics that a real MirrorMaker 2
wrote, about ours, and about names that no mirror would write."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from py4j.java_gateway import JavaGateway

from deploy.local.broker_settings import render_properties
from deploy.local.jars import jar_directory
from deploy.local.jvm import JavaServer
from deploy.local.kafka import KafkaCluster, start_clusters
from mm2py.client import (
    ClusterAlias,
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    MirrorClient,
    ReplicationPolicy,
)
from tests.cluster.copies import new_topic
from tests.cluster.group_offsets import checkpoints_in, commit, write_transaction
from tests.cluster.kafka_client import create_topic, new_name, offsets, topic_names, write
from tests.cluster.running import PATIENCE, Mm2py, Value, one_way_properties, wait_until
from tests.parity.test_offsets_parity import translated
from tests.parity.test_policies_parity import MIRROR, java_map

MM2_DEADLINE_S: Final = 150.0 * PATIENCE
ARRIVAL_S: Final = 60.0 * PATIENCE
PLACES: Final = (0, 1, 77, 150, 215, 260)
COUNT: Final = 260

pytestmark = pytest.mark.timeout(400 * PATIENCE)


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[KafkaCluster, KafkaCluster]]:
    """Clusters of these tests alone: topics of all clusters are compared."""
    with start_clusters([KafkaCluster("from"), KafkaCluster("to")]) as (source, target):
        yield source, target


# -- names -------------------------------------------------------------------------------------------------------------

ALIASES: Final = ["A", "B", "C", "D", "", "mm2", "a", "foo"]
NAMES: Final = [
    *("heartbeats", "A.heartbeats", "A.B.heartbeats", "A.B.A.heartbeats", "B.A.foo-heartbeats", ".heartbeats"),
    *("C_heartbeats", "C_D_heartbeats", "foo-heartbeats", "xheartbeats", "heartbeats.x"),
    *("orders", "A.orders", "A.B.orders", "C_orders", "a..", ".hidden", "..x", "foo-bar", "topic."),
    *("A.checkpoints.internal", "C_checkpoints_internal", ".checkpoints.internal", "checkpoints-internal"),
    *("mm2-offsets.A.internal", "mm2-offset-syncs_C_internal", "mm2-ledger.A.internal", "A.mm2-status.B.internal"),
    *("x.internal", "__private"),
]
"""No two of them differ in dots and underscores only: brokers refuse that."""


@pytest.mark.parametrize(
    ("policy", "settings"),
    [
        (DefaultReplicationPolicy(), {}),
        (DefaultReplicationPolicy(separator="_"), {"replication.policy.separator": "_"}),
        (
            DefaultReplicationPolicy(separator="_", internal_separator="."),
            {
                "replication.policy.separator": "_",
                "replication.policy.internal.topic.separator.enabled": "false",
            },
        ),
        (DefaultReplicationPolicy(separator="-"), {"replication.policy.separator": "-"}),
        (IdentityReplicationPolicy(), {"replication.policy.class": f"{MIRROR}IdentityReplicationPolicy"}),
        (
            IdentityReplicationPolicy(source_alias=ClusterAlias("A")),
            {"replication.policy.class": f"{MIRROR}IdentityReplicationPolicy", "source.cluster.alias": "A"},
        ),
    ],
    ids=["default", "underscore", "two separators", "dash", "identity", "identity of A"],
)
def test_both_clients_read_the_same_from_names_of_topics(
    jvm: JavaGateway,
    pair: tuple[KafkaCluster, KafkaCluster],
    policy: ReplicationPolicy,
    settings: dict[str, str],
) -> None:
    cluster = pair[1]
    for name in set(NAMES) - topic_names(cluster):
        create_topic(cluster, name)
    assert told_by_us(cluster, policy) == told_by_java(jvm, cluster, settings)


def told_by_us(cluster: KafkaCluster, policy: ReplicationPolicy) -> dict[str, Any]:
    async def play() -> dict[str, Any]:
        async with MirrorClient(bootstrap_servers=cluster.internal_bootstrap, policy=policy) as client:
            return {
                "heartbeats": await client.heartbeat_topics(),
                "checkpoints": await client.checkpoint_topics(),
                "remote": await client.remote_topics(),
                "remote of": {alias: await client.remote_topics(alias) for alias in ALIASES},
                "upstream": await client.upstream_clusters(),
                "hops": {alias: await client.replication_hops(alias) for alias in ALIASES},
            }

    return asyncio.run(play())


def told_by_java(jvm: JavaGateway, cluster: KafkaCluster, settings: dict[str, str]) -> dict[str, Any]:
    client = jvm.jvm.org.apache.kafka.connect.mirror.MirrorClient(
        java_map(jvm, {"bootstrap.servers": cluster.internal_bootstrap, **settings})
    )
    try:
        hops = {alias: client.replicationHops(alias) for alias in ALIASES}
        return {
            "heartbeats": set(client.heartbeatTopics()),
            "checkpoints": set(client.checkpointTopics()),
            "remote": set(client.remoteTopics()),
            "remote of": {alias: set(client.remoteTopics(alias)) for alias in ALIASES},
            "upstream": set(client.upstreamClusters()),
            "hops": {alias: None if hop == -1 else hop for alias, hop in hops.items()},
        }
    finally:
        client.close()


# -- groups ------------------------------------------------------------------------------------------------------------


class Scene:
    """A topic with transactions, and groups that stand at several places of it."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster) -> None:
        self.source, self.target = source, target
        self.alias, self.other, self.stem = new_name("S"), new_name("T"), new_name("reads")
        self.topic = new_topic(source, "orders")
        self.groups = {f"{self.stem}-{place}": place for place in PLACES}
        numbered = [f"record {number}" for number in range(COUNT)]
        write(source, self.topic, numbered[:150])
        write_transaction(source, self.topic, numbered[150:210])
        write_transaction(source, self.topic, ["aborted"] * 8, commits=False)
        write(source, self.topic, numbered[210:])
        self.properties: dict[str, Value] = one_way_properties(source, target, names=(self.alias, self.other)) | {
            f"{self.alias}->{self.other}.topics": self.topic,
            f"{self.alias}.consumer.isolation.level": "read_committed",
            "groups": f"{self.stem}.*",
            "emit.checkpoints.enabled": True,
            "emit.checkpoints.interval.seconds": 1,
            "emit.heartbeats.enabled": True,
            "heartbeats.replication.enabled": True,
        }

    def move_groups(self) -> None:
        """Let each group commit its place, one of them with a text."""
        for group, place in self.groups.items():
            commit(self.source, group, self.topic, place, "ünder way" if place == 77 else "")

    def is_mirrored(self) -> bool:
        """Whether all groups that can be translated have a checkpoint of their place, and heartbeats have come."""
        last = checkpoints_in(self.target, f"{self.alias}.checkpoints.internal")
        moved = {group: one.upstream_offset for group, one in last.items()}
        return moved == self.groups and f"{self.alias}.heartbeats" in topic_names(self.target)

    def assert_alike(self, jvm: JavaGateway) -> None:
        """Ask both clients for the offsets of each group, and of all by patterns."""
        for group in [*self.groups, "unknown"]:
            ours = asyncio.run(
                self._asked(lambda client, group=group: client.remote_consumer_offsets(group, self.alias))
            )
            assert shortened(ours) == translated(jvm, self.target, self.alias, group)
            assert len(ours) == (group != "unknown")
        for pattern in (f"{self.stem}.*", f"{self.stem}-[0-9]", "reads", ".*0"):
            many = asyncio.run(
                self._asked(
                    lambda client, pattern=pattern: client.remote_consumer_offsets_matching(
                        re.compile(pattern), self.alias
                    )
                )
            )
            assert {group: shortened(one) for group, one in many.items()} == self._translated_matching(jvm, pattern)
        assert told_by_us(self.target, DefaultReplicationPolicy()) == told_by_java(jvm, self.target, {})
        hops = asyncio.run(self._asked(lambda client: client.replication_hops(self.alias)))
        assert hops == 1

    async def _asked(self, ask: Callable[..., Any]) -> Any:
        async with MirrorClient(bootstrap_servers=self.target.internal_bootstrap) as client:
            return await ask(client)

    def _translated_matching(self, jvm: JavaGateway, pattern: str) -> dict[str, dict[tuple[str, int], tuple[int, str]]]:
        found = jvm.jvm.org.apache.kafka.connect.mirror.RemoteClusterUtils.translateOffsets(
            java_map(jvm, {"bootstrap.servers": self.target.internal_bootstrap}),
            self.alias,
            jvm.jvm.java.util.regex.Pattern.compile(pattern),
            jvm.jvm.java.time.Duration.ofSeconds(30),
        )
        return {
            group: {(place.topic(), place.partition()): (one.offset(), one.metadata()) for place, one in some.items()}
            for group, some in found.items()
        }


def shortened(found: dict[tuple[str, int], Any]) -> dict[tuple[str, int], tuple[int, str]]:
    return {(place[0], place[1]): (one.target_offset, one.metadata) for place, one in found.items()}


def test_our_client_reads_from_a_real_mirrormaker_2_what_javas_clients_read(
    jvm: JavaGateway, pair: tuple[KafkaCluster, KafkaCluster], tmp_path: Path
) -> None:
    scene = Scene(*pair)
    properties = scene.properties | {
        f"{scene.other}.offset.flush.interval.ms": 1000,
        "emit.heartbeats.interval.seconds": 1,
        "offset.lag.max": 10,
        "sync.topic.acls.enabled": False,
        "config.storage.replication.factor": 1,
        "refresh.groups.interval.seconds": 1,
        "refresh.topics.interval.seconds": 2,
    }
    del properties["topics.watch.interval.ms"]
    (tmp_path / "mm2.properties").write_text(render_properties(properties))
    mirror_maker = JavaServer(
        "org.apache.kafka.connect.mirror.MirrorMaker",
        [str(tmp_path / "mm2.properties")],
        jars=jar_directory(),
        log_path=tmp_path / "mm2.log",
    )
    scene.move_groups()
    mirror_maker.start()
    try:
        wait_until(
            lambda: offsets(scene.target, f"{scene.alias}.{scene.topic}")[1] == COUNT,
            "it has copied",
            deadline_s=MM2_DEADLINE_S,
        )
        wait_until(scene.is_mirrored, "checkpoints of all groups, and heartbeats", deadline_s=MM2_DEADLINE_S)
    finally:
        mirror_maker.stop()
    scene.assert_alike(jvm)


def test_javas_clients_read_from_us_what_our_client_reads(
    jvm: JavaGateway, pair: tuple[KafkaCluster, KafkaCluster]
) -> None:
    scene = Scene(*pair)
    scene.move_groups()
    with Mm2py(scene.properties | {f"{scene.other}->{scene.alias}.emit.heartbeats.enabled": True}) as run:
        run.wait_until(scene.is_mirrored, "checkpoints of all groups, and heartbeats", deadline_s=ARRIVAL_S)
        assert run.terminate() == 0
    scene.assert_alike(jvm)
