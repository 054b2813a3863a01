"""``/v1/flows/A->B/groups`` and ``/translate``: what consumers need to continue on the target."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from mm2py.flow import PARTITION_MOST
from mm2py.offsets.run_codec import OFFSET_MOST
from mm2py.status.bodies import GroupsBody, TranslateBody
from mm2py.status.exit_codes import exit_of_groups, exit_of_offsets
from mm2py.status.offset_inquiry import Question
from mm2py_rest.access.roles import READER
from mm2py_rest.reports.cursors import cut
from mm2py_rest.routes.v1.asking import (
    ERRORS,
    FlowPath,
    Paged,
    ask,
    check_reachable,
    example_of,
    json_response,
)
from mm2py_rest.services import Shared

OFFSETS_MOST = 100
router = APIRouter(dependencies=[READER], prefix="/v1/flows/{flow}", tags=["v1"], responses=ERRORS)
Offset = Annotated[int, Query(ge=0, le=OFFSET_MOST)]


class GroupsPage(GroupsBody):
    """What ``mm2py groups --json`` prints, in pages."""

    next: str | None
    """Pass it as ``after`` for the next page; null: this is the last one."""
    total: int
    """How many groups there are."""


@router.get("/groups", response_model=GroupsPage, responses=example_of("/v1/flows/{flow}/groups"))
async def list_groups(services: Shared, flow: FlowPath, part: Paged) -> Response:
    """Return the consumer groups of a flow: how far each is behind, where it would go on, and what forbids that.

    If the source does not answer, ``unread`` says why, and the target alone tells of each group as of its last
    checkpoint.
    """
    asked = await ask(services, flow)
    check_reachable(asked.view, flow.target)
    told = await services.v1.questions[flow].groups(asked.facts.settings)
    found, after = cut(told.reports, lambda one: (one.ready, one.group), part)
    page = GroupsPage(
        exit_code=exit_of_groups(told.reports, told.unread),
        flow=str(flow),
        at_ms=told.at_ms,
        unread=told.unread,
        groups=tuple(found),
        next=after,
        total=len(told.reports),
    )
    return json_response(page)


@router.get("/translate", response_model=TranslateBody, responses=example_of("/v1/flows/{flow}/translate"))
async def translate(
    services: Shared,
    flow: FlowPath,
    topic: Annotated[str, Query(min_length=1, max_length=249, description="as the source names it")],
    partition: Annotated[int, Query(ge=0, le=PARTITION_MOST)],
    offset: Annotated[list[Offset], Query(min_length=1, max_length=OFFSETS_MOST, description="one or more")],
    reverse: Annotated[
        bool, Query(description="the offsets are the target's; topic may be its name there, too")
    ] = False,
) -> Response:
    """Return where offsets are in the other log, and whether that is exact: what ``mm2py translate --json`` prints.

    If the source does not answer, ``unread`` says why, and the target alone answers.
    """
    asked = await ask(services, flow)
    check_reachable(asked.view, flow.target)
    settings = asked.facts.settings
    known = {name for name, _ in asked.facts.positions}
    question = Question((settings.source_topic(topic, is_reverse=reverse, known=known), partition), offset, reverse)
    told = await services.v1.questions[flow].translate(settings, question)
    body = TranslateBody(
        exit_code=exit_of_offsets(told.reports, told.unread),
        flow=str(flow),
        is_reverse=reverse,
        at_ms=told.at_ms,
        unread=told.unread,
        offsets=tuple(told.reports),
    )
    return json_response(body)
