"""A world in which topic settings and ACLs are synced every minute, and helpers to read its log and its requests."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from mm2py.topics.acls import Operation, Pattern, Permission, TopicAcl
from tests.fakes.broker.broker_model import ClusterModel
from tests.scenarios.world import BEATS_SELDOM, World

MINUTE_S, HOUR_S = 60.0, 3600.0
EVERY_MINUTE = {"sync.topic.configs.interval.seconds": "60", "sync.topic.acls.interval.seconds": "60", **BEATS_SELDOM}
IDENTITY = {"replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"}


def world_with(*topics: str, **extra: str) -> World:
    world = World(7, extra={**EVERY_MINUTE, **extra})
    for topic in topics:
        world.source.create_topic(topic, 1)
        world.source.append(topic, 0, [b"1"])
    return world


def lines(world: World, event: str) -> list[str]:
    return [line for line in world.log_text.getvalue().splitlines() if re.search(rf" {event}( |$)", line)]


async def until(condition: Callable[[], bool], *, deadline_s: float = 5 * MINUTE_S) -> None:
    async with asyncio.timeout(deadline_s):
        while not condition():
            await asyncio.sleep(0.1)


def times_of(cluster: ClusterModel, channel: str, api: str) -> list[float]:
    """Return the times at which workers sent such requests on one of their channels."""
    return [at_s for at_s, _, on, what, _ in cluster.trace if what == api and on.endswith(f" {channel}")]


def acl(
    name: str,
    operation: Operation = Operation.READ,
    permission: Permission = Permission.ALLOW,
    *,
    pattern: Pattern = Pattern.LITERAL,
    principal: str = "User:jane",
    host: str = "*",
) -> TopicAcl:
    return TopicAcl(name, int(pattern), principal, host, int(operation), int(permission))
