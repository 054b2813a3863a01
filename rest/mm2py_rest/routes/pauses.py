"""``/v1/flows/A->B/topics/TOPIC/pause`` and ``/resume``, of one topic or one of its partitions.

Connect has nothing like it: it pauses whole connectors only (``lifecycle.py``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Path, Response
from pydantic import Field

from mm2py.flow import PARTITION_MOST, Flow, Kind
from mm2py.records.author import REASON_MOST, Author, checked_reason
from mm2py.records.pause_record import PausedAsAWhole, PausedPart
from mm2py.status.pausable import why_not_pausable
from mm2py_rest.access.roles import OPERATOR, Asker
from mm2py_rest.errors import RestError
from mm2py_rest.models import Body
from mm2py_rest.routes.v1.asking import FlowPath, ask
from mm2py_rest.services import Services, Shared

router = APIRouter(prefix="/v1/flows/{flow}/topics/{topic}", tags=["flows"])


class PauseReason(Body):
    """Why something is paused or resumed. ``?reason=`` says the same, as with other changes."""

    reason: str = Field(
        default="",
        max_length=REASON_MOST,
        description="for those who read the status and the history: one line, no secrets",
        examples=["ticket 4711"],
    )


async def _asker(asker: Asker, body: PauseReason | None = None) -> Author:
    """Return who asks, with the reason of the query, else with that of the body."""
    return asker if asker.reason or body is None else replace(asker, reason=checked_reason(body.reason))


PauseAsker = Annotated[Author, Depends(_asker)]
TopicPath = Annotated[str, Path(description="its name on the source", examples=["orders"], max_length=249)]
PartitionPath = Annotated[int, Path(ge=0, le=PARTITION_MOST)]
RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    404: {"description": "there is no such flow, topic or partition"},
    409: {"description": "its whole topic is paused, so a partition cannot be resumed alone; or the flow is refused"},
}


@router.put("/pause", dependencies=[OPERATOR], status_code=202, response_class=Response, responses=RESPONSES)
async def pause_topic(services: Shared, flow: FlowPath, topic: TopicPath, asker: PauseAsker) -> None:
    """Stop reading a topic, with all its partitions and those that are added later, until it is resumed."""
    await _pause(services, flow, (topic, None), asker)


@router.put("/resume", dependencies=[OPERATOR], status_code=202, response_class=Response, responses=RESPONSES)
async def resume_topic(services: Shared, flow: FlowPath, topic: TopicPath, asker: PauseAsker) -> None:
    """Let a topic go on behind its last record, with those of its partitions that are paused alone."""
    await _resume(services, flow, (topic, None), asker)


@router.put(
    "/partitions/{partition}/pause",
    dependencies=[OPERATOR],
    status_code=202,
    response_class=Response,
    responses=RESPONSES,
)
async def pause_partition(
    services: Shared, flow: FlowPath, topic: TopicPath, partition: PartitionPath, asker: PauseAsker
) -> None:
    """Stop reading one partition until it, or its topic, is resumed."""
    await _pause(services, flow, (topic, partition), asker)


@router.put(
    "/partitions/{partition}/resume",
    dependencies=[OPERATOR],
    status_code=202,
    response_class=Response,
    responses=RESPONSES,
)
async def resume_partition(
    services: Shared, flow: FlowPath, topic: TopicPath, partition: PartitionPath, asker: PauseAsker
) -> None:
    """Let one partition go on behind its last record."""
    await _resume(services, flow, (topic, partition), asker)


async def _pause(services: Services, flow: Flow, part: PausedPart, asker: Author) -> None:
    connector = await services.existing_connector(f"{flow}.{Kind.SOURCE}")
    asked = await ask(services, flow)
    if why := why_not_pausable(asked.facts, asked.report, part):
        raise RestError(404, why)
    await services.changes_of(connector).pause([part], asker)
    services.live.changed()


async def _resume(services: Services, flow: Flow, part: PausedPart, asker: Author) -> None:
    connector = await services.existing_connector(f"{flow}.{Kind.SOURCE}")
    try:
        ended = await services.changes_of(connector).resume([part], asker)
    except PausedAsAWhole as error:
        raise RestError(409, str(error)) from None
    if ended:
        services.live.changed()
        return
    asked = await ask(services, flow)
    if why := why_not_pausable(asked.facts, asked.report, part):
        raise RestError(404, why)
