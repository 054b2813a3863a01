"""A flow that is too slow, catches up, and is then not copied at all: the status and the metrics say how its lag moves,
and what they say comes true."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from mm2py.worker.herder import Herder
from tests.fakes.broker.record_batch import Record
from tests.fakes.metrics_page import Page, page_of
from tests.scenarios.settings.test_status_command import FILE, Scene

pytestmark = pytest.mark.virtual_time(limit_s=36_000)
BATCH: Final = 10
EVERY_S: Final = 0.5
BYTES_PER_S: Final = 1_400
"""About half of what comes: 20 records of 100 bytes in a second, in two batches."""
RETENTION_S: Final = 1_800
LAG: Final = "mm2py_lag_"


class SlowFlow(Scene):
    """A flow that copies about half as fast as records come."""

    def __init__(self, seed: int, folder: Path, **topic: str) -> None:
        super().__init__(seed, folder, text=f"{FILE}bytes.per.second.max = {BYTES_PER_S}\n")
        self.source.create_topic("orders", 1, {"retention.ms": str(RETENTION_S * 1000)} | topic)

    @asynccontextmanager
    async def records(self) -> AsyncIterator[None]:
        """While the block runs, records come."""

        async def append() -> None:
            while True:
                self.source.append("orders", 0, [Record(b"x" * 80, b"k", timestamp_ms=self.clock.wall_ms())] * BATCH)
                await asyncio.sleep(EVERY_S)

        task = asyncio.ensure_future(append())
        try:
            yield
        finally:
            assert not task.done()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def waiting(self) -> int:
        """Return how many records wait in truth."""
        return self.source.partition("orders", 0).high_watermark - self.target.partition("A.orders", 0).high_watermark

    async def moves(self) -> dict[str, Any]:
        """Return what the status says of the only partition; the same of its topic and of the flow."""
        (flow,) = (await self.found())["flows"]
        (topic,) = [one for one in flow["topics"] if one["topic"] == "orders"]
        assert flow["movement"] == topic["movement"]
        if flow["behind"]:
            assert flow["behind"][0]["movement"] == topic["movement"]
        assert bool(flow["behind"]) == (topic["movement"]["trend"] != "keeps-up") == bool(flow["partitions_behind"])
        found: dict[str, Any] = topic["movement"]
        return found


def shown(herder: Herder) -> dict[str, float]:
    """Return what the metrics say of the topic."""
    page: Page = page_of(herder)
    return {one.name.removeprefix(LAG): one.value for one in page.samples if one.name.startswith(LAG)}


async def test_what_is_said_of_a_lag_that_grows_and_of_one_that_shrinks_comes_true(tmp_path: Path) -> None:
    scene = SlowFlow(1, tmp_path)
    async with scene.worker() as herder:
        async with scene.records():
            await asyncio.sleep(5)
            begun_ms = scene.clock.wall_ms()
            await asyncio.sleep(150)
            before, before_s = scene.waiting(), scene.clock.monotonic()
            await asyncio.sleep(30)
            truth = (scene.waiting() - before) / (scene.clock.monotonic() - before_s)
            assert truth > 5, "copying is slower than records come"
            moves, page = await scene.moves(), shown(herder)
            assert moves["trend"] == "growing" and moves["catch_up_s"] is None
            assert moves["per_s"] == pytest.approx(truth, rel=0.4)
            assert page["growth_records_per_second"] == pytest.approx(truth, rel=0.4)
            assert page["catch_up_seconds"] == float("inf")
            assert abs(moves["since_ms"] - begun_ms) < 60_000 and page["since_seconds"] * 1000 == moves["since_ms"]
            assert moves["expiry"] == "at-this-rate" and 0 < moves["retention_share"] < 0.5
            assert page["retention_ratio"] == pytest.approx(moves["retention_share"], rel=0.2)
            assert page["expires_seconds"] == pytest.approx(moves["expires_s"], rel=0.5)
        await asyncio.sleep(40)  # no more records come
        moves, page, at_s = await scene.moves(), shown(herder), scene.clock.monotonic()
        assert moves["trend"] == "shrinking" and moves["expiry"] == "not-at-this-rate"
        assert page["catch_up_seconds"] == pytest.approx(moves["catch_up_s"], rel=0.5)
        assert page["expires_seconds"] == float("inf")
        await scene.copied({"orders": "A.orders"}, deadline_s=600)
        assert scene.clock.monotonic() - at_s == pytest.approx(moves["catch_up_s"], rel=0.4)
        await asyncio.sleep(10)
        moves, page = await scene.moves(), shown(herder)
        assert (moves["trend"], moves["per_s"], moves["since_ms"], moves["expiry"]) == ("keeps-up", 0, None, "keeps-up")
        assert page["expires_seconds"] == float("inf") and "since_seconds" not in page


async def test_since_when_survives_the_worker_and_a_flow_without_one_loses_what_the_source_deletes(
    tmp_path: Path,
) -> None:
    scene = SlowFlow(2, tmp_path)
    async with scene.records():
        async with scene.worker():
            await asyncio.sleep(120)
            first = await scene.moves()
        async with scene.worker():
            await asyncio.sleep(30)
            assert (await scene.moves())["since_ms"] == first["since_ms"] is not None
        await asyncio.sleep(60)
        moves = await scene.moves()
        assert moves["per_s"] == pytest.approx(BATCH / EVERY_S, rel=0.1), "nothing is copied, and records still come"
        left_s = RETENTION_S * (1 - moves["retention_share"])
        assert moves["expires_s"] == pytest.approx(left_s, rel=0.01), "no second of it is won by copying"
        at_s = scene.clock.monotonic()
    await asyncio.sleep(moves["expires_s"] - 60)
    scene.source.expire("orders")
    assert (await scene.moves())["expiry"] == "at-this-rate", "the source has deleted nothing of it yet"
    await asyncio.sleep(RETENTION_S)
    scene.source.expire("orders")
    assert scene.clock.monotonic() - at_s > moves["expires_s"]
    assert (await scene.moves())["expiry"] == "gone"


async def test_a_topic_that_is_only_compacted_never_expires_and_one_whose_settings_are_denied_is_not_known(
    tmp_path: Path,
) -> None:
    scene = SlowFlow(3, tmp_path, **{"cleanup.policy": "compact"})
    async with scene.records(), scene.worker() as herder:
        await asyncio.sleep(120)
        assert (await scene.moves())["expiry"] == "never"
        assert shown(herder)["expires_seconds"] == float("inf")
        scene.source.hidden_configs.add("orders")
        await asyncio.sleep(70)
        moves = await scene.moves()
        assert (moves["expiry"], moves["retention_share"], moves["trend"]) == ("unknown", None, "growing")
        assert not {"expires_seconds", "retention_ratio"} & shown(herder).keys()
