"""The leader loop: what a member does about what it has read, most of it as leader. The shell around ``role.decide``.

Answers to what the leader of Connect's group does in WorkerCoordinator and DistributedHerder.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.group.election.backend import CandidateState
from mm2py.group.election.candidate import Candidate
from mm2py.group.join_metadata import Terms
from mm2py.group.leading.decisions import Action, Append, Fence, Planned, Situation, decide
from mm2py.group.leading.evicted_writers import DeadWriters
from mm2py.kafka.gate import IncarnationEnded
from mm2py.records.control_record import (
    Claim,
    ControlRecord,
    Evicted,
    Fenced,
    MemberId,
    Resigned,
    Share,
    Writer,
)

if TYPE_CHECKING:
    from mm2py.group.member import Member

CLAIM_SPREAD: Final = 0.3
"""Members that see a silent leader claim within this part of a heartbeat interval: few in vain, none late."""


class LeaderLoop:
    """Of one member. ``run`` it; set ``news`` when there may be something to do."""

    def __init__(
        self,
        member: Member,
        terms: Terms,
        dead_writers: DeadWriters,
        candidate: Candidate,
        *,
        bundle_of: Callable[[Share], Share],
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """``bundle_of`` as in ``role.Situation``."""
        self.joined = terms.joined(member.id)
        """What the group shall know of the member."""
        self.news = asyncio.Event()
        self._member = member
        self._tick_s = terms.heartbeat_interval_s
        self._dead_writers = dead_writers
        self._candidate = candidate
        self._bundle_of = bundle_of
        self._clock = clock
        self._rng = rng
        self._log = log
        self._plan: Planned | None = None
        self._fencing: dict[MemberId, asyncio.Task[None]] = {}

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        """Do what ``decide`` wants, one thing after the other: each decision knows what came of the one before.

        A leader that takes part no more resigns.

        Raises:
            Mm2Error: as ``ControlLog.append``, or IncarnationEnded. This member is over.
        """
        while self._member.takes_part:
            self.news.clear()
            self._drop_fences()
            await self._while_state_lasts(self._take_a_turn(tasks))
        if self._leads:
            await self._member.say([Resigned(self._member.id, self._member.view.leader_epoch)])

    async def _take_a_turn(self, tasks: asyncio.TaskGroup) -> None:
        await self._carry_out(tasks)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._tick_s):
                await self.news.wait()

    async def _while_state_lasts(self, turn: Coroutine[Any, Any, None]) -> None:
        """Do something until it is done, or our candidate state is another.

        The story: w1 claims leadership while its znode is the first, and the append waits for the control log's next
        leader. Meanwhile w1's session ends, and w2's znode is the first. If the append were retried, w1 would be
        elected by a permission that it has lost.
        """
        doing = asyncio.create_task(turn, name=f"{self._member.id} acting in turn")
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
    def _leads(self) -> bool:
        return not self._member.is_over and self._member.view.leader == self._member.id

    @property
    def _may_act(self) -> bool:
        return self._leads and self._candidate.state is CandidateState.MAY_LEAD

    async def _carry_out(self, tasks: asyncio.TaskGroup) -> None:
        actions = self._decide()
        claims = any(isinstance(action, Append) and isinstance(action.record, Claim) for action in actions)
        if claims and len(self._member.view.members) > 1:  # a lone member has no rival
            await asyncio.sleep(self._rng.uniform(0, CLAIM_SPREAD * self._tick_s))
            actions = self._decide()  # another member's claim may stand there by now
        records = []
        for action in actions:
            match action:
                case Append(record):
                    records.append(record)
                case Fence(dead, writers):
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
                    self._log.info("member.claims", leader_epoch=epoch, instead_of=self._member.view.leader)
                case Evicted(dead=dead):
                    silent_ms = self._member.view.log_time_ms - self._member.view.members[dead].last_time_ms
                    self._log.warning(
                        "member.evicted",
                        dead=dead,
                        silent_s=round(silent_ms / 1000, 1),
                        effect="it is fenced, and others copy its partitions on",
                    )
                case _:
                    pass

    def _drop_fences(self) -> None:
        """End fences that are done, or that we may not go on with. The leader begins them again.

        A fence that begins again goes on with the epoch that was raised before.
        """
        for dead, task in list(self._fencing.items()):
            if task.done() or not self._may_act or dead not in self._member.view.to_fence:
                task.cancel()
                del self._fencing[dead]

    async def _fence(self, dead: MemberId, writers: Mapping[int, Writer]) -> None:
        """Fence a member in the positions, and say so. If we lead no more by then, what we say is void."""
        leader_epoch = self._member.view.leader_epoch
        told = {
            producer_id: epoch for producer_id, (epoch, _) in self._member.view.fences.items() if producer_id in writers
        }
        begun_s = self._clock.monotonic()
        outcome = await self._dead_writers.shut_out(list(writers.values()), told)
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
