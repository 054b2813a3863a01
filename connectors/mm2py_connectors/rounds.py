"""A connector that works in rounds: an error is logged when it lasts, and the round is repeated.

Counterpart: the scheduler of MM2's connectors, which logs all errors and continues.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.copying.partition_errors import BLOCKED_PAUSE_S, DENIED_PAUSE_S
from mm2py.copying.reading.internal_table import DamagedTopic
from mm2py.errors import Mm2Error
from mm2py.kafka.errors import Backoff, BrokerRefused, KafkaError, Reaction
from mm2py.logs import Trouble
from mm2py.records.varints import CorruptBatch


class RoundsConnector(ABC):
    """``run`` repeats ``_round``, which does the work."""

    leaves_outcome_unknown: bool = False
    """A record of it that arrives late does no harm."""

    def __init__(self, name: str, *, effect: str, clock: Clock, rng: random.Random, log: FilteringBoundLogger) -> None:
        """``name`` begins the names of log events about problems, ``effect`` says what a problem means."""
        self._clock = clock
        self._log = log
        self._backoff = Backoff(rng, first_s=0.2, most_s=5.0)
        self._trouble = Trouble(name, clock=clock, log=log, effect=effect)
        self._stopped = asyncio.Event()
        self._ends = False
        """True: no further round begins. This flag is needed because a group of tasks (``asyncio.TaskGroup``) that is
        cancelled while one of its tasks fails raises that task's error, and the cancelling is forgotten."""

    async def run(self) -> None:
        """Work until cancelled or drained. Cancelling may leave a request on its way."""
        working = asyncio.create_task(self._work(), name=type(self).__name__)
        stopped = asyncio.create_task(self._stopped.wait(), name=f"{type(self).__name__} stop")
        try:
            await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            self._ends = True
            for task in (working, stopped):
                task.cancel()
            await asyncio.gather(working, stopped, return_exceptions=True)

    async def drain(self) -> None:
        """Stop."""
        self._stopped.set()

    async def _work(self) -> None:
        while not self._ends:
            try:
                pause_s = await self._round()
            except (KafkaError, CorruptBatch, DamagedTopic) as error:
                if self._ends:
                    return
                lasting_s = _lasting_pause_s(error)
                self._trouble.note(error, at_once=lasting_s is not None)
                pause_s = self._backoff.next_s() if lasting_s is None else lasting_s
                self._round_failed(pause_s)
            else:
                self._trouble.over()
                if pause_s is None:
                    pause_s = self._backoff.next_s()
                else:
                    self._backoff.reset()
            await asyncio.sleep(pause_s)

    @abstractmethod
    async def _round(self) -> float | None:
        """Work once. Returns the pause before the next round, None for one that grows from round to round."""

    @abstractmethod
    def _round_failed(self, pause_s: float) -> None:
        """Handle a round that ended in an error; the next one begins after a pause of ``pause_s``."""


def _lasting_pause_s(error: Mm2Error) -> float | None:
    """Return how long to wait after an error that waiting does not mend; None for one that passes by itself."""
    if not isinstance(error, KafkaError) or error.retriable:
        return None
    denied = isinstance(error, BrokerRefused) and error.reaction is Reaction.DENIED
    return DENIED_PAUSE_S if denied else BLOCKED_PAUSE_S
