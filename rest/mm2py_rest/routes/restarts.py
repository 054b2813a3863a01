"""``/v1/flows/A->B/topics/TOPIC/restart``: one topic, or one partition, is read again from its position.

Connect has nothing like it: its smallest unit is a task.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from mm2py.flow import Kind
from mm2py.records.operator_request import RestartPartitions
from mm2py.secret import shown_name
from mm2py_rest.access.roles import OPERATOR, Asker
from mm2py_rest.errors import RestError
from mm2py_rest.services import Shared

router = APIRouter(prefix="/v1/flows/{flow}/topics/{topic}", tags=["flows"])


@router.post(
    "/restart",
    dependencies=[OPERATOR],
    status_code=202,
    response_class=Response,
    responses={404: {"description": "there is no such flow, topic or partition"}},
)
async def restart_topic(
    services: Shared,
    flow: str,
    topic: str,
    asker: Asker,
    partition: Annotated[int | None, Query(ge=0, description="only this one")] = None,
) -> None:
    """Forget what is not acknowledged of a topic, and read it again from the stored positions. Nothing is repeated."""
    connector = await services.existing_connector(f"{flow}.{Kind.SOURCE}")
    report = await services.live.report()
    counts = {one.topic: one.partitions for each in report.flows if each.flow == connector.flow for one in each.topics}
    if topic not in counts or (partition is not None and partition >= counts[topic]):
        which = shown_name(topic) if partition is None else f"{shown_name(topic)}-{partition}"
        raise RestError(404, f"{connector.flow} does not copy {which}.")
    await services.changes_of(connector).restart(RestartPartitions(topic, partition), asker)
