"""How tests on real processes wait, and what they say when it was in vain."""

from __future__ import annotations

import asyncio

import pytest

from tests.cluster.running import until, wait_until, within

SOON_S = 0.02


@pytest.mark.real_time
async def test_a_wait_in_vain_says_for_what_for_how_long_and_what_was_last() -> None:
    with pytest.raises(AssertionError, match=r"not within 0\.02 s: it is full; the last answer was \[\]"):
        wait_until(list, "it is full", deadline_s=SOON_S)

    async def empty() -> list[int]:
        return []

    with pytest.raises(AssertionError, match=r"not within 0\.02 s: it is full; the last answer was \[\]"):
        await until(empty, "it is full", deadline_s=SOON_S)


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
