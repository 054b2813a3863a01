"""A topic that is not copied says why in six places: in the log, ``status``, ``/v1``, Connect, metrics and alerts.

Reasons are made on real brokers, all six places are asked, the causes are taken away, and the topics are copied.
Reasons of whole flows: ``test_flows_not_copied.py``. Which are made where: docs/internals/tests.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from deploy.local.kafka import KafkaCluster
from mm2py.config.configuration import read_settings_file
from mm2py.records.backfill_record import Backfill, BackfillState, Range
from tests.cluster.commands.test_held_flow import ask
from tests.cluster.copies import make_topic, now_ms, producer, without_right
from tests.cluster.kafka_client import create_topic, delete_topic, new_name, record_count, values, write
from tests.cluster.running import ANSWER_S
from tests.cluster.six_places import FIRST, MORE, SLOW_S, TOLD, TOPICS, Look, Scene

SLOW_PATTERN = "{stem}-(a|aa)+"
"""Of a name of many a's it finds no answer in time, unless the name is nothing else."""
MATCHES_NONE = "{stem}-none-.*"


@pytest.fixture(scope="module")
def from_guarded(guarded_cluster: KafkaCluster, target_cluster: KafkaCluster) -> Iterator[Scene]:
    with Scene(guarded_cluster, target_cluster, topics=("{stem}-absent",)).running() as scene:
        yield scene


def test_a_name_that_the_source_does_not_show_is_missing(from_guarded: Scene) -> None:
    scene, name = from_guarded, f"{from_guarded.stem}-absent"
    said = scene.in_log("topic.missing", topic=name, reason="missing")
    assert "does not show it" in said["why"] and "Create it" in said["remedy"]
    scene.says(name, "missing")
    create_topic(scene.source, name, partitions=1)
    write(scene.source, name, FIRST)
    scene.copied(name, len(FIRST))
    scene.is_silent_about(name, "missing")
    code, found = scene.run.status()
    assert (code, found["problems"], found["summary"]) == (0, [], "nothing is wrong")


def test_a_source_topic_that_may_not_be_read_any_more(from_guarded: Scene) -> None:
    """Its lag was 0 and its status well, while 25 records waited."""
    scene, topic = from_guarded, from_guarded.topic("revoked")
    scene.copied(topic, len(FIRST))
    with without_right(scene.source, topic, AclOperation.READ):
        said = scene.run.wait_for_event("source.denied", topic=topic, deadline_s=SLOW_S)
        write(scene.source, topic, MORE)
        assert "Grant READ" in said["remedy"]
        scene.says(topic, "source-denied")
        assert record_count(scene.target, scene.remote(topic)) == len(FIRST)
    scene.copied(topic, len(FIRST) + len(MORE))
    scene.is_silent_about(topic, "source-denied")


def test_a_source_topic_that_might_never_be_read(from_guarded: Scene) -> None:
    scene, name = from_guarded, f"{from_guarded.stem}-t-never"
    with without_right(scene.source, name, AclOperation.READ):
        topic = scene.topic("never")
        scene.says(topic, "source-denied")
    scene.copied(topic, len(FIRST))


def test_topics_that_come_and_go_have_words_of_their_own(from_guarded: Scene) -> None:
    """Once a topic just created was ``gone``, and one just deselected was said not to be on the source."""
    scene = from_guarded
    scene.in_v1("")  # its list of topics is older than the next one
    topic = scene.topic("new")
    seen = set()

    def is_copied() -> bool:
        found = scene.in_v1(topic)
        seen.add(None if found is None else found["reason"])
        return found is not None and found["is_copied"]

    scene.run.wait_until(is_copied, "it is copied", deadline_s=SLOW_S)
    assert seen <= {None, "new", "starting", "standing"}, seen
    name = f"{scene.flow}.MirrorSourceConnector"
    before = scene.rest.told("GET", f"/connectors/{name}/config", 200)["topics"]
    scene.rest.told("PATCH", f"/connectors/{name}/config", 200, json={"topics.exclude": topic})
    try:
        scene.run.wait_until(lambda: scene.in_v1(topic)["reason"] in {"deselected", "excluded"}, "it is deselected")
    finally:
        scene.rest.told("PATCH", f"/connectors/{name}/config", 200, json={"topics.exclude": "", "topics": before})
    scene.run.wait_until(is_copied, "it is copied again", deadline_s=SLOW_S)
    assert json.dumps(sorted(map(str, seen))).count("gone") == 0


# Many reasons at once. What fails a task of Connect comes after what does not: the task is the same for all topics.


@dataclass(slots=True)
class Broken:
    """A flow with a topic for each of many reasons, all of which are told by now."""

    scene: Scene
    topics: dict[str, str] = field(default_factory=dict)
    """By reason."""
    rights: ExitStack = field(default_factory=ExitStack)
    """Gives back the rights that were taken away."""
    look: Look = field(init=False)
    """What ``mm2py status`` says of them."""
    transaction: Producer = field(init=False)
    """On the source, in front of records that wait."""

    def hold(self, *topics: str, state: BackfillState = BackfillState.COPYING) -> None:
        """Do as the driver of a backfill does, without Spark."""
        ranges = {topic: {0: Range(0, 1)} for topic in topics}
        tasks = tuple(((topic, 0),) for topic in topics)
        backfill = Backfill("0badcafe", ranges, tasks, state, begun_at_ms=now_ms(), seen_at_ms=now_ms())
        file = read_settings_file(self.scene.run.file, None)
        ask(file, self.scene.flow, lambda log, _: log.write_backfill(backfill))

    def overwrite(self, old: bytes, new: bytes) -> None:
        """Change what stands in the source broker's file of the topic that cannot be read."""
        directory = self.scene.source.directory
        assert directory is not None and len(old) == len(new)
        (segment,) = (directory / "data-1" / f"{self.topics['record-unreadable']}-0").glob("*.log")
        with segment.open("r+b") as file:
            at = file.read().index(old)
            file.seek(at)
            file.write(new)

    def wait_for_all(self) -> None:
        for reason, topic in self.topics.items():
            self.scene.wait_for_v1(topic, reason)
        self.look = self.scene.look()


def open_transaction(cluster: KafkaCluster, topic: str) -> Producer:
    """Begin a transaction with one record, and leave it open."""
    client = producer(cluster, transactional_id=new_name("open"), transaction_timeout_ms=900_000)
    client.init_transactions(ANSWER_S)
    client.begin_transaction()
    client.produce(topic, b"of a transaction that stays open")
    assert client.flush(ANSWER_S) == 0
    return client


@pytest.fixture(scope="module")
def waiting(source_cluster: KafkaCluster, guarded_cluster: KafkaCluster) -> Iterator[Broken]:
    """Topics that wait, while the task goes on with others."""
    scene = Scene(
        source_cluster,
        guarded_cluster,
        {"{alias}.consumer.isolation.level": "read_committed"},
        topics=(SLOW_PATTERN, MATCHES_NONE),
    )
    with scene.running(), (found := Broken(scene)).rights:
        topics = found.topics
        topics["backfill"], topics["record-unreadable"] = f"{scene.stem}-t-backfill", f"{scene.stem}-t-damaged"
        found.hold(topics["backfill"], topics.pop("record-unreadable"))
        for name, records in (("backfill", FIRST), ("damaged", [b"whole record"])):
            held = scene.topic(name, [])
            scene.run.wait_for_event("topic.held", topic=held, deadline_s=SLOW_S)  # its worker has read of the hold
            write(scene.source, held, records)
        topics |= {reason: scene.topic(reason) for reason in ("stalled", "gone")}
        create_topic(scene.target, remote := scene.remote(f"{scene.stem}-t-refused"), partitions=1)
        write(scene.target, remote, ["whose is this?"])
        topics["refused"] = scene.topic("refused")
        topics["undecided"] = f"{scene.stem}-{'a' * 200}-"
        make_topic(scene.source, topics["undecided"], 1)
        for reason in ("stalled", "gone"):
            scene.copied(topics[reason], len(FIRST))
        found.transaction = open_transaction(scene.source, topics["stalled"])
        write(scene.source, topics["stalled"], MORE)
        delete_topic(scene.source, topics["gone"])
        found.wait_for_all()
        yield found


@pytest.mark.parametrize("reason", ["refused", "undecided", "stalled", "gone", "backfill"])
def test_a_topic_that_waits_says_so_in_six_places_and_its_task_runs(waiting: Broken, reason: str) -> None:
    waiting.scene.says(waiting.topics[reason], reason, look=waiting.look)


def test_a_pattern_that_matches_nothing_is_told_of_the_flow_and_is_no_problem(waiting: Broken) -> None:
    scene, pattern = waiting.scene, MATCHES_NONE.format(stem=waiting.scene.stem)
    assert scene.in_log("topics.none", reason="no-match", pattern=pattern)
    (said,) = waiting.look.found["flows"][0]["not_copied"]
    assert (said["reason"], said["waits_for_operator"]) == ("no-match", False)
    assert pattern in said["why"] and said["since_ms"]
    assert f"no-match: {said['why']}" in waiting.look.text
    assert not [one for one in waiting.look.found["problems"] if one["where"] == scene.flow]
    assert scene.rest.told("GET", f"/v1/flows/{scene.flow}", 200)["report"]["not_copied"] == [said]
    assert said["why"] not in str(scene.in_connect())
    scene.run.wait_until(lambda: sum(scene.metric(TOPICS, flow=scene.flow, reason="no-match")) == 1, "it is counted")


@pytest.fixture(scope="module")
def failing(waiting: Broken) -> Broken:
    """The same flow, with topics for which a task of Connect would have failed."""
    scene, waited = waiting.scene, waiting.topics
    found = Broken(scene, rights=waiting.rights)
    topics = found.topics
    topics["record-unreadable"] = f"{scene.stem}-t-damaged"
    found.overwrite(b"whole record", b"wrong record")
    found.hold(waited["backfill"], state=BackfillState.STOPPED)
    create_topic(scene.target, scene.remote(f"{scene.stem}-t-large"), 1, {"max.message.bytes": "2000"})
    topics["record-refused"] = scene.topic("large", [b"small", b"x" * 5000, b"small again"])
    topics |= {reason: scene.topic(reason) for reason in ("target-denied", "stopped")}
    for reason in ("target-denied", "stopped"):
        scene.copied(topics[reason], len(FIRST))
    denied = without_right(scene.target, scene.remote(topics["target-denied"]), AclOperation.WRITE)
    found.rights.enter_context(denied)
    write(scene.source, topics["target-denied"], MORE)
    delete_topic(scene.source, topics["stopped"])
    make_topic(scene.source, topics["stopped"], 1)
    write(scene.source, topics["stopped"], [b"another life"])
    found.wait_for_all()
    return found


RECREATED = replace(TOLD["stopped"], logged="topic.refused", series=TOPICS)


@pytest.mark.parametrize("reason", ["stopped", "record-refused", "record-unreadable", "target-denied"])
def test_a_topic_that_fails_says_so_in_six_places_and_its_task_has_failed(failing: Broken, reason: str) -> None:
    told = RECREATED if reason == "stopped" else TOLD[reason]
    lag = len(MORE) if reason == "target-denied" else None
    cause = "record-damaged" if reason == "record-unreadable" else ""
    failing.scene.says(failing.topics[reason], reason, told=told, look=failing.look, lag=lag, cause=cause)


def test_all_of_them_are_copied_once_the_cause_is_gone(waiting: Broken, failing: Broken) -> None:
    scene, topics = waiting.scene, waiting.topics | failing.topics
    failing.rights.close()
    delete_topic(scene.target, scene.remote(topics["refused"]))
    waiting.transaction.abort_transaction(ANSWER_S)
    code, (answer,) = scene.run.gaps("accept", f"{scene.flow}:{topics['stopped']}:0")
    assert (code, answer["accepted"]) == (0, True), answer
    for reason in ("undecided", "record-refused", "record-unreadable"):  # they are tried again in half a minute
        delete_topic(scene.source, topics[reason])
    copies = {
        "refused": FIRST,
        "backfill": FIRST,
        "stopped": [*FIRST, b"another life"],
        "stalled": FIRST + MORE,
        "target-denied": FIRST + MORE,
    }
    for reason, records in copies.items():
        remote = scene.remote(topics[reason])
        scene.run.wait_until(
            lambda remote=remote, records=records: values(scene.target, remote) == records,  # type: ignore[misc]
            f"{remote} has all",
            deadline_s=SLOW_S,
        )
    for reason in topics.keys() - {"gone"}:
        scene.is_silent_about(topics[reason], reason)

    def is_well() -> bool:
        code, found = scene.run.status()
        return (code, found["problems"]) == (0, [])

    scene.run.wait_until(is_well, "the status is well", deadline_s=SLOW_S)
    alerts = {TOLD[reason].alert for reason in topics}
    scene.run.wait_until(lambda: not alerts & scene.alerts(), "no alert has a series any more")
