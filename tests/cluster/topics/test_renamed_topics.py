"""``topics.rename`` on real brokers: groups, settings and ACLs follow, no two topics share a copy, verify sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AclOperation

from deploy.local.kafka import KafkaCluster, start_clusters
from mm2py.client import DefaultReplicationPolicy, MirrorClient, renaming
from tests.cluster.copies import make_topic
from tests.cluster.group_offsets import commit, member, take, write_transaction
from tests.cluster.kafka_client import admin, new_name, record_count, values, write
from tests.cluster.running import ANSWER_S, COMMAND_S, OWN_PATH, Mm2py, one_way_properties
from tests.cluster.topics.test_topic_sync import GUARD, OFTEN, add_rules, own_settings, rule, rules_of

RETENTION = {"retention.ms": "123456789"}
NOT_REPLICATED = 3
"""The exit code of ``mm2py why``."""


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[KafkaCluster, KafkaCluster]]:
    """Two clusters with an authorizer; the tests and mm2py are their super users."""
    settings = {**GUARD, "transaction.state.log.num.partitions": 1}
    with start_clusters([KafkaCluster(name, settings=settings) for name in ("renamed-a", "renamed-b")]) as clusters:
        first, second = clusters
        yield first, second


class Renamed:
    """Orders, renamed by its name, bills by a pattern, and a flow that copies both."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster) -> None:
        self.source, self.target = source, target
        stem = new_name("")
        self.orders, self.bills = f"orders{stem}", f"bills{stem}.v1"
        self.also_bills = self.bills.removesuffix(".v1")
        self.remote_orders, self.remote_bills = f"A.sales.{self.orders}", f"A.{self.also_bills}"
        self.rules = f"{self.orders} -> sales.{self.orders}, (bills.*)\\.v1 -> $1"
        self.group = f"reads{stem}"
        for topic in (self.orders, self.bills):
            make_topic(source, topic, 1, RETENTION)
            write_transaction(source, topic, ["first", "second"])  # its marker has no place in the copy
            write(source, topic, [f"{number}" for number in range(100)])
        properties = one_way_properties(source, target, **OFTEN) | {
            "A->B.topics": f".*{stem}.*",
            "A->B.topics.rename": self.rules,
            "groups": self.group,
            "emit.checkpoints.enabled": True,
            "emit.checkpoints.interval.seconds": 1,
            "sync.group.offsets.enabled": True,
            "sync.group.offsets.interval.seconds": 1,
        }
        self.run = Mm2py(properties)

    def committed_there(self, topic: str) -> int:
        client = member(self.target, self.group)
        try:
            (found,) = client.committed([TopicPartition(topic, 0)], timeout=ANSWER_S)
            return int(found.offset)
        finally:
            client.close()

    def command(self, name: str, *arguments: str) -> tuple[int, str]:
        ended = subprocess.run(
            [sys.executable, "-m", "mm2py", name, str(self.run.file), *arguments],
            capture_output=True,
            timeout=COMMAND_S,
            check=False,
            env={**os.environ, "PYTHONPATH": OWN_PATH},
        )
        return ended.returncode, (ended.stdout + ended.stderr).decode()

    def verify(self) -> tuple[int, str]:
        return self.command("verify", "A->B", "--local", "--topics", self.orders, self.bills)


@pytest.fixture(scope="module")
def scene(both: tuple[KafkaCluster, KafkaCluster]) -> Iterator[Renamed]:
    """Return it with both topics copied."""
    found = Renamed(*both)
    add_rules(both[0], [rule(found.orders, "User:reader", AclOperation.READ)])
    with found.run as run:
        for remote in (found.remote_orders, found.remote_bills):
            run.wait_until(lambda remote=remote: record_count(both[1], remote, [0]) == 102, f"{remote} is copied")
        yield found


def next_value(client: Consumer, topic: str) -> bytes:
    try:
        return take(client, topic, 1)[0]
    finally:
        client.close()


def test_a_group_goes_on_in_the_renamed_copies_at_exactly_its_records(scene: Renamed) -> None:
    for topic, remote, offset in ((scene.orders, scene.remote_orders, 53), (scene.bills, scene.remote_bills, 7)):
        commit(scene.source, scene.group, topic, offset)
        scene.run.wait_until(
            lambda remote=remote, offset=offset: scene.committed_there(remote) == offset - 1, f"it goes on in {remote}"
        )
        assert next_value(member(scene.target, scene.group), remote) == b"%d" % (offset - 3)


async def test_an_application_and_the_command_translate_both_ways(scene: Renamed) -> None:
    policy = renaming(DefaultReplicationPolicy(), "A", scene.rules)
    async with MirrorClient(bootstrap_servers=scene.target.internal_bootstrap, policy=policy) as client:
        there = await client.translate("A", {(scene.orders, 0): [53], (scene.bills, 0): [7]})
        assert {place: [one.offset for one in found] for place, found in there.items()} == {
            (scene.remote_orders, 0): [52],
            (scene.remote_bills, 0): [6],
        }
        back = await client.translate_back("A", {(scene.remote_bills, 0): [6]})
        assert {place: [one.offset for one in found] for place, found in back.items()} == {(scene.bills, 0): [7]}
        with pytest.raises(ValueError, match="is no remote topic of A"):
            await client.translate_back("A", {(f"A.{scene.orders}", 0): [6]})
    asked = ("A->B", "--topic", scene.remote_bills, "--partition", "0", "--offset", "6", "--reverse")
    assert f"{scene.bills}-0 offset 7" in scene.run.ordered("translate", *asked)


def test_settings_and_acls_follow_to_the_new_name(scene: Renamed) -> None:
    for remote in (scene.remote_orders, scene.remote_bills):
        assert own_settings(scene.target, remote)["retention.ms"] == RETENTION["retention.ms"]
    wanted = ("TOPIC", "LITERAL", scene.remote_orders, "User:reader", "*", "READ", "ALLOW")
    scene.run.wait_until(lambda: wanted in rules_of(scene.target, scene.orders), "the ACL is carried over")


def test_a_topic_that_would_get_the_same_name_is_refused_and_why_says_so(scene: Renamed) -> None:
    make_topic(scene.source, scene.also_bills)
    write(scene.source, scene.also_bills, ["foreign"])
    scene.run.wait_for_event("topic.refused", topic=scene.also_bills)
    said = f"{scene.bills} is copied into {scene.remote_bills}, and topics.rename gives both that name"

    def explained() -> bool:
        code, text = scene.run.why("A->B", "--topic", scene.also_bills)
        return (
            code == NOT_REPLICATED
            and said in text
            and f"Put a rule for {scene.also_bills} in front in topics.rename" in text
        )

    scene.run.wait_until(explained, "why tells the reason and the way out")
    code, text = scene.run.why("A->B", "--topic", scene.bills)
    assert code == 0 and "by the rule (bills.*)\\.v1 -> $1 of topics.rename" in text
    _, found = scene.run.status()
    (refused,) = [one for one in found["flows"][0]["topics"] if one["topic"] == scene.also_bills]
    assert said in refused["not_copied"][0]["why"]
    _, checks = scene.run.check()
    (alike,) = [one for one in checks["results"] if one["code"] == "MM0604" and one["state"] == "failed"]
    assert sorted(alike["items"]) == sorted([scene.bills, scene.also_bills])
    _, planned = scene.command("plan")
    assert said in planned, planned
    assert b"foreign" not in values(scene.target, scene.remote_bills)


def test_verify_is_green_and_a_foreign_record_makes_it_red(scene: Renamed) -> None:
    code, text = scene.verify()
    assert code == 0, text
    write(scene.target, scene.remote_orders, ["foreign"])
    code, text = scene.verify()
    assert code == 1, text
    assert f"A/{scene.orders}/0: foreign" in text
    assert admin(scene.target).list_topics(timeout=ANSWER_S).topics.keys().isdisjoint({f"A.{scene.orders}"})
