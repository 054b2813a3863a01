"""``/v1/config`` and ``/v1/flows/A->B/config``: each setting with its default and the origin of its value.

``PUT .../config/validate`` says what a change would come to; ``PATCH /connectors/NAME/config`` makes it.
"""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response

from mm2py.flow import ConnectorName, Kind
from mm2py_rest.access.roles import ADMIN, READER
from mm2py_rest.errors import RestError
from mm2py_rest.models import ConfigMap
from mm2py_rest.reports.setting_changes import PlannedSettingsBody, planned_settings
from mm2py_rest.reports.settings import FlowSettingsBody, WorkerSettingsBody, flow_settings_body, worker_settings_body
from mm2py_rest.routes.v1.asking import ERRORS, FlowPath, answer, ask, example_of, json_response
from mm2py_rest.services import Shared

router = APIRouter(dependencies=[READER], prefix="/v1", tags=["v1"], responses=ERRORS)


@router.get("/config", response_model=WorkerSettingsBody, responses=example_of("/v1/config"))
async def get_worker_config(services: Shared) -> Response:
    """Return the settings of the worker beside this process that belong to no single flow."""
    targets = {target: group.name for target, group in services.configuration.groups.items()}
    found = await asyncio.to_thread(worker_settings_body, services.v1.file, targets, worker=services.v1.worker)
    return json_response(found)


@router.get("/flows/{flow}/config", response_model=FlowSettingsBody, responses=example_of("/v1/flows/{flow}/config"))
async def get_flow_config(services: Shared, flow: FlowPath) -> Response:
    """Return the settings by which the workers run a flow. Secrets are hidden, addresses masked."""
    asked = await ask(services, flow)
    if asked.facts.config_unread and asked.facts.stored is None:
        raise RestError(503, asked.facts.config_unread, {"Retry-After": "5"})
    return await answer(
        services,
        asked.view,
        ("config", flow),
        lambda: flow_settings_body(services.v1.file, flow, asked.facts.stored),
    )


@router.put(
    "/flows/{flow}/config/validate",
    dependencies=[ADMIN],
    response_model=PlannedSettingsBody,
    responses=example_of("/v1/flows/{flow}/config/validate"),
)
async def validate_flow_config(services: Shared, flow: FlowPath, wanted: ConfigMap) -> Response:
    """Return what a change of some settings would come to: from, to, what restarts, what is wrong. It changes nothing.

    A value of null gives a setting its default again.
    """
    asked = await ask(services, flow)
    if asked.facts.config_unread and asked.facts.stored is None:
        raise RestError(503, asked.facts.config_unread, {"Retry-After": "5"})
    changes = services.changes_of(ConnectorName(flow, Kind.SOURCE))
    return json_response(planned_settings(changes, asked.facts.stored, wanted))
