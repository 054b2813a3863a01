"""``/v1/config`` and ``/v1/flows/A->B/config``: each setting with its default and the origin of its value."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response

from mm2py_rest.access.roles import READER
from mm2py_rest.errors import RestError
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
