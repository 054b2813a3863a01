"""``/v1/flows/A->B/history``: lag, rates, safe time and events of the last day, for charts."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from mm2py.errors import Mm2Error
from mm2py.flow_history.rings import DAY_MS, HOUR_MS, MORE
from mm2py.moments import MOMENTS, moment_ms
from mm2py.records.flow_history_record import FINE_S, MINUTE_S, HistoryEvent, Series
from mm2py.status.bodies import JsonBody
from mm2py_rest.access.roles import READER, Who
from mm2py_rest.errors import RestError
from mm2py_rest.events.event import EventKind
from mm2py_rest.routes.v1.asking import ERRORS, FlowPath, example_of, json_response
from mm2py_rest.services import Shared

router = APIRouter(dependencies=[READER], prefix="/v1/flows/{flow}", tags=["v1"], responses=ERRORS)


_OF_GROUPS = frozenset(
    {EventKind.MEMBER_JOINED, EventKind.MEMBER_LEFT, EventKind.MEMBER_EVICTED, EventKind.LEADER_ELECTED}
)
"""These name members that may have nothing to do with the flow: who may not see all workers is not told of them."""


class HistoryGapBody(JsonBody):
    """A stretch without any point: no coordinator of the flow ran, or it could not write."""

    from_ms: int
    """Where it begins."""
    to_ms: int
    """Where it ends."""


class HistoryEventBody(JsonBody):
    """Something that has happened to the flow or to its group."""

    at_ms: int
    """When, by the clock of the machine that wrote it."""
    kind: str = Field(examples=["member.evicted"])
    """As in ``/v1/events``, or ``not-copied``, or ``more``: further events of a kind, of which only the number is."""
    text: str
    """The same in a sentence."""


class FlowHistoryBody(JsonBody):
    """A part of the history of a flow. Times are by the clocks of its coordinators."""

    flow: str = Field(examples=["A->B"])
    """Source and target."""
    from_ms: int
    """The first time of the grid."""
    to_ms: int
    """Where the last step of the grid ends."""
    step_s: int
    """How far the times of the grid are apart."""
    times_ms: tuple[int, ...]
    """An even grid: one time a step, also where nothing is known."""
    series: Mapping[Series, tuple[float | None, ...]]
    """Each as long as ``times_ms``; null: not known."""
    gaps: tuple[HistoryGapBody, ...]
    """Where nothing was written. All series are null there."""
    events: tuple[HistoryEventBody, ...]
    """Of the same stretch, the oldest first."""
    newest_ms: int | None
    """The time of the newest point; null: there is none."""
    problem: str
    """Why this worker cannot read or write the history now; empty: it can."""


@router.get("/history", response_model=FlowHistoryBody, responses=example_of("/v1/flows/{flow}/history"))
async def show_history(
    services: Shared,
    who: Who,
    flow: FlowPath,
    from_: Annotated[str, Query(alias="from", max_length=40, description=f"a time: {MOMENTS}; at most 24h")] = "1h",
    to: Annotated[str | None, Query(max_length=40, description="a time; without it, now")] = None,
    step: Annotated[int | None, Query(ge=1, le=86_400, description="in seconds: 10, or a multiple of 60")] = None,
) -> Response:
    """Return the history of a flow on an even grid: one point in ten seconds of the last hour, one a minute before.

    Of a longer step, lags and ages are the highest, rates the mean. The flow's coordinator writes it, and any worker
    tells it.
    """
    now_ms = services.clock.wall_ms()
    from_ms, to_ms = moment_ms(from_, now_ms), now_ms if to is None else moment_ms(to, now_ms)
    if from_ms is None or to_ms is None:
        raise RestError(400, f"from or to is no time. Write {MOMENTS}.")
    if from_ms > to_ms:
        raise RestError(400, "from is later than to.")
    if step is not None and step != FINE_S and step % MINUTE_S:
        raise RestError(400, f"step is {FINE_S}, or a multiple of {MINUTE_S}, in seconds.")
    from_ms = max(from_ms, now_ms - DAY_MS)
    is_recent = from_ms >= now_ms - HOUR_MS
    step_s = step or FINE_S
    if not is_recent:
        step_s = max(step_s, MINUTE_S)
    log = services.v1.histories[flow]
    with suppress(Mm2Error):  # then what was read before is told, and ``problem`` says why
        await log.read()
    chart = log.history.chart(from_ms, to_ms, step_s, now_ms)
    times = tuple(chart.times_ms)
    return json_response(
        FlowHistoryBody(
            flow=str(flow),
            from_ms=times[0] if times else from_ms,
            to_ms=times[-1] + step_s * 1000 if times else to_ms,
            step_s=step_s,
            times_ms=times,
            series={name: tuple(numbers) for name, numbers in chart.series.items()},
            gaps=tuple(HistoryGapBody(from_ms=one.from_ms, to_ms=one.to_ms) for one in chart.gaps),
            events=tuple(
                HistoryEventBody(at_ms=one.at_ms, kind=one.kind, text=one.text)
                for one in chart.events
                if who.sees_all or not _is_of_group(one)
            ),
            newest_ms=log.history.newest_ms,
            problem=log.problem,
        )
    )


def _is_of_group(event: HistoryEvent) -> bool:
    if event.kind == MORE:
        return any(f" more: {kind}, " in event.text for kind in _OF_GROUPS)
    return event.kind in _OF_GROUPS
