"""What one worker reports about itself: its release, its health, its metrics."""

from __future__ import annotations

from fastapi import APIRouter, Response

from mm2py import __version__
from mm2py.worker.facts import Health
from mm2py_rest.access.roles import ANY_READER, OPEN, READER
from mm2py_rest.metrics.page import CONTENT_TYPE
from mm2py_rest.models import HealthBody, ServerInfo
from mm2py_rest.services import Shared
from mm2py_rest.worker_link import WorkerSilent

router = APIRouter(tags=["worker"])
_CODES = {Health.HEALTHY: 200, Health.STARTING: 503, Health.UNHEALTHY: 500}


@router.get("/", dependencies=[ANY_READER])
async def root(services: Shared, response: Response) -> ServerInfo:
    """Return the release of mm2py, and which cluster its first flow writes to. A browser gets the page instead."""
    response.headers["Vary"] = "Accept"
    return ServerInfo(version=__version__, commit="unknown", kafka_cluster_id=await services.cluster_id() or "")


@router.get("/health", dependencies=[OPEN], responses={500: {"model": HealthBody}, 503: {"model": HealthBody}})
async def health(services: Shared, response: Response) -> HealthBody:
    """Return how this worker is: 200 healthy, 503 starting, 500 unhealthy."""
    try:
        facts = await services.link.facts()
        found, message = facts.health, facts.message
    except WorkerSilent as error:
        found, message = Health.UNHEALTHY, str(error)
    response.status_code = _CODES[found]
    return HealthBody(status=found, message=message)


@router.get("/live", dependencies=[OPEN], responses={503: {"model": HealthBody}})
async def live(services: Shared, response: Response) -> HealthBody:
    """Return whether this worker lives, also while it starts or stops: 200 it answers, 503 it does not."""
    try:
        message = (await services.link.facts()).message
    except WorkerSilent as error:
        response.status_code = 503
        return HealthBody(status="silent", message=str(error))
    return HealthBody(status="alive", message=message)


@router.get("/ready", dependencies=[OPEN], responses={503: {"model": HealthBody}})
async def ready(services: Shared, response: Response) -> HealthBody:
    """Return whether this worker is ready: 503 while it copies nothing because of itself, or does not answer."""
    try:
        facts = await services.link.facts()
        message, unready = facts.message, facts.unready
    except WorkerSilent as error:
        message = unready = str(error)
    if unready:
        response.status_code = 503
    return HealthBody(status="not ready" if unready else "ready", message=unready or message)


@router.get("/metrics", dependencies=[READER], response_class=Response)
async def metrics(services: Shared) -> Response:
    """Return what this worker counts, as Prometheus reads it; all who ask within a second get the same page."""
    return Response(await services.metrics.get(), media_type=CONTENT_TYPE)
