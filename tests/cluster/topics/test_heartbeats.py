"""Heartbeats on real brokers: emitted byte for byte as MirrorMaker 2 does, copied hop by hop, read back as proof."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from deploy.local.kafka import KafkaCluster, start_clusters
from tests.cluster.copies import assert_copied, new_topic, now_ms, without_right
from tests.cluster.kafka_client import admin, create_topic, new_name, read, topic_config, topic_names, write
from tests.cluster.running import ANSWER_S, PATIENCE, Mm2py, Value, one_way_properties, two_way_properties

HEARTBEATS = "heartbeats"
ON: dict[str, Value] = {"emit.heartbeats.enabled": True, "heartbeats.replication.enabled": True}
ARRIVAL_S = 60.0 * PATIENCE

Trio = tuple[KafkaCluster, KafkaCluster, KafkaCluster]


@pytest.fixture(scope="module")
def trio() -> Iterator[Trio]:
    """Three clusters whose `heartbeats` are only ours; each test has aliases of its own."""
    with start_clusters([KafkaCluster(name) for name in ("first", "second", "third")]) as (first, second, third):
        yield first, second, third


def golden(source: str, target: str, at_ms: int) -> tuple[bytes, bytes]:
    """The bytes of MirrorMaker 2's layout, written down once more."""
    key = b"".join(len(alias).to_bytes(2, "big") + alias.encode() for alias in (source, target))
    return key, (0).to_bytes(2, "big") + at_ms.to_bytes(8, "big")


def of_pair(cluster: KafkaCluster, topic: str, source: str, target: str) -> list[Message]:
    """The heartbeats of one pair in a topic; none if there is no such topic."""
    if topic not in topic_names(cluster):
        return []
    return [message for message in read(cluster, topic) if message.key() == golden(source, target, 0)[0]]


def beating(*clusters: KafkaCluster, aliases: tuple[str, ...], **extra: Value) -> dict[str, Value]:
    """A file of these clusters in which every pair emits, and no flow is enabled but those in ``extra``."""
    properties = one_way_properties(clusters[0], clusters[1], names=(aliases[0], aliases[1]))
    del properties[f"{aliases[0]}->{aliases[1]}.enabled"]
    for alias, cluster in zip(aliases, clusters, strict=True):
        properties[f"{alias}.bootstrap.servers"] = cluster.bootstrap
    return {**properties, **ON, "clusters": ",".join(aliases), "topics": "nothing", **extra}


def test_both_ends_prove_each_other_with_the_bytes_of_mirrormaker_2(trio: Trio) -> None:
    first, second, _ = trio
    a, b = new_name("A"), new_name("B")
    properties = two_way_properties(first, second, names=(a, b), topics="nothing") | ON
    began_ms = now_ms()
    with Mm2py(properties) as run:
        for flow in (f"{a}->{b}", f"{b}->{a}"):
            run.wait_for_event("heartbeats.emitting", flow=flow, deadline_s=ARRIVAL_S)
            proven = run.wait_for_event("path.proven", flow=flow, deadline_s=ARRIVAL_S)
            assert 0 <= proven["latency_ms"] < 30_000 * PATIENCE
        run.wait_until(lambda: len(of_pair(second, f"{a}.{HEARTBEATS}", b, a)) >= 3, "three came", deadline_s=ARRIVAL_S)
        assert run.terminate() == 0
        assert not run.events("path.silent")
        assert not run.events("heartbeats.waiting")
    ended_ms = now_ms()
    for cluster, source, target in ((first, b, a), (second, a, b)):
        emitted = of_pair(cluster, HEARTBEATS, source, target)
        times = [message.timestamp()[1] for message in emitted]
        for message, at_ms in zip(emitted, times, strict=True):
            assert (message.key(), message.value()) == golden(source, target, at_ms)
            assert message.timestamp()[0] == 1, "the time is the emitter's"
            assert not message.headers()
            assert message.partition() == 0
        assert began_ms + 1000 <= times[0]
        assert times[-1] <= ended_ms
        assert min(later - earlier for earlier, later in pairwise(times)) >= 500, "one each second"
    for source, target, alias, other in ((first, second, a, b), (second, first, b, a)):
        emitted = of_pair(source, HEARTBEATS, other, alias)
        copied = of_pair(target, f"{alias}.{HEARTBEATS}", other, alias)
        assert [_content(message) for message in copied] == [_content(message) for message in emitted[: len(copied)]]


def test_the_topic_is_made_as_mirrormaker_2_makes_it_and_one_that_is_there_is_left(
    trio: Trio, make_cluster: Callable[..., KafkaCluster]
) -> None:
    _, _, third = trio
    fresh = make_cluster("fresh")
    create_topic(fresh, "other")
    a, b = new_name("A"), new_name("B")
    with Mm2py(beating(third, fresh, aliases=(a, b)), clusters=[b]) as run:
        run.wait_for_event("heartbeats.topic_created", flow=f"{a}->{b}", deadline_s=ARRIVAL_S)
        run.wait_for_event("heartbeats.emitting", flow=f"{a}->{b}", deadline_s=ARRIVAL_S)
        assert run.terminate() == 0
    (part,) = admin(fresh).list_topics(HEARTBEATS, timeout=ANSWER_S).topics[HEARTBEATS].partitions.values()
    assert len(part.replicas) == 1
    assert topic_config(fresh, HEARTBEATS, "cleanup.policy") == "compact"
    assert topic_config(fresh, HEARTBEATS, "retention.ms") == topic_config(fresh, "other", "retention.ms")

    made_by_hand = make_cluster("byhand")
    create_topic(made_by_hand, HEARTBEATS, 2, {"cleanup.policy": "delete"})
    with Mm2py(beating(third, made_by_hand, aliases=(a, b)), clusters=[b]) as run:
        run.wait_for_event("heartbeats.emitting", flow=f"{a}->{b}", deadline_s=ARRIVAL_S)
        assert run.terminate() == 0
        assert not run.events("heartbeats.topic_created")
    assert topic_config(made_by_hand, HEARTBEATS, "cleanup.policy") == "delete"
    assert {message.partition() for message in read(made_by_hand, HEARTBEATS, (0, 1))} == {0}


def test_heartbeats_go_on_over_several_hops(trio: Trio) -> None:
    """B->A emits into A; A->B copies, B->C copies the copy, whatever the topic filters say."""
    a, b, c = (new_name(alias) for alias in "ABC")
    properties = beating(*trio, aliases=(a, b, c), **{f"{a}->{b}.enabled": True, f"{b}->{c}.enabled": True})
    with Mm2py(properties) as run:
        last = trio[2]
        run.wait_until(lambda: len(of_pair(last, f"{b}.{a}.{HEARTBEATS}", b, a)) >= 2, "two hops", deadline_s=ARRIVAL_S)
        run.wait_until(lambda: of_pair(last, f"{b}.{HEARTBEATS}", a, b), "one hop", deadline_s=ARRIVAL_S)
        run.wait_for_event("path.proven", flow=f"{b}->{c}", deadline_s=ARRIVAL_S)
        assert run.terminate() == 0
    assert not {name for name in topic_names(trio[0]) if f".{a}." in name or name.startswith(f"{a}.")}


def test_a_pair_that_only_emits_needs_no_source_and_no_flow(trio: Trio) -> None:
    """The other cluster is in a region that cannot be reached from here."""
    first, *_ = trio
    a, b = new_name("A"), new_name("B")
    properties = beating(first, first, aliases=(a, b)) | {f"{b}.bootstrap.servers": "127.0.0.1:1"}
    with Mm2py(properties, clusters=[a]) as run:
        starting = run.wait_for_event("worker.starting")
        assert (starting["flows"], starting["only_heartbeats"]) == ("", f"{b}->{a}")
        assert run.wait_for_event("config", why=re.compile("only heartbeats are emitted"))
        run.wait_until(lambda: len(of_pair(first, HEARTBEATS, b, a)) >= 2, "it emits", deadline_s=ARRIVAL_S)
        assert run.terminate() == 0


def test_switched_off_they_leave_an_empty_topic_as_mirrormaker_2_does(
    make_cluster: Callable[..., KafkaCluster],
) -> None:
    source, target = make_cluster("quiet"), make_cluster("still")
    topic = new_topic(source, "orders")
    write(source, topic, ["1", "2"])
    with Mm2py(one_way_properties(source, target, topics=topic)) as run:
        assert_copied(source, target, topic, f"A.{topic}", run=run)
        run.wait_until(lambda: HEARTBEATS in topic_names(target), "the topic is there", deadline_s=ARRIVAL_S)
        assert run.terminate() == 0
        assert not run.events("path.silent")
    assert read(target, HEARTBEATS) == []
    assert HEARTBEATS not in topic_names(source)


@pytest.mark.slow
def test_a_broker_that_restarts_holds_heartbeats_up_and_no_more(make_cluster: Callable[..., KafkaCluster]) -> None:
    source, target = make_cluster("source"), make_cluster("target")
    a, b = "A", "B"
    properties = beating(source, target, aliases=(a, b), **{"A->B.enabled": True})
    with Mm2py(properties) as run:
        run.wait_for_event("path.proven", flow="A->B", deadline_s=ARRIVAL_S)
        before = len(of_pair(target, HEARTBEATS, a, b))
        broker = target.broker(1)
        broker.kill()
        waiting = run.wait_for_event("heartbeats.waiting", flow="A->B", deadline_s=ARRIVAL_S)
        assert waiting["effect"] == "no heartbeats are written; copying of records does not need them"
        broker.start()
        run.wait_for_event("heartbeats.back", flow="A->B", deadline_s=ARRIVAL_S)
        run.wait_until(lambda: len(of_pair(target, HEARTBEATS, a, b)) > before + 2, "they go on", deadline_s=ARRIVAL_S)
        assert len(run.events("heartbeats.waiting", flow="A->B")) == 1
        assert not run.events("heartbeats.waiting", flow="B->A")
        times = [message.timestamp()[1] for message in of_pair(target, HEARTBEATS, a, b)]
        assert times == sorted(times)
        assert run.terminate() == 0


def test_a_missing_right_is_named_and_copying_goes_on(trio: Trio, make_cluster: Callable[..., KafkaCluster]) -> None:
    """First CREATE, then WRITE on the topic; each is granted while mm2py runs."""
    first, *_ = trio
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": True,
    }
    guarded = make_cluster("guarded", settings=settings)
    a, b = new_name("A"), new_name("B")
    topic = new_topic(first, "orders")
    write(first, topic, ["1", "2"])
    with without_right(guarded, HEARTBEATS, AclOperation.WRITE):
        properties = one_way_properties(first, guarded, names=(a, b), topics=topic) | {
            "emit.heartbeats.enabled": True,
            f"{b}->{a}.emit.heartbeats.enabled": False,
        }
        create_anywhere = _rule(ResourceType.BROKER, "kafka-cluster", AclOperation.CREATE, AclPermissionType.DENY)
        create_it = _rule(ResourceType.TOPIC, HEARTBEATS, AclOperation.CREATE, AclPermissionType.DENY)
        create_others = _rule(ResourceType.TOPIC, f"{a}.{topic}", AclOperation.ALL, AclPermissionType.ALLOW)
        create_offsets = _rule(
            ResourceType.TOPIC, f"mm2-offsets.{a}.internal", AclOperation.ALL, AclPermissionType.ALLOW
        )
        use = _rule(ResourceType.BROKER, "kafka-cluster", AclOperation.ALL, AclPermissionType.ALLOW)
        _make(guarded, create_anywhere, create_it, create_others, create_offsets, use)
        with Mm2py(properties) as run:
            denied = run.wait_for_event("heartbeats.waiting", deadline_s=ARRIVAL_S)
            assert "grant CREATE on heartbeats, or create it by hand" in denied["why"]
            assert_copied(first, guarded, topic, f"{a}.{topic}", run=run)
            _remove(guarded, create_it)
            _remove(guarded, create_anywhere)
            denied = run.wait_for_event("heartbeats.waiting", after=denied, deadline_s=ARRIVAL_S)
            assert denied["why"].endswith(f"Grant mm2py WRITE on topic heartbeats of {b}.")
            _make(guarded, _rule(ResourceType.TOPIC, HEARTBEATS, AclOperation.WRITE, AclPermissionType.ALLOW))
            run.wait_for_event("heartbeats.back", deadline_s=ARRIVAL_S)
            run.wait_until(lambda: of_pair(guarded, HEARTBEATS, a, b), "they are written", deadline_s=ARRIVAL_S)
            assert len(run.events("heartbeats.waiting")) == 2
            assert run.terminate() == 0


@pytest.mark.slow
def test_heartbeats_that_stop_are_told_and_so_is_their_return(trio: Trio) -> None:
    """Another process emits them, and is stopped."""
    first, second, _ = trio
    a, b = new_name("A"), new_name("B")
    both = beating(first, second, aliases=(a, b), **{f"{a}->{b}.enabled": True})
    with Mm2py(both, clusters=[b]) as copying:
        with Mm2py(both, clusters=[a]) as emitting:
            copying.wait_for_event("path.proven", by=f"{b}->{a}", deadline_s=ARRIVAL_S)
            assert emitting.terminate() == 0
        silent = copying.wait_for_event("path.silent", flow=f"{a}->{b}", deadline_s=ARRIVAL_S)
        assert silent["why"] == f"no further heartbeat has come into {a}.{HEARTBEATS}"
        assert silent["newest_age_s"] >= 10
        with Mm2py(both, clusters=[a]):
            copying.wait_for_event("path.proven", after=silent, deadline_s=ARRIVAL_S)
        assert copying.terminate() == 0


def _content(message: Message) -> tuple[object, ...]:
    return message.key(), message.value(), message.timestamp(), message.headers()


def _rule(kind: ResourceType, name: str, operation: AclOperation, permission: AclPermissionType) -> AclBinding:
    return AclBinding(kind, name, ResourcePatternType.LITERAL, "User:*", "*", operation, permission)


def _make(cluster: KafkaCluster, *rules: AclBinding) -> None:
    client = admin(cluster)
    for made in client.create_acls(list(rules)).values():
        made.result(ANSWER_S)


def _remove(cluster: KafkaCluster, rule: AclBinding) -> None:
    client = admin(cluster)
    where = (rule.restype, rule.name, rule.resource_pattern_type)
    exactly = AclBindingFilter(*where, rule.principal, rule.host, rule.operation, rule.permission_type)
    for gone in client.delete_acls([exactly]).values():
        gone.result(ANSWER_S)
