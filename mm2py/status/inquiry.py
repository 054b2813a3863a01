"""Asks the clusters of a file for the facts of its status: reads only, asks no worker, makes nothing.

Each look goes on where the one before ended, so that watching costs what has changed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Protocol

from mm2py.clock import Clock
from mm2py.config.settings import ClusterSettings, Configuration, FlowSettings
from mm2py.flow import ClusterAlias, Flow
from mm2py.kafka.port import Brokers
from mm2py.status.asking import Side
from mm2py.status.facts import Facts, FlowFacts
from mm2py.status.group_inquiry import GroupInquiry
from mm2py.status.source_inquiry import SourceInquiry
from mm2py.status.target_inquiry import TargetInquiry


class Connected(Brokers, Protocol):
    """The brokers of a cluster, and the connections to them."""

    async def close(self) -> None: ...


Connect = Callable[[Flow, ClusterSettings, float, random.Random], Connected]
"""Makes the connections of a flow to one of its clusters; the number is how long reading records may take, in s."""


class Inquiry:
    """All of one file. ``close`` it in the end."""

    def __init__(self, configuration: Configuration, connect: Connect, *, clock: Clock, rng: random.Random) -> None:
        """Make one; nothing is connected before the first look."""
        self._clock = clock
        self._refused = {flow: str(error) for flow, error in configuration.refused.items()}
        self._opened: list[Connected] = []
        self._sides: list[Side] = []

        def side(flow: Flow, cluster: ClusterSettings, timeout_s: float) -> Side:
            brokers = connect(flow, cluster, timeout_s, rng)
            self._opened.append(brokers)
            self._sides.append(Side(cluster.alias, brokers))
            return self._sides[-1]

        self._flows: list[tuple[FlowSettings, TargetInquiry, SourceInquiry]] = []
        targets: dict[ClusterAlias, Side] = {}
        for settings in configuration.flows:
            target = side(settings.flow, settings.target, settings.target_request_timeout_s)
            source = side(settings.flow, settings.source, settings.source_request_timeout_s)
            targets.setdefault(settings.flow.target, target)
            self._flows.append((settings, TargetInquiry(settings, target), SourceInquiry(settings, source)))
        for emitted in configuration.heartbeats:
            if emitted.flow.target not in targets:
                targets[emitted.flow.target] = side(emitted.flow, emitted.target, emitted.request_timeout_s)
        self._groups = [
            GroupInquiry(configuration.groups[target], on, clock=clock, rng=rng) for target, on in targets.items()
        ]

    async def look(self) -> Facts:
        """Return what there is to find out now. What does not answer keeps nothing else back.

        Cancelling loses nothing; the next look goes on.
        """
        async with asyncio.TaskGroup() as tasks:
            for side in self._sides:
                tasks.create_task(side.probe(), name=f"status: is {side.alias} there")
        async with asyncio.TaskGroup() as tasks:
            groups = [tasks.create_task(group.look(), name=f"status: {group.topic}") for group in self._groups]
            flows = [tasks.create_task(self._look_at(*parts), name=f"status: {parts[0].flow}") for parts in self._flows]
        clusters: dict[ClusterAlias, str] = {}
        for side in self._sides:
            clusters[side.alias] = clusters.get(side.alias) or side.away
        return Facts(
            self._clock.wall_ms(),
            dict(sorted(clusters.items())),
            [group.result() for group in groups],
            [flow.result() for flow in flows],
            self._refused,
        )

    async def _look_at(self, settings: FlowSettings, target: TargetInquiry, source: SourceInquiry) -> FlowFacts:
        await target.look()
        # Behind the positions, so that no end is older than a position.
        await source.look(target.positions, with_starts=not target.positions_unread)
        return FlowFacts(
            settings,
            positions=target.positions,
            gaps=target.gaps,
            lives=target.lives,
            selected=source.selected,
            starts=source.starts,
            ends=source.ends,
            positions_unread=target.positions_unread,
            status_unread=target.status_unread,
            source_unread=tuple(source.unread),
        )

    async def close(self) -> None:
        """Close all connections."""
        for brokers in self._opened:
            await brokers.close()
