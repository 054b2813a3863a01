"""``/v1/flows/A->B/why``: is a topic, a partition or a group replicated, and what decides that?"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from mm2py.flight.inquiry import PastUnread
from mm2py.flow import PARTITION_MOST, Flow
from mm2py.moments import MOMENTS, moment_ms
from mm2py.status.bodies import WhyBody
from mm2py.status.exit_codes import exit_of_explanation
from mm2py.status.why import explain_topic
from mm2py.status.why_group import explain_group
from mm2py_rest.access.roles import READER
from mm2py_rest.errors import RestError
from mm2py_rest.routes.v1.asking import ERRORS, FlowPath, ask, check_reachable, example_of, json_response
from mm2py_rest.services import Shared

router = APIRouter(dependencies=[READER], prefix="/v1/flows/{flow}", tags=["v1"], responses=ERRORS)


@router.get("/why", response_model=WhyBody, responses=example_of("/v1/flows/{flow}/why"))
async def explain(
    services: Shared,
    flow: FlowPath,
    topic: Annotated[str | None, Query(min_length=1, max_length=249, description="as the source names it")] = None,
    partition: Annotated[int | None, Query(ge=0, le=PARTITION_MOST, description="of the topic")] = None,
    group: Annotated[str | None, Query(min_length=1, max_length=10_000, description="a consumer group")] = None,
    at: Annotated[str | None, Query(max_length=40, description=f"a time of the last 24 hours: {MOMENTS}")] = None,
) -> Response:
    """Return in a sentence whether it is replicated, which rule or setting decides that, and what would change it.

    Ask about a topic, about one partition of it, or about a consumer group: what ``mm2py why --json`` prints. With
    ``at`` it says how it was then; commits of groups are not recorded.
    """
    if (topic is None) == (group is None) or (partition is not None and topic is None):
        raise RestError(400, "Ask for one thing: ?topic=T, ?topic=T&partition=N or ?group=G.")
    if at is not None:
        return await _explain_past(services, flow, topic, partition, at)
    asked = await ask(services, flow)
    questions, settings = services.v1.questions[flow], asked.facts.settings
    if topic is not None:
        names = {one.member: one.name for part in asked.view.report.groups for one in part.members}
        found = explain_topic(asked.facts, asked.report, topic, partition, names)
        details = await questions.details(topic, found)
        found = explain_topic(asked.facts, asked.report, topic, partition, names, details)
    else:
        assert group is not None  # noqa: S101
        check_reachable(asked.view, flow.target)
        report, on_source, unread = None, None, ""
        if settings.checkpoints is not None:
            told = await questions.groups(settings)
            report, unread = next((one for one in told.reports if one.group == group), None), told.unread
            on_source = await questions.group_on_source(group) if report is None else None
        found = explain_group(asked.facts, asked.report, group, report, on_source, unread)
    return json_response(WhyBody.of(flow, found, exit_code=exit_of_explanation(found)))


async def _explain_past(services: Shared, flow: Flow, topic: str | None, partition: int | None, at: str) -> Response:
    if topic is None:
        raise RestError(400, "The commits of groups are not recorded: ask ?topic=T&at=TIME, or leave out at.")
    now_ms = services.clock.wall_ms()
    at_ms = moment_ms(at, now_ms)
    if at_ms is None or at_ms > now_ms:
        raise RestError(400, f"at is no time of the past. Write {MOMENTS}.")
    try:
        then = await services.v1.questions[flow].explain_at(services.v1.file, (topic, partition), at_ms)
    except PastUnread as error:
        raise RestError(503, str(error), {"Retry-After": "5"}) from error
    return json_response(WhyBody.of_past(flow, then, exit_code=exit_of_explanation(then.found)))
