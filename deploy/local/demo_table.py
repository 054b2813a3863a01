"""The demo's table: the present state of every topic of every flow, from the status that a worker reports.

Rates are taken over the last few seconds; in the last frame, over the whole run. MirrorMaker 2 shows such numbers only
through JMX.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mm2py.connector import FlowStatus, TopicStatus
from mm2py.flow import Flow

WIDTH: Final = 100
RATE_WINDOW_S: Final = 3.0
PLAIN_EVERY_S: Final = 5.0

TopicKey = tuple[Flow, str]
Sample = tuple[float, int, int]
"""The time in seconds, and the records and bytes until then."""


class Rates:
    """Records and bytes per second of each topic."""

    def __init__(self) -> None:
        self._first: dict[TopicKey, Sample] = {}
        self._recent: deque[dict[TopicKey, Sample]] = deque()

    def add(self, statuses: Sequence[FlowStatus], now_s: float) -> None:
        """Add a status. Kept are the statuses in the window, the last one before it, and each topic's first sample."""
        samples = {
            (flow.flow, topic.topic): (now_s, topic.records, topic.bytes) for flow in statuses for topic in flow.topics
        }
        self._first = {key: self._first.get(key, sample) for key, sample in samples.items()}
        self._recent.append(samples)
        while len(self._recent) > 2 and all(at_s <= now_s - RATE_WINDOW_S for at_s, *_ in self._recent[1].values()):
            self._recent.popleft()

    def recent(self, key: TopicKey) -> tuple[float, float]:
        """Return records/s and bytes/s over the last seconds."""
        seen = [samples[key] for samples in self._recent if key in samples]
        return _rates(seen[0], seen[-1]) if seen else (0.0, 0.0)

    def average(self, key: TopicKey) -> tuple[float, float]:
        """Return records/s and bytes/s since the topic was first seen."""
        return _rates(self._first[key], self._recent[-1][key]) if key in self._first else (0.0, 0.0)


def _rates(first: Sample, last: Sample) -> tuple[float, float]:
    """Return the two rates between two samples: zero if no time has passed, or if a flow was restarted."""
    (first_s, records, size), (last_s, last_records, last_size) = first, last
    if last_s <= first_s or last_records < records:
        return 0.0, 0.0
    return (last_records - records) / (last_s - first_s), (last_size - size) / (last_s - first_s)


Row = tuple[str, str, str, str, str, str, str, str, str]
"""One line of the table, a text for each of ``HEADINGS``."""
HEADINGS: Final = ("flow", "topic", "records", "records/s", "MB/s", "lag", "lag s", "batches\npassed", "rebuilt")
NUMBERS: Final = frozenset(HEADINGS[2:-1])


def rows_of(
    statuses: Sequence[FlowStatus], rates_of: Callable[[TopicKey], tuple[float, float]] = lambda _: (0.0, 0.0)
) -> list[Row]:
    """Return a line for each topic; a flow that copies none yet has one with its state."""
    rows: list[Row] = []
    for flow in statuses:
        rows += [_row(flow, topic, *rates_of((flow.flow, topic.topic))) for topic in flow.topics]
        if not flow.topics:
            rows.append((str(flow.flow), f"({flow.state})", "", "", "", "", "", "", ""))
    return rows


def problems_of(statuses: Sequence[FlowStatus]) -> list[str]:
    """Return a sentence for each problem that prevents copying; topics with the same problem share one."""
    found: list[str] = []
    for flow in statuses:
        topics: dict[str, list[str]] = {}
        for topic in flow.topics:
            for problem in topic.problems:
                topics.setdefault(problem, []).append(topic.topic)
        if flow.reason:
            found.append(f"{flow.flow}: {flow.reason}")
        found += [f"{flow.flow} {', '.join(names)}: {problem}" for problem, names in topics.items()]
        found += flow.refused.values()
    return found


def paths_of(statuses: Sequence[FlowStatus]) -> str:
    """Return one line with the last heartbeat of each flow; empty while none has come."""
    found = []
    for flow in statuses:
        if flow.heartbeat_age_s is not None:
            took = "" if flow.path_latency_ms is None else f", took {flow.path_latency_ms:,.0f} ms"
            found.append(f"{flow.flow} {max(0.0, flow.heartbeat_age_s):.1f} s ago{took}")
    return f"last heartbeats: {'   '.join(found)}" if found else ""


def table_of(rows: Sequence[Row]) -> Table:
    """Return the table, at most ``WIDTH`` columns wide; a flow is named in the first of its lines."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    for heading in HEADINGS:
        number = heading in NUMBERS
        # texts that do not fit are wrapped in the last column; numbers never are
        table.add_column(heading, justify="right" if number else "left", no_wrap=heading != HEADINGS[-1])
    above = ""
    for flow, *rest in rows:
        if above and flow != above:
            table.add_section()
        table.add_row("" if flow == above else flow, *rest)
        above = flow
    return table


def _row(flow: FlowStatus, topic: TopicStatus, records_per_s: float, bytes_per_s: float) -> Row:
    return (
        str(flow.flow),
        topic.topic,
        f"{topic.records:,}",
        f"{records_per_s:,.0f}",
        f"{bytes_per_s / 1e6:.2f}",
        "?" if topic.lag_records is None else f"{topic.lag_records:,}",
        "?" if topic.lag_s is None else f"{topic.lag_s:.1f}",
        f"{topic.passed:,}",
        ", ".join(f"{batches:,} {reason}" for reason, batches in sorted(topic.rebuilt.items())) or "0",
    )


class Screen:
    """Where the table is shown: in place on a terminal, else printed every few seconds."""

    def __init__(self, console: Console, facts: Sequence[str]) -> None:
        """``facts`` are the lines above the table that do not change."""
        self._console = console
        self._facts = facts
        self._rates = Rates()
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._printed_at_s = time.monotonic()

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, statuses: Sequence[FlowStatus], heading: str, *, last: bool = False) -> None:
        """Show a status; ``last`` stays on the screen, with the averages of the whole run."""
        now_s = time.monotonic()
        self._rates.add(statuses, now_s)
        frame: list[RenderableType] = [Text(heading, style="bold")]
        frame += [Text(fact, style="dim") for fact in self._facts]
        frame.append(table_of(rows_of(statuses, self._rates.average if last else self._rates.recent)))
        if paths := paths_of(statuses):
            frame.append(Text(paths, style="dim"))
        frame += [Text(problem, style="red") for problem in problems_of(statuses)]
        if self._live is not None:
            if not last:
                frame.append(Text("Ctrl-C stops everything and leaves nothing behind.", style="dim"))
            self._live.update(Group(*frame), refresh=True)
        elif last or now_s - self._printed_at_s >= PLAIN_EVERY_S:
            self._printed_at_s = now_s
            self._console.print(Group(*frame))
