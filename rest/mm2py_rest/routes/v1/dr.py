"""``/v1/flows/A->B/dr``: how recoveries stand, and whether the flow is ready for a cutover and a failover."""

from __future__ import annotations

from fastapi import APIRouter, Response

from mm2py.dr.body import RecoveryCheckBody
from mm2py.dr.journal import JournalEntry
from mm2py.errors import Mm2Error
from mm2py_rest.access.roles import READER
from mm2py_rest.recovery.bodies import RecoveriesBody
from mm2py_rest.routes.v1.asking import ERRORS, FlowPath, ask, example_of, json_response
from mm2py_rest.services import Shared

router = APIRouter(dependencies=[READER], prefix="/v1/flows/{flow}/dr", tags=["v1"], responses=ERRORS)


@router.get("", response_model=RecoveriesBody, responses=example_of("/v1/flows/{flow}/dr"))
async def get_recoveries(services: Shared, flow: FlowPath) -> Response:
    """Return how far the last recovery has come, what this worker carries out now, and the last runs step by step."""
    jobs = services.v1.recoveries
    entries: tuple[JournalEntry, ...] = ()
    problem = ""
    try:
        entries = await services.v1.questions[flow].journal()
    except Mm2Error as error:
        problem = str(error)
    why_not, hooks = jobs.why_not(flow), [*jobs.hooks]
    return json_response(RecoveriesBody.of(flow, entries, problem, why_not, hooks, jobs.of(flow)))


@router.get("/check", response_model=RecoveryCheckBody, responses=example_of("/v1/flows/{flow}/dr/check"))
async def check_readiness(services: Shared, flow: FlowPath) -> Response:
    """Return whether the flow is ready for a cutover and a failover, what would be lost, and what stands in the way.

    It is what ``mm2py dr check --json`` prints. The clusters are asked much, so it takes some seconds; callers who ask
    meanwhile, and for some seconds after it, get the same answer.
    """
    asked = await ask(services, flow)
    clusters = asked.view.report.clusters
    found = await services.v1.questions[flow].readiness(services.v1.file, asked.facts.settings, asked.report, clusters)
    return json_response(RecoveryCheckBody.of(found))
