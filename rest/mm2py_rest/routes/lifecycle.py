"""``/connectors/NAME/pause`` and so on: connectors are paused, stopped, resumed and restarted, on all workers.

The request is stored in the configs topic of the flow, which the workers follow; no worker is called.
Source: ConnectorsResource, Apache Kafka, connect/runtime.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from mm2py.flow import ConnectorName
from mm2py.records.author import Author
from mm2py.records.operator_request import RestartConnector, TargetState
from mm2py_rest.access.roles import OPERATOR, READER, Asker
from mm2py_rest.connector_status import restarting, status_of
from mm2py_rest.errors import RestError
from mm2py_rest.models import ConnectorStatus, TaskInfo, TaskState
from mm2py_rest.routes.connectors import NOT_FOUND, config_of, task_ids
from mm2py_rest.services import Services, Shared
from mm2py_rest.settings.check import PACKAGE

router = APIRouter(prefix="/connectors/{name}", tags=["connectors"])


@router.put("/pause", dependencies=[OPERATOR], status_code=202, response_class=Response, responses=NOT_FOUND)
async def pause(services: Shared, name: str, asker: Asker) -> None:
    """Drain a connector on all workers. It stays paused, also after restarts, until it is resumed."""
    await _direct(services, name, TargetState.PAUSED, asker)


@router.put("/resume", dependencies=[OPERATOR], status_code=202, response_class=Response, responses=NOT_FOUND)
async def resume(services: Shared, name: str, asker: Asker) -> None:
    """Let a connector go on that was paused or stopped; it continues behind its last record."""
    await _direct(services, name, TargetState.STARTED, asker)


@router.put("/stop", dependencies=[OPERATOR], status_code=204, responses=NOT_FOUND)
async def stop(services: Shared, name: str, asker: Asker) -> None:
    """Do as ``pause`` does; besides, the offsets of a stopped connector may be altered."""
    await _direct(services, name, TargetState.STOPPED, asker)


async def _direct(services: Services, name: str, state: TargetState, asker: Author) -> None:
    connector = await services.existing_connector(name)
    await services.changes_of(connector).direct(connector.kind, state, asker)
    services.live.changed()


@router.post(
    "/restart",
    dependencies=[OPERATOR],
    status_code=204,
    response_model=None,
    responses={202: {"model": ConnectorStatus}, **NOT_FOUND},
)
async def restart(
    services: Shared,
    name: str,
    asker: Asker,
    include_tasks: Annotated[bool, Query(alias="includeTasks")] = False,
    only_failed: Annotated[bool, Query(alias="onlyFailed")] = False,
) -> Response:
    """Drain a connector and start it again, on all workers; ``onlyFailed``: only where it has failed.

    A connector and its tasks are one here, so both restart in any case. As in Connect, ``includeTasks`` and
    ``onlyFailed`` decide how it is answered: with 202 and what restarts, else with 204.
    """
    connector = await services.existing_connector(name)
    before = status_of(connector, await services.live.view())
    await _restart(services, connector, asker, only_failed=only_failed)
    if not include_tasks and not only_failed:
        return Response(status_code=204)
    answer = restarting(before, include_tasks=include_tasks, only_failed=only_failed)
    return JSONResponse(answer.model_dump(exclude_none=True), 202)


@router.get("/tasks", dependencies=[READER], responses=NOT_FOUND)
async def get_tasks(services: Shared, name: str) -> list[TaskInfo]:
    """Return the tasks of a connector. All have its settings; the group decides which partitions each copies."""
    connector = await services.existing_connector(name)
    view = await services.live.view()
    config = {**config_of(view, connector), "task.class": f"{PACKAGE}.{connector.kind.removesuffix('Connector')}Task"}
    return [TaskInfo(id=task, config=config) for task in task_ids(view, connector)]


@router.get("/tasks/{task}/status", dependencies=[READER], response_model_exclude_none=True, responses=NOT_FOUND)
async def get_task_status(services: Shared, name: str, task: int) -> TaskState:
    """Return the state of one task, and which worker runs it."""
    connector = await services.existing_connector(name)
    found = _task(status_of(connector, await services.live.view()), task)
    if found is None:
        raise RestError(404, f"No status found for task {connector}-{task}")
    return found


@router.post("/tasks/{task}/restart", dependencies=[OPERATOR], status_code=204, responses=NOT_FOUND)
async def restart_task(services: Shared, name: str, task: int, asker: Asker) -> None:
    """Restart the connector, on all workers: a task is what one worker copies of it at the moment."""
    connector = await services.existing_connector(name)
    if _task(status_of(connector, await services.live.view()), task) is None:
        raise RestError(404, f"Unknown task: {connector}-{task}")
    await _restart(services, connector, asker, only_failed=False)


def _task(found: ConnectorStatus, number: int) -> TaskState | None:
    return next((task for task in found.tasks if task.id == number), None)


async def _restart(services: Services, connector: ConnectorName, asker: Author, *, only_failed: bool) -> None:
    await services.changes_of(connector).restart(RestartConnector(connector.kind, only_failed), asker)
    services.live.changed()
