"""``/v1/events``: what happens to flows and workers, as server-sent events."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from mm2py.errors import ConfigError
from mm2py.flow import parse_flow
from mm2py_rest.access.roles import READER, READS
from mm2py_rest.errors import RestError
from mm2py_rest.events.event import CURSOR_MOST, Event, read, read_since
from mm2py_rest.events.feed import STREAMS_MOST, TooManyStreams
from mm2py_rest.routes.v1.asking import ERRORS
from mm2py_rest.services import Shared

SINCE_MOST = 4000
"""Most characters of ``since`` in the URL. An id that names very many partitions must be sent as Last-Event-ID."""
EXAMPLE = """id: 5d0b2c171a
event: settings.changed
data: {"kind":"settings.changed","at_ms":1764000000000,"flow":"A->B","group":null,\
"text":"Version 8 of its settings was stored by bob over REST on worker ops1: topics changed. Reason: for team x.",\
"data":{"version":8,"by":"rest","worker":"ops1:4711","user":"bob","host":"ops1","reason":"for team x",\
"settings":["topics"],"changes":["topics: 'a' -> 'b'"]}}

: alive
id: 5d0b2c171a

"""
router = APIRouter(dependencies=[READER], prefix="/v1", tags=["v1"], responses=ERRORS)


class EventStream(StreamingResponse):
    """Server-sent events."""

    media_type = "text/event-stream"


@router.get(
    "/events",
    response_class=EventStream,
    responses={
        200: {
            "description": "each ``data`` is one event, see x-event; a comment at least every 15 s",
            "x-event": Event.model_json_schema(),
            "content": {"text/event-stream": {"example": EXAMPLE}},
        }
    },
)
async def stream_events(
    services: Shared,
    request: Request,
    flow: Annotated[str | None, Query(description="events of this flow and of none")] = None,
    since: Annotated[
        str | None,
        Query(
            max_length=SINCE_MOST,
            description="a time (2026-11-23T14:00Z, 24h, epoch milliseconds): begin with what is kept of it and later; "
            "or the ``id`` of an event: go on behind it. Last-Event-ID goes before",
        ),
    ] = None,
    last_event_id: Annotated[
        str | None, Header(max_length=CURSOR_MOST, description="the ``id`` of the last event: go on behind it")
    ] = None,
) -> Response:
    """Return a stream of what was changed and asked, gaps, quarantine, and members and leaders of groups.

    Without Last-Event-ID and ``since`` it tells what happens from now on. With one of them it begins earlier, at any
    worker; where this worker cannot tell all events from there on, it says so (``events.missed``). It ends when its
    user may not listen any more. At most 30 streams are served.
    """
    cursor, from_ms = read_since(since, services.clock.wall_ms()) if since else (None, None)
    if last_event_id:  # a client that lost its stream sends the same URL again, with the old since
        cursor = read(last_event_id)
    if flow is not None:
        try:
            flow = str(parse_flow(flow))
        except ConfigError as error:
            raise RestError(400, "flow names no flow: write it as A->B.") from error
    try:
        events = services.v1.events.stream(cursor, flow, READS.still_holds(request), from_ms=from_ms)
    except TooManyStreams as error:
        why = f"This worker serves {STREAMS_MOST} streams already. Close one, or ask another worker."
        raise RestError(503, why, {"Retry-After": "10"}) from error
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return EventStream(events, headers=headers)
