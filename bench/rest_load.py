"""What REST under load costs copying, and how soon it answers: ``python -m bench.rest_load``; see docs/benchmarks.md.

The same copy with and without clients, in pairs with alternating order. In both the REST process runs. 50 clients ask
for ``/v1/flows`` every 5 s, and 20 read events. Then records come at 10,000 a second, and the same clients ask. The CPU
of the REST process is reported apart from that of the worker.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from bench.campaign import add_arguments, carry_out
from bench.filling import fill, read_through, warm_up
from bench.measure import Reading, RunFailed, copy_measures, read, wait_for_copies
from bench.mirrors import MM2PY, ROOT, Launch, Options, Running, running
from bench.paced import percentile
from bench.pages import first_lines
from bench.processes import cpu_s, peak_mb, tree
from bench.rounds import said
from bench.runs import Run, RunLog
from bench.sides import Side, Sides
from bench.steady import cost
from bench.workloads import WORKLOADS, Workload
from deploy.local.kafka import KafkaCluster

ASKED, QUIET, PACED = "with 70 clients", "without clients", "10,000 records a second"
PAIRS: Final = 16
RECORDS: Final = 3_000_000
SETTLING_PART: Final = 1 / 3
"""Of the records, until REST has started and answers; what follows is measured."""
CLIENTS, STREAMS, EVERY_S = 50, 20, 5.0
PACED_PER_S: Final = 10_000
PACED_S: Final = 60.0
P99_MOST_MS: Final = {ASKED: 250.0, PACED: 50.0}
RATE_LOSS_MOST_PERCENT: Final = 5.0
WARM_RECORDS: Final = 100_000
READY_S: Final = 30.0
CLIENTS_START_S: Final = 1.0
"""The start of their process takes no CPU from a copy."""
SETTINGS: Final = {"listeners": "http://127.0.0.1:0"}


@dataclass(slots=True)
class Load:
    """The clients' process."""

    process: Process

    async def begin(self, port: int) -> None:
        """Let them ask a worker that listens there."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{port}\n".encode())
        await self.process.stdin.drain()

    async def end(self) -> dict[str, Any]:
        """Let them stop, and return what they met."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        found: dict[str, Any] = json.loads(await self.process.stdout.read())
        return found


@asynccontextmanager
async def clients() -> AsyncIterator[Load]:
    """Start the clients' process, which waits until they begin; it is gone at the end of the block."""
    arguments = map(str, (CLIENTS, STREAMS, EVERY_S))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.rest_clients", *arguments), cwd=ROOT, stdin=PIPE, stdout=PIPE, limit=1 << 26
    )
    try:
        yield Load(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def port_of(mirror: Running) -> int:
    """Return where the worker's REST listens, when it answers."""
    deadline_s = time.monotonic() + READY_S
    while time.monotonic() < deadline_s:
        match = re.search(r"rest\.listening at=http://127\.0\.0\.1:(\d+)", mirror.log_text())
        if match is not None and len(tree(mirror.pid)) > 1:
            return int(match[1])
        await asyncio.sleep(0.05)
    raise RunFailed(f"no REST within {READY_S:g} s; the log ends:\n{mirror.log_tail()}")


def rest_cpu_s(mirror: Running) -> float:
    """Return the CPU seconds of the REST process."""
    return sum(map(cpu_s, tree(mirror.pid)[1:]))


def latency_measures(met: Mapping[str, Any]) -> dict[str, float]:
    """Raises: RunFailed, an answer was no 200."""
    if met["failed"] or not met["latencies_ms"]:
        raise RunFailed(f"{len(met['failed'])} answers failed: {met['failed'][:5]}; {len(met['latencies_ms'])} came")
    latencies = met["latencies_ms"]
    return {
        "first_ms": met["first_ms"],
        "p50_ms": percentile(latencies, 0.5),
        "p99_ms": percentile(latencies, 0.99),
        "answers": float(len(latencies)),
        "events": float(met["events"]),
    }


async def copy_once(sides: Sides, launch: Launch, *, asked: bool) -> dict[str, float]:
    """Copy the topic; return what was measured. Raises: RunFailed."""
    async with clients() as load:
        await asyncio.sleep(CLIENTS_START_S)
        with running(launch, sides, {}) as mirror:
            return await _copy(sides, launch, mirror, load if asked else None)


async def _copy(sides: Sides, launch: Launch, mirror: Running, load: Load | None) -> dict[str, float]:
    found: dict[str, float] = {}
    begun: list[tuple[Reading, float]] = []

    def note(copied: int) -> None:
        if not begun and copied >= launch.workload.records * SETTLING_PART:
            begun.append((read(sides, mirror.pid, copied), rest_cpu_s(mirror)))

    before = replace(read(sides, None, 0), at_s=mirror.started_s)
    if load is not None:
        await load.begin(await port_of(mirror))
    _, last = await wait_for_copies(sides, launch, mirror, launch.workload.records, deadline_s=300, note=note)
    if load is not None:
        found = latency_measures(await load.end())
    (first, rest_first_s), rest_last_s = begun[0], rest_cpu_s(mirror)
    measures = copy_measures(launch.workload, before, first, last, peak_mb(mirror.pid))
    del measures["first_record_s"]  # it would be when the settling part was there
    rest_s, millions = rest_last_s - rest_first_s, (last.copied - first.copied) / 1e6
    return {
        **measures,
        **found,
        "rest_cpu_percent": rest_s / (last.at_s - first.at_s) * 100,
        "rest_start_cpu_s": rest_first_s,
        "worker_cpu_s_per_million": measures["cpu_s_per_million_steady"] - rest_s / millions,
    }


async def paced_once(sides: Sides, workload: Workload) -> dict[str, float]:
    """Let records come at a pace while clients ask. Raises: RunFailed."""
    launch = Launch(MM2PY, workload, "paced", Options(settings=SETTINGS))
    with running(launch, sides, {}) as mirror:
        port = await port_of(mirror)
        writer = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.probes", "write", sides.source.bootstrap, workload.topic),
            *map(str, (workload.partitions, PACED_PER_S, PACED_S, workload.record_bytes)),
            cwd=ROOT,
            stdout=PIPE,
        )
        try:
            async with clients() as load:
                await load.begin(port)
                begun_s, rest_s = time.monotonic(), rest_cpu_s(mirror)
                if await writer.wait():
                    raise RunFailed("the source did not take all records")
                took_s = time.monotonic() - begun_s
                found = latency_measures(await load.end())
        finally:
            if writer.returncode is None:
                writer.kill()
        return {**found, "rest_cpu_percent": (rest_cpu_s(mirror) - rest_s) / took_s * 100}


async def _run_all(sides: Sides, workload: Workload, pairs: int, log: RunLog) -> None:
    """Closes ``sides``."""
    try:
        await fill(sides.source, workload)
        await read_through(sides.source, workload)
        await warm_up(sides.target, workload.with_records(WARM_RECORDS))
        slow = replace(workload, topic="paced", records=0)
        if not log.has((workload.name, PACED, 0), 0):
            await sides.source.create(slow.topic, slow.partitions)
            await _note(log, slow, PACED, 0, paced_once(sides, slow))
            sides.target.delete_all_but([])
            sides.source.delete_all_but([workload.topic])
        for number in range(pairs):
            for at, name in enumerate([ASKED, QUIET] if number % 2 == 0 else [QUIET, ASKED]):
                if log.has((workload.name, name, number), workload.records):
                    continue
                sides.wait_until_quiet()
                launch = Launch(MM2PY, workload, f"{number}x{at}", Options(settings=SETTINGS))
                await _note(log, workload, name, number, copy_once(sides, launch, asked=name == ASKED))
                sides.target.delete_all_but([])
                sides.source.delete_all_but([workload.topic])
    finally:
        await sides.close()


async def _note(log: RunLog, workload: Workload, name: str, number: int, work: Any) -> None:
    try:
        run = Run(workload.name, name, number, workload.records, await work)
    except RunFailed as error:
        run = Run(workload.name, name, number, workload.records, failed=str(error))
    log.add(run)
    print(said(run), flush=True)


def report(runs: Sequence[Run], workload: Workload, facts: Mapping[str, object]) -> str:
    """Return the page of results."""
    lines = first_lines("What REST under load costs copying", facts)
    lines += [
        f"{workload.records:,} records of workload `{workload.name}`, copied by one worker with its REST process",
        f"beside it, while {CLIENTS} clients ask for `/v1/flows` every {EVERY_S:g} s and {STREAMS} read events, and",
        "without them; pairs take turns to be first. All of it shares the two cores of this machine with both brokers.",
        "The first answer waits until the REST process has started and has looked at the clusters;",
        "it stands apart. Rates and CPU are those behind the first third of the records: REST has started.",
        "",
        "| | first answer | p50 | p99 | goal, p99 | answers | REST process |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in (ASKED, PACED):
        found = [run.measures for run in runs if run.mirror == name and run.measures]
        if not found:
            continue
        first, p50, p99 = (statistics.median(each[key] for each in found) for key in ("first_ms", "p50_ms", "p99_ms"))
        cpu = statistics.median(each["rest_cpu_percent"] for each in found)
        verdict = "held" if p99 < P99_MOST_MS[name] else "**missed**"
        answers = sum(each["answers"] for each in found)
        title = "full load" if name == ASKED else name
        lines.append(
            f"| {title} | {first:.0f} ms | {p50:.0f} ms | {p99:.0f} ms | {P99_MOST_MS[name]:.0f} ms: {verdict} |"
            f" {answers:.0f} | {cpu:.1f} % of a core |"
        )
    pairs = _pairs(runs, "records_per_s")
    if len(pairs) >= 2:
        rate = cost(pairs)
        own = cost(_pairs(runs, "worker_cpu_s_per_million"))
        held = "held" if rate.low > -RATE_LOSS_MOST_PERCENT else "not shown by so few pairs"
        held = "**missed**" if rate.high < -RATE_LOSS_MOST_PERCENT else held
        lines += [
            "",
            f"Records a second with clients beside without: {rate.median:+.1f} % (95 % of the median:"
            f" {rate.low:+.1f} to {rate.high:+.1f} %, {len(pairs)} pairs); goal: above -{RATE_LOSS_MOST_PERCENT:g} %,"
            f" {held}. {rate.whole[0]:,.0f} and {rate.whole[1]:,.0f} records a second.",
            "",
            f"CPU of the worker without its REST process, for a million records: {own.median:+.1f} %"
            f" ({own.low:+.1f} to {own.high:+.1f} %); {own.whole[0]:.2f} s and {own.whole[1]:.2f} s.",
        ]
    if failed := [run for run in runs if run.failed]:
        lines += ["", *(f"Round {run.round + 1}, {run.mirror}, failed: {run.failed}" for run in failed)]
    return "\n".join([*lines, ""])


def _pairs(runs: Sequence[Run], measure: str) -> list[tuple[float, float]]:
    found = {(run.round, run.mirror): run.measures[measure] for run in runs if measure in run.measures}
    rounds = sorted({number for number, _ in found})
    return [
        (found[number, ASKED], found[number, QUIET])
        for number in rounds
        if {(number, ASKED), (number, QUIET)} <= found.keys()
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pairs and print the result. The exit code is 1 if a run failed; a goal may be missed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.rest_load", description="What REST under load costs copying."
    )
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    add_arguments(parser, "rest-load")
    options = parser.parse_args(arguments)
    workload = WORKLOADS["uncompressed"].with_records(options.records)

    def measure(source: KafkaCluster, target: KafkaCluster, log: RunLog) -> None:
        asyncio.run(_run_all(Sides(Side(source), Side(target)), workload, options.pairs, log))

    shape = {"records": str(workload.records)}
    return carry_out("rest-load", options, measure, lambda runs, facts: report(runs, workload, facts), shape=shape)


if __name__ == "__main__":
    sys.exit(main())
