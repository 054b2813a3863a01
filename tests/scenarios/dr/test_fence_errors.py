"""``mm2py dr fence`` and ``dr unfence`` ask two clusters, and the error names the one that is silent."""

from __future__ import annotations

import asyncio

import pytest

from mm2py.cli.command import CommandFailed
from mm2py.flow import ClusterAlias
from mm2py.flow_sides import FlowSides, of_both
from mm2py.status.cluster_inquiry import InquirySide
from tests.scenarios.standby.test_turn_command import MutableLine
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=3600)


@pytest.mark.parametrize(
    ("is_target_silent", "why"),
    [
        (True, "Raising the fence: B did not answer within"),
        (False, "A does not answer: raising the fence took more than 30 s"),
    ],
)
async def test_the_cluster_that_is_silent_is_named(is_target_silent: bool, why: str) -> None:
    world = World(1)
    target = MutableLine(world.target, lambda: is_target_silent)
    sides = FlowSides(InquirySide(ClusterAlias("A"), world.source), InquirySide(ClusterAlias("B"), target))

    async def wait_for_ever() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(CommandFailed, match=why):
        await of_both(sides, wait_for_ever(), "raising the fence")
