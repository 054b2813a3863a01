"""What ``mm2py groups`` finds out between two cluster models."""

from __future__ import annotations

import asyncio

from mm2py.status.consumer_group_inquiry import ConsumerGroupInquiry
from mm2py.status.consumer_groups import ConsumerGroupReport, report_of
from tests.fakes.virtual_time import run_virtual
from tests.scenarios.offsets.test_group_sync import synced_world
from tests.scenarios.world import World


async def reports(world: World) -> dict[str, ConsumerGroupReport]:
    found = report_of(await ConsumerGroupInquiry(world.settings, world.source, world.target, world.log).look())
    return {one.group: one for one in found}


def test_before_anything_is_copied_no_group_is_ready() -> None:
    async def scenario() -> None:
        world = synced_world()
        world.source.groups.commit("pay", {("orders", 0): (10, "")})
        world.source.groups.commit("elsewhere", {("mm2-offsets.X.internal", 0): (10, "")})
        found = await reports(world)
        assert {name: one.why for name, one in found.items()} == {
            "pay": "orders-0: nothing of it is known to be copied"
        }

    run_virtual(scenario())


def test_groups_become_ready_and_one_with_members_on_the_target_does_not() -> None:
    async def scenario() -> None:
        world = synced_world()
        for group in ("pay", "busy"):
            world.source.groups.commit(group, {("orders", 0): (100, "")})
        world.target.groups.activate("busy")
        async with world.worker():
            await world.copied({"orders": "A.orders"})
            await asyncio.sleep(15)
            found = await reports(world)
        assert (found["pay"].ready, found["pay"].lag, found["pay"].reads_again_at_most) == (True, 0, 0)
        assert found["pay"].partitions[0].committed_on_target == 100
        assert found["busy"].why == "it has members on the target (Stable)"

    run_virtual(scenario())
