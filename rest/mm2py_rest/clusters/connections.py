"""The connections of a REST process: one set to each cluster, shared by all flows and routes."""

from __future__ import annotations

import random

from mm2py.config.settings import ClusterSettings, FlowSettings
from mm2py.flow import Flow
from mm2py.flow_clusters import Connected, connect


class Connections:
    """Connects at the first use. Call ``close`` at the end."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._opened: list[tuple[ClusterSettings, float, Connected]] = []

    def to(self, flow: Flow, cluster: ClusterSettings, timeout_s: float) -> Connected:
        """Return connections to a cluster, the same for all flows with the same settings for it.

        Args:
            flow: the client id contains the first flow that asks.
            timeout_s: how long a request that carries records may take.
        """
        for known, its_timeout_s, brokers in self._opened:
            if (known, its_timeout_s) == (cluster, timeout_s):
                return brokers
        brokers = connect("rest", flow, cluster, timeout_s=timeout_s, rng=self._rng)
        self._opened.append((cluster, timeout_s, brokers))
        return brokers

    def source_of(self, settings: FlowSettings) -> Connected:
        """Return connections to the source of a flow."""
        return self.to(settings.flow, settings.source, settings.source_request_timeout_s)

    def target_of(self, settings: FlowSettings) -> Connected:
        """Return connections to the target of a flow."""
        return self.to(settings.flow, settings.target, settings.target_request_timeout_s)

    async def close(self) -> None:
        """Close all of them."""
        for _, _, brokers in self._opened:
            await brokers.close()
