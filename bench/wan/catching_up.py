"""One run of a mirror that has a long backlog to copy while more keeps arriving.

The backlog shrinks while the mirror copies more than arrives. It is gone when the copy lags by no more records than
arrive in a second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from bench.filling import append
from bench.measure import Reading, RunFailed, copy_measures, read
from bench.mirrors import Launch, Running, running
from bench.processes import peak_mb
from bench.runs import Run
from bench.sides import Side, Sides
from bench.wan.rows import records_of
from bench.workloads import Workload

LOOK_EVERY_S: Final = 0.25
ARRIVE_EVERY_S: Final = 0.1
FIRST_S: Final = 120.0


@asynccontextmanager
async def arriving(side: Side, workload: Workload, mb_per_s: float) -> AsyncIterator[None]:
    """Write records to the topic of a workload at this rate until the block ends.

    Raises:
        ExceptionGroup: the broker refused records.
    """
    row = workload.partitions * workload.shape.records_per_batch

    async def write() -> None:
        begun_s, written = time.monotonic(), 0
        while True:
            due = int((time.monotonic() - begun_s) * records_of(mb_per_s, workload) / row)
            await append(side, workload, due - written)
            written = due
            await asyncio.sleep(ARRIVE_EVERY_S)

    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(write(), name=f"records arrive in {workload.topic}")
        try:
            yield
        finally:
            writing.cancel()


async def measure_catching_up(
    sides: Sides, launch: Launch, *, number: int, arriving_mb_per_s: float, deadline_s: float
) -> Run:
    """Start a mirror on a full topic while more records arrive, and watch it until the backlog is gone."""
    workload = launch.workload
    measures: dict[str, float] = {}
    failed = None
    try:
        async with arriving(sides.source, workload, arriving_mb_per_s):
            with running(launch, sides, {}) as mirror:
                before = replace(read(sides, None, 0), at_s=mirror.started_s)
                first, backlog = await _until(sides, launch, mirror, behind=None, deadline_s=FIRST_S)
                second = records_of(arriving_mb_per_s, workload)
                last, left = await _until(sides, launch, mirror, behind=second, deadline_s=deadline_s)
                measures = copy_measures(workload, before, first, last, peak_mb(mirror.pid))
                took_s = last.at_s - first.at_s
                arrived = last.copied + left - first.copied - backlog
                measures |= {
                    "backlog_mb": backlog * workload.record_bytes / 1e6,
                    "gone_after_s": took_s,
                    "arrived_mb_per_s": arrived * workload.record_bytes / 1e6 / took_s,
                }
    except RunFailed as error:
        failed = str(error)
    return Run(workload.name, launch.mirror, number, workload.records, {} if failed else measures, failed)


async def _until(
    sides: Sides, launch: Launch, mirror: Running, *, behind: int | None, deadline_s: float
) -> tuple[Reading, int]:
    """Watch until the copy lags by at most ``behind`` records (None: until it has any), and return the lag."""
    partitions = range(launch.workload.partitions)
    end_s = time.monotonic() + deadline_s
    while True:
        copied = sum((await sides.target.ends(launch.remote_topic, partitions)).values())
        left = sum((await sides.source.ends(launch.workload.topic, partitions)).values()) - copied
        if copied and (behind is None or left <= behind):
            return read(sides, mirror.pid, copied), left
        if mirror.exit_code is not None:
            raise RunFailed(f"ended with exit code {mirror.exit_code}; its log ends:\n{mirror.log_tail()}")
        if time.monotonic() > end_s:
            raise RunFailed(f"{left:,} records behind after {deadline_s:g} s; its log ends:\n{mirror.log_tail()}")
        await asyncio.sleep(LOOK_EVERY_S)
