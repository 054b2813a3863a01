"""One run of a copy workload: a mirror starts cold on a full topic and is watched until the last record is copied.

One small request reads the ends of the remote topic's partitions every 25 ms. CPU time and memory are those that the
kernel counted for the mirror's processes. They are read when the first and when the last record was seen, so later work
of the mirror does not count.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from bench.copies import LAST_RECORDS, differing_partitions
from bench.mirrors import Launch, NotMeasured, Running, prepare, running
from bench.processes import cpu_s, machine_busy_s, peak_mb
from bench.runs import Run
from bench.sides import Sides
from bench.workloads import Workload

LOOK_EVERY_S: Final = 0.025
FEW_PARTITIONS: Final = 100
"""With more partitions each check costs more, so checks are rarer."""
DEADLINE_S: Final = 300.0
CRASHED: Final = ".crashed"
"""Part of the event that mm2py logs when its own defect ended a flow."""
Tls = Mapping[str, str]


class RunFailed(Exception):
    """A mirror did not finish; the message says how much was copied."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The state at one moment. CPU in seconds since the process or the machine started."""

    at_s: float
    copied: int
    mirror_cpu_s: float
    source_cpu_s: float
    target_cpu_s: float
    ours_cpu_s: float
    """CPU of the bench and all its processes: mirror, brokers, readers, writers."""
    machine_busy_s: float


def read(sides: Sides, pid: int | None, copied: int) -> Reading:
    """Take a reading; ``pid`` is None before the mirror starts."""
    return Reading(
        time.monotonic(),
        copied,
        0.0 if pid is None else cpu_s(pid),
        sides.source.cpu_s(),
        sides.target.cpu_s(),
        cpu_s(os.getpid()),
        machine_busy_s(),
    )


def copy_measures(
    workload: Workload, before: Reading, first: Reading, last: Reading, peak_mb: float
) -> dict[str, float]:
    """Return the measures of a run. Pure.

    Args:
        before: before the process was started.
        first: when records were first seen on the target; some may have arrived an instant before.
        last: when all records were there.
    """
    millions = last.copied / 1e6
    gigabytes = last.copied * workload.record_bytes / 1e9
    whole_s = last.at_s - before.at_s
    measures = {
        "records_per_s_from_start": last.copied / whole_s,
        "mb_per_s_from_start": gigabytes * 1_000 / whole_s,
        "cpu_s_per_million": last.mirror_cpu_s / millions,
        "cpu_s_per_gb": last.mirror_cpu_s / gigabytes,
        "peak_mb": peak_mb,
        "first_record_s": first.at_s - before.at_s,
        "last_record_s": whole_s,
        "source_broker_cpu_s_per_million": (last.source_cpu_s - before.source_cpu_s) / millions,
        "target_broker_cpu_s_per_million": (last.target_cpu_s - before.target_cpu_s) / millions,
        "other_cpu_percent": other_cpu_percent(before, last),
    }
    steady_s, steady_records = last.at_s - first.at_s, last.copied - first.copied
    if steady_s > 0 and steady_records > 0:  # otherwise all came within one check: nothing to measure
        rate = steady_records / steady_s
        per_record_s = (last.mirror_cpu_s - first.mirror_cpu_s) / steady_records
        measures |= {
            "records_per_s": rate,
            "mb_per_s": rate * workload.record_bytes / 1e6,
            "cpu_s_per_million_steady": per_record_s * 1e6,
            "cpu_s_per_gb_steady": per_record_s / workload.record_bytes * 1e9,
        }
    return measures


def other_cpu_percent(before: Reading, after: Reading) -> float:
    """Return the CPU use of all other programs (not mirror, brokers and bench), in percent of a core. Pure."""
    others_s = (after.machine_busy_s - after.ours_cpu_s) - (before.machine_busy_s - before.ours_cpu_s)
    return max(0.0, others_s) / (after.at_s - before.at_s) * 100


async def wait_for_copies(
    sides: Sides,
    launch: Launch,
    mirror: Running,
    records: int,
    *,
    deadline_s: float,
    note: Callable[[int], None] = lambda copied: None,
) -> tuple[Reading, Reading]:
    """Watch until this many records are on the target; return the readings at the first and at the last.

    Args:
        note: is called after each check with the number of records there.
    Raises:
        RunFailed: the mirror ended, was too slow, or copied more records than the source has.
    """
    partitions = range(launch.workload.partitions)
    end_s = time.monotonic() + deadline_s
    first: Reading | None = None
    while True:
        copied = sum((await sides.target.ends(launch.remote_topic, partitions)).values())
        note(copied)
        if copied and first is None:
            first = read(sides, mirror.pid, copied)
        if first is not None and copied >= records:
            if copied > records:
                raise RunFailed(f"{copied:,} records arrived of {records:,}: some stand there twice")
            return first, read(sides, mirror.pid, copied)
        so_far = f"{copied:,} of {records:,} records were there"
        if mirror.exit_code is not None:
            raise RunFailed(
                f"ended with exit code {mirror.exit_code} when {so_far}; its log ends:\n{mirror.log_tail()}"
            )
        if time.monotonic() > end_s:
            raise RunFailed(f"not done within {deadline_s:g} s: {so_far}; its log ends:\n{mirror.log_tail()}")
        await asyncio.sleep(LOOK_EVERY_S * (1 if len(partitions) <= FEW_PARTITIONS else 8))


async def check_copy(sides: Sides, launch: Launch, mirror: Running) -> None:
    """Check the copy. Raises: RunFailed, it differs from the source, or a flow of mm2py crashed meanwhile."""
    workload = launch.workload
    ends = await sides.target.ends(launch.remote_topic, range(workload.partitions))
    if set(ends.values()) != {workload.records // workload.partitions}:
        raise RunFailed(f"the partitions of the copy end at {sorted(set(ends.values()))}")
    differing = await asyncio.to_thread(
        differing_partitions, sides.source, workload.topic, sides.target, launch.remote_topic, workload.partitions
    )
    if differing:
        raise RunFailed(f"the last {LAST_RECORDS} records of partitions {differing} are not those of the source")
    if CRASHED in mirror.log_text():
        raise RunFailed(f"its flow crashed and restarted; its log ends:\n{mirror.log_tail()}")


async def measure_copy(sides: Sides, launch: Launch, tls: Tls, *, number: int, deadline_s: float = DEADLINE_S) -> Run:
    """Run one mirror over one copy workload. The caller deletes the mirror's topics."""
    workload = launch.workload
    measures: dict[str, float] = {}
    failed = not_measured = None
    try:
        await prepare(launch, sides)
        with running(launch, sides, tls) as mirror:
            before = replace(read(sides, None, 0), at_s=mirror.started_s)
            first, last = await wait_for_copies(sides, launch, mirror, workload.records, deadline_s=deadline_s)
            measures = copy_measures(workload, before, first, last, peak_mb(mirror.pid))
            await check_copy(sides, launch, mirror)
    except NotMeasured as error:
        not_measured = str(error)
    except RunFailed as error:
        failed = str(error)
    return Run(workload.name, launch.mirror, number, workload.records, {} if failed else measures, failed, not_measured)
