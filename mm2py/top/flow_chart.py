"""The last hour of a flow as ``/v1/flows/A->B/history`` tells it: thirty samples, and the last events. Pure.

What is not as expected is left out: a worker of another version answers, or something else that listens there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mm2py.records.flow_history_record import Series

STEP_S: Final = 120
SAMPLES: Final = 30
QUERY: Final = f"from=1h&step={STEP_S}"
"""Asks for the samples: thirty of two minutes each. Of lags the highest number is told, of rates the mean."""


@dataclass(frozen=True, slots=True)
class ChartEvent:
    """Something that has happened."""

    at_ms: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class FlowChart:
    """The last hour of a flow."""

    lag: Sequence[float | None]
    """Records that waited; None: not known."""
    rate: Sequence[float | None]
    """Records that were copied in a second; None: not known."""
    events: Sequence[ChartEvent]
    """The oldest first."""
    problem: str
    """Why the worker cannot read or write the history now; empty: it can."""


def chart_of(body: bytes) -> FlowChart:
    """Return what the answer says. Raises: ValueError, it is no history."""
    found = json.loads(body)
    series = found.get("series") if isinstance(found, dict) else None
    if not isinstance(series, dict):
        raise ValueError("it is no history of a flow")
    return FlowChart(
        _samples(series, Series.LAG_RECORDS),
        _samples(series, Series.COPIED_RECORDS_PER_S),
        tuple(_events(found.get("events"))),
        str(found.get("problem") or ""),
    )


def _samples(series: Mapping[str, Any], name: Series) -> Sequence[float | None]:
    numbers = series.get(name)
    shown = numbers[-SAMPLES:] if isinstance(numbers, list) else []
    return [float(one) if isinstance(one, int | float) and math.isfinite(one) else None for one in shown]


def _events(events: Any) -> Iterable[ChartEvent]:
    for one in events if isinstance(events, list) else ():
        match one:
            case {"at_ms": int(at_ms), "kind": str(kind), "text": str(text)}:
                yield ChartEvent(at_ms, kind, text)
