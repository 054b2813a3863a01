"""The broker model changes settings of topics, and keeps ACLs, as a real broker does; see its older sibling."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from kio.static.primitive import i8

from deploy.local.kafka import KafkaCluster
from mm2py.kafka import messages
from mm2py.kafka.admin import create_topic_acls, describe_topic_acls
from mm2py.kafka.errors import BrokerRefused
from mm2py.topics.acls import TopicAcl
from tests.cluster.brokers.test_broker_model_matches_broker import Answer, ask, configs_of, create
from tests.cluster.running import paused
from tests.cluster.two_worlds import ModelWorld, World, on_both

SET, DELETE = 0, 1
T = TypeVar("T")
KEYS = ["retention.ms", "max.message.bytes", "cleanup.policy"]


async def alter(world: World, topic: str, *changes: tuple[str, int, str | None]) -> Answer:
    request = messages.IncrementalAlterConfigsRequest(
        resources=(
            messages.AlterConfigsResource(
                resource_type=i8(2),
                resource_name=world.name_of(topic),
                configs=tuple(
                    messages.AlterableConfig(name=name, config_operation=i8(operation), value=value)
                    for name, operation, value in changes
                ),
            ),
        ),
        validate_only=False,
    )
    return "alter", topic, changes, int((await ask(world, request, anywhere=True)).responses[0].error_code)


async def settled(look: Callable[[], Awaitable[T]]) -> T:
    """Return what is seen when it has not changed for a while: brokers hear of changes a little later."""
    seen, since = await look(), 0
    while since < 6:
        await paused(0.05, "it may change a little later")
        now = await look()
        seen, since = now, since + 1 if now == seen else 0
    return seen


def test_settings_of_topics_are_changed_and_refused_alike(target_cluster: KafkaCluster) -> None:
    """All of a topic's settings that one request names are changed, or none of them."""

    async def play(world: World) -> list[Answer]:
        answers = [await create(world, "s", 1, 1, {"retention.ms": "1000"}, validate_only=False)]
        for changes in (
            [("retention.ms", SET, "2000"), ("max.message.bytes", SET, "5000")],
            [("retention.ms", SET, "3000"), ("no.such", SET, "1")],
            [("retention.ms", SET, "3000"), ("cleanup.policy", SET, "burn")],
            [("retention.ms", SET, "3000"), ("max.message.bytes", SET, "-1")],
            [("no.such", SET, "1")],
            [("no.such", DELETE, None)],
            [("retention.ms", SET, None)],
            [("retention.ms", SET, "3000"), ("retention.ms", DELETE, None)],
            [("cleanup.policy", SET, "compact,delete")],
            [("segment.bytes", DELETE, None)],
            [("retention.ms", DELETE, None), ("max.message.bytes", SET, "6000")],
        ):
            answers.append(await alter(world, "s", *changes))
            answers.append(await settled(lambda: configs_of(world, "s", KEYS)))
        answers.append(await alter(world, "missing", ("retention.ms", SET, "1000")))
        return answers

    expected, got = on_both(play, target_cluster, now_ms=time.time_ns() // 1_000_000)
    for model, broker in zip(expected, got, strict=True):
        assert model == broker


def acl(name: str, principal: str = "User:jane", operation: int = 3, **other: Any) -> TopicAcl:
    return TopicAcl(name, other.get("pattern", 3), principal, other.get("host", "*"), operation, other.get("may", 3))


STRANGE: Sequence[TopicAcl] = (
    acl("a"),
    acl("a"),
    acl("a", "User:CN=Jane Doe, OU=R&D, O=Wörks"),
    acl("a", "User:josé", host="192.168.1.7"),
    acl("a", "Group:readers", operation=2, may=2),
    acl("p-", pattern=4, operation=8),
    acl("with blanks, and *"),
    acl("a", operation=4),
    acl("a", operation=9),
    acl("a", operation=1),
    acl("a", operation=99),
    acl("a", may=1),
    acl("a", may=77),
    acl("a", pattern=1),
    acl("a", pattern=2),
    acl("a", pattern=9),
    acl("a", "jane"),
    acl("a", ":jane"),
    acl("a", "User:"),
    acl("a", ""),
    acl("a", host=""),
    acl("a", host="no host at all"),
)


def test_acls_are_kept_and_refused_alike(guarded_cluster: KafkaCluster) -> None:
    async def play(world: World) -> list[Answer]:
        if isinstance(world, ModelWorld):
            world.cluster.acls = set()
        mark = world.name_of("acl")
        answers: list[Answer] = []
        for wanted in STRANGE:
            own = TopicAcl(mark + wanted.name, *[getattr(wanted, field) for field in wanted.__slots__[1:]])
            (refusal,) = (await create_topic_acls(world.brokers, [own])).values()
            answers.append((wanted, None if refusal is None else refusal.code))
        found = await settled(lambda: describe_topic_acls(world.brokers))
        kept = [one for one in found if one.name.startswith(mark)]
        answers.append(tuple(sorted((one.name.removeprefix(mark), *list_of(one)[1:]) for one in kept)))
        return answers

    expected, got = on_both(play, guarded_cluster, now_ms=time.time_ns() // 1_000_000)
    for model, broker in zip(expected, got, strict=True):
        assert model == broker


def list_of(one: TopicAcl) -> list[Any]:
    return [getattr(one, field) for field in one.__slots__]


def test_without_an_authorizer_both_say_so(target_cluster: KafkaCluster) -> None:
    async def play(world: World) -> list[Answer]:
        (refusal,) = (await create_topic_acls(world.brokers, [acl("a")])).values()
        assert refusal is not None
        try:
            await describe_topic_acls(world.brokers)
        except BrokerRefused as error:
            return [(refusal.code, error.code)]
        return []

    expected, got = on_both(play, target_cluster, now_ms=time.time_ns() // 1_000_000)
    assert expected == got == [(54, 54)]
