"""How a worker comes into the group of one target cluster: what has to be known of the target first, and from whom.

Answers to the start of DistributedHerder and WorkerGroupMember, one for each target cluster in MM2's dedicated mode.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings, GroupSettings
from mm2py.connector import Kind, Side
from mm2py.flow import Flow, TopicName
from mm2py.group.election.backend import make_backend
from mm2py.group.join_metadata import GroupRefused, Terms
from mm2py.group.leading.evicted_writers import DeadWriters
from mm2py.group.log.control_log import ControlLog
from mm2py.group.member import Member
from mm2py.kafka.errors import KafkaError
from mm2py.kafka.gate import Gate, GatedBrokers
from mm2py.kafka.producer.expiry import find_producer_expiry_ms
from mm2py.kafka.retry import Backoff
from mm2py.records.control_record import MemberId, Share
from mm2py.topics.internal import control_log

UNREACHABLE_REPORT_S: Final = 5.0
BROKERS_DECIDE: Final = -1
"""As replication factor of the control log: what its topic wants, as far as there are brokers for it."""

T = TypeVar("T")


class Entrance:
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
        self._terms: Terms | None = None
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
        terms = self._terms = Terms(
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
            DeadWriters(GatedBrokers(target.brokers, gate, self._clock), self._internal_topics, **parts),
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

    def _bundle_of(self, share: Share) -> Share:
        """Return a share that stands for all those whose records go to the same remote partition."""
        settings = self._flows.get(share.flow)
        if settings is None or not settings.many_to_one or not share.is_partition:
            return share
        remote = settings.policy.format_remote_topic(share.flow.source, TopicName(share.topic))
        first = min(flow for flow, one in self._flows.items() if one.many_to_one)
        return Share(first, Kind.SOURCE, str(remote), share.partition)

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
