"""The picture of ``make bench-wan``: the rate of each mirror over each link, and the latency of records. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from bench.chart import Bar, Panel, picture
from bench.mirrors import MM2_1, MM2_TUNED, MM2PY
from bench.runs import Run
from bench.wan.rows import Row, median_of, shown

COLOURS: Final[Mapping[str, str]] = {"mm2py": "#1f6feb", "MM2, defaults": "#c2571a", "MM2, tuned": "#d4a72c"}
SERIES: Final[Mapping[str, str]] = {"mm2py": MM2PY, "MM2, defaults": MM2_1, "MM2, tuned": MM2_TUNED}


def chart(rows: Sequence[Row], runs: Sequence[Run], caption: str) -> str:
    """Return the medians of all rows as bars."""
    copies = [row for row in rows if row.workload.pace is None and row.link is not None]
    paced = [row for row in rows if row.workload.pace is not None]
    panels = [
        _panel("MB/s, first to last record (more is better)", copies, runs, "mb_per_s"),
        _panel("Latency in ms, p99 (less is better)", paced, runs, "p99_ms"),
    ]
    return picture([panel for panel in panels if panel.groups], caption, COLOURS)


def _panel(title: str, rows: Sequence[Row], runs: Sequence[Run], measure: str) -> Panel:
    groups = []
    for row in rows:
        bars = []
        for series, mirror in SERIES.items():
            value = median_of([run for run in runs if (run.workload, run.mirror) == (row.name, mirror)], measure)
            if value is not None:
                bars.append(Bar(series, value, shown(value)))
        if bars:
            groups.append((row.short, bars))
    return Panel(title, groups)
