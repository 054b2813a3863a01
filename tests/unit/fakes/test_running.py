"""How tests on real processes wait, and what they say when it was in vain."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from deploy.local.errors import PortTaken, ServerNotReady
from deploy.local.kafka import KafkaCluster
from tests.cluster.running import until, wait_until, within
from tests.cluster.shared_cluster import SharedCluster

SOON_S = 0.02


@pytest.mark.real_time
async def test_a_wait_in_vain_says_for_what_for_how_long_and_what_was_last() -> None:
    with pytest.raises(AssertionError, match=r"not within 0\.02 s: it is full; the last answer was \[\]"):
        wait_until(list, "it is full", deadline_s=SOON_S)

    async def empty() -> list[int]:
        return []

    with pytest.raises(AssertionError, match=r"not within 0\.02 s: it is full; the last answer was \[\]"):
        await until(empty, "it is full", deadline_s=SOON_S)


def test_what_is_waited_for_is_returned() -> None:
    async def answer() -> int:
        return 7

    assert wait_until(lambda: 7, "seven") == 7
    assert asyncio.run(until(lambda: 7, "seven")) == 7
    assert asyncio.run(until(answer, "seven")) == 7


def test_work_that_takes_too_long_is_cancelled() -> None:
    async def hang() -> None:
        async with within(SOON_S):
            await asyncio.Event().wait()

    async def end() -> int:
        async with within(60):
            return 7

    with pytest.raises(TimeoutError):
        asyncio.run(hang())
    assert asyncio.run(end()) == 7


def test_a_shared_cluster_that_is_late_is_started_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session fixture that fails takes all tests behind it along."""
    failures: list[Exception] = [ServerNotReady("late", log_path=Path("none")), PortTaken("", log_path=Path("none"))]

    def start(_: KafkaCluster) -> None:
        if failures:
            raise failures.pop()

    monkeypatch.setattr(KafkaCluster, "start", start)
    with pytest.raises(ServerNotReady, match="late"):
        SharedCluster("twice").start()
    failures.append(ServerNotReady("late", log_path=Path("none")))
    SharedCluster("once").start()
    assert not failures
