"""Asks whether a MirrorMaker 2 runs the flows that no worker runs. It writes nothing.

During a migration "no worker runs" is no problem if MirrorMaker 2 still does the work. The control log does not show
this, because MirrorMaker 2 has a group of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from mm2py.config.settings import FlowSettings
from mm2py.flow import ClusterAlias, Flow
from mm2py.shared_settings.running_mm2 import Mm2IsRunning, look_for_mm2
from mm2py.status.cluster_inquiry import InquirySide
from mm2py.status.facts import FlowFacts, GroupFacts
from mm2py.status.report import seems_stopped

MOST_S: Final = 2.0
"""How long the question may take. Without an answer the status does not mention MirrorMaker 2."""
KEPT_S: Final = 10.0
"""How long an answer is reused while the status is watched."""


class Mm2Inquiry:
    """Asks whether MirrorMaker 2 runs flows, and keeps each answer for ``KEPT_S``."""

    def __init__(self, targets: Mapping[ClusterAlias, InquirySide]) -> None:
        self._targets = targets
        self._kept: dict[Flow, tuple[float, str]] = {}

    async def look(self, flows: Sequence[FlowFacts], groups: Sequence[GroupFacts], now_ms: int) -> list[FlowFacts]:
        """Return the same flows; those that MirrorMaker 2 runs say so. Cancelling loses nothing."""
        of_target = {group.target: group for group in groups}
        told = await asyncio.gather(
            *(
                self._runs(one.settings)
                if is_without_worker(of_target.get(one.settings.flow.target), one, now_ms)
                else _no()
                for one in flows
            )
        )
        return [replace(one, mm2_runs=text) if text else one for one, text in zip(flows, told, strict=True)]

    async def _runs(self, settings: FlowSettings) -> str:
        now_s = asyncio.get_running_loop().time()
        at_s, text = self._kept.get(settings.flow, (float("-inf"), ""))
        if now_s - at_s >= KEPT_S:
            text = await self._ask(settings)
            self._kept[settings.flow] = (now_s, text)
        return text

    async def _ask(self, settings: FlowSettings) -> str:
        target = self._targets[settings.flow.target]
        text = ""

        async def ask() -> None:
            nonlocal text
            try:
                await look_for_mm2(settings, target.brokers)
            except Mm2IsRunning as running:
                text = text_of(settings.flow, running)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MOST_S):
                await target.why_not("looking for MirrorMaker 2", ask)
        return text


async def _no() -> str:
    return ""


def text_of(flow: Flow, running: Mm2IsRunning) -> str:
    """Return who runs the flow, in a sentence."""
    members = "1 member" if running.members == 1 else f"{running.members} members"
    return f"MirrorMaker 2 runs it: group {running.group} on {flow.target} has {members}."


def is_without_worker(group: GroupFacts | None, flow: FlowFacts, now_ms: int) -> bool:
    """Return whether it is certain that no worker runs a flow.

    Args:
        group: the group of its target; None: there is none.
    """
    if group is None or group.unread:
        return False
    state = group.state
    if state is None or not state.members or flow.settings.flow not in state.flows:
        return True
    return not group.has_grown and (group.has_grown is not None or seems_stopped(state, now_ms))
