"""Topic settings follow their source on a schedule, and no failure of that delays copying."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from mm2py.kafka import admin
from mm2py.kafka.admin import ConfigEntry, NewTopic
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import Brokers
from mm2py.topics.topic_configs import ConfigSource
from mm2py_connectors.source.notices import AGAIN_S
from tests.fakes.broker.record_batch import Record
from tests.fakes.virtual_time import run_virtual
from tests.scenarios.sync_world import EVERY_MINUTE, HOUR_S, IDENTITY, MINUTE_S, acl, lines, times_of, until, world_with
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=HOUR_S)


async def test_settings_are_synced_at_the_start_and_then_at_every_interval() -> None:
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
        # A change of cleanup.policy makes the copier look it up at once.
        gaps = [gap for earlier, later in pairwise(asked_s) if (gap := later - earlier) > 1]
        assert len(gaps) == 5
        assert gaps == pytest.approx([60.0] * 5, abs=0.02)
        assert len(times_of(world.target, "sync", "IncrementalAlterConfigs")) == 2  # only differences are written


@pytest.mark.parametrize(
    "off",
    [
        {"sync.topic.configs.enabled": "false"},
        EVERY_MINUTE | {"sync.topic.configs.interval.seconds": "-1", "sync.topic.acls.interval.seconds": "-1"},
    ],
)
async def test_disabled_syncs_send_no_request(off: dict[str, str]) -> None:
    world = world_with("orders", **off)
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        world.source.configure_topic("orders", {"retention.ms": "1000"})
        await asyncio.sleep(5 * MINUTE_S)
        assert world.target.topics["A.orders"].overrides == {}
        assert not times_of(world.source, "sync", "DescribeConfigs")


@pytest.mark.parametrize("hung", ["IncrementalAlterConfigs", "DescribeAcls"])
async def test_a_target_that_answers_no_admin_request_delays_no_copying_and_is_asked_again(hung: str) -> None:
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


async def test_a_target_that_cannot_change_settings_at_all_is_logged_once_and_copied_to() -> None:
    """MirrorMaker 2 fails its connector there."""
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


@pytest.mark.virtual_time(limit_s=3 * HOUR_S)
async def test_a_refused_setting_is_left_out_alone_and_logged_once_and_tried_again() -> None:
    """B80, B81: a setting that only the source's brokers know."""
    world = world_with("orders", "bills")
    async with world.worker():
        await world.copied({"orders": "A.orders", "bills": "A.bills"})
        world.target.unknown_configs = {"preallocate"}
        world.source.configure_topic("orders", {"preallocate": "true", "retention.ms": "1000000", "segment.ms": "10"})
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


async def test_a_topic_is_created_without_the_settings_that_the_target_refuses() -> None:
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


@pytest.mark.parametrize("code", [89, 7, 41, None])
@pytest.mark.parametrize("hit", range(4))
async def test_a_target_that_is_busy_while_asked_for_settings_gets_no_topic_without_them(
    code: int | None, hit: int
) -> None:
    """Without cleanup.policy=compact the default policy would delete old records as they come."""
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
                return {one.name: BrokerRefused("Creating it", code) for one in topics}
        found = await create(brokers, topics, validate_only=validate_only)
        if not validate_only and found.get("A.orders", ...) is None:
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


async def test_a_target_that_throttles_creations_is_asked_about_new_topics_once() -> None:
    """Brokers count a question about a topic for the quota of creations: asked each round, it left nothing for them."""
    world = World(7, extra=EVERY_MINUTE)
    for name in ("orders", "bills"):
        world.source.create_topic(name, 4)
        world.source.append(name, 0, [Record(b"v", key=b"k")])
    asked: list[list[tuple[str, int]]] = []
    tries = 0
    create, ask = admin.create_topics, admin.configs_if_created

    async def throttled(brokers: Brokers, topics: Iterable[NewTopic], *, validate_only: bool = False) -> Any:
        nonlocal tries
        topics = list(topics)
        tries += 1
        if tries < 5:
            return {one.name: BrokerRefused("Creating it", 89) for one in topics}
        return await create(brokers, topics, validate_only=validate_only)

    async def counted(brokers: Brokers, topics: Iterable[NewTopic]) -> Any:
        topics = list(topics)
        asked.append([(one.name, one.partitions) for one in topics])
        return await ask(brokers, topics)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(admin, "create_topics", throttled)
        patched.setattr(admin, "configs_if_created", counted)
        async with world.worker():
            await world.copied({"orders": "A.orders", "bills": "A.bills"})
    assert tries >= 5
    ((about,),) = asked
    assert about[1] == 1, "for one partition, of one topic: both have the same settings"


async def test_a_setting_removed_upstream_is_removed_and_one_set_by_hand_on_the_target_stays() -> None:
    """The source's server.properties sets log.retention.hours, as the stock file does."""
    world = world_with("orders", "bills")
    in_the_file = {"orders": False, "bills": True}
    describe = admin.describe_topic_configs

    async def with_a_file(brokers: Brokers, topics: Sequence[str], **more: Any) -> Any:
        found = await describe(brokers, topics, **more)
        if getattr(brokers, "brokers", brokers).name == "A":
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


@pytest.mark.parametrize("identity", [False, True])
async def test_settings_that_may_not_be_read_are_logged_once_even_if_both_sides_have_one_name(identity: bool) -> None:
    world = world_with("orders", **(IDENTITY if identity else {}))
    remote = "orders" if identity else "A.orders"
    describe = admin.describe_topic_configs

    async def denied(brokers: Brokers, topics: Sequence[str], **more: Any) -> Any:
        if getattr(brokers, "brokers", brokers).name == "B" and more.get("channel") == "sync" and "keys" not in more:
            return {name: BrokerRefused(f"Reading {name}", 29) for name in topics}
        return await describe(brokers, topics, **more)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(admin, "describe_topic_configs", denied)
        async with world.worker():
            await world.copied({"orders": remote})
            await asyncio.sleep(10 * MINUTE_S)
            (line,) = lines(world, "topic_configs.denied")
            assert f"Grant ALTER_CONFIGS on topic {remote} on B." in line


def test_a_dry_run_names_every_topic_and_a_right_missing_for_all_of_them_does_not_flood_the_log() -> None:
    async def scenario(**extra: str) -> None:
        names = [f"t{number:02}" for number in range(24)]
        world = world_with(*names, **extra)
        async with world.worker():
            await world.copied({name: f"A.{name}" for name in names})
            await asyncio.sleep(2)
            world.target.denied_configs = {f"A.{name}" for name in names}
            for name in names:
                world.source.configure_topic(name, {"retention.ms": "1000000"})
            await asyncio.sleep(3 * MINUTE_S)
            said = lines(world, "topic_configs.would_change" if extra else "topic_configs.denied")
            assert len(said) == 21
            assert "topics=4" in said[-1]
            assert [name for name in names if not any(re.search(rf"\bA\.{name}\b", line) for line in said)] == []
            assert ("sync.topic.configs.dry.run=true" if extra else "Grant ALTER_CONFIGS on them on B.") in said[-1]

    run_virtual(scenario(), limit_s=HOUR_S)
    run_virtual(scenario(**{"sync.topic.configs.dry.run": "true"}), limit_s=HOUR_S)


async def test_a_defect_in_the_sync_is_logged_as_such_and_stops_no_copying() -> None:
    world = world_with("orders")

    async def broken(*_: object, **__: object) -> Any:
        raise KeyError("an unexpected error")

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
            assert "KeyError: 'an unexpected error'" in line
            assert "This is a defect in mm2py" in line
            assert not lines(world, "flow.crashed")
            assert len(lines(world, "flow.ready")) == 1
            patched.undo()
            await until(lambda: world.target.topics["A.orders"].overrides == {"retention.ms": "1000000"})


async def test_a_dry_run_logs_what_would_change_and_changes_nothing() -> None:
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


async def test_the_copier_learns_that_larger_batches_are_accepted_now() -> None:
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


async def test_a_min_insync_replicas_that_the_remote_topic_cannot_reach_is_left_out() -> None:
    """B80: brokers take the setting, and then refuse every record."""
    world = World(7, extra={**EVERY_MINUTE, "config.properties.exclude": "segment.ms"})
    world.source.create_topic("born", 1, {"min.insync.replicas": "2", "retention.ms": "1000000"})
    world.source.create_topic("raised", 1)
    async with world.worker():
        await until(lambda: "A.raised" in world.target.topics and "A.born" in world.target.topics)
        world.source.configure_topic("raised", {"min.insync.replicas": "2", "retention.ms": "1000000"})
        await asyncio.sleep(5 * MINUTE_S)
        for topic in ("A.born", "A.raised"):
            assert world.target.topics[topic].overrides == {"retention.ms": "1000000"}
            (line,) = lines(world, f"topic_config.refused flow=A->B topic={topic}")
            assert "no record could be written to it" in line


@pytest.mark.parametrize(("most", "has"), [("2", {"min.insync.replicas": "2"}), ("3", {})])
async def test_with_the_brokers_default_replication_min_insync_replicas_is_set_once_the_replicas_are_known(
    most: str, has: dict[str, str]
) -> None:
    """B80: with replication.factor=-1 their number is unknown before the topic exists."""
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


async def test_with_the_brokers_default_replication_and_no_sync_a_left_out_min_insync_replicas_is_logged() -> None:
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
