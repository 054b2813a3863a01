"""Mistakes, missing rights and strangers: a clear message names the thing, nothing hangs, nothing else stops."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from deploy.local.kafka import KafkaCluster
from tests.cluster.kafka_client import admin, create_topic, new_name, record_count, values, write
from tests.cluster.running import (
    ANSWER_S,
    COMMAND_S,
    DEADLINE_S,
    OWN_PATH,
    PATIENCE,
    Event,
    Mm2py,
    one_way_properties,
    wait_until,
)
from tests.cluster.strangers import closed_port, door, strangers

ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
IDLE_S = 20.0
IDLE_PARTITIONS = 200


@pytest.fixture(scope="module")
def idle_worker(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Iterator[Mm2py]:
    """A worker of 200 partitions that has nothing to do while the other tests of this file run."""
    stem = new_name("idle")
    for number in range(4):
        create_topic(source_cluster, f"{stem}-{number}", IDLE_PARTITIONS // 4)
        write(source_cluster, f"{stem}-{number}", [b"1"])
    with Mm2py(one_way_properties(source_cluster, target_cluster, **{"A->B.topics": f"{stem}.*"})) as mm2py:
        for number in range(4):
            mm2py.wait_until(
                lambda number=number: record_count(target_cluster, f"A.{stem}-{number}") == 1,  # type: ignore[misc]
                "it is copied",
            )
        yield mm2py


@pytest.fixture
def unreachable() -> dict[str, Any]:
    """A flow between two ports at which nobody listens."""
    return one_way_properties(f"127.0.0.1:{closed_port()}", f"127.0.0.1:{closed_port()}")


def seconds_between(first: Event, second: Event) -> float:
    times = [datetime.fromisoformat(event["timestamp"]) for event in (first, second)]
    return (times[1] - times[0]).total_seconds()


def no_traceback(mm2py: Mm2py) -> bool:
    return "Traceback" not in mm2py.text() and not any(event["event"] == "" for event in mm2py.log)


# -- who does not answer, and who answers something else ---------------------------------------------------------------


def test_strangers_and_dead_clusters_are_named_again_and_again_and_the_good_flow_goes_on(
    idle_worker: Mm2py, source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    topic = new_name("orders")
    create_topic(source_cluster, topic)
    write(source_cluster, topic, [b"1"])
    dead, late = closed_port(), closed_port()
    says = {
        "http": "does not answer as a Kafka broker: it begins with the text 'HTTP'.",
        "tls": "does not answer as a Kafka broker: it speaks TLS, and security.protocol is PLAINTEXT.",
        "ssh": "does not answer as a Kafka broker: it begins with the text 'SSH-'.",
        "silent": "does not answer as a Kafka broker: it accepts connections but says nothing within 10 s.",
        "huge": "does not answer as a Kafka broker: it begins with the bytes 7fffffff.",
        "confused": "sent a reply that cannot be read: reply to request 1, which is not the oldest one open.",
        "endless": "does not answer as a Kafka broker: its first reply cannot be read: 4294967295 announced,",
        "crowded": "answered Metadata with more than 3,000,000 values.",
    }
    with strangers() as ports:
        properties = one_way_properties(source_cluster, target_cluster, topics=topic)
        properties["clusters"] = ",".join(["A,B,dead,nowhere,late", *ports])
        properties["dead.bootstrap.servers"] = f"127.0.0.1:{dead}"
        properties["nowhere.bootstrap.servers"] = f"127.0.0.1:{dead}"
        properties["late.bootstrap.servers"] = f"127.0.0.1:{late}"
        properties |= {f"{kind}.bootstrap.servers": f"127.0.0.1:{port}" for kind, port in ports.items()}
        properties |= {f"{source}->B.enabled": True for source in ["dead", "late", *ports]}
        properties["A->nowhere.enabled"] = True
        with Mm2py(properties) as mm2py:
            mm2py.wait_until(lambda: values(target_cluster, f"A.{topic}") == [b"1"], "the good flow copies")
            flow, group = {"flow": "dead->B"}, {"flows": "A->nowhere"}  # a target is reached for all that leads there
            for alias, role, whose in [("dead", "source", flow), ("nowhere", "target", group)]:
                first = mm2py.wait_for_event("cluster.unreachable", cluster=alias, role=role, **whose)
                assert first["why"] == (
                    f"127.0.0.1:{dead} cannot be reached: Connection refused. "
                    "Check address, port and network; mm2py keeps trying."
                )
                again = mm2py.wait_for_event("cluster.unreachable", after=first, cluster=alias)
                assert seconds_between(first, again) > 4
            for kind, port in ports.items():
                why = mm2py.wait_for_event("cluster.unreachable", cluster=kind, role="source")["why"]
                assert why.startswith(f"127.0.0.1:{port} {says[kind]}"), kind
            with door(late, source_cluster.bootstrap):
                mm2py.wait_for_event("cluster.reached", cluster="late")
                mm2py.wait_until(lambda: values(target_cluster, f"late.{topic}") == [b"1"], "who came late is copied")
            write(source_cluster, topic, [b"2"])
            mm2py.wait_until(lambda: values(target_cluster, f"A.{topic}") == [b"1", b"2"], "the good flow goes on")
            assert mm2py.terminate() == 0
            assert no_traceback(mm2py)


# -- rights ------------------------------------------------------------------------------------------------------------


@contextmanager
def acls(cluster: KafkaCluster, *entries: tuple[ResourceType, str, AclOperation, AclPermissionType]) -> Iterator[None]:
    """Give everybody these rights, or take them away, for as long as the block runs."""
    client = admin(cluster)

    def pattern(kind: ResourceType) -> ResourcePatternType:  # transactional ids are new for each life of a flow
        return ResourcePatternType.PREFIXED if kind is ResourceType.TRANSACTIONAL_ID else ResourcePatternType.LITERAL

    bindings = [
        AclBinding(kind, name, pattern(kind), "User:ANONYMOUS", "*", operation, permission)
        for kind, name, operation, permission in entries
    ]
    for done in client.create_acls(bindings).values():
        done.result(ANSWER_S)
    filters = [
        AclBindingFilter(kind, name, pattern(kind), "User:ANONYMOUS", "*", operation, permission)
        for kind, name, operation, permission in entries
    ]
    try:
        yield
    finally:
        for deleted in client.delete_acls(filters).values():
            deleted.result(ANSWER_S)


def everything_but(
    kind: ResourceType, name: str, *denied: AclOperation
) -> list[tuple[ResourceType, str, AclOperation, AclPermissionType]]:
    return [(kind, name, AclOperation.ALL, ALLOW), *((kind, name, operation, DENY) for operation in denied)]


def test_a_missing_right_stops_one_topic_and_no_other_until_it_is_given(
    source_cluster: KafkaCluster, guarded_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """A->G lacks rights on its target, G->B on its source."""
    stem = new_name("rights")
    words = ("good", "unread", "undescribed", "unwritten", "uncreated", "narrow", "unseen")
    topics = {word: f"{stem}-{word}" for word in words}
    for cluster in (source_cluster, guarded_cluster):
        for word in words:
            create_topic(cluster, topics[word], 3 if word == "narrow" else 1)
            write(cluster, topics[word], [b"1"])
    create_topic(guarded_cluster, f"A.{topics['unwritten']}")
    create_topic(guarded_cluster, f"A.{topics['unseen']}")
    create_topic(guarded_cluster, f"A.{topics['narrow']}", 2)
    write(source_cluster, topics["narrow"], [b"into the void"], partition=2)
    topic, group = ResourceType.TOPIC, ResourceType.GROUP
    denied = [
        *everything_but(topic, topics["unread"], AclOperation.READ),
        *everything_but(topic, topics["undescribed"], AclOperation.DESCRIBE_CONFIGS),
        *everything_but(topic, f"A.{topics['unwritten']}", AclOperation.WRITE),
        *everything_but(topic, f"A.{topics['narrow']}", AclOperation.ALTER),
        *everything_but(topic, f"A.{topics['unseen']}", AclOperation.DESCRIBE, AclOperation.WRITE),
        *everything_but(ResourceType.BROKER, "kafka-cluster", AclOperation.CREATE),
        *everything_but(topic, f"A.{topics['uncreated']}", AclOperation.CREATE),
        *everything_but(group, "A-mm2", AclOperation.DESCRIBE),
        *everything_but(ResourceType.TRANSACTIONAL_ID, "mm2py-", AclOperation.WRITE),
    ]
    properties = {
        **one_way_properties(source_cluster, target_cluster),
        "clusters": "A,B,G",
        "G.bootstrap.servers": guarded_cluster.bootstrap,
        "A->B.enabled": False,
        "A->G.enabled": True,
        "G->B.enabled": True,
        "topics": f"{stem}.*",
    }

    def copied(cluster: KafkaCluster, source: str, word: str) -> Callable[[], bool]:
        return lambda: record_count(cluster, f"{source}.{topics[word]}") == 1

    with acls(guarded_cluster, *denied), Mm2py(properties) as mm2py:
        for word in ("good", "unread", "undescribed", "narrow"):
            mm2py.wait_until(copied(guarded_cluster, "A", word), f"A.{word} is copied")
        for word in ("good", "unwritten", "uncreated", "narrow", "unseen"):
            mm2py.wait_until(copied(target_cluster, "G", word), f"G.{word} is copied")

        def why(event: str, flow: str, word: str) -> str:
            found = mm2py.wait_for_event(event, flow=flow, topic=topics[word], level="error")["why"]
            assert isinstance(found, str)
            return found

        assert "mm2py may not read the source topic (TOPIC_AUTHORIZATION_FAILED (29))" in why(
            "source.denied", "G->B", "unread"
        )
        assert re.search(
            rf"refused: .*TOPIC_AUTHORIZATION_FAILED.* Grant DESCRIBE_CONFIGS on {topics['undescribed']}\.",
            why("topic.refused", "G->B", "undescribed"),
        )
        assert "mm2py may not write to the remote topic (TOPIC_AUTHORIZATION_FAILED (29))" in why(
            "target.denied", "A->G", "unwritten"
        )
        assert f"Grant CREATE on A.{topics['uncreated']} on G" in why("topic.refused", "A->G", "uncreated")
        assert f"A.{topics['unseen']}" in why("topic.refused", "A->G", "unseen")
        narrow = why("topic.too_narrow", "A->G", "narrow")
        assert narrow.startswith(f"Remote topic A.{topics['narrow']} has 2 partitions, its upstream topic 3: ")
        assert f"Grant mm2py ALTER on A.{topics['narrow']}, or add the partitions by hand" in narrow
        assert "DESCRIBE on group A-mm2" in mm2py.wait_for_event("mm2.unknown", flow="A->G")["remedy"]
        degraded = mm2py.wait_for_event("producer.degraded", flow="A->G")["why"]
        assert "The target grants no transactional id" in degraded
        assert "Grant WRITE and DESCRIBE on transactional ids with prefix mm2py-" in degraded

        with_rights = [entry for entry in denied if entry[1] in {topics["unread"], f"A.{topics['unwritten']}"}]
        client = admin(guarded_cluster)
        for kind, name, operation, permission in with_rights:
            filtered = AclBindingFilter(kind, name, ResourcePatternType.LITERAL, None, None, operation, permission)
            client.delete_acls([filtered])[filtered].result(ANSWER_S)
        mm2py.wait_until(copied(target_cluster, "G", "unread"), "the right to read was given")
        mm2py.wait_until(copied(guarded_cluster, "A", "unwritten"), "the right to write was given")
        assert mm2py.terminate() == 0
        assert no_traceback(mm2py)
        assert not mm2py.events("flow.failed")


def test_a_topic_that_vanishes_and_returns_loses_no_record(
    guarded_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """The right to see it is taken away and given back; the record written then was acknowledged as a repeat."""
    stem = new_name("vanishing")
    create_topic(guarded_cluster, stem)
    write(guarded_cluster, stem, [b"1"])
    unseen = everything_but(ResourceType.TOPIC, stem, AclOperation.DESCRIBE, AclOperation.READ)
    with Mm2py(one_way_properties(guarded_cluster, target_cluster, **{"A->B.topics": stem})) as mm2py:
        mm2py.wait_until(lambda: values(target_cluster, f"A.{stem}") == [b"1"], "it is copied")
        with acls(guarded_cluster, *unseen):
            mm2py.wait_for_event("topic.hidden", topic=stem)
        write(guarded_cluster, stem, [b"2"])
        mm2py.wait_until(lambda: values(target_cluster, f"A.{stem}") == [b"1", b"2"], "the next record is copied")
        assert mm2py.terminate() == 0


# -- records and topics that do not fit --------------------------------------------------------------------------------


def test_a_record_too_large_for_the_target_stops_its_partition_only_and_is_named(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    stem = new_name("large")
    large, other = f"{stem}-large", f"{stem}-other"
    create_topic(source_cluster, large, 2, {"max.message.bytes": "2000000"})
    create_topic(target_cluster, f"A.{large}", 2, {"max.message.bytes": "10000"})
    create_topic(source_cluster, other)
    write(source_cluster, large, [b"1"])
    write(source_cluster, large, [os.urandom(20_000)])
    write(source_cluster, large, [b"3"])
    write(source_cluster, large, [os.urandom(1_000) for _ in range(50)], partition=1)  # one batch, to be split
    write(source_cluster, other, [b"1"])
    own = {"A->B.topics": f"{stem}.*", "sync.topic.configs.enabled": False}  # the sync would undo what is set by hand
    with Mm2py(one_way_properties(source_cluster, target_cluster, **own)) as mm2py:
        mm2py.wait_until(lambda: record_count(target_cluster, f"A.{large}", [1]) == 50, "the batch was split")
        mm2py.wait_until(lambda: record_count(target_cluster, f"A.{other}") == 1, "the other topic is copied")
        event = mm2py.wait_for_event("source.too_large", topic=large, partition=0)
        assert re.search(r"offset 1 .*\b20,?\d\d\d bytes, the target takes 10,?000\b", event["why"])
        assert values(target_cluster, f"A.{large}") == [b"1"]
        assert mm2py.terminate() == 0


# -- how it ends -------------------------------------------------------------------------------------------------------


def test_a_second_ctrl_c_ends_a_drain_that_waits_for_a_dead_target(
    source_cluster: KafkaCluster, guarded_cluster: KafkaCluster
) -> None:
    topic = new_name("frozen")
    create_topic(source_cluster, topic)
    write(source_cluster, topic, [b"1"])
    with Mm2py(one_way_properties(source_cluster, guarded_cluster, **{"A->B.topics": topic})) as mm2py:
        mm2py.wait_until(lambda: record_count(guarded_cluster, f"A.{topic}") == 1, "it copies")
        guarded_cluster.brokers[0].freeze()
        try:
            write(source_cluster, topic, [b"2"])
            mm2py.signal(signal.SIGINT)
            mm2py.wait_for_event("worker.draining")
            with pytest.raises(AssertionError, match="not within 1 s"):
                mm2py.wait(deadline_s=1)
            mm2py.signal(signal.SIGINT)
            assert mm2py.wait(deadline_s=10 * PATIENCE) == 130
            assert no_traceback(mm2py)
        finally:
            guarded_cluster.brokers[0].thaw()


@pytest.mark.slow
def test_a_stop_ends_although_the_target_takes_neither_records_nor_positions(
    source_cluster: KafkaCluster, guarded_cluster: KafkaCluster
) -> None:
    topic = new_name("stuck")
    create_topic(source_cluster, topic)
    write(source_cluster, topic, [b"1"])
    with Mm2py(one_way_properties(source_cluster, guarded_cluster, **{"A->B.topics": topic})) as mm2py:
        mm2py.wait_until(lambda: record_count(guarded_cluster, f"A.{topic}") == 1, "it copies")
        guarded_cluster.brokers[0].freeze()
        try:
            write(source_cluster, topic, [b"2"])
            assert mm2py.terminate(deadline_s=60 * PATIENCE) == 1
            assert mm2py.events("drain.failed", flow="A->B")
        finally:
            guarded_cluster.brokers[0].thaw()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_nothing_can_be_reached_ends_with_0(unreachable: dict[str, Any], number: signal.Signals) -> None:
    with Mm2py(unreachable) as mm2py:
        mm2py.wait_for_event("cluster.unreachable")
        mm2py.signal(number)
        assert mm2py.wait() == 0
        assert [event["event"] for event in mm2py.log][-3:] == ["worker.stopping", "worker.draining", "worker.drained"]
        assert no_traceback(mm2py)


def closes(*descriptors: int) -> dict[str, Any]:
    """Arguments to Popen: the child begins with these descriptors closed, as after ``<&-`` or ``>&-`` in a shell."""

    def close() -> None:
        for descriptor in descriptors:
            os.close(descriptor)

    return {"preexec_fn": close}


SURROUNDINGS: dict[str, dict[str, Any]] = {
    "no standard input": {"popen": closes(0)},
    "no standard output": {"popen": closes(1)},
    "no standard error": {"popen": closes(2)},
    "no descriptor at all": {"popen": closes(0, 1, 2)},
    "a full disk behind the log": {"popen": {"stderr": Path("/dev/full")}},
    "locale C": {
        "environment": {"LC_ALL": "C", "LANG": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    },
    "no home": {"environment": {"HOME": None, "USER": None, "LOGNAME": None, "TMPDIR": None}},
    "nearly no environment": {"environment": dict.fromkeys(os.environ.keys() - {"PATH", "PYTHONPATH"})},
    "optimised": {"environment": {"PYTHONOPTIMIZE": "1"}},
    "a directory of the system": {"working_directory": Path("/proc")},
}


def test_odd_surroundings_change_nothing(source_cluster: KafkaCluster, target_cluster: KafkaCluster) -> None:
    """Each copies a topic of its own, and stops with 0."""

    def copies(surroundings: str) -> None:
        topic = new_name("surroundings")
        create_topic(source_cluster, topic)
        write(source_cluster, topic, [b"1"])
        settings = dict(SURROUNDINGS[surroundings])
        with open(os.devnull, "rb") as nothing, open("/dev/full", "wb") as full:
            popen = dict(settings.pop("popen", {}))
            if "stderr" in popen:
                popen["stderr"] = full
            properties = one_way_properties(source_cluster, target_cluster, **{"A->B.topics": topic})
            with Mm2py(properties, popen={"stdin": nothing, **popen}, **settings) as mm2py:
                try:
                    mm2py.wait_until(lambda: record_count(target_cluster, f"A.{topic}") == 1, "it copies")
                    assert mm2py.terminate() == 0
                    assert no_traceback(mm2py)
                except AssertionError as error:
                    raise AssertionError(f"with {surroundings}: {error}") from error

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(copies, SURROUNDINGS))


def test_a_worker_whose_log_nobody_reads_any_more_goes_on_copying(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """The log collector was restarted: every line that is logged from now on meets a broken pipe."""
    stem = new_name("pipe")
    create_topic(source_cluster, f"{stem}-1")
    write(source_cluster, f"{stem}-1", [b"1"])
    reading, writing = os.pipe()
    properties = one_way_properties(source_cluster, target_cluster, **{"A->B.topics": f"{stem}.*"})
    with Mm2py(properties, popen={"stderr": writing}) as mm2py:
        os.close(writing)
        mm2py.wait_until(lambda: record_count(target_cluster, f"A.{stem}-1") == 1, "it copies")
        os.close(reading)
        create_topic(source_cluster, f"{stem}-2")  # worth a line in the log
        write(source_cluster, f"{stem}-2", [b"1"])
        mm2py.wait_until(lambda: record_count(target_cluster, f"A.{stem}-2") == 1, "it goes on")
        assert mm2py.terminate() == 0


def test_a_terminal_that_is_closed_ends_it_without_a_traceback(unreachable: dict[str, Any]) -> None:
    with ExitStack() as stack:
        before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup the child would inherit that it is ignored
        try:
            mm2py = stack.enter_context(Mm2py(unreachable))
        finally:
            signal.signal(signal.SIGHUP, before)
        mm2py.wait_for_event("cluster.unreachable")
        mm2py.signal(signal.SIGHUP)
        assert mm2py.wait() == -signal.SIGHUP
        assert no_traceback(mm2py)


def test_a_mistake_in_file_or_arguments_is_one_line_and_code_2(tmp_path: Path) -> None:
    """The many mistakes are in tests/unit/cli/test_main.py; here some of them go through a real process."""
    good = tmp_path / "good.properties"
    good.write_text("clusters=A,B\nA.bootstrap.servers=h:1\nB.bootstrap.servers=h:2\nA->B.enabled=true\n")
    (tmp_path / "bad.properties").write_text("clusters=A,A\n")
    runs = [
        ([], 2),
        (["none.properties"], 2),
        (["bad.properties"], 2),
        (["good.properties", "--clusters", "X"], 2),
        (["--frobnicate"], 2),
        (["--version"], 0),
        (["--help"], 0),
    ]
    environment = {**os.environ, "PYTHONPATH": OWN_PATH}

    def run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "mm2py", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=COMMAND_S
        )

    with ThreadPoolExecutor(4) as pool:
        for (arguments, code), ended in zip(runs, pool.map(run, [arguments for arguments, _ in runs]), strict=True):
            assert ended.returncode == code, (arguments, ended.stderr)
            assert len(ended.stderr.splitlines()) == (1 if code else 0), ended.stderr
            assert bool(ended.stdout) is not bool(code)


# -- what it logs ------------------------------------------------------------------------------------------------------


def test_a_start_logs_few_lines_an_idle_worker_none_and_records_none(
    idle_worker: Mm2py, source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    """Under 30 lines to start, then under one a minute: seen for as long as this file runs, and 20 s at least."""

    def begun() -> int:
        return sum(event["partitions"] for event in idle_worker.events("topics.copying"))

    def idle_for_s() -> float:
        return (datetime.now(UTC) - datetime.fromisoformat(idle_worker.log[-1]["timestamp"])).total_seconds()

    idle_worker.wait_until(lambda: begun() == IDLE_PARTITIONS, "all partitions have begun")
    wait_until(lambda: idle_for_s() >= IDLE_S, "it has logged nothing for a while", deadline_s=IDLE_S + DEADLINE_S)
    lines = list(idle_worker.log)
    assert len(lines) < 30
    assert lines[-1]["event"] == "topics.copying"
    topic = idle_worker.events("topics.copying")[0]["first"]
    write(source_cluster, topic, [b"x" * 100] * 20_000)
    idle_worker.wait_until(lambda: record_count(target_cluster, f"A.{topic}") == 20_001, "a load was copied")
    assert idle_worker.log == lines
    assert idle_worker.terminate() == 0
    for event in idle_worker.log:
        assert event["event"]
        assert event["level"] in {"info", "warning", "error"}
        assert "timestamp" in event
