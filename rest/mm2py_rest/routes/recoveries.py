"""``POST /v1/flows/A->B/dr/VERB``: plans a verb of a recovery, or carries it out. ``v1/dr.py`` tells how it goes.

Connect has nothing like it. There is a route for each row of ``mm2py/dr/calls/verbs.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Response
from pydantic import Field, create_model

from mm2py.dr.calls.verbs import VERBS, VerbRow
from mm2py.errors import ConfigError, Mm2Error
from mm2py.flow_sides import ClusterFailed
from mm2py.kafka.errors import KafkaError
from mm2py.records.author import REASON_MOST, Author, checked_reason
from mm2py_rest.access.roles import RECOVERER, Asker
from mm2py_rest.errors import RestError
from mm2py_rest.models import Body
from mm2py_rest.recovery.bodies import RecoveryCalledBody, RecoveryJobBody, RecoveryPlanBody
from mm2py_rest.recovery.jobs import BegunRecovery
from mm2py_rest.routes.v1.asking import ERRORS, FlowPath, example_of, json_response
from mm2py_rest.services import Services, Shared

router = APIRouter(dependencies=[RECOVERER], prefix="/v1/flows/{flow}/dr", tags=["v1"])


class RecoveryCallBody(Body):
    """How a verb is called: first with ``plan``, then with what the plan's ``hash`` was as ``confirm``."""

    plan: bool = Field(default=False, description="only return what would be done")
    confirm: str = Field(
        default="", max_length=64, description="the hash of the plan that is carried out", examples=["0f3a9c1d2e4b5a67"]
    )
    reason: str = Field(
        default="",
        max_length=REASON_MOST,
        description="for those who read the journal and the audit: one line, no secrets",
        examples=["ticket 4711"],
    )


def _add(row: VerbRow) -> None:
    called: Any = create_model(
        f"{row.name.title()}CallBody",
        __base__=RecoveryCallBody,
        options=(row.options, Field(default_factory=row.options, description="as the command's, by the same names")),
    )

    async def call(services: Shared, flow: FlowPath, asker: Asker, wanted: Any) -> Response:
        return await _called(services, row, flow, asker, wanted)

    call.__annotations__["wanted"] = called
    call.__doc__ = f"{row.text}\n\nWith `plan` it only says what would be done; else it needs `confirm`."
    router.post(
        f"/{row.name}",
        name=f"recovery_{row.name}",
        response_model=RecoveryCalledBody,
        responses={
            **ERRORS,
            **example_of("/v1/flows/{flow}/dr/verb"),
            202: {"description": "it was begun; GET the path without the verb tells how it goes"},
        },
    )(call)


async def _called(services: Services, row: VerbRow, flow: Any, asker: Author, wanted: Any) -> Response:
    author = asker if asker.reason else replace(asker, reason=checked_reason(wanted.reason))
    jobs, options = services.v1.recoveries, wanted.options
    if wanted.plan == bool(wanted.confirm):
        raise RestError(400, "Send either plan: true, or confirm with the hash of the plan to carry out.")
    if why := jobs.why_not(flow):
        raise RestError(409, why)
    try:
        if wanted.plan:
            found = BegunRecovery(await jobs.plan(row, flow, options, author), None)
        else:
            found = await jobs.begin(row, flow, options, author, wanted.confirm)
    except TimeoutError:
        raise RestError(503, "The clusters take too long to answer.", {"Retry-After": "5"}) from None
    except (ClusterFailed, KafkaError) as error:
        raise RestError(503, str(error), {"Retry-After": "5"}) from None
    except ConfigError as error:
        raise RestError(400, str(error)) from None
    except Mm2Error as error:
        raise RestError(409, str(error)) from None
    plan = RecoveryPlanBody.of(row, flow, options, found.plan)
    if not wanted.plan and found.plan.code:
        raise RestError(409, f"It is refused, and nothing was changed. {plan.why_not}".strip())
    body = RecoveryCalledBody(plan=plan, job=None if found.job is None else RecoveryJobBody.of(found.job))
    response = json_response(body)
    response.status_code = 200 if found.job is None else 202
    return response


for _row in VERBS.values():
    _add(_row)
