"""Topics that rules give other names on the target: copied under these, one into each, and never moved in silence."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from tests.fakes.broker.broker_model import ClusterModel
from tests.scenarios.discovery.test_growth_and_deletion import stored_by_mm2
from tests.scenarios.discovery.test_rings import IDENTITY, Ring, values
from tests.scenarios.settings.test_plan_command import plan_one
from tests.scenarios.shared_world import Process, SharedWorld
from tests.simulation.incarnation import SimulationLoop

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)

RULES = "orders -> sales.orders, (.*)\\\\.v1 -> $1"
RENAMED = {"orders": "A.sales.orders", "bills.v1": "A.bills", "users": "A.users"}


def world_of(rules: str = RULES, *topics: str, extra: Mapping[str, str] | None = None) -> SharedWorld:
    world = SharedWorld(1, extra=lines(rules, extra))
    for topic in topics or RENAMED:
        world.source.create_topic(topic, 2)
        world.write(topic, 3)
    return world


def lines(rules: str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    return {"A->B.topics.rename": rules, "refresh.topics.interval.seconds": "5", **(extra or {})}


def refused(process: Process) -> dict[str, str]:
    return {line["topic"]: line["why"] for line in process.said("topic.refused")}


def judged(world: SharedWorld, topic: str, remote: str) -> list[str]:
    return [str(one) for verdict in world.judge(topic, remote, exact=True) for one in verdict.findings]


async def test_topics_are_copied_under_their_new_names_and_a_restart_goes_on_there() -> None:
    world = world_of()
    for _ in range(2):
        process = world.start()
        await world.copied(RENAMED)
        assert await process.stop() == 0
        for topic in RENAMED:
            world.write(topic)
    world.start()
    await world.copied(RENAMED)
    assert not any(judged(world, topic, remote) for topic, remote in RENAMED.items())
    assert {name for name in world.target.topics if name.startswith("A.")} == set(RENAMED.values())


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_topic_that_comes_later_and_would_get_the_same_name_is_refused_by_name(restarts: bool) -> None:
    world = world_of()
    process = world.start()
    await world.copied(RENAMED)
    if restarts:
        assert await process.stop() == 0
    world.source.create_topic("bills", 2)
    world.write("bills", 2)
    process = world.start() if restarts else process
    await world.until(lambda: "bills" in refused(process))
    assert "bills.v1 is copied into A.bills" in refused(process)["bills"]
    world.write("bills.v1")
    await world.copied(RENAMED)
    await asyncio.sleep(60)
    assert judged(world, "bills.v1", "A.bills") == []


async def test_of_two_topics_with_one_name_that_are_there_at_the_start_one_is_copied() -> None:
    world = world_of(RULES, "bills", "bills.v1")
    process = world.start()
    await world.until(lambda: "bills.v1" in refused(process))
    await world.copied({"bills": "A.bills"})
    await asyncio.sleep(30)
    assert judged(world, "bills", "A.bills") == []


async def test_a_topic_whose_name_would_change_waits_for_an_operator() -> None:
    world = world_of()
    process = world.start()
    await world.copied(RENAMED)
    assert await process.stop() == 0
    world.rewrite_file({**world.extra, **lines("orders -> other.orders, (.*)\\\\.v1 -> $1")})
    world.write("orders")
    process = world.start(apply=True)
    await world.until(lambda: "orders" in refused(process))
    assert "its copy is A.sales.orders on B" in refused(process)["orders"]
    await asyncio.sleep(60)
    assert "A.other.orders" not in world.target.topics
    assert await process.stop() == 0
    world.recopies = {world.settings.flow: {"orders"}}
    process = world.start(apply=True)
    await world.copied({"orders": "A.other.orders"})
    assert judged(world, "orders", "A.other.orders") == []
    assert await process.stop() == 0
    world.recopies = {}
    world.write("orders")
    world.start()
    await world.copied({"orders": "A.other.orders"})
    assert judged(world, "orders", "A.other.orders") == []


async def test_a_rule_that_is_taken_away_or_added_moves_no_topic() -> None:
    world = world_of("orders -> sales.orders", "orders", "users")
    process = world.start()
    await world.copied({"orders": "A.sales.orders", "users": "A.users"})
    assert await process.stop() == 0
    world.rewrite_file({**world.extra, **lines("users -> people")})
    process = world.start(apply=True)
    await world.until(lambda: {"orders", "users"} <= refused(process).keys())
    await asyncio.sleep(30)
    assert not {"A.orders", "A.people"} & world.target.topics.keys()


async def test_a_plan_tells_which_names_change_and_which_topics_would_get_one_name() -> None:
    world = world_of("orders -> sales.orders", "orders", "users")
    process = world.start()
    await world.copied({"orders": "A.sales.orders", "users": "A.users"})
    await asyncio.sleep(5)
    assert await process.stop() == 0
    world.source.create_topic("bills", 1)
    world.source.create_topic("bills.v1", 1)
    found = await plan_one(world, {"A->B.topics.rename": RULES.replace("sales", "other")})
    assert {one.topic: one.why.rpartition(" is refused: ")[2] for one in found.refusals} == {
        "orders": "its copy is A.sales.orders on B, and by topics.rename it would be A.other.orders from now on.",
        "bills.v1": "bills is copied into A.bills, and topics.rename gives both that name.",
    }
    assert [one.remote for one in found.creates] == ["A.bills"]


@pytest.mark.parametrize("renamed_by_mm2", [True, False])
async def test_after_mirrormaker_2_it_goes_on_in_the_renamed_topic_if_there_is_one(renamed_by_mm2: bool) -> None:
    """A RegexRouter has renamed it before; or the rule is new, and MirrorMaker 2's copy has the old name."""
    world = SharedWorld(1, extra=lines("orders -> sales.orders"))
    world.source.create_topic("orders", 1)
    for number in range(6):
        world.source.append("orders", 0, [b"%d" % number])
    copy = "A.sales.orders" if renamed_by_mm2 else "A.orders"
    world.target.create_topic(copy, 1)
    for number in range(4):
        world.target.append(copy, 0, [b"%d" % number])
    stored_by_mm2(world, p0=2)
    process = world.start()
    if renamed_by_mm2:
        await world.copied({"orders": copy})
        assert values(world.target, copy) == ["0", "1", "2", "3", "4", "5"]
        return
    await world.until(lambda: "orders" in refused(process))
    assert "MirrorMaker 2 has copied records of partition 0" in refused(process)["orders"]
    await asyncio.sleep(60)
    assert values(world.target, "A.sales.orders") == []


@pytest.mark.parametrize("keeps_names", [True, False])
async def test_a_renamed_topic_does_not_come_back_by_a_flow_of_another_file(keeps_names: bool) -> None:
    """Both flows rename, so no name tells that the topic has been there, nor does the other flow's filter."""
    world = Ring(1)
    world.make(world.source, "orders", "o1", "o2")
    world.make(world.target, "payments", "p1")
    extra = IDENTITY if keeps_names else {}
    copies, back_there = ("sales", "paid") if keeps_names else ("a.sales", "y.paid")
    selected = {"a->B2.topics": "orders, .*paid, returned", "a->B2.topics.rename": "orders -> sales"}
    there = world.flow("a", "B2", **extra, **selected)
    await world.until(lambda: values(world.target, copies) == ["o1", "o2"])
    rules = f"{copies} -> returned, payments -> paid"
    back = world.flow("y", "x", back=True, **extra, **{"y->x.topics.rename": rules})
    await world.until(lambda: values(world.source, back_there) == ["p1"])
    await asyncio.sleep(60)
    world.make(world.source, "orders", "o3")
    world.make(world.target, "payments", "p2")
    await world.until(lambda: values(world.target, copies) == ["o1", "o2", "o3"])
    await world.until(lambda: values(world.source, back_there) == ["p1", "p2"])
    await asyncio.sleep(60)

    def without_heartbeats(cluster: ClusterModel) -> set[str]:
        return {name for name in world.topics(cluster) if not name.endswith("heartbeats")}

    assert without_heartbeats(world.target) == {"payments", copies}
    assert without_heartbeats(world.source) == {"orders", back_there}
    (flow,) = (await world.report(back)).flows
    (left_out,) = [one for one in flow.topics if one.topic == copies]
    assert [str(one.reason) for one in left_out.not_copied] == ["ring"]
    assert not there.said("topic.refused") and not back.said("topic.refused")
