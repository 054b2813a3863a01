"""The starter keeps its promises: ready soon, data kept, nothing left behind however a run ends."""

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from deploy.local import kafka, ports
from deploy.local.boot_image import boot_image
from deploy.local.errors import ServerNotReady, StarterError
from deploy.local.jars import jar_directory
from deploy.local.kafka import KafkaCluster, start_clusters
from deploy.local.ports import HOST, PortLease
from deploy.local.probe import NotReady, cluster_view
from deploy.local.zookeeper import ZooKeeper
from tests.cluster.running import ANSWER_S, COMMAND_S, PATIENCE, wait_until

MakeCluster = Callable[..., KafkaCluster]
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def one_node() -> Iterator[KafkaCluster]:
    with KafkaCluster("starter") as cluster:
        yield cluster


def quiet(**settings: str) -> dict[str, str | int | float | bool]:
    return {**{name.replace("_", "."): value for name, value in settings.items()}, "log_level": 0}


def write_and_read_back(cluster: KafkaCluster, topic: str, value: bytes) -> list[bytes]:
    """Append one record to a topic of one partition, made if need be; return all values in it."""
    client = AdminClient(quiet(bootstrap_servers=cluster.bootstrap))
    if topic not in client.list_topics(timeout=ANSWER_S).topics:
        client.create_topics([NewTopic(topic, 1, 1)])[topic].result(ANSWER_S)
    producer = Producer(quiet(bootstrap_servers=cluster.bootstrap))
    producer.produce(topic, value)
    assert producer.flush(ANSWER_S) == 0
    return read_all(cluster, topic)


def read_all(cluster: KafkaCluster, topic: str) -> list[bytes]:
    consumer = Consumer(quiet(bootstrap_servers=cluster.bootstrap, group_id="unused"))
    try:
        end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=ANSWER_S)[1]
        consumer.assign([TopicPartition(topic, 0, 0)])
        values: list[bytes] = []
        while len(values) < end:
            message = consumer.poll(ANSWER_S)
            assert message is not None
            assert message.error() is None
            values.append(message.value() or b"")
        return values
    finally:
        consumer.close()


def configuration_of(bootstrap: str, broker_id: int) -> dict[str, str]:
    client = AdminClient(quiet(bootstrap_servers=bootstrap))
    resource = ConfigResource(ResourceType.BROKER, str(broker_id))
    entries = client.describe_configs([resource])[resource].result(ANSWER_S)
    return {name: entry.value for name, entry in entries.items()}


def is_gone(process_id: int) -> bool:
    """Whether the process has ended; one that nobody has collected yet has."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_one_node_is_ready_in_time_once_the_jars_are_there(make_cluster: MakeCluster) -> None:
    boot_image(jar_directory())
    started_s = time.monotonic()
    cluster = make_cluster()  # ServerNotReady, if it takes longer
    print(f"one node was ready after {time.monotonic() - started_s:.2f} s")
    assert write_and_read_back(cluster, "orders", b"1") == [b"1"]


def test_two_clusters_start_at_once_and_are_not_the_same(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    assert source_cluster.bootstrap != target_cluster.bootstrap
    assert source_cluster.cluster_id != target_cluster.cluster_id


@pytest.mark.parametrize("way_down", ["stop", "kill"])
def test_a_node_comes_back_with_its_port_and_its_data(one_node: KafkaCluster, way_down: str) -> None:
    topic = f"kept-{way_down}"
    bootstrap, broker = one_node.bootstrap, one_node.brokers[0]
    assert write_and_read_back(one_node, topic, b"before") == [b"before"]
    first_pid = broker.pid
    getattr(broker, way_down)()
    assert not broker.alive
    assert is_gone(first_pid)
    with pytest.raises(StarterError, match="not running"):
        _ = broker.pid
    broker.start()
    assert broker.pid != first_pid
    assert one_node.bootstrap == bootstrap
    assert write_and_read_back(one_node, topic, b"after") == [b"before", b"after"]


def test_restart_appends_to_the_same_log(one_node: KafkaCluster) -> None:
    broker = one_node.brokers[0]
    before = broker.log_path.read_text()
    broker.restart()
    after = broker.log_path.read_text()
    assert after.startswith(before)
    assert after.count("Kafka Server started") == before.count("Kafka Server started") + 1


def test_a_frozen_node_keeps_its_port_and_says_nothing_until_it_thaws(one_node: KafkaCluster) -> None:
    broker = one_node.brokers[0]
    port = broker.port
    broker.freeze()
    try:
        assert broker.alive
        with socket.create_connection((HOST, port), timeout=ANSWER_S):
            pass  # the kernel accepts for it
        with pytest.raises(NotReady, match="timed out"):
            cluster_view(HOST, port, timeout_s=0.5)
    finally:
        broker.thaw()
    assert cluster_view(HOST, port, timeout_s=30).broker_ids == {1}


def test_a_frozen_node_can_be_stopped(make_cluster: MakeCluster) -> None:
    broker = make_cluster().brokers[0]
    broker.freeze()
    broker.stop()
    assert not broker.alive


@pytest.mark.slow
def test_three_nodes_go_on_when_one_is_killed_and_take_it_back(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(nodes=3)
    assert len(cluster.bootstrap.split(",")) == 3
    port = cluster.broker(1).port
    assert cluster_view(HOST, port).broker_ids == {1, 2, 3}
    client = AdminClient(quiet(bootstrap_servers=cluster.bootstrap))
    client.create_topics([NewTopic("copied", 3, 3)])["copied"].result(ANSWER_S)
    cluster.broker(3).kill()
    wait_until(lambda: cluster_view(HOST, port).broker_ids == {1, 2}, "the session of 3 ends")
    producer = Producer(quiet(bootstrap_servers=cluster.bootstrap))
    for partition in range(3):
        producer.produce("copied", b"x", partition=partition)
    assert producer.flush(ANSWER_S) == 0
    cluster.broker(3).start()
    assert cluster_view(HOST, port).broker_ids == {1, 2, 3}


def test_settings_reach_the_brokers_and_a_nodes_own_win(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(
        nodes=2,
        settings={"message.max.bytes": 2_000_000, "broker.rack": "both"},
        node_settings={2: {"broker.rack": "second"}},
    )
    first, second = (configuration_of(cluster.bootstrap, node_id) for node_id in (1, 2))
    assert first["message.max.bytes"] == second["message.max.bytes"] == "2000000"
    assert (first["broker.rack"], second["broker.rack"]) == ("both", "second")
    assert first["auto.create.topics.enable"] == "false"


def test_a_cluster_behind_sasl_and_an_authorizer_turns_strangers_away(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(
        listeners={"CLIENT": "SASL_PLAINTEXT"},
        settings={
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.client.scram-sha-256.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:anna",
        },
        format_options=[
            *("--add-scram", "SCRAM-SHA-256=[name=anna,password=secret]"),
            *("--add-scram", "SCRAM-SHA-256=[name=otto,password=secret]"),
        ],
    )

    def client(user: str, password: str) -> AdminClient:
        return AdminClient(
            quiet(
                bootstrap_servers=cluster.bootstrap,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="SCRAM-SHA-256",
                sasl_username=user,
                sasl_password=password,
            )
        )

    anna = client("anna", "secret")
    anna.create_topics([NewTopic("private", 1, 1)])["private"].result(ANSWER_S)
    assert "private" in anna.list_topics(timeout=ANSWER_S).topics
    assert "private" not in client("otto", "secret").list_topics(timeout=ANSWER_S).topics
    with pytest.raises(KafkaException):
        client("anna", "wrong").list_topics(timeout=3 * PATIENCE)
    inside = AdminClient(quiet(bootstrap_servers=cluster.internal_bootstrap))
    assert "private" in inside.list_topics(timeout=ANSWER_S).topics


def test_a_broker_that_does_not_start_shows_why_and_leaves_nothing(make_cluster: MakeCluster) -> None:
    cluster = KafkaCluster("broken", settings={"log.cleaner.threads": -1})
    with pytest.raises(ServerNotReady, match=r"exit code 1(?s:.*)log\.cleaner\.threads"):
        cluster.start()
    assert cluster.directory is None
    assert cluster.brokers == []


def test_one_failed_start_closes_the_others() -> None:
    good, broken = KafkaCluster("good"), KafkaCluster("broken", settings={"num.io.threads": 0})
    with pytest.raises(ServerNotReady), start_clusters([good, broken]):
        pytest.fail("it started")
    assert good.directory is None


def test_a_port_that_somebody_took_meanwhile_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as thief:
        thief.bind((HOST, 0))
        thief.listen()
        taken = thief.getsockname()[1]
        leases = iter([[PortLease(taken, -1), *ports.lease_ports(1)]])
        monkeypatch.setattr(kafka, "lease_ports", lambda count: next(leases, None) or ports.lease_ports(count))
        with KafkaCluster("pushed") as cluster:
            assert str(taken) not in cluster.bootstrap
            assert write_and_read_back(cluster, "orders", b"1") == [b"1"]


def test_close_leaves_no_process_and_no_directory() -> None:
    cluster = KafkaCluster("gone")
    cluster.start()
    directory, pid = cluster.directory, cluster.brokers[0].pid
    assert directory is not None
    assert directory.is_dir()
    cluster.close()
    cluster.close()
    assert is_gone(pid)
    assert not directory.exists()


START_AND_WAIT = """
import signal, sys
from deploy.local.kafka import KafkaCluster

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are begun with it ignored
cluster = KafkaCluster("orphan")
cluster.start()
cluster.brokers[0].freeze()
print(cluster.brokers[0].pid, cluster.directory, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, None])
def test_nothing_is_left_however_the_starting_process_ends(ending: signal.Signals | None) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", START_AND_WAIT],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert starter.stdin is not None
    assert starter.stdout is not None
    pid_text, directory = starter.stdout.readline().split()
    assert not is_gone(int(pid_text))
    if ending is None:
        starter.stdin.close()  # it runs to its end without closing the cluster
    else:
        starter.send_signal(ending)
    starter.wait(COMMAND_S)
    wait_until(lambda: is_gone(int(pid_text)), "the broker ends")
    wait_until(lambda: not Path(directory).exists(), "the directory goes")


START_AND_DIE = """
import os, signal
from deploy.local.kafka import KafkaCluster

cluster = KafkaCluster("orphan", environment={"MM2PY_TEST": "TOKEN"})
cluster.start()
cluster.brokers[0].kill()
cluster.brokers[0].start(wait=False)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_broker_started_the_instant_before_the_end_is_found_too() -> None:
    token = uuid.uuid4().hex
    script = START_AND_DIE.replace("TOKEN", token)
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False, stderr=subprocess.DEVNULL)
    assert ended.returncode == -signal.SIGKILL
    wait_until(lambda: not processes_with(token), "the broker ends")


def processes_with(token: str) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if token.encode() in Path(f"/proc/{entry}/environ").read_bytes():
                    found.append(int(entry))
            except OSError:
                continue
    return found


def test_zookeeper_serves_comes_back_and_leaves_nothing() -> None:
    with ZooKeeper() as zookeeper:
        connect, directory, pid = zookeeper.connect, zookeeper.directory, zookeeper.pid
        zookeeper.kill()
        assert not zookeeper.alive
        zookeeper.start()
        assert zookeeper.connect == connect
        assert zookeeper.pid != pid
        pid = zookeeper.pid
    assert is_gone(pid)
    assert directory is not None
    assert not directory.exists()


@pytest.mark.compat
@pytest.mark.timeout(600 * PATIENCE)
@pytest.mark.parametrize("kafka_version", ["3.3.2", "3.9.2"])
def test_older_brokers_start_and_keep_their_data_too(make_cluster: MakeCluster, kafka_version: str) -> None:
    cluster = make_cluster(kafka_version=kafka_version)
    assert write_and_read_back(cluster, "orders", b"1") == [b"1"]
    cluster.brokers[0].restart()
    assert write_and_read_back(cluster, "orders", b"2") == [b"1", b"2"]
