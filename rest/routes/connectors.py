"""``/connectors``: the connectors of every flow, as Kafka Connect's clients see and change them.

Any worker's REST process answers for all workers, from what stands on the target.
Source: ConnectorsResource, Apache Kafka, connect/runtime.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Query, Response

from mm2py.connector import ConnectorName
from rest.access.roles import ADMIN, ANY_READER, READER, Who
from rest.changes import Conflict, FlowChanges, Invalid, checked, connector_properties
from rest.connector_status import status_of
from rest.errors import RestError
from rest.models import ConnectorChanged, ConnectorInfo, ConnectorStatus, TaskId
from rest.services import Services, Shared

router = APIRouter(prefix="/connectors", tags=["connectors"])
Config = Annotated[dict[str, str | None], Body()]
IfMatch = Annotated[str | None, Header(description='the version that the change is made for, as in "7"')]


@router.get("", dependencies=[ANY_READER])
async def list_connectors(services: Shared, who: Who, expand: Annotated[list[str] | None, Query()] = None) -> Any:
    """Return the names of all connectors; with ``expand=status`` or ``expand=info``, more of each."""
    names = [name for name in services.connectors() if who.may_see(name.flow)]
    if not expand:
        return [str(name) for name in names]
    return {str(name): await _expanded(services, name, expand) for name in names}


async def _expanded(services: Services, name: ConnectorName, expand: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "status" in expand:
        found["status"] = await _status(services, name)
    if "info" in expand:
        found["info"] = await _info(services, name)
    return found


@router.get("/{name}", dependencies=[READER])
async def get_connector(services: Shared, name: str, response: Response) -> ConnectorInfo:
    """Return a connector, its tasks and the stored settings of its flow."""
    connector = services.connector(name)
    await _etag(services, connector, response)
    return await _info(services, connector)


@router.get("/{name}/status", dependencies=[READER], response_model_exclude_none=True)
async def get_status(services: Shared, name: str) -> ConnectorStatus:
    """Return the states of a connector and its tasks, and which workers run them."""
    return await _status(services, services.connector(name))


@router.get("/{name}/config", dependencies=[READER])
async def get_config(services: Shared, name: str, response: Response) -> dict[str, str]:
    """Return the settings of a connector's flow as they are stored. All connectors of a flow share them."""
    connector = services.connector(name)
    await _etag(services, connector, response)
    return (await _info(services, connector)).config


@router.put("/{name}/config", dependencies=[ADMIN], responses={409: {"description": "another version is stored"}})
async def put_config(
    services: Shared, name: str, wanted: Config, response: Response, if_match: IfMatch = None
) -> ConnectorChanged:
    """Store all settings of a flow: what is not named has its default. All connectors of the flow share them."""
    connector = services.connector(name)
    properties = {key: value for key, value in wanted.items() if value is not None}
    return await _change(services, connector, properties, merge=False, response=response, if_match=if_match)


@router.patch("/{name}/config", dependencies=[ADMIN], responses={409: {"description": "another version is stored"}})
async def patch_config(
    services: Shared, name: str, wanted: Config, response: Response, if_match: IfMatch = None
) -> ConnectorChanged:
    """Change some settings of a flow; null gives one its default again."""
    return await _change(services, services.connector(name), wanted, merge=True, response=response, if_match=if_match)


async def _change(
    services: Services,
    name: ConnectorName,
    wanted: dict[str, Any],
    *,
    merge: bool,
    response: Response,
    if_match: str | None,
) -> ConnectorChanged:
    changes = _changes(services, name)
    try:
        given = {key: value for key, value in wanted.items() if value is not None}
        properties, idle = checked(name.flow, name.kind, given)
        gone = wanted.keys() - given.keys()

        def of(stored: Any) -> dict[str, str]:
            before = changes.by_file if stored is None else stored.properties
            kept = {key: value for key, value in before.items() if key not in gone} if merge else {}
            return {**kept, **properties}

        outcome = await changes.change(of, version=_version(if_match))
    except Invalid as error:
        raise RestError(400, str(error)) from error
    except Conflict as error:
        raise RestError(409, str(error)) from error
    except TimeoutError as error:
        raise RestError(500, f"Request timed out. {name.flow.target} does not answer.") from error
    response.status_code = 201 if outcome.is_new else 200
    response.headers["ETag"] = f'"{outcome.config.version}"'
    return ConnectorChanged(
        name=str(name),
        config=connector_properties(name.flow, name.kind, outcome.config.properties),
        tasks=await _tasks(services, name),
        version=outcome.config.version,
        restarts_for=list(outcome.restarts),
        without_effect=sorted(idle),
    )


def _version(if_match: str | None) -> int | None:
    if if_match is None or if_match.strip() == "*":
        return None
    text = if_match.strip().removeprefix("W/").strip('"')
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise RestError(400, 'If-Match is no version: write it as "7", as ETag has it.')
    return int(text)


def _changes(services: Services, name: ConnectorName) -> FlowChanges:
    changes = services.changes.get(name.flow)
    if changes is None:
        raise RestError(409, f"{name.flow} cannot be changed: this worker's file does not enable it, or it is refused.")
    return changes


async def _etag(services: Services, name: ConnectorName, response: Response) -> None:
    if name.flow in services.changes:
        stored = await services.changes[name.flow].stored()
        response.headers["ETag"] = f'"{0 if stored is None else stored.version}"'


async def _info(services: Services, name: ConnectorName) -> ConnectorInfo:
    properties: dict[str, str] = {}
    if name.flow in services.changes:
        changes = services.changes[name.flow]
        stored = await changes.stored()
        properties = dict(changes.by_file if stored is None else stored.properties)
    config = connector_properties(name.flow, name.kind, properties)
    return ConnectorInfo(name=str(name), config=config, tasks=await _tasks(services, name))


async def _tasks(services: Services, name: ConnectorName) -> list[TaskId]:
    status = await _status(services, name)
    return [TaskId(connector=str(name), task=task.id) for task in status.tasks]


async def _status(services: Services, name: ConnectorName) -> ConnectorStatus:
    refused = {flow: str(error) for flow, error in services.configuration.refused.items()}
    return status_of(name, await services.live.report(), refused)
