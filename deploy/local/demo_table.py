"""The demo's table: what every topic of every flow does just now, from the status that a worker reports.

Rates are taken over the last few seconds. Answers to nothing in MirrorMaker 2, which shows this through JMX only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table

from mm2py.connector import FlowStatus, TopicStatus
from mm2py.flow import Flow

WIDTH = 100
RATE_WINDOW_S = 3.0

TopicKey = tuple[Flow, str]
Totals = tuple[int, int]


class Rates:
    """Records and bytes per second of each topic, over the last ``RATE_WINDOW_S`` seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, dict[TopicKey, Totals]]] = deque()

    def add(self, statuses: Sequence[FlowStatus], now_s: float) -> None:
        """Take in a status; the one that is just older than the window is the last that is kept."""
        totals = {(flow.flow, topic.topic): (topic.records, topic.bytes) for flow in statuses for topic in flow.topics}
        self._samples.append((now_s, totals))
        while len(self._samples) > 2 and self._samples[1][0] <= now_s - RATE_WINDOW_S:
            self._samples.popleft()

    def of(self, key: TopicKey) -> tuple[float, float]:
        """Return records/s and bytes/s; zero while there is nothing to compare, and after a flow was begun anew."""
        seen = [(at_s, totals[key]) for at_s, totals in self._samples if key in totals]
        if len(seen) < 2:
            return 0.0, 0.0
        (first_s, first), (last_s, last) = seen[0], seen[-1]
        took_s = last_s - first_s
        if took_s <= 0 or last < first:
            return 0.0, 0.0
        return (last[0] - first[0]) / took_s, (last[1] - first[1]) / took_s


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table, as text."""

    flow: str
    topic: str
    records: str
    records_per_s: str
    mb_per_s: str
    lag_records: str
    lag_s: str
    batches: str


def rows_of(statuses: Sequence[FlowStatus], rates: Rates) -> list[Row]:
    """Return a line for each topic; a flow that copies none yet has one that tells its state."""
    rows: list[Row] = []
    for flow in statuses:
        rows += [_row(flow, topic, *rates.of((flow.flow, topic.topic))) for topic in flow.topics]
        if not flow.topics:
            rows.append(Row(str(flow.flow), f"({flow.state})", "", "", "", "", "", ""))
    return rows


def problems_of(statuses: Sequence[FlowStatus]) -> list[str]:
    """Return a sentence for whatever keeps something from being copied."""
    found: list[str] = []
    for flow in statuses:
        if flow.reason:
            found.append(f"{flow.flow}: {flow.reason}")
        found += [f"{flow.flow} {topic.topic}: {problem}" for topic in flow.topics for problem in topic.problems]
        found += flow.refused.values()
    return list(dict.fromkeys(found))


def table_of(rows: Sequence[Row]) -> Table:
    """Return the table, at most ``WIDTH`` columns wide; a flow is named in the first of its lines."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    for heading in ("flow", "topic"):
        table.add_column(heading, no_wrap=True)
    for heading in ("records", "records/s", "MB/s", "lag", "lag s"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("batches", overflow="fold")
    above = ""
    for row in rows:
        if above and row.flow != above:
            table.add_section()
        flow = "" if row.flow == above else row.flow
        above = row.flow
        table.add_row(
            flow,
            row.topic,
            row.records,
            row.records_per_s,
            row.mb_per_s,
            row.lag_records,
            row.lag_s,
            row.batches,
        )
    return table


def _row(flow: FlowStatus, topic: TopicStatus, records_per_s: float, bytes_per_s: float) -> Row:
    return Row(
        flow=str(flow.flow),
        topic=topic.topic,
        records=f"{topic.records:,}",
        records_per_s=f"{records_per_s:,.0f}",
        mb_per_s=f"{bytes_per_s / 1e6:.2f}",
        lag_records="?" if topic.lag_records is None else f"{topic.lag_records:,}",
        lag_s="?" if topic.lag_s is None else f"{topic.lag_s:.1f}",
        batches=batches_text(topic),
    )


def batches_text(topic: TopicStatus) -> str:
    """Return what became of the batches: ``812 passed, 7 rebuilt (offset gaps)``."""
    parts = [f"{topic.passed:,} passed"]
    if topic.rebuilt:
        parts.append(f"{sum(topic.rebuilt.values()):,} rebuilt ({', '.join(sorted(topic.rebuilt))})")
    return ", ".join(parts)
