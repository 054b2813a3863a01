"""What the routes of a REST process share: the worker, the clusters' answers, and the flows that can be changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from mm2py.clock import Clock
from mm2py.config.settings import Configuration
from mm2py.connector import ConnectorName, Flow, Kind, parse_flow
from mm2py.errors import ConfigError
from rest.changes import FlowChanges
from rest.errors import RestError
from rest.live import LiveReport
from rest.v1 import V1
from rest.worker_link import WorkerLink

KINDS = (Kind.SOURCE, Kind.CHECKPOINT, Kind.HEARTBEAT)


@dataclass(frozen=True, slots=True)
class Services:
    """Passed to each route as ``Shared``."""

    configuration: Configuration
    """By the worker's file; what is stored may differ."""
    link: WorkerLink
    live: LiveReport
    changes: Mapping[Flow, FlowChanges]
    clock: Clock
    cluster_id: Callable[[], Awaitable[str | None]]
    """Returns the id of the first target cluster; None: it does not answer."""
    v1: V1 = field(default_factory=V1)
    """What the routes under /v1 need besides."""

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
        flow, _, kind = name.rpartition(".")
        try:
            found = ConnectorName(parse_flow(flow), Kind(kind))
        except (ConfigError, ValueError):
            found = None
        if found is None or found not in self.connectors():
            raise RestError(404, f"Connector {name[:300]} not found")
        return found


def _shared(request: Request) -> Services:
    services = request.app.state.services
    assert isinstance(services, Services)  # noqa: S101
    return services


Shared = Annotated[Services, Depends(_shared)]
