"""Random turns while workers die, clients write and turns are interrupted: every record is once on both clusters."""

from __future__ import annotations

import asyncio
import os

import pytest

from mm2py.connector_offsets.altering import StillRunning
from mm2py.connector_offsets.turning import TurnedMeanwhile
from mm2py.flow import Flow
from mm2py.shared_settings.direction import TurnRefused
from tests.scenarios.standby_world import BACK, THERE, TurnWorld
from tests.simulation.incarnation import SimulationLoop

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)
SEEDS = int(os.environ.get("MM2PY_TURN_SEEDS", "6"))


class Storm(TurnWorld):
    """A world in which clients write only where the flow that is on begins."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.active = THERE

    async def never_both(self) -> None:
        while True:
            states = [await self.stored(flow) for flow in (THERE, BACK)]
            on = [not one.startswith("standby") for one in states]
            assert not all(on) or "" in states, states
            await asyncio.sleep(0.3)

    async def disturb(self) -> None:
        """Kill or start workers: some serve both flows, some only one target."""
        up = [one for one in self.processes if one.is_up]
        if len(up) > 1 and self.rng.random() < 0.5:
            self.rng.choice(up).kill()
        elif len(up) < 4:
            self.run(*self.rng.choice([(), ("A",), ("B",)]))

    async def try_to_turn(self, to: Flow) -> None:
        """Turn, and give up at some moment; again, until it is done."""
        other = THERE if to == BACK else BACK
        while True:
            steps = asyncio.ensure_future(self._steps(to, other))
            done, _ = await asyncio.wait({steps}, timeout=self.rng.choice([0.05, 0.3, 1.0, 30.0]))
            steps.cancel()
            await asyncio.gather(steps, return_exceptions=True)
            if done and steps.exception() is None:
                return
            if done and not isinstance(steps.exception(), TurnRefused | StillRunning | TurnedMeanwhile):
                await steps
            if done and "has not copied" in str(steps.exception()):
                await self.go_back(to, other)
            if self.rng.random() < 0.5:
                await self.disturb()
            await asyncio.sleep(1)
            if not any(one.is_up for one in self.processes):
                self.run()

    async def _steps(self, to: Flow, other: Flow) -> None:
        await self.off(other)
        await self.on(to)

    async def go_back(self, to: Flow, other: Flow) -> None:
        """The flow that was turned off had not copied all: let it do so."""
        try:
            await self.off(to)
            await self.on(other, force=False)
        except (TurnRefused, StillRunning, TurnedMeanwhile):
            return
        await asyncio.sleep(10)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_each_record_is_once_on_both_whatever_happens_during_turns(seed: int) -> None:
    world = Storm(seed)
    world.write(world.source)
    world.run()
    await world.until(world.is_same)
    watching = asyncio.ensure_future(world.never_both())
    for _ in range(4):
        world.active = BACK if world.active == THERE else THERE
        await world.try_to_turn(world.active)
        world.write(world.target if world.active == BACK else world.source, world.rng.randint(0, 4))
        if world.rng.random() < 0.5:
            await world.disturb()
        await asyncio.sleep(world.rng.choice([0.1, 1.0, 8.0]))
    if not any(one.is_up for one in world.processes):
        world.run()
    world.run()
    await world.until(world.is_same, within_s=120)
    await world.stays(world.is_same, for_s=20)
    assert not watching.done(), watching.exception()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    wrong = [line for one in world.processes for line in one.events if line["event"].endswith(".crashed")]
    assert not wrong, wrong
