"""A schedule starts at once, keeps its rate, and survives errors."""

from __future__ import annotations

import asyncio
import io

import pytest
from structlog.typing import FilteringBoundLogger

from mm2py.errors import Mm2Error
from mm2py.logs import make_logger
from mm2py_connectors.source.notices import Notices
from mm2py_connectors.source.topic_sync import NEWS_EVERY_S, repeat
from tests.fakes.virtual_time import VirtualClock

pytestmark = pytest.mark.virtual_time(limit_s=10_000)


def a_log() -> tuple[io.StringIO, FilteringBoundLogger]:
    stream = io.StringIO()
    return stream, make_logger("info", "text", stream)


def said(stream: io.StringIO) -> list[str]:
    return [line.split()[2] for line in stream.getvalue().splitlines()]


async def times_of(
    durations_s: list[float], *, interval_s: float = 10.0, failing: frozenset[int] = frozenset()
) -> list[float]:
    """Return when the work starts, given how long it takes each time. Each failure and its end must be logged."""
    clock = VirtualClock()
    begun: list[float] = []
    stream, log = a_log()
    first_s = clock.monotonic()

    async def work() -> None:
        number = len(begun)
        begun.append(round(clock.monotonic() - first_s, 3))
        await asyncio.sleep(durations_s[number])
        if number in failing:
            raise Mm2Error("It failed.", remedy="")

    task = asyncio.create_task(repeat(work, name="work", interval_s=interval_s, clock=clock, log=log))
    while len(begun) < len(durations_s):
        await asyncio.sleep(1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    ends = {number + 1 for number in failing} - failing - {len(durations_s) - 1}  # the last one is cancelled
    events = {**dict.fromkeys(failing, "work.failing"), **dict.fromkeys(ends, "work.in_step")}
    assert said(stream) == [events[number] for number in sorted(events)]
    return begun


async def test_it_starts_at_once_and_keeps_its_rate_however_long_the_work_takes() -> None:
    assert await times_of([0.0, 3.0, 9.9, 0.0, 5.0]) == [0.0, 10.0, 20.0, 30.0, 40.0]


async def test_missed_starts_are_left_out_and_the_rate_is_kept() -> None:
    assert await times_of([25.0, 0.0, 10.5, 0.0]) == [0.0, 30.0, 40.0, 60.0]


async def test_an_error_cancels_nothing() -> None:
    assert await times_of([0.0, 1.0, 0.0, 0.0], failing=frozenset({0, 2})) == [0.0, 10.0, 20.0, 30.0]


@pytest.mark.virtual_time(limit_s=1000)
async def test_news_start_the_work_in_between_and_the_rate_is_kept() -> None:
    clock = VirtualClock()
    begun: list[float] = []
    stream, log = a_log()
    asked: list[float] = []
    first_s = clock.monotonic()

    async def work() -> None:
        begun.append(round(clock.monotonic() - first_s, 3))
        if len(begun) == 2:
            raise Mm2Error("It failed.", remedy="")

    def news() -> bool:
        asked.append(round(clock.monotonic() - first_s, 3))
        return asked[-1] in {NEWS_EVERY_S, 2 * NEWS_EVERY_S, 20 + NEWS_EVERY_S}

    schedule = repeat(
        work,
        name="work",
        interval_s=4 * NEWS_EVERY_S,
        clock=clock,
        log=log,
        news=news,
    )
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(12 * NEWS_EVERY_S - 1):
            await schedule
    assert begun == [0.0, 5.0, 10.0, 20.0, 25.0, 40.0]
    assert said(stream) == ["work.failing", "work.in_step"]
    assert asked == [5.0, 10.0, 15.0, 25.0, 30.0, 35.0, 45.0, 50.0, 55.0]


@pytest.mark.virtual_time(limit_s=10)
async def test_a_defect_is_logged_once_as_an_error_and_cancels_nothing() -> None:
    """A sync of settings that meets a defect must not stop the copying."""
    stream, log = a_log()
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        raise ZeroDivisionError("by nought")

    async def scenario() -> None:
        async with asyncio.timeout(2.5):
            await repeat(work, name="work", interval_s=1, clock=VirtualClock(), log=log)

    with pytest.raises(TimeoutError):
        await scenario()
    assert begun == 3
    (line,) = stream.getvalue().splitlines()
    assert " ERROR " in line
    assert "ZeroDivisionError: by nought (at test_fixed_rate.py:" in line
    assert "This is a defect in mm2py; please report it with this line." in line


def test_a_notice_is_new_once_until_it_changes_or_is_over() -> None:
    notices = Notices(a_log()[1])
    assert [notices.is_new("a", "x"), notices.is_new("a", "x"), notices.is_new("a", "y")] == [True, False, True]
    assert [notices.is_over("a"), notices.is_over("a"), notices.is_new("a", "y")] == [True, False, True]
    notices.keep(lambda of: of != "a")
    assert notices.is_new("a", "y")
