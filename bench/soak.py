"""``make soak``: an hour idle and half an hour at full load; memory, descriptors, threads and tasks must stay flat.

In the idle phase 200 partitions get no records until the end; then each gets one, to show that the flow still works. In
the load phase records are written as fast as mm2py copies them, always with a backlog, to topics with short retention,
so that no disk fills. At the end both sides must have the same ends and the same last records.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from bench.copies import LAST_RECORDS, differing_partitions
from bench.filling import append, fill
from bench.flatness import Finding, Sample, judge
from bench.machine import commit, hardware, versions
from bench.measure import RunFailed, wait_for_copies
from bench.mirrors import MM2PY, Launch, Options, Running, running
from bench.processes import open_files, resident_mb, threads
from bench.results import RESULTS
from bench.sides import Side, Sides, bench_clusters
from bench.workloads import KILOBYTE, PARTITIONS, SMALL, Shape, Workload
from deploy.local.errors import StarterError
from deploy.local.guardian import guard

IDLE: Final = Workload("soak-idle", "200 idle partitions", "idle", 200, Shape(KILOBYTE, 1), 200)
LOAD: Final = Workload("soak-load", "full load, 1 KB, 16 records a batch", "load", PARTITIONS, SMALL, 1_920)
MOST_MB_PER_HOUR: Final = {"idle": 1.0, "load": 24.0}
"""Under load the allocator grows in steps of some MB until all its buffers are in use; a leak of one byte a record
would be more than 300 MB an hour.
"""
KEPT_BYTES: Final = 64 << 20
LITTLE_KEPT: Final = {"retention.bytes": str(KEPT_BYTES), "segment.bytes": str(KEPT_BYTES // 4)}
CHECK_OFTEN: Final = {"log.retention.check.interval.ms": 2_000}
BACKLOG_RECORDS: Final = 100_000
"""A tenth of what the source keeps: nothing expires before it is copied."""
ROWS_AT_ONCE: Final = 50
SAMPLES: Final = 60
LONGEST_PAUSE_S: Final = 10.0
CAUGHT_UP_S: Final = 120.0
SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Phase:
    """The result of one part of the soak."""

    name: str
    minutes: float
    records: int
    findings: Sequence[Finding]
    samples: Sequence[Sample]

    @property
    def flat(self) -> bool:
        return all(finding.flat for finding in self.findings)


class Watched:
    """A running mm2py, and the samples taken of it."""

    def __init__(self, mirror: Running, tasks_path: Path, minutes: float) -> None:
        self.samples: list[Sample] = []
        self.seconds = minutes * 60
        self._mirror = mirror
        self._tasks_path = tasks_path

    async def watch(self) -> None:
        """Take samples until the time is over.

        Raises:
            RunFailed: mm2py ended.
        """
        pause_s = min(LONGEST_PAUSE_S, self.seconds / SAMPLES)
        end_s = time.monotonic() + self.seconds
        while time.monotonic() < end_s:
            if self._mirror.exit_code is not None:
                raise RunFailed(f"ended with exit code {self._mirror.exit_code}:\n{self._mirror.log_tail()}")
            pid = self._mirror.pid
            tasks = int(self._tasks_path.read_text().splitlines()[-1].split()[1])
            self.samples.append(Sample(time.monotonic(), resident_mb(pid), open_files(pid), threads(pid), tasks))
            await asyncio.sleep(pause_s)


async def idle(sides: Sides, minutes: float, directory: Path) -> Phase:
    """Let mm2py idle.

    Raises:
        RunFailed: mm2py ended, or the records written at the end do not arrive.
    """
    await fill(sides.source, IDLE)
    tasks_path = directory / "idle.tasks"
    launch = Launch(MM2PY, IDLE, "idle", Options(module=("bench.soak_worker", str(tasks_path))))
    with running(launch, sides, {}) as mirror:
        await wait_for_copies(sides, launch, mirror, IDLE.records, deadline_s=CAUGHT_UP_S)
        watched = Watched(mirror, tasks_path, minutes)
        await watched.watch()
        await append(sides.source, IDLE, 1)
        await wait_for_copies(sides, launch, mirror, 2 * IDLE.records, deadline_s=CAUGHT_UP_S)
    findings = judge(watched.samples, most_mb_per_hour=MOST_MB_PER_HOUR["idle"])
    return Phase("idle", minutes, 2 * IDLE.records, findings, watched.samples)


async def load(sides: Sides, minutes: float, directory: Path) -> Phase:
    """Keep mm2py busy.

    Raises:
        RunFailed: mm2py ended, or did not catch up.
    """
    await sides.source.create(LOAD.topic, LOAD.partitions, LITTLE_KEPT)
    tasks_path = directory / "load.tasks"
    launch = Launch(MM2PY, LOAD, "load", Options(module=("bench.soak_worker", str(tasks_path))))
    row = LOAD.partitions * LOAD.shape.records_per_batch
    partitions = range(LOAD.partitions)
    await append(sides.source, LOAD, ROWS_AT_ONCE)
    written = ROWS_AT_ONCE * row
    with running(launch, sides, {}) as mirror:
        await wait_for_copies(sides, launch, mirror, written, deadline_s=CAUGHT_UP_S)
        watched = Watched(mirror, tasks_path, minutes)
        watching = asyncio.create_task(watched.watch(), name="watch")
        try:
            while not watching.done():
                copied = sum((await sides.target.ends(launch.remote_topic, partitions)).values())
                if written - copied > BACKLOG_RECORDS:
                    await asyncio.sleep(0.01)
                    continue
                await append(sides.source, LOAD, ROWS_AT_ONCE)
                written += ROWS_AT_ONCE * row
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        if not watching.cancelled():
            watching.result()
        await wait_for_copies(sides, launch, mirror, written, deadline_s=CAUGHT_UP_S)
        findings = judge(watched.samples, most_mb_per_hour=MOST_MB_PER_HOUR["load"])
        findings.append(await asyncio.to_thread(compare_ends, sides, launch.remote_topic))
    return Phase("load", minutes, written, findings, watched.samples)


def compare_ends(sides: Sides, remote_topic: str) -> Finding:
    """Compare the ends of all partitions and their last records on both sides."""
    differing = differing_partitions(sides.source, LOAD.topic, sides.target, remote_topic, LOAD.partitions)
    if differing:
        return Finding(flat=False, text=f"the last {LAST_RECORDS} records differ in partitions {differing}")
    return Finding(flat=True, text=f"the ends and the last {LAST_RECORDS} records of all partitions are equal")


def markdown(phases: Sequence[Phase], facts: dict[str, Any]) -> str:
    """Return the page of results."""
    lines = ["# Soak", "", *(f"**{name}**: {_said(value)}  " for name, value in facts.items()), ""]
    for phase in phases:
        rate = f", {phase.records / phase.minutes / 60:,.0f} a second" if phase.name == "load" else ""
        lines += [f"## {phase.name}, {phase.minutes:g} minutes, {phase.records:,} records{rate}", ""]
        lines += [f"* {'flat' if finding.flat else '**NOT FLAT**'}: {finding.text}" for finding in phase.findings]
        step = max(1, len(phase.samples) // SHOWN)
        course = ", ".join(f"{sample.resident_mb:.0f}" for sample in phase.samples[::step])
        lines += [f"* memory in its course, in MB: {course}", ""]
    return "\n".join(lines)


def _said(value: object) -> str:
    if isinstance(value, Mapping):
        return " · ".join(f"{name} {each}" for name, each in value.items())
    return str(value)


async def soak(sides: Sides, options: argparse.Namespace, directory: Path) -> list[Phase]:
    """Run the phases that have a duration."""
    phases = []
    try:
        for run, minutes in ((idle, options.idle_minutes), (load, options.load_minutes)):
            if minutes > 0:
                print(f"{run.__name__}: {minutes:g} minutes", flush=True)
                phases.append(await run(sides, minutes, directory))
    finally:
        await sides.close()
    return phases


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak. The exit code is 1 if a measure grew, or copying failed."""
    parser = argparse.ArgumentParser(prog="make soak", description="mm2py for a long time: does anything grow?")
    parser.add_argument("--idle-minutes", type=float, default=60.0)
    parser.add_argument("--load-minutes", type=float, default=30.0)
    parser.add_argument("--save", action="store_true", help="write the result under docs/results")
    options = parser.parse_args(arguments)
    facts = {"machine": hardware(), "versions": versions(), "commit": commit()}
    directory = guard().new_directory("soak")
    try:
        with bench_clusters(settings=CHECK_OFTEN) as (source, target):

            async def run() -> list[Phase]:
                return await soak(Sides(Side(source), Side(target)), options, directory)

            phases = asyncio.run(run())
    except (StarterError, RunFailed) as error:
        print(f"soak: {error}", file=sys.stderr)
        return 1
    finally:
        guard().remove_directory(directory)
    today = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    page = markdown(phases, {"date": today, **facts})
    print(page)
    if options.save:
        RESULTS.mkdir(parents=True, exist_ok=True)
        content = {"date": today, **facts, "phases": [asdict(phase) for phase in phases]}
        (RESULTS / f"soak-{today}.json").write_text(json.dumps(content, indent=1) + "\n")
        (RESULTS / f"soak-{today}.md").write_text(page)
    return 0 if all(phase.flat for phase in phases) else 1


if __name__ == "__main__":
    sys.exit(main())
