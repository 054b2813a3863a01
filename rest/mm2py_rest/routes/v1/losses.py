"""``/v1/flows/A->B/gaps`` and ``/quarantine``: records that are not in the copy."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from mm2py.status.bodies import GapBody
from mm2py_rest.access.roles import READER
from mm2py_rest.errors import RestError
from mm2py_rest.reports.cursors import Page, page_of
from mm2py_rest.reports.quarantine import QuarantinedRecord, key_of
from mm2py_rest.routes.v1.asking import (
    ERRORS,
    FlowPath,
    Paged,
    answer,
    ask,
    check_reachable,
    example_of,
    json_response,
)
from mm2py_rest.services import Shared

router = APIRouter(dependencies=[READER], prefix="/v1/flows/{flow}", tags=["v1"], responses=ERRORS)


def _order(gap: GapBody) -> tuple[str | int, ...]:
    return gap.topic, gap.partition, gap.at_ms, gap.kind, gap.position


@router.get("/gaps", response_model=Page[GapBody], responses=example_of("/v1/flows/{flow}/gaps"))
async def list_gaps(
    services: Shared,
    flow: FlowPath,
    part: Paged,
    all_of_them: Annotated[bool, Query(alias="all", description="also gaps that need no operator")] = False,
) -> Response:
    """Return the gaps of a flow as ``mm2py gaps --json`` prints them, by topic, partition and time."""
    asked = await ask(services, flow)

    def make() -> Page[GapBody]:
        found = [GapBody.of(flow, gap) for gap in asked.facts.gaps if gap.is_open or all_of_them]
        if asked.facts.status_unread and not found:
            raise RestError(503, asked.facts.status_unread, {"Retry-After": "5"})
        return page_of(sorted(found, key=_order), _order, part, unread=[asked.facts.status_unread])

    return await answer(services, asked.view, ("gaps", flow, all_of_them, part), make)


@router.get("/quarantine", response_model=Page[QuarantinedRecord], responses=example_of("/v1/flows/{flow}/quarantine"))
async def list_quarantined(services: Shared, flow: FlowPath, part: Paged) -> Response:
    """Return the records that the target refused and that were put in quarantine; keys and values are not shown."""
    check_reachable(await services.live.view(), flow.target)
    found = await services.v1.questions[flow].quarantined()
    return json_response(page_of(found, key_of, part))
