"""The schedules that keep remote topics in step with their upstream topics, beside the copying: settings, ACLs.

Answers to the schedules that MM2's MirrorSourceConnector starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from structlog.typing import FilteringBoundLogger

from connectors.source.acl_sync import AclSync
from connectors.source.beginning import Beginning
from connectors.source.refused_configs import RefusedConfigs
from connectors.source.remote_rules import RemoteRules
from connectors.source.repeating import repeat
from connectors.source.task import SourceTask
from connectors.source.topic_sync import TopicConfigSync
from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.kafka.port import Brokers


async def keep_in_step(
    settings: FlowSettings,
    source: Brokers,
    target: Brokers,
    *,
    task: SourceTask,
    beginning: Beginning,
    refused: RefusedConfigs,
    begun: asyncio.Event,
    clock: Clock,
    log: FilteringBoundLogger,
) -> None:
    """Run the schedules of a flow until cancelled. They begin when ``begun`` says that the first topics are copied.

    Nothing is set or granted on remote topics of topics that are refused: they may be somebody else's.
    """

    def topics() -> dict[str, str]:
        return {part.source_topic: part.target_topic for part in task.partitions.values()}

    def kept() -> set[str]:
        return {name for name, _ in beginning.positions}

    looked_at = 0

    async def sync_acls() -> None:
        nonlocal looked_at
        looked_at = len(task.partitions)
        await acls.run_once()

    def more_is_copied() -> bool:
        """Nothing is granted on a topic before it is copied: one that is new need not wait for the interval."""
        return len(task.partitions) > looked_at

    async def changed(settings_of: Mapping[str, Mapping[str, str]]) -> None:
        await rules.learn(settings_of, task.partitions.values())

    rules = RemoteRules(settings, source, target)
    configs = TopicConfigSync(settings, source, target, topics=topics, refused=refused, changed=changed, log=log)
    acls = AclSync(settings, source, target, topics=lambda: topics().keys(), kept=kept, log=log)
    await begun.wait()
    async with asyncio.TaskGroup() as schedules:
        if settings.sync_topic_configs_interval_s is not None:
            schedules.create_task(
                repeat(
                    configs.run_once,
                    interval_s=settings.sync_topic_configs_interval_s,
                    clock=clock,
                    failed=configs.failed,
                    worked=configs.worked,
                ),
                name=f"{settings.flow} sync of topic configurations",
            )
        if settings.sync_topic_acls_interval_s is not None:
            schedules.create_task(
                repeat(
                    sync_acls,
                    interval_s=settings.sync_topic_acls_interval_s,
                    clock=clock,
                    failed=acls.failed,
                    worked=acls.worked,
                    news=more_is_copied,
                ),
                name=f"{settings.flow} sync of ACLs",
            )
