"""The state of one group, read from its control log as members read it, without joining."""

from __future__ import annotations

import asyncio
import contextlib
import io
import random
from typing import Final

from mm2py.clock import Clock
from mm2py.config.settings import GroupSettings
from mm2py.errors import Mm2Error
from mm2py.group.log.control_log import ControlLog, ControlLogLost
from mm2py.group.log.partition_leader import MISSING_S
from mm2py.group.log.topic import ControlLogMissing
from mm2py.group.view.membership import View
from mm2py.logs import make_logger
from mm2py.status.asking import AGAIN_S, Side
from mm2py.status.facts import GroupFacts
from mm2py.status.report import seems_stopped
from mm2py.topics.internal import control_log

LOOK_ON_BEATS: Final = 4
"""If a log does not grow for so many heartbeat intervals, no worker runs."""
LOOK_ON_LEAST_S: Final = 1.5
HELD_UP_S: Final = MISSING_S + 2.0
"""How long reading may fail before we give up. By then it is known whether the log was deleted."""


class ControlLogSilent(Mm2Error):
    """The control log cannot be read at the moment, although the target answers."""

    def __init__(self, why: str) -> None:
        super().__init__(why, remedy="")


class GroupInquiry:
    """The first look starts at the newest snapshot, the others read on."""

    def __init__(self, settings: GroupSettings, target: Side, *, clock: Clock, rng: random.Random) -> None:
        self._settings = settings
        self._target = target
        self._clock = clock
        topic = control_log(settings.name, producer_expiry_ms=0)
        self.topic = str(topic.name)
        self._log = ControlLog(
            target.brokers,
            topic,
            replication_factor=-1,
            poll_s=0.0,
            append_timeout_s=1.0,
            only_reads=True,
            clock=clock,
            rng=rng,
            log=make_logger("error", "text", io.StringIO()),
        )
        self._view: View | None = None
        self._looked: tuple[float, int] | None = None
        """When the log was read last, by our clock, and up to which offset."""

    async def look(self) -> GroupFacts:
        """Read what is new. If the last record does not show that a worker runs, watch whether the log grows."""
        before = self._looked
        unread = await self._read()
        has_grown: bool | None = None
        if not unread and self._view is not None and seems_stopped(self._view, self._clock.wall_ms()):
            now_s = self._clock.monotonic()
            look_on_s = max(LOOK_ON_LEAST_S, LOOK_ON_BEATS * self._settings.heartbeat_interval_s)
            if before is None or (before[1] == self._view.next_offset and now_s - before[0] < look_on_s):
                before = (now_s, self._view.next_offset)
                await asyncio.sleep(look_on_s)
                unread = await self._read()
            has_grown = self._view is not None and self._view.next_offset > before[1]
        if unread or self._view is None:
            self._looked = None
        elif before is None or before[1] != self._view.next_offset:
            self._looked = (self._clock.monotonic(), self._view.next_offset)
        return GroupFacts(
            self._settings.target, self._settings.name, self.topic, None if unread else self._view, unread, has_grown
        )

    async def _read(self) -> str:
        why = await self._target.why_not(f"reading {self.topic}", self._read_while_it_answers)
        if why:
            self._view = None  # read it from the newest snapshot next time
        return why

    async def _read_while_it_answers(self) -> None:
        """Reading the control log retries for ever, as members need it. Here it stops after a while of failures."""
        reading = asyncio.ensure_future(self._read_on())
        failing_s = 0.0
        try:
            while not reading.done():
                await asyncio.wait({reading}, timeout=AGAIN_S)
                failing_s = failing_s + AGAIN_S if self._log.trouble else 0.0
                if failing_s >= HELD_UP_S and not reading.done():
                    raise ControlLogSilent(self._log.trouble)
            reading.result()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read_on(self) -> None:
        with contextlib.suppress(ControlLogMissing):
            try:
                if self._view is None:
                    await self._open()
                await self._to_the_end()
            except ControlLogLost:
                self._view = None
                await self._open()

    async def _open(self) -> None:
        opening = await self._log.open()
        view = View() if opening.state is None else View.from_json(opening.state, where=self.topic)
        for entry in opening.entries:
            view.take(entry)
        self._view = view

    async def _to_the_end(self) -> None:
        while self._view is not None:
            before = self._log.next_offset
            for entry in await self._log.read():
                self._view.take(entry)
            if self._log.next_offset == before and not self._log.trouble:
                return
