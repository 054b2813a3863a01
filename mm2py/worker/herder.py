"""Starts the flows of a worker, keeps them going, and stops them in order.

Answers to the herders of MM2's dedicated mode, one for each flow. A flow that fails is begun anew after a pause, under
a new producer id; one that is refused stays refused. No flow waits for another.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.connector import Connector, FlowStatus
from mm2py.errors import Mm2Error
from mm2py.flow import Flow
from mm2py.kafka.retry import Backoff

HEALTHY_AFTER_S: Final = 120.0
"""A flow that has run for so long is begun anew after a short pause, however often it failed before."""
DRAIN_MOST_S: Final = 40.0
"""A connector gives up on its own before that; this bound is for a target that cannot take positions either."""


@dataclass(slots=True)
class RunningFlow:
    """What the herder knows of one flow."""

    flow: Flow
    begin: Callable[[int], Connector]
    """Makes a connector for the given life of the flow: 0 the first, then 1, ..."""
    connector: Connector | None = None
    refused: Mm2Error | None = None
    lives: int = 0
    is_up: bool = False
    """Its connector runs just now: there is something to drain."""
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class Herder:
    """Runs flows until told to stop, or until none is left that may run."""

    def __init__(
        self,
        flows: Mapping[Flow, Callable[[int], Connector]],
        refused: Mapping[Flow, Mm2Error],
        *,
        is_refusal: Callable[[Mm2Error], bool],
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """``is_refusal`` tells errors after which a flow is not begun again."""
        self.flows = [RunningFlow(flow, begin) for flow, begin in flows.items()]
        self._refused = dict(refused)
        self._is_refusal = is_refusal
        self._rng = rng
        self._log = log
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Run until ``stop``. Returns the exit code: 0 after a drained stop, 1 if not drained or no flow was left."""
        for flow, error in self._refused.items():
            self._log.error("flow.refused", flow=str(flow), why=str(error))
        for running in self.flows:
            running.task = asyncio.create_task(self._keep_running(running), name=str(running.flow))
        stopping = asyncio.create_task(self._stopping.wait(), name="stop signal")
        try:
            pending: set[asyncio.Task[object]] = {running.task for running in self.flows if running.task is not None}
            while pending and not self._stopping.is_set():
                done, _ = await asyncio.wait({*pending, stopping}, return_when=asyncio.FIRST_COMPLETED)
                pending -= done
            if not self._stopping.is_set():
                self._log.error("worker.nothing_left", why="Every flow was refused.")
                return 1
            return 0 if await self._drain() else 1
        finally:
            stopping.cancel()
            await self._cancel([*(running.task for running in self.flows), stopping])

    def stop(self) -> None:
        """Ask for a drained stop."""
        self._stopping.set()

    def status(self) -> Sequence[FlowStatus]:
        """Return the state of every flow, refused ones included."""
        found = []
        for running in self.flows:
            if running.connector is not None and running.refused is None:
                found.append(running.connector.status())
            else:
                state = "refused" if running.refused else "starting"
                found.append(FlowStatus(running.flow, state, str(running.refused or ""), "", (), {}))
        found += [FlowStatus(flow, "refused", str(error), "", (), {}) for flow, error in self._refused.items()]
        return found

    async def _keep_running(self, running: RunningFlow) -> None:
        backoff = Backoff(self._rng, first_s=1.0, most_s=30.0)
        log = self._log.bind(flow=str(running.flow))
        clock = asyncio.get_running_loop()
        while True:
            begun_s = clock.time()
            try:
                running.connector = running.begin(running.lives)
                running.lives += 1
                running.is_up = True
                await running.connector.run()
                return
            except Mm2Error as error:
                if self._is_refusal(error):
                    running.refused = error
                    log.error("flow.refused", why=str(error))
                    return
                pause_s = self._pause_s(backoff, ran_s=clock.time() - begun_s)
                log.error("flow.failed", why=str(error), again_in_s=round(pause_s, 1))
            except Exception as error:
                pause_s = self._pause_s(backoff, ran_s=clock.time() - begun_s)
                where = traceback.extract_tb(error.__traceback__)[-1]
                log.exception(
                    "flow.crashed",
                    why=f"{type(error).__name__}: {error}",
                    at=f"{where.name}:{where.lineno}",
                    again_in_s=round(pause_s, 1),
                    remedy="This is a defect in mm2py; please report it with this line.",
                )
            finally:
                running.is_up = False
            try:
                await asyncio.wait_for(self._stopping.wait(), pause_s)
                return  # a stopping worker begins nothing
            except TimeoutError:
                pass

    @staticmethod
    def _pause_s(backoff: Backoff, *, ran_s: float) -> float:
        """What failed after a long good time does not pay for failures of long ago."""
        if ran_s >= HEALTHY_AFTER_S:
            backoff.reset()
        return backoff.next_s()

    async def _drain(self) -> bool:
        """Drain all flows that are up, side by side. Returns False if one of them was left undrained."""
        live = [
            (running.flow, running.connector)
            for running in self.flows
            if running.is_up and running.connector is not None
        ]
        self._log.info("worker.draining", flows=len(live))
        results = await asyncio.gather(
            *(asyncio.wait_for(connector.drain(), DRAIN_MOST_S) for _, connector in live), return_exceptions=True
        )
        drained = True
        for (flow, _), result in zip(live, results, strict=True):
            if isinstance(result, BaseException):
                drained = False
                why = f"not done within {DRAIN_MOST_S:g} s" if isinstance(result, TimeoutError) else str(result)
                self._log.warning(
                    "drain.failed",
                    flow=str(flow),
                    why=why,
                    effect="what was copied since the last stored position is copied again at the next start",
                )
        if drained:
            self._log.info("worker.drained")
        return drained

    @staticmethod
    async def _cancel(tasks: Sequence[asyncio.Task[object] | asyncio.Task[None] | None]) -> None:
        live = [task for task in tasks if task is not None]
        for task in live:
            task.cancel()
        await asyncio.gather(*live, return_exceptions=True)
