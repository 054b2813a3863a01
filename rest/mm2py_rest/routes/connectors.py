"""``/connectors``: the connectors of every flow, as Kafka Connect's clients see and change them.

Any worker's REST process answers for all workers, from what is stored on the target.
Source: ConnectorsResource, Apache Kafka, connect/runtime.
"""

from __future__ import annotations

from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Response

from mm2py.config.flow_properties import FlowProperties
from mm2py.flow import ConnectorName, Kind
from mm2py.records.author import Author
from mm2py.records.connector_config import FlowConfig
from mm2py.records.operator_request import TargetState
from mm2py_rest.access.roles import ADMIN, ANY_READER, OPERATOR, READER, Asker, Who
from mm2py_rest.clusters.live import View
from mm2py_rest.connector_status import active_topics, is_switched_off, status_of
from mm2py_rest.errors import RestError
from mm2py_rest.models import (
    ActiveTopics,
    ConfigMap,
    ConnectorChanged,
    ConnectorInfo,
    ConnectorStatus,
    CreateRequest,
    TaskId,
)
from mm2py_rest.reports.setting_changes import patched
from mm2py_rest.services import Services, Shared, is_off
from mm2py_rest.settings.changes import Invalid
from mm2py_rest.settings.check import SWITCHES, Checked, check, connector_properties

INITIAL_STATES: Final = {
    "RUNNING": TargetState.STARTED,
    "PAUSED": TargetState.PAUSED,
    "STOPPED": TargetState.STOPPED,
}
router = APIRouter(prefix="/connectors", tags=["connectors"])
IfMatch = Annotated[str | None, Header(description='the version that the change is made for, as in "7"')]
NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"description": "there is no such connector"}}
CHANGES: dict[int | str, dict[str, Any]] = {**NOT_FOUND, 409: {"description": "another version is stored"}}


@router.get("", dependencies=[ANY_READER])
async def list_connectors(services: Shared, who: Who, expand: Annotated[list[str] | None, Query()] = None) -> Any:
    """Return the names of all connectors; with ``expand=status`` or ``expand=info``, more of each."""
    names = [name for name in await services.existing() if who.may_see(name.flow)]
    if not expand:
        return [str(name) for name in names]
    view = await services.live.view()
    return {str(name): _expanded(view, name, expand) for name in names}


def _expanded(view: View, name: ConnectorName, expand: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "status" in expand:
        found["status"] = status_of(name, view).model_dump(exclude_none=True)
    if "info" in expand:
        found["info"] = _info(view, name)
    return found


@router.post("", dependencies=[ADMIN], status_code=201, responses={409: {"description": "it exists"}})
async def create_connector(
    services: Shared, wanted: CreateRequest, response: Response, asker: Asker
) -> ConnectorChanged:
    """Switch a connector on that was switched off, with these settings. The flow has to be one of the worker's file."""
    name = services.connector_to_create(wanted.name)
    view = await services.live.view()
    if not is_off(name, view):
        raise RestError(409, f"Connector {name} already exists")
    state = None if wanted.initial_state is None else INITIAL_STATES[wanted.initial_state]
    answer = await _create(services, name, wanted.config, response, asker, state=state)
    response.headers["Location"] = f"/connectors/{quote(str(name))}"
    return answer


async def _create(
    services: Services,
    name: ConnectorName,
    wanted: ConfigMap,
    response: Response,
    asker: Author,
    *,
    state: TargetState | None = None,
    version: int | None = None,
) -> ConnectorChanged:
    """Switch a connector on. Settings of the source connector replace those of the flow; others are added to them."""
    facts = (await services.live.view()).flow(name.flow)
    if name.kind is Kind.CHECKPOINT and facts is not None and is_switched_off(Kind.SOURCE, facts):
        source = ConnectorName(name.flow, Kind.SOURCE)
        raise RestError(409, f"{name.flow} is switched off. Create {source} first.")
    switched = {**wanted, SWITCHES[name.kind].name: "true"}
    _checked(name, switched)
    if state is not None:  # before it runs
        await services.changes_of(name).direct(name.kind, state, asker)
    merge = name.kind is not Kind.SOURCE
    answer = await _change(services, name, switched, asker, merge=merge, version=version, response=response)
    response.status_code = 201
    return answer


@router.get("/{name}", dependencies=[READER], responses=NOT_FOUND)
async def get_connector(services: Shared, name: str, response: Response) -> ConnectorInfo:
    """Return a connector, its tasks and the stored settings of its flow."""
    connector = await services.existing_connector(name)
    view = await services.live.view()
    _etag(view, connector, response)
    return _info(view, connector)


@router.delete("/{name}", dependencies=[ADMIN], status_code=204, responses=CHANGES)
async def delete_connector(services: Shared, name: str, asker: Asker, if_match: IfMatch = None) -> None:
    """Switch a connector off, on all workers. Its settings, and the positions of its flow, stay stored."""
    connector = await services.existing_connector(name)
    changes = services.changes_of(connector)

    def switched_off(stored: FlowConfig | None) -> FlowProperties:
        before = changes.by_file if stored is None else stored.properties
        return {**before, SWITCHES[connector.kind].name: "false"}

    await changes.change(switched_off, version=_version(if_match), author=asker)
    await changes.direct(connector.kind, TargetState.STARTED, asker)  # so that it runs when it is created again
    services.live.changed()


@router.get("/{name}/status", dependencies=[READER], response_model_exclude_none=True, responses=NOT_FOUND)
async def get_status(services: Shared, name: str) -> ConnectorStatus:
    """Return the states of a connector and its tasks, and which workers run them."""
    connector = await services.existing_connector(name)
    return status_of(connector, await services.live.view())


@router.get("/{name}/config", dependencies=[READER], responses=NOT_FOUND)
async def get_config(services: Shared, name: str, response: Response) -> dict[str, str]:
    """Return the settings of a connector's flow as they are stored. All connectors of a flow share them."""
    connector = await services.existing_connector(name)
    view = await services.live.view()
    _etag(view, connector, response)
    return config_of(view, connector)


@router.put("/{name}/config", dependencies=[ADMIN], responses=CHANGES)
async def put_config(
    services: Shared, name: str, wanted: ConfigMap, response: Response, asker: Asker, if_match: IfMatch = None
) -> ConnectorChanged:
    """Store all settings of a flow: what is not named has its default. All connectors of the flow share them.

    A connector that is switched off is switched on, as POST does.
    """
    connector, version = services.connector(name), _version(if_match)
    view = await services.live.view()
    if is_off(connector, view):
        return await _create(services, connector, wanted, response, asker, version=version)
    return await _change(services, connector, wanted, asker, merge=False, version=version, response=response)


@router.patch("/{name}/config", dependencies=[ADMIN], responses=CHANGES)
async def patch_config(
    services: Shared, name: str, wanted: ConfigMap, response: Response, asker: Asker, if_match: IfMatch = None
) -> ConnectorChanged:
    """Change some settings of a flow; null gives one its default again."""
    connector = await services.existing_connector(name)
    version = _version(if_match)
    return await _change(services, connector, wanted, asker, merge=True, version=version, response=response)


def _checked(name: ConnectorName, wanted: ConfigMap) -> Checked:
    """Return the checked settings. Raises: Invalid."""
    found = check(name.flow, name.kind, {key: value for key, value in wanted.items() if value is not None})
    if found.errors:
        raise Invalid(found.errors)
    return found


async def _change(
    services: Services,
    name: ConnectorName,
    wanted: ConfigMap,
    asker: Author,
    *,
    merge: bool,
    version: int | None,
    response: Response,
) -> ConnectorChanged:
    changes = services.changes_of(name)
    found = _checked(name, wanted)

    def properties(stored: FlowConfig | None) -> FlowProperties:
        before = changes.by_file if stored is None else stored.properties
        return patched(before if merge else {}, wanted, found)

    outcome = await changes.change(properties, version=version, author=asker)
    services.live.changed()
    response.headers["ETag"] = f'"{outcome.config.version}"'
    config = connector_properties(name.flow, name.kind, outcome.config.properties)
    return ConnectorChanged(
        name=str(name),
        config=config,
        tasks=task_ids(await services.live.view(), name),
        version=outcome.config.version,
        restarts_for=list(outcome.restarts),
        without_effect=sorted(found.without_effect),
    )


@router.get("/{name}/topics", dependencies=[READER], responses=NOT_FOUND)
async def get_topics(services: Shared, name: str) -> dict[str, ActiveTopics]:
    """Return the topics on the target that a connector has written records to."""
    connector = await services.existing_connector(name)
    facts = (await services.live.view()).flow(connector.flow)
    topics = [] if facts is None else active_topics(connector.kind, facts)
    return {str(connector): ActiveTopics(topics=topics)}


@router.put("/{name}/topics/reset", dependencies=[OPERATOR], responses={**NOT_FOUND, 403: {"description": "always"}})
async def reset_topics(services: Shared, name: str) -> None:
    """Refused: mm2py keeps no list of topics to reset. It names those of which it has stored positions."""
    await services.existing_connector(name)
    why = "mm2py keeps no list of topics: it names those of which positions are stored."
    raise RestError(403, f"Topic tracking reset is disabled. {why}")


def _version(if_match: str | None) -> int | None:
    if if_match is None or if_match.strip() == "*":
        return None
    text = if_match.strip().removeprefix("W/").strip('"')
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise RestError(400, 'If-Match is no version: write it as "7", as ETag has it.')
    return int(text)


def _etag(view: View, name: ConnectorName, response: Response) -> None:
    facts = view.flow(name.flow)
    if facts is not None:
        response.headers["ETag"] = f'"{0 if facts.stored is None else facts.stored.version}"'


def config_of(view: View, name: ConnectorName) -> dict[str, str]:
    """Return the stored settings of a connector's flow, or those of the file if none are stored."""
    facts = view.flow(name.flow)
    properties = {} if facts is None else facts.file if facts.stored is None else facts.stored.properties
    return connector_properties(name.flow, name.kind, properties)


def _info(view: View, name: ConnectorName) -> ConnectorInfo:
    return ConnectorInfo(name=str(name), config=config_of(view, name), tasks=task_ids(view, name))


def task_ids(view: View, name: ConnectorName) -> list[TaskId]:
    """Return the ids of a connector's tasks in one look at the clusters."""
    return [TaskId(connector=str(name), task=task.id) for task in status_of(name, view).tasks]
