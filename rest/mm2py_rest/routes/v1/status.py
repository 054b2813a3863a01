"""``/v1/status``, ``/v1/clusters`` and ``/v1/workers``: the whole status, the clusters and the workers."""

from __future__ import annotations

from fastapi import APIRouter, Response

from mm2py.status.bodies import StatusBody
from mm2py.status.exit_codes import exit_of_report
from mm2py_rest.access.roles import READER
from mm2py_rest.errors import RestError
from mm2py_rest.reports.cursors import Page, page_of
from mm2py_rest.reports.flows import ClusterBody, WorkerBody, cluster_bodies, worker_bodies
from mm2py_rest.routes.v1.asking import ERRORS, Paged, answer, example_of
from mm2py_rest.services import Shared

router = APIRouter(dependencies=[READER], prefix="/v1", tags=["v1"], responses=ERRORS)


@router.get("/status", response_model=StatusBody, responses=example_of("/v1/status"))
async def get_status(services: Shared) -> Response:
    """Return what ``mm2py status --json`` prints."""
    view = await services.live.view()
    return await answer(
        services, view, "status", lambda: StatusBody.of(view.report, exit_code=exit_of_report(view.report))
    )


@router.get("/clusters", response_model=Page[ClusterBody], responses=example_of("/v1/clusters"))
async def list_clusters(services: Shared, part: Paged) -> Response:
    """Return the clusters of all flows, and whether they answer."""
    view = await services.live.view()

    def make() -> Page[ClusterBody]:
        return page_of(cluster_bodies(view.report, view.facts), lambda one: (one.cluster,), part)

    return await answer(services, view, ("clusters", part), make)


@router.get("/workers", response_model=Page[WorkerBody], responses=example_of("/v1/workers"))
async def list_workers(services: Shared, part: Paged) -> Response:
    """Return the workers of all groups: who leads, who is gone, what each does."""
    view = await services.live.view()

    def make() -> Page[WorkerBody]:
        found = worker_bodies(view.report)
        unread = [group.unread for group in view.report.groups if group.unread]
        if unread and not found:
            raise RestError(503, unread[0], {"Retry-After": "5"})
        return page_of(found, lambda one: (one.target, one.member.member), part, unread=unread)

    return await answer(services, view, ("workers", part), make)
