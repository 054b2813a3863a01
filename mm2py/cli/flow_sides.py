"""The two clusters of a flow, for a command that asks them once. It does not wait long for a silent cluster."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from mm2py.cli.command import CommandFailed, as_workers_run_by
from mm2py.clock import SystemClock
from mm2py.config.configuration import SettingsFile
from mm2py.config.settings import FlowSettings
from mm2py.flow_clusters import both_of
from mm2py.records.connector_config import FlowConfig
from mm2py.status.cluster_inquiry import InquirySide, patience_of_commands


class FlowSides(NamedTuple):
    """Both clusters of a flow."""

    source: InquirySide
    target: InquirySide


@asynccontextmanager
async def sides_of(command: str, settings: FlowSettings) -> AsyncIterator[FlowSides]:
    """Connect a command to both clusters of a flow, and find out whether they answer. It takes 2 s at most.

    Args:
        command: becomes part of the client id, if the file sets none.
    """
    rng = random.Random()  # noqa: S311  (spreads retries; nothing secret)
    patience = patience_of_commands(SystemClock())
    async with both_of(command, settings, rng) as (source, target):
        sides = FlowSides(
            InquirySide(settings.flow.source, source, patience),
            InquirySide(settings.flow.target, target, patience),
        )
        try:
            await asyncio.gather(*(side.probe() for side in sides))
            yield sides
        finally:
            for side in sides:
                await side.close()


async def settings_of_workers(
    file: SettingsFile, settings: FlowSettings, target: InquirySide
) -> tuple[FlowSettings, FlowConfig | None]:
    """Return the settings by which the workers run a flow, as ``as_workers_run_by``.

    Raises:
        CommandFailed: the target does not answer.
    """
    found: list[tuple[FlowSettings, FlowConfig | None]] = []

    async def read() -> None:
        found.append(await as_workers_run_by(file, settings, target.brokers))

    if why := await target.why_not("reading settings", read):
        raise CommandFailed(why, remedy="")
    return found[-1]
