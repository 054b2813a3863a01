"""Starts the connectors of a worker's flows, keeps them running, and stops them in order.

A connector that fails restarts after a pause, the source connector under a new producer id. A refused connector stays
refused until an operator asks for a restart. No connector waits for another one.

Counterpart: the herders of MM2's dedicated mode, one for each flow.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from mm2py.connector import Connector, FlowStatus, PathStatus
from mm2py.errors import Mm2Error
from mm2py.flow import ClusterAlias, ConnectorName, Flow, Kind
from mm2py.group.group import Group
from mm2py.kafka.errors import Backoff
from mm2py.status.not_copied import Reason
from mm2py.worker.facts import WorkerFacts, facts_of
from mm2py.worker.schedule import Always, ConnectorSchedule
from mm2py.worker.vitals import Vitals

HEALTHY_AFTER_S: Final = 120.0
"""A connector that has run this long restarts after a short pause, however often it failed before."""
CONNECTOR_DRAIN_S: Final = 40.0
"""A connector gives up by itself before that; this bound is for a target that does not accept positions either."""

SWITCHING_OFF_MOST_S: Final = 30.0
"""How long a worker without flows waits until ``--apply`` has stored the flows that its file switches off."""


@dataclass(frozen=True, slots=True)
class ConnectorPlan:
    """How a connector is run."""

    begin: Callable[[int], Connector]
    """Makes the connector for the given attempt: 0, 1, ..."""
    schedule: ConnectorSchedule = field(default_factory=Always)


@dataclass(slots=True)
class RunningConnector:
    """What the herder knows of one connector."""

    name: ConnectorName
    plan: ConnectorPlan
    connector: Connector | None = None
    refused: Mm2Error | None = None
    """Why it does not run, until an operator asks for a restart."""
    has_failed: bool = False
    """It waits to be started again."""
    attempts: int = 0
    is_up: bool = False
    """It runs: there is something to drain."""
    draining: asyncio.Task[None] | None = field(default=None, repr=False)
    """It is being drained because its permit was revoked; a stop of the worker waits for this drain."""
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def flow(self) -> Flow:
        return self.name.flow

    @property
    def copies(self) -> bool:
        """Whether it copies the flow's records, so that without it the flow does not run."""
        return self.name.kind is Kind.SOURCE


class Herder:
    """Runs connectors until ``stop`` is called, or until no flow is left that may run."""

    def __init__(
        self,
        connectors: Mapping[ConnectorName, ConnectorPlan],
        refused: Mapping[Flow, Mm2Error],
        *,
        groups: Mapping[ClusterAlias, Group],
        is_refusal: Callable[[Mm2Error], bool],
        rng: random.Random,
        log: FilteringBoundLogger,
        vitals: Vitals | None = None,
    ) -> None:
        """``is_refusal``: whether trying again does not mend an error; ``groups`` are by target cluster."""
        self.connectors = [RunningConnector(name, plan) for name, plan in connectors.items()]
        self.groups = groups
        self.vitals = vitals or Vitals()
        self._outcome_unknown: set[Flow] = set()
        """Flows that sent something which was not answered, in any attempt."""
        self.refused_flows = dict(refused)
        self._is_refusal = is_refusal
        self._rng = rng
        self._log = log
        self._stopping = asyncio.Event()
        self._releasing: list[asyncio.Task[None]] = []
        self._has_run = False
        """A flow was seen to run, by ``facts``."""
        self._refusal = asyncio.Event()
        """A connector was refused."""

    async def run(self) -> int:
        """Run until ``stop``. Returns the exit code: 0 after a drained stop, 1 if not drained or no flow was left.

        A worker that has flows ends when none of them may run, unless an operator can mend that over REST. A worker
        without flows, which only emits heartbeats, continues.
        """
        for flow, error in self.refused_flows.items():
            self._log.error("flow.refused", flow=str(flow), why=str(error))
        members = [asyncio.create_task(group.run(), name=f"group on {at}") for at, group in self.groups.items()]
        for running in self.connectors:
            running.task = asyncio.create_task(self._keep_running(running), name=str(running.name))
        stopping = asyncio.create_task(self._stopping.wait(), name="stop signal")
        has_flows = bool(self.refused_flows) or any(running.copies for running in self.connectors)
        awaited = [running for running in self.connectors if running.copies or not has_flows]
        try:
            await self._all_ended(awaited, stopping)
            if not self._stopping.is_set():
                await self._switch_off_in_time(stopping)
                await self._cancel([running.task for running in self.connectors])  # no more heartbeats
                await asyncio.gather(*map(self._leave, self.groups))
                await self._cancel(members)
                self._log.error("worker.nothing_left", why="Every flow was refused.")  # the last word
                return 1
            return 0 if await self._drain() else 1
        finally:
            stopping.cancel()
            tasks = [*(running.task for running in self.connectors), stopping, *members, *self._releasing]
            await self._cancel(tasks)

    async def _all_ended(self, awaited: Sequence[RunningConnector], stopping: asyncio.Task[object]) -> None:
        """Wait until connectors have ended for good or are refused, or the worker is to stop."""
        while not self._stopping.is_set():
            self._refusal.clear()
            tasks = {
                running.task
                for running in awaited
                if running.task is not None and (running.refused is None or running.refused.is_mended_over_rest)
            }
            pending: set[asyncio.Task[Any]] = {task for task in tasks if not task.done()}
            if not pending:
                return
            refusal = asyncio.create_task(self._refusal.wait(), name="refusal")
            try:
                await asyncio.wait({*pending, stopping, refusal}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await self._cancel([refusal])

    async def _switch_off_in_time(self, stopping: asyncio.Task[object]) -> None:
        """Wait until the flows that ``--apply`` switches off are switched off: other workers may still run them."""
        switching = [running for running in self.connectors if running.name.kind is Kind.OFF]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SWITCHING_OFF_MOST_S):
                await self._all_ended(switching, stopping)
        for running in switching:
            if running.task is not None and not running.task.done():
                self._log.error(
                    "flow.not_switched_off",
                    flow=str(running.flow),
                    why="this worker ends before that could be stored",
                    remedy="Run mm2py apply FILE once the target cluster answers.",
                )

    def stop(self) -> None:
        """Ask for a drained stop."""
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        """Whether ``stop`` was called."""
        return self._stopping.is_set()

    def status(self, *, with_topics: bool = True) -> Sequence[FlowStatus]:
        """Return the state of every flow, refused ones included; ``with_topics``: see ``Connector.status``."""
        found = {running.flow: self._flow_status(running, with_topics) for running in self.connectors if running.copies}
        for running in self.connectors:
            part = running.connector.status() if running.connector is not None and running.flow in found else None
            if isinstance(part, PathStatus):
                found[running.flow] = replace(
                    found[running.flow],
                    heartbeat_age_s=part.heartbeat_age_s,
                    path_latency_ms=part.path_latency_ms,
                )
        refused = [FlowStatus(flow, "refused", str(error), "", (), {}) for flow, error in self.refused_flows.items()]
        return [*found.values(), *refused]

    def facts(self) -> WorkerFacts:
        """Return what this worker reports to the process that serves REST for it."""
        flows = tuple(self.status(with_topics=False))  # probes ask often, and copying waits meanwhile
        joined = sum(group.member is not None and group.member.takes_part for group in self.groups.values())
        self._has_run = self._has_run or any(status.state == "running" for status in flows)
        return facts_of(
            flows,
            joined,
            len(self.groups),
            stops=self._stopping.is_set(),
            has_run=self._has_run,
            failing=self._failing_flows(),
        )

    def _failing_flows(self) -> dict[Flow, str]:
        """Return the flows that this worker tells its groups it cannot start, and why. A silent source is not this."""
        members = [group.member for group in self.groups.values() if group.member is not None]
        return {
            flow: told.why
            for member in members
            for flow, told in member.not_started.items()
            if told.reason == Reason.NOT_STARTED
        }

    def coordinated(self) -> frozenset[Flow]:
        """Return the flows that this worker coordinates now, as far as it still hears from its groups."""
        found = set()
        for running in self.connectors:
            group = self.groups.get(running.flow.target)
            member = None if group is None else group.member
            is_heard = running.copies and member is not None and member.gate.is_open
            if is_heard and member is not None and member.ownership(running.flow).is_coordinator:
                found.add(running.flow)
        return frozenset(found)

    @staticmethod
    def _flow_status(running: RunningConnector, with_topics: bool) -> FlowStatus:
        held = None if running.refused or running.is_up else running.plan.schedule.held
        if held is not None:
            return FlowStatus(running.flow, held.word, held.text, "", (), {})
        if running.plan.schedule.is_off and not running.is_up and running.refused is None:
            return FlowStatus(running.flow, "off", "it is switched off by what is stored", "", (), {})
        if running.connector is not None and running.refused is None:
            status = running.connector.status(with_topics=with_topics)
            if isinstance(status, FlowStatus):
                return status
        waits_for = running.plan.schedule.waits_for
        state = "refused" if running.refused else "waiting" if waits_for else "starting"
        return FlowStatus(running.flow, state, str(running.refused or waits_for), "", (), {})

    async def _keep_running(self, running: RunningConnector) -> None:
        backoff = Backoff(self._rng, first_s=1.0, most_s=30.0)
        log = self._log.bind(flow=str(running.flow))
        releasing: asyncio.Task[None] | None = None
        what = "flow"
        if not running.copies:
            what, log = "connector", log.bind(connector=str(running.name))
        clock = asyncio.get_running_loop()
        while True:
            begun_s = clock.time()
            try:
                await running.plan.schedule.granted()
                if self._stopping.is_set():
                    return  # as below; it would not be drained
                begun_s = clock.time()
                running.connector = running.plan.begin(running.attempts)
                running.attempts += 1
                running.is_up = True
                if await self._run_while_permitted(running, running.connector):
                    return
                pause_s = 0.0
            except Mm2Error as error:
                if self._stopping.is_set() and not running.is_up:
                    return  # it was waiting for its permit, and the worker has left its group
                if self._is_refusal(error):
                    running.refused = error
                    log.error(f"{what}.refused", why=str(error))
                    releasing = self._refuse(running)
                else:
                    pause_s = self._pause_s(backoff, ran_s=clock.time() - begun_s)
                    log.error(f"{what}.failed", why=str(error), again_in_s=round(pause_s, 1))
                    running.plan.schedule.failed(str(error))
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
                running.plan.schedule.failed(f"{type(error).__name__}: {error}. Report it with the line in its log.")
            finally:
                if self._is_outcome_unknown(running) and running.copies and not self._stopping.is_set():
                    self._outcome_unknown.add(running.flow)
                running.is_up = False
            if running.refused is None:
                await self._pause(running, pause_s)
            else:
                await self._stay_refused(running, releasing)
            if self._stopping.is_set():
                return  # a stopping worker begins nothing

    async def _stay_refused(self, running: RunningConnector, releasing: asyncio.Task[None] | None) -> None:
        """Wait until operators ask something of a connector that is refused, or the worker stops."""
        self._refusal.set()
        await self._pause(running, None)
        if not self._stopping.is_set():
            await self._cancel([releasing])
            running.plan.schedule.allow()
            running.refused = None

    async def _pause(self, running: RunningConnector, pause_s: float | None) -> None:
        """Wait, but no longer than until the worker stops or operators ask something of the connector."""
        asked = running.plan.schedule.until_asked()
        waits = [asyncio.create_task(wait, name="pause") for wait in (self._stopping.wait(), asked)]
        running.has_failed = pause_s != 0.0
        try:
            await asyncio.wait(waits, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            running.has_failed = False
            await self._cancel(waits)

    @staticmethod
    def _is_outcome_unknown(running: RunningConnector) -> bool:
        """Whether an attempt that has ended undrained may have sent something that was not answered."""
        return running.is_up and running.connector is not None and running.connector.leaves_outcome_unknown

    def _refuse(self, running: RunningConnector) -> asyncio.Task[None]:
        """Leave a connector to other workers; returns what releases its tasks, to be cancelled when it is tried again.

        The story: an attempt fails with a request unanswered, and the next attempt is refused before it has a producer
        id. For the group the first producer is still the present one. If its partitions were simply released, no worker
        would fence it there, and the request would arrive among the records that the next owner copies.
        """
        outcome_unknown = self._is_outcome_unknown(running) or running.flow in self._outcome_unknown
        running.plan.schedule.refuse(str(running.refused))
        work = running.plan.schedule.release_refused(outcome_unknown=outcome_unknown)
        releasing = asyncio.create_task(work, name=f"{running.name} releasing")
        self._releasing = [task for task in self._releasing if not task.done()] + [releasing]
        return releasing

    async def _run_while_permitted(self, running: RunningConnector, connector: Connector) -> bool:
        """Run a connector until it ends, or its permit is revoked; returns whether it has ended by itself."""
        schedule = running.plan.schedule
        run = asyncio.create_task(connector.run(), name="connector")
        run.add_done_callback(_take_note)
        revoked = asyncio.create_task(schedule.revoked(), name="schedule")
        try:
            await asyncio.wait([run, revoked], return_when=asyncio.FIRST_COMPLETED)
            if not run.done() and revoked.result():
                await self._drain_revoked(running, connector, run)
            elif run.done():
                await run
                return True
        finally:
            for task in (run, revoked):
                task.cancel()
            await asyncio.wait([run, revoked])
        await schedule.stopped(
            outcome_unknown=self._is_outcome_unknown(running) or self._leaves_outcome_unknown_at(running.flow.target)
        )
        return False

    async def _drain_revoked(self, running: RunningConnector, connector: Connector, run: asyncio.Task[None]) -> None:
        """Drain a connector that is running. If it ends meanwhile, it has failed, or has nothing left to drain.

        Raises: the error of a connector that failed.
        """
        running.draining = draining = asyncio.create_task(connector.drain(), name="drain")
        try:
            await asyncio.wait([run, draining], timeout=CONNECTOR_DRAIN_S, return_when=asyncio.FIRST_COMPLETED)
            if draining.done() and self._is_drained(running.flow, connector, draining.exception()):
                running.is_up = False
            elif not draining.done() and run.done():
                await run
                running.is_up = False
            elif not draining.done():
                self._is_drained(running.flow, connector, TimeoutError())
        finally:
            draining.cancel()
            await asyncio.wait([draining])
            running.draining = None

    @staticmethod
    def _pause_s(backoff: Backoff, *, ran_s: float) -> float:
        """Return the next pause; it is short again if the connector ran for ``HEALTHY_AFTER_S``."""
        if ran_s >= HEALTHY_AFTER_S:
            backoff.reset()
        return backoff.next_s()

    async def _drain(self) -> bool:
        """Drain all connectors that are up, at the same time. Returns False if one of them was not drained."""
        for group in self.groups.values():
            group.rejoin_no_more()
        live = [running for running in self.connectors if running.is_up and running.connector is not None]
        self._log.info("worker.draining", flows=sum(running.copies and running.is_up for running in self.connectors))
        targets = dict.fromkeys([*(running.flow.target for running in live), *self.groups])
        drained = await asyncio.gather(*(self._drain_into(at, live) for at in targets))
        if all(drained):
            self._log.info("worker.drained")
        return all(drained)

    async def _drain_into(self, at: ClusterAlias, live: Sequence[RunningConnector]) -> bool:
        """Drain the flows into one target cluster, and leave its group. Flows into other clusters are not waited for.

        The story: w1 stops, and one of its flows waits for an answer for half a minute. Its other flows have drained in
        milliseconds. Other workers copy them meanwhile, and also what the slow flow has released. Heartbeats stop last,
        because no other worker emits them before this one has left.
        """
        for running in self.connectors:  # also one that waits for its next attempt: it gets no more tasks
            if running.flow.target == at and running.copies:
                running.plan.schedule.withdraw()
        into = [running for running in live if running.flow.target == at]
        drained = True
        for copies in (True, False):
            drained &= await self._drain_all([running for running in into if running.copies is copies])
        await self._leave(at)
        return drained

    async def _drain_all(self, live: Sequence[RunningConnector]) -> bool:
        results = await asyncio.gather(*map(self._drain_one, live), return_exceptions=True)
        drained = True
        for running, result in zip(live, results, strict=True):
            assert running.connector is not None  # noqa: S101
            drained &= self._is_drained(running.flow, running.connector, result)
        return drained

    async def _leave(self, at: ClusterAlias) -> None:
        if at in self.groups:
            await self.groups[at].leave(outcome_unknown=self._leaves_outcome_unknown_at(at))

    def _leaves_outcome_unknown_at(self, at: ClusterAlias) -> bool:
        return any(flow.target == at for flow in self._outcome_unknown)

    @staticmethod
    async def _drain_one(running: RunningConnector) -> None:
        assert running.connector is not None  # noqa: S101
        under_way = running.draining
        drained = running.connector.drain() if under_way is None else asyncio.shield(under_way)
        await asyncio.wait_for(drained, CONNECTOR_DRAIN_S)

    def _is_drained(self, flow: Flow, connector: Connector, error: BaseException | None) -> bool:
        """Return whether the drain of a connector succeeded; note a flow that leaves an unknown outcome."""
        if error is None:
            if connector.leaves_outcome_unknown:
                self._outcome_unknown.add(flow)
            return True
        why = f"not done within {CONNECTOR_DRAIN_S:g} s" if isinstance(error, TimeoutError) else str(error)
        self._log.warning(
            "drain.failed",
            flow=str(flow),
            why=why,
            effect="the next start fences this process, looks up what the target has stored, and continues after it;"
            " nothing is copied twice, unless the guarantee of the flow is at-least-once",
        )
        self._outcome_unknown.add(flow)
        return False

    @staticmethod
    async def _cancel(tasks: Sequence[asyncio.Task[object] | asyncio.Task[None] | None]) -> None:
        live = [task for task in tasks if task is not None]
        for task in live:
            task.cancel()
        await asyncio.gather(*live, return_exceptions=True)


def _take_note(run: asyncio.Task[None]) -> None:
    """Retrieve how a connector ended. A worker that stops may not wait for it, and asyncio would print a traceback."""
    if not run.cancelled():
        run.exception()
