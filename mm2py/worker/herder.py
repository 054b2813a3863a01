"""Starts the connectors of a worker's flows, keeps them going, and stops them in order.

Answers to the herders of MM2's dedicated mode, one for each flow. A connector that fails is begun anew after a pause,
the source connector under a new producer id; one that is refused stays refused. None waits for another.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.connector import Connector, ConnectorName, FlowStatus, Kind, PathStatus
from mm2py.errors import Mm2Error
from mm2py.flow import Flow
from mm2py.kafka.retry import Backoff

HEALTHY_AFTER_S: Final = 120.0
"""A connector that has run for so long is begun anew after a short pause, however often it failed before."""
DRAIN_MOST_S: Final = 40.0
"""A connector gives up on its own before that; this bound is for a target that cannot take positions either."""


@dataclass(slots=True)
class RunningConnector:
    """What the herder knows of one connector."""

    name: ConnectorName
    begin: Callable[[int], Connector]
    """Makes the connector for its given life: 0 the first, then 1, ..."""
    connector: Connector | None = None
    refused: Mm2Error | None = None
    lives: int = 0
    is_up: bool = False
    """It runs just now: there is something to drain."""
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def flow(self) -> Flow:
        return self.name.flow

    @property
    def copies(self) -> bool:
        """Whether the flow stands and falls with it."""
        return self.name.kind is Kind.SOURCE


class Herder:
    """Runs connectors until told to stop, or until none of the flows is left that may run."""

    def __init__(
        self,
        connectors: Mapping[ConnectorName, Callable[[int], Connector]],
        refused: Mapping[Flow, Mm2Error],
        *,
        is_refusal: Callable[[Mm2Error], bool],
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """``is_refusal`` tells errors after which a connector is not begun again."""
        self.connectors = [RunningConnector(name, begin) for name, begin in connectors.items()]
        self._refused = dict(refused)
        self._is_refusal = is_refusal
        self._rng = rng
        self._log = log
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Run until ``stop``. Returns the exit code: 0 after a drained stop, 1 if not drained or no flow was left.

        A worker that has flows ends when none of them may run; one that has none, and only emits heartbeats, runs on.
        """
        for flow, error in self._refused.items():
            self._log.error("flow.refused", flow=str(flow), why=str(error))
        for running in self.connectors:
            running.task = asyncio.create_task(self._keep_running(running), name=str(running.name))
        stopping = asyncio.create_task(self._stopping.wait(), name="stop signal")
        has_flows = bool(self._refused) or any(running.copies for running in self.connectors)
        awaited = [running for running in self.connectors if running.copies or not has_flows]
        try:
            pending: set[asyncio.Task[object]] = {running.task for running in awaited if running.task is not None}
            while pending and not self._stopping.is_set():
                done, _ = await asyncio.wait({*pending, stopping}, return_when=asyncio.FIRST_COMPLETED)
                pending -= done
            if not self._stopping.is_set():
                self._log.error("worker.nothing_left", why="Every flow was refused.")
                return 1
            return 0 if await self._drain() else 1
        finally:
            stopping.cancel()
            await self._cancel([*(running.task for running in self.connectors), stopping])

    def stop(self) -> None:
        """Ask for a drained stop."""
        self._stopping.set()

    def status(self) -> Sequence[FlowStatus]:
        """Return the state of every flow, refused ones included."""
        found = {running.flow: self._flow_status(running) for running in self.connectors if running.copies}
        for running in self.connectors:
            part = running.connector.status() if running.connector is not None and running.flow in found else None
            if isinstance(part, PathStatus):
                found[running.flow] = replace(
                    found[running.flow],
                    heartbeat_age_s=part.heartbeat_age_s,
                    path_latency_ms=part.path_latency_ms,
                )
        refused = [FlowStatus(flow, "refused", str(error), "", (), {}) for flow, error in self._refused.items()]
        return [*found.values(), *refused]

    @staticmethod
    def _flow_status(running: RunningConnector) -> FlowStatus:
        if running.connector is not None and running.refused is None:
            status = running.connector.status()
            if isinstance(status, FlowStatus):
                return status
        state = "refused" if running.refused else "starting"
        return FlowStatus(running.flow, state, str(running.refused or ""), "", (), {})

    async def _keep_running(self, running: RunningConnector) -> None:
        backoff = Backoff(self._rng, first_s=1.0, most_s=30.0)
        log = self._log.bind(flow=str(running.flow))
        what = "flow"
        if not running.copies:
            what, log = "connector", log.bind(connector=str(running.name))
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
                    log.error(f"{what}.refused", why=str(error))
                    return
                pause_s = self._pause_s(backoff, ran_s=clock.time() - begun_s)
                log.error(f"{what}.failed", why=str(error), again_in_s=round(pause_s, 1))
            except Exception as error:
                pause_s = self._pause_s(backoff, ran_s=clock.time() - begun_s)
                where = traceback.extract_tb(error.__traceback__)[-1]
                log.exception(
                    f"{what}.crashed",
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
        """Drain all connectors that are up, side by side. Returns False if one of them was left undrained."""
        live = [
            (running.flow, running.connector)
            for running in self.connectors
            if running.is_up and running.connector is not None
        ]
        self._log.info("worker.draining", flows=sum(running.copies and running.is_up for running in self.connectors))
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
                    effect="the next start shuts this process out, looks up what has arrived on the target, and goes on"
                    " behind it; nothing is copied twice, unless the guarantee of the flow is at-least-once",
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
