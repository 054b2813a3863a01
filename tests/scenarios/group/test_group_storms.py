"""Workers of a group die, freeze, stop, join and are cut off at random, while brokers do the same."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from mm2py.kafka.port import ProduceRequest
from tests.fakes.faults import Faults
from tests.scenarios.gate import Request
from tests.scenarios.shared_world import Process, SharedWorld
from tests.simulation.incarnation import SimulationLoop

STORM = Faults(
    delay=0.02,
    delay_s=(0.01, 0.5),
    drop_request=0.002,
    drop_reply=0.005,
    reset=0.01,
    produce_error=0.03,
    fetch_error=0.02,
    throttle=0.005,
    leader_move_every_s=2.0,
    broker_stop_every_s=15.0,
    broker_down_s=(0.1, 5.0),
)
HARD_STORM = replace(
    STORM,
    delay_s=(0.1, 8.0),
    drop_reply=0.02,
    duplicate_produce=0.02,
    produce_error=0.08,
    flip_bit=0.005,
    leader_move_every_s=1.0,
    broker_stop_every_s=6.0,
)
MOST_UP = 4


class GroupStorm:
    """The run of one seed."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.world = SharedWorld(
            seed,
            extra={
                "offset.flush.interval.ms": rng.choice(["200", "1000", "60000"]),
                "A->B.copy.mode": rng.choice(["auto", "pass", "repack"]),
                "topics.watch.interval.ms": "1000",
            },
        )
        for cluster in (self.world.source, self.world.target):
            cluster.request_timeout_s = cluster.connect_timeout_s = 3.0
        self.names = self.world.make_topics(rng.randint(1, 4), rng.randint(1, 4))
        self.lateness = rng.choice([0.0, 0.005, 0.02])
        self.faults = rng.choice([Faults(), STORM, STORM, HARD_STORM, HARD_STORM])

    async def run(self) -> None:
        world, rng = self.world, self.rng
        for _ in range(rng.randint(1, 3)):
            self.join()
        if rng.random() < 0.7:
            await world.until(world.is_fully_assigned)
        for cluster in (world.source, world.target):
            cluster.inject(self.faults)
        traffic = asyncio.create_task(world.traffic(self.names, 0.2))
        actions: list[Callable[[], None]] = [
            self.kill,
            self.kill,
            self.freeze,
            self.freeze,
            self.stop,
            self.join,
            self.join,
            self.cut_off,
            self.restart_broker,
            self.grow,
        ]
        for _ in range(rng.randint(2, 10)):
            await asyncio.sleep(rng.choice([0.02, 0.3, 1.0, 2.0, 4.0]) * rng.uniform(0.5, 1.5))
            rng.choice(actions)()
        await asyncio.sleep(rng.uniform(0.0, 8.0))
        traffic.cancel()
        self.heal()
        for process in world.processes:
            process.late_s = lambda *_: 0.0
            await asyncio.gather(*process.under_way)
        await world.finish(within_s=180)
        for process in world.up:
            code = await process.stop()
            told = process.said("drain.failed")  # a worker that was told to stop in the storm
            assert code == bool(told), f"seed {world.seed}: {process.name} ended with {code}\n{world.logs()}"
            assert process.budget.held_bytes == 0, f"seed {world.seed}: {process.name} holds memory"
        assert not (wrong := world.findings()), f"seed {world.seed}: {wrong[:10]}\n{world.logs()}"

    def heal(self) -> None:
        for cluster in (self.world.source, self.world.target):
            cluster.heal()
        for process in self.world.processes:
            process.thaw()
            process.cut_off_from.clear()
        while len(self.world.up) < 2:
            self.world.start()

    def some(self) -> Process | None:
        return self.rng.choice(self.world.up) if self.world.up else None

    def kill(self) -> None:
        if (process := self.some()) is not None:
            process.kill()

    def freeze(self) -> None:
        if (process := self.some()) is not None:
            process.freeze(suspended=self.rng.random() < 0.5)
            asyncio.get_running_loop().call_later(self.rng.uniform(0.2, 9.0), process.thaw)

    def stop(self) -> None:
        if (process := self.some()) is not None:
            process.herder.stop()

    def join(self) -> None:
        if len(self.world.up) < MOST_UP:
            self.world.start().late_s = self.late_s

    def late_s(self, _: str, request: Request) -> float:
        """A request may arrive after its worker is gone and others have replaced it."""
        is_late = isinstance(request, ProduceRequest) and self.rng.random() < self.lateness
        return self.rng.uniform(0.5, 15.0) if is_late else 0.0

    def cut_off(self) -> None:
        if (process := self.some()) is not None:
            alias = self.rng.choice(["B", "B", "A"])
            process.cut_off_from.add(alias)
            asyncio.get_running_loop().call_later(self.rng.uniform(0.2, 9.0), process.cut_off_from.discard, alias)

    def restart_broker(self) -> None:
        cluster = self.rng.choice([self.world.target, self.world.target, self.world.source])
        if len(cluster.alive) == len(cluster.nodes):
            node = self.rng.choice(cluster.alive)
            cluster.stop_broker(node, clean=self.rng.random() < 0.5)
            asyncio.get_running_loop().call_later(self.rng.uniform(0.2, 6.0), cluster.start_broker, node)

    def grow(self) -> None:
        name = self.rng.choice(self.names)
        count = len(self.world.source.topics[name].partitions)
        if count < 8:
            self.world.source.add_partitions(name, count + self.rng.randint(1, 2))


@pytest.mark.walk(range(2))
@pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)
async def test_workers_that_come_and_go_in_storms_copy_each_record_once_and_leave_no_partition_without_owner(
    seed: int,
) -> None:
    await GroupStorm(seed).run()
