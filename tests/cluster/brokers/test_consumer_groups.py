"""What mm2py asks of consumer groups, on a real broker: beside other clients, and beside the broker model."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined, unused-ignore]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from deploy.local.kafka import KafkaCluster
from mm2py.kafka.cluster import Cluster
from mm2py.kafka.consumer_groups import (
    Commit,
    ListedGroup,
    commit_offsets,
    committed_offsets,
    list_groups,
    refused_groups,
)
from mm2py.kafka.error_codes import (
    GROUP_AUTHORIZATION_FAILED,
    NO_COORDINATOR,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_MEMBER_ID,
)
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.port import Brokers
from tests.cluster.kafka_client import admin, create_topic, delete_topic, new_name, write
from tests.cluster.running import ANSWER_S, until, wait_until
from tests.cluster.two_worlds import World, on_both

T = TypeVar("T")
ME = "User:ANONYMOUS"


def asked(cluster: KafkaCluster, ask: Callable[[Brokers], Awaitable[T]]) -> T:
    """Ask until no retriable error comes back, alone or in an answer: new coordinators take a moment."""

    async def play() -> T:
        host, _, port = cluster.bootstrap.rpartition(":")
        brokers = Cluster("X", [(host, int(port))], rng=random.Random(1), client_id="groups")

        async def final() -> list[T]:
            try:
                answer = await ask(brokers)
            except KafkaError as error:
                if not error.retriable:
                    raise
                return []
            single = answer.values() if isinstance(answer, dict) else ()
            return [] if any(isinstance(one, BrokerRefused) and one.retriable for one in single) else [answer]

        try:
            (answer,) = await until(final, "no error comes back that is retriable")
            return answer
        finally:
            await brokers.close()

    return asyncio.run(play())


def code_of(answer: object) -> int | None:
    return answer.code if isinstance(answer, BrokerRefused) else None


def listed(cluster: KafkaCluster, group: str) -> ListedGroup | None:
    return asked(cluster, list_groups).get(group)


def seen_by_librdkafka(cluster: KafkaCluster, group: str) -> dict[tuple[str, int], tuple[int, int | None]]:
    """Return offset and leader epoch by topic and partition. Its Python binding reads metadata beyond their end."""
    found = admin(cluster).list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(ANSWER_S)
    return {(part.topic, part.partition): (part.offset, part.leader_epoch) for part in found.topic_partitions}


def seen_by_aiokafka(cluster: KafkaCluster, group: str) -> dict[tuple[str, int], Commit]:
    async def play() -> dict[tuple[str, int], Commit]:
        client = AIOKafkaAdminClient(bootstrap_servers=cluster.internal_bootstrap)
        await client.start()
        try:
            found = await client.list_consumer_group_offsets(group)
        finally:
            await client.close()
        return {(key.topic, key.partition): Commit(one.offset, one.metadata) for key, one in found.items()}

    return asyncio.run(play())


def consumer(cluster: KafkaCluster, group: str, protocol: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.internal_bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )


def next_value(client: Consumer) -> bytes | None:
    message = client.poll(1)
    return None if message is None or message.error() else message.value()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_keep_their_group_to_themselves_until_they_have_left(
    guarded_cluster: KafkaCluster, protocol: str
) -> None:
    """A group that mm2py commits for goes on at that offset, whichever protocol its members speak."""
    cluster, group, topic = guarded_cluster, new_name(f"grüppe ☃ {protocol}"), new_name("t")
    create_topic(cluster, topic)
    write(cluster, topic, [f"{number}" for number in range(10)])
    member = consumer(cluster, group, protocol)
    try:
        member.subscribe([topic])
        assert wait_until(lambda: next_value(member), "the first record") == b"0"
        member.commit(offsets=[TopicPartition(topic, 0, 3, metadata="ünï ☃")], asynchronous=False)
        wait_until(
            lambda: member.poll(0) or listed(cluster, group) == ListedGroup(group, "consumer", "Stable"), "Stable"
        )
        kept = asked(cluster, lambda brokers: committed_offsets(brokers, [group]))[group]
        assert not isinstance(kept, BrokerRefused)
        assert kept == {(topic, 0): Commit(3, kept[topic, 0].metadata)}
        assert kept[topic, 0].metadata.rstrip("\0") == "ünï ☃"  # the Python binding of librdkafka sends a NUL
        answers = asked(cluster, lambda brokers: commit_offsets(brokers, group, {(topic, 0): Commit(7)}))
        assert code_of(answers[topic, 0]) == UNKNOWN_MEMBER_ID
    finally:
        member.close()
    wait_until(lambda: listed(cluster, group) == ListedGroup(group, "consumer", "Empty"), "its member has left")
    assert asked(cluster, lambda brokers: refused_groups(brokers, [group])) == {}
    answers = asked(cluster, lambda brokers: commit_offsets(brokers, group, {(topic, 0): Commit(7, "from A")}))
    assert answers == {(topic, 0): None}
    assert seen_by_aiokafka(cluster, group) == {(topic, 0): Commit(7, "from A")}
    successor = consumer(cluster, group, protocol)
    try:
        successor.subscribe([topic])
        assert wait_until(lambda: next_value(successor), "the record at the commit") == b"7"
    finally:
        successor.close()


def test_a_group_that_mm2py_creates_has_no_members_and_no_leader_epochs(guarded_cluster: KafkaCluster) -> None:
    """As many commits as need several requests, each with the most metadata that a broker takes."""
    cluster, group, topic = guarded_cluster, new_name("a.*b"), new_name("wide")
    create_topic(cluster, topic, 250)
    commits = {(topic, number): Commit(number, "x" * 4096) for number in range(250)}
    assert asked(cluster, lambda brokers: commit_offsets(brokers, group, commits)) == dict.fromkeys(commits)
    assert listed(cluster, group) == ListedGroup(group, "", "Empty")
    assert asked(cluster, lambda brokers: committed_offsets(brokers, [group])) == {group: commits}
    assert seen_by_aiokafka(cluster, group) == commits
    first = (topic, 0)
    assert asked(cluster, lambda brokers: commit_offsets(brokers, f"{group}2", {first: Commit(1)})) == {first: None}
    assert seen_by_librdkafka(cluster, f"{group}2") in ({first: (1, None)}, {first: (1, -1)})
    delete_topic(cluster, topic)
    wait_until(
        lambda: asked(cluster, lambda brokers: committed_offsets(brokers, [group])) == {group: {}},
        "the commits of a deleted topic are gone",
    )


def test_rights_on_groups_and_topics(guarded_cluster: KafkaCluster) -> None:
    """Topics that mm2py may not describe are missing in what a group has committed, without an error."""
    cluster, group, topic, hidden = guarded_cluster, new_name("secret"), new_name("open"), new_name("hidden")
    unknown = new_name("unknown")
    for name in (topic, hidden):
        create_topic(cluster, name)
    commits = {(topic, 0): Commit(1), (hidden, 0): Commit(2)}
    assert asked(cluster, lambda brokers: commit_offsets(brokers, group, commits)) == dict.fromkeys(commits)
    acls: list[AclBinding] = []

    def allow(kind: ResourceType, name: str, principal: str, operation: AclOperation) -> None:
        """What has an ACL is forbidden to all that have none."""
        binding = AclBinding(
            kind, name, ResourcePatternType.LITERAL, principal, "*", operation, AclPermissionType.ALLOW
        )
        acls.append(binding)
        admin(cluster).create_acls([binding])[binding].result(ANSWER_S)

    try:
        allow(ResourceType.TOPIC, hidden, "User:jane", AclOperation.READ)
        wait_until(
            lambda: (
                asked(cluster, lambda brokers: committed_offsets(brokers, [group])) == {group: {(topic, 0): Commit(1)}}
            ),
            "the hidden topic is missing",
        )
        answers = asked(cluster, lambda brokers: commit_offsets(brokers, group, commits))
        assert {key: code_of(answer) for key, answer in answers.items()} == {
            (topic, 0): None,
            (hidden, 0): TOPIC_AUTHORIZATION_FAILED,
        }
        names = [group, unknown]
        assert asked(cluster, lambda brokers: refused_groups(brokers, names)) == {}
        for name in names:
            allow(ResourceType.GROUP, name, ME, AclOperation.DESCRIBE)

        def all_refused() -> bool:
            answers = asked(cluster, lambda brokers: refused_groups(brokers, names))
            return {name: code_of(one) for name, one in answers.items()} == dict.fromkeys(
                names, GROUP_AUTHORIZATION_FAILED
            )

        def refused() -> bool:
            answers = asked(cluster, lambda brokers: commit_offsets(brokers, group, {(topic, 0): Commit(1)}))
            return code_of(answers[topic, 0]) == GROUP_AUTHORIZATION_FAILED

        wait_until(refused, "committing needs READ")
        wait_until(all_refused, "it is told without a commit, also of a group that does not exist")
        assert asked(cluster, lambda brokers: committed_offsets(brokers, [group])) == {group: {(topic, 0): Commit(1)}}
        for _ in names:
            admin(cluster).delete_acls([filter_of(acls.pop())])
        for name in names:
            allow(ResourceType.GROUP, name, "User:jane", AclOperation.DESCRIBE)

        def hidden_group() -> bool:
            answers = asked(cluster, lambda brokers: committed_offsets(brokers, [group]))
            return code_of(answers[group]) == GROUP_AUTHORIZATION_FAILED

        wait_until(hidden_group, "reading needs DESCRIBE")
        wait_until(all_refused, "without DESCRIBE as well")
        assert listed(cluster, group) == ListedGroup(group, "", "Empty")  # DESCRIBE on the cluster is enough
    finally:
        for _, deleted in admin(cluster).delete_acls([filter_of(acl) for acl in acls]).items():
            deleted.result(ANSWER_S)


def filter_of(acl: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        acl.restype, acl.name, acl.resource_pattern_type, acl.principal, acl.host, acl.operation, acl.permission_type
    )


def test_the_model_keeps_and_refuses_commits_as_a_broker_does(guarded_cluster: KafkaCluster) -> None:
    async def settled(ask: Callable[[], Awaitable[T]]) -> T:
        async def final() -> list[T]:
            answer = await ask()
            single = answer.values() if isinstance(answer, dict) else ()
            refused = any(isinstance(one, BrokerRefused) and one.code in NO_COORDINATOR for one in single)
            return [] if refused else [answer]

        (answer,) = await until(final, "the group has a coordinator")
        return answer

    async def play(world: World) -> list[object]:
        await world.create_topic("t", {})
        topic, mark = world.name_of("t"), world.name_of("g")
        answers: list[object] = []
        for name in ("plain", "grüppe ☃", "a.*b", "a b/c:d", "x" * 1000):
            group = f"{mark}{name}"
            for commits in (
                {(topic, 0): Commit(5, "m")},
                {(topic, 0): Commit(0, "")},
                {(topic, 1): Commit(5)},
                {(topic, -1): Commit(5)},
                {(f"no-{topic}", 0): Commit(5)},
                {(topic, 0): Commit(8, "ü" * 4096)},
                {(topic, 0): Commit(9, "x" * 4097)},
                {(topic, 0): Commit(-1)},
            ):
                told = await settled(partial(commit_offsets, world.brokers, group, commits))
                answers.append((name, list(commits.values()), [code_of(one) for one in told.values()]))
                kept = (await settled(partial(committed_offsets, world.brokers, [group])))[group]
                assert not isinstance(kept, BrokerRefused)
                answers.append(list(kept.values()))
        unknown = await settled(lambda: committed_offsets(world.brokers, [f"{mark}unknown", ""]))
        answers.append(list(unknown.values()))
        groups = await list_groups(world.brokers)
        answers.append(
            sorted(
                (name.removeprefix(mark), one.protocol_type, one.state)
                for name, one in groups.items()
                if name.startswith(mark)
            )
        )
        return answers

    expected, got = on_both(play, guarded_cluster, now_ms=time.time_ns() // 1_000_000)
    for model, broker in zip(expected, got, strict=True):
        assert model == broker
