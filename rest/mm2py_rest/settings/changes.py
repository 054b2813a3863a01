"""Changes of a flow's settings over REST: checked like the file, then stored for all its workers.

Counterpart: ``PUT /connectors/NAME/config`` of Connect, whose leader writes for all. Here any worker's REST process
writes by compare-and-set, as ``mm2py apply`` does, and no worker is called.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.config.configuration import SettingsFile
from mm2py.config.flow_properties import ENABLED, StoredConfigUnusable
from mm2py.config.settings import FlowSettings
from mm2py.flow import Kind
from mm2py.flow_clusters import Connected
from mm2py.kafka.cluster import until_answered
from mm2py.kafka.write_gate import gated_alone
from mm2py.records.audit_record import AuditRecord
from mm2py.records.author import Author
from mm2py.records.connector_config import DecidedBy, FlowConfig
from mm2py.records.operator_request import Restart, TargetState
from mm2py.records.pause_record import PausedPart, parts_to_resume
from mm2py.shared_settings.config_log import ConfigLog, Lost
from mm2py.shared_settings.flow_config import Difference, changed, difference, reach
from mm2py.shared_settings.flow_owner import refuse_another_group
from mm2py.shared_settings.follow import merged
from mm2py.shared_settings.running_mm2 import refuse_running_mm2

STORE_MOST_S: Final = 20.0
LOG_KEPT_S: Final = 300.0
"""How long the writer is kept for further changes: a new one reads the topic and gets a producer id."""


class Invalid(Exception):
    """Settings are refused, with a reason for each."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__(
            f"Connector configuration is invalid and contains the following {len(errors)} error(s):\n"
            + "\n".join(f"{name}: {why}" for name, why in errors.items())
        )
        self.errors = dict(errors)


class Conflict(Exception):
    """The change was made for another version than the stored one."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What is stored after a change."""

    config: FlowConfig
    restarts: tuple[str, ...]
    """The changed settings for which the flow is drained and restarts; the others take effect while it copies."""


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """What a change of settings would store."""

    config: FlowConfig
    changes: Difference

    @property
    def restarts(self) -> tuple[str, ...]:
        """As ``Changed.restarts``."""
        return tuple(change.name for change in self.changes if not is_in_place(change.name))


def is_in_place(name: str) -> bool:
    """Return whether copying continues while this setting changes."""
    return all(part.is_in_place for part in reach([name]))


class FlowChanges:
    """Stores settings of one flow."""

    def __init__(
        self,
        file: SettingsFile,
        settings: FlowSettings,
        connect: Callable[[], Connected],
        *,
        worker: str,
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """``connect`` connects to the target; records name ``worker`` as their writer."""
        self.flow = settings.flow
        self._file = file
        self._settings = settings
        self._connect = connect
        self._worker = worker
        self._clock = clock
        self._rng = rng
        self._say = log
        self._brokers: Connected | None = None
        self._log: ConfigLog | None = None
        self._log_until_s = float("-inf")
        self._changing = asyncio.Lock()

    @property
    def by_file(self) -> Mapping[str, str]:
        """The flow's settings in this worker's file. They apply while nothing is stored."""
        return self._file.shared(self.flow)

    async def change(
        self, wanted: Callable[[FlowConfig | None], Mapping[str, str]], *, version: int | None, author: Author
    ) -> Changed:
        """Store settings.

        Args:
            wanted: takes the settings stored now, and returns all settings to store.
            version: the version that must be stored now; None: any.
            author: the user who asks for the change.
        Raises:
            Conflict: another version is stored, or another writer was quicker.
            Invalid: the flow cannot run with these settings.
            Mm2IsRunning: a live MirrorMaker 2 runs the flow, and would follow what is written.
            FlowOfAnotherGroup: workers of another group run it.
            TimeoutError: the target does not answer. Others as ``ConfigLog.write``.
        After cancelling, the change may be stored or not.
        """
        async with self._changing, asyncio.timeout(STORE_MOST_S):
            log = await self._config_log_to_write()
            await log.read_patiently(self._rng)
            stored = log.config
            if version is not None and version != (0 if stored is None else stored.version):
                raise Conflict(f"Version {0 if stored is None else stored.version} is stored, and not {version}.")
            planned = self.plan(stored, wanted(stored))
            if stored is not None and not planned.changes and stored.by is not DecidedBy.MM2:
                return Changed(stored, ())
            outcome = await log.write(replace(planned.config, author=author), instead_of=stored)
            if isinstance(outcome, Lost):
                raise Conflict("Another writer has changed it at the same time. Read it again, and repeat the change.")
            return Changed(outcome.config, planned.restarts)

    def plan(self, stored: FlowConfig | None, wanted: Mapping[str, str]) -> PlannedChange:
        """Return what would be stored in the place of ``stored``. Raises: Invalid, the flow cannot run with it."""
        before = self.by_file if stored is None else stored.properties
        properties = {ENABLED: before.get(ENABLED, "true"), **wanted}
        config = changed(stored, properties, DecidedBy.REST)
        try:
            merged(self._file.switching_on(self.flow), self.flow, config)
        except StoredConfigUnusable as error:
            raise Invalid({str(self.flow): error.what}) from error
        return PlannedChange(config, difference(before, properties))

    async def direct(self, kind: Kind, state: TargetState, author: Author) -> None:
        """Pause, stop or resume a connector on all workers, also after restarts; ``author`` asks for it.

        Raises: as ``ConfigLog.write_target``. Mm2IsRunning, FlowOfAnotherGroup, TimeoutError: as ``change``.
        """
        async with self._changing, asyncio.timeout(STORE_MOST_S):
            await (await self._config_log_to_write()).write_target(kind, state, by=author.by_rest, author=author)

    async def pause(self, parts: Sequence[PausedPart], author: Author) -> None:
        """Pause topics or partitions on all workers, also after restarts; ``author`` asks for it. Raises: as
        ``direct``."""
        async with self._changing, asyncio.timeout(STORE_MOST_S):
            log = await self._config_log_to_write()
            await log.write_pauses(parts, is_paused=True, by=author.by_rest, author=author)

    async def resume(self, parts: Sequence[PausedPart], author: Author) -> list[PausedPart]:
        """Let topics or partitions go on. Return those that were paused. Raises: as ``direct``; PausedAsAWhole."""
        async with self._changing, asyncio.timeout(STORE_MOST_S):
            log = await self._config_log_to_write()
            ended = parts_to_resume(log.records.pauses, parts)
            return await log.write_pauses(ended, is_paused=False, by=author.by_rest, author=author)

    async def restart(self, what: Restart, author: Author) -> None:
        """Ask all workers that run now to restart a connector, a topic or a partition. Raises: as ``direct``."""
        async with self._changing, asyncio.timeout(STORE_MOST_S):
            restart = replace(what, by=author.by_rest, author=author)
            await (await self._config_log_to_write()).write_restart(restart)

    async def set_log_level(self, level: str, author: Author) -> None:
        """Make all workers of the flow log at this level, named as in Connect. Raises: as ``direct``."""
        async with self._changing, asyncio.timeout(STORE_MOST_S):
            log = await self._config_log_to_write()
            await log.write_log_level(level, by=author.by_rest, author=author)

    async def store_audit(self, record: AuditRecord) -> None:
        """Store a user's change on the target, in the configs topic. Raises: as ``ConfigLog.write``.

        A live MirrorMaker 2 ignores the record, so it is stored in any case.
        """
        await self._config_log().append_audit(record)

    async def _config_log_to_write(self) -> ConfigLog:
        """Return the writer, if neither a MirrorMaker 2 nor another group runs the flow. Raises: as ``change``."""
        log = self._config_log()
        assert self._brokers is not None  # noqa: S101
        brokers = self._brokers
        await until_answered(lambda: refuse_running_mm2(self._settings, brokers, self._say), rng=self._rng)
        await log.read_patiently(self._rng)
        await refuse_another_group(self._settings, log, brokers, clock=self._clock, rng=self._rng, log=self._say)
        return log

    def _config_log(self) -> ConfigLog:
        """Return the writer, a new one after ``LOG_KEPT_S``.

        The story: an operator pauses a flow, and resumes it the next morning. The brokers may forget a producer that
        was idle for hours, so its gate refuses all writes; and a producer that was fenced stays fenced.
        """
        if self._brokers is None:
            self._brokers = self._connect()
        now_s = self._clock.monotonic()
        if self._log is None or now_s >= self._log_until_s:
            brokers = gated_alone(self._brokers, self._clock)
            self._log = ConfigLog(brokers, self._settings, worker=self._worker, clock=self._clock, rng=self._rng)
            self._log_until_s = now_s + LOG_KEPT_S
        return self._log
