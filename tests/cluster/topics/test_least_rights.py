"""Each feature works with the rights that docs/rights.md names for it: nothing is denied, no right is idle (S25)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import httpx2
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from deploy.local.broker_settings import render_properties
from deploy.local.kafka import KafkaCluster
from mm2py.client import MirrorClient
from mm2py.topics.names import ClusterAlias
from tests.checker.traffic import Planned
from tests.cluster.copies import add_partitions, make_topic, producer, send
from tests.cluster.group_offsets import commit
from tests.cluster.kafka_client import admin, delete_topic, new_name, topic_names, values, write
from tests.cluster.least_rights import PASSWORD, GuardedPair, assert_least, guarded_pair, purposes, rights_of
from tests.cluster.running import ANSWER_S, OWN_PATH, PATIENCE, Mm2py, Value, within
from tests.cluster.topics.test_topic_sync import own_settings, set_by_hand

SLOW_S = 90.0 * PATIENCE
FENCES = "mm2-dr-fences.internal"
AFTER = "message.timestamp.after.max.ms"
ANY_TIME = {AFTER: str(2**63 - 1)}
FUTURE_MS = 4_000_000_000_000
COPYING = ("copying", "flight recorder", "heartbeats", "offset syncs")
"""What every scene has."""
TESTED = {*COPYING, "groups", "looking", "application", "heartbeats on the source", "configurations", "ACLs"}
TESTED |= {"quarantine", "rings", "backfill and verify", "history", "fence"}
ELSEWHERE = {"recoveries", "failover", "drill"}
"""By ``tests/cluster/dr/test_recovery_rights.py``."""


@pytest.fixture(scope="module")
def pair() -> Iterator[GuardedPair]:
    with guarded_pair() as found:
        yield found


class Scene:
    """A topic with ten records, a flow that copies it, and a user who may do what the purposes need, and no more."""

    def __init__(self, pair: GuardedPair, *purposes: str, **extra: Value) -> None:
        self.pair = pair
        self.alias = new_name("R").replace("-", "")
        self.flow = f"{self.alias}->B"
        self.topic, self.group, self.workers = new_name("orders"), new_name("billing"), new_name("workers")
        self.remote = f"{self.alias}.{self.topic}"
        self.names = {"A": self.alias, "TOPIC": self.topic, "GROUP": self.group, "NAME": self.workers}
        self._purposes = purposes or COPYING
        self.user = self.user_for(*COPYING, *purposes)
        make_topic(pair.source, self.topic, configs=ANY_TIME)
        write(pair.source, self.topic, [b"%d" % number for number in range(10)])
        self._settings: dict[str, Value] = {
            f"{self.flow}.topics": self.topic,
            f"{self.flow}.emit.heartbeats.enabled": True,
            "mm2py.group": self.workers,
            "refresh.topics.interval.seconds": 1,
            "emit.heartbeats.interval.seconds": 1,
            "groups": self.group,
            **extra,
        }
        self.run = Mm2py(pair.properties(self.user, self.alias, **self._settings))

    def user_for(self, *purposes: str, **names: str) -> str:
        """Return a new user with the rights for these purposes alone. ``names``: further ones for the page's."""
        return self.pair.grant(rights_of(purposes, {**self.names, **names}))

    def copied(self, count: int, partition: int = 0) -> None:
        self.run.wait_until(
            lambda: len(values(self.pair.target, self.remote, [partition])) == count, "it is copied", deadline_s=SLOW_S
        )

    def command(self, verb: str, *arguments: str, user: str | None = None) -> str:
        """Run a command with the worker's file, or with the same file of another user, and return what it prints."""
        file = self.run.file
        if user is not None:
            file = self.run.directory / f"{user}.properties"
            file.write_text(render_properties(self.pair.properties(user, self.alias, **self._settings)))
        ended = subprocess.run(
            [sys.executable, "-m", "mm2py", *verb.split(), str(file), *arguments],
            capture_output=True,
            text=True,
            timeout=180 * PATIENCE,
            check=False,
            cwd=self.run.directory,
            env={**os.environ, "PYTHONPATH": OWN_PATH, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def assert_least(self) -> None:
        """Stop the worker, and judge what the brokers decided."""
        assert self.run.terminate() == 0
        assert_least(self.pair, self.user, rights_of(self._purposes, self.names))

    def assert_least_of(self, user: str, purpose: str) -> None:
        assert_least(self.pair, user, rights_of([purpose], self.names))


def committed(cluster: KafkaCluster, group: str) -> list[tuple[str, int]]:
    """Return the topics and offsets of a group's commits."""
    asked = ConsumerGroupTopicPartitions(group)
    found = admin(cluster).list_consumer_group_offsets([asked])[group].result(ANSWER_S)
    return [(one.topic, one.offset) for one in found.topic_partitions]


def test_each_row_of_the_page_is_tested_here() -> None:
    assert purposes() == TESTED | ELSEWHERE


def test_copying_new_partitions_and_the_fence_after_a_kill(pair: GuardedPair) -> None:
    scene = Scene(pair)
    with scene.run as run:
        scene.copied(10)
        add_partitions(pair.source, scene.topic, 2)
        write(pair.source, scene.topic, [b"more"] * 5, partition=1)
        scene.copied(5, partition=1)
        run.kill()
        run.start()
        write(pair.source, scene.topic, [b"last"] * 5, partition=1)
        scene.copied(10, partition=1)
        code, found = run.status()
        assert code == 0, found["problems"]
        assert not run.events("producer.degraded")
        scene.command("apply", "--yes")
        scene.assert_least()


def test_heartbeats_on_the_source_are_written_and_copied(pair: GuardedPair) -> None:
    on = {"emit.heartbeats.enabled": True, "heartbeats.replication.enabled": True}
    scene = Scene(pair, "heartbeats on the source", **on)
    with scene.run as run:
        scene.copied(10)
        copy = f"{scene.alias}.heartbeats"
        run.wait_until(lambda: values(pair.target, copy), "a heartbeat of the source is copied", deadline_s=SLOW_S)
        run.wait_for_event("path.proven", deadline_s=SLOW_S)  # the worker has read it
        code, found = run.status()
        assert code == 0, found["problems"]
        scene.assert_least()


async def test_groups_an_operator_who_may_only_look_and_an_application(pair: GuardedPair) -> None:
    often = ("emit.checkpoints", "sync.group.offsets", "refresh.groups")
    scene = Scene(
        pair,
        "groups",
        **{"emit.checkpoints.enabled": True, "sync.group.offsets.enabled": True},
        **{f"{name}.interval.seconds": 1 for name in often},
    )
    commit(pair.source, scene.group, scene.topic, 5)
    with scene.run as run:
        scene.copied(10)
        run.wait_until(lambda: committed(pair.target, scene.group) == [(scene.remote, 5)], "the group has its offset")
        place = (scene.flow, "--topic", scene.topic, "--partition", "0", "--offset", "5")
        operator = scene.user_for("looking")
        assert "1 ready to go on" in scene.command("groups", scene.flow, user=operator)
        assert scene.command("translate", *place, user=operator)
        assert scene.command("gaps", user=operator)
        assert scene.command("history", user=operator)
        assert "nothing is wrong" in scene.command("status", user=operator)
        assert "It was replicated" in scene.command("why", scene.flow, *place[1:3], "--at", "0s", user=operator)
        scene.assert_least_of(operator, "looking")

        application = scene.user_for("application")
        assert await where_to_go_on(pair, application, scene) == [5]
        scene.assert_least_of(application, "application")
        scene.assert_least()


async def where_to_go_on(pair: GuardedPair, user: str, scene: Scene) -> list[int]:
    """Return the target offsets at which the scene's group goes on, by ``mm2py.client``."""
    client = MirrorClient(
        bootstrap_servers=pair.target.bootstrap_for("SASL"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username=user,
        sasl_plain_password=PASSWORD,
    )
    async with within(SLOW_S), client:
        found = await client.remote_consumer_offsets(scene.group, ClusterAlias(scene.alias))
    return [one.target_offset for one in found.values()]


def test_the_history_that_rest_writes(pair: GuardedPair) -> None:
    scene = Scene(pair, "history", listeners="http://127.0.0.1:0")
    with scene.run as run:
        scene.copied(10)
        at = run.wait_for_event("rest.listening")["at"]

        def points() -> list[float]:
            told = httpx2.get(f"{at}/v1/flows/{scene.flow}/history", timeout=ANSWER_S).json()
            return [lag for lag in told["series"]["lag_records"] if lag is not None]

        run.wait_until(lambda: len(points()) >= 2, "it has points", deadline_s=SLOW_S)
        assert not run.events("history.waiting") and not run.events("history_events.waiting")
        scene.assert_least()


def test_configurations_of_topics(pair: GuardedPair) -> None:
    on = {"sync.topic.configs.enabled": True, "sync.topic.configs.interval.seconds": 1}
    scene = Scene(pair, "configurations", **on)
    with scene.run as run:
        scene.copied(10)
        set_by_hand(pair.source, scene.topic, retention_ms="7000000")
        run.wait_until(
            lambda: own_settings(pair.target, scene.remote).get("retention.ms") == "7000000", "the setting follows"
        )
        scene.assert_least()


def test_acls_of_topics(pair: GuardedPair) -> None:
    scene = Scene(pair, "ACLs", **{"sync.topic.acls.enabled": True, "sync.topic.acls.interval.seconds": 1})
    if FENCES not in topic_names(pair.source):
        make_topic(pair.source, FENCES)  # a fence has made it once
    kind, exactly, reader = ResourceType.TOPIC, ResourcePatternType.LITERAL, f"User:{new_name('reader')}"
    rule = AclBinding(kind, scene.topic, exactly, reader, "*", AclOperation.READ, AclPermissionType.ALLOW)
    admin(pair.source).create_acls([rule])[rule].result(ANSWER_S)
    copy = AclBindingFilter(kind, scene.remote, exactly, reader, None, AclOperation.ANY, AclPermissionType.ANY)
    with scene.run as run:
        scene.copied(10)
        run.wait_until(lambda: admin(pair.target).describe_acls(copy).result(ANSWER_S), "the ACL follows")
        scene.assert_least()


def test_a_fence_of_producers(pair: GuardedPair) -> None:
    for cluster in (pair.source, pair.target):
        if FENCES in topic_names(cluster):
            delete_topic(cluster, FENCES)
    scene = Scene(pair)
    tx = new_name("tx")
    operator = scene.user_for("fence", ID=tx)
    kind, exactly, app = ResourceType.TOPIC, ResourcePatternType.LITERAL, f"User:{new_name('app')}"
    allowed = AclBinding(kind, scene.topic, exactly, app, "*", AclOperation.WRITE, AclPermissionType.ALLOW)
    admin(pair.source).create_acls([allowed])[allowed].result(ANSWER_S)
    client = producer(pair.source, transactional_id=tx, transaction_timeout_ms=300_000)
    client.init_transactions(ANSWER_S)
    client.begin_transaction()
    client.produce(scene.topic, b"open")
    assert client.flush(ANSWER_S) == 0
    with scene.run:
        scene.copied(11)
        arguments = ("--yes", "--accept-unproven-fence", "--end-hanging")
        said = scene.command("dr fence", scene.flow, *arguments, user=operator)
        assert f"transactional id {tx}" in said and "verified" in said
        assert "lifted" in scene.command("dr unfence", scene.flow, "--yes", user=operator)
    assert_least(pair, operator, rights_of(["fence"], {**scene.names, "ID": tx}))


def test_quarantine_and_replay(pair: GuardedPair) -> None:
    scene = Scene(pair, "quarantine", **{"on.poison.record": "quarantine"})
    make_topic(pair.target, scene.remote)
    send(pair.source, scene.topic, [Planned(0, FUTURE_MS, b"key", b"late", ()), Planned(0, 1_000, b"key", b"last", ())])
    with scene.run as run:
        run.wait_for_event("record.quarantined", topic=scene.topic)
        scene.copied(11)
        set_by_hand(pair.target, scene.remote, message_timestamp_after_max_ms=ANY_TIME[AFTER])
        scene.command("replay", f"{scene.flow}:{scene.topic}", "--append", "--yes")
        scene.copied(12)
        scene.assert_least()


def test_a_flow_looks_for_rings(pair: GuardedPair) -> None:
    scene = Scene(pair, "rings")
    other = new_name("Z")
    for name in (f"mm2-configs.{other}.internal", f"mm2-offsets.{other}.internal"):
        make_topic(pair.source, name)
    with scene.run as run:
        scene.copied(10)
        assert not run.events("ring.unknown")
        scene.assert_least()


def test_a_backfill_and_a_verification(pair: GuardedPair) -> None:
    pytest.importorskip("pyspark", reason="Run `make venv-spark`.")
    scene = Scene(pair, "backfill and verify")
    scene.command("backfill", scene.flow, "--topics", scene.topic, "--master", "local[1]")
    assert values(pair.target, scene.remote) == values(pair.source, scene.topic)
    with scene.run:
        write(pair.source, scene.topic, [b"more"])
        scene.copied(11)
        scene.command("verify", scene.flow, "--master", "local[1]")
        scene.command("verify", scene.flow, "--local")
        scene.assert_least()
