"""Whether this worker may copy one flow now, or the flow is standby: settled at its start, followed while it runs.

``direction.py`` has the rules. The flow's own record is in its configs topic, which ``ConfigWatch`` reads. If the flow
back must not be on at the same time, its record is read as well, on this flow's source.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Callable
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.config.internal_topics import topics_of_flow
from mm2py.config.settings import FlowSettings
from mm2py.errors import Mm2Error
from mm2py.kafka.cluster import until_answered
from mm2py.kafka.internal_topic import find_or_make
from mm2py.kafka.port import Brokers
from mm2py.records.direction_record import Direction
from mm2py.shared_settings.config_log import ConfigLog, ConfigTable
from mm2py.shared_settings.current_settings import CurrentSettings
from mm2py.shared_settings.direction import Seen, both_on, first_direction, hold_of

BACK_POLL_S: Final = 1.0
"""How often the flow back is looked at."""


class DirectionWatch:
    """Keeps ``current.standby`` up to date: call ``settle`` whenever the flow starts, then ``run``."""

    def __init__(
        self,
        by_file: FlowSettings,
        config_log: ConfigLog,
        current: CurrentSettings,
        *,
        target: Brokers,
        source: Callable[[], Brokers],
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """Make one.

        Args:
            by_file: the settings of the flow in this worker's file.
            target: to make internal topics while the flow is standby.
            source: connects to the source, once the flow back is looked at.
        """
        self._by_file = by_file
        self._config_log = config_log
        self._current = current
        self._target = target
        self._connect_source = source
        self._rng = rng
        self._log = log
        self._back: ConfigTable | None = None
        self._known: Direction | None = None
        self._are_topics_made = False

    @property
    def must_be_known(self) -> bool:
        """Whether the flow must not run before what is stored was read."""
        return self._by_file.standby or self._by_file.flow_back is not None

    async def settle(self) -> None:
        """Store the first value if nothing is stored, and find out whether the flow is standby.

        What is stored must have been read before. While the flow is standby, its internal topics are made.
        Raises: Mm2Error, if the flow back cannot be read, or a topic cannot be made.
        """
        if not self.must_be_known:
            self.heed()
            return
        if self._by_file.flow_back is not None:
            if self._back is None:
                self._back = ConfigTable(self._connect_source(), self._by_file.flow_back.configs_topic)
            await self._read_back(self._back)
            # A flow that is off stays so, whatever the flow back is. The story: A is lost, and A->B is turned off. Its
            # workers must be able to say that they have drained it while A does not answer.
        if self._config_log.records.direction.current is None:
            first = self._known or first_direction(standby=self._by_file.standby, other=self._other())
            await self._config_log.turn(first, instead_of=None)
        self.heed()
        if self._current.standby is not None and not self._are_topics_made:
            await self._make_topics()

    async def _read_back(self, back: ConfigTable) -> None:
        """Read the flow back, unless this flow is off: by what is stored now, not by what was stored before.

        The story: a worker starts while A is lost. It has read that A->B is on, and waits for A. ``mm2py dr failover``
        ends A->B, and clients go on on B. When A returns, the worker would copy what only A has, behind what clients
        have written, and B->A would begin behind that: A would never get it.
        """
        reading = asyncio.ensure_future(back.read_patiently(self._rng))
        try:
            while (own := self._own()).stored is None or own.is_on:
                if reading.done():
                    reading.result()
                    return
                await asyncio.wait({reading}, timeout=BACK_POLL_S)
                await self._config_log.read_patiently(self._rng)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    def heed(self) -> None:
        """Follow what was read last. While the configs topic is missing, its last content counts."""
        if self._config_log.is_missing:
            return
        self._known = self._config_log.records.direction.current or self._known
        own, other, back = self._own(), self._other(), self._by_file.flow_back
        self._current.leaves_out = frozenset(() if own.stored is None else own.stored.leaves_out)
        hold = hold_of(own, None if back is None else back.flow, other)
        if not self._current.stand_by(hold):
            return
        if both_on(own, other):
            assert back is not None and other is not None  # noqa: S101
            self._log.error(
                "flow.both_on",
                why=f"{self._by_file.flow} is {own.text}, and {back.flow} is {other.text}: their records would be"
                " copied to and fro",
                effect="both stop",
                remedy=f"Turn one of them off: mm2py dr turn FILE '{self._by_file.flow}' --off, or the same for"
                f" '{back.flow}'.",
            )
        elif hold is not None:
            self._log.info("flow.standby", why=hold.text)
        else:
            self._log.info("flow.turned_on", why=own.text)

    async def keep(self) -> None:
        """Write what counts again if it is gone, or covered by a turn that does not count. Raises: as ``ConfigLog``."""
        records = self._config_log.records.direction
        if self._known is not None and (records.current is None or records.is_covered):
            self._log.warning("flow.direction_restored", why=self._known.text)
            await self._config_log.restore_direction(self._known)

    async def run(self) -> None:
        """Look at the flow back from time to time, until cancelled. While it cannot be read, its last content counts:
        a source that does not answer gives nothing to copy."""
        while True:
            await asyncio.sleep(BACK_POLL_S)
            if self._back is None:
                continue
            try:
                await self._back.read()
            except Mm2Error as error:
                self._log.debug("direction.unread", why=str(error))
                continue
            self.heed()

    def _own(self) -> Seen:
        records = self._config_log.records.direction
        return Seen(records.current or self._known, self._by_file.standby, records.offset)

    def _other(self) -> Seen | None:
        back = self._by_file.flow_back
        if back is None or self._back is None:
            return None
        records = self._back.records.direction
        return Seen(records.current, back.standby, records.offset)

    async def _make_topics(self) -> None:
        """Make the topics that the flow needs once it is turned on. Raises: Mm2Error."""
        settings = self._current.settings or self._by_file
        for one in topics_of_flow(settings):
            if not one.on_source:
                make = functools.partial(
                    find_or_make, self._target, one.topic, one.replication_factor, setting=one.setting
                )
                await until_answered(make, rng=self._rng)
        self._are_topics_made = True
