"""All runs of a bench: fills the sources once, then runs every mirror on every workload, round after round."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.filling import fill, read_through, warm_up
from bench.measure import Tls, measure_copy
from bench.mirrors import FRANZ_GO, Launch, Options
from bench.paced import measure_paced, rehearse
from bench.runs import Run, RunLog
from bench.sides import Sides
from bench.workloads import Workload

WARM_RECORDS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Planned:
    """A planned run; rounds count from 0."""

    round: int
    workload: Workload
    mirror: str


def plan(workloads: Sequence[Workload], mirrors: Sequence[str], rounds: int) -> list[Planned]:
    """Return the runs in order. Pure.

    The loop over rounds is outermost, so that a machine that becomes slower affects all mirrors. Each round starts with
    another mirror, so that none is always the first after a change of topics.
    """
    planned = []
    for number in range(rounds):
        first = number % len(mirrors)
        for workload in workloads:
            for mirror in (*mirrors[first:], *mirrors[:first]):
                if not (mirror == FRANZ_GO and workload.pace is not None):
                    planned.append(Planned(number, workload, mirror))
    return planned


def left_of(planned: Sequence[Planned], log: RunLog) -> list[Planned]:
    """Return the planned runs that the log lacks."""
    return [
        each for each in planned if not log.has((each.workload.name, each.mirror, each.round), each.workload.records)
    ]


async def run_all(
    sides: Sides, planned: Sequence[Planned], log: RunLog, *, options: Options, tls: Tls, deadline_s: float
) -> None:
    """Carry out the plan, and print each result as it comes."""
    topics = {each.workload.topic: each.workload for each in planned}
    for workload in topics.values():
        begun_s = time.monotonic()
        await fill(sides.source, workload)
        await read_through(sides.source, workload)
        await warm_up(sides.target, workload.with_records(min(workload.records, WARM_RECORDS)))
        if workload.pace is not None:
            await rehearse(sides, workload)
        took_s = time.monotonic() - begun_s
        print(f"source topic {workload.topic}: {workload.records:,} records written in {took_s:.0f} s", flush=True)
    for at, each in enumerate(planned):
        sides.wait_until_quiet()
        launch = Launch(each.mirror, each.workload, f"{each.round}x{at}", options)
        measure = measure_copy if each.workload.pace is None else measure_paced
        run = await measure(sides, launch, tls, number=each.round, deadline_s=deadline_s)
        log.add(run)
        print(f"[{at + 1}/{len(planned)}] {said(run)}", flush=True)
        sides.target.delete_all_but([])
        sides.source.delete_all_but(list(topics))


def said(run: Run) -> str:
    """Return one line about a run."""
    shown = " ".join(f"{name}={value:.4g}" for name, value in run.measures.items())
    said = shown or (f"not measured: {run.not_measured}" if run.not_measured else f"FAILED: {run.failed}")
    return f"round {run.round + 1} {run.workload} {run.mirror}: {said}"
