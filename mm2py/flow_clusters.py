"""Connections to the clusters of a flow for processes that are no workers: commands, REST, tasks of Spark.

A worker connects through ``mm2py/cli/main.py``, which also watches its connections.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol

from mm2py.config.settings import ClusterSettings, FlowSettings
from mm2py.flow import Flow
from mm2py.kafka.cluster import Cluster
from mm2py.kafka.port import Brokers
from mm2py.kafka.security.access import Access
from mm2py.kafka.transport.opening import ConnectionOptions
from mm2py.kafka.transport.wire import FrameMemory


class Connected(Brokers, Protocol):
    """The brokers of a cluster, and the connections to them."""

    async def close(self) -> None: ...


class BothClusters(NamedTuple):
    """The connections to both clusters of a flow."""

    source: Cluster
    target: Cluster


def connect(
    who: str,
    flow: Flow,
    cluster: ClusterSettings,
    *,
    timeout_s: float,
    rng: random.Random,
    frames: FrameMemory | None = None,
) -> Cluster:
    """Return connections to one cluster of a flow. They are opened when they are used, and closed by the caller.

    Args:
        who: the command or process; becomes part of the client id, if the file sets none.
        timeout_s: how long a request that carries records may take.
    """
    return Cluster(
        cluster.alias,
        cluster.bootstrap_servers,
        rng=rng,
        client_id=cluster.client_id or f"{flow}|mm2py-{who}",
        request_timeout_s=timeout_s,
        admin_timeout_s=cluster.request_timeout_s,
        access=Access(cluster.alias, cluster.security, rng=rng, report=lambda _: None),
        options=ConnectionOptions(frames),
    )


def source_of(who: str, settings: FlowSettings, rng: random.Random, frames: FrameMemory | None = None) -> Cluster:
    """Return connections to the source of a flow, like ``connect``."""
    timeout_s = settings.source_request_timeout_s
    return connect(who, settings.flow, settings.source, timeout_s=timeout_s, rng=rng, frames=frames)


def target_of(who: str, settings: FlowSettings, rng: random.Random, frames: FrameMemory | None = None) -> Cluster:
    """Return connections to the target of a flow, like ``connect``."""
    timeout_s = settings.target_request_timeout_s
    return connect(who, settings.flow, settings.target, timeout_s=timeout_s, rng=rng, frames=frames)


@asynccontextmanager
async def both_of(
    who: str, settings: FlowSettings, rng: random.Random, frames: FrameMemory | None = None
) -> AsyncIterator[BothClusters]:
    """Connect to both clusters of a flow, and close all connections at the end."""
    both = BothClusters(source_of(who, settings, rng, frames), target_of(who, settings, rng, frames))
    try:
        yield both
    finally:
        for cluster in both:
            await cluster.close()
