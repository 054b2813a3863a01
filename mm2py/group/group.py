"""One worker's part in the group of one target cluster: it joins as a member, and as a new member when one has ended.

A member that was evicted does not come back: all its producers are fenced. So the worker joins again under a new id,
and its connectors restart.

Counterpart: DistributedHerder, of which MM2's dedicated mode has one for each target cluster, and the rebalance of
Connect after a worker was away too long.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from structlog.typing import FilteringBoundLogger

from mm2py import __version__
from mm2py.clock import Clock
from mm2py.compiled_core import CHOICE
from mm2py.config.settings import FlowSettings, GroupSettings
from mm2py.connector import Side
from mm2py.errors import Mm2Error
from mm2py.flow import ConnectorName, Flow, Kind
from mm2py.group.control_topic import ControlLogUnusable
from mm2py.group.election.backends import make_backend
from mm2py.group.leader_loop import GroupContext
from mm2py.group.member import Member
from mm2py.group.refusal import GroupRefused
from mm2py.kafka.cluster import reach
from mm2py.kafka.errors import Backoff, KafkaError
from mm2py.kafka.port import Brokers
from mm2py.kafka.producer.fencing import find_producer_expiry_ms
from mm2py.kafka.write_gate import Gate, GatedBrokers, IncarnationEnded
from mm2py.records.control_codec import NewerFormat
from mm2py.records.control_record import Joined, MemberId, TaskName, shortened
from mm2py.topics.names import ledger_topic

HEALTHY_AFTER_S: Final = 60.0
"""After a member that lasted this long the next one joins after the shortest pause."""
ID_BITS: Final = 48

T = TypeVar("T")


class Group:
    """``run`` it; ``member`` is the present member, which ``joined`` waits for."""

    def __init__(
        self,
        settings: GroupSettings,
        target: Side,
        flows: Sequence[FlowSettings],
        undivided: Mapping[Kind, Sequence[Flow]],
        *,
        name: str,
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """Make one; no request is sent yet.

        Args:
            target: with connections of its own, whose requests time out well before a session does.
            flows: the flows into this target cluster.
            undivided: by kind, the flows into it whose heartbeats or checkpoints this worker may emit.
            name: of the worker, for people.
            rng: must differ between processes: ids are drawn from it.
        """
        self.member: Member | None = None
        self.refused: Mm2Error | None = None
        """Why this worker does not take part, or not any more; else None."""
        self.name = settings.name
        self._settings = settings
        self._target = target
        self._flows = {flow.flow: flow for flow in flows}
        self._joined = Joined(
            MemberId(""),
            name=name,
            runs=__version__,
            url="",
            flows=tuple(sorted(self._flows)),
            heartbeats=tuple(undivided.get(Kind.HEARTBEAT, ())),
            checkpoints=tuple(undivided.get(Kind.CHECKPOINT, ())),
            tasks_max={one.flow: one.tasks_max for one in flows if one.tasks_max is not None},
            cluster_id=None,
            election=settings.election,
            session_timeout_ms=int(settings.session_timeout_s * 1000),
            core=str(CHOICE),
        )
        self._whole = self._joined
        """Like ``_joined``, but with all flows of the worker, also those that it has left to others."""
        self._clock = clock
        self._rng = rng
        self._log = log.bind(group=settings.name, target=settings.target)
        self._news = asyncio.Event()
        self._leaving = False

    async def run(self) -> None:
        """Take part until ``leave``.

        Raises:
            GroupRefused, ControlLogUnusable, NewerFormat: this worker cannot take part; the error names the way out.
        """
        backoff = Backoff(self._rng, first_s=0.1, most_s=10.0)
        while not self._leaving:
            begun_s = self._clock.monotonic()
            member_id = MemberId(f"{self._rng.getrandbits(ID_BITS):012x}")
            crash: dict[str, str] = {}
            try:
                self.member = await self.new_member(member_id)
                self._news.set()
                if not self._leaving:
                    await self.member.run()
                self._end(IncarnationEnded("it has left"))
                return
            except (GroupRefused, ControlLogUnusable, NewerFormat) as error:
                self._end(error)
                self._log.error("group.refused", why=str(error))
                raise
            except Mm2Error as error:
                why = str(error)
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                why = f"{type(error).__name__}: {error}"
                crash = {
                    "at": f"{where.name}:{where.lineno}",
                    "remedy": "This is a defect in mm2py; please report it with this line.",
                }
            if self._leaving:
                self._end(IncarnationEnded(why))
                return
            if self._clock.monotonic() - begun_s >= HEALTHY_AFTER_S:
                backoff.reset()
            pause_s = backoff.next_s()
            self._log.warning("group.rejoining", member=member_id, why=why, again_in_s=round(pause_s, 1), **crash)
            await asyncio.sleep(pause_s)

    async def new_member(self, member_id: MemberId) -> Member:
        """Return a member that has not asked to join yet; waits until the target answers.

        Raises:
            GroupRefused: this worker cannot take part; the error names the way out.
        """
        target = self._target
        cluster_id = await self._until_answered(target.identify)
        producer_expiry_ms = await self._until_answered(lambda: find_producer_expiry_ms(target.brokers, self._log))
        self._joined = replace(self._joined, cluster_id=cluster_id)
        parts: Mapping[str, Any] = {"clock": self._clock, "rng": self._rng, "log": self._log}
        return Member(
            replace(self._joined, member=member_id),
            make_backend(self._settings, cluster_id=cluster_id, worker=self._joined.name, **parts),
            GroupContext(
                self._settings,
                target.brokers,
                producer_expiry_ms,
                internal_topics=self._internal_topics,
                bundle_of=self._bundle_of,
                **parts,
            ),
        )

    def gated(self, brokers: Brokers) -> GatedBrokers:
        """Return the target, to which only the present member may write: the one at the time of each request."""
        return GatedBrokers(brokers, self._gate, self._clock)

    def _gate(self) -> Gate:
        if self.member is None:
            raise IncarnationEnded("it is no member of its group yet")
        return self.member.gate

    async def joined(self) -> Member:
        """Return the present member once its group knows it; it may end at any time after that.

        Raises:
            Mm2Error: this worker does not take part, or not any more.
        """
        while self.refused is None:
            member = self.member
            if member is not None:
                await member.joined()
                if not member.is_stopping:
                    return member
            if self.refused is None and self.member is member:
                self._news.clear()
                await self._news.wait()
        raise self.refused

    def withdraw(self, flow: Flow) -> None:
        """Leave a flow to other workers: the leader takes its tasks from this one."""
        self._offer(
            replace(
                self._joined,
                flows=tuple(one for one in self._joined.flows if one != flow),
                checkpoints=tuple(one for one in self._joined.checkpoints if one != flow),
            )
        )

    def refuse(self, name: ConnectorName, why: str) -> None:
        """Tell the group that a connector must not run here, and leave a whole flow to other workers."""
        self._offer(replace(self._joined, refused={**self._joined.refused, str(name): shortened(why)}))
        if name.kind is Kind.SOURCE:
            self.withdraw(name.flow)

    def allow(self, name: ConnectorName) -> None:
        """Note that a refused connector is tried again: the worker may get tasks of it as before."""
        joined, flow = self._joined, name.flow if name.kind is Kind.SOURCE else None
        refused = {one: why for one, why in joined.refused.items() if one != str(name)}
        flows = tuple(one for one in self._whole.flows if one in joined.flows or one == flow)
        checkpoints = tuple(one for one in self._whole.checkpoints if one in joined.checkpoints or one == flow)
        self._offer(replace(joined, flows=flows, checkpoints=checkpoints, refused=refused))

    def spread(self, flow: Flow, tasks_max: int | None) -> None:
        """Spread a flow's partitions on at most this many workers from now on; None: on all."""
        limits = {one: most for one, most in self._joined.tasks_max.items() if one != flow}
        if tasks_max is not None:
            limits[flow] = tasks_max
        self._offer(replace(self._joined, tasks_max=limits))

    def rejoin_no_more(self) -> None:
        """Let the present member be the last: ``run`` returns when it ends.

        The story: w1 drains, and is cut off meanwhile; the others evict it. If it joined again, it would get partitions
        that no worker copies as long as w1 drains.
        """
        self._leaving = True

    async def leave(self, *, outcome_unknown: bool) -> None:
        """Leave for good, see ``Member.leave``; ``run`` returns."""
        self.rejoin_no_more()
        if self.member is not None and not self.member.is_over:
            await self.member.leave(outcome_unknown=outcome_unknown)

    def _offer(self, joined: Joined) -> None:
        if joined != self._joined:
            self._joined = joined
            if self.member is not None:
                self.member.offer(joined)

    def _end(self, why: Mm2Error) -> None:
        self.refused = why
        self._news.set()

    def _internal_topics(self, flow: Flow) -> list[str]:
        """Return the topics in which an evicted member must change nothing, also for a flow that our file lacks."""
        settings = self._flows.get(flow)
        if settings is None:
            offsets, status = f"mm2-offsets.{flow.source}.internal", f"mm2-status.{flow.source}.internal"
        else:
            offsets, status = settings.offsets_topic, settings.status_topic
        return [offsets, ledger_topic(flow.source), status]

    def _bundle_of(self, task: TaskName) -> TaskName:
        """Return the task that represents all tasks whose records go to the same remote partition."""
        settings = self._flows.get(task.flow)
        if settings is None or not settings.many_to_one or not task.is_partition:
            return task
        first = min(flow for flow, one in self._flows.items() if one.many_to_one)
        return TaskName(first, Kind.SOURCE, settings.remote_topic(task.topic), task.partition)

    async def _until_answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Wait until the target has answered. Before that no flow sends even a request to its source."""
        log = self._log.bind(cluster=self._target.alias, role="target")
        flows = " ".join(map(str, sorted({*self._flows, *self._joined.heartbeats})))
        try:
            return await reach(ask, log, clock=self._clock, rng=self._rng, flows=flows)
        except KafkaError as error:
            raise GroupRefused(error.what, remedy=error.remedy) from error
