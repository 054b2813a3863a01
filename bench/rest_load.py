"""What REST under load costs copying, and how soon it answers: ``python -m bench.rest_load``; see docs/benchmarks.md.

50 clients ask for ``/v1/flows`` every 5 s, and 20 read events: first while records come at 10,000 a second, then during
copies at full speed. Within each copy, windows of a second with and without clients take turns: two whole copies would
differ by more than the clients cost. The CPU of the REST process is reported separately from the worker's.

With ``--tabs N``, N tabs of a browser show the web page instead, and the JS heap of a tab is reported as well.
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
from bench.measure import Reading, RunFailed, read, wait_for_copies
from bench.mirrors import MM2PY, ROOT, Launch, Options, Running, running
from bench.paced import percentile
from bench.pages import first_lines
from bench.processes import cpu_s, tree
from bench.rounds import said
from bench.runs import Run, RunLog
from bench.sides import Side, Sides
from bench.steady import cost
from bench.workloads import WORKLOADS, Workload
from deploy.local.kafka import KafkaCluster

ASKED, PACED = "full load", "10,000 records a second"
ROUNDS: Final = 16
PACED_ROUNDS: Final = 3
RECORDS: Final = 6_000_000
TURNS: Final = ((True, False, False, True), (False, True, True, False))
"""Whether clients ask in successive windows, in even and odd rounds. In this order a drift affects both alike."""
SETTLING_PART: Final = 1 / 3
"""Part of the records during which REST starts. The rest is measured."""
CLIENTS, STREAMS, EVERY_S = 50, 20, 5.0
PACED_PER_S: Final = 10_000
PACED_S: Final = 60.0
PACED_LINGER_MS: Final = 5
"""Kafka's default. Without it the source's broker gets a request for each record, and would limit the result."""
P99_MOST_MS: Final = {ASKED: 250.0, PACED: 50.0}
RATE_LOSS_MOST_PERCENT: Final = 5.0
WARM_RECORDS: Final = 100_000
READY_S: Final = 30.0
SETTINGS: Final = {"listeners": "http://127.0.0.1:0"}


@dataclass(frozen=True, slots=True)
class Asking:
    """A kind of clients."""

    name: str
    """Of the bench with these clients."""
    who: str
    """At the start of a sentence, with its verb."""
    command: tuple[str, ...]
    """The module of the clients' process and its arguments."""
    window_s: float
    """How long the windows are in which they ask, and those in which they do not."""
    start_s: float
    """Time for the start of their process, so that it takes no CPU from a copy."""


PLAIN: Final = Asking(
    "rest-load",
    f"{CLIENTS} clients ask for `/v1/flows` every {EVERY_S:g} s and {STREAMS} read events.",
    ("bench.rest_clients", str(CLIENTS), str(STREAMS), str(EVERY_S)),
    window_s=1.0,
    start_s=1.0,
)


def of_tabs(count: int) -> Asking:
    """Return the web page in so many tabs. Each asks every two seconds, so its windows are longer."""
    who = f"{count} tabs of one browser, on the same machine, show the first view of the web page."
    return Asking("page-load", who, ("bench.page_tabs", str(count)), window_s=4.0, start_s=10.0)


@dataclass(slots=True)
class Load:
    """The clients' process."""

    process: Process

    def tell(self, line: object) -> None:
        """Write a line to the clients: first the port of the worker, then ``on`` and ``off``."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())

    async def end(self) -> dict[str, Any]:
        """Stop the clients, and return their results."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        found: dict[str, Any] = json.loads(await self.process.stdout.read())
        return found


@dataclass(frozen=True, slots=True)
class Moment:
    """The readings at the border of two windows."""

    reading: Reading
    rest_cpu_s: float


class Windows:
    """The windows of one copy, with and without clients."""

    def __init__(
        self, sides: Sides, mirror: Running, load: Load, *, window_s: float, begin_at: float, number: int
    ) -> None:
        """``begin_at`` is the number of copied records from which on the windows begin."""
        self._window_s = window_s
        self._sides = sides
        self._mirror = mirror
        self._load = load
        self._begin_at = begin_at
        self._turns = TURNS[number % 2]
        self._borders: list[Moment] = []

    def note(self, copied: int) -> None:
        """Begin the next window if the current one has ended."""
        borders = self._borders
        if copied < self._begin_at or (borders and time.monotonic() < borders[-1].reading.at_s + self._window_s):
            return
        before, asks = (bool(borders) and self._asks(len(borders) - 1)), self._asks(len(borders))
        borders.append(Moment(read(self._sides, self._mirror.pid, copied), rest_cpu_s(self._mirror)))
        if asks != before:
            self._load.tell("on" if asks else "off")

    def _asks(self, window: int) -> bool:
        return self._turns[window % len(self._turns)]

    def measures(self) -> dict[str, float]:
        """Return the measures of whole turns, with and without clients. Raises: RunFailed, the copy was too short."""
        count = (len(self._borders) - 1) // len(self._turns) * len(self._turns)
        if count < len(self._turns):
            raise RunFailed(
                f"it took less than {len(self._turns)} windows of {self._window_s:g} s; take more --records"
            )
        found: dict[str, float] = {}
        for asks, name in ((True, "asked"), (False, "quiet")):
            at = [window for window in range(count) if self._asks(window) == asks]
            spans = [(self._borders[one], self._borders[one + 1]) for one in at]
            seconds = sum(end.reading.at_s - begin.reading.at_s for begin, end in spans)
            records = sum(end.reading.copied - begin.reading.copied for begin, end in spans)
            rest_s = sum(end.rest_cpu_s - begin.rest_cpu_s for begin, end in spans)
            all_s = sum(end.reading.mirror_cpu_s - begin.reading.mirror_cpu_s for begin, end in spans)
            found |= {
                f"{name}_records_per_s": records / seconds,
                f"{name}_rest_cpu_percent": rest_s / seconds * 100,
                f"{name}_worker_cpu_s_per_million": (all_s - rest_s) / records * 1e6,
            }
        return found


@asynccontextmanager
async def clients(asking: Asking) -> AsyncIterator[Load]:
    """Start the clients' process, which waits for its first line. It ends with the block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *asking.command), cwd=ROOT, stdin=PIPE, stdout=PIPE, limit=1 << 26
    )
    try:
        yield Load(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def port_of(mirror: Running) -> int:
    """Wait until the worker's REST process runs, and return its port. Raises: RunFailed, it did not start in time."""
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
    """Return the measures of the clients. Raises: RunFailed, a status was not 200, or no answer came."""
    if met["failed"] or not met["latencies_ms"]:
        raise RunFailed(f"{len(met['failed'])} answers failed: {met['failed'][:5]}; {len(met['latencies_ms'])} came")
    latencies = met["latencies_ms"]
    more: dict[str, float] = {}
    if heap_mb := met.get("heap_mb"):
        more = {
            "heap_first_mb": heap_mb[0],
            "heap_p50_mb": statistics.median(heap_mb),
            "heap_last_mb": heap_mb[-1],
            "browser_cpu_s": met["browser_cpu_s"],
        }
    return {
        **more,
        "first_ms": met["first_ms"],
        "p50_ms": percentile(latencies, 0.5),
        "p99_ms": percentile(latencies, 0.99),
        "timer_p99_ms": percentile(met["late_ms"], 0.99),
        "answers": float(len(latencies)),
        "events": float(met["events"]),
    }


async def copy_once(sides: Sides, launch: Launch, asking: Asking, number: int) -> dict[str, float]:
    """Copy the topic, with and without clients in turn; return the measures. Raises: RunFailed."""
    records = launch.workload.records
    async with clients(asking) as load:
        await asyncio.sleep(asking.start_s)
        with running(launch, sides, {}) as mirror:
            load.tell(await port_of(mirror))
            begin_at = records * SETTLING_PART
            windows = Windows(sides, mirror, load, window_s=asking.window_s, begin_at=begin_at, number=number)
            await wait_for_copies(sides, launch, mirror, records, deadline_s=300, note=windows.note)
            return {**windows.measures(), **latency_measures(await load.end())}


async def paced_once(sides: Sides, workload: Workload, asking: Asking) -> dict[str, float]:
    """Write records at a pace while clients ask; return the measures. Raises: RunFailed."""
    launch = Launch(MM2PY, workload, "paced", Options(settings=SETTINGS))
    with running(launch, sides, {}) as mirror:
        port = await port_of(mirror)
        writer = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.probes", "write", sides.source.bootstrap, workload.topic),
            *map(str, (workload.partitions, PACED_PER_S, PACED_S, workload.record_bytes, PACED_LINGER_MS)),
            cwd=ROOT,
            stdout=PIPE,
        )
        try:
            async with clients(asking) as load:
                load.tell(port)
                load.tell("on")
                begun_s, rest_s = time.monotonic(), rest_cpu_s(mirror)
                if await writer.wait():
                    raise RunFailed("the source did not take all records")
                took_s = time.monotonic() - begun_s
                found = latency_measures(await load.end())
        finally:
            if writer.returncode is None:
                writer.kill()
        return {**found, "asked_rest_cpu_percent": (rest_cpu_s(mirror) - rest_s) / took_s * 100}


async def _run_all(sides: Sides, workload: Workload, rounds: int, asking: Asking, log: RunLog) -> None:
    """Measure until the log has all results. Closes ``sides``."""
    try:
        await fill(sides.source, workload)
        await read_through(sides.source, workload)
        await warm_up(sides.target, workload.with_records(WARM_RECORDS))
        slow = replace(workload, topic="paced", records=0)
        missing = [number for number in range(PACED_ROUNDS) if not log.has((workload.name, PACED, number), 0)]
        if missing:
            await copy_once(sides, Launch(MM2PY, workload, "warm", Options(settings=SETTINGS)), asking, 0)
        for number in missing:
            await _clean(sides, workload)
            await sides.source.create(slow.topic, slow.partitions)
            await _note(log, slow, PACED, number, paced_once(sides, slow, asking))
        for number in range(rounds):
            if log.has((workload.name, ASKED, number), workload.records):
                continue
            await _clean(sides, workload)
            launch = Launch(MM2PY, workload, f"round-{number}", Options(settings=SETTINGS))
            await _note(log, workload, ASKED, number, copy_once(sides, launch, asking, number))
    finally:
        await sides.close()


async def _clean(sides: Sides, workload: Workload) -> None:
    sides.target.delete_all_but([])
    sides.source.delete_all_but([workload.topic])
    sides.wait_until_quiet()


async def _note(log: RunLog, workload: Workload, name: str, number: int, work: Any) -> None:
    try:
        run = Run(workload.name, name, number, workload.records, await work)
    except RunFailed as error:
        run = Run(workload.name, name, number, workload.records, failed=str(error))
    log.add(run)
    print(said(run), flush=True)


def report(runs: Sequence[Run], workload: Workload, facts: Mapping[str, object], asking: Asking = PLAIN) -> str:
    """Return the page of results."""
    lines = first_lines("What REST under load costs copying", facts)
    lines += [
        f"{asking.who} Copies of {workload.records:,} records of workload `{workload.name}` by one worker, after one"
        f" that is not measured. Within each copy they ask for {asking.window_s:g} s and are gone for"
        f" {asking.window_s:g} s, in turn, behind the",
        "first third of the records. All of it shares two cores with both brokers. The first answer",
        "waits until the REST process has started and has looked at the clusters; it stands apart. The slow pace is",
        f"measured {PACED_ROUNDS} times; its producer has a linger.ms of {PACED_LINGER_MS}, Kafka's default. *Timers*",
        "of the clients' process fire so late: so long a process waits for one of the cores, whatever it does.",
        "",
        "| | first answer | p50 | p99 | goal, p99 | answers | timers, p99 | REST process |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in (ASKED, PACED):
        found = [run.measures for run in runs if run.mirror == name and run.measures]
        if not found:
            continue
        first, p50, p99 = (statistics.median(each[key] for each in found) for key in ("first_ms", "p50_ms", "p99_ms"))
        cpu = statistics.median(each["asked_rest_cpu_percent"] for each in found)
        verdict = "held" if p99 < P99_MOST_MS[name] else "**missed**"
        late = statistics.median(each["timer_p99_ms"] for each in found)
        answers = sum(each["answers"] for each in found)
        lines.append(
            f"| {name} | {first:.0f} ms | {p50:.0f} ms | {p99:.0f} ms | {P99_MOST_MS[name]:.0f} ms: {verdict} |"
            f" {answers:.0f} | {late:.0f} ms | {cpu:.1f} % of a core |"
        )
    copies = [run.measures for run in runs if run.mirror == ASKED and run.measures]
    if len(copies) >= 2:
        rate = cost(_pairs(copies, "records_per_s"))
        own = cost(_pairs(copies, "worker_cpu_s_per_million"))
        held = "held in the median" if rate.median > -RATE_LOSS_MOST_PERCENT else "**missed**"
        idle = statistics.median(each["quiet_rest_cpu_percent"] for each in copies)
        lines += [
            "",
            f"Records a second with clients beside without: {rate.median:+.1f} % (95 % of the median:"
            f" {rate.low:+.1f} to {rate.high:+.1f} %, {len(copies)} copies); goal: above -{RATE_LOSS_MOST_PERCENT:g} %,"
            f" {held}. {rate.whole[0]:,.0f} and {rate.whole[1]:,.0f} records a second.",
            "",
            f"CPU of the worker without its REST process, for a million records: {own.median:+.1f} %"
            f" ({own.low:+.1f} to {own.high:+.1f} %); {own.whole[0]:.2f} s and {own.whole[1]:.2f} s. Without clients"
            f" the REST process takes {idle:.1f} % of a core.",
        ]
    heaps = [run.measures for run in runs if "heap_p50_mb" in run.measures]
    if heaps:
        first, middle, last = (
            statistics.median(each[f"heap_{name}_mb"] for each in heaps) for name in ("first", "p50", "last")
        )
        lines += [
            "",
            f"JS heap of a tab, medians of {len(heaps)} runs: {first:.1f} MB in the first second, {middle:.1f} MB in"
            f" the middle, {last:.1f} MB in the last second. The browser took"
            f" {statistics.median(each['browser_cpu_s'] for each in heaps):.1f} s of CPU in a run, of the same cores;"
            " in production it runs elsewhere.",
        ]
    if failed := [run for run in runs if run.failed]:
        lines += ["", *(f"Round {run.round + 1}, {run.mirror}, failed: {run.failed}" for run in failed)]
    return "\n".join([*lines, ""])


def _pairs(copies: Sequence[Mapping[str, float]], measure: str) -> list[tuple[float, float]]:
    return [(each[f"asked_{measure}"], each[f"quiet_{measure}"]) for each in copies]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all copies and print the result. The exit code is 1 if a run failed; a goal may be missed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.rest_load", description="What REST under load costs copying."
    )
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--tabs", type=int, metavar="N", help="the web page in N tabs of a browser as the clients")
    add_arguments(parser, "rest-load, or page-load")
    options = parser.parse_args(arguments)
    asking = PLAIN if options.tabs is None else of_tabs(options.tabs)
    workload = WORKLOADS["uncompressed"].with_records(options.records)

    def measure(source: KafkaCluster, target: KafkaCluster, log: RunLog) -> None:
        asyncio.run(_run_all(Sides(Side(source), Side(target)), workload, options.rounds, asking, log))

    def page(runs: Sequence[Run], facts: Mapping[str, object]) -> str:
        return report(runs, workload, facts, asking)

    shape = {"records": str(workload.records), **({} if options.tabs is None else {"tabs": str(options.tabs)})}
    return carry_out(asking.name, options, measure, page, shape=shape)


if __name__ == "__main__":
    sys.exit(main())
