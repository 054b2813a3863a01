"""The leader loop: carries out what ``decisions.py`` decides for a member, most of it while the member leads.

The leader fences an evicted member's producers in the internal topics of its flows before others run its tasks
(``EvictedWriters``). The new owners fence each remote partition, with the epoch that was raised here.

Counterpart: what the leader of Connect's group does in WorkerCoordinator and DistributedHerder. Connect fences no
member: it trusts that an evicted member stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import traceback
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.config.settings import GroupSettings
from mm2py.copying.recovery import fence_and_prove
from mm2py.errors import Mm2Error, for_each
from mm2py.flow import Flow
from mm2py.group.decisions import Action, Append, FenceMember, Planned, Situation, decide
from mm2py.group.election.backend import CandidateState
from mm2py.group.election.candidate import Candidate
from mm2py.group.member_handle import MemberHandle
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata
from mm2py.kafka.error_codes import LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import Backoff, BrokerRefused
from mm2py.kafka.port import Brokers
from mm2py.kafka.producer.fencing import FENCES_AT_ONCE, NotFenceable, PreviousProducer
from mm2py.kafka.write_gate import IncarnationEnded
from mm2py.records.control_record import (
    Claim,
    ControlRecord,
    Evicted,
    Fenced,
    Joined,
    MemberId,
    Resigned,
    TaskName,
    Writer,
)

PROOF_S: Final = 6.0
"""How long to wait for markers before everything is looked up again; each time twice as long."""
PROOF_MOST_S: Final = 300.0
SAID_AFTER_S: Final = 3.0
SAID_EVERY_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class GroupContext:
    """What all members of one worker in one group have in common."""

    settings: GroupSettings
    brokers: Brokers
    """Those of the target; with a client id of their own, so that no quota on copying delays a heartbeat."""
    producer_expiry_ms: int
    """The target's ``producer.id.expiration.ms``: how long it remembers a producer and its fence."""
    internal_topics: Callable[[Flow], Collection[str]]
    """The internal topics of a flow, in which an evicted member must change nothing."""
    clock: Clock
    rng: random.Random
    log: FilteringBoundLogger
    bundle_of: Callable[[TaskName], TaskName] = lambda task: task
    """See ``Situation``."""


@dataclass(frozen=True, slots=True)
class FenceOutcome:
    """The result of fencing a dead member's producers."""

    epochs: Mapping[int, int]
    """The fence epoch of each, by producer id."""
    unfenced: Mapping[int, str]
    """Why some could not be fenced."""


class EvictedWriters:
    """Fences producers in the internal topics of their flows."""

    def __init__(
        self,
        brokers: Brokers,
        topics_of: Callable[[Flow], Collection[str]],
        *,
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """``topics_of`` returns the internal topics of a flow in which an evicted member must change nothing."""
        self._brokers = brokers
        self._topics_of = topics_of
        self._clock = clock
        self._rng = rng
        self._log = log
        self._producers: dict[int, PreviousProducer] = {}
        """Kept between attempts: an epoch that was raised need not be raised again."""

    async def fence(self, writers: Collection[Writer], told: Mapping[int, int]) -> FenceOutcome:
        """Fence producers; returns when that is proven for all that can be fenced, however long it takes.

        Args:
            told: by producer id, the epoch to which another leader has already raised it.
        Cancelling loses nothing: the next leader can start again.
        """
        epochs: dict[int, int] = {}
        unfenced: dict[int, str] = {}

        async def fence(writer: Writer) -> None:
            try:
                epochs[writer.producer_id] = await self._until_fenced(writer, told.get(writer.producer_id))
            except NotFenceable as error:
                unfenced[writer.producer_id] = str(error)
                self._log.warning(
                    "member.unfenced",
                    producer_id=writer.producer_id,
                    flow=str(writer.flow),
                    why=str(error),
                    effect="if that process still runs, its positions may replace those of its successors",
                )

        in_order = sorted(writers, key=lambda writer: writer.producer_id)
        await for_each(in_order, fence, at_once=FENCES_AT_ONCE, name="fencing an evicted member")
        for producer_id in (*epochs, *unfenced):
            self._producers.pop(producer_id, None)
        return FenceOutcome(epochs, unfenced)

    async def _until_fenced(self, writer: Writer, told: int | None) -> int:
        """Try again until it succeeds. Raises: NotFenceable."""
        producer = self._producers.setdefault(
            writer.producer_id,
            PreviousProducer(self._brokers, writer.transactional_id, writer.producer_id, writer.epoch, rng=self._rng),
        )
        if told is not None:
            producer.learn_fence_epoch(told)
        backoff = Backoff(self._rng, first_s=0.05, most_s=5.0)
        say_at_s, patience_s = self._clock.monotonic() + SAID_AFTER_S, PROOF_S
        while True:
            crash: dict[str, str] = {}
            try:
                async with asyncio.timeout(patience_s):
                    topics = await self._find(writer.flow)
                    return await fence_and_prove(self._brokers, producer, topics, clock=self._clock, rng=self._rng)
            except NotFenceable:
                raise
            except TimeoutError:
                why = "its markers have not come; it takes READ and WRITE on the topics of positions and status"
                patience_s = min(PROOF_MOST_S, 2 * patience_s)
            except Mm2Error as error:
                why = str(error)
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                why = f"{type(error).__name__}: {error}"
                crash = {
                    "at": f"{where.name}:{where.lineno}",
                    "remedy": "This is a defect in mm2py; please report it with this line.",
                }
            if self._clock.monotonic() >= say_at_s or (crash and not backoff.attempts):
                say_at_s = self._clock.monotonic() + SAID_EVERY_S
                effect = "what it owned waits for that"
                self._log.warning(
                    "member.fencing",
                    producer_id=writer.producer_id,
                    flow=str(writer.flow),
                    why=why,
                    effect=effect,
                    **crash,
                )
            await asyncio.sleep(backoff.next_s())

    async def _find(self, flow: Flow) -> list[TopicMetadata]:
        """Return the internal topics of a flow that exist; no producer can write to the others.

        Raises:
            BrokerRefused: one of them has a partition without a leader, or may not be seen.
        """
        names = sorted(self._topics_of(flow))
        found = (await fetch_metadata(self._brokers, names)).topics
        topics = []
        for name in names:
            topic = found.get(name)
            if topic is None or topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                continue
            leaderless = any(part.leader is None for part in topic.partitions.values())
            code = topic.error_code or (LEADER_NOT_AVAILABLE if leaderless else 0)
            if code:
                raise BrokerRefused(f"Finding the leaders of {name}", code)
            topics.append(topic)
        return topics


CLAIM_SPREAD: Final = 0.3
"""Members that see a leader with an expired session claim within this part of a heartbeat interval."""


class LeaderLoop:
    """The leader loop of one member. ``run`` it; set ``news`` when there may be something to do."""

    def __init__(self, member: MemberHandle, joined: Joined, candidate: Candidate, context: GroupContext) -> None:
        self.joined = joined
        """The description of the member that the group is to have."""
        self.news = asyncio.Event()
        self._member = member
        self._tick_s = context.settings.heartbeat_interval_s
        self._evicted_writers = EvictedWriters(
            member.gated(context.brokers),
            context.internal_topics,
            clock=context.clock,
            rng=context.rng,
            log=context.log,
        )
        self._candidate = candidate
        self._bundle_of = context.bundle_of
        self._clock = context.clock
        self._rng = context.rng
        self._log = context.log.bind(member=member.id)
        self._plan: Planned | None = None
        self._fencing: dict[MemberId, asyncio.Task[None]] = {}

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        """Carry out what ``decide`` returns, one thing after the other: each decision knows the previous outcome.

        A leader that does not take part any more resigns.

        Raises:
            Mm2Error: as ``ControlLog.append``, or IncarnationEnded. This member has ended.
        """
        while self._member.takes_part:
            self.news.clear()
            self._drop_fences()
            await self._while_state_lasts(self._act(tasks))
        if self._member.is_leader:
            await self._member.say([Resigned(self._member.id, self._member.view.leader_epoch)])

    async def _act(self, tasks: asyncio.TaskGroup) -> None:
        await self._carry_out(tasks)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._tick_s):
                await self.news.wait()

    async def _while_state_lasts(self, action: Coroutine[Any, Any, None]) -> None:
        """Run an action until it is done, or the candidate state changes.

        The story: w1 claims leadership while its znode is the first, and the append waits for the control log's next
        leader. Meanwhile w1's session ends, and w2's znode becomes the first. If the append were retried, w1 would be
        elected although it may not lead any more.
        """
        doing = asyncio.create_task(action, name=f"{self._member.id} acting")
        falling = asyncio.create_task(self._candidate.changed(self._candidate.state), name="candidate state")
        try:
            await asyncio.wait([doing, falling], return_when=asyncio.FIRST_COMPLETED)
        finally:
            doing.cancel()
            falling.cancel()
            await asyncio.wait([doing, falling])
        if not doing.cancelled():
            doing.result()

    @property
    def _may_act(self) -> bool:
        return self._member.is_leader and self._candidate.state is CandidateState.MAY_LEAD

    async def _carry_out(self, tasks: asyncio.TaskGroup) -> None:
        actions = self._decide()
        claims = any(isinstance(action, Append) and isinstance(action.record, Claim) for action in actions)
        if claims and len(self._member.view.members) > 1:  # a lone member has no rival
            await asyncio.sleep(self._rng.uniform(0, CLAIM_SPREAD * self._tick_s))
            actions = self._decide()  # another member's claim may be in the log by now
        records = []
        for action in actions:
            match action:
                case Append(record):
                    records.append(record)
                case FenceMember(dead, writers):
                    name = f"{self._member.id} fencing {dead}"
                    self._fencing[dead] = tasks.create_task(self._fence(dead, writers), name=name)
                case Planned():
                    self._plan = action
        if records:
            self._note(records)
            await self._member.say(records)

    def _decide(self) -> Sequence[Action]:
        return decide(
            self._member.view,
            self._member.id,
            Situation(
                self.joined,
                f"{self._rng.getrandbits(64):016x}",
                candidate=self._candidate.state,
                evidence=self._candidate.evidence,
                fencing=frozenset(self._fencing),
                plan=self._plan,
                bundle_of=self._bundle_of,
            ),
        )

    def _note(self, records: Sequence[ControlRecord]) -> None:
        for record in records:
            match record:
                case Claim(leader_epoch=epoch):
                    self._log.info("member.claims_leadership", leader_epoch=epoch, instead_of=self._member.view.leader)
                case Evicted(dead=dead):
                    silent_ms = self._member.view.log_time_ms - self._member.view.members[dead].last_time_ms
                    self._log.warning(
                        "member.evicted",
                        dead=dead,
                        reason=f"no heartbeat for {silent_ms / 1000:.1f} s",
                        effect="it is fenced, and other workers copy its partitions",
                    )
                case _:
                    pass

    def _drop_fences(self) -> None:
        """Cancel fences that this member may not continue, and forget those that are done.

        The next leader starts them again, with the epoch that was raised before.
        """
        for dead, task in list(self._fencing.items()):
            if task.done() or not self._may_act or dead not in self._member.view.to_fence:
                task.cancel()
                del self._fencing[dead]

    async def _fence(self, dead: MemberId, writers: Mapping[int, Writer]) -> None:
        """Fence a member in the internal topics, and append that; not if this member may not lead any more."""
        leader_epoch = self._member.view.leader_epoch
        told = {
            producer_id: epoch for producer_id, (epoch, _) in self._member.view.fences.items() if producer_id in writers
        }
        begun_s = self._clock.monotonic()
        outcome = await self._evicted_writers.fence(list(writers.values()), told)
        if not self._may_act:
            return
        self._log.info(
            "member.fenced",
            dead=dead,
            producers=len(outcome.epochs),
            unfenced=len(outcome.unfenced),
            after_s=round(self._clock.monotonic() - begun_s, 3),
        )
        with contextlib.suppress(IncarnationEnded):
            await self._member.say([Fenced(self._member.id, leader_epoch, dead, outcome.epochs, outcome.unfenced)])
