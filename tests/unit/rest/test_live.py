"""How fresh what REST tells is, and that many who ask cause one look."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from mm2py.status.facts import Facts
from mm2py_rest.clusters.live import ASKED_S, FIRST_S, FRESH_S, LOOK_MOST_S, PATIENCE_S, LiveReport, NothingKnown
from tests.fakes.open_rest import report_at_once
from tests.fakes.virtual_time import VirtualClock

NOTHING = Facts(0, {}, [], [], {})


class Clusters:
    """Answer after a while; each look is counted."""

    def __init__(self, takes_s: float = 0.1) -> None:
        self.clock = VirtualClock()
        self.takes_s = takes_s
        self.looks: list[float] = []
        self.failures: list[str] = []
        self.error: Exception | None = None
        self.live = LiveReport(self.look, self.clock, self.failures.append, make=report_at_once)

    async def look(self) -> Facts:
        self.looks.append(self.clock.monotonic())
        await asyncio.sleep(self.takes_s)
        if self.error is not None:
            raise self.error
        return NOTHING

    async def age_s(self) -> float:
        """Ask, and return how old the answer is when it comes."""
        return self.clock.monotonic() - (await self.live.view()).begun_s


async def with_clusters(story: Callable[[Clusters], Awaitable[None]], takes_s: float = 0.1) -> None:
    clusters = Clusters(takes_s)
    running = asyncio.create_task(clusters.live.run())
    await asyncio.sleep(0)
    await story(clusters)
    running.cancel()


async def wait(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    return await asyncio.gather(*work)


async def test_nothing_is_asked_of_the_clusters_while_nobody_asks_and_looks_end_with_the_requests() -> None:
    async def story(clusters: Clusters) -> None:
        await asyncio.sleep(100.0)
        assert clusters.looks == []
        await clusters.age_s()
        await asyncio.sleep(ASKED_S + 5.0)
        last = len(clusters.looks)
        await asyncio.sleep(100.0)
        assert len(clusters.looks) == last
        assert await clusters.age_s() <= 0.2, "the next request does not get what is old"

    await with_clusters(story)


async def test_a_glance_is_one_look_after_which_no_others_follow() -> None:
    async def story(clusters: Clusters) -> None:
        first = await clusters.live.glance()
        assert first is not None and len(clusters.looks) == 1
        await asyncio.sleep(100.0)
        assert len(clusters.looks) == 1
        both = await wait(clusters.live.glance(), clusters.live.glance())
        assert both[0] is both[1] is not first, "those who glance at once share a look"
        assert len(clusters.looks) == 2

    await with_clusters(story)


async def test_a_glance_while_there_are_requests_needs_no_look_of_its_own() -> None:
    async def story(clusters: Clusters) -> None:
        await clusters.age_s()
        view = await clusters.live.glance()
        assert view is not None and view.begun_s == clusters.looks[0]
        assert len(clusters.looks) == 1

    await with_clusters(story)


async def test_a_glance_that_fails_tells_nothing_old() -> None:
    async def story(clusters: Clusters) -> None:
        assert await clusters.live.glance() is not None
        await asyncio.sleep(100.0)
        clusters.error = OSError("gone")
        assert await clusters.live.glance() is None
        assert clusters.failures == ["OSError: gone"]

    await with_clusters(story)


async def test_what_is_told_is_at_most_two_seconds_old() -> None:
    async def story(clusters: Clusters) -> None:
        for _ in range(200):
            assert await clusters.age_s() <= FRESH_S
            await asyncio.sleep(0.37)

    await with_clusters(story)


async def test_who_asks_again_and_again_waits_for_no_look_though_some_take_four_times_as_long() -> None:
    """The clusters of a busy machine: p99 of REST was 306 ms, since requests waited for looks longer than 0.3 s."""

    async def story(clusters: Clusters) -> None:
        await clusters.age_s()
        for number in range(3_000):
            clusters.takes_s = 0.5 if number // 50 % 4 == 0 else 0.12
            begun_s = clusters.clock.monotonic()
            assert await clusters.age_s() <= FRESH_S
            assert clusters.clock.monotonic() == begun_s, f"request {number} waited"
            await asyncio.sleep(0.1)
        assert len(clusters.looks) < 300 / 1.0

    await with_clusters(story)


async def test_a_hundred_who_ask_at_once_cause_one_look() -> None:
    async def story(clusters: Clusters) -> None:
        await wait(*(clusters.live.view() for _ in range(100)))
        assert len(clusters.looks) == 1

    await with_clusters(story)


async def test_who_asks_after_a_change_sees_it_without_waiting_for_the_next_look_in_turn() -> None:
    async def story(clusters: Clusters) -> None:
        await clusters.age_s()
        await asyncio.sleep(0.3)
        clusters.live.changed()
        now_s = clusters.clock.monotonic()
        assert (await clusters.live.view()).begun_s >= now_s
        assert clusters.clock.monotonic() - now_s < 0.25

    await with_clusters(story)


async def test_a_change_during_a_look_is_seen_by_the_look_behind_it() -> None:
    async def story(clusters: Clusters) -> None:
        first = asyncio.create_task(clusters.live.view())
        await asyncio.sleep(0.5)
        clusters.live.changed()
        now_s = clusters.clock.monotonic()
        assert (await clusters.live.view()).begun_s >= now_s
        assert (await first).begun_s < now_s
        assert len(clusters.looks) == 2

    await with_clusters(story, takes_s=1.0)


async def test_while_clusters_are_slow_the_last_answer_is_told() -> None:
    async def story(clusters: Clusters) -> None:
        await clusters.age_s()
        clusters.takes_s = 20.0
        await asyncio.sleep(5.0)
        begun_s = clusters.clock.monotonic()
        assert await clusters.age_s() > FRESH_S
        assert clusters.clock.monotonic() - begun_s == pytest.approx(PATIENCE_S)

    await with_clusters(story)


async def test_before_the_first_answer_a_request_waits_and_is_then_told_that_nothing_is_known() -> None:
    async def story(clusters: Clusters) -> None:
        begun_s = clusters.clock.monotonic()
        with pytest.raises(NothingKnown):
            await clusters.live.view()
        assert clusters.clock.monotonic() - begun_s == pytest.approx(FIRST_S)
        await asyncio.sleep(10.0)
        assert await clusters.age_s() >= 0.0

    await with_clusters(story, takes_s=20.0)


async def test_a_look_that_fails_is_told_and_the_next_one_follows_after_a_pause() -> None:
    """Once the process ended at the first failure."""

    async def story(clusters: Clusters) -> None:
        clusters.error, clusters.takes_s = RuntimeError("a defect"), 0.0
        with pytest.raises(NothingKnown):
            await clusters.live.view()
        assert set(clusters.failures) == {"RuntimeError: a defect"}
        assert 10 <= len(clusters.looks) <= 25
        clusters.error = None
        assert await clusters.age_s() <= FRESH_S

    await with_clusters(story)


async def test_a_look_that_hangs_is_given_up() -> None:
    async def story(clusters: Clusters) -> None:
        await clusters.age_s()
        clusters.takes_s = 10_000.0
        await asyncio.sleep(FRESH_S)
        clusters.takes_s = 0.1
        await asyncio.sleep(LOOK_MOST_S)
        assert clusters.failures == [f"no answer within {LOOK_MOST_S:g} s"]
        assert await clusters.age_s() <= FRESH_S

    await with_clusters(story)
