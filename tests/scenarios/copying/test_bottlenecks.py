"""Each thing that can limit a flow is made its bottleneck: the status and the metrics name it, until it is mended."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from mm2py.flow import Kind
from mm2py.kafka.port import FetchRequest, ProduceRequest
from mm2py.metrics.counters import CpuTime
from mm2py.records.operator_request import TargetState
from mm2py.worker.herder import Herder
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.broker.record_batch import Record
from tests.fakes.faults import Faults
from tests.fakes.metrics_page import page_of
from tests.scenarios.config_world import log_of
from tests.scenarios.gate import Request
from tests.scenarios.paused_topics import BY
from tests.scenarios.settings.test_status_command import FILE, Scene

pytestmark = pytest.mark.virtual_time(limit_s=3_600)
SLOW_S: Final = 1.0
BATCH_BYTES: Final = 1_000
SMALL_READS: Final = {"A.consumer.max.partition.fetch.bytes": 2 * BATCH_BYTES}
"""Each brings a batch or two, so that a backlog takes many of them."""
MEMORY_BYTES: Final = 128 << 10
"""For one read."""


class LimitedFlow(Scene):
    """A flow with a backlog that takes minutes, as something limits it."""

    def __init__(self, seed: int, folder: Path, settings: Mapping[str, object] = SMALL_READS, *, batches: int) -> None:
        text = "".join(f"{key} = {value}\n" for key, value in settings.items())
        super().__init__(seed, folder, text=f"{FILE}{text}")
        self.batches = batches

    def fill(self, *, partitions: int = 1) -> None:
        self.source.create_topic("orders", partitions)
        for partition in range(partitions):
            for number in range(self.batches):
                self.source.append("orders", partition, [Record(b"%d" % number + b"x" * BATCH_BYTES)])

    def delay(self, cluster: str, kind: type[Request]) -> None:
        """Let a cluster of the running worker take long for requests of a kind."""
        self.processes[-1].slow_s = lambda name, asked: SLOW_S if name == cluster and isinstance(asked, kind) else 0.0

    def hurry(self) -> None:
        """Let nothing take long any more."""
        self.processes[-1].slow_s = lambda *_: 0.0

    async def limit(self) -> dict[str, Any]:
        """Return what the status says of the flow."""
        (flow,) = (await self.found())["flows"]
        found: dict[str, Any] = flow["bottleneck"]
        return found

    async def named(self, herder: Herder, cause: str) -> dict[str, Any]:
        """Wait until the status and the metrics name a cause, and return what the status says."""
        async with asyncio.timeout(60):
            while True:
                found = await self.limit()
                shown = [one["cause"] for one in page_of(herder).labels("mm2py_flow_bottleneck")]
                if found["cause"] == cause and shown == [cause]:
                    return found
                await asyncio.sleep(1)

    async def assert_named_until_mended(self, herder: Herder, cause: str, mend: Callable[[], None]) -> dict[str, Any]:
        """Assert that a cause is named while it lasts, and no longer when it is mended and all is copied."""
        found = await self.named(herder, cause)
        for _ in range(5):
            await asyncio.sleep(1)
            assert (await self.limit())["cause"] == cause
        assert found["worker"] == "w1"
        if cause != "rate-limit":
            assert found["percent"] >= 50
        assert re.search(r"\nwhat limits it: .*w1.* % of the time", (await self.status())[1])
        mend()
        await self.copied({"orders": "A.orders"}, deadline_s=120)
        await self.named(herder, "nothing-waits")
        return found


async def test_a_flow_that_keeps_up_is_limited_by_nothing_and_that_is_not_known_at_once(tmp_path: Path) -> None:
    scene = LimitedFlow(1, tmp_path, batches=10)
    scene.fill()
    assert (await scene.limit())["cause"] == "unknown", "no worker runs"
    async with scene.worker() as herder:
        await scene.copied({"orders": "A.orders"})
        found = await scene.limit()
        assert found["cause"] == "unknown" and "has not told" in found["text"]
        await scene.named(herder, "nothing-waits")


async def test_a_source_that_answers_late_is_named(tmp_path: Path) -> None:
    scene = LimitedFlow(2, tmp_path, batches=1_000)
    scene.fill()
    async with scene.worker() as herder:
        scene.delay("A", FetchRequest)
        found = await scene.assert_named_until_mended(herder, "source-read", scene.hurry)
        assert "waits for answers of A" in found["text"] and "A's brokers" in found["remedy"]


async def test_a_target_that_acknowledges_late_is_named(tmp_path: Path) -> None:
    scene = LimitedFlow(3, tmp_path, batches=1_000)
    scene.fill()
    async with scene.worker() as herder:
        scene.delay("B", ProduceRequest)
        found = await scene.assert_named_until_mended(herder, "target-write", scene.hurry)
        assert "waits for acknowledgements of B" in found["text"]


@pytest.mark.parametrize(
    ("connections", "text", "remedy"),
    [
        (1, "200 ms away, 1", "docs/long-links.md"),
        (4, "200 ms away over 4 connections, ", "connections.per.broker.max"),
    ],
)
async def test_the_way_to_a_far_source_is_named(tmp_path: Path, connections: int, text: str, remedy: str) -> None:
    scene = LimitedFlow(4, tmp_path, {**SMALL_READS, "connections.per.broker.max": connections}, batches=3_000)
    scene.source = ClusterModel("A", scene.clock, random.Random(4), nodes=1, latency_s=(0.1, 0.11))
    scene.fill()
    async with scene.worker() as herder:
        found = await scene.named(herder, "link")
        assert f"the link to A, whose brokers are {text}" in found["text"] and remedy in found["remedy"]


async def test_the_way_to_a_far_target_is_named(tmp_path: Path) -> None:
    scene = LimitedFlow(5, tmp_path, {**SMALL_READS, "connections.per.broker.max": 1}, batches=2_000)
    scene.target = ClusterModel("B", scene.clock, random.Random(5), nodes=1, latency_s=(0.1, 0.11))
    scene.fill()
    async with scene.worker() as herder:
        found = await scene.named(herder, "link")
        assert "the link to B, whose brokers are 200 ms away" in found["text"] and "beside B" in found["remedy"]


@pytest.mark.parametrize("cluster", ["A", "B"])
async def test_a_quota_of_either_cluster_is_named(tmp_path: Path, cluster: str) -> None:
    scene = LimitedFlow(6, tmp_path, batches=500)
    scene.fill()
    model = scene.source if cluster == "A" else scene.target
    async with scene.worker() as herder:
        await asyncio.sleep(0.5)
        model.inject(Faults(throttle=1.0, throttle_s=(0.3, 0.4)))
        found = await scene.assert_named_until_mended(herder, "quota", model.heal)
        assert f"a quota of {cluster} delays w1" in found["text"]


async def test_memory_that_is_too_small_is_named_and_with_more_of_it_the_target_is(tmp_path: Path) -> None:
    for memory_bytes, cause in ((MEMORY_BYTES, "memory"), (96 << 20, "target-write")):
        scene = LimitedFlow(7, tmp_path, {}, batches=3_000)
        scene.memory_max_bytes = memory_bytes
        scene.fill(partitions=4)
        async with scene.worker() as herder:
            scene.delay("B", ProduceRequest)
            found = await scene.named(herder, cause)
            assert ("Raise memory.max.bytes" in found["remedy"]) == (cause == "memory")


async def test_the_flows_own_limit_is_named(tmp_path: Path) -> None:
    scene = LimitedFlow(8, tmp_path, {**SMALL_READS, "bytes.per.second.max": 5_000}, batches=200)
    scene.fill()
    async with scene.worker() as herder:
        await scene.assert_named_until_mended(herder, "rate-limit", lambda: None)


async def test_a_busy_core_is_named_whatever_else_seems_to_be_waited_for(tmp_path: Path) -> None:
    """What a worker's process really uses is measured in ``tests/cluster/commands/test_bottlenecks.py``."""
    scene = LimitedFlow(9, tmp_path, batches=1_000)
    scene.fill()

    async def burn() -> None:
        while True:
            scene.metrics.cpu = CpuTime(scene.clock.monotonic() * 0.9, 0.0)
            await asyncio.sleep(0.25)

    burning = asyncio.ensure_future(burn())
    async with scene.worker() as herder:
        scene.delay("A", FetchRequest)
        found = await scene.named(herder, "planning")
        assert "one core of w1 is busy" in found["text"] and found["percent"] >= 85
        burning.cancel()
        await scene.named(herder, "source-read")


async def test_a_worker_whose_flow_has_ended_tells_nothing_of_it(tmp_path: Path) -> None:
    scene = LimitedFlow(10, tmp_path, batches=10)
    scene.fill()
    async with scene.worker() as herder:
        await scene.named(herder, "nothing-waits")
        log = await log_of(scene, "operator")
        await log.write_target(Kind.SOURCE, TargetState.PAUSED, by=BY)
        await asyncio.sleep(10)
        member = scene.processes[-1].member
        assert member is not None and member.waits == {}
        found = await scene.limit()
        assert found["cause"] == "unknown" and "paused" in found["text"]
