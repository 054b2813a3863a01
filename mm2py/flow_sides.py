"""The two clusters of a flow, for who asks them once: a command, or a call of a recovery."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, TypeVar

from mm2py.clock import SystemClock
from mm2py.config.configuration import SettingsFile
from mm2py.config.settings import FlowSettings
from mm2py.errors import Mm2Error
from mm2py.flow import ClusterAlias
from mm2py.flow_clusters import both_of
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.port import Brokers
from mm2py.records.connector_config import DecidedBy, FlowConfig
from mm2py.shared_settings.config_log import ConfigTable
from mm2py.shared_settings.follow import merged_or_file
from mm2py.status.cluster_inquiry import InquirySide, patience_of_commands

DEADLINE_S: Final = 30.0
"""How long a cluster may take to be read or written, and a running flow to answer."""

T = TypeVar("T")


class ClusterFailed(Mm2Error):
    """A cluster does not answer, or does not do what is asked for."""


class FlowSides(NamedTuple):
    """Both clusters of a flow."""

    source: InquirySide
    target: InquirySide

    @property
    def answering(self) -> dict[ClusterAlias, Brokers]:
        """The brokers of those that answer."""
        return {side.alias: side.brokers for side in self if not side.away}


@asynccontextmanager
async def sides_of(command: str, settings: FlowSettings) -> AsyncIterator[FlowSides]:
    """Connect to both clusters of a flow, and find out whether they answer. It takes 2 s at most.

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


def require(sides: FlowSides, *, needs_target: bool = True) -> None:
    """Raise ClusterFailed if a cluster that is needed does not answer."""
    for side in sides if needs_target else (sides.source,):
        if side.away:
            raise ClusterFailed(side.away, remedy="")


async def settings_of_workers(
    file: SettingsFile, settings: FlowSettings, target: InquirySide, say: Callable[[str], None]
) -> tuple[FlowSettings, FlowConfig | None]:
    """Return the settings by which the workers run a flow, as ``as_workers_run_by``.

    Raises:
        ClusterFailed: the target does not answer.
    """
    found: list[tuple[FlowSettings, FlowConfig | None]] = []

    async def read() -> None:
        found.append(await as_workers_run_by(file, settings, target.brokers, say))

    if why := await target.why_not("reading settings", read):
        raise ClusterFailed(why, remedy="")
    return found[-1]


async def as_workers_run_by(
    file: SettingsFile, settings: FlowSettings, target: Brokers, say: Callable[[str], None]
) -> tuple[FlowSettings, FlowConfig | None]:
    """Return the settings by which the workers run a flow, those that are stored with the addresses of the file, and
    the stored settings if they count; None: those of the file do.

    If the stored settings cannot be read or used, ``say`` is told so, and the settings of the file count.
    """
    table = ConfigTable(target, settings.configs_topic)
    try:
        await table.read()
        config = table.config
        stored = config.previous if config is not None and config.by is DecidedBy.MM2 else config
        return merged_or_file(file, settings, stored), stored
    except Mm2Error as error:
        say(f"{error} The settings of the file are used.")
        return settings, None


async def in_time(
    cluster: ClusterAlias, work: Coroutine[Any, Any, T], doing: str, *, deadline_s: float | None = None
) -> T:
    """Return what ``work`` returns.

    Args:
        doing: what the work is, for the message that it took too long.
        deadline_s: None: ``DEADLINE_S``.
    Raises:
        ClusterFailed: the cluster does not answer in time, or refuses.
    """
    deadline_s = DEADLINE_S if deadline_s is None else deadline_s
    try:
        async with asyncio.timeout(deadline_s):
            return await work
    except TimeoutError as error:
        raise ClusterFailed(
            f"{cluster} does not answer: {doing} took more than {deadline_s:g} s.",
            remedy=f"Check {cluster}.bootstrap.servers and the network.",
        ) from error
    except BrokerRefused as error:
        raise ClusterFailed(error.what, remedy=error.remedy) from error


async def of_both(sides: FlowSides, work: Coroutine[Any, Any, T], doing: str, *, deadline_s: float = DEADLINE_S) -> T:
    """Return what ``work`` returns, which asks both clusters.

    Raises: ClusterFailed, as ``in_time``; if the target is the one that is silent, it is named.
    """
    try:
        return await in_time(sides.source.alias, work, doing, deadline_s=deadline_s)
    except ClusterFailed as error:
        was_away = sides.target.away
        if isinstance(error.__cause__, TimeoutError) and not was_away:
            await sides.target.probe()
            if sides.target.away:
                raise ClusterFailed(f"{doing[:1].upper()}{doing[1:]}: {sides.target.away}", remedy="") from error
        raise
