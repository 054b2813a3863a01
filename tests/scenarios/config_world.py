"""Workers of one flow as far as its settings go: their files, and the configs topic of the target model."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mm2py.config.configuration import SettingsFile
from mm2py.config.properties import Properties, PropertyEntry
from mm2py.config.settings import FlowSettings
from mm2py.flow import Flow, parse_flow
from mm2py.kafka.internal_topic import TopicWriter
from mm2py.kafka.port import Brokers
from mm2py.kafka.producer.incarnation import Incarnation
from mm2py.records.batch import NewRecord
from mm2py.records.connector_config import SOURCE_KEY, FlowConfig
from mm2py.shared_settings.config_log import ConfigLog, ConfigTable
from mm2py.shared_settings.current_settings import CurrentSettings
from mm2py.shared_settings.flow_config import Follow
from mm2py.shared_settings.flow_owner import OwnerWatch
from mm2py.shared_settings.follow import ConfigWatch
from tests.scenarios.world import World

TOPIC = "mm2-configs.A.internal"
FLOW = parse_flow("A->B")
ADDRESSES = {
    "clusters": "A,B",
    "A.bootstrap.servers": "a:1",
    "B.bootstrap.servers": "b:1",
    "A->B.enabled": "true",
    "config.storage.replication.factor": "1",
}

BY_MM2 = {"enabled": "true", "topics": "java", "source.cluster.bootstrap.servers": "a:1"}


def file_of(settings: Mapping[str, str]) -> SettingsFile:
    entries = {
        key: PropertyEntry(value, key, line) for line, (key, value) in enumerate({**ADDRESSES, **settings}.items(), 1)
    }
    return SettingsFile(Path("mm2.properties"), Properties(entries), ())


async def writer_of(world: World, name: str) -> TopicWriter:
    incarnation = Incarnation(
        world.target,
        lambda number: f"mm2py-{name}-{number}",
        clock=world.clock,
        rng=random.Random(1),
        report=lambda _: None,
        waiting=lambda _: None,
    )
    await incarnation.start()
    return TopicWriter(world.target, TOPIC, incarnation, rng=random.Random(1), timeout_ms=1_000)


async def log_of(
    world: World, name: str, through: Callable[[Brokers], Brokers] | None = None, flow: Flow = FLOW
) -> ConfigLog:
    (settings,) = file_of({}).configuration().flows
    settings = replace(settings, flow=flow, configs_topic=f"mm2-configs.{flow.source}.internal")
    brokers = world.target if through is None else through(world.target)
    rng = random.Random(world.rng.random())
    return ConfigLog(brokers, settings, worker=name, clock=world.clock, rng=rng)


async def put(world: World, *records: tuple[bytes, bytes | None]) -> None:
    """Write records as a process that is not a worker of the flow."""
    writer = await writer_of(world, f"other-{world.rng.random()}")
    await writer.write({0: [NewRecord(key, value, world.clock.wall_ms()) for key, value in records]})


async def put_as_mm2(world: World, properties: dict[str, str]) -> None:
    await put(world, (SOURCE_KEY, json.dumps({"properties": properties}).encode()))


async def stored_in(world: World) -> FlowConfig | None:
    """Return the settings that a worker which starts now would read."""
    table = ConfigTable(world.target, TOPIC)
    await table.read_patiently(random.Random(1))
    return table.config


class FlowWorker:
    """A worker that runs the flow by its file and the stored settings, and records each change it is told of."""

    def __init__(self, world: World, name: str, settings: Mapping[str, str], *, apply: bool = False) -> None:
        self.world = world
        self.name = name
        self.file = file_of(settings)
        self.settings: FlowSettings | None = None
        self.heard: list[tuple[int, frozenset[str], float]] = []
        self.told: list[type] = []
        """Of what kind each thing was that it was told, in this order."""
        self.watch: ConfigWatch | None = None
        self.source = asyncio.Event()
        """Set: the source answers."""
        self.source.set()
        self._apply = apply
        self._task: asyncio.Task[None] | None = None

    async def start(
        self, *, runners: tuple[str, ...] = (), settled: Callable[[ConfigLog], Awaitable[None]] | None = None
    ) -> FlowSettings | None:
        """``settled`` does something before the worker follows what is stored."""

        async def others(*, for_sure: bool) -> Collection[str]:
            return runners

        async def ready() -> None:
            await self.source.wait()

        world, (settings,) = self.world, self.file.switching_on(FLOW).configuration().flows
        parts: Mapping[str, Any] = {"clock": world.clock, "rng": random.Random(world.rng.random()), "log": world.log}
        config_log = await log_of(world, self.name)
        self.watch = ConfigWatch(
            FLOW,
            self.file,
            config_log,
            CurrentSettings(None, None),
            owner=OwnerWatch(settings, config_log, world.target, world.target, source_id=lambda: None, **parts),
            apply=self._apply,
            log=world.log,
        )
        await self.watch.settle(others, ready)
        self.settings = self.watch.current.settings
        if settled is not None:
            await settled(config_log)
        self._task = asyncio.get_running_loop().create_task(
            self.watch.run(self._changed, lambda asked: self.told.append(type(asked))), name=self.name
        )
        return self.settings

    @property
    def is_running(self) -> bool:
        """Whether it still follows what is stored."""
        return self._task is not None and not self._task.done()

    async def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _changed(self, settings: FlowSettings | None, news: Follow) -> None:
        self.settings = settings
        self.told.append(type(news))
        self.heard.append((news.config.version, news.touched, self.world.clock.monotonic()))
