"""``/v1/flows``: the flows, their topics and partitions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from mm2py.secret import shown_name
from mm2py.status.bodies import JsonBody
from mm2py.status.flow_report import FlowReport
from mm2py_rest.access.roles import ANY_READER, READER, Who
from mm2py_rest.errors import RestError
from mm2py_rest.reports.cursors import Page, page_of
from mm2py_rest.reports.flows import FlowBody, flow_body, refused_bodies
from mm2py_rest.reports.partitions import PartitionCopy, partition_copies
from mm2py_rest.reports.topics import TopicCopy
from mm2py_rest.routes.v1.asking import ERRORS, FlowPath, Paged, answer, ask, asked_of, example_of, topics_of
from mm2py_rest.services import Shared

router = APIRouter(prefix="/v1/flows", tags=["v1"], responses=ERRORS)


class FlowDetail(JsonBody):
    """One flow in full."""

    summary: FlowBody
    """As in ``/v1/flows``."""
    report: FlowReport
    """As in ``flows`` of ``mm2py status --json``."""


@router.get("", dependencies=[ANY_READER], response_model=Page[FlowBody], responses=example_of("/v1/flows"))
async def list_flows(services: Shared, who: Who, part: Paged) -> Response:
    """Return all flows of the worker's file in short, those that are refused among them."""
    view = await services.live.view()

    def make() -> Page[FlowBody]:
        found = refused_bodies(view.facts.refused)
        for report in view.report.flows:
            asked = asked_of(view, report.flow)
            if asked is not None:
                found.append(flow_body(report, view.report, asked.state, asked.topics()))
        found = sorted((one for one in found if who.may_see(one.flow)), key=lambda one: one.flow)
        return page_of(found, lambda one: (one.flow,), part)

    return await answer(services, view, ("flows", who.user.flows, part), make)


@router.get("/{flow}", dependencies=[READER], response_model=FlowDetail, responses=example_of("/v1/flows/{flow}"))
async def get_flow(services: Shared, flow: FlowPath) -> Response:
    """Return a flow: in short, and as ``mm2py status --json`` has it."""
    asked = await ask(services, flow)
    topics = await topics_of(services, asked)

    def make() -> FlowDetail:
        return FlowDetail(summary=flow_body(asked.report, asked.view.report, asked.state, topics), report=asked.report)

    return await answer(services, asked.view, ("flow", flow), make)


@router.get(
    "/{flow}/topics",
    dependencies=[READER],
    response_model=Page[TopicCopy],
    responses=example_of("/v1/flows/{flow}/topics"),
)
async def list_topics(
    services: Shared,
    flow: FlowPath,
    part: Paged,
    copied: Annotated[bool | None, Query(description="only those that are copied, or only the others")] = None,
) -> Response:
    """Return the topics that are really copied, after all filters, and the others with the reason; by name."""
    asked = await ask(services, flow)
    topics = await topics_of(services, asked)

    def make() -> Page[TopicCopy]:
        found = [topic for topic in topics if copied is None or topic.is_copied == copied]
        return page_of(found, lambda one: (one.topic,), part)

    return await answer(services, asked.view, ("topics", flow, copied, part), make)


@router.get(
    "/{flow}/topics/{topic}/partitions",
    dependencies=[READER],
    response_model=Page[PartitionCopy],
    responses=example_of("/v1/flows/{flow}/topics/{topic}/partitions"),
)
async def list_partitions(
    services: Shared,
    flow: FlowPath,
    topic: Annotated[str, Path(description="its name on the source", examples=["orders"])],
    part: Paged,
) -> Response:
    """Return the partitions of a topic: position, end, lag, owner and open gaps of each."""
    asked = await ask(services, flow)
    report = next((one for one in asked.report.topics if one.topic == topic), None)
    if report is None:
        left_out = next((one for one in await topics_of(services, asked) if one.topic == topic), None)
        raise RestError(
            404,
            f"{flow} does not copy {shown_name(topic)}: {left_out.why}"
            if left_out is not None
            else f"{flow.source} has no topic {shown_name(topic)}, or its topics cannot be listed.",
        )
    starts = {} if flow not in services.v1.questions else await services.v1.questions[flow].starts(topic)

    def make() -> Page[PartitionCopy]:
        found = partition_copies(asked.facts, asked.report, report, asked.state, asked.looks, starts=starts)
        return page_of(found, lambda one: (one.partition,), part)

    return await answer(services, asked.view, ("partitions", flow, topic, part), make)
