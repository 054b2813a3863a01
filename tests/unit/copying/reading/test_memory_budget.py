"""``memory.max.bytes``: who waits, in which order, and that everything that was taken comes back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.copying.reading.limits import (
    BACKLOG_BYTES_MOST,
    READ_BYTES_LEAST,
    TAIL_BYTES_MOST,
    FrameLease,
    MemoryBudget,
)

pytestmark = pytest.mark.real_time

MB = 1 << 20


async def turns() -> None:
    """Let everybody who can run do so."""
    for _ in range(5):
        await asyncio.sleep(0)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


async def test_what_fits_is_taken_at_once_and_what_does_not_waits() -> None:
    budget = MemoryBudget(100).open()
    await budget.reserve(60)
    waiting = asyncio.create_task(budget.reserve(50))
    await turns()
    assert not waiting.done()
    budget.give_back(10)
    await turns()
    assert waiting.done()
    assert budget.held_bytes == 100


async def test_waiters_are_served_in_their_order_and_a_small_one_does_not_overtake() -> None:
    budget = MemoryBudget(100).open()
    await budget.reserve(100)
    served: list[int] = []

    async def take(size: int) -> None:
        await budget.reserve(size)
        served.append(size)

    tasks = [asyncio.create_task(take(size)) for size in (80, 1, 20)]
    await turns()
    budget.give_back(50)
    await turns()
    assert served == []
    budget.give_back(50)
    await turns()
    assert served == [80, 1]
    budget.give_back(1)
    await turns()
    assert served == [80, 1, 20]
    await asyncio.gather(*tasks)


async def test_more_than_the_limit_is_served_alone() -> None:
    """A batch of 200 MB under a limit of 100 must be read, or its partition would stand still for ever."""
    budget = MemoryBudget(100).open()
    await budget.reserve(1)
    large = asyncio.create_task(budget.reserve(200))
    await turns()
    assert not large.done()
    budget.give_back(1)
    await turns()
    assert large.done()
    small = asyncio.create_task(budget.reserve(1))
    await turns()
    assert not small.done()
    budget.give_back(200)
    await small


async def test_a_cancelled_waiter_takes_nothing_and_lets_the_next_one_on() -> None:
    budget = MemoryBudget(100).open()
    await budget.reserve(90)
    first = asyncio.create_task(budget.reserve(50))
    second = asyncio.create_task(budget.reserve(10))
    await turns()
    first.cancel()
    await turns()
    assert second.done()
    assert budget.held_bytes == 100


async def test_a_waiter_cancelled_the_moment_it_is_served_gives_back() -> None:
    """The reader of one flow is cancelled between being given memory and running again: nothing may leak."""
    budget = MemoryBudget(100).open()
    await budget.reserve(100)
    served = asyncio.create_task(budget.reserve(100))
    next_one = asyncio.create_task(budget.reserve(100))
    await turns()
    budget.give_back(100)
    served.cancel()
    await turns()
    assert served.cancelled()
    assert next_one.done()
    budget.give_back(100)
    assert budget.held_bytes == 0


async def test_a_waiter_passed_over_because_it_was_cancelled_gives_back_nothing() -> None:
    """A lane is cancelled while it waits; before it runs again another lane gives memory back and passes it over."""
    budget = MemoryBudget(100).open()
    await budget.reserve(50)
    await budget.reserve(30)
    waiting = asyncio.create_task(budget.reserve(60))
    await turns()
    waiting.cancel()
    budget.give_back(50)
    await turns()
    assert waiting.cancelled()
    assert budget.held_bytes == 30


def test_giving_back_more_than_was_taken_is_a_loud_defect() -> None:
    with pytest.raises(AssertionError, match="more memory was given back than taken"):
        MemoryBudget(100).open().give_back(1)


@given(seed=st.integers(0, 2**32))
def test_no_memory_leaks_and_no_reader_starves(seed: int) -> None:
    async def main() -> None:
        rng = random.Random(seed)
        budget = MemoryBudget(100).open()

        async def worker() -> None:
            for _ in range(rng.randrange(1, 6)):
                size = rng.randrange(1, 150)
                await budget.reserve(size)
                try:
                    assert budget.held_bytes <= 100 or budget.held_bytes == size
                    for _ in range(rng.randrange(3)):
                        await asyncio.sleep(0)
                finally:
                    budget.give_back(size)

        workers = [asyncio.create_task(worker()) for _ in range(10)]
        for _ in range(rng.randrange(20)):
            await asyncio.sleep(0)
            if rng.random() < 0.2:
                rng.choice(workers).cancel()
        await asyncio.wait_for(asyncio.gather(*workers, return_exceptions=True), 1)
        assert all(done.cancelled() or done.exception() is None for done in workers)
        assert budget.held_bytes == 0

    run(main())


@pytest.mark.parametrize("limit", [16 * MB, 96 * MB, 1024 * MB, 1 << 40])
@pytest.mark.parametrize("lanes", [0, 1, 6, 200])
def test_reads_stay_within_sensible_sizes(limit: int, lanes: int) -> None:
    budget = MemoryBudget(limit).open()
    budget.lanes = lanes
    assert READ_BYTES_LEAST <= budget.tail_bytes() <= TAIL_BYTES_MOST
    assert READ_BYTES_LEAST <= budget.backlog_bytes() <= min(BACKLOG_BYTES_MOST, limit // 8)


# -- leases ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 50, 80, 300])
def test_a_frame_counts_with_its_own_size_until_its_last_holder_lets_go(size: int) -> None:
    budget = MemoryBudget(100).open()
    budget.take(50)
    lease = FrameLease(budget, reserved_bytes=50, size_bytes=size)
    assert budget.held_bytes == size
    lease.hold(0)
    lease.hold(7)
    lease.release(0)
    assert budget.held_bytes == size + 7
    lease.release(7)
    assert budget.held_bytes == size
    lease.release(0)
    assert budget.held_bytes == 0


def test_a_frame_released_too_often_is_a_loud_defect() -> None:
    budget = MemoryBudget(100).open()
    budget.take(10)
    lease = FrameLease(budget, reserved_bytes=10, size_bytes=10)
    lease.release(0)
    with pytest.raises(AssertionError, match="released more often than held"):
        lease.release(0)


async def test_a_frame_larger_than_reserved_makes_others_wait_until_it_is_made_good() -> None:
    budget = MemoryBudget(100).open()
    await budget.reserve(10)
    lease = FrameLease(budget, reserved_bytes=10, size_bytes=500)
    waiting = asyncio.create_task(budget.reserve(10))
    await turns()
    assert not waiting.done()
    lease.release(0)
    await waiting
    assert budget.held_bytes == 10


async def test_an_account_that_takes_nothing_back_leaves_the_others_their_share() -> None:
    """One target broker hangs: its batches fill the common half and its own share, and nobody waits for it."""
    budget = MemoryBudget(1200)
    hanging, healthy, third = budget.open(), budget.open(), budget.open()
    assert budget.share_bytes == 200
    for _ in range(8):
        await hanging.reserve(100)
    stuck = asyncio.create_task(hanging.reserve(100))
    await turns()
    for _ in range(3):
        await healthy.reserve(100)
        await third.reserve(200)
        healthy.give_back(100)
        third.give_back(200)
    assert not stuck.done()
    assert budget.peak_bytes <= budget.limit_bytes
    hanging.close()
    await stuck
    assert budget.held_bytes == 0, "what a closed account held, or still takes, counts no more"
