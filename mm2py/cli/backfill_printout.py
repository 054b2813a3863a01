"""What ``mm2py backfill`` shows: its plan, how far it is, and what was copied."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from mm2py.backfill.pipeline.expressions import Expressions
from mm2py.backfill.plan import MB, BackfillFacts, BackfillPlan
from mm2py.backfill.selection import SettingsSelection
from mm2py.clock import Clock
from mm2py.moments import duration_text
from mm2py.output import TerminalLine
from mm2py.secret import printable
from mm2py.text_table import text_table

SHOWN_MOST: Final = 40
BAR_CHARS: Final = 30
RATE_OVER: Final = 10
"""The rate that is shown is the average over this many looks."""


def selection_lines(flow: str, selection: SettingsSelection) -> list[str]:
    """Return what will be stored for the workers, and the other differences of the file."""
    lines = [f"{flow}: stored for all workers, behind the hold:", *(f"  {change}" for change in selection.added)]
    if selection.left:
        lines += ["  not stored, though the file says it:", *(f"    {change}" for change in selection.left)]
    return [printable(line) for line in lines]


def plan_text(plan: BackfillPlan, flow: str, expressions: Expressions, *, as_json: bool) -> str:
    """Return the plan for people, or as one JSON object."""
    if as_json:
        return json.dumps({**_plan_body(plan, flow), **asdict(expressions)}, indent=2) + "\n"
    lines = [f"Backfill of {flow}: {len(plan.partitions)} partition(s) in {len(plan.tasks)} task(s)", ""]
    head = ("TOPIC", "PARTITION", "FROM", "SEAM", "OFFSETS", "MB")
    lines += text_table(
        head, [_row(one) for one in plan.partitions], (1, 2, 3, 4, 5), most=SHOWN_MOST, shown_by="--json"
    )
    size = (
        "an unknown number of bytes (mm2py may not DESCRIBE the source cluster)"
        if plan.bytes is None
        else f"{plan.bytes / MB:,.0f} MB"
    )
    takes = "" if plan.seconds is None else f", about {duration_text(plan.seconds)}"
    memory = (
        f"{plan.memory_bytes_a_task / (1 << 20):,.0f} MiB for records in each of {plan.tasks_at_once} tasks at once"
    )
    lines += ["", f"{plan.offsets:,} offsets, {size}{takes}; {memory}."]
    if expressions:
        lines.append(f"Not all records are copied as they are: {expressions.text}.")
    if plan.topics_to_create:
        lines.append(f"Topics to create: {', '.join(plan.topics_to_create)}.")
    lines += [f"Warning: {warning}" for warning in plan.warnings]
    return "".join(f"{printable(line)}\n" for line in lines)


def result_text(
    backfill_id: str, flow: str, rows: Sequence[Mapping[str, Any]], kept: Path | None, *, as_json: bool
) -> str:
    """Return what was copied, for people or as one JSON object.

    Args:
        kept: the Parquet file that has the rows; None: they are not kept.
    """
    if as_json:
        body = {"backfill": backfill_id, "parquet": None if kept is None else str(kept), "ranges": rows}
        return json.dumps(body, indent=2) + "\n"
    ends: dict[tuple[str, int], int] = {}
    for row in sorted(rows, key=lambda row: (row["topic"], row["partition"], row["source_next"])):
        ends[row["topic"], row["partition"]] = row["source_next"]
    lines = [f"{topic}-{number}: up to source offset {end:,}" for (topic, number), end in [*ends.items()][:SHOWN_MOST]]
    if len(ends) > SHOWN_MOST:
        lines.append(f"and {len(ends) - SHOWN_MOST} more")
    lines.append(f"Backfill {backfill_id} of {flow} is done: {_sum(rows, 'records')}, {_sum(rows, 'bytes', 'MB', MB)}.")
    if kept is not None:
        lines.append(f"Results: {kept}")
    return "".join(f"{printable(line)}\n" for line in lines)


def _sum(rows: Sequence[Mapping[str, Any]], name: str, unit: str = "records", size: int = 1) -> str:
    """Return the sum of a column; other attempts, whose results are lost, may have copied more."""
    known = [row[name] for row in rows if row[name] is not None]
    return f"{'' if len(known) == len(rows) else 'at least '}{sum(known) / size:,.0f} {unit}"


def _row(one: BackfillFacts) -> tuple[str, ...]:
    size = "?" if one.bytes is None else f"{one.bytes / MB:,.0f}"
    return one.topic, str(one.partition), f"{one.first:,}", f"{one.seam:,}", f"{one.offsets:,}", size


def _plan_body(plan: BackfillPlan, flow: str) -> dict[str, Any]:
    return {
        "format": 1,
        "flow": flow,
        "partitions": [
            {
                "topic": one.topic,
                "partition": one.partition,
                "from": one.first,
                "seam": one.seam,
                "bytes": one.bytes,
                "expires_before": one.expires_before,
            }
            for one in plan.partitions
        ],
        "tasks": [[[*key] for key in task] for task in plan.tasks],
        "tasks_at_once": plan.tasks_at_once,
        "topics_to_create": list(plan.topics_to_create),
        "bytes": plan.bytes,
        "seconds": plan.seconds,
        "memory_bytes_a_task": plan.memory_bytes_a_task,
        "warnings": list(plan.warnings),
    }


class Progress:
    """A bar on a terminal; nothing elsewhere."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._line = TerminalLine()
        self._looks: deque[tuple[float, int]] = deque(maxlen=RATE_OVER)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.keep()

    def show(self, done: int, total: int, *, bytes_an_offset: float | None = None) -> None:
        """Show how many offsets of how many are copied."""
        self._looks.append((self._clock.monotonic(), done))
        if not self._line.is_terminal:
            return
        (first_s, first), (last_s, last) = self._looks[0], self._looks[-1]
        rate = (last - first) / (last_s - first_s) if last_s > first_s else 0.0
        part = 1.0 if total == 0 else done / total
        text = f"[{'#' * round(part * BAR_CHARS):{BAR_CHARS}}] {part:6.1%}  {done:,} of {total:,} offsets"
        if rate:
            speed = "" if bytes_an_offset is None else f", {rate * bytes_an_offset / MB:,.0f} MB/s"
            text += f"  {rate:,.0f}/s{speed}, {duration_text((total - done) / rate)} left"
        self._line.write(text)
