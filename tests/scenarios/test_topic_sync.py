"""Settings and ACLs of topics follow their source on schedule, and whatever stands in their way delays no copying."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from connectors.source.refused_configs import AGAIN_S
from connectors.source.repeating import NEWS_EVERY_S
from mm2py.kafka import admin
from mm2py.kafka.admin import ConfigEntry, NewTopic
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.messages import CreateAclsRequest, DescribeAclsRequest
from mm2py.kafka.port import Brokers
from mm2py.kafka.retry import name_of
from mm2py.topics.acls import Operation, Pattern, Permission, TopicAcl
from mm2py.topics.topic_configs import ConfigSource
from tests.fakes.broker_model import ClusterModel
from tests.fakes.record_batch import Record
from tests.fakes.virtual_time import run_virtual
from tests.scenarios.world import World

MINUTE_S, HOUR_S = 60.0, 3600.0
EVERY_MINUTE = {"sync.topic.configs.interval.seconds": "60", "sync.topic.acls.interval.seconds": "60"}
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
    return [at_s for at_s, _, on, what, _ in cluster.trace if (on, what) == (channel, api)]


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


# ---- settings


def test_settings_follow_at_the_start_and_then_at_every_interval() -> None:
    async def scenario() -> None:
        world = world_with("orders")
        world.target.create_topic("A.orders", 1, {"retention.ms": "5", "segment.ms": "7", "min.insync.replicas": "1"})
        world.source.configure_topic("orders", {"retention.ms": "1000000"})
        async with world.worker():
            await world.copied({"orders": "A.orders"})
            await asyncio.sleep(1)
            assert world.target.topics["A.orders"].overrides == {"retention.ms": "1000000", "min.insync.replicas": "1"}
            (line,) = lines(world, "topic_configs.changed")
            assert 'settings="retention.ms: 5 -> 1000000; segment.ms: 7 -> (the target\'s default)"' in line
            world.source.configure_topic("orders", {"cleanup.policy": "compact,delete", "segment.bytes": "99999"})
            world.target.configure_topic("A.orders", {"retention.ms": "3"})
            await asyncio.sleep(5 * MINUTE_S)
            assert world.target.topics["A.orders"].overrides == {
                "retention.ms": "1000000",
                "min.insync.replicas": "1",
                "cleanup.policy": "compact,delete",
                "segment.bytes": "99999",
            }
            asked_s = times_of(world.source, "sync", "DescribeConfigs")
            # A change of cleanup.policy is followed by a question on the copier's behalf, at once.
            gaps = [gap for earlier, later in pairwise(asked_s) if (gap := later - earlier) > 1]
            assert len(gaps) == 5
            assert gaps == pytest.approx([60.0] * 5, abs=0.02)
            assert len(times_of(world.target, "sync", "IncrementalAlterConfigs")) == 2  # only what differs is written

    run_virtual(scenario(), limit_s=HOUR_S)


@pytest.mark.parametrize(
    "off",
    [
        {"sync.topic.configs.enabled": "false"},
        EVERY_MINUTE | {"sync.topic.configs.interval.seconds": "-1", "sync.topic.acls.interval.seconds": "-1"},
    ],
)
def test_what_is_switched_off_asks_nothing(off: dict[str, str]) -> None:
    async def scenario() -> None:
        world = world_with("orders", **off)
        async with world.worker():
            await world.copied({"orders": "A.orders"})
            world.source.configure_topic("orders", {"retention.ms": "1000"})
            await asyncio.sleep(5 * MINUTE_S)
            assert world.target.topics["A.orders"].overrides == {}
            assert not times_of(world.source, "sync", "DescribeConfigs")

    run_virtual(scenario(), limit_s=HOUR_S)


@pytest.mark.parametrize("hung", ["IncrementalAlterConfigs", "DescribeAcls"])
def test_a_target_that_answers_no_admin_request_delays_no_copying_and_is_asked_again(hung: str) -> None:
    async def scenario() -> None:
        world = world_with("orders")
        world.source.acls = {acl("orders")}
        world.target.acls = set()
        world.target.hung_apis.add(hung)
        async with world.worker():
            await world.copied({"orders": "A.orders"})
            world.source.configure_topic("orders", {"retention.ms": "1000000"})
            for number in range(60):
                world.source.append("orders", 0, [b"%d" % number])
                await world.copied({"orders": "A.orders"}, deadline_s=5.0)
                await asyncio.sleep(5.0)
            failing = lines(world, "topic_configs.failing") + lines(world, "topic_acls.failing")
            assert len(failing) == 1
            assert f"did not answer {hung} within 30 s" in failing[0]
            world.target.hung_apis.clear()
            await until(
                lambda: (
                    world.target.topics["A.orders"].overrides == {"retention.ms": "1000000"}
                    and world.target.acls == {acl("A.orders")}
                ),
                deadline_s=2 * MINUTE_S,
            )
            await asyncio.sleep(1)
            assert len(lines(world, "topic_configs.in_step") + lines(world, "topic_acls.in_step")) == 1

    run_virtual(scenario(), limit_s=HOUR_S)


def test_a_target_that_cannot_change_settings_at_all_is_said_once_and_copied_to() -> None:
    """MirrorMaker 2 fails its connector there."""

    async def scenario() -> None:
        world = world_with("orders")
        world.target.unspoken_apis = {"IncrementalAlterConfigs"}
        async with world.worker():
            await world.copied({"orders": "A.orders"})
            world.source.configure_topic("orders", {"retention.ms": "1000000"})
            await asyncio.sleep(10 * MINUTE_S)
            (line,) = lines(world, "topic_configs.failing")
            assert "speaks IncrementalAlterConfigs in versions none" in line
            world.source.append("orders", 0, [b"2"])
            await world.copied({"orders": "A.orders"}, deadline_s=5.0)
            assert not lines(world, "flow.failed")
            world.target.unspoken_apis = set()
            await until(lambda: world.target.topics["A.orders"].overrides == {"retention.ms": "1000000"})

    run_virtual(scenario(), limit_s=HOUR_S)


def test_a_setting_that_the_target_refuses_is_left_out_alone_said_once_and_tried_again() -> None:
    """B80, B81: a setting that only the source's brokers know."""

    async def scenario() -> None:
        world = world_with("orders", "bills")
        async with world.worker():
            await world.copied({"orders": "A.orders", "bills": "A.bills"})
            world.target.unknown_configs = {"preallocate"}
            world.source.configure_topic(
                "orders", {"preallocate": "true", "retention.ms": "1000000", "segment.ms": "10"}
            )
            world.source.configure_topic("bills", {"retention.ms": "2000000"})
            await asyncio.sleep(10 * MINUTE_S)
            assert world.target.topics["A.orders"].overrides == {"retention.ms": "1000000", "segment.ms": "10"}
            assert world.target.topics["A.bills"].overrides == {"retention.ms": "2000000"}
            (line,) = lines(world, "topic_config.refused")
            assert "topic=A.orders setting=preallocate value=true" in line
            assert "INVALID_CONFIG (40): Unknown topic config name: preallocate" in line
            assert "Set it on B by hand, or add it to config.properties.exclude." in line
            tries = len(times_of(world.target, "sync", "IncrementalAlterConfigs"))
            await asyncio.sleep(10 * MINUTE_S)
            assert len(times_of(world.target, "sync", "IncrementalAlterConfigs")) == tries
            world.target.unknown_configs = set()
            await until(lambda: "preallocate" in world.target.topics["A.orders"].overrides, deadline_s=AGAIN_S)
            await asyncio.sleep(1)
            assert len(lines(world, "topic_config.accepted")) == 1
            assert len(lines(world, "topic_config.refused")) == 1

    run_virtual(scenario(), limit_s=3 * HOUR_S)


def test_a_topic_is_created_without_the_settings_that_the_target_refuses() -> None:
    async def scenario() -> None:
        world = World(7, extra=EVERY_MINUTE)
        refused = {"preallocate": "true", "local.retention.ms": "5"}
        taken = {"cleanup.policy": "compact", "max.message.bytes": "5000", "segment.ms": "10"}
        world.source.create_topic("orders", 1, {**refused, **taken})
        world.source.create_topic("bills", 1, {"segment.ms": "11"})
        for topic in ("orders", "bills"):
            world.source.append(topic, 0, [Record(b"v", key=b"k")])
        world.target.unknown_configs = set(refused)
        async with world.worker():
            await world.copied({"orders": "A.orders", "bills": "A.bills"})
            await asyncio.sleep(5 * MINUTE_S)
            assert world.target.topics["A.orders"].overrides == taken
            assert world.target.topics["A.bills"].overrides == {"segment.ms": "11"}
            said = lines(world, "topic_config.refused")
            assert {name for name in refused if any(f"setting={name} " in line for line in said)} == refused.keys()
            assert len(said) == 2
            assert not lines(world, "topic.refused")

    run_virtual(scenario(), limit_s=HOUR_S)


@pytest.mark.parametrize("code", [89, 7, 41, None])
@pytest.mark.parametrize("hit", range(4))
def test_a_target_that_is_busy_while_it_is_asked_about_settings_gets_no_topic_without_them(
    code: int | None, hit: int
) -> None:
    """Without cleanup.policy=compact the default policy would delete old records as they come."""

    async def scenario() -> None:
        world = World(7, extra=EVERY_MINUTE)
        wanted = {"cleanup.policy": "compact", "retention.ms": "-1"}
        world.source.create_topic("orders", 1, {**wanted, "preallocate": "true"})
        world.source.append("orders", 0, [Record(b"v", key=b"k")])
        world.target.unknown_configs = {"preallocate"}
        asked: list[Sequence[NewTopic]] = []
        made: list[dict[str, str]] = []
        create = admin.create_topics

        async def busy_once(brokers: Brokers, topics: Iterable[NewTopic], *, validate_only: bool = False) -> Any:
            topics = list(topics)
            if validate_only:
                asked.append(topics)
                if len(asked) == hit + 1:
                    if code is None:
                        return {}
                    return {one.name: BrokerRefused("Creating it", code, name_of(code)) for one in topics}
            found = await create(brokers, topics, validate_only=validate_only)
            if not validate_only and found["A.orders"] is None:
                made.extend(dict(one.configs) for one in topics)
            return found

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(admin, "create_topics", busy_once)
            async with world.worker():
                await world.copied({"orders": "A.orders"})
                await asyncio.sleep(2 * MINUTE_S)
                assert len(asked) > hit
                assert made == [wanted]
                (line,) = lines(world, "topic_config.refused")
                assert "setting=preallocate" in line
                assert not lines(world, "topic.refused")

    run_virtual(scenario(), limit_s=HOUR_S)


def test_a_missing_right_is_named_once_and_taken_up_when_granted() -> None:
    async def scenario() -> None:
        world = world_with("orders", "bills")
        async with world.worker():
            await world.copied({"orders": "A.orders", "bills": "A.bills"})
            world.target.denied_configs = {"A.orders"}
            for topic in ("orders", "bills"):
                world.source.configure_topic(topic, {"retention.ms": "1000000"})
            await asyncio.sleep(10 * MINUTE_S)
            (line,) = lines(world, "topic_configs.denied")
            assert "Grant ALTER_CONFIGS on topic A.orders on B." in line
            assert world.target.topics["A.orders"].overrides == {}
            assert world.target.topics["A.bills"].overrides == {"retention.ms": "1000000"}
            world.target.denied_configs = set()
            await asyncio.sleep(MINUTE_S)
            assert world.target.topics["A.orders"].overrides == {"retention.ms": "1000000"}

    run_virtual(scenario(), limit_s=HOUR_S)


def test_a_setting_taken_back_upstream_is_taken_back_and_one_set_by_hand_beside_the_brokers_file_stays() -> None:
    """The source's server.properties sets log.retention.hours, as the stock file does."""

    async def scenario() -> None:
        world = world_with("orders", "bills")
        in_the_file = {"orders": False, "bills": True}
        describe = admin.describe_topic_configs

        async def with_a_file(brokers: Brokers, topics: Sequence[str], **more: Any) -> Any:
            found = await describe(brokers, topics, **more)
            if brokers is world.source:
                for name, entries in found.items():
                    if in_the_file[name]:
                        file = ConfigEntry("retention.ms", "604800000", ConfigSource.STATIC_BROKER, False, False)
                        found[name] = [one for one in entries if one.name != "retention.ms"] + [file]
            return found

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(admin, "describe_topic_configs", with_a_file)
            async with world.worker():
                await world.copied({"orders": "A.orders", "bills": "A.bills"})
                world.source.configure_topic("orders", {"retention.ms": "60000"})
                world.target.configure_topic("A.bills", {"retention.ms": "-1"})
                await until(lambda: world.target.topics["A.orders"].overrides == {"retention.ms": "60000"})
                world.source.configure_topic("orders", {})
                in_the_file["orders"] = True
                await until(lambda: world.target.topics["A.orders"].overrides == {})
                await asyncio.sleep(3 * MINUTE_S)
                assert world.target.topics["A.bills"].overrides == {"retention.ms": "-1"}
                world.target.configure_topic("A.orders", {"retention.ms": "-1"})
                await asyncio.sleep(3 * MINUTE_S)
                assert world.target.topics["A.orders"].overrides == {"retention.ms": "-1"}

    run_virtual(scenario(), limit_s=HOUR_S)


@pytest.mark.parametrize("identity", [False, True])
def test_settings_that_may_not_be_read_are_said_once_also_where_both_sides_have_one_name(identity: bool) -> None:
    async def scenario() -> None:
        world = world_with("orders", **(IDENTITY if identity else {}))
        remote = "orders" if identity else "A.orders"
        describe = admin.describe_topic_configs

        async def denied(brokers: Brokers, topics: Sequence[str], **more: Any) -> Any:
            if brokers is world.target and more.get("channel") == "sync" and "keys" not in more:
                return {name: BrokerRefused(f"Reading {name}", 29, "TOPIC_AUTHORIZATION_FAILED") for name in topics}
            return await describe(brokers, topics, **more)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(admin, "describe_topic_configs", denied)
            async with world.worker():
                await world.copied({"orders": remote})
                await asyncio.sleep(10 * MINUTE_S)
                (line,) = lines(world, "topic_configs.denied")
                assert f"Grant ALTER_CONFIGS on topic {remote} on B." in line

    run_virtual(scenario(), limit_s=HOUR_S)


def test_a_dry_run_names_every_topic_and_a_right_that_is_missing_for_all_of_them_fills_no_log() -> None:
    async def scenario(**extra: str) -> None:
        names = [f"t{number:02}" for number in range(60)]
        world = world_with(*names, **extra)
        async with world.worker():
            await world.copied({name: f"A.{name}" for name in names})
            await asyncio.sleep(2)
            world.target.denied_configs = {f"A.{name}" for name in names}
            for name in names:
                world.source.configure_topic(name, {"retention.ms": "1000000"})
            await asyncio.sleep(10 * MINUTE_S)
            said = lines(world, "topic_configs.would_change" if extra else "topic_configs.denied")
            assert len(said) == 21
            assert "topics=40" in said[-1]
            assert [name for name in names if not any(re.search(rf"\bA\.{name}\b", line) for line in said)] == []
            assert ("sync.topic.configs.dry.run=true" if extra else "Grant ALTER_CONFIGS on them on B.") in said[-1]

    run_virtual(scenario(), limit_s=HOUR_S)
    run_virtual(scenario(**{"sync.topic.configs.dry.run": "true"}), limit_s=HOUR_S)


def test_a_defect_in_the_sync_is_said_loudly_and_stops_no_copying() -> None:
    async def scenario() -> None:
        world = world_with("orders")

        async def broken(*_: object, **__: object) -> Any:
            raise KeyError("nobody thought of it")

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(admin, "alter_topic_configs", broken)
            async with world.worker():
                await world.copied({"orders": "A.orders"})
                world.source.configure_topic("orders", {"retention.ms": "1000000"})
                for _ in range(10):
                    await asyncio.sleep(MINUTE_S)
                    world.source.append("orders", 0, [b"more"])
                    await world.copied({"orders": "A.orders"}, deadline_s=1.0)
                (line,) = lines(world, "topic_configs.failing")
                assert " ERROR " in line
                assert "KeyError: 'nobody thought of it'" in line
                assert "This is a defect in mm2py" in line
                assert not lines(world, "flow.crashed")
                assert len(lines(world, "flow.ready")) == 1
                patched.undo()
                await until(lambda: world.target.topics["A.orders"].overrides == {"retention.ms": "1000000"})

    run_virtual(scenario(), limit_s=HOUR_S)


def test_a_dry_run_says_what_would_change_and_changes_nothing() -> None:
    async def scenario() -> None:
        world = world_with("orders", **{"A->B.sync.topic.configs.dry.run": "true", "sync.topic.acls.dry.run": "true"})
        world.source.acls, world.target.acls = {acl("orders")}, set()
        async with world.worker():
            await world.copied({"orders": "A.orders"})
            world.source.configure_topic("orders", {"retention.ms": "1000"})
            await asyncio.sleep(5 * MINUTE_S)
            world.source.configure_topic("orders", {"retention.ms": "2000"})
            await asyncio.sleep(5 * MINUTE_S)
            first, second = lines(world, "topic_configs.would_change")
            assert 'topic=A.orders settings="retention.ms: (the target\'s default) -> 1000"' in first
            assert "-> 2000" in second
            (plan,) = lines(world, "topic_acls.planned")
            assert "acls=1" in plan
            assert "nothing is written" in plan
            assert "ALLOW READ on LITERAL A.orders for User:jane from *" in lines(world, "topic_acls.named")[0]
            assert world.target.topics["A.orders"].overrides == {}
            assert world.target.acls == set()
            assert not times_of(world.target, "sync", "IncrementalAlterConfigs")

    run_virtual(scenario(), limit_s=HOUR_S)


def test_the_copier_learns_that_larger_batches_pass_now() -> None:
    async def scenario() -> None:
        world = World(7, extra=EVERY_MINUTE)
        world.source.create_topic("orders", 1, {"max.message.bytes": "1000"})
        world.source.append("orders", 0, [b"1"])
        async with world.worker() as herder:
            await world.copied({"orders": "A.orders"})
            world.source.configure_topic("orders", {"max.message.bytes": "100000"})
            await until(lambda: "max.message.bytes: 1000 -> 100000" in world.log_text.getvalue())
            await asyncio.sleep(1)
            world.source.append("orders", 0, [b"x" * 900 for _ in range(50)])
            await world.copied({"orders": "A.orders"})
            (topic,) = herder.status()[0].topics
            assert topic.rebuilt == {}

    run_virtual(scenario(), limit_s=HOUR_S)


def test_a_min_insync_replicas_that_the_remote_topic_cannot_reach_is_left_out() -> None:
    """B80: brokers take the setting, and then refuse every record."""

    async def scenario() -> None:
        world = World(7, extra={**EVERY_MINUTE, "config.properties.exclude": "segment.ms"})
        world.source.create_topic("born", 1, {"min.insync.replicas": "2", "retention.ms": "1000000"})
        world.source.create_topic("raised", 1)
        async with world.worker():
            await until(lambda: "A.raised" in world.target.topics and "A.born" in world.target.topics)
            world.source.configure_topic("raised", {"min.insync.replicas": "2", "retention.ms": "1000000"})
            await asyncio.sleep(5 * MINUTE_S)
            for topic in ("A.born", "A.raised"):
                assert world.target.topics[topic].overrides == {"retention.ms": "1000000"}
                (line,) = lines(world, f"topic_config.refused topic={topic}")
                assert "no record could be written to it" in line

    run_virtual(scenario(), limit_s=HOUR_S)


@pytest.mark.parametrize(("most", "has"), [("2", {"min.insync.replicas": "2"}), ("3", {})])
def test_with_the_brokers_own_number_of_replicas_min_insync_replicas_is_set_once_they_can_be_counted(
    most: str, has: dict[str, str]
) -> None:
    """B80: with replication.factor=-1 nobody knows their number before the topic is there."""

    async def scenario() -> None:
        extra = {**EVERY_MINUTE, "replication.factor": "-1", "config.properties.exclude": "segment.ms"}
        world = World(7, nodes=3, extra=extra)
        world.target.broker_config["default.replication.factor"] = "2"
        world.source.create_topic("orders", 1)
        world.source.append("orders", 0, [b"1"])
        world.source.configure_topic("orders", {"min.insync.replicas": most})
        async with world.worker():
            await world.copied({"orders": "A.orders"})
            await asyncio.sleep(2 * MINUTE_S)
            assert world.target.topics["A.orders"].overrides == has
            assert len(lines(world, "topic_config.refused")) == (0 if has else 1)

    run_virtual(scenario(), limit_s=HOUR_S)


def test_with_the_brokers_own_number_of_replicas_and_no_sync_a_min_insync_replicas_is_said_to_be_left_out() -> None:
    async def scenario() -> None:
        extra = {"replication.factor": "-1", "config.properties.exclude": "segment.ms"}
        world = World(7, extra={**extra, "sync.topic.configs.enabled": "false"})
        world.source.create_topic("orders", 1)
        world.source.append("orders", 0, [b"1"])
        world.source.configure_topic("orders", {"min.insync.replicas": "3"})
        async with world.worker():
            await world.copied({"orders": "A.orders"})
            assert world.target.topics["A.orders"].overrides == {}
            (line,) = lines(world, "topic_config.refused")
            assert "left to the configuration sync, which is switched off" in line

    run_virtual(scenario(), limit_s=HOUR_S)


# ---- ACLs


def test_acls_are_printed_then_created_and_later_ones_at_the_next_interval() -> None:
    async def scenario() -> None:
        world = world_with("orders", "bills")
        jane = "User:CN=Jane, OU=R&D, O=Wörks"
        world.source.acls = {
            acl("orders", principal=jane, host="10.0.0.7"),
            acl("orders", Operation.ALL),
            acl("orders", Operation.WRITE),
            acl("orders", Operation.ALL, Permission.DENY, principal="User:mallory"),
            acl("mm2-offsets.B.internal"),
            acl("*"),
            acl("*", Operation.DESCRIBE, Permission.DENY, principal="User:eve"),
            acl("ord", pattern=Pattern.PREFIXED),
            acl("ord", Operation.ALL, Permission.DENY, pattern=Pattern.PREFIXED, principal="User:eve"),
        }
        world.target.acls = {acl("A.orders", Operation.READ)}
        expected = {
            acl("A.orders", principal=jane, host="10.0.0.7"),
            acl("A.orders", Operation.READ),
            acl("A.orders", Operation.ALL, Permission.DENY, principal="User:mallory"),
            acl("A.", Operation.DESCRIBE, Permission.DENY, pattern=Pattern.PREFIXED, principal="User:eve"),
            acl("A.ord", Operation.ALL, Permission.DENY, pattern=Pattern.PREFIXED, principal="User:eve"),
        }
        async with world.worker():
            await world.copied({"orders": "A.orders"})
            await until(lambda: len(lines(world, "topic_acls.created")) == 2, deadline_s=10.0)
            assert world.target.acls == expected
            # Nothing was copied yet in the first round: DENYs are there before the topic, rights come soon after it.
            for number, kind in enumerate(("DENY", "ALLOW")):
                names = lines(world, "topic_acls.named")[number]
                assert names.count(kind) == names.count("User:") > 0
            plan, done = (lines(world, event)[0] for event in ("topic_acls.planned", "topic_acls.created"))
            text = world.log_text.getvalue()
            assert text.index(plan) < text.index("topic_acls.named") < text.index(done)
            assert f"ALLOW READ on LITERAL A.orders for {jane} from 10.0.0.7" in text
            assert len(lines(world, "topic_acls.named")) == 2
            world.source.acls.add(acl("bills"))
            world.source.acls.discard(acl("orders", Operation.ALL))
            await asyncio.sleep(5 * MINUTE_S)
            assert world.target.acls == {*expected, acl("A.bills")}  # none is ever deleted
            assert len(lines(world, "topic_acls.left_out")) == 2
            asked_s = times_of(world.source, "sync.acls", "DescribeAcls")
            assert [at_s - asked_s[0] for at_s in asked_s] == pytest.approx(
                [0.0, NEWS_EVERY_S, *(60.0 * number for number in range(1, 6))], abs=0.02
            )
            assert len(times_of(world.target, "sync.acls", "CreateAcls")) == 3

    run_virtual(scenario(), limit_s=HOUR_S)


def test_under_the_identity_policy_what_is_denied_on_many_topics_is_denied_on_each_copied_one() -> None:
    async def scenario() -> None:
        world = world_with("orders", "bills", **IDENTITY)
        eve = {"principal": "User:eve"}
        world.source.acls = {
            acl("*", Operation.READ, Permission.DENY, **eve),
            acl("ord", Operation.DESCRIBE, Permission.DENY, pattern=Pattern.PREFIXED, **eve),
        }
        world.target.acls = set()
        async with world.worker():
            await world.copied({"orders": "orders", "bills": "bills"})
            await asyncio.sleep(MINUTE_S)
            assert world.target.acls == {
                acl("orders", Operation.READ, Permission.DENY, **eve),
                acl("bills", Operation.READ, Permission.DENY, **eve),
                acl("orders", Operation.DESCRIBE, Permission.DENY, **eve),
            }

    run_virtual(scenario(), limit_s=HOUR_S)


@pytest.mark.parametrize("without", ["A", "B"])
def test_a_cluster_without_an_authorizer_is_said_once_and_noticed_when_it_gets_one(without: str) -> None:
    async def scenario() -> None:
        world = world_with("orders")
        world.source.acls, world.target.acls = {acl("orders")}, set()
        bare = world.source if without == "A" else world.target
        kept, bare.acls = bare.acls, None
        async with world.worker():
            await asyncio.sleep(HOUR_S)
            (line,) = lines(world, "topic_acls.no_authorizer")
            assert f"cluster={without}" in line
            assert " INFO " in line
            bare.acls = kept
            await asyncio.sleep(MINUTE_S)
            assert world.target.acls == {acl("A.orders")}

    run_virtual(scenario(), limit_s=3 * HOUR_S)


@pytest.mark.parametrize(
    ("denied", "right"), [("A", "Grant DESCRIBE on the cluster resource of A"), ("B", "Grant ALTER on the cluster")]
)
def test_the_right_on_the_cluster_that_is_missing_is_named_once(denied: str, right: str) -> None:
    async def scenario() -> None:
        world = world_with("orders")
        world.source.acls, world.target.acls = {acl("orders")}, set()
        (world.source if denied == "A" else world.target).denied_on_cluster = {"DESCRIBE" if denied == "A" else "ALTER"}
        async with world.worker():
            await world.copied({"orders": "A.orders"})
            await asyncio.sleep(HOUR_S)
            (line,) = lines(world, "topic_acls.denied")
            assert f"cluster={denied}" in line
            assert right in line
            assert "CLUSTER_AUTHORIZATION_FAILED" in line
            world.source.denied_on_cluster = world.target.denied_on_cluster = set()
            await asyncio.sleep(MINUTE_S)
            assert world.target.acls == {acl("A.orders")}

    run_virtual(scenario(), limit_s=3 * HOUR_S)


def test_a_dry_run_asks_for_the_right_to_read_acls_only() -> None:
    async def scenario() -> None:
        world = world_with("orders", **{"sync.topic.acls.dry.run": "true"})
        world.source.acls, world.target.acls = {acl("orders")}, set()
        world.target.denied_on_cluster = {"DESCRIBE"}
        async with world.worker():
            await world.copied({"orders": "A.orders"})
            await asyncio.sleep(MINUTE_S)
            (line,) = lines(world, "topic_acls.denied")
            assert "Grant DESCRIBE on the cluster resource of B" in line

    run_virtual(scenario(), limit_s=HOUR_S)


@pytest.mark.parametrize("policy", [{}, IDENTITY])
def test_rights_on_topics_that_are_not_copied_stay_behind_until_they_are(policy: dict[str, str]) -> None:
    """Under the identity policy B's own topics bear the names that A's ACLs are about: who reads A's must not read B's.

    A's ``salaries`` is refused, for B has one with records of its own; ``payroll`` is on B only.
    """

    async def scenario() -> None:
        world = world_with("orders", "salaries", **policy)
        prefix = "" if policy else "A."
        for name in ("payroll", "salaries"):
            world.target.create_topic(prefix + name, 1)
            world.target.append(prefix + name, 0, [b"own"])
        eve = {"principal": "User:eve"}
        world.source.acls = {
            acl("orders", **eve),
            *(acl(name, operation, **eve) for name in ("payroll", "salaries", "later") for operation in Operation),
            acl("payroll", Operation.READ, Permission.DENY, **eve),
        }
        world.target.acls = set()
        expected = {acl(prefix + "orders", **eve), acl(prefix + "payroll", Operation.READ, Permission.DENY, **eve)}
        async with world.worker():
            await world.copied({"orders": prefix + "orders"})
            await asyncio.sleep(3 * MINUTE_S)
            assert len(lines(world, "topic.refused")) == 1
            assert world.target.acls == expected
            world.source.create_topic("later", 1)
            await until(lambda: acl(prefix + "later", **eve) in world.target.acls, deadline_s=10.0)

    run_virtual(scenario(), limit_s=HOUR_S)


def test_under_the_identity_policy_a_later_denial_of_many_topics_reaches_copies_of_topics_that_are_gone() -> None:
    async def scenario() -> None:
        world = world_with("orders", "old", **IDENTITY)
        world.target.create_topic("own", 1)
        world.source.acls, world.target.acls = set(), set()
        async with world.worker():
            await world.copied({"orders": "orders", "old": "old"})
            world.source.delete_topic("old")
            await until(lambda: bool(lines(world, "topic.gone")))
            world.source.acls = {acl("*", permission=Permission.DENY)}
            await asyncio.sleep(MINUTE_S)
            assert world.target.acls == {acl(name, permission=Permission.DENY) for name in ("orders", "old")}

    run_virtual(scenario(), limit_s=HOUR_S)


def test_an_acl_whose_remote_name_is_too_long_keeps_no_denial_from_being_created() -> None:
    """Brokers take no text over 32,767 bytes: they close the connection, and all that was in the request is lost."""

    async def scenario() -> None:
        world = world_with("orders")
        denials = {acl("orders", permission=Permission.DENY, principal=f"User:{number}") for number in range(3)}
        world.source.acls = {
            acl("a" * 32_766),
            acl("a" * 32_766, permission=Permission.DENY),
            acl("a" * 32_766, permission=Permission.DENY, pattern=Pattern.PREFIXED),
            *denials,
        }
        world.target.acls = set()
        world.target.cut_off_by = lambda request: (
            isinstance(request, CreateAclsRequest) and any(len(one.resource_name) > 32_767 for one in request.creations)
        )
        async with world.worker():
            await world.copied({"orders": "A.orders"})
            await asyncio.sleep(10 * MINUTE_S)
            assert world.target.acls == {replace(one, name="A.orders") for one in denials}
            (line,) = lines(world, "topic_acls.left_out")
            assert "acls=2" in line
            assert not lines(world, "topic_acls.failing")

    run_virtual(scenario(), limit_s=HOUR_S)


def cut_off_by_acl_for(principal: str) -> Callable[[object], bool]:
    return lambda request: (
        isinstance(request, CreateAclsRequest) and any(one.principal == principal for one in request.creations)
    )


@pytest.mark.parametrize("permission", Permission)
def test_after_a_request_that_failed_the_others_are_sent(permission: Permission) -> None:
    async def scenario() -> None:
        world = world_with("orders")
        world.source.acls = {
            acl("orders", permission=permission, principal=f"User:{number:04}") for number in range(1001)
        }
        world.target.acls = set()
        world.target.cut_off_by = cut_off_by_acl_for("User:0000")
        async with world.worker():
            await world.copied({"orders": "A.orders"})
            await asyncio.sleep(MINUTE_S / 2)
            assert len(world.target.acls) == 501
            await asyncio.sleep(3 * MINUTE_S)
            (line,) = lines(world, "topic_acls.failing")
            assert "it closed the connection" in line
            world.target.cut_off_by = lambda _: False
            await asyncio.sleep(MINUTE_S)
            assert len(world.target.acls) == 1001
            assert len(lines(world, "topic_acls.in_step")) == 1

    run_virtual(scenario(), limit_s=HOUR_S)


def test_nobody_gets_a_right_before_all_denials_are_in_place() -> None:
    """Everybody may read but zed. The ACLs took two requests, the first with the right, and the second was lost."""

    async def scenario() -> None:
        world = world_with("orders")
        grants = {acl("orders", principal=f"User:a{number:04}") for number in range(600)} | {
            acl("orders", principal="User:*")
        }
        zed = acl("orders", permission=Permission.DENY, principal="User:zed")
        world.source.acls = {*grants, zed}
        world.target.acls = set()
        world.target.cut_off_by = cut_off_by_acl_for("User:zed")
        async with world.worker():
            await world.copied({"orders": "A.orders"})
            await asyncio.sleep(3 * MINUTE_S)
            assert world.target.acls == set()
            (line,) = lines(world, "topic_acls.held_back")
            assert "acls=601" in line
            assert "DENY READ on LITERAL A.orders for User:zed from *" in line
            world.target.cut_off_by = lambda _: False
            await asyncio.sleep(MINUTE_S)
            assert world.target.acls == {replace(one, name="A.orders") for one in {*grants, zed}}
            assert len(lines(world, "topic_acls.held_back")) == 1

    run_virtual(scenario(), limit_s=HOUR_S)


def test_a_denial_that_the_target_refuses_holds_rights_back_and_is_said_once() -> None:
    """The one that is refused first is another in each round."""

    async def scenario() -> None:
        world = world_with("orders")
        denials = {acl("orders", permission=Permission.DENY, principal=f"odd{number}") for number in range(5)}
        world.source.acls = {acl("orders"), acl("orders", permission=Permission.DENY), *denials}
        world.target.acls = set()
        async with world.worker():
            await world.copied({"orders": "A.orders"})
            for number in range(5):
                await asyncio.sleep(MINUTE_S)
                assert world.target.acls == {acl("A.orders", permission=Permission.DENY)}
                world.source.acls.discard(acl("orders", permission=Permission.DENY, principal=f"odd{number}"))
            (line,) = lines(world, "topic_acls.refused")
            assert "INVALID_REQUEST" in line
            await asyncio.sleep(MINUTE_S)
            assert acl("A.orders") in world.target.acls

    run_virtual(scenario(), limit_s=HOUR_S)


def test_a_failure_that_lasts_is_said_once_whichever_broker_it_is() -> None:
    async def scenario() -> None:
        world = World(7, nodes=5, extra=EVERY_MINUTE)
        world.source.create_topic("orders", 1)
        world.source.append("orders", 0, [b"1"])
        world.source.acls, world.target.acls = {acl("orders")}, set()
        world.target.cut_off_by = lambda request: isinstance(request, DescribeAclsRequest)
        async with world.worker():
            await world.copied({"orders": "A.orders"})
            await asyncio.sleep(20 * MINUTE_S)
            assert len(lines(world, "topic_acls.failing")) == 1
            world.target.cut_off_by = lambda _: False
            await asyncio.sleep(MINUTE_S)
            assert len(lines(world, "topic_acls.in_step")) == 1

    run_virtual(scenario(), limit_s=HOUR_S)


def test_an_acl_that_was_deleted_on_the_target_by_hand_is_named_again_before_it_is_written_again() -> None:
    async def scenario() -> None:
        world = world_with("orders")
        world.source.acls, world.target.acls = {acl("orders")}, set()
        async with world.worker():
            await world.copied({"orders": "A.orders"})
            await asyncio.sleep(MINUTE_S)
            assert len(lines(world, "topic_acls.named")) == 1
            world.target.acls.clear()
            await asyncio.sleep(MINUTE_S)
            assert world.target.acls == {acl("A.orders")}
            assert len(lines(world, "topic_acls.named")) == 2

    run_virtual(scenario(), limit_s=HOUR_S)


def test_a_hostile_source_makes_no_more_rights_than_the_flow_may_have_whatever_it_comes_up_with_next() -> None:
    """S23. Denials are created nonetheless."""

    async def scenario() -> None:
        world = world_with("orders", **{"A->B.remote.acls.max": "10"})
        denials = {acl("orders", permission=Permission.DENY, principal=f"User:d{number}") for number in range(4)}
        own = acl("A.orders", principal="User:own")
        world.target.acls = {own}
        async with world.worker():
            for number in range(3):
                world.source.acls = {acl("orders", principal=f"User:{number}-{one}") for one in range(20)}
                await asyncio.sleep(MINUTE_S)
                assert len(world.target.acls) == 10
            (line,) = lines(world, "topic_acls.too_many")
            assert "acls=21 most=10" in line
            assert "Raise remote.acls.max" in line
            world.source.acls |= denials
            await asyncio.sleep(MINUTE_S)
            assert len(world.target.acls) == 14
            assert world.target.acls >= {replace(one, name="A.orders") for one in denials} | {own}

    run_virtual(scenario(), limit_s=HOUR_S)


@pytest.mark.parametrize("dry_run", ["false", "true"])
def test_ten_thousand_acls_go_in_requests_of_bounded_size_and_each_is_named_in_few_lines(dry_run: str) -> None:
    async def scenario() -> None:
        world = world_with("orders", **{"sync.topic.acls.dry.run": dry_run})
        principals = [f"User:{number:05}" for number in range(10_000)]
        world.source.acls = {acl("orders", principal=principal) for principal in principals}
        world.target.acls = set()
        async with world.worker():
            await world.copied({"orders": "A.orders"})
            await asyncio.sleep(MINUTE_S / 2)
            assert len(world.target.acls) == (10_000 if dry_run == "false" else 0)
            assert len(times_of(world.target, "sync.acls", "CreateAcls")) == (20 if dry_run == "false" else 0)
            named = lines(world, "topic_acls.named")
            assert len(named) < 200
            assert max(map(len, named)) < 5_000
            assert re.findall(r"for (\S+) from", " ".join(named)) == principals

    run_virtual(scenario(), limit_s=HOUR_S)
