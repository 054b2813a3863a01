"""``mm2py why`` names each cause for which a topic is not replicated, made on real brokers: the table of docs/why.md.

One worker runs many flows between two clusters, each with settings of its own, and one of another source. Causes of
whole flows and of groups: ``test_why_flows.py``, ``test_why_groups.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from deploy.local.kafka import KafkaCluster
from tests.cluster.commands.test_not_copied import Broken, open_transaction
from tests.cluster.copies import make_topic, now_ms, only_rights, without_right
from tests.cluster.copying.test_gaps import delete_before
from tests.cluster.kafka_client import admin, create_topic, delete_topic, record_count, write
from tests.cluster.running import ANSWER_S, Value, wait_until
from tests.cluster.six_places import FIRST, MORE, SLOW_S, Scene
from tests.cluster.why_table import rows, wait_for_cause

IDENTITY: Final = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
FLOWS: Final[Mapping[str, Mapping[str, Value]]] = {
    "E": {"->B.topics.exclude": "{stem}-E-tmp.*,{stem}-others"},
    "R": {"->B.replication.factor": 2},
    "X": {".consumer.auto.offset.reset": "none"},
    "M": {"->B.remote.partitions.max": 1},
    "P": {"->B.replication.policy.class": IDENTITY},
    "Q": {"->B.replication.policy.class": IDENTITY, "->B.topics": "{stem}-P-.*"},
    "K": {"->B.on.poison.record": "quarantine", "->B.on.source.gap": "continue"},
}
"""Further flows of the same source, by what follows the scene's alias in theirs, and their settings."""
OF_TOPICS: Final = (
    *(
        "excluded",
        "excluded-by-default",
        "not-included",
        "left-out-by-both-lists",
        "undecided",
        "cycle",
        "internal",
        "own-topic",
    ),
    *("missing-by-name", "no-such-topic", "no-such-partition", "name-of-the-copy", "slip-in-the-name"),
    *(
        "name-too-long",
        "target-not-empty",
        "target-deleted",
        "too-few-partitions",
        "replication-factor",
        "may-not-create",
    ),
    *("too-many-partitions", "no-start", "other-flow"),
    *("record-too-large", "record-without-key", "record-too-old", "record-in-quarantine", "may-not-write"),
    *("source-gone", "source-recreated", "records-expired", "records-skipped", "open-transaction"),
    *("topic-paused", "partition-paused", "backfill"),
)


def further_flows() -> Mapping[str, Value]:
    found: dict[str, Value] = {"clusters": ",".join(["{alias}", *(f"{{alias}}{letter}" for letter in FLOWS), "B"])}
    for letter, settings in FLOWS.items():
        found[f"{{alias}}{letter}.bootstrap.servers"] = "{source}"
        found[f"{{alias}}{letter}->B.enabled"] = True
        found[f"{{alias}}{letter}->B.topics"] = f"{{stem}}-{letter}-.*"
        found |= {f"{{alias}}{letter}{key}": value for key, value in settings.items()}
    return found


@dataclass(slots=True)
class TopicCauses:
    """Topics that are not replicated, each for a cause of its own."""

    scene: Scene
    rights: ExitStack
    """Gives back the rights that were taken away, and ends the transaction."""
    paths: dict[str, str] = field(default_factory=dict)
    """Where ``/v1`` tells why, by cause."""

    def make(self) -> None:
        self.rules()
        self.remote_topics()
        self.records()
        self.source()

    def asks(self, cause: str, topic: str, letter: str = "", partition: int | None = None) -> None:
        part = "" if partition is None else f"&partition={partition}"
        self.paths[cause] = f"/v1/flows/{self.scene.alias}{letter}->B/why?topic={topic}{part}"

    def topic(self, letter: str, name: str, records: list[bytes] = FIRST, partitions: int = 1) -> str:
        """Make a topic of one of the further flows, with records, and return its name."""
        topic = f"{self.scene.stem}-{letter}-{name}"
        make_topic(self.scene.source, topic, partitions)
        write(self.scene.source, topic, records)
        return topic

    def rules(self) -> None:
        stem = self.scene.stem
        topics = {
            "excluded-by-default": f"{stem}-t-x.replica",
            "cycle": f"B.{stem}-t-cycle",
            "internal": f"mm2-{stem}.internal",
            "own-topic": f"mm2-ledger.{stem}.internal",
            "not-included": f"{stem}-others",
            "undecided": f"{stem}-{'a' * 200}-",
        }
        for cause, topic in topics.items():
            make_topic(self.scene.source, topic, 1)
            self.asks(cause, topic)
        self.asks("excluded", self.topic("E", "tmp"), "E")
        self.asks("left-out-by-both-lists", topics["not-included"], "E")
        self.asks("missing-by-name", f"{stem}-absent")
        self.asks("no-such-topic", f"{stem}-t-nothing")
        self.asks("name-of-the-copy", self.scene.remote(f"{stem}-t-first"))
        self.asks("slip-in-the-name", f"{stem}-t-frist")
        self.asks("no-such-partition", f"{stem}-t-first", partition=7)

    def remote_topics(self) -> None:
        scene, target = self.scene, self.scene.target
        topic = f"{scene.stem}-t-".ljust(249, "x")
        make_topic(scene.source, topic, 1)
        self.asks("name-too-long", topic)
        create_topic(target, remote := scene.remote(f"{scene.stem}-t-full"), 1)
        write(target, remote, ["whose is this?"])
        self.asks("target-not-empty", scene.topic("full"))
        lost = scene.topic("lost")
        scene.copied(lost, len(FIRST))
        delete_topic(target, scene.remote(lost))
        write(scene.source, lost, MORE)
        self.asks("target-deleted", lost)
        narrow = f"{scene.stem}-t-narrow"
        create_topic(target, scene.remote(narrow), 1)
        self.rights.enter_context(without_right(target, scene.remote(narrow), AclOperation.ALTER))
        make_topic(scene.source, narrow, 3)
        self.asks("too-few-partitions", narrow)
        self.asks("replication-factor", self.topic("R", "copies"), "R")
        self.asks("no-start", self.topic("X", "start"), "X")
        self.asks("too-many-partitions", self.topic("M", "wide", partitions=3), "M")
        both = self.topic("P", "both")
        wait_until(lambda: record_count(target, both) > 0, "one of the two flows copies it", deadline_s=SLOW_S)
        wait_until(lambda: self.refused_of(both), "the other one is refused", deadline_s=SLOW_S)
        self.asks("other-flow", both, self.refused_of(both))
        self.rights.enter_context(without_create(target))
        uncreated = scene.remote(f"{scene.stem}-t-uncreated")
        self.rights.enter_context(only_rights(target, uncreated, [AclOperation.READ, AclOperation.WRITE]))
        self.asks("may-not-create", scene.topic("uncreated"))

    def refused_of(self, topic: str) -> str:
        """Return which of the two flows with the same remote topic is refused."""
        refused = self.scene.run.events("topic.refused", topic=topic)
        return str(refused[0]["flow"]).removeprefix(self.scene.alias).removesuffix("->B") if refused else ""

    def records(self) -> None:
        scene, target = self.scene, self.scene.target
        large = [b"small", b"x" * 5000, b"small"]
        create_topic(target, scene.remote(f"{scene.stem}-t-large"), 1, {"max.message.bytes": "2000"})
        self.asks("record-too-large", scene.topic("large", large))
        create_topic(target, scene.remote(f"{scene.stem}-t-keyless"), 1, {"cleanup.policy": "compact"})
        self.asks("record-without-key", scene.topic("keyless"))
        create_topic(target, scene.remote(f"{scene.stem}-t-old"), 1, {"message.timestamp.before.max.ms": "1000"})
        old = scene.topic("old", [])
        client = Producer({"bootstrap.servers": scene.source.internal_bootstrap, "log_level": 0})
        client.produce(old, b"of yesterday", timestamp=now_ms() - 86_400_000)
        assert client.flush(ANSWER_S) == 0
        self.asks("record-too-old", old)
        create_topic(target, f"{scene.alias}K.{scene.stem}-K-large", 1, {"max.message.bytes": "2000"})
        self.asks("record-in-quarantine", self.topic("K", "large", large), "K")
        denied = scene.topic("denied")
        scene.copied(denied, len(FIRST))
        self.rights.enter_context(without_right(target, scene.remote(denied), AclOperation.WRITE))
        write(scene.source, denied, MORE)
        self.asks("may-not-write", denied)

    def source(self) -> None:
        scene, source = self.scene, self.scene.source
        found = {name: scene.topic(name) for name in ("gone", "remade", "paused", "part", "open", "expired")}
        for topic in found.values():
            scene.copied(topic, len(FIRST))
        skipped = self.topic("K", "skipped")
        remote = f"{scene.alias}K.{skipped}"
        wait_until(lambda: record_count(scene.target, remote) == len(FIRST), "it is copied", deadline_s=SLOW_S)
        delete_topic(source, found["gone"])
        self.asks("source-gone", found["gone"])
        delete_topic(source, found["remade"])
        make_topic(source, found["remade"], 1)
        write(source, found["remade"], [b"another life"])
        self.asks("source-recreated", found["remade"])
        scene.run.ordered("pause", scene.flow, "--topic", found["paused"], "--reason", "ticket 4711")
        self.asks("topic-paused", found["paused"])
        scene.run.ordered("pause", scene.flow, "--partition", f"{found['part']}/0", "--reason", "ticket 4712")
        self.asks("partition-paused", found["part"], partition=0)
        for flow, topic in ((scene.flow, found["expired"]), (f"{scene.alias}K->B", skipped)):
            scene.run.ordered("pause", flow, "--topic", topic)
            scene.run.wait_for_event("topic.paused", topic=topic, deadline_s=SLOW_S)
            write(source, topic, MORE)
            delete_before(source, topic, len(FIRST) + 5)
            scene.run.ordered("resume", flow, "--topic", topic)
        self.asks("records-expired", found["expired"])
        self.asks("records-skipped", skipped, "K")
        transaction = open_transaction(source, found["open"])
        self.rights.callback(transaction.abort_transaction, ANSWER_S)
        write(source, found["open"], MORE)
        self.asks("open-transaction", found["open"])
        Broken(scene).hold(held := f"{scene.stem}-t-held")
        scene.topic("held")
        self.asks("backfill", held)


def without_create(cluster: KafkaCluster) -> Any:
    """Let nobody create topics, unless a topic's own rights allow it, until the stack ends."""
    stack = ExitStack()
    where = (ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL)
    stack.enter_context(only_rights(cluster, "kafka-cluster", [AclOperation.ALL], ResourceType.BROKER))
    rule = AclBinding(*where, "User:*", "*", AclOperation.CREATE, AclPermissionType.DENY)
    for made in admin(cluster).create_acls([rule]).values():
        made.result(ANSWER_S)
    return stack


@pytest.fixture(scope="module")
def causes(source_cluster: KafkaCluster, guarded_cluster: KafkaCluster) -> Iterator[TopicCauses]:
    extra: Mapping[str, Value] = {
        **further_flows(),
        "{alias}.consumer.isolation.level": "read_committed",
        "{flow}.on.source.gap": "stop",
    }
    scene = Scene(source_cluster, guarded_cluster, extra, topics=("{stem}-(a|aa)+", "{stem}-absent"))
    with scene.running(), ExitStack() as rights:
        found = TopicCauses(scene, rights)
        found.make()
        yield found


@pytest.mark.parametrize("cause", OF_TOPICS)
def test_why_names_the_cause_for_which_a_topic_is_not_replicated(causes: TopicCauses, cause: str) -> None:
    answer = wait_for_cause(cause, lambda: causes.scene.rest.told("GET", causes.paths[cause], 200))
    if rows()[cause].reason:
        assert answer["replicated"] in ("no", "partly") and answer["exit_code"] == 3, answer
    assert set(causes.paths) == set(OF_TOPICS)


def test_a_file_that_is_not_applied_yet_is_named(causes: TopicCauses) -> None:
    scene = causes.scene
    file = scene.run.file
    text = file.read_text()
    file.write_text(text.replace(f"topics.exclude={scene.stem}-E-tmp.*", "topics.exclude=nothing"))
    try:
        code, answer = scene.run.why(f"{scene.alias}E->B", "--topic", f"{scene.stem}-E-tmp", "--json")
        found = json.loads(answer)
        assert code == 3 and rows()["not-applied"].is_in(found), found
    finally:
        file.write_text(text)


OF_RIGHTS: Final = ("may-not-see", "may-not-read", "may-not-describe")


@pytest.fixture(scope="module")
def of_guarded(guarded_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Iterator[TopicCauses]:
    scene = Scene(guarded_cluster, target_cluster)
    with scene.running(), ExitStack() as rights:
        found = TopicCauses(scene, rights)
        unread, hidden = scene.topic("unread"), scene.topic("hidden")
        for topic in (unread, hidden):
            scene.copied(topic, len(FIRST))
        rights.enter_context(only_rights(scene.source, f"{scene.stem}-t-unseen", [AclOperation.DESCRIBE_CONFIGS]))
        rights.enter_context(without_right(scene.source, unread, AclOperation.READ))
        rights.enter_context(only_rights(scene.source, hidden, [AclOperation.DESCRIBE_CONFIGS]))
        for cause, topic in zip(OF_RIGHTS, (f"{scene.stem}-t-unseen", unread, hidden), strict=True):
            found.asks(cause, topic)
        yield found


@pytest.mark.parametrize("cause", OF_RIGHTS)
def test_why_names_the_right_on_the_source_that_is_missing(of_guarded: TopicCauses, cause: str) -> None:
    answer = wait_for_cause(cause, lambda: of_guarded.scene.rest.told("GET", of_guarded.paths[cause], 200))
    assert answer["replicated"] == "no" and answer["exit_code"] == 3, answer
