"""What ``make bench-wan`` measures: links, topics and mirrors. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from bench.mirrors import MM2_1, MM2_TUNED, MM2PY
from bench.runs import Run
from bench.wan.link import Link
from bench.workloads import LATENCY, ONE_PARTITION, UNCOMPRESSED, Workload

TITLES: Final[Mapping[str, str]] = {
    MM2PY: "mm2py",
    MM2_1: "MM2, defaults",
    MM2_TUNED: "MM2, tuned (12 tasks, 1 MB receive buffers, large fetches)",
}
MIRRORS: Final = tuple(TITLES)
GIGABIT: Final = 1_000.0


@dataclass(frozen=True, slots=True)
class Row:
    """One link, and what is copied over it."""

    name: str
    title: str
    link: Link | None
    """None: no link, both clusters on loopback."""
    workload: Workload
    goal: str
    mirror_at_source: bool = False
    """The mirror runs beside the source, so the target is the far side."""
    beside: Workload | None = None
    """A topic that mm2py catches up with meanwhile; other mirrors are not measured then."""


ROWS: Final = {
    row.name: row
    for row in (
        Row(
            "wan-12",
            "100 ms, 1 Gbit/s, 12 partitions",
            Link(round_trip_ms=100, megabits_per_s=GIGABIT),
            UNCOMPRESSED,
            "40 times MM2 with defaults, 3 times MM2 tuned, 80 MB/s",
        ),
        Row(
            "wan-1",
            "100 ms, 1 Gbit/s, one partition",
            Link(round_trip_ms=100, megabits_per_s=GIGABIT),
            ONE_PARTITION,
            "20 times MM2 with defaults",
        ),
        Row(
            "wan-push",
            "100 ms, 1 Gbit/s, 12 partitions, mirror beside the source",
            Link(round_trip_ms=100, megabits_per_s=GIGABIT),
            UNCOMPRESSED,
            "none",
            mirror_at_source=True,
        ),
        Row(
            "wan-lossy",
            "200 ms, 0.1 % loss, 1 Gbit/s, 12 partitions",
            Link(round_trip_ms=200, megabits_per_s=GIGABIT, loss=0.001),
            UNCOMPRESSED,
            "25 MB/s",
        ),
        Row(
            "wan-paced",
            "100 ms, 1 Gbit/s, 12 partitions, 1,000 records/s",
            Link(round_trip_ms=100, megabits_per_s=GIGABIT),
            LATENCY,
            "p99 at most 1.5 round trips + 20 ms: 170 ms",
        ),
        Row(
            "wan-fair",
            "the same, while another topic catches up at full speed",
            Link(round_trip_ms=100, megabits_per_s=GIGABIT),
            LATENCY,
            "p99 at most twice that of the row before, and a round trip",
            beside=replace(UNCOMPRESSED, topic="backlog").with_records(4_000_000),
        ),
        Row("wan-none", "loopback, 12 partitions", None, UNCOMPRESSED, "no slower than before"),
    )
}


def sized(row: Row, *, records: int, paced_s: float) -> Row:
    """Return a row with so many records in the topic; a paced one is measured for so long."""
    if row.workload.pace is None:
        return replace(row, workload=replace(row.workload, name=row.name).with_records(records))
    warm = min(records, 10_000)  # a mirror catches up with them first
    pace = replace(row.workload.pace, measured_s=paced_s, settle_s=min(row.workload.pace.settle_s, paced_s))
    return replace(row, workload=replace(row.workload, name=row.name, pace=pace).with_records(warm))


def table(rows: Sequence[Row], runs: Sequence[Run]) -> str:
    """Return the medians of all runs as a table of Markdown, and what each failed run said."""
    lines = [
        "| link | mirror | MB/s | times MM2, defaults | p50, p99 (ms) | CPU s per GB | memory (MB) | runs |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        base = _median([run for run in runs if (run.workload, run.mirror) == (row.name, MM2_1)], "mb_per_s")
        for mirror, title in TITLES.items():
            own = [run for run in runs if (run.workload, run.mirror) == (row.name, mirror)]
            good = [run for run in own if run.measures]
            if not own:
                continue
            rate = _median(good, "mb_per_s")
            ratio = "" if base is None or rate is None else f"{rate / base:.1f}"
            latency = (
                ", ".join(_text(_median(good, name)) for name in ("p50_ms", "p99_ms")) if row.workload.pace else ""
            )
            cells = [
                *(f"{row.title} (goal: {row.goal})" if mirror == MM2PY else row.title, title, _text(rate), ratio),
                *(latency, _text(_median(good, "cpu_s_per_gb_steady")), _text(_median(good, "peak_mb"))),
                f"{len(good)} of {len(own)}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    for run in runs:
        if run.failed:
            lines.append(f"* {run.workload}, {run.mirror}, round {run.round + 1}: {run.failed.splitlines()[0]}")
    return "\n".join(lines) + "\n"


def _median(runs: Sequence[Run], name: str) -> float | None:
    values = [run.measures[name] for run in runs if name in run.measures]
    return median(values) if values else None


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if value < 100 else f"{value:,.0f}"
