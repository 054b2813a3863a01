"""What the routes of a REST process share: the worker, the clusters' answers, and the flows that can be changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from fastapi import Depends, Request

from mm2py.clock import Clock
from mm2py.config.settings import Configuration, FlowSettings
from mm2py.errors import ConfigError
from mm2py.flow import ConnectorName, Flow, Kind, parse_flow
from mm2py.secret import shown_name
from mm2py.status.report import return_flows
from mm2py_rest.access.sessions import Sessions
from mm2py_rest.built_page import BuiltPage
from mm2py_rest.clusters.answers import SharedAnswer
from mm2py_rest.clusters.live import LiveReport, View
from mm2py_rest.connector_status import is_switched_off
from mm2py_rest.errors import RestError
from mm2py_rest.metrics.page import render
from mm2py_rest.settings.changes import FlowChanges
from mm2py_rest.settings.loss_changes import LossChanges
from mm2py_rest.settings.offset_changes import OffsetChanges
from mm2py_rest.v1 import V1
from mm2py_rest.worker_link import WorkerLink

METRICS_KEPT_S: Final = 1.0
RETURN_FLOWS_KEPT_S: Final = 60.0
"""How old what the clusters say may be for the metric of flows that lead back: no worker can tell it of a dead one."""
RETURN_FLOWS_MOST_S: Final = 3.0
"""How long a page waits for it; then that metric is missing."""
KINDS = (Kind.SOURCE, Kind.CHECKPOINT, Kind.HEARTBEAT)


@dataclass(slots=True)
class Services:
    """What the routes share. Each route gets it as ``Shared``."""

    configuration: Configuration
    """The worker's file; the stored settings may differ."""
    link: WorkerLink
    live: LiveReport
    changes: Mapping[Flow, FlowChanges]
    clock: Clock
    cluster_id: Callable[[], Awaitable[str | None]]
    """Returns the id of the first target cluster; None: it does not answer."""
    v1: V1 = field(default_factory=V1)
    """What only the routes under /v1 need."""
    offset_changes: Mapping[Flow, OffsetChanges] = field(default_factory=dict)
    loss_changes: Mapping[Flow, LossChanges] = field(default_factory=dict)
    page: BuiltPage = field(default_factory=BuiltPage)
    sessions: Sessions = field(init=False)
    """Of the web page; ``RequestGate`` looks into them."""
    metrics: SharedAnswer[bytes] = field(init=False)
    """The page of ``/metrics``. It is shared, because its snapshot takes time of the worker's event loop."""

    def __post_init__(self) -> None:
        self.sessions = Sessions(self.clock)
        self.metrics = SharedAnswer(self._metrics, self.clock, least_s=METRICS_KEPT_S)

    async def _metrics(self) -> bytes:
        counted = await self.link.snapshot()
        view = await self.live.within(RETURN_FLOWS_KEPT_S, patience_s=RETURN_FLOWS_MOST_S)
        return await asyncio.to_thread(
            render,
            counted,
            partitions_max=self.configuration.metrics_partitions_max,
            return_flows=() if view is None else return_flows(view.facts, view.report),
        )

    def connectors(self) -> list[ConnectorName]:
        """Return the connectors of every flow of the file, as MirrorMaker 2 has them."""
        flows = {*(settings.flow for settings in self.configuration.flows), *self.configuration.refused}
        beating = {settings.flow for settings in self.configuration.heartbeats}
        return sorted(
            [*(ConnectorName(flow, kind) for flow in flows for kind in KINDS)]
            + [ConnectorName(flow, Kind.HEARTBEAT) for flow in beating - flows]
        )

    def connector(self, name: str) -> ConnectorName:
        """Return the connector of this name. Raises: RestError, there is none."""
        found = _parsed(name)
        if found is None or found not in self.connectors():
            raise RestError(404, f"Connector {shown_name(name)} not found")
        return found

    def connector_to_create(self, name: str) -> ConnectorName:
        """Return the connector of this name. Raises: RestError with a remedy, this worker cannot have it."""
        found = _parsed(name)
        if found is None or found.kind not in KINDS:
            kinds = ", ".join(KINDS)
            raise RestError(400, f"mm2py has no such connector. Name it A->B.KIND, with the kinds {kinds}.")
        if found not in self.connectors():
            way = f"Define both clusters, write {shown_name(str(found.flow))}.enabled=true, and restart the workers."
            raise RestError(400, f"The file of this worker enables no flow {shown_name(str(found.flow))}. {way}")
        return found

    def changes_of(self, name: ConnectorName) -> FlowChanges:
        """Return the ``FlowChanges`` of a connector's flow. Raises: RestError, this worker cannot change the flow."""
        changes = self.changes.get(name.flow)
        if changes is None:
            raise RestError(409, f"{name.flow} cannot be changed: the file of this worker refuses or lacks it.")
        return changes

    async def offsets_of(self, name: str) -> tuple[OffsetChanges, Kind, FlowSettings]:
        """Return the ``OffsetChanges`` of a connector, its kind, and the settings with which the workers run its flow.

        Raises: as ``existing_connector``, ``changes_of``.
        """
        connector = await self.existing_connector(name)
        facts, changes = (await self.live.view()).flow(connector.flow), self.offset_changes.get(connector.flow)
        if facts is None or changes is None:
            raise RestError(409, f"{connector.flow} cannot be changed: the file of this worker refuses or lacks it.")
        return changes, connector.kind, facts.settings

    async def existing(self) -> list[ConnectorName]:
        """Return the connectors that are switched on. Raises: NothingKnown."""
        view = await self.live.view()
        return [name for name in self.connectors() if not is_off(name, view)]

    async def existing_connector(self, name: str) -> ConnectorName:
        """Return the connector of this name. Raises: RestError, there is none, or it is off; NothingKnown."""
        found = self.connector(name)
        view = await self.live.view()
        facts = view.flow(found.flow)
        if facts is not None and facts.stored is None and facts.config_unread:
            raise RestError(503, f"What is stored of {found.flow} is not known: {facts.config_unread}")
        if is_off(found, view):
            way = "It is switched off. POST /connectors, or PUT of its config, switches it on."
            raise RestError(404, f"Connector {found} not found. {way}")
        return found


def _parsed(name: str) -> ConnectorName | None:
    flow, _, kind = name.rpartition(".")
    try:
        return ConnectorName(parse_flow(flow), Kind(kind))
    except (ConfigError, ValueError):
        return None


def is_off(name: ConnectorName, view: View) -> bool:
    """Whether a connector is switched off by the stored settings, or by the file if none are stored."""
    facts = view.flow(name.flow)
    return facts is not None and is_switched_off(name.kind, facts)


async def _shared(request: Request) -> Services:
    services = request.app.state.services
    assert isinstance(services, Services)  # noqa: S101
    return services


Shared = Annotated[Services, Depends(_shared)]
