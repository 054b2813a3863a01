"""mm2py without all that its verdict takes, to measure what that costs: ``python -m bench.without_verdict FILE``.

It can be switched off only here. This mm2py does not know up to when its partitions are copied, looks at no lag and at
nothing that limits it, and has no flight recorder. Everything else is mm2py's own.
"""

from __future__ import annotations

import asyncio
from typing import Any

from mm2py.cli import main as cli
from mm2py.copying.reading.fetch_lane import FetchLane
from mm2py_connectors.source.connector import SourceConnector
from mm2py_connectors.source.flight_recorder import FlightRecorder
from mm2py_connectors.source.task.lags import Lags
from mm2py_connectors.source.task.safe_times import SafeTimes
from mm2py_connectors.source.task.waits import Waits


def leave_out() -> None:
    """Leave safe times, the movement of lags, bottlenecks and the flight recorder out of this process."""

    async def for_ever(_: Any) -> None:
        await asyncio.Event().wait()

    def nothing(*_: Any, **__: Any) -> None:
        """Learn, note and tell nothing."""

    FetchLane._learn_ends = staticmethod(nothing)  # type: ignore[method-assign]
    SafeTimes.run = for_ever  # type: ignore[assignment,method-assign]
    SourceConnector._say_safe = nothing  # type: ignore[method-assign]
    Waits.look = nothing  # type: ignore[method-assign]
    Lags.run = for_ever  # type: ignore[assignment,method-assign]
    FlightRecorder.run = for_ever  # type: ignore[assignment,method-assign]
    FlightRecorder.show = nothing  # type: ignore[method-assign]


if __name__ == "__main__":
    leave_out()
    cli.main()
