"""``/v1/flows/A->B/topics/T/partitions/N/accept`` and ``.../topics/T/replay``: what operators do about missing records.

``v1/losses.py`` lists these records. Connect has nothing like it.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Response
from pydantic import Field

from mm2py.config.settings import FlowSettings
from mm2py.copying.replay import NowhereToReplay, ReplaySelection
from mm2py.flow import PARTITION_MOST, Flow
from mm2py.records.author import REASON_MOST, checked_reason
from mm2py.records.source_offset import OFFSET_MOST
from mm2py_rest.access.roles import OPERATOR
from mm2py_rest.errors import RestError
from mm2py_rest.models import Body, Message
from mm2py_rest.routes.v1.asking import FlowPath, ask
from mm2py_rest.services import Services, Shared
from mm2py_rest.settings.loss_changes import LossChanges, LossOutcome, LossRefused, NothingLost

router = APIRouter(prefix="/v1/flows/{flow}/topics/{topic}", dependencies=[OPERATOR], tags=["flows"])
TopicPath = Annotated[str, Path(description="its name on the source", examples=["orders"], max_length=249)]


class _WithReason(Body):
    reason: str = Field(
        default="",
        max_length=REASON_MOST,
        description="for those who read the audit: one line, no secrets",
        examples=["ticket 4711"],
    )


class AcceptedGap(_WithReason):
    """Which gap is accepted."""

    position: int | None = Field(
        default=None,
        ge=0,
        le=OFFSET_MOST,
        description="of the gap, as in /gaps: if another gap waits now, nothing is accepted; null: any",
        examples=[1200],
    )


class ReplayedRecords(_WithReason):
    """Which records are taken out of quarantine."""

    partition: int | None = Field(
        default=None, ge=0, le=PARTITION_MOST, description="only those of this source partition; null: all"
    )
    offset: int | None = Field(
        default=None, ge=0, le=OFFSET_MOST, description="only the one of this source offset; null: all"
    )
    stop_partitions: bool = Field(
        default=False, description="append although exactly.once.source.support=enabled stops the partitions for it"
    )


RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    404: {"description": "there is no such flow, gap or record"},
    409: {"description": "it was not done; the message says why, and what to do"},
}


@router.post(
    "/partitions/{partition}/accept", responses={202: {"description": "no worker has answered yet"}, **RESPONSES}
)
async def accept_gap(
    services: Shared,
    flow: FlowPath,
    topic: TopicPath,
    partition: Annotated[int, Path(ge=0, le=PARTITION_MOST)],
    response: Response,
    wanted: AcceptedGap | None = None,
) -> Message:
    """Let a partition go on that a gap has stopped, as ``mm2py gaps FILE accept``: what the gap names is not copied."""
    changes, settings = await _changes_of(services, flow)
    wanted = wanted or AcceptedGap()
    checked_reason(wanted.reason)
    found = await _told(changes.accept(settings, topic, partition, wanted.position))
    if not found.is_done:
        response.status_code = 202
    services.live.changed()
    return Message(message=found.text)


@router.post("/replay", responses=RESPONSES)
async def replay(services: Shared, flow: FlowPath, topic: TopicPath, wanted: ReplayedRecords | None = None) -> Message:
    """Append records in quarantine to the end of their remote topic, as ``mm2py replay FILE --append``: 200 at most."""
    changes, settings = await _changes_of(services, flow)
    wanted = wanted or ReplayedRecords()
    checked_reason(wanted.reason)
    selection = ReplaySelection(topic, wanted.partition, wanted.offset)
    found = await _told(changes.replay(settings, selection, stop_partitions=wanted.stop_partitions))
    if not found.is_done:
        raise RestError(409, found.text)
    return Message(message=found.text)


async def _changes_of(services: Services, flow: Flow) -> tuple[LossChanges, FlowSettings]:
    """Return what changes a flow, and the settings with which its workers run it. Raises: as ``ask``."""
    asked = await ask(services, flow)
    return services.loss_changes[flow], asked.facts.settings


async def _told(doing: Awaitable[LossOutcome]) -> LossOutcome:
    try:
        return await doing
    except NothingLost as error:
        raise RestError(404, str(error)) from None
    except (LossRefused, NowhereToReplay) as error:
        raise RestError(409, str(error)) from None
