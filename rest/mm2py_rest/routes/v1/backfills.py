"""``/v1/backfills``: running and ended backfills with Spark."""

from __future__ import annotations

from fastapi import APIRouter, Response

from mm2py.status.backfill_report import BackfillReport, all_backfill_reports
from mm2py_rest.access.roles import ANY_READER, Who
from mm2py_rest.errors import RestError
from mm2py_rest.reports.cursors import Page, page_of
from mm2py_rest.routes.v1.asking import ERRORS, Paged, answer, example_of
from mm2py_rest.services import Shared

router = APIRouter(dependencies=[ANY_READER], prefix="/v1/backfills", tags=["v1"], responses=ERRORS)


@router.get("", response_model=Page[BackfillReport], responses=example_of("/v1/backfills"))
async def list_backfills(services: Shared, who: Who, part: Paged) -> Response:
    """Return the backfills of all flows, by id: those that run, and those that were over within a week."""
    view = await services.live.view()

    def make() -> Page[BackfillReport]:
        seen = [facts for facts in view.facts.flows if who.may_see(facts.settings.flow)]
        found = [
            one
            for facts in seen
            for one in all_backfill_reports(facts.settings.flow, facts.backfills, facts.positions, view.facts.at_ms)
        ]
        unread = [facts.config_unread for facts in seen if facts.config_unread]
        if unread and not found:
            raise RestError(503, unread[0], {"Retry-After": "5"})
        return page_of(sorted(found, key=lambda one: one.id), lambda one: (one.id,), part, unread=unread)

    return await answer(services, view, ("backfills", who.user.flows, part), make)
