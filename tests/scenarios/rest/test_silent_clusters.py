"""REST beside a cluster that accepts connections and says nothing: it answers soon, with all that it knows besides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mm2py.flow import ClusterAlias
from mm2py.status.cluster_inquiry import PROBE_S, InquirySide, Patience
from mm2py_rest.clusters.live import FRESH_S, PATIENCE_S, View
from tests.scenarios.rest.rest_world import Rest, rest_of
from tests.scenarios.shared_world import SharedWorld

SOON_S = PATIENCE_S + 0.1


@asynccontextmanager
async def asked(silent: str = "") -> AsyncIterator[tuple[SharedWorld, Rest]]:
    """REST of a flow with one topic that no worker runs; ``silent``: a cluster that never answered."""
    world = SharedWorld()
    world.make_topics(1, 2)
    async with rest_of(world) as rest:
        rest.silent |= {silent} - {""}
        yield world, rest


async def timed(world: SharedWorld, rest: Rest) -> tuple[View, float]:
    """Ask as a route does; return what was found, and how old it is, in s. It has come within ``SOON_S``."""
    begun_s = world.clock.monotonic()
    view = await rest.live.view()
    now_s = world.clock.monotonic()
    assert now_s - begun_s < SOON_S
    return view, now_s - view.begun_s


async def test_a_cluster_that_never_answered_delays_the_first_answer_a_little_and_others_not_at_all() -> None:
    async with asked("B") as (world, rest):
        view, _ = await timed(world, rest)
        why = view.facts.clusters["B"]
        assert (view.facts.clusters["A"], why[:26]) == ("", "B has not answered since 2")
        for _ in range(5):
            await timed(world, rest)
            await asyncio.sleep(0.4)
        for _ in range(100):
            begun_s = world.clock.monotonic()
            view, age_s = await timed(world, rest)
            assert world.clock.monotonic() - begun_s < 0.3
            assert age_s <= FRESH_S
            assert view.facts.clusters["B"] == why, "since when it is silent does not change"
            assert [topic.topic for topic in view.report.flows[0].topics] == ["t0"], "the source says that"
            await asyncio.sleep(0.4)
        assert not rest.failures


@pytest.mark.parametrize("alias", ["A", "B"])
async def test_a_cluster_that_falls_silent_and_comes_back_is_seen_soon(alias: str) -> None:
    async with asked() as (world, rest):

        async def becomes(*, there: bool, within_s: float) -> None:
            until_s = world.clock.monotonic() + within_s
            while (not (view := (await timed(world, rest))[0]).facts.clusters[alias]) != there:
                assert world.clock.monotonic() < until_s, view.facts.clusters
                await asyncio.sleep(0.5)

        await becomes(there=True, within_s=0.0)
        rest.silent.add(alias)
        await becomes(there=False, within_s=5.0)
        rest.silent.clear()
        await becomes(there=True, within_s=PROBE_S + 3.0)  # what it was asked meanwhile has no answer


async def test_a_cluster_that_falls_silent_in_the_middle_of_a_look_is_found_out() -> None:
    async with asked() as (world, rest):
        await timed(world, rest)
        rest.silent_from["A"] = "ListOffsets"
        ages = []
        for _ in range(40):
            await asyncio.sleep(0.5)
            view, age_s = await timed(world, rest)
            ages.append(age_s)
        assert FRESH_S < max(ages) < 10.0
        assert ages[-1] <= FRESH_S
        assert view.facts.clusters["A"].startswith("A has not answered since ")


async def test_a_part_that_takes_long_is_waited_for_as_long_as_its_cluster_answers_otherwise() -> None:
    world = SharedWorld()
    side = InquirySide(ClusterAlias("A"), world.source, Patience(world.clock))

    async def read() -> None:
        await asyncio.sleep(20.0)

    await side.probe()
    assert await side.why_not("reading all positions", read) == ""
    world.source.hung_apis.add("Metadata")
    begun_s = world.clock.monotonic()
    assert "has not answered since" in await side.why_not("reading all positions", read)
    assert world.clock.monotonic() - begun_s < 7.0
    await side.close()
