"""Asks how ready a flow is for a recovery, by connections of its own. It asks both clusters, no worker."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Sequence

from mm2py.clock import SystemClock
from mm2py.config.configuration import SettingsFile
from mm2py.config.settings import FlowSettings
from mm2py.dr.readiness import RecoveryReadiness, readiness_of, target_away
from mm2py.dr.readiness_inquiry import LookedAt, ask_readiness
from mm2py.flow_sides import settings_of_workers, sides_of
from mm2py.logs import make_logger
from mm2py.status.consumer_groups import ConsumerGroupReport
from mm2py.status.flow_look import look_at_flow
from mm2py.status.target_alone import GroupsQuestion, TargetUnread


async def ask_flow_readiness(
    file: SettingsFile, settings: FlowSettings, say: Callable[[str], None]
) -> RecoveryReadiness:
    """Ask both clusters of a flow how ready it is, with the flow's own credentials.

    Args:
        say: is told if the stored settings cannot be used.
    Raises: ConfigError; ClusterFailed.
    """
    clock, rng = SystemClock(), random.Random()  # noqa: S311  (spreads retries; nothing secret)
    async with sides_of("dr", settings) as (source, target):
        if target.away:
            return target_away(settings.flow, clock.wall_ms(), source.away, target.away)
        used, _ = await settings_of_workers(file, settings, target, say)
        look = await look_at_flow("dr", file.path, settings, settles=True)
        groups: Sequence[ConsumerGroupReport] | None = None
        unread = ""
        if used.checkpoints is not None:
            question = GroupsQuestion(used, source, target, clock, make_logger("error", "text", io.StringIO()))
            try:
                _, unread, groups = await question.ask()
            except TargetUnread as error:
                unread = str(error)
        clusters = look.report.clusters
        looked = LookedAt(
            look.report.at_ms,
            clusters.get(settings.flow.source, "") or source.away,
            clusters.get(settings.flow.target, "") or target.away,
            look.flow,
            groups,
            unread,
        )
        return readiness_of(await ask_readiness(file, looked, source, target, clock=clock, rng=rng))
