"""``/connectors/NAME/offsets``: the stored positions, and changing them while the connector is stopped, as in KIP-875.

Source: ConnectorsResource, Apache Kafka, connect/runtime.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body

from mm2py.connector_offsets.offsets_body import body_of
from mm2py.flow import Kind
from mm2py_rest.access.roles import OPERATOR, READER
from mm2py_rest.models import Message
from mm2py_rest.routes.connectors import NOT_FOUND
from mm2py_rest.services import Shared

router = APIRouter(prefix="/connectors/{name}/offsets", tags=["connectors"])
REFUSED: dict[int | str, dict[str, Any]] = {
    **NOT_FOUND,
    400: {"description": "the connector is not stopped, or the offsets cannot be"},
    409: {"description": "a worker has not drained yet; ask again"},
}
EXAMPLE = {"offsets": [{"partition": {"cluster": "A", "topic": "orders", "partition": 0}, "offset": {"offset": 41}}]}


@router.get("", dependencies=[READER], responses=NOT_FOUND)
async def get_offsets(services: Shared, name: str) -> dict[str, Any]:
    """Return the stored positions of a source connector: the offset of the last record that is copied."""
    connector = await services.existing_connector(name)
    facts = (await services.live.view()).flow(connector.flow)
    if facts is None or connector.kind is not Kind.SOURCE:
        return {"offsets": []}
    return body_of(facts.positions, connector.flow.source)


@router.patch("", dependencies=[OPERATOR], responses=REFUSED)
async def alter_offsets(services: Shared, name: str, wanted: Annotated[Any, Body(examples=[EXAMPLE])]) -> Message:
    """Go on behind these offsets; null deletes one, so that its partition is copied once more from its start."""
    changes, kind, settings = await services.offsets_of(name)
    message = await changes.alter(kind, wanted, settings)
    services.live.changed()
    return Message(message=message)


@router.delete("", dependencies=[OPERATOR], responses=REFUSED)
async def reset_offsets(services: Shared, name: str) -> Message:
    """Delete all offsets, so that everything is copied once more from its start."""
    changes, kind, settings = await services.offsets_of(name)
    message = await changes.reset(kind, settings)
    services.live.changed()
    return Message(message=message)
