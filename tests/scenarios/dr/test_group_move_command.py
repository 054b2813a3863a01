"""``mm2py groups --move`` as an operator meets it: what it asks, what it does with the answer, and how it ends."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mm2py.cli.command import CommandFailed
from mm2py.cli.group_move import GroupMoveCommand
from mm2py.cli.groups import parse_arguments
from mm2py.config.settings import FlowSettings
from mm2py.errors import ConfigError
from mm2py.flow import ClusterAlias
from mm2py.flow_sides import FlowSides
from mm2py.shared_settings.config_log import ConfigTable
from mm2py.status.cluster_inquiry import InquirySide
from tests.scenarios.dr.test_group_moves import ORDERS, unsynced_world
from tests.scenarios.offsets.test_group_sync import on_target
from tests.scenarios.world import World

pytestmark = pytest.mark.virtual_time(limit_s=3600)


class Operator:
    """Runs the command between two cluster models, and answers what it asks."""

    def __init__(self, world: World, answer: Callable[[], bool] | None = None) -> None:
        self.world = world
        self.answer = answer
        self.asked: list[str] = []
        self.text = ""

    async def run(self, *arguments: str) -> int:
        wanted = parse_arguments(["mm2.properties", "A->B", *arguments]).move_wanted
        assert wanted is not None
        self.text = ""
        ask = None if self.answer is None else self._ask
        file, clock = self.world.file({}), self.world.clock
        command = GroupMoveCommand(file, wanted, ask, clock=clock, write=self._write, connect=self._connect)
        return await command.run(self.world.settings)

    def _write(self, text: str) -> None:
        self.text += text

    def _ask(self, question: str) -> bool:
        assert self.answer is not None
        self.asked.append(question)
        return self.answer()

    @asynccontextmanager
    async def _connect(self, command: str, settings: FlowSettings) -> AsyncIterator[FlowSides]:
        world = self.world
        yield FlowSides(
            InquirySide(ClusterAlias("A"), world.source),
            InquirySide(ClusterAlias("B"), world.target),
        )

    async def history(self) -> list[str]:
        table = ConfigTable(self.world.target, self.world.settings.configs_topic)
        await table.read_patiently(random.Random(1))
        return [entry.what for entry in table.records.entries()]


async def copied_world() -> World:
    world = unsynced_world()
    world.source.groups.commit("pay", {("orders", 0): (60, "")})
    async with world.worker():
        await world.copied({"orders": "A.orders"})
        await asyncio.sleep(5)
    return world


async def test_it_shows_the_places_and_moves_after_a_yes() -> None:
    world = await copied_world()
    operator = Operator(world, lambda: True)
    assert await operator.run("--move", "pay", "--reason", "ticket 4711") == 0
    assert operator.asked == ["Move it?"]
    assert operator.text.splitlines() == [
        "Group pay moves from A to B:",
        "  orders-0  60 -> A.orders-0  60, exact",
        "Group pay is moved: 1 offset committed on B, read back and equal. Start its consumers on B only.",
    ]
    assert on_target(world, "pay") == {ORDERS: (60, "")}
    assert (await operator.history())[-1] == "group pay moved to B"
    assert await operator.run("--move", "pay") == 0
    assert operator.asked == ["Move it?"], "it is there already"
    assert "Group pay is on B already" in operator.text


async def test_nothing_is_moved_after_a_no_and_without_a_terminal() -> None:
    world = await copied_world()
    operator = Operator(world, lambda: False)
    assert await operator.run("--move", "pay") == 0
    assert operator.text.endswith("Nothing was moved.\n")
    assert await Operator(world).run("--move", "pay") == 2
    plan = Operator(world)
    assert await plan.run("--move", "pay", "--plan", "--json") == 0
    found: dict[str, Any] = json.loads(plan.text)
    assert (found["outcome"], found["leaves"], found["goes_to"], found["exit_code"]) == ("ready", "A", "B", 0)
    assert on_target(world, "pay") == {} and "group pay moved to B" not in await plan.history()


async def test_a_group_that_goes_on_while_the_operator_is_asked_is_not_moved() -> None:
    world = await copied_world()

    def late_yes() -> bool:
        world.source.groups.commit("pay", {("orders", 0): (66, "")})
        return True

    with pytest.raises(CommandFailed, match="since it was shown, it has changed: its offsets are others now"):
        await Operator(world, late_yes).run("--move", "pay")
    assert on_target(world, "pay") == {}
    assert await Operator(world).run("--move", "pay", "--yes") == 0
    assert on_target(world, "pay") == {ORDERS: (66, "")}


async def test_what_cannot_be_moved_ends_with_3_and_a_way_out_and_waiting_ends_in_time() -> None:
    world = await copied_world()
    operator = Operator(world)
    world.source.groups.activate("pay")
    assert await operator.run("--move", "pay", "--yes") == 3
    assert operator.text.splitlines()[:2] == [
        "Group pay cannot move from A to B now: it has members on A (Stable): pay-0 on 127.0.0.1.",
        "Stop these consumers, and move it then. A running group could commit on A meanwhile.",
    ]
    world.source.groups.deactivate("pay")
    world.source.append("orders", 0, [b"later"])
    world.source.groups.commit("pay", {("orders", 0): (101, "")})
    begun_s = world.clock.monotonic()
    assert await operator.run("--move", "pay", "--yes", "--timeout", "20") == 3
    assert 20 <= world.clock.monotonic() - begun_s < 30
    assert "what it has read is not copied yet" in operator.text
    with pytest.raises(ConfigError, match="A lists no group 'nobody'"):
        await operator.run("--move", "nobody", "--yes")
    assert on_target(world, "pay") == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--move", "g", "--move-back", "g"],
        ["--move", "g", "--group", "g"],
        ["--plan"],
        ["--yes"],
        ["--leave-topic", "t"],
        ["--timeout", "5"],
        ["--reason", "text"],
        ["--move", "g", "--all"],
        ["--move", "g", "--json"],
        ["--move", "g", "--timeout", "-1"],
        ["--move", "g", "--reason", "password=hunter2"],
    ],
)
def test_what_cannot_be_meant_is_refused_before_a_cluster_is_asked(arguments: list[str]) -> None:
    with pytest.raises(ConfigError):
        parse_arguments(["mm2.properties", "A->B", *arguments])
