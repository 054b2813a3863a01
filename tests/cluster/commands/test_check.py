"""``mm2py check`` as a process on real brokers: each × and ‼ that a broker can give, and nothing is ever changed."""

from __future__ import annotations

import shlex
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from deploy.local.certificates import Authority, tls_listener, write_private
from deploy.local.jars import jar_directory
from deploy.local.java import java
from deploy.local.kafka import KafkaCluster, start_clusters
from tests.cluster.copies import make_topic, new_topic, set_by_hand
from tests.cluster.kafka_client import admin, create_topic, new_name, record_count, topic_names, values, write
from tests.cluster.least_rights import PASSWORD, GuardedPair, Right, guarded_pair
from tests.cluster.running import ANSWER_S, COMMAND_S, Mm2py, Value, one_way_properties, wait_until

LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
ALL_ON: Final = {
    "emit.checkpoints.enabled": True,
    "sync.group.offsets.enabled": True,
    "emit.heartbeats.enabled": True,
    "heartbeats.replication.enabled": True,
    "on.poison.record": "quarantine",
}


@pytest.fixture(scope="module")
def fresh_pair() -> Iterator[tuple[KafkaCluster, KafkaCluster]]:
    """Two clusters of one node in which no client has ever created anything."""
    with start_clusters([KafkaCluster("fresh-source"), KafkaCluster("fresh-target")]) as (source, target):
        yield source, target


@pytest.fixture(scope="module")
def pair() -> Iterator[GuardedPair]:
    with guarded_pair() as found:
        yield found


def properties(source: KafkaCluster | str, target: KafkaCluster | str, alias: str, **extra: Value) -> dict[str, Value]:
    """Return a file whose internal topics can be made on one broker, with an alias of its own."""
    return one_way_properties(source, target, names=(alias, "B"), **{"config.storage.replication.factor": 1, **extra})


def new_alias() -> str:
    return new_name("C").replace("-", "")


def found(code: int, body: Any, wanted: str, state: str) -> list[dict[str, Any]]:
    """Return the results with this code and state; what was printed is shown if there is none."""
    results = [one for one in body["results"] if (one["code"], one["state"]) == (wanted, state)]
    assert results, [one for one in body["results"] if one["code"] == wanted or one["state"] == "failed"]
    assert code == body["exit_code"]
    assert (code == 1) is any(one["state"] == "failed" for one in body["results"])
    return results


def one_found(run: Mm2py, wanted: str, state: str, *arguments: str) -> dict[str, Any]:
    code, body = run.check(*arguments)
    (result,) = found(code, body, wanted, state)
    return result


def everything(cluster: KafkaCluster) -> dict[str, Any]:
    """Return what a check must not change: topics with their settings and ends, groups, ACLs."""
    client = admin(cluster)
    topics = client.list_topics(timeout=ANSWER_S).topics
    partitions = {
        TopicPartition(name, number): OffsetSpec.latest()
        for name, topic in topics.items()
        for number in topic.partitions
    }  # no consumer: it would make Kafka's own topic of groups
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics]
    configs = {
        resource.name: {name: entry.value for name, entry in asked.result(ANSWER_S).items()}
        for resource, asked in (client.describe_configs(resources) if resources else {}).items()
    }
    groups = client.list_consumer_groups().result(ANSWER_S).valid
    return {
        "topics": {name: sorted(topic.partitions) for name, topic in topics.items()},
        "ends": wait_until(lambda: ends_of(client, partitions), "all leaders answer") if partitions else {},
        "configs": configs,
        "groups": sorted(group.group_id for group in groups),
    }


def ends_of(client: AdminClient, partitions: dict[TopicPartition, OffsetSpec]) -> dict[tuple[str, int], int] | None:
    """Return where partitions end; None while the client has not heard of a new topic's leader."""
    try:
        asked = client.list_offsets(partitions).items()
        return {(one.topic, one.partition): end.result(ANSWER_S).offset for one, end in asked}
    except KafkaException:
        return None


def acls(cluster: KafkaCluster) -> set[str]:
    anything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    return {str(one) for one in admin(cluster).describe_acls(anything).result(ANSWER_S)}


def test_before_the_first_start_all_is_well_and_nothing_is_created(
    fresh_pair: tuple[KafkaCluster, KafkaCluster],
) -> None:
    source, target = fresh_pair
    topic, alias = new_topic(source, "orders", 3), new_alias()
    run = Mm2py(properties(source, target, alias, **{f"{alias}->B.topics": topic, **ALL_ON}))
    before = everything(source), everything(target)
    assert "__transaction_state" not in topic_names(target)
    code, body = run.check("--pre")
    states = {one["code"]: one["state"] for one in body["results"]}
    assert code == 0, body
    assert {code for code, state in states.items() if state != "ok"} == {"MM0703", "MM0801", "MM0802"}, body
    assert states["MM0501"] == states["MM0504"] == states["MM0602"] == states["MM0302"] == "ok"
    (answers,) = [one for one in found(code, body, "MM0101", "ok") if one["subject"] == "B"]
    assert answers["sentence"] == f"B answers at {target.bootstrap} (1 broker, Kafka 4.3)"
    missing = [item for one in found(*run.check(), "MM0501", "warning") for item in one["items"]]
    assert {"mm2-offset-syncs.B.internal", f"mm2-ledger.{alias}.internal", "heartbeats"} <= {*missing}
    assert (everything(source), everything(target)) == before
    assert not {"__transaction_state", "__consumer_offsets"} & topic_names(target), "asking creates Kafka's own topics"


def test_a_worker_has_made_what_was_missing_and_its_heartbeats_tell_the_time(
    fresh_pair: tuple[KafkaCluster, KafkaCluster],
) -> None:
    source, target = fresh_pair
    topic, alias = new_topic(source, "orders"), new_alias()
    write(source, topic, [b"1", b"2"])
    file = properties(source, target, alias, **{f"{alias}->B.topics": topic})
    with Mm2py(file) as run:
        run.wait_until(lambda: record_count(target, f"{alias}.{topic}") == 2, "it is copied")
        run.wait_for_event("flight_recorder.topic_made")  # the last of its topics
        before = everything(target)["topics"]
        code, body = run.check()
        assert everything(target)["topics"] == before
        found(code, body, "MM0801", "ok")
        assert {one["state"] for one in body["results"] if one["code"].startswith("MM05")} == {"ok"}
        found(code, body, "MM0602", "ok")  # it is this flow's own: a position is stored
        found(code, body, "MM0703", "ok")
        assert code == 0
        assert run.terminate() == 0
    assert one_found(Mm2py(file), "MM0801", "not checkable")


def closed_port() -> str:
    """Return an address at which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def test_addresses(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> None:
    alias, dead = new_alias(), closed_port()
    wrong = Mm2py(properties(source_cluster, dead, alias))
    code, body = wrong.check()
    assert "cannot be reached: Connection refused" in found(code, body, "MM0101", "failed")[0]["sentence"]
    assert {one["waits_for"] for one in body["results"] if one["code"] in {"MM0403", "MM0501", "MM0801"}} >= {"B"}
    assert len([one for one in body["results"] if one["state"] == "failed"]) == 1, "it is said once"
    half = Mm2py(properties(source_cluster, f"{target_cluster.bootstrap},{dead}", alias))
    assert one_found(half, "MM0102", "warning", "--pre")["items"] == [dead]
    both = Mm2py(properties(f"{source_cluster.bootstrap},{target_cluster.bootstrap}", target_cluster, alias))
    assert "lead to 2 clusters" in one_found(both, "MM0103", "failed", "--pre")["sentence"]
    same = Mm2py(properties(target_cluster, target_cluster, alias))
    assert "are the same cluster" in one_found(same, "MM0105", "failed", "--pre")["sentence"]


def test_a_server_that_says_nothing_is_named_once(target_cluster: KafkaCluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        run = Mm2py(properties(address, target_cluster, new_alias(), **{"request.timeout.ms": 2000}))
        code, body = run.check("--pre")
        assert address in found(code, body, "MM0101", "failed")[0]["sentence"]


def test_a_broker_that_cannot_be_reached_at_what_it_advertises(
    target_cluster: KafkaCluster, make_cluster: Callable[..., KafkaCluster]
) -> None:
    cluster = make_cluster("three", nodes=3, settings={"broker.session.timeout.ms": 60_000})
    run = Mm2py(properties(f"127.0.0.1:{cluster.brokers[0].port}", target_cluster, new_alias()))
    cluster.brokers[2].kill()  # the others name it until its session ends
    result = one_found(run, "MM0104", "failed", "--pre")
    assert "broker 3 at 127.0.0.1:" in result["sentence"]


def test_internal_topics_that_lose_records_or_cannot_be_written(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    alias = new_alias()
    run = Mm2py(
        properties(
            source_cluster,
            target_cluster,
            alias,
            **{
                "mm2py.group": f"group-{alias}",
                "offset.storage.replication.factor": 3,
                "emit.checkpoints.enabled": True,
            },
        )
    )
    create_topic(target_cluster, f"mm2-offsets.{alias}.internal", configs={"cleanup.policy": "delete"})
    create_topic(target_cluster, f"mm2-cluster.group-{alias}.internal", 2)
    create_topic(
        target_cluster,
        f"mm2-status.{alias}.internal",
        configs={"cleanup.policy": "compact", "min.insync.replicas": "2"},
    )
    create_topic(target_cluster, f"{alias}.checkpoints.internal", configs={"cleanup.policy": "delete"})
    code, body = run.check("--pre")
    items = {item for one in found(code, body, "MM0502", "failed") for item in one["items"]}
    assert items == {f"mm2-offsets.{alias}.internal", f"mm2-cluster.group-{alias}.internal"}
    (checkpoints,) = found(code, body, "MM0502", "warning")
    assert checkpoints["items"] == [f"{alias}.checkpoints.internal"]
    (status,) = found(code, body, "MM0503", "failed")
    assert status["items"] == [f"mm2-status.{alias}.internal"]
    (ledger,) = found(code, body, "MM0504", "failed")
    assert "offset.storage.replication.factor is 3, and B has 1 broker" in ledger["sentence"]


def test_names_that_are_not_free(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> None:
    topic, other, alias = new_topic(source_cluster, "orders"), new_topic(source_cluster, "bills"), new_alias()
    make_topic(target_cluster, f"{alias}.{topic}")
    write(target_cluster, f"{alias}.{topic}", [b"of another writer"])
    make_topic(target_cluster, f"{alias}_{other}")
    run = Mm2py(properties(source_cluster, target_cluster, alias, **{f"{alias}->B.topics": f"{topic},{other},nowhere"}))
    code, body = run.check("--pre")
    (occupied,) = found(code, body, "MM0602", "failed")
    assert occupied["items"] == [f"{alias}.{topic}"]
    assert f"--allow-recopy '{alias}->B:{topic}'" in occupied["hint"]
    (alike,) = found(code, body, "MM0603", "failed")
    assert f"there is {alias}_{other}, whose name differs only in" in alike["sentence"]
    (unseen,) = found(code, body, "MM0601", "warning")
    assert unseen["items"] == ["nowhere"]
    nothing = Mm2py(properties(source_cluster, target_cluster, alias, **{f"{alias}->B.topics": "no-.*-such"}))
    assert "shows no topic that pattern" in one_found(nothing, "MM0601", "warning", "--pre")["sentence"]


def test_two_flows_into_one_topic_and_a_running_mirror_maker(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic, alias, other = new_topic(source_cluster, "orders"), new_alias(), new_alias()
    file = properties(source_cluster, target_cluster, alias)
    file |= {
        "clusters": f"{alias},{other},B",
        f"{other}.bootstrap.servers": source_cluster.bootstrap,
        f"{other}->B.enabled": True,
        "topics": topic,
        "replication.policy.class": "IdentityReplicationPolicy",
    }
    run = Mm2py(file)
    code, body = run.check("--pre")
    shared = found(code, body, "MM0604", "failed")
    assert {one["subject"] for one in shared} == {f"{alias}->B", f"{other}->B"}
    assert {one["subject"] for one in found(code, body, "MM0605", "ok")} == {f"{alias}->B", f"{other}->B"}
    consumer = Consumer({"bootstrap.servers": target_cluster.bootstrap, "group.id": f"{alias}-mm2"})
    consumer.subscribe([new_topic(target_cluster, "any")])
    try:
        wait_until(lambda: consumer.poll(0.1) is not None or consumer.assignment(), "it is a member")
        code, body = run.check("--pre")
        (running,) = found(code, body, "MM0605", "failed")
        assert running["subject"] == f"{alias}->B"
    finally:
        consumer.close()


def write_at(cluster: KafkaCluster, topic: str, at_ms: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    producer.produce(topic, b"at a time", partition=0, timestamp=at_ms)
    assert producer.flush(ANSWER_S) == 0


def test_sizes_retention_and_backlog(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> None:
    hour_ms, alias = 3_600_000, new_alias()
    topic = new_name("orders")
    create_topic(source_cluster, topic, 2, configs={"retention.ms": str(hour_ms)})
    old_ms = int(time.time() * 1000) - int(0.8 * hour_ms)
    write_at(source_cluster, topic, old_ms)
    file = properties(source_cluster, target_cluster, alias, **{f"{alias}->B.topics": topic})
    with Mm2py(file) as worker:
        worker.wait_until(lambda: record_count(target_cluster, f"{alias}.{topic}") == 1, "it is copied")
        assert worker.terminate() == 0
    write_at(source_cluster, topic, old_ms)
    set_by_hand(source_cluster, topic, max_message_bytes="5000000")
    set_by_hand(target_cluster, f"{alias}.{topic}", retention_ms="60000")
    run = Mm2py({**file, "replication.factor": 3, "remote.partitions.max": 1})
    code, body = run.check()
    (late,) = found(code, body, "MM0703", "warning")
    assert late["items"] == [f"{topic}-0"]
    assert "5,000,000 bytes do not fit" in found(code, body, "MM0701", "warning")[0]["sentence"]
    assert f"1 min on B, 1 h on {alias} (retention.ms)" in found(code, body, "MM0702", "warning")[0]["sentence"]
    assert "replication.factor is 3, and B has 1 broker" in found(code, body, "MM0704", "failed")[0]["sentence"]
    assert found(code, body, "MM0705", "failed")
    gone = admin(source_cluster).delete_records([TopicPartition(topic, 0, 2)])
    assert [one.result(ANSWER_S).low_watermark for one in gone.values()] == [2]
    assert one_found(run, "MM0703", "failed")["items"] == [f"{topic}-0"]


def test_a_clock_that_is_wrong(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> None:
    """No broker of ours has a wrong clock: a record from the future stands for what such a broker would store."""
    alias = new_alias()
    log = f"mm2-cluster.group-{alias}.internal"
    create_topic(target_cluster, log, configs={"message.timestamp.type": "CreateTime"})
    write_at(target_cluster, log, int(time.time() * 1000) + 600_000)
    run = Mm2py(properties(source_cluster, target_cluster, alias, **{"mm2py.group": f"group-{alias}"}))
    assert "s or more behind that of B" in one_found(run, "MM0801", "warning", "--pre")["sentence"]


def test_a_target_that_cannot_fence(source_cluster: KafkaCluster, make_cluster: Callable[..., KafkaCluster]) -> None:
    target = make_cluster("small", settings={"transaction.state.log.replication.factor": 3})
    run = Mm2py(properties(source_cluster, target, new_alias()))
    assert "the flow is copied at least once" in one_found(run, "MM0303", "warning", "--pre")["sentence"]
    must = Mm2py(properties(source_cluster, target, new_alias(), **{"B.exactly.once.source.support": "enabled"}))
    assert "the flow is refused" in one_found(must, "MM0303", "failed", "--pre")["sentence"]


# TLS and logins


def test_tls_and_logins(
    target_cluster: KafkaCluster, make_cluster: Callable[..., KafkaCluster], tmp_path: Path
) -> None:
    authority, stranger = Authority(), Authority()
    settings = {
        **tls_listener("TLS", tmp_path, authority.issue("broker"), authority, client_certificates=True),
        "listener.name.open.plain.sasl.jaas.config": f'{LOGIN} user_anna="{PASSWORD}";',
        "listener.name.open.sasl.enabled.mechanisms": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
    }
    listeners = {"PLAINTEXT": "PLAINTEXT", "TLS": "SSL", "OPEN": "SASL_PLAINTEXT"}
    cluster = make_cluster("secured", listeners=listeners, settings=settings)

    def asked(listener: str, **extra: Value) -> tuple[int, Any]:
        alias = new_alias()
        file = properties(cluster.bootstrap_for(listener), target_cluster, alias)
        return Mm2py({**file, **{f"{alias}.{key}": value for key, value in extra.items()}}).check("--pre")

    trust = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM"}

    def keys(days: tuple[int, int]) -> str:
        return str(write_private(tmp_path / "client.pem", authority.issue("client", valid_days=days).pem()))

    wrong = str(write_private(tmp_path / "stranger.pem", stranger.pem()))
    right = str(write_private(tmp_path / "ca.pem", authority.pem()))
    code, body = asked("TLS", **trust, **{"ssl.truststore.location": wrong, "ssl.keystore.location": keys((-1, 90))})
    assert found(code, body, "MM0201", "failed")
    assert not [one for one in body["results"] if one["code"] == "MM0101" and one["state"] == "failed"]
    code, body = asked("TLS", **trust, **{"ssl.truststore.location": right, "ssl.keystore.location": keys((-1, 9))})
    assert found(code, body, "MM0201", "ok")
    assert "expires in 8 days" in found(code, body, "MM0203", "warning")[0]["sentence"]
    sasl = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    code, body = asked("OPEN", **sasl, **{"sasl.jaas.config": f'{LOGIN} username="anna" password="wrong";'})
    (refused,) = found(code, body, "MM0202", "failed")
    assert "did not authenticate mm2py by PLAIN" in refused["sentence"]
    code, body = asked("OPEN", **sasl, **{"sasl.jaas.config": f'{LOGIN} username="anna" password="{PASSWORD}";'})
    assert found(code, body, "MM0202", "ok")[0]["sentence"].endswith("accepts the login of anna (PLAIN)")
    assert "records and the password" in found(code, body, "MM0201", "warning")[0]["sentence"]
    assert PASSWORD not in str(body)


# Rights


def carried_out(commands: list[str]) -> None:
    """Run commands as they are printed, with Kafka's own tool."""
    for command in commands:
        name, *arguments = shlex.split(command)
        assert name == "kafka-acls"
        subprocess.run(
            [str(java()), "-cp", f"{jar_directory()}/*", "org.apache.kafka.tools.AclCommand", *arguments],
            check=True,
            capture_output=True,
            timeout=COMMAND_S,
        )


def test_the_printed_commands_are_all_that_a_user_without_rights_needs(pair: GuardedPair) -> None:
    user, alias, topic = pair.grant([]), new_alias(), new_name("orders")
    make_topic(pair.source, topic)
    write(pair.source, topic, [b"1", b"2"])
    group = new_name("workers")
    file = pair.properties(user, alias, **{f"{alias}->B.topics": topic, "mm2py.group": group, "rest.enabled": False})
    run = Mm2py(file)
    as_admin = {
        pair.source.bootstrap_for("SASL"): pair.source.internal_bootstrap,
        pair.target.bootstrap_for("SASL"): pair.target.internal_bootstrap,
    }
    printed: list[str] = []
    for _ in range(4):
        before = acls(pair.source), acls(pair.target)
        code, body = run.check("--pre")
        assert (acls(pair.source), acls(pair.target)) == before
        commands = [command for one in body["results"] if one["state"] == "failed" for command in one["commands"]]
        if code == 0:
            break
        assert commands, body
        assert all(f"--allow-principal User:{user} " in command for command in commands)
        for listener, plain in as_admin.items():
            commands = [command.replace(listener, plain) for command in commands]
        carried_out(commands)
        printed += commands
    assert code == 0, body
    rights = {one["code"]: one["state"] for one in body["results"] if one["code"].startswith("MM04")}
    assert rights.pop("MM0404") == "not checkable"
    soft = {rights.pop(code) for code in ("MM0414", "MM0415", "MM0416")}
    assert soft == {"warning"}, "rings, the flight recorder and the history: the flow copies without"
    assert set(rights.values()) == {"ok"}
    assert rights.keys() == {"MM0401", "MM0402", "MM0403", "MM0405", "MM0406", "MM0407"}
    with Mm2py(file) as worker:
        worker.wait_until(lambda: values(pair.target, f"{alias}.{topic}") == [b"1", b"2"], "it is copied")
        assert not worker.events("producer.degraded")
        assert worker.terminate() == 0
    denied = [one for found_there in pair.decisions(user).values() for one in found_there if not one.allowed]
    assert denied, "before the commands were carried out, brokers denied what they grant"


def test_rights_of_features_that_are_missing(pair: GuardedPair) -> None:
    alias, topic = new_alias(), new_name("orders")
    user = pair.grant([Right("B", "topic", f"{alias}.{topic}", "DESCRIBE")])
    make_topic(pair.source, topic)
    file = pair.properties(
        user,
        alias,
        **{
            **ALL_ON,
            f"{alias}->B.topics": f"{topic}, {topic[:3]}.*",
            f"{alias}->B.emit.heartbeats.enabled": True,
            "groups": "billing",
            "sync.topic.configs.enabled": True,
            "sync.topic.acls.enabled": True,
        },
    )
    code, body = Mm2py(file).check("--pre")
    failed = {one["code"] for one in body["results"] if one["state"] == "failed"}
    assert failed >= {f"MM04{number:02}" for number in range(1, 14)}, body
    (read,) = found(code, body, "MM0401", "failed")
    assert read["commands"] == [
        f"kafka-acls --bootstrap-server {pair.source.bootstrap_for('SASL')} --add --allow-principal User:{user}"
        f" --operation Read --operation DescribeConfigs --topic {topic}"
    ]
    (unseen,) = found(code, body, "MM0601", "warning")
    assert unseen["items"] == [f"{topic[:3]}.*"], "what it would match is hidden, so its rights were not checked"
    assert found(code, body, "MM0601", "not checkable")
    assert found(code, body, "MM0414", "warning")
    assert found(code, body, "MM0415", "warning")
    assert found(code, body, "MM0416", "warning")


def test_a_target_that_answers_the_login_and_then_nothing(target_cluster: KafkaCluster) -> None:
    """A frozen broker: its socket is accepted by the system, and nothing is answered in time."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)

        def accept() -> None:
            while not stop.is_set():
                try:
                    server.accept()
                except TimeoutError:
                    continue

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        run = Mm2py(
            properties(
                target_cluster,
                f"127.0.0.1:{server.getsockname()[1]}",
                new_alias(),
                **{"request.timeout.ms": 2000},
            )
        )
        code, body = run.check("--pre")
        stop.set()
        thread.join(ANSWER_S)
    assert found(code, body, "MM0101", "failed")[0]["subject"] == "B"
