"""Quarantine between real brokers: what the target refuses is kept whole, and comes out again. The real command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from deploy.local.kafka import KafkaCluster
from deploy.local.python_path import python_path
from mm2py.records.batch import NewRecord
from mm2py.records.quarantined import QuarantineEntry, Replayed, decode
from tests.checker.traffic import Planned
from tests.cluster.copies import make_topic, new_topic, send
from tests.cluster.kafka_client import admin, new_name, read, topic_names, values
from tests.cluster.running import ANSWER_S, COMMAND_S, ROOT, Mm2py, Value, one_way_properties
from tests.cluster.topics.test_topic_sync import set_by_hand

FUTURE_MS = 4_000_000_000_000
ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}
HEADERS = (("mm2py-key", b"mine"), ("h", None), ("h", b""))


def properties_of(
    source: KafkaCluster, target: KafkaCluster, alias: str, topic: str, **extra: Value
) -> dict[str, Value]:
    """Return a file with quarantine, for a source alias of the test's own: the quarantine's topic bears it."""
    return one_way_properties(
        source,
        target,
        names=(alias, "B"),
        **{
            f"{alias}->B.topics": topic,
            "on.poison.record": "quarantine",
            "sync.topic.configs.enabled": False,
            **extra,
        },
    )


def kept(target: KafkaCluster, alias: str) -> list[QuarantineEntry | Replayed]:
    found = []
    for message in read(target, f"mm2-quarantine.{alias}.internal"):
        headers = [(name, value) for name, value in message.headers() or ()]
        found.append(decode(NewRecord(message.key(), message.value(), message.timestamp()[1], headers)))
    return found


def refused_records(target: KafkaCluster, alias: str) -> list[QuarantineEntry]:
    return [one for one in kept(target, alias) if isinstance(one, QuarantineEntry)]


def settings_of(cluster: KafkaCluster, topic: str) -> Mapping[str, str | None]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    client = admin(cluster)
    found = client.describe_configs([resource])[resource].result(ANSWER_S)
    return {name: entry.value for name, entry in found.items()}


def replay(file: Path, *arguments: str) -> tuple[int, str]:
    """Run ``mm2py replay``; return its exit code and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "mm2py", "replay", str(file), *arguments],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        env={**os.environ, "PYTHONPATH": python_path(ROOT)},
        cwd=file.parent,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_refused_records_are_kept_whole_the_others_arrive_in_order_and_a_replay_brings_them_back(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    """One is too large for the remote topic, one has a timestamp too far in the future; both stand amid a batch."""
    alias = new_name("Q").replace("-", "")
    topic = new_topic(source_cluster, "poison", configs={**ANY_TIME, "max.message.bytes": "5000000"})
    remote = f"{alias}.{topic}"
    make_topic(target_cluster, remote, configs={"max.message.bytes": "30000"})
    records = [Planned(0, 1_000 + at, b"k", b"%d" % at, ()) for at in range(200)]
    records[57] = Planned(0, FUTURE_MS, None, b"57", HEADERS)
    records[120] = Planned(0, 1_120, b"large", bytes(3_000_000), ())
    send(source_cluster, topic, records, linger_ms=500, message_max_bytes=5_000_000, batch_size=4_000_000)
    good = [b"%d" % at for at in range(200) if at not in {57, 120}]

    with Mm2py(properties_of(source_cluster, target_cluster, alias, topic)) as run:
        run.wait_until(lambda: values(target_cluster, remote) == good, "all others are there, in order")
        said = run.wait_for_event("record.quarantined", topic=topic, partition=0)
        assert "source offset 57 was refused (INVALID_TIMESTAMP (32)" in said["why"]
        first, second = refused_records(target_cluster, alias)
        assert first.record == NewRecord(None, b"57", FUTURE_MS, HEADERS)
        assert second.record == NewRecord(b"large", bytes(3_000_000), 1_120, ())
        assert [(one.provenance.origin.offset, one.provenance.error_code) for one in (first, second)] == [
            (57, 32),
            (120, 10),
        ]
        quarantine = settings_of(target_cluster, f"mm2-quarantine.{alias}.internal")
        assert (quarantine["cleanup.policy"], quarantine["retention.ms"]) == ("delete", "-1")

        file, what = run.file, f"{alias}->B:{topic}"
        assert replay(file, what, "--export", str(tmp_path))[0] == 0
        lines = [json.loads(line) for line in (tmp_path / f"{topic}.jsonl").read_text().splitlines()]
        assert [line["offset"] for line in lines] == [57, 120]
        code, text = replay(file, what, "--append")
        assert (code, "their order among the others is given up" in text) == (2, True)
        code, text = replay(file, what, "--append", "--yes")
        assert code == 1
        assert text.count(f"{remote} still refuses {topic}-0 at offset ") == 2

        set_by_hand(
            target_cluster,
            remote,
            message_timestamp_after_max_ms=ANY_TIME["message.timestamp.after.max.ms"],
            max_message_bytes="5000000",
        )
        code, text = replay(file, what, "--append", "--yes")
        assert (code, "2 record(s) were appended" in text) == (0, True)
        code, text = replay(file, what, "--append", "--yes")
        assert (code, "2 record(s) were appended" in text, "left out" in text) == (0, True, True)
        assert values(target_cluster, remote) == [*good, b"57", bytes(3_000_000)]

        send(source_cluster, topic, [Planned(0, 2_000, b"k", b"last", ())])
        run.wait_until(lambda: values(target_cluster, remote)[-1] == b"last", "the flow goes on behind the replay")
        assert run.terminate() == 0
    assert len(values(target_cluster, remote)) == 201


@pytest.mark.slow
def test_a_worker_killed_at_a_refused_record_goes_on_and_loses_nothing(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster
) -> None:
    alias = new_name("K").replace("-", "")
    topic = new_topic(source_cluster, "killed", configs=ANY_TIME)
    make_topic(target_cluster, f"{alias}.{topic}")
    records = [Planned(0, FUTURE_MS if at % 10 == 3 else 1_000, b"k", b"%d" % at, ()) for at in range(100)]
    send(source_cluster, topic, records, linger_ms=500)
    good = [b"%d" % at for at in range(100) if at % 10 != 3]
    with Mm2py(properties_of(source_cluster, target_cluster, alias, topic)) as run:
        for stored in (1, 4, 7):
            run.wait_until(lambda: len(refused_records(target_cluster, alias)) >= stored, "some are kept")  # noqa: B023
            run.kill()
            run.start()
        run.wait_until(lambda: good[-1] in values(target_cluster, f"{alias}.{topic}"), "all is copied")
        assert run.terminate() == 0
    assert list(dict.fromkeys(values(target_cluster, f"{alias}.{topic}"))) == good
    offsets = [one.provenance.origin.offset for one in refused_records(target_cluster, alias)]
    assert list(dict.fromkeys(offsets)) == list(range(3, 100, 10))


def test_a_quarantine_that_everybody_could_read_is_not_used_for_a_topic_that_not_everybody_may_read(
    source_cluster: KafkaCluster, guarded_cluster: KafkaCluster
) -> None:
    """The target's topics are open until they have an ACL. The broker hides that setting, but not that it is set."""
    alias = new_name("G").replace("-", "")
    topic = new_topic(source_cluster, "guarded", configs=ANY_TIME)
    remote, quarantine = f"{alias}.{topic}", f"mm2-quarantine.{alias}.internal"
    make_topic(guarded_cluster, remote)
    _allow(guarded_cluster, remote, "User:ANONYMOUS", AclOperation.ALL)
    send(source_cluster, topic, [Planned(0, FUTURE_MS, b"k", b"0", ()), Planned(0, 1_000, b"k", b"1", ())])
    file = properties_of(source_cluster, guarded_cluster, alias, topic, **{"sync.topic.acls.enabled": False})
    with Mm2py(file) as run:
        said = run.wait_for_event("quarantine.failing", topic=topic)
        assert (
            f"{quarantine} on B could be read by everybody, for it has no ACL: more than may read {remote}."
            in (said["why"])
        )
        assert quarantine not in topic_names(guarded_cluster)
        _allow(guarded_cluster, quarantine, "User:ANONYMOUS", AclOperation.ALL)
        run.kill()
        run.start()
        run.wait_until(lambda: values(guarded_cluster, remote) == [b"1"], "it goes on once only few may read")
        assert run.terminate() == 0
    assert len(refused_records(guarded_cluster, alias)) == 1


def _allow(cluster: KafkaCluster, topic: str, principal: str, operation: AclOperation) -> None:
    rule = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, principal, "*", operation, AclPermissionType.ALLOW
    )
    client = admin(cluster)
    client.create_acls([rule])[rule].result(ANSWER_S)
