"""Rights are revoked under load: only work that needs them waits, and resumes when they are granted again (F75).

The flow connects as its own user. Everything without an ACL is open to it; a test forbids one operation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from deploy.local.kafka import KafkaCluster
from tests.cluster.copies import COPY_DEADLINE_S, assert_copied, make_topic
from tests.cluster.kafka_client import admin, record_count, topic_names, write
from tests.cluster.loads import PARTITIONS
from tests.cluster.running import ANSWER_S, PATIENCE, Event, Value
from tests.faults.conftest import RIGHTS_PASSWORD, RIGHTS_USER
from tests.faults.scene import REPLICAS, Pair, Scene

SLOW_S = 90.0 * PATIENCE
PER_SECOND = 150
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def _as_user(alias: str) -> Mapping[str, Value]:
    return {
        f"{alias}.security.protocol": "SASL_PLAINTEXT",
        f"{alias}.sasl.mechanism": "PLAIN",
        f"{alias}.sasl.jaas.config": f'{PLAIN} required username="{RIGHTS_USER}" password="{RIGHTS_PASSWORD}";',
    }


def guarded_scene(pair: Pair, stem: str, **extra: Value) -> Scene:
    """Return a scene whose flow has the rights of ``RIGHTS_USER``. Rights on topics do not follow the topics."""
    properties: dict[str, Value] = {**_as_user("A"), **_as_user("B"), "sync.topic.acls.enabled": False, **extra}
    return Scene(
        pair,
        stem,
        source=pair.source.bootstrap_for("SASL"),
        target=pair.target.bootstrap_for("SASL"),
        per_second=PER_SECOND,
        properties=properties,
    )


@contextmanager
def forbidden(
    cluster: KafkaCluster,
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> Iterator[None]:
    """Forbid the flow's user one operation on a resource, and leave all others, while the ``with`` block lasts."""
    user = f"User:{RIGHTS_USER}"
    rules = [
        AclBinding(kind, name, pattern, user, "*", AclOperation.ALL, AclPermissionType.ALLOW),
        AclBinding(kind, name, pattern, user, "*", operation, AclPermissionType.DENY),
    ]
    client = admin(cluster)
    for made in client.create_acls(rules).values():
        made.result(ANSWER_S)
    try:
        yield
    finally:
        own = AclBindingFilter(kind, name, pattern, None, None, AclOperation.ANY, AclPermissionType.ANY)
        for gone in client.delete_acls([own]).values():
            gone.result(ANSWER_S)


def _copied(scene: Scene, topic: str) -> int:
    return record_count(scene.pair.target, f"A.{topic}", range(PARTITIONS))


def _wait_while_only_the_other_moves(scene: Scene, topic: str, other: str, records: int = 400) -> None:
    """Wait until the first topic stands still, since its last partition has noticed, and the other one has grown."""
    looks = [-1, _copied(scene, topic)]
    while looks[-1] != looks[-2]:
        scene.loads.wait_for(3 * PER_SECOND)
        looks.append(_copied(scene, topic))
        assert len(looks) < 20, f"{topic} is still being copied: {looks}"
    stands_at, goal = looks[-1], _copied(scene, other) + records
    scene.run.wait_until(lambda: _copied(scene, other) >= goal, "the other topic is copied", deadline_s=SLOW_S)
    assert _copied(scene, topic) == stands_at


@pytest.mark.parametrize("operation", [AclOperation.READ, AclOperation.DESCRIBE], ids=["read", "describe"])
def test_a_source_topic_that_may_not_be_read_waits_alone(pair: Pair, operation: AclOperation) -> None:
    """Without DESCRIBE it looks deleted: its copy and its position are kept nonetheless."""
    with guarded_scene(pair, "unreadable") as scene:
        scene.copy_more(500)
        topic, other = scene.topics
        with forbidden(pair.source, ResourceType.TOPIC, topic, operation):
            said = _wait_for_denial(scene, topic, operation)
            assert "may not" in said["why"]
            _wait_while_only_the_other_moves(scene, topic, other)
        _wait_until_it_moves(scene, topic)
        scene.conclude(gaps={"deleted"} if operation is AclOperation.DESCRIBE else ())


def _wait_for_denial(scene: Scene, topic: str, operation: AclOperation) -> Event:
    name = "source.denied" if operation is AclOperation.READ else "topic.hidden"
    return scene.run.wait_for_event(name, topic=topic, deadline_s=SLOW_S)


def _wait_until_it_moves(scene: Scene, topic: str) -> None:
    goal = _copied(scene, topic) + 300
    scene.run.wait_until(lambda: _copied(scene, topic) >= goal, f"{topic} is copied again", deadline_s=SLOW_S)


def test_a_remote_topic_that_may_not_be_written_to_waits_alone(pair: Pair) -> None:
    with guarded_scene(pair, "unwritable") as scene:
        scene.copy_more(500)
        topic, other = scene.topics
        with forbidden(pair.target, ResourceType.TOPIC, f"A.{topic}", AclOperation.WRITE):
            said = scene.run.wait_for_event("target.denied", topic=topic, deadline_s=SLOW_S)
            assert "may not write to the remote topic" in said["why"]
            _wait_while_only_the_other_moves(scene, topic, other)
        _wait_until_it_moves(scene, topic)
        scene.conclude()


def test_a_flow_that_may_not_write_its_positions_stops_until_it_may(pair: Pair) -> None:
    """Without positions the next incarnation would not know where to resume."""
    with guarded_scene(pair, "positionless") as scene:
        scene.copy_more(500)
        with forbidden(pair.target, ResourceType.TOPIC, "mm2-offsets.A.internal", AclOperation.WRITE):
            said = scene.run.wait_for_event("flow.failed", deadline_s=SLOW_S)
            assert "mm2py needs WRITE on mm2-offsets.A.internal" in said["why"]
            waits = scene.run.wait_for_event("flow.waiting", deadline_s=SLOW_S)
            assert "WRITE on that topic" in waits["why"]
        scene.copy_more(500)
        assert len(scene.run.events("flow.failed")) < 20, "no hot loop"
        scene.conclude()


def test_without_the_right_to_its_transactional_ids_a_flow_continues_and_logs_the_lower_guarantee(pair: Pair) -> None:
    """A running flow needs none; one that starts cannot fence the previous incarnation, and reports at-least-once."""
    with guarded_scene(pair, "unfenced") as scene:
        scene.copy_more(500)
        prefixed = ResourcePatternType.PREFIXED
        with forbidden(pair.target, ResourceType.TRANSACTIONAL_ID, "mm2py-", AclOperation.WRITE, prefixed):
            scene.copy_more(500)
            assert not scene.run.events("producer.degraded")
            scene.run.kill()
            scene.run.start()
            why = scene.run.wait_for_event("producer.degraded", deadline_s=SLOW_S)["why"]
            assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in why
            guarantee = scene.run.wait_for_event("flow.ready", guarantee=re.compile("at-least-once"))["guarantee"]
            assert "exactly" not in guarantee
            scene.copy_more(500)
        assert scene.run.terminate() == 0
        scene.run.start()
        scene.run.wait_for_event("flow.ready", guarantee=re.compile("exactly-once"), deadline_s=SLOW_S)
        scene.copy_more(500)
        scene.conclude()


def test_a_cluster_that_allows_no_new_topics_delays_only_the_new_one(pair: Pair) -> None:
    with guarded_scene(pair, "uncreated") as scene:
        new = f"{scene.topics[0]}-new"
        scene.run.terminate()
        file = scene.run.file
        file.write_text(file.read_text().replace(scene.topics[0], f"{scene.topics[0]}.*"))
        scene.run.start()
        scene.copy_more(300)
        with (
            forbidden(pair.target, ResourceType.BROKER, "kafka-cluster", AclOperation.CREATE),
            forbidden(pair.target, ResourceType.TOPIC, f"A.{new}", AclOperation.CREATE),
        ):
            make_topic(pair.source, new, 2, replicas=REPLICAS)
            write(pair.source, new, [b"first"])
            said = scene.run.wait_for_event("topic.refused", topic=new, deadline_s=SLOW_S)
            assert "CREATE" in said["why"]
            assert f"A.{new}" not in topic_names(pair.target)
            scene.copy_more(300)
        assert_copied(pair.source, pair.target, new, f"A.{new}", run=scene.run, deadline_s=SLOW_S)
        scene.run.wait_for_event("topic.accepted", topic=new, deadline_s=COPY_DEADLINE_S)
        scene.conclude()
