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
JUMBO_BYTES: Final = 9000
"""The story: to carry packets of 1,500 bytes took most of one of two cores, so the rig limited the results."""
FULL_RATE: Final = "wan-12"
"""The row that shows the full rate of a mirror over the same link."""
CATCH_UP_LATE_PERCENT: Final = 15.0


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
    """The mirror runs near the source, so the target is the far side."""
    beside: Workload | None = None
    """A topic that mm2py catches up with meanwhile; then other mirrors are not measured."""
    arriving_mb_per_s: float = 0.0
    """The rate at which records arrive in the topic meanwhile; then only mm2py is measured, once."""

    @property
    def short(self) -> str:
        """The title without the parts that most links share."""
        return self.title.replace(", 1 Gbit/s", "").replace("100 ms, 12 partitions, while", "while")


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
            "wan-jumbo",
            "100 ms, 1 Gbit/s, packets of 9,000 bytes, 12 partitions",
            Link(round_trip_ms=100, megabits_per_s=GIGABIT, packet_bytes=JUMBO_BYTES),
            UNCOMPRESSED,
            "none",
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
            "wan-uneven",
            "100 ms, 1 Gbit/s, one partition, batches of 4 to 36 KB",
            Link(round_trip_ms=100, megabits_per_s=GIGABIT),
            replace(ONE_PARTITION, topic="uneven", shape=replace(ONE_PARTITION.shape, is_uneven=True)),
            "none",
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
            "the same, while another topic catches up",
            Link(round_trip_ms=100, megabits_per_s=GIGABIT),
            LATENCY,
            "p99 at most twice that of the row before, and a round trip",
            beside=replace(UNCOMPRESSED, topic="backlog").with_records(4_000_000),
        ),
        Row(
            "wan-fair-200",
            "the same over 200 Mbit/s, which leaves both cores idle in part",
            Link(round_trip_ms=100, megabits_per_s=200),
            LATENCY,
            "none",
            beside=replace(UNCOMPRESSED, topic="backlog").with_records(2_000_000),
        ),
        Row(
            "wan-catch-up",
            "100 ms, 1 Gbit/s, 12 partitions, while 20 MB/s arrive",
            Link(round_trip_ms=100, megabits_per_s=GIGABIT),
            replace(UNCOMPRESSED, topic="backlog"),
            "the backlog is gone in the time that the rate of the first row, less what arrives, allows, within 15 %",
            arriving_mb_per_s=20.0,
        ),
        Row("wan-none", "loopback, 12 partitions", None, UNCOMPRESSED, "no slower than before"),
    )
}


def records_of(megabytes: float, workload: Workload) -> int:
    """Return how many records of a workload have this many MB (10^6 bytes)."""
    return round(megabytes * 1e6 / workload.record_bytes)


def sized(row: Row, *, records: int, paced_s: float, backlog_minutes: float = 10.0) -> Row:
    """Return a row with ``records`` in the topic; a paced row is measured for ``paced_s``.

    Args:
        backlog_minutes: how long records have arrived before the mirror starts, in a row where more arrive.
    """
    if row.arriving_mb_per_s:
        records = records_of(row.arriving_mb_per_s * 60 * backlog_minutes, row.workload)
    if row.workload.pace is None:
        return replace(row, workload=replace(row.workload, name=row.name).with_records(records))
    warm = min(records, 10_000)  # a mirror catches up with them first
    pace = replace(row.workload.pace, measured_s=paced_s, settle_s=min(row.workload.pace.settle_s, paced_s))
    return replace(row, workload=replace(row.workload, name=row.name, pace=pace).with_records(warm))


def table(rows: Sequence[Row], runs: Sequence[Run]) -> str:
    """Return the medians of all runs as a table of Markdown, and the reason of each failed run."""
    lines = [
        "| link | mirror | MB/s | times MM2, defaults | p50, p99 (ms) | CPU s per GB | memory (MB) | runs |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        base = median_of([run for run in runs if (run.workload, run.mirror) == (row.name, MM2_1)], "mb_per_s")
        for mirror, title in TITLES.items():
            own = [run for run in runs if (run.workload, run.mirror) == (row.name, mirror)]
            good = [run for run in own if run.measures]
            if not own:
                continue
            rate = median_of(good, "mb_per_s")
            ratio = "" if base is None or rate is None else f"{rate / base:.1f}"
            latency = (
                ", ".join(shown(median_of(good, name)) for name in ("p50_ms", "p99_ms")) if row.workload.pace else ""
            )
            cells = [
                *(f"{row.title} (goal: {row.goal})" if mirror == MM2PY else row.title, title, shown(rate), ratio),
                *(latency, shown(median_of(good, "cpu_s_per_gb_steady")), shown(median_of(good, "peak_mb"))),
                f"{len(good)} of {len(own)}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    notes = _catching_up(rows, runs)
    for run in runs:
        if run.failed:
            notes.append(f"* {run.workload}, {run.mirror}, round {run.round + 1}: {run.failed.splitlines()[0]}")
    if notes:
        lines += ["", *notes]
    return "\n".join(lines) + "\n"


def _catching_up(rows: Sequence[Row], runs: Sequence[Run]) -> list[str]:
    """Return how soon each backlog was gone, and the time that the full rate over the same link allows."""
    full = median_of([run for run in runs if (run.workload, run.mirror) == (FULL_RATE, MM2PY)], "mb_per_s")
    names = {row.name for row in rows if row.arriving_mb_per_s}
    lines = []
    for run in runs:
        if run.workload not in names or "gone_after_s" not in run.measures:
            continue
        backlog, took_s, arrived = (run.measures[key] for key in ("backlog_mb", "gone_after_s", "arrived_mb_per_s"))
        text = f"* {run.workload}: {backlog:,.0f} MB were gone after {took_s:.0f} s while {arrived:.1f} MB/s arrived"
        if full is not None and full > arrived:
            allowed_s = backlog / (full - arrived)
            late = 100 * (took_s / allowed_s - 1)
            verdict = "held" if late <= CATCH_UP_LATE_PERCENT else "**missed**"
            text += f"; {full:.1f} MB/s, as in `{FULL_RATE}`, would take {allowed_s:.0f} s: {late:+.0f} %, {verdict}"
        lines.append(text)
    return lines


def median_of(runs: Sequence[Run], name: str) -> float | None:
    """Return the median of a measure, over the runs that have it."""
    values = [run.measures[name] for run in runs if name in run.measures]
    return median(values) if values else None


def shown(value: float | None) -> str:
    """Return a value with three digits; empty if there is none."""
    return "" if value is None else f"{value:.3g}" if value < 100 else f"{value:,.0f}"
