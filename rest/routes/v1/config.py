"""``/v1/config`` and ``/v1/flows/A->B/config``: each setting with its default and where its value comes from."""

from __future__ import annotations

from fastapi import APIRouter, Response

from rest.access.roles import READER
from rest.errors import RestError
from rest.reports.settings import FlowSettingsBody, WorkerSettingsBody, flow_settings_body, worker_settings_body
from rest.routes.v1.asking import ERRORS, FlowPath, answer, ask
from rest.services import Shared

router = APIRouter(dependencies=[READER], prefix="/v1", tags=["v1"], responses=ERRORS)


@router.get("/config", response_model=WorkerSettingsBody)
async def get_worker_config(services: Shared) -> Response:
    """Return the settings of the worker beside this process that belong to no single flow."""
    view = await services.live.view()
    targets = {target: group.name for target, group in services.configuration.groups.items()}
    worker = None if services.v1.own is None else await services.v1.own.get()
    name = "" if worker is None else worker.facts.worker
    return await answer(services, view, "config", lambda: worker_settings_body(services.v1.file, targets, worker=name))


@router.get("/flows/{flow}/config", response_model=FlowSettingsBody)
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
