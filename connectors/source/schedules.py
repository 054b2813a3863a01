"""The schedules that keep settings and ACLs of remote topics in step with their upstream topics.

Answers to the schedules that MM2's MirrorSourceConnector starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any

from connectors.source.acl_sync import AclSync
from connectors.source.context import FlowContext
from connectors.source.copying.lookups import RemoteRules
from connectors.source.copying.task import SourceTask
from connectors.source.discovery.discovery import Discovery
from connectors.source.discovery.starting_offsets import StartingOffsets
from connectors.source.topic_sync import TopicConfigSync, repeat
from mm2py.config.settings import FlowSettings
from mm2py.settings.flow_config import Part


class Schedules:
    """The schedules of one flow. Changed settings restart the schedule that they concern."""

    def __init__(
        self,
        context: FlowContext,
        task: SourceTask,
        starting_offsets: StartingOffsets,
        discovery: Discovery,
    ) -> None:
        self._context = context
        self._task = task
        self._starting_offsets = starting_offsets
        self._discovery = discovery
        self._ownership = context.ownership
        self._looked_at = 0
        """How many partitions were listed when ACLs were synced last."""
        self._was_coordinator = context.ownership.is_coordinator
        self._changed = {Part.TOPIC_CONFIGS: asyncio.Event(), Part.TOPIC_ACLS: asyncio.Event()}

    def change(self, parts: Collection[Part]) -> None:
        """Restart the schedules that ``parts`` name, by their new settings."""
        for part in self._changed.keys() & set(parts):
            self._changed[part].set()

    async def run(self) -> None:
        """Run until cancelled. They start when the first topics are copied.

        The flow coordinator does all of it, for the topics that it has listed. The other workers only read the settings
        that decide how they write. Nothing is changed on remote topics of refused topics: another flow may own them.
        """
        await self._discovery.made.wait()
        name = self._context.flow
        async with asyncio.TaskGroup() as schedules:
            schedules.create_task(
                self._keep(Part.TOPIC_CONFIGS, self._sync_configs), name=f"{name} sync of topic configurations"
            )
            schedules.create_task(self._keep(Part.TOPIC_ACLS, self._sync_acls), name=f"{name} sync of ACLs")

    async def _keep(self, part: Part, schedule: Callable[[FlowSettings], Coroutine[Any, Any, None]]) -> None:
        changed = self._changed[part]
        while True:
            changed.clear()
            running = asyncio.create_task(schedule(self._context.settings), name=part.name)
            news = asyncio.create_task(changed.wait(), name=f"{part.name} changed")
            try:
                await asyncio.wait([running, news], return_when=asyncio.FIRST_COMPLETED)
                if running.done():
                    running.result()
                    await news  # it is switched off
            finally:
                running.cancel()
                news.cancel()
                await asyncio.gather(running, news, return_exceptions=True)

    async def _sync_configs(self, settings: FlowSettings) -> None:
        if settings.sync_topic_configs_interval_s is None:
            return
        rules = RemoteRules(self._context)

        async def changed(settings_of: Mapping[str, Mapping[str, str]]) -> None:
            await rules.learn(settings_of, self._task.partitions.values())

        configs = TopicConfigSync(
            self._context, topics=self._topics, refused=self._discovery.refused_configs, changed=changed
        )

        async def sync() -> None:
            self._was_coordinator = self._ownership.is_coordinator
            if self._was_coordinator:
                await configs.run_once()
            else:
                await changed({part.target_topic: {} for part in self._task.partitions.values()})

        await repeat(
            sync,
            name="topic_configs",
            interval_s=settings.sync_topic_configs_interval_s,
            clock=self._context.clock,
            log=self._context.log,
            news=self._is_coordinator_now,
        )

    async def _sync_acls(self, settings: FlowSettings) -> None:
        if settings.sync_topic_acls_interval_s is None:
            return
        acls = AclSync(
            self._context,
            topics=lambda: self._topics().keys(),
            kept=lambda: {name for name, _ in self._starting_offsets.positions},
        )

        async def sync() -> None:
            self._looked_at = self._width() if self._ownership.is_coordinator else 0
            if self._ownership.is_coordinator:
                await acls.run_once()

        await repeat(
            sync,
            name="topic_acls",
            interval_s=settings.sync_topic_acls_interval_s,
            clock=self._context.clock,
            log=self._context.log,
            news=self._is_more_copied,
        )

    def _is_coordinator_now(self) -> bool:
        """A new coordinator does not wait for the interval: the previous one may have left topics out."""
        return self._ownership.is_coordinator and not self._was_coordinator

    def _is_more_copied(self) -> bool:
        """ACLs of a new topic do not wait for the interval; none is granted before the topic is copied."""
        return self._ownership.is_coordinator and self._width() > self._looked_at

    def _width(self) -> int:
        return sum(self._ownership.listed.values())

    def _topics(self) -> dict[str, str]:
        return {name: self._context.settings.remote_topic(name) for name in self._ownership.listed}
