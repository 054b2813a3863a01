"""The record that a life of a flow leaves of itself, also where the status topic could not be used when it began.

It has one purpose: two processes that run one flow see each other. MirrorMaker 2's workers have their group for this.
"""

from __future__ import annotations

from collections.abc import Callable

from structlog.typing import FilteringBoundLogger

from connectors.source.incarnations import Incarnations
from connectors.source.kept_gaps import KeptGaps
from connectors.source.takeover import EarlierLives
from mm2py.errors import Mm2Error
from mm2py.flow import Flow
from mm2py.kafka.producer.incarnation import Incarnation
from mm2py.kafka.producer.transactional_ids import TransactionalId
from mm2py.replication.status_log import StatusLog


class StatusIsBack(Mm2Error):
    """This life has begun without reading of others that may still write, and a next one can."""

    def __init__(self, flow: Flow, topic: str, other: TransactionalId) -> None:
        super().__init__(
            f"Flow {flow} is begun anew: {topic} can be used now, and names {other}, which may still be writing.",
            remedy="",
        )


class OwnRecord:
    """Of one life. ``entered`` if it could be written before positions were believed; else ``look`` goes on trying."""

    def __init__(
        self,
        flow: Flow,
        gaps: KeptGaps,
        incarnation: Incarnation,
        lives: EarlierLives,
        *,
        topic: str,
        make: Callable[[StatusLog], Incarnations],
        log: FilteringBoundLogger,
    ) -> None:
        self.incarnations: Incarnations | None = None
        """None while there is no record: of others that run the flow only positions and coordinators tell."""
        self.missing: str | None = (
            f"no record of this process could be written to {topic}: nobody stops if two processes run the flow"
        )
        """What is not as it should be, if so."""
        self._flow = flow
        self._gaps = gaps
        self._incarnation = incarnation
        self._lives = lives
        self._topic = topic
        self._make = make
        self._log = log

    def entered(self, incarnations: Incarnations) -> None:
        """Take in that this life has left its record."""
        self.incarnations, self.missing = incarnations, None
        self._incarnation.announce = incarnations.announce

    async def look(self) -> None:
        """Look for younger lives once the status topic was read; before, leave the record if there is none.

        The story: the topic takes nothing while w1 begins, and hangs for a minute each time that it is opened. w1 has
        asked coordinators whom to shut out, so its record is all that is missing; to begin anew for that would be slow
        again, and again. Only whom it has not shut out is a reason, and once: that one can read of this process then.

        Raises:
            Fenced: a younger life has begun.
            StatusIsBack: this life has left its record, and must begin anew.
            TakenOver, KafkaError: as ``Incarnations.enter_late``.
        """
        if self.incarnations is not None:
            self.incarnations.notice()
            return
        incarnations = self._make(await self._gaps.open())
        unknown = await incarnations.enter_late(self._incarnation, self._lives)
        for other in unknown:
            if not incarnations.is_own(other) and not incarnations.is_behind(other):
                raise StatusIsBack(self._flow, self._topic, other)
        self.entered(incarnations)
        if unknown:
            self.missing = f"{unknown[0]} was not shut out when this process began, and may still be writing"
        self._log.info("incarnation.recorded_late", topic=self._topic, not_shut_out=len(unknown))
        await incarnations.shut_out(self._lives)

    async def write_again(self) -> None:
        """Leave it once more: the topic was deleted, and made anew. Raises: as ``StatusLog.put``."""
        if self.incarnations is not None:
            await self.incarnations.enter_again()
