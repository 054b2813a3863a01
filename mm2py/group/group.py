"""How a worker comes into the group of one target cluster: what has to be known of the target first, and from whom.

Answers to the start of DistributedHerder and WorkerGroupMember, one for each target cluster in MM2's dedicated mode.

A worker's part in one group, over all lives of it: each that ends is followed by the next, under a new id.

Answers to Connect's rebalance after a worker was away too long: it joins again as a new member. Connectors begin anew
with each life, for all that an earlier one wrote under is shut out.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings, GroupSettings
from mm2py.connector import Flow, Kind, Side, TopicName
from mm2py.errors import Mm2Error
from mm2py.group.control_log import ControlLog
from mm2py.group.control_topic import ControlLogUnusable
from mm2py.group.election.candidate import make_backend
from mm2py.group.group_state import GroupRefused, JoinMetadata
from mm2py.group.leader_loop import EvictedWriters
from mm2py.group.member import Member
from mm2py.kafka.errors import Backoff, KafkaError
from mm2py.kafka.gate import Gate, GatedBrokers, IncarnationEnded
from mm2py.kafka.producer.fencing import find_producer_expiry_ms
from mm2py.records.control_codec import NewerFormat
from mm2py.records.control_record import MemberId, TaskName
from mm2py.topics.names import control_log

UNREACHABLE_REPORT_S: Final = 5.0
BROKERS_DECIDE: Final = -1
"""As replication factor of the control log: what its topic wants, as far as there are brokers for it."""

T = TypeVar("T")


class GroupFactory:
    """Makes the members of one worker in one group, life after life."""

    def __init__(
        self,
        settings: GroupSettings,
        target: Side,
        flows: Sequence[FlowSettings],
        heartbeats: Sequence[Flow],
        *,
        checkpoints: Sequence[Flow] = (),
        name: str,
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """Make one; nothing is asked yet.

        Args:
            target: with connections of its own, whose requests time out well before a session does.
            flows: those that lead there.
            heartbeats: flows that lead there and whose heartbeats this worker may emit.
            checkpoints: the same for checkpoints.
            name: of the worker, for people.
        """
        self._settings = settings
        self._target = target
        self._flows = {flow.flow: flow for flow in flows}
        self._heartbeats = tuple(heartbeats)
        self._checkpoints = tuple(checkpoints)
        self._name = name
        self._tasks_max = {one.flow: one.tasks_max for one in flows if one.tasks_max is not None}
        self._renounced: set[Flow] = set()
        self._terms: JoinMetadata | None = None
        self._clock = clock
        self._rng = rng
        self.log = log

    async def member(self, member_id: MemberId) -> Member:
        """Return a member that has asked to join for nothing yet; waits until the target answers.

        Raises:
            GroupRefused: this worker cannot take part; the error names the way out.
        """
        settings, target = self._settings, self._target
        cluster_id = await self._until_answered(target.identify)
        producer_expiry_ms = await self._until_answered(lambda: find_producer_expiry_ms(target.brokers, self.log))
        terms = self._terms = JoinMetadata(
            group=settings.name,
            target=settings.target,
            name=self._name,
            url="",
            flows=tuple(sorted(self._flows.keys() - self._renounced)),
            heartbeats=self._heartbeats,
            cluster_id=cluster_id,
            session_timeout_s=settings.session_timeout_s,
            heartbeat_interval_s=settings.heartbeat_interval_s,
            producer_expiry_ms=producer_expiry_ms,
            election=settings.election,
            tasks_max=dict(self._tasks_max),
            checkpoints=self._checkpoints,
        )
        gate = Gate(self._clock, producer_expiry_ms=producer_expiry_ms, session_timeout_s=settings.session_timeout_s)
        parts: Mapping[str, Any] = {"clock": self._clock, "rng": self._rng, "log": self.log}
        return Member(
            member_id,
            terms,
            ControlLog(
                target.brokers,
                control_log(settings.name, producer_expiry_ms=producer_expiry_ms),
                replication_factor=BROKERS_DECIDE,
                poll_s=settings.heartbeat_interval_s,
                append_timeout_s=settings.session_timeout_s / 2,
                **parts,
            ),
            EvictedWriters(GatedBrokers(target.brokers, gate, self._clock), self._internal_topics, **parts),
            make_backend(settings, cluster_id=cluster_id, worker=self._name, **parts),
            gate=gate,
            bundle_of=self._bundle_of,
            **parts,
        )

    def renounce(self, flow: Flow, member: Member | None) -> None:
        """Leave a flow to others: it must not run on this worker."""
        self._renounced.add(flow)
        if self._terms is not None:
            self._terms = replace(self._terms, flows=tuple(one for one in self._terms.flows if one != flow))
            if member is not None:
                member.offer(self._terms)

    def spread(self, flow: Flow, tasks_max: int | None, member: Member) -> None:
        """Let a flow's partitions be spread on so many workers at most from now on; None: on all."""
        self._tasks_max.pop(flow, None)
        if tasks_max is not None:
            self._tasks_max[flow] = tasks_max
        if self._terms is not None and self._terms.tasks_max != self._tasks_max:
            self._terms = replace(self._terms, tasks_max=dict(self._tasks_max))
            member.offer(self._terms)

    def _internal_topics(self, flow: Flow) -> list[str]:
        """Return where a member that is dead must change nothing, also of a flow that is not in this worker's file."""
        settings = self._flows.get(flow)
        if settings is None:
            return [f"mm2-offsets.{flow.source}.internal", f"mm2-status.{flow.source}.internal"]
        return [settings.offsets_topic, settings.status_topic]

    def _bundle_of(self, share: TaskName) -> TaskName:
        """Return a share that stands for all those whose records go to the same remote partition."""
        settings = self._flows.get(share.flow)
        if settings is None or not settings.many_to_one or not share.is_partition:
            return share
        remote = settings.policy.format_remote_topic(share.flow.source, TopicName(share.topic))
        first = min(flow for flow, one in self._flows.items() if one.many_to_one)
        return TaskName(first, Kind.SOURCE, str(remote), share.partition)

    async def _until_answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer; say every few seconds that there is none, for no flow asks its source yet."""
        backoff = Backoff(self._rng, most_s=2.0)
        said_at_s = float("-inf")
        log = self.log.bind(cluster=self._target.alias, role="target")
        while True:
            try:
                answer = await ask()
                if said_at_s > float("-inf"):
                    log.info("cluster.reached")
                return answer
            except KafkaError as error:
                if not error.retriable:
                    raise GroupRefused(error.what, remedy=error.remedy) from error
                if self._clock.monotonic() - said_at_s >= UNREACHABLE_REPORT_S:
                    said_at_s = self._clock.monotonic()
                    waiting = " ".join(map(str, sorted({*self._flows, *self._heartbeats})))
                    log.warning("cluster.unreachable", flows=waiting, why=str(error))
            await asyncio.sleep(backoff.next_s())


HEALTHY_AFTER_S: Final = 60.0
"""A life that lasted so long is followed by the next without waiting."""
ID_BITS: Final = 48


class Group:
    """``run`` it; ``member`` is the present life, which ``joined`` waits for."""

    def __init__(
        self,
        make: Callable[[MemberId], Awaitable[Member]],
        *,
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """Make one.

        Args:
            make: returns the member of each life, once the target answers.
            rng: must differ between processes: ids are drawn from it.
        """
        self.member: Member | None = None
        self.refused: Mm2Error | None = None
        """Why this worker takes no part, or no longer, if so."""
        self._make = make
        self._clock = clock
        self._rng = rng
        self._log = log
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
                self.member = await self._make(member_id)
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

    async def joined(self) -> Member:
        """Return the present member once its group knows it; it may be over at any time after.

        Raises:
            Mm2Error: this worker takes no part, or no longer.
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

    def begin_no_more(self) -> None:
        """Let the present life be the last: ``run`` returns when it ends.

        The story: w1 drains, and is cut off meanwhile; the others evict it. If it came back, they would give partitions
        to it that nobody copies as long as it drains.
        """
        self._leaving = True

    async def leave(self, *, in_doubt: bool) -> None:
        """Leave for good, see ``Member.leave``; ``run`` returns."""
        self.begin_no_more()
        if self.member is not None and not self.member.is_over:
            await self.member.leave(in_doubt=in_doubt)

    def _end(self, why: Mm2Error) -> None:
        self.refused = why
        self._news.set()
