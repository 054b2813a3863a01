"""Changes of the offsets of a flow's connectors over REST, while they are stopped."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings, GroupSettings
from mm2py.connector_offsets.altering import Clusters, ConnectorOffsets
from mm2py.flow import Kind
from mm2py.flow_clusters import Connected
from mm2py.shared_settings.config_log import ConfigTable
from mm2py.status.cluster_inquiry import GroupInquiry, InquirySide

ALTER_MOST_S: Final = 60.0


class OffsetChanges:
    """Alters the offsets of one flow, one request after the other. Connects at the first one."""

    def __init__(
        self,
        connect_source: Callable[[], Connected],
        connect_target: Callable[[], Connected],
        group: GroupSettings,
        *,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        """``group``: the group of the workers that run the flow."""
        self._connect_source = connect_source
        self._connect_target = connect_target
        self._group = group
        self._clock = clock
        self._rng = rng
        self._clusters: Clusters | None = None
        self._altering = asyncio.Lock()

    async def alter(self, kind: Kind, body: object, settings: FlowSettings) -> str:
        """Set the offsets in a body; ``settings`` are those with which the workers run the flow.

        Raises: as ``ConnectorOffsets.alter``. TimeoutError: a cluster does not answer.
        """
        async with self._altering, asyncio.timeout(ALTER_MOST_S):
            return await self._of(settings).alter(kind, body)

    async def reset(self, kind: Kind, settings: FlowSettings) -> str:
        """Delete all offsets of a connector. Arguments, raises: as ``alter``."""
        async with self._altering, asyncio.timeout(ALTER_MOST_S):
            return await self._of(settings).reset(kind)

    def _of(self, settings: FlowSettings) -> ConnectorOffsets:
        if self._clusters is None:
            target = self._connect_target()
            group = GroupInquiry(
                self._group, InquirySide(settings.flow.target, target), clock=self._clock, rng=self._rng
            )
            configs = ConfigTable(target, settings.configs_topic)
            self._clusters = Clusters(self._connect_source(), target, configs, group, self._clock, self._rng)
        return ConnectorOffsets(settings, self._clusters)
