"""What the routes of ``/v1`` share: paging, the flow in a path, errors, and how an answer is made."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Annotated, Any, Final

from fastapi import Depends, Path, Query
from fastapi.responses import Response

from mm2py.errors import ConfigError
from mm2py.flow import ClusterAlias, Flow, parse_flow
from mm2py.group.membership import GroupState
from mm2py.secret import shown_name
from mm2py.status.bodies import JsonBody
from mm2py.status.facts import FlowFacts
from mm2py.status.flow_report import FlowReport
from mm2py_rest.clusters.live import View
from mm2py_rest.errors import RestError
from mm2py_rest.reports.cursors import CURSOR_MOST, LIMIT, LIMIT_MOST, PagePart
from mm2py_rest.reports.flows import state_of
from mm2py_rest.reports.lag import Looks
from mm2py_rest.reports.topics import TopicCopy, topic_copies
from mm2py_rest.services import Services, Shared

LOOKED_AT: Final = "Mm2py-Looked-At"
"""Header of answers about flows: when the clusters were looked at, in epoch milliseconds."""


class ErrorBody(JsonBody):
    """What all errors say, as in Kafka Connect."""

    error_code: int
    """The HTTP status."""
    message: str
    """What is wrong, and what to do."""


def _error(description: str, code: int, message: str) -> dict[str, Any]:
    example = {"error_code": code, "message": message}
    return {"model": ErrorBody, "description": description, "content": {"application/json": {"example": example}}}


ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    400: _error("the request is wrong", 400, "after is no cursor of this list: pass what next said."),
    404: _error("there is no such flow, topic or path", 404, "There is no flow A->B."),
    409: _error("the flow is refused, or does not do that", 409, "A->B emits no checkpoints."),
    503: _error("a cluster does not answer", 503, "The clusters have not answered within 15 s."),
}

EXAMPLES: Final[dict[str, Any]] = json.loads((FilePath(__file__).parent / "examples.json").read_text())
"""Example answers by the path of a route."""


def example_of(path: str) -> dict[int | str, dict[str, Any]]:
    """Return the description of a route's answer, with an example."""
    return {200: {"description": "done", "content": {"application/json": {"example": EXAMPLES[path]}}}}


async def _part(
    limit: Annotated[int, Query(ge=1, le=LIMIT_MOST, description="how many items at most")] = LIMIT,
    after: Annotated[
        str | None, Query(max_length=CURSOR_MOST, description="``next`` of the page before; without it the first page")
    ] = None,
) -> PagePart:
    return PagePart(limit, after)


Paged = Annotated[PagePart, Depends(_part)]


async def _flow(
    services: Shared,
    flow: Annotated[str, Path(description="as A->B; the arrow may be percent-encoded", examples=["A->B"])],
) -> Flow:
    unknown = RestError(404, f"There is no flow {shown_name(flow)} in this worker's file.")
    try:
        found = parse_flow(flow)
    except ConfigError:
        raise unknown from None
    if (refused := services.configuration.refused.get(found)) is not None:
        raise RestError(409, str(refused))
    if all(settings.flow != found for settings in services.configuration.flows):
        raise unknown
    return found


FlowPath = Annotated[Flow, Depends(_flow)]


@dataclass(frozen=True, slots=True)
class Asked:
    """One flow, as one look found it."""

    view: View
    facts: FlowFacts
    report: FlowReport
    state: GroupState | None
    """State of the group that runs the flow now; None: no worker runs it."""

    @property
    def looks(self) -> Looks:
        """Times of this look and the one before, and the ends that the one before found."""
        now, before, flow = self.view.facts, self.view.before, self.facts.settings.flow
        ends = [] if before is None else [one.ends for one in before.flows if one.settings.flow == flow]
        return Looks(now.at_ms, now.at_ms if before is None else before.at_ms, ends[0] if ends else {})

    def topics(self) -> list[TopicCopy]:
        return topic_copies(self.facts, self.report, self.looks)


async def ask(services: Services, flow: Flow) -> Asked:
    """Return what is known of a flow. Raises: as ``LiveReport.view``; RestError, no look has read the flow yet."""
    view = await services.live.view()
    found = asked_of(view, flow)
    if found is None:
        raise RestError(503, f"{flow} has not been looked at yet.", {"Retry-After": "5"})
    return found


def check_reachable(view: View, *clusters: ClusterAlias) -> None:
    """Check that clusters answered the last look. Raises: RestError, one did not: another question would wait long."""
    for alias in clusters:
        if why := view.facts.clusters.get(alias):
            raise RestError(503, why, {"Retry-After": "5"})


def asked_of(view: View, flow: Flow) -> Asked | None:
    """Return what a look has found about a flow; None: nothing."""
    facts = next((one for one in view.facts.flows if one.settings.flow == flow), None)
    report = next((one for one in view.report.flows if one.flow == flow), None)
    if facts is None or report is None:
        return None
    return Asked(view, facts, report, state_of(view.report, view.facts, flow))


async def topics_of(services: Services, asked: Asked) -> list[TopicCopy]:
    """Return the topics of a flow's source."""
    return await services.v1.answers.of(asked.view, ("topics", asked.facts.settings.flow), asked.topics)


def json_response(body: JsonBody) -> Response:
    """Return a body without a second check: it was checked when it was made."""
    return Response(body.model_dump_json(), media_type="application/json")


async def answer(services: Services, view: View, key: Hashable, make: Callable[[], JsonBody]) -> Response:
    """Return a body that is made once for each look, outside the event loop. Raises: as ``make``."""
    text = await services.v1.answers.of(view, key, lambda: make().model_dump_json())
    return Response(text, media_type="application/json", headers={LOOKED_AT: str(view.facts.at_ms)})
