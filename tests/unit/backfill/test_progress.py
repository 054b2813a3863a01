"""A verification says every few seconds what it is doing; it was silent for 37 seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from mm2py.backfill.verifying.job import counted
from mm2py.backfill.verifying.progress import ProgressSink, told_of
from tests.fakes.virtual_time import VirtualClock


async def test_what_is_being_done_is_told_every_few_seconds_and_no_more_when_it_ends() -> None:
    told: list[str] = []
    done = 0
    async with told_of(lambda: f"compared {done} of 2 ranges", ProgressSink(str, told.append), VirtualClock()):
        await asyncio.sleep(7)
        done = 1
        await asyncio.sleep(3)
    await asyncio.sleep(100)
    assert told == [
        "compared 0 of 2 ranges, after 3 s",
        "compared 0 of 2 ranges, after 6 s",
        "compared 1 of 2 ranges, after 9 s",
    ]


class Accumulator:
    def __init__(self) -> None:
        self.value = 0

    def add(self, more: int) -> None:
        self.value += more


def test_a_task_counts_the_ranges_that_it_is_done_with() -> None:
    done, seen = Accumulator(), []

    def work(plans: Iterator[bytes]) -> Iterator[int]:
        for plan in plans:
            seen.append(done.value)
            yield len(plan)

    assert list(counted(work, done)(iter([b"a", b"bc", b"def"]))) == [1, 2, 3]
    assert (seen, done.value) == ([0, 1, 2], 3)
