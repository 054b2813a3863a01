"""A remote topic takes the timestamps that its upstream topic takes, as far as settings and rights allow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.fakes.broker.record_batch import Record
from tests.scenarios.sync_world import EVERY_MINUTE, HOUR_S, lines, until
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=HOUR_S)

AFTER, BEFORE = "message.timestamp.after.max.ms", "message.timestamp.before.max.ms"
ANY, HIGH = {AFTER: str(1 << 62)}, {AFTER: "3000000000000"}
LATE = Record(value=b"late", key=b"k", timestamp_ms=4_000_000_000_000)
LATER = Record(value=b"later", key=b"k", timestamp_ms=8_000_000_000_000)


def world_of(**extra: str) -> World:
    return World(11, extra={**EVERY_MINUTE, **{name.replace("_", "."): value for name, value in extra.items()}})


def values(world: World) -> list[bytes | None]:
    if "A.orders" not in world.target.topics:
        return []
    return [record.value for record in world.target.records("A.orders", 0)]


def errors(world: World) -> list[str]:
    return [line for line in world.log_text.getvalue().splitlines() if " ERROR " in line]


@pytest.mark.parametrize("sync", ["true", "false"])
async def test_a_new_remote_topic_takes_later_timestamps_before_the_first_record_needs_it(sync: str) -> None:
    world = world_of(sync_topic_configs_enabled=sync)
    world.source.create_topic("orders", 1, {**ANY, BEFORE: "3600000"})
    world.source.append("orders", 0, [LATE])
    async with world.worker() as herder:
        await until(lambda: values(world) == [b"late"], deadline_s=10.0)
        assert world.target.topics["A.orders"].overrides == ANY, "the stricter limit is not carried over"
        assert not errors(world)
        await world.stop(herder)


@pytest.mark.parametrize("policy", ["stop", "quarantine"])
async def test_a_limit_that_is_raised_upstream_is_raised_when_a_record_needs_it_and_not_a_round_later(
    policy: str,
) -> None:
    world = world_of(on_poison_record=policy)
    world.source.create_topic("orders", 2)
    for number in (0, 1):
        world.source.append("orders", number, [b"1"])
    async with world.worker() as herder:
        await until(lambda: values(world) == [b"1"])
        await asyncio.sleep(30.0)
        world.source.configure_topic("orders", HIGH)
        for number in (0, 1):
            world.source.append("orders", number, [Record(value=b"2", timestamp_ms=1_000), LATE, LATE])
        await until(lambda: values(world) == [b"1", b"2", b"late", b"late"], deadline_s=8.0)
        assert len(world.target.records("A.orders", 1)) == 4
        assert world.target.topics["A.orders"].overrides == HIGH
        assert "mm2-quarantine.A.internal" not in world.target.topics
        assert not errors(world)
        world.source.configure_topic("orders", {AFTER: "5"})
        await asyncio.sleep(130.0)
        assert world.target.topics["A.orders"].overrides == HIGH, "a limit is never lowered"
        world.source.configure_topic("orders", ANY)
        world.source.append("orders", 0, [LATER])
        await until(lambda: len(values(world)) == 5, deadline_s=8.0)
        assert world.target.topics["A.orders"].overrides == ANY
        assert not errors(world)
        await world.stop(herder)


def _deny(world: World) -> None:
    world.target.denied_configs = {"A.orders"}


def _grant(world: World) -> None:
    world.target.denied_configs = set()


def _by_hand(world: World) -> None:
    world.target.configure_topic("A.orders", ANY)


@pytest.mark.parametrize(
    ("extra", "before", "why", "way_out", "do"),
    [
        ({"sync_topic_configs_enabled": "false"}, None, "sync.topic.configs.enabled=false", "set it to true", _by_hand),
        (
            {"config_properties_exclude": AFTER},
            None,
            "config.properties.exclude names it",
            "take it out of that list",
            _by_hand,
        ),
        ({}, _deny, "TOPIC_AUTHORIZATION_FAILED", "grant mm2py ALTER_CONFIGS on A.orders", _grant),
    ],
)
async def test_where_the_limit_may_not_be_raised_the_partition_names_it_and_goes_on_once_an_operator_acts(
    extra: dict[str, str],
    before: Callable[[World], None] | None,
    why: str,
    way_out: str,
    do: Callable[[World], None],
) -> None:
    world = world_of(**extra)
    world.source.create_topic("orders", 1, ANY)
    world.target.create_topic("A.orders", 1)
    world.source.append("orders", 0, [b"1", LATE])
    if before is not None:
        before(world)
    async with world.worker() as herder:
        await until(lambda: bool(lines(world, "topic_configs.too_strict")))
        await asyncio.sleep(100.0)
        (line,) = lines(world, "topic_configs.too_strict")
        assert f"{AFTER}: (the target's default) -> {1 << 62}" in line
        assert why in line
        assert f"Set {AFTER}={1 << 62} on A.orders on B by hand, or {way_out}." in line
        (refused,) = [line for line in errors(world) if " target.refuses " in line]
        assert "the record of source offset 1 (2096-10-02T07:06:40Z) with INVALID_TIMESTAMP" in refused
        waiting = [line for line in lines(world, "partitions.waiting") if "record-refused" in line]
        for line in (refused, *waiting[:1]):
            assert f"Raise {AFTER} (it refuses records of the future) or {BEFORE} (it refuses old ones)" in line
            assert "of A.orders on B by hand" in line and "grant mm2py ALTER_CONFIGS on A.orders" in line
            assert "on.poison.record=quarantine" in line
            assert "max.message.bytes" not in line
        assert waiting
        assert values(world) == [b"1"]
        do(world)
        await until(lambda: values(world) == [b"1", b"late"], deadline_s=40.0)
        await world.stop(herder)
