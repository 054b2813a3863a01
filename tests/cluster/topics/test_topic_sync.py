"""Settings and ACLs of topics follow their source between real clusters, refused ones alone are left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from deploy.local.errors import MissingTool
from deploy.local.kafka import KafkaCluster, start_clusters
from tests.checker.traffic import Planned
from tests.cluster.copies import add_partitions, dump, make_topic, now_ms, partitions_of, send, set_by_hand
from tests.cluster.kafka_client import admin, create_topic, delete_topic, new_name, values, write
from tests.cluster.running import ANSWER_S, Mm2py, Value, one_way_properties, two_way_properties

ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
GUARD = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
OPEN = {**GUARD, "super.users": "User:nobody", "allow.everyone.if.no.acl.found": True}
OFTEN: dict[str, Value] = {"sync.topic.configs.interval.seconds": 1, "sync.topic.acls.interval.seconds": 1}


def test_a_remote_topic_takes_later_timestamps_as_soon_as_its_source_does(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """MirrorMaker 2 carries the limit over, too. The next round of the sync is ten minutes away."""
    after, late_ms = "message.timestamp.after.max.ms", 4_000_000_000_000
    new, old = new_name("limits.new"), new_name("limits.old")
    any_time = {after: str(2**63 - 1)}
    make_topic(source_cluster, new, configs=any_time)
    make_topic(source_cluster, old)
    late = Planned(0, late_ms, b"key", b"late", ())
    send(source_cluster, new, [late])
    send(source_cluster, old, [Planned(0, now_ms(), b"key", b"now", ())])
    properties = one_way_properties(source_cluster, target_cluster) | {"A->B.topics": f"{new}, {old}"}
    with Mm2py(properties) as run:
        run.wait_until(lambda: values(target_cluster, f"A.{old}") == [b"now"], "the first record is copied")
        run.wait_until(lambda: values(target_cluster, f"A.{new}") == [b"late"], "so is the late one")
        set_by_hand(source_cluster, old, message_timestamp_after_max_ms=any_time[after])
        run.wait_until(lambda: is_taken(source_cluster, old, late), "the source's broker goes by the new limit")
        send(source_cluster, old, [late])
        run.wait_until(lambda: len(values(target_cluster, f"A.{old}")) == 3, "later ones are copied as well")
        assert own_settings(target_cluster, f"A.{old}")[after] == any_time[after]
        assert own_settings(target_cluster, f"A.{new}")[after] == any_time[after]
        assert not run.events("target.refuses"), run.tail()
        assert run.terminate() == 0


def is_taken(cluster: KafkaCluster, topic: str, record: Planned) -> bool:
    """Send a record; return whether the broker took it."""
    try:
        send(cluster, topic, [record])
    except AssertionError as error:
        assert "INVALID_RECORD" in str(error) or "INVALID_TIMESTAMP" in str(error), error
        return False
    return True


def own_settings(cluster: KafkaCluster, topic: str) -> dict[str, str]:
    """Return the settings that a topic has of its own; none for a topic that is not there."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    client = admin(cluster)
    try:
        entries = client.describe_configs([resource])[resource].result(ANSWER_S)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return {}
        raise
    return {name: str(entry.value) for name, entry in entries.items() if entry.source == 1}


# ---- settings


def test_settings_follow_are_reset_and_go_back_to_the_default(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic = new_name("follows")
    remote = f"A.{topic}"
    make_topic(source_cluster, topic, 1, {"segment.ms": "100000"})
    begun = {"retention.ms": "-1", "segment.ms": "100000"}
    with Mm2py(one_way_properties(source_cluster, target_cluster, **OFTEN, **{"A->B.topics": topic})) as run:
        run.wait_until(lambda: own_settings(target_cluster, remote) == begun, "it is made with its settings")
        run.wait_for_event("topics.copying")
        set_by_hand(source_cluster, topic, cleanup_policy="compact,delete", segment_ms=None, retention_ms="7000000")
        changed = {"retention.ms": "7000000", "cleanup.policy": "compact,delete"}
        run.wait_until(lambda: own_settings(target_cluster, remote) == changed, "changes and a deletion follow")
        set_by_hand(target_cluster, remote, retention_ms="1", max_message_bytes="5", min_insync_replicas="1")
        left = {**changed, "min.insync.replicas": "1"}  # excluded, so nobody's business but the target's
        run.wait_until(lambda: own_settings(target_cluster, remote) == left, "what was set by hand is taken back")
        said = run.wait_for_event("topic_configs.changed", topic=remote, settings=re.compile("max.message.bytes"))
        assert "max.message.bytes: 5 -> (the target's default)" in said["settings"]
        set_by_hand(source_cluster, topic, message_timestamp_before_max_ms="1000", segment_bytes="1048576")
        run.wait_until(lambda: own_settings(target_cluster, remote).get("segment.bytes") == "1048576", "the last came")
        assert "message.timestamp.before.max.ms" not in own_settings(target_cluster, remote)
        assert run.terminate() == 0
        assert not run.events("topic_configs.failing")
        assert not run.events("topic_config.refused")


@pytest.mark.compat
def test_what_only_the_sources_brokers_know_is_left_out_alone(target_cluster: KafkaCluster) -> None:
    """B81: brokers before 4.0 had settings that later ones refuse. They keep neither a topic nor other settings out."""
    stem = new_name("older")
    born, later = f"{stem}-born", f"{stem}-later"
    try:
        older = KafkaCluster("older", kafka_version="3.9.2")
        older.start()
    except MissingTool as missing:
        pytest.skip(f"older brokers cannot be had: {missing.what}")
    with older:
        make_topic(older, born, 1, {"message.downconversion.enable": "false", "segment.ms": "100000"})
        make_topic(older, later)
        with Mm2py(one_way_properties(older, target_cluster, **OFTEN, **{"A->B.topics": f"{stem}.*"})) as run:
            for topic in (born, later):
                write(older, topic, [b"1"])
                run.wait_until(lambda topic=topic: values(target_cluster, f"A.{topic}") == [b"1"], "it is copied")
            limits = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}  # older ones had no limit
            assert own_settings(target_cluster, f"A.{born}") == {**limits, "segment.ms": "100000"}
            set_by_hand(older, later, message_downconversion_enable="false", segment_ms="200000")
            expected = {**limits, "segment.ms": "200000"}
            run.wait_until(lambda: own_settings(target_cluster, f"A.{later}") == expected, "the other setting comes")
            for topic in (born, later):
                said = run.wait_for_event("topic_config.refused", topic=f"A.{topic}")
                assert said["setting"] == "message.downconversion.enable"
                assert "INVALID_CONFIG" in said["why"]
            set_by_hand(older, later, segment_ms="300000")
            run.wait_until(
                lambda: own_settings(target_cluster, f"A.{later}").get("segment.ms") == "300000", "and comes again"
            )
            assert len(run.events("topic_config.refused")) == 2
            assert not run.events("topic.refused")
            assert run.terminate() == 0


# ---- ACLs


@pytest.fixture(scope="module")
def two_guarded() -> Iterator[tuple[KafkaCluster, KafkaCluster]]:
    """Two clusters with an authorizer; mm2py and the tests are their super user, but for one right at a time."""
    with start_clusters([KafkaCluster("guarded-a", settings=GUARD), KafkaCluster("guarded-b", settings=GUARD)]) as both:
        first, second = both
        yield first, second


def rule(
    name: str,
    principal: str,
    operation: AclOperation,
    permission: AclPermissionType = ALLOW,
    *,
    pattern: ResourcePatternType = LITERAL,
    host: str = "*",
    kind: ResourceType = ResourceType.TOPIC,
) -> AclBinding:
    return AclBinding(kind, name, pattern, principal, host, operation, permission)


def add_rules(cluster: KafkaCluster, rules: Iterable[AclBinding]) -> None:
    client = admin(cluster)
    for made in client.create_acls(list(rules)).values():
        made.result(ANSWER_S)


def delete_rules(cluster: KafkaCluster, name: str, principal: str, operation: AclOperation) -> None:
    own = AclBindingFilter(ResourceType.TOPIC, name, LITERAL, principal, None, operation, AclPermissionType.ANY)
    client = admin(cluster)
    client.delete_acls([own])[own].result(ANSWER_S)


def rules_of(cluster: KafkaCluster, stem: str) -> set[tuple[str, str, str, str, str, str, str]]:
    """Return all ACLs with ``stem`` in their name, of topics and of anything else, and those for every remote topic."""
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    client = admin(cluster)
    return {
        (
            *(one.restype.name, one.resource_pattern_type.name, one.name, one.principal, one.host),
            *(one.operation.name, one.permission_type.name),
        )
        for one in client.describe_acls(everything).result(ANSWER_S)
        if stem in one.name or one.name in {"A.", "*", "A.*"}
    }


def test_acls_follow_by_mirrormakers_rules_and_no_denial_is_lost(
    two_guarded: tuple[KafkaCluster, KafkaCluster],
) -> None:
    """B79, S24."""
    source, target = two_guarded
    topic = new_name("acls")
    create_topic(source, topic)
    odd = "User:CN=Jane Doe, OU=R&D, O=Wörks"
    add_rules(
        source,
        [
            rule(topic, odd, AclOperation.READ, host="10.1.2.3"),
            rule(topic, "User:boss", AclOperation.ALL),
            rule(topic, "User:writer", AclOperation.WRITE),
            rule(topic, "User:writer", AclOperation.WRITE, DENY, host="10.9.9.9"),
            rule(topic, "User:mallory", AclOperation.ALL, DENY),
            rule(topic, "User:tool", AclOperation.DESCRIBE_CONFIGS),
            rule("*", "User:reader", AclOperation.READ),
            rule("*", "User:eve", AclOperation.READ, DENY),
            rule(topic[:4], "User:eve", AclOperation.DESCRIBE, DENY, pattern=PREFIXED),
            rule(topic, "User:group", AclOperation.READ, kind=ResourceType.GROUP),
            rule(topic, "User:tx", AclOperation.WRITE, kind=ResourceType.TRANSACTIONAL_ID),
        ],
    )
    remote = f"A.{topic}"
    add_rules(target, [rule(remote, "User:local", AclOperation.READ)])
    expected = {
        ("TOPIC", "LITERAL", remote, "User:local", "*", "READ", "ALLOW"),
        ("TOPIC", "LITERAL", remote, odd, "10.1.2.3", "READ", "ALLOW"),
        ("TOPIC", "LITERAL", remote, "User:boss", "*", "READ", "ALLOW"),
        ("TOPIC", "LITERAL", remote, "User:writer", "10.9.9.9", "WRITE", "DENY"),
        ("TOPIC", "LITERAL", remote, "User:mallory", "*", "ALL", "DENY"),
        ("TOPIC", "LITERAL", remote, "User:tool", "*", "DESCRIBE_CONFIGS", "ALLOW"),
        ("TOPIC", "PREFIXED", "A.", "User:eve", "*", "READ", "DENY"),
        ("TOPIC", "PREFIXED", f"A.{topic[:4]}", "User:eve", "*", "DESCRIBE", "DENY"),
    }
    properties = one_way_properties(source, target, **OFTEN, **{"A->B.topics": topic})
    dry = {**properties, "sync.topic.acls.dry.run": True, "A->B.sync.topic.configs.dry.run": True}
    with Mm2py(dry) as run:
        run.wait_for_event("topics.copying")
        run.wait_until(lambda: sum(event["acls"] for event in run.events("topic_acls.planned")) == 7, "all are planned")
        assert sum(len(event["named"]) for event in run.events("topic_acls.named")) == 7
        set_by_hand(source, topic, retention_ms="1234567")
        said = run.wait_for_event("topic_configs.would_change", topic=remote)
        assert said["settings"] == "retention.ms: (the target's default) -> 1234567"
        assert run.terminate() == 0
    assert len(rules_of(target, topic)) == 1
    assert own_settings(target, remote) == {}
    with Mm2py(properties) as run:
        run.wait_until(lambda: rules_of(target, topic[:4]) == expected, "the rules are there")
        planned, created = run.wait_for_event("topic_acls.planned"), run.wait_for_event("topic_acls.created")
        assert run.log.index(planned) < run.log.index(created)
        assert {text for event in run.events("topic_acls.named") for text in event["named"]} >= {
            f"ALLOW READ on LITERAL {remote} for {odd} from 10.1.2.3",
            "DENY READ on PREFIXED A. for User:eve from *",
        }
        add_rules(source, [rule(topic, "User:late", AclOperation.READ)])
        delete_rules(source, topic, "User:boss", AclOperation.ALL)
        late = ("TOPIC", "LITERAL", remote, "User:late", "*", "READ", "ALLOW")
        run.wait_until(lambda: rules_of(target, topic[:4]) == {*expected, late}, "one comes, and none is deleted")
        run.wait_until(lambda: own_settings(target, remote) == {"retention.ms": "1234567"}, "settings follow")
        assert run.terminate() == 0
        assert len(run.events("topic_acls.left_out")) == 1


def test_the_rights_that_are_missing_are_named(
    make_cluster: Callable[..., KafkaCluster], two_guarded: tuple[KafkaCluster, KafkaCluster]
) -> None:
    """On the target everybody may do what no ACL speaks of. Two ACLs leave out one right each."""
    source, _ = two_guarded
    target = make_cluster("open", settings=OPEN)
    topic = new_name("rights")
    remote = f"A.{topic}"
    create_topic(source, topic)
    add_rules(source, [rule(topic, "User:jane", AclOperation.READ)])
    set_by_hand(source, topic, retention_ms="1234567")
    create_topic(target, remote)
    everybody = "User:*"
    add_rules(
        target, [rule(remote, everybody, AclOperation.ALL), rule(remote, everybody, AclOperation.ALTER_CONFIGS, DENY)]
    )
    properties = one_way_properties(source, target, **OFTEN, **{"A->B.topics": topic})
    with Mm2py(properties) as run:
        said = run.wait_for_event("topic_configs.denied", topic=remote)
        assert said["remedy"] == f"Grant ALTER_CONFIGS on topic {remote} on B."
        run.wait_for_event("topic_acls.created")
        delete_rules(target, remote, everybody, AclOperation.ALTER_CONFIGS)
        run.wait_until(lambda: own_settings(target, remote) == {"retention.ms": "1234567"}, "it follows when granted")
        assert len(run.events("topic_configs.denied")) == 1
        # From here on nobody may change ACLs there any more, the test included.
        left = ("CLUSTER_ACTION", "CREATE", "DESCRIBE", "DESCRIBE_CONFIGS", "IDEMPOTENT_WRITE")
        add_rules(
            target, [rule("kafka-cluster", everybody, AclOperation[one], kind=ResourceType.BROKER) for one in left]
        )
        add_rules(source, [rule(topic, "User:late", AclOperation.READ)])
        said = run.wait_for_event("topic_acls.denied", cluster="B")
        assert "CLUSTER_AUTHORIZATION_FAILED" in said["why"]
        assert said["remedy"].startswith("Grant ALTER on the cluster resource of B")
        write(source, topic, [b"1"])
        run.wait_until(lambda: values(target, remote) == [b"1"], "copying goes on")
        assert run.terminate() == 0
        assert len(run.events("topic_acls.denied")) == 1


def test_without_an_authorizer_on_either_side_it_is_said_once(
    source_cluster: KafkaCluster, two_guarded: tuple[KafkaCluster, KafkaCluster]
) -> None:
    topic = new_name("bare")
    guarded, _ = two_guarded
    create_topic(source_cluster, topic)
    create_topic(guarded, topic)
    add_rules(guarded, [rule(topic, "User:jane", AclOperation.READ)])
    properties = two_way_properties(source_cluster, guarded, names=("N", "G"), **OFTEN, topics=topic)
    with Mm2py(properties) as run:
        for flow in ("N->G", "G->N"):
            run.wait_for_event("topic_acls.no_authorizer", flow=flow, cluster="N")
            run.wait_for_event("topics.copying", flow=flow)
        # Settings have the same schedule: when they have followed twice, ACLs were looked at twice as well.
        for value in ("111", "222"):
            for cluster, remote in ((guarded, f"N.{topic}"), (source_cluster, f"G.{topic}")):
                set_by_hand(source_cluster, topic, segment_ms=value)
                set_by_hand(guarded, topic, segment_ms=value)
                run.wait_until(
                    lambda cluster=cluster, remote=remote, value=value: (
                        own_settings(cluster, remote) == {"segment.ms": value}
                    ),
                    "it follows",
                )
        assert len(run.events("topic_acls.no_authorizer")) == 2
        assert not run.events("topic_acls.planned")
        assert run.terminate() == 0


# ---- growth and deletion


def test_a_topic_grows_goes_and_comes_back_smaller(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> None:
    """Under latest: what is added is copied from its first record, while mm2py runs and while it does not."""
    topic = new_name("grows")
    remote = f"A.{topic}"
    make_topic(source_cluster, topic, 1)
    write(source_cluster, topic, [b"old"])

    def one_for_each(partitions: range) -> None:
        send(source_cluster, topic, [Planned(number, now_ms(), None, b"%d" % number, ()) for number in partitions])

    def copied() -> list[list[bytes | None]]:
        found = dump(target_cluster, remote, range(partitions_of(target_cluster, remote)))
        return [[record.value for record in found[number]] for number in sorted(found)]

    properties = one_way_properties(
        source_cluster, target_cluster, **{"A->B.topics": topic, "A.consumer.auto.offset.reset": "latest"}
    )
    with Mm2py(properties) as run:
        run.wait_for_event("topics.copying")
        add_partitions(source_cluster, topic, 3)
        one_for_each(range(1, 3))
        run.wait_until(lambda: copied() == [[], [b"1"], [b"2"]], "what was added is copied from its start")
        assert run.terminate() == 0
    add_partitions(source_cluster, topic, 4)
    one_for_each(range(3, 4))
    with Mm2py(properties) as run:
        run.wait_until(lambda: copied() == [[], [b"1"], [b"2"], [b"3"]], "so is what was added meanwhile")
        delete_topic(source_cluster, topic)
        said = run.wait_for_event("topic.gone", topic=topic)
        assert "the remote topic and its position are kept" in said["effect"]
        make_topic(source_cluster, topic, 2)
        write(source_cluster, topic, [b"another"])
        why = run.wait_for_event("topic.refused", topic=topic)["why"]
        assert "it was deleted and recreated upstream, with 2 partition(s) instead of 4" in why
        assert run.terminate() == 0
    with Mm2py(properties) as run:
        why = run.wait_for_event("topic.refused", topic=topic)["why"]
        assert "with 2 partition(s) instead of 4" in why
        assert copied() == [[], [b"1"], [b"2"], [b"3"]]
        assert run.terminate() == 0
