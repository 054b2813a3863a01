"""What workers store of topics that they do not copy: the reason while it lasts, and nothing when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from mm2py.records.source_offset import decode_value
from tests.scenarios.shared_world import SharedWorld
from tests.scenarios.standstills import causes, reasons, standstills
from tests.scenarios.world import World
from tests.simulation.incarnation import SimulationLoop

MINUTE_S, HOUR_S = 60.0, 3600.0
pytestmark = pytest.mark.virtual_time(limit_s=HOUR_S)
POSITIONS = "mm2-offsets.A.internal"


def world_with(*topics: str, partitions: int = 1, **extra: str) -> World:
    world = World(3, extra=extra)
    for topic in topics:
        world.source.create_topic(topic, partitions)
        for number in range(partitions):
            world.source.append(topic, number, [b"1"])
    return world


async def until(condition: Callable[[], bool], *, deadline_s: float = MINUTE_S) -> None:
    async with asyncio.timeout(deadline_s):
        while not condition():
            await asyncio.sleep(0.1)


async def test_while_all_is_copied_nothing_is_stored() -> None:
    world = world_with("orders", partitions=3)
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(MINUTE_S)
        assert standstills(world.target) == []


async def test_a_right_that_is_missing_is_stored_with_its_partitions_and_deleted_once_it_is_granted() -> None:
    world = world_with("orders", "bills", partitions=3)
    async with world.worker():
        await world.copied({"orders": "A.orders", "bills": "A.bills"})
        before_ms = world.clock.wall_ms()
        world.source.deny("orders")
        await until(lambda: reasons(world.target).get("orders") == ["source-denied"])
        await asyncio.sleep(40)  # it looks as if it was deleted; asked for by name, the broker says that it is not
        (cause,) = causes(world.target)["orders"]
        assert (cause.reason, cause.partitions) == ("source-denied", "")
        assert before_ms <= cause.since_ms <= before_ms + 45_000
        assert "topic.hidden" in world.log_text.getvalue() and "topic.gone" not in world.log_text.getvalue()
        assert "bills" not in reasons(world.target)
        written = len(world.target.records("mm2-status.A.internal", 0))
        await asyncio.sleep(10 * MINUTE_S)
        assert causes(world.target)["orders"] == [cause], "since the same time"
        assert len(world.target.records("mm2-status.A.internal", 0)) == written, "and it is not written again"
        world.source.allow("orders")
        await until(lambda: standstills(world.target) == [])


async def test_a_record_that_the_target_refuses_is_stored_until_it_is_taken() -> None:
    world = world_with("orders", **{"sync.topic.configs.enabled": "false"})
    world.target.create_topic("A.orders", 1)
    world.target.configure_topic("A.orders", {"max.message.bytes": "1000"})
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        world.source.append("orders", 0, [b"x" * 5_000])
        await until(lambda: reasons(world.target).get("orders") == ["record-refused"])
        world.target.configure_topic("A.orders", {"max.message.bytes": "100000"})
        await world.copied({"orders": "A.orders"}, deadline_s=MINUTE_S)
        await until(lambda: standstills(world.target) == [])


async def test_a_source_that_is_silent_is_stored_for_the_flow_and_leaves_no_lag() -> None:
    """A frozen broker accepts connections and says nothing. The last end that it told says that nothing waits."""
    world = world_with("orders")
    async with world.worker() as herder:
        await world.copied({"orders": "A.orders"})
        (node,) = world.source.alive
        world.source.stop_broker(node)
        stopped_ms = world.clock.wall_ms()
        await until(lambda: bool(standstills(world.target)), deadline_s=3 * MINUTE_S)
        found = {reason for of_it in reasons(world.target).values() for reason in of_it}
        assert found <= {"source-silent", "no-leader", "retrying"}, found
        await until(lambda: "source-silent" in reasons(world.target).get("", []), deadline_s=3 * MINUTE_S)
        for _ in range(20):  # and it stays, although each request ends after its own time-out
            await asyncio.sleep(10)
            (said,) = [one for one in causes(world.target)[""] if one.reason == "source-silent"]
            assert abs(said.since_ms - stopped_ms) < 1000, "since its last answer, not since a request has failed"
        (running,) = [one for one in herder.connectors if one.copies]
        assert running.connector is not None
        ends = [row[11] for part in running.connector.measure() if hasattr(part, "rows") for row in part.rows]
        assert ends == [None], "the lag is not known, and is not 0"
        world.source.start_broker(node)
        await until(lambda: standstills(world.target) == [], deadline_s=3 * MINUTE_S)


async def test_a_status_topic_that_may_not_be_written_to_is_told_by_heartbeats() -> None:
    """Otherwise nobody would know the reasons, and the status would be green over a topic that may not be read."""
    world = world_with("orders")
    async with world.worker() as herder:
        await world.copied({"orders": "A.orders"})
        (group,) = herder.groups.values()
        assert group.member is not None
        view = group.member.view
        await asyncio.sleep(5)
        assert [member.troubles for member in view.members.values()] == [{}]
        world.target.deny("mm2-status.A.internal")
        world.source.deny("orders")
        await until(lambda: all(member.troubles for member in view.members.values()))
        (why,) = [text for member in view.members.values() for text in member.troubles.values()]
        assert "mm2-status.A.internal" in why
        world.target.allow("mm2-status.A.internal")
        await until(lambda: not any(member.troubles for member in view.members.values()))
        await until(lambda: "orders" in reasons(world.target))


async def test_names_and_patterns_of_nothing_are_stored_until_a_topic_appears() -> None:
    world = world_with("orders", **{"A->B.topics": "orders,order,tmp-.*", "refresh.topics.interval.seconds": "20"})
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        assert "order" not in reasons(world.target), "it may be created just now"
        await until(lambda: reasons(world.target).get("order") == ["missing"])
        assert reasons(world.target)[""] == ["no-match"]
        log = world.log_text.getvalue()
        assert "topic.missing" in log and "topics.none" in log and "reason=missing" in log
        (none,) = causes(world.target)[""]
        assert none.why == "mm2py sees no topic on A that matches tmp-.*."
        assert none.remedy.startswith("If A has such topics, grant DESCRIBE and READ on them")
        assert none.remedy in log
        for name in ("order", "tmp-1"):
            world.source.create_topic(name, 1)
            world.source.append(name, 0, [b"1"])
        await world.copied({"order": "A.order", "tmp-1": "A.tmp-1"}, deadline_s=MINUTE_S)
        await until(lambda: standstills(world.target) == [])
        assert "topic.found" in world.log_text.getvalue()


async def test_a_worker_that_stops_leaves_nothing_and_the_next_one_begins_with_nothing() -> None:
    world = world_with("orders")
    async with world.worker() as herder:
        await world.copied({"orders": "A.orders"})
        world.source.deny("orders")
        await until(lambda: bool(standstills(world.target)))
        await world.stop(herder)
    assert standstills(world.target) == []
    world.source.allow("orders")
    async with world.worker():
        await asyncio.sleep(MINUTE_S)
        assert standstills(world.target) == []


async def test_many_partitions_that_stop_for_reasons_of_their_own_are_not_written_again_and_again() -> None:
    world = world_with("orders", partitions=30, **{"on.source.gap": "stop"})
    async with world.worker() as herder:
        await world.copied({"orders": "A.orders"})
        await world.stop(herder)
    for number in range(30):
        world.source.append("orders", number, [b"2"] * (3 + number))
        world.source.delete_records("orders", number, 2 + number)
    async with world.worker():
        await until(lambda: [cause.partitions for cause in causes(world.target).get("orders", [])] == ["0-29"])

        def written() -> int:
            numbers = range(len(world.target.topics["mm2-status.A.internal"].partitions))
            return sum(len(world.target.records("mm2-status.A.internal", number)) for number in numbers)

        await asyncio.sleep(10)
        before = written()
        await asyncio.sleep(10 * MINUTE_S)
        assert written() == before


async def test_a_list_of_patterns_that_only_make_sense_together_copies_as_in_mirrormaker_2() -> None:
    world = world_with("orders-eu", "orders-us", **{"A->B.topics": "orders-(eu,orders-us|us)"})
    async with world.worker():
        await asyncio.sleep(MINUTE_S)
        assert "flow.failed" not in world.log_text.getvalue()


@pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)
async def test_what_a_killed_worker_has_stored_is_deleted_by_the_others() -> None:
    world = SharedWorld(1, extra={"sync.topic.configs.enabled": "false"})
    world.target.create_topic("A.t0", 4, replication_factor=3)
    world.target.configure_topic("A.t0", {"max.message.bytes": "2000"})
    world.make_topics(1, 4)
    first, second = world.start(), world.start()

    def copied() -> bool:
        remote = world.target.topics.get("A.t0")
        return remote is not None and all(world.target.records("A.t0", number) for number in range(4))

    await world.until(copied)
    for number in range(4):
        world.source.append("t0", number, [b"x" * 5_000])
    await world.until(lambda: members(world) == {first.member_id, second.member_id})
    first.kill()
    await world.until(lambda: members(world) == {second.member_id})
    await world.until(lambda: [one.partitions for one in causes(world.target)["t0"]] == ["0-3"])
    world.target.configure_topic("A.t0", {"max.message.bytes": "100000"})
    await world.until(lambda: standstills(world.target) == [])
    assert await second.stop() == 0


def members(world: World) -> set[str]:
    return {one.member for one in standstills(world.target)}


def moved_ms(world: World) -> int | None:
    found = None
    for number in range(len(world.target.topics[POSITIONS].partitions)):
        for record in world.target.records(POSITIONS, number):
            stored = decode_value(record.value)
            if stored is not None:
                found = stored.moved_ms
    return found


async def test_a_worker_that_restarts_again_and_again_does_not_make_a_position_look_as_if_it_moved() -> None:
    """The status says that all is well while positions move: a crash loop must not keep it green."""
    world = world_with("orders")
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(10)
    moved = moved_ms(world)
    assert moved is not None
    for _ in range(3):
        async with world.worker():
            await asyncio.sleep(MINUTE_S)
        assert moved_ms(world) == moved
    world.source.append("orders", 0, [b"2"])
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(10)
    assert (moved_ms(world) or 0) > moved
