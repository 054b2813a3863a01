"""The hold of a backfill: the record that makes the live flow wait. The backfill's driver renews it.

A driver that dies leaves its hold. The hold then shows its age, and the operator may resume the backfill or abandon it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from mm2py.clock import Clock
from mm2py.errors import Mm2Error
from mm2py.records.backfill_record import DEAD_AFTER_MS, Backfill, BackfillState
from mm2py.records.connector_config import FlowConfig
from mm2py.shared_settings.config_log import ConfigLog, Lost

RENEW_EVERY_S: Final = 5.0
HEEDED_AFTER_S: Final = 5.0
"""Within this time every worker that can read the configs topic stops copying the topics.

Workers read that topic twice a second.
"""


class NotHeld(Mm2Error):
    """A backfill cannot be begun, resumed or abandoned in its present state."""


class SettingsChangedMeanwhile(Mm2Error):
    """Another writer has changed the stored settings since the operator was asked."""

    def __init__(self, backfill_id: str) -> None:
        super().__init__(
            f"Another writer has changed the settings meanwhile: backfill {backfill_id} has stored none.",
            remedy="Start it again, and look what it would store.",
        )


def refuse_living_driver(backfill: Backfill, now_ms: int) -> None:
    """Raises: NotHeld, if the driver of a backfill runs."""
    silent_ms = now_ms - backfill.seen_at_ms
    if backfill.holds and silent_ms < DEAD_AFTER_MS:
        raise NotHeld(
            f"Backfill {backfill.id} runs: its driver ({backfill.by}) wrote {silent_ms // 1000} s ago.",
            remedy=f"Stop that first (Ctrl-C), or wait {DEAD_AFTER_MS // 1000} s if it has died.",
        )


def refuse_held(topics: list[str], others: list[Backfill]) -> None:
    """Raises: NotHeld, if another backfill has one of these topics."""
    for other in others:
        for topic in topics:
            if other.holds and topic in other.topics:
                raise NotHeld(
                    f"Backfill {other.id} ({other.by}) copies {topic}, or was to.",
                    remedy=f"Resume it (--resume {other.id}) or end it (--abandon {other.id}) first.",
                )


def outlives_failed_start(backfill: Backfill) -> bool:
    """Whether the hold stays if the driver fails before it copies anything.

    A backfill that has just begun releases its topics: nothing has changed. A filtered backfill that was resumed has
    copied some records and left others out. If its hold ended, the workers would copy the rest unfiltered.
    """
    return backfill.is_filtered and backfill.run > 0


class Hold:
    """The record of one backfill."""

    def __init__(self, config_log: ConfigLog, backfill: Backfill, clock: Clock) -> None:
        self.backfill = backfill
        self._config_log = config_log
        self._clock = clock

    async def begin(self) -> None:
        """Make the live flow wait from now on. Returns when every worker that can read the hold has read it.

        Raises:
            NotHeld: another backfill began with one of the topics, or another driver resumed this one.
            Others as ``ConfigLog.write_backfill``.
        """
        await self._write(replace(self.backfill, state=BackfillState.COPYING, reason=""))
        await asyncio.sleep(HEEDED_AFTER_S)
        await self._refuse_taken()
        others = [one for one in self._config_log.records.backfills.values() if one.id != self.backfill.id]
        try:
            refuse_held(list(self.backfill.topics), others)  # if both began in the same moment, both end
        except NotHeld as error:
            await self.end(BackfillState.STOPPED, str(error))
            raise

    async def select(self, wanted: FlowConfig, *, instead_of: FlowConfig) -> None:
        """Store settings that select the topics for the flow. Workers read the hold first: it was written before them.

        Raises:
            NotHeld: another driver has ended or resumed the backfill.
            SettingsChanged: nothing was stored.
            Others as ``ConfigLog.write``. After these, and after cancelling, the settings may have been stored.
        """
        await self._refuse_taken()
        if isinstance(await self._config_log.write(wanted, instead_of=instead_of), Lost):
            raise SettingsChangedMeanwhile(self.backfill.id)

    async def keep(self) -> None:
        """Renew the hold every ``RENEW_EVERY_S``, until cancelled: it shows that the driver is alive.

        Raises:
            NotHeld: another driver has ended or resumed the backfill. The story: this driver was suspended for a
                minute, and an operator thought that it was dead.
            Others as ``ConfigLog.write_backfill``.
        """
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            await self._refuse_taken()
            await self._write(self.backfill)

    async def _refuse_taken(self) -> None:
        await self._config_log.read_patiently(self._config_log.rng)
        found = self._config_log.records.backfills.get(self.backfill.id)
        if found is None or not found.holds or (found.run, found.by) != (self.backfill.run, self.backfill.by):
            told = "is gone" if found is None else f"was resumed by {found.by}" if found.holds else f"is {found.state}"
            raise NotHeld(
                f"Backfill {self.backfill.id} {told}: another driver has changed that.",
                remedy="mm2py status shows how it stands. This driver does nothing more.",
            )

    async def end(self, state: BackfillState, reason: str = "") -> None:
        """Let the live flow continue where the copied ranges end. Raises: as ``begin``."""
        await self._write(replace(self.backfill, state=state, reason=reason))

    async def _write(self, backfill: Backfill) -> None:
        backfill = replace(backfill, seen_at_ms=self._clock.wall_ms())
        await self._config_log.write_backfill(backfill)
        self.backfill = backfill
