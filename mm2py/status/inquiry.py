"""Asks the clusters of a file for the facts of its status. It only reads, and asks no worker.

Each look reads only what is new since the last one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Protocol

from mm2py.clock import Clock
from mm2py.config.configuration import SettingsFile
from mm2py.config.settings import ClusterSettings
from mm2py.flow import ClusterAlias, Flow
from mm2py.kafka.port import Brokers
from mm2py.status.asking import Side
from mm2py.status.facts import Facts
from mm2py.status.flow_inquiry import FlowInquiry, StoredInquiry
from mm2py.status.group_inquiry import GroupInquiry


class Connected(Brokers, Protocol):
    """The brokers of a cluster, and the connections to them."""

    async def close(self) -> None: ...


Connect = Callable[[Flow, ClusterSettings, float, random.Random], Connected]
"""Connects a flow to one of its clusters. The number is how long reading records may take, in s."""


class Inquiry:
    """All flows and groups of one file. Call ``close`` in the end."""

    def __init__(self, file: SettingsFile, connect: Connect, *, clock: Clock, rng: random.Random) -> None:
        """Nothing is connected before the first look. Raises: as ``SettingsFile.configuration``."""
        configuration = file.configuration()
        self._clock = clock
        self._refused = {flow: str(error) for flow, error in configuration.refused.items()}
        self._opened: list[Connected] = []
        self._sides: list[Side] = []

        def side(flow: Flow, cluster: ClusterSettings, timeout_s: float) -> Side:
            brokers = connect(flow, cluster, timeout_s, rng)
            self._opened.append(brokers)
            self._sides.append(Side(cluster.alias, brokers))
            return self._sides[-1]

        self._flows: list[FlowInquiry] = []
        targets: dict[ClusterAlias, Side] = {}
        for settings in configuration.flows:
            target = side(settings.flow, settings.target, settings.target_request_timeout_s)
            source = side(settings.flow, settings.source, settings.source_request_timeout_s)
            targets.setdefault(settings.flow.target, target)
            self._flows.append(FlowInquiry(file, settings, target, source))
        for emitted in configuration.heartbeats:
            if emitted.flow.target not in targets:
                targets[emitted.flow.target] = side(emitted.flow, emitted.target, emitted.request_timeout_s)
        self._groups = [
            GroupInquiry(configuration.groups[target], on, clock=clock, rng=rng) for target, on in targets.items()
        ]
        self._off = {
            settings.flow: StoredInquiry(settings, targets[settings.flow.target])
            for settings in file.flows_switched_off()
            if settings.flow.target in targets  # no connection is made only to show that a flow is off
        }

    async def look(self) -> Facts:
        """Ask all clusters, and return what they say. A cluster that does not answer delays no other.

        Cancelling loses nothing: the next look reads the rest.
        """
        async with asyncio.TaskGroup() as tasks:
            for side in self._sides:
                tasks.create_task(side.probe(), name=f"status: is {side.alias} there")
        async with asyncio.TaskGroup() as tasks:
            groups = [tasks.create_task(group.look(), name=f"status: {group.topic}") for group in self._groups]
            flows = [tasks.create_task(flow.look(), name=f"status: {flow.flow}") for flow in self._flows]
            for name, off in self._off.items():
                tasks.create_task(off.look(), name=f"status: {name}")
        clusters: dict[ClusterAlias, str] = {}
        for side in self._sides:
            clusters[side.alias] = clusters.get(side.alias) or side.away
        return Facts(
            self._clock.wall_ms(),
            dict(sorted(clusters.items())),
            [group.result() for group in groups],
            [flow.result() for flow in flows],
            self._refused,
            {flow: off.config for flow, off in self._off.items() if off.config is not None},
            {flow: off.unread for flow, off in self._off.items() if off.unread},
        )

    async def close(self) -> None:
        """Close all connections."""
        for brokers in self._opened:
            await brokers.close()
