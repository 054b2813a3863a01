"""One run of a paced workload: the latency of records through a warm mirror, and its resources meanwhile.

The mirror first copies the records in the topic, which warms it up. Then records are written at a steady pace. One
reader reads the remote topic, another the source topic: its latency is the lower limit for the first. The first seconds
are left out.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from bench.measure import DEADLINE_S, Reading, RunFailed, Tls, other_cpu_percent, read, wait_for_copies
from bench.mirrors import ROOT, Launch, NotMeasured, Running, prepare, running
from bench.processes import peak_mb
from bench.runs import Run
from bench.sides import Side, Sides
from bench.workloads import Pace, Workload

LATE_S: Final = 30.0
"""How long after the last write records may still arrive."""
LINE_BYTES: Final = 64 << 20
READY_S: Final = 60.0


def percentile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile of values, which need no order."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def latencies_ms(seen: Sequence[tuple[int, int]], from_ns: int) -> list[float]:
    """Return the latencies of the records that were sent at ``from_ns`` or later."""
    return [latency_ns / 1e6 for sent_ns, latency_ns in seen if sent_ns >= from_ns]


def paced_measures(
    mirrored: Sequence[float], direct: Sequence[float], before: Reading, after: Reading, peak_mb: float
) -> dict[str, float]:
    """Return the measures of a run. Pure."""
    window_s = after.at_s - before.at_s
    return {
        "p50_ms": percentile(mirrored, 0.5),
        "p99_ms": percentile(mirrored, 0.99),
        "direct_p50_ms": percentile(direct, 0.5),
        "direct_p99_ms": percentile(direct, 0.99),
        "cpu_percent": (after.mirror_cpu_s - before.mirror_cpu_s) / window_s * 100,
        "peak_mb": peak_mb,
        "source_broker_cpu_percent": (after.source_cpu_s - before.source_cpu_s) / window_s * 100,
        "target_broker_cpu_percent": (after.target_cpu_s - before.target_cpu_s) / window_s * 100,
        "other_cpu_percent": other_cpu_percent(before, after),
    }


async def measure_paced(sides: Sides, launch: Launch, tls: Tls, *, number: int, deadline_s: float = DEADLINE_S) -> Run:
    """Run one mirror over one paced workload."""
    workload = launch.workload
    measures: dict[str, float] = {}
    failed = not_measured = None
    standing = sum((await sides.source.ends(workload.topic, range(workload.partitions))).values())
    try:
        await prepare(launch, sides)
        with running(launch, sides, tls) as mirror:
            await wait_for_copies(sides, launch, mirror, standing, deadline_s=deadline_s)
            measures = await _at_pace(sides, launch, mirror)
    except NotMeasured as error:
        not_measured = str(error)
    except RunFailed as error:
        failed = str(error)
    return Run(workload.name, launch.mirror, number, workload.records, measures, failed, not_measured)


async def rehearse(sides: Sides, workload: Workload) -> None:
    """Warm up both brokers for a pace: write and read at it for a while, on topics that are deleted again.

    Brokers are JVMs: in the first seconds at a pace they compile, and the first mirror would pay for it.
    """
    assert workload.pace is not None
    pace, topic = workload.pace, f"rehearsal-{workload.topic}"
    records = int(pace.per_second * pace.settle_s)
    for side in (sides.source, sides.target):
        await side.create(topic, pace.active_partitions)
        async with _reader(side, topic, pace, records, pace.settle_s + LATE_S) as reader:
            writer = await _writer(side, topic, pace, pace.settle_s, workload.record_bytes)
            await writer.wait()
            await _line(reader)
    sides.target.delete_all_but([])


async def _at_pace(sides: Sides, launch: Launch, mirror: Running) -> dict[str, float]:
    workload, pace = launch.workload, launch.workload.pace
    assert pace is not None
    seconds = pace.settle_s + pace.measured_s
    records = int(pace.per_second * seconds)
    async with (
        _reader(sides.target, launch.remote_topic, pace, records, seconds + LATE_S) as mirrored,
        _reader(sides.source, workload.topic, pace, records, seconds + LATE_S) as direct,
    ):
        writer = await _writer(sides.source, workload.topic, pace, seconds, workload.record_bytes)
        try:
            begun_ns = int(await _line(writer))
            await asyncio.sleep(begun_ns / 1e9 + pace.settle_s - time.monotonic())
            before = read(sides, mirror.pid, 0)
            await asyncio.sleep(begun_ns / 1e9 + seconds - time.monotonic())
            after = read(sides, mirror.pid, 0)
            if await writer.wait():
                raise RunFailed("the source did not take all records in time")
            seen = [json.loads(await _line(reader)) for reader in (mirrored, direct)]
        finally:
            _end(writer)
    if len(seen[0]) != records:
        raise RunFailed(f"{len(seen[0]):,} of {records:,} records arrived; its log ends:\n{mirror.log_tail()}")
    from_ns = begun_ns + int(pace.settle_s * 1e9)
    mirrored_ms, direct_ms = (latencies_ms(each, from_ns) for each in seen)
    return paced_measures(mirrored_ms, direct_ms, before, after, peak_mb(mirror.pid))


@asynccontextmanager
async def _reader(side: Side, topic: str, pace: Pace, records: int, longest_s: float) -> AsyncIterator[Process]:
    reader = await _probe("read", side.bootstrap, topic, pace.active_partitions, records, longest_s)
    try:
        try:
            async with asyncio.timeout(READY_S):
                await _line(reader)
        except TimeoutError:
            raise RunFailed(f"{topic} could not be read within {READY_S:g} s") from None
        yield reader
    finally:
        _end(reader)
        await reader.wait()


async def _writer(side: Side, topic: str, pace: Pace, seconds: float, size: int) -> Process:
    return await _probe("write", side.bootstrap, topic, pace.active_partitions, pace.per_second, seconds, size)


async def _probe(*arguments: object) -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.probes", *map(str, arguments)), cwd=ROOT, stdout=PIPE, limit=LINE_BYTES
    )


async def _line(probe: Process) -> bytes:
    assert probe.stdout is not None
    line = await probe.stdout.readline()
    if not line:
        raise RunFailed(f"a reader or writer ended with exit code {await probe.wait()}")
    return line


def _end(probe: Process) -> None:
    if probe.returncode is None:
        probe.kill()
