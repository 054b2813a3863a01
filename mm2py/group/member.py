"""One member of a group: it joins, sends heartbeats, follows the control log, and acts on what it reads there.

Its states are in ``group/member_state.py``, what the records mean in ``membership.py``, what to do about them in
``decisions.py``; this is the shell around all three. ``group.py`` makes the next member, under another id, when one
has ended.

Counterpart: Connect's WorkerGroupMember and WorkerCoordinator.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from mm2py.errors import Mm2Error
from mm2py.flow import Flow
from mm2py.group.control_log import ControlLog, open_with_history
from mm2py.group.election.backend import ElectionBackend
from mm2py.group.election.candidate import Candidate
from mm2py.group.leader_loop import GroupContext, LeaderLoop
from mm2py.group.member_state import (
    Active,
    DrainExpired,
    Effect,
    Event,
    EvictionRead,
    FlowEnded,
    FlowsBegin,
    HeartbeatAcknowledged,
    HistoryRead,
    Joining,
    JoinRead,
    LeaveAsked,
    Leaving,
    MemberDraining,
    MemberEnded,
    MemberFailed,
    MemberStopped,
    Preparing,
    RecordTooNew,
    Refused,
    RequestWaits,
    State,
    Suspended,
    step,
)
from mm2py.group.membership import GroupState
from mm2py.group.ownership import Ownership
from mm2py.group.refusal import GroupRefused, refusal
from mm2py.group.state_snapshot import read_snapshot
from mm2py.kafka.port import Brokers
from mm2py.kafka.write_gate import Gate, GatedBrokers, IncarnationEnded
from mm2py.records.control_codec import NewerFormat
from mm2py.records.control_record import (
    Beat,
    ControlRecord,
    Entry,
    Joined,
    Left,
    Listed,
    Loads,
    MemberId,
    NotStarted,
    TaskName,
    Writes,
    shortened,
)
from mm2py.records.flow_waits import FlowWaits
from mm2py.records.link_use import LinkUse
from mm2py.records.safe_point import SafePoint
from mm2py.topics.names import control_log

LEAVE_S: Final = 3.0
"""How long a member that leaves tries to append that to the control log."""
MEMBER_DRAIN_S: Final = 5.0
"""How long a member that cannot read the log any more still sends heartbeats while its partitions are drained. A
partition that takes longer is fenced, and another worker continues to copy it."""
CLOCK_STEP_TOLD_MS: Final = 1000
"""If the control log's clock steps back by at least this, that is logged."""
GATE_CHECK_EVERY_S: Final = 1.0
LOADS_EVERY_S: Final = 10.0
LOAD_CHANGED: Final = 1.25
LOADS_A_RECORD: Final = 5000


class MemberEvicted(Mm2Error):
    """The group has evicted this member."""

    def __init__(self) -> None:
        super().__init__(
            "Its session has expired, and the group has evicted it.",
            remedy="It joins again, with another id. If this happens often, look at its load and its network.",
        )


class _Done(Exception):
    """This member leaves or has ended: its tasks end."""


class Member:
    """One member. ``run`` it once; everything that is done in its name ends with it."""

    def __init__(
        self,
        joined: Joined,
        election: ElectionBackend,
        context: GroupContext,
    ) -> None:
        """Make one; no request is sent yet. ``joined`` is the record with which it will join, with its own new id."""
        settings = context.settings
        self.id = joined.member
        self.state: State = Preparing()
        """Changed by events only."""
        self.view = GroupState()
        self.joined_at = 0
        """The offset of the record with which it joined."""
        self.applied: Mapping[Flow, int] = {}
        """The version of each flow's configuration that this worker runs; heartbeats contain it."""
        self.held: dict[Flow, int] = {}
        """See ``Beat.held``."""
        self.links: dict[Flow, LinkUse] = {}
        """See ``Beat.links``."""
        self.troubles: dict[Flow, str] = {}
        """See ``Beat.troubles``."""
        self.not_started: dict[Flow, NotStarted] = {}
        """See ``Beat.not_started``."""
        self.safe: dict[Flow, SafePoint] = {}
        """See ``Beat.safe``."""
        self.waits: dict[Flow, FlowWaits] = {}
        """See ``Beat.waits``."""
        self._failed_at_ms: dict[Flow, int] = {}
        """By flow: when the first of its consecutive failed attempts has failed."""
        self.gate = Gate(
            context.clock,
            producer_expiry_ms=context.producer_expiry_ms,
            session_timeout_s=settings.session_timeout_s,
            on_wait=lambda: self._apply(RequestWaits()),
        )
        self._context = context
        self._settings = settings
        self._control_log = ControlLog(
            context.brokers,
            control_log(settings.name, producer_expiry_ms=context.producer_expiry_ms),
            poll_s=settings.heartbeat_interval_s,
            append_timeout_s=settings.session_timeout_s / 2,
            replication_factor=settings.replication_factor,
            clock=context.clock,
            rng=context.rng,
            log=context.log,
        )
        self._clock = context.clock
        self._log = context.log.bind(member=self.id)
        self._tasks = asyncio.TaskGroup()
        self._ownerships: dict[Flow, Ownership] = {}
        self._moved = asyncio.Event()
        """The view or the state has changed."""
        self._candidate = Candidate(election, self, settings, context.clock)
        self._leader_loop = LeaderLoop(self, joined, self._candidate, context)
        self._contradicting: dict[MemberId, GroupRefused] = {}
        """Members that joined before this one and contradict it: while one of them lives, it may not take part."""
        self._loads: dict[TaskName, float] = {}
        self._loads_due_s = 0.0
        self._seen_changes = self._seen_members = -1
        self._seen_moves: dict[Flow, int] = {}

    # What others ask of it

    @property
    def takes_part(self) -> bool:
        """Whether the group knows this member, and something may start in its name."""
        return isinstance(self.state, Active | Suspended)

    @property
    def is_stopping(self) -> bool:
        """Whether nothing may start in its name any more."""
        return isinstance(self.state, MemberDraining | Leaving | MemberEnded)

    @property
    def can_drain(self) -> bool:
        """Whether what runs in its name may still be drained."""
        return not isinstance(self.state, Leaving | MemberEnded)

    @property
    def is_over(self) -> bool:
        """Whether nothing may be done in its name any more."""
        return isinstance(self.state, MemberEnded)

    @property
    def is_leader(self) -> bool:
        return not self.is_over and self.view.leader == self.id

    def ownership(self, flow: Flow) -> Ownership:
        """Return this member's part of a flow."""
        return self._ownerships.setdefault(
            flow, Ownership(self, flow, self._settings.name, self._context.producer_expiry_ms)
        )

    def gated(self, brokers: Brokers) -> GatedBrokers:
        """Return the target as this member may write to it."""
        return GatedBrokers(brokers, lambda: self.gate, self._clock)

    def measure(self, bytes_per_s: Mapping[TaskName, float]) -> None:
        """Note the present loads of this member's tasks; those that have changed much are sent to the group."""
        self._loads.update(bytes_per_s)

    def uses(self, flow: Flow, link: LinkUse | None) -> None:
        """Note how a flow uses its link, for heartbeats; None: one connection to each broker is enough."""
        self.links = {one: used for one, used in self.links.items() if one != flow}
        if link is not None:
            self.links[flow] = link

    def waits_for(self, flow: Flow, waits: FlowWaits | None) -> None:
        """Note what this worker waits for in its partitions of a flow, for heartbeats; None: it copies none, or has
        not looked yet."""
        self.waits.pop(flow, None)
        if waits is not None:
            self.waits[flow] = waits

    def is_safe_to(self, flow: Flow, safe: SafePoint) -> None:
        """Tell up to when this worker has copied its partitions of a flow; None: it copies none."""
        self.safe[flow] = safe

    def cannot_store(self, flow: Flow, why: str) -> None:
        """Note why this worker cannot store in the status topic what it does not copy of a flow; empty: it can."""
        self.troubles = {one: text for one, text in self.troubles.items() if one != flow}
        if why:
            self.troubles[flow] = shortened(why)

    def cannot_start(self, flow: Flow, why: NotStarted | None) -> None:
        """Note why a flow does not start on this worker; None: it runs, or is not to run. As long as the reason stays
        the same, the time of the first note is kept."""
        before = self.not_started.get(flow)
        self.not_started = {one: told for one, told in self.not_started.items() if one != flow}
        if why is not None:
            since_ms = before.since_ms if before is not None and before.reason == why.reason else why.since_ms
            self.not_started[flow] = replace(why, since_ms=since_ms, why=shortened(why.why))

    def start_failed(self, flow: Flow, reason: str, why: str) -> None:
        """Count an attempt of a flow that has ended before it ran well. The group learns only of the second in a row:
        what ended the first may be over with the next attempt, for example if this producer was fenced."""
        first_ms = self._failed_at_ms.get(flow)
        self._failed_at_ms.setdefault(flow, self._clock.wall_ms())
        if first_ms is not None:
            self.cannot_start(flow, NotStarted(first_ms, reason, why))

    def started(self, flow: Flow) -> None:
        """Note that a flow runs well here, or is not to run."""
        self._failed_at_ms.pop(flow, None)
        self.cannot_start(flow, None)

    def runs_by(self, flow: Flow, version: int) -> None:
        """Note which version of a flow's configuration this worker runs; 0: its own file."""
        self.applied = {**self.applied, flow: version}

    def holds(self, flow: Flow, target: int | None) -> None:
        """Note that nothing of a flow runs here any more, and that all it sent was answered. The record at offset
        ``target`` of its configs topic asks for that. None: it may run."""
        self.held = {one: offset for one, offset in self.held.items() if one != flow}
        if target is not None:
            self.held[flow] = target

    def offer(self, joined: Joined) -> None:
        """Publish a changed description of this member: other flows, or another ``tasks.max``."""
        self._leader_loop.joined = replace(joined, member=self.id)
        self._leader_loop.news.set()

    def flow_ended(self, flow: Flow, *, outcome_unknown: bool) -> None:
        """Note that a flow of this member has stopped; ``outcome_unknown``: something it sent may be stored later."""
        self._apply(FlowEnded(flow, outcome_unknown))

    async def say(self, records: Sequence[ControlRecord]) -> None:
        """Append records, and return when they are part of ``view``; while draining, when they are appended.

        Raises:
            IncarnationEnded: this member leaves or has ended; or the records start a flow, and no flow may start any
                more.
        After cancelling it is unknown whether they were appended.
        """
        flows = frozenset(record.writer.flow for record in records if isinstance(record, Writes))
        if flows and not self.takes_part:
            raise IncarnationEnded(self._why_ended())
        if flows:
            self._apply(FlowsBegin(flows))
        if not self.is_over:
            offset = await self._control_log.append(records)
            while isinstance(self.state, Joining | Active | Suspended) and self.view.next_offset <= offset:
                await self._until_moved()
        if isinstance(self.state, Leaving | MemberEnded):
            raise IncarnationEnded(self._why_ended())

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until ``reached()`` is true, or this member is stopping. It is checked after each change of ``view`` or
        ``state``."""
        while not (self.is_stopping or reached()):
            await self._until_moved()

    async def joined(self) -> None:
        """Return when it takes part, or when ``is_stopping``."""
        await self.until(lambda: self.takes_part)

    async def leave(self, *, outcome_unknown: bool, cause: Mm2Error | None = None) -> None:
        """Leave for good; ``run`` returns, or raises ``cause``. If that cannot be logged in time, the others evict it.

        Args:
            outcome_unknown: something that was sent was not answered, so this member has to be fenced.
        """
        self._apply(LeaveAsked(outcome_unknown, cause))
        while not self.is_over:
            await self._until_moved()

    async def run(self) -> None:
        """Take part until ``leave``. If this is cancelled, the others evict the member after a session time-out.

        Raises:
            MemberEvicted, ControlLogLost, IncarnationEnded: this member has ended; join again under another id.
            GroupRefused, ControlLogUnusable, NewerFormat: this worker cannot take part; the error names the way out.
        """
        try:
            try:
                async with self._tasks as tasks:
                    tasks.create_task(self._follow(), name=f"{self.id} following")
                    tasks.create_task(self._until_leaving(), name=f"{self.id} leaving")
            except* _Done:
                pass
            except* Exception as group:
                error = group.exceptions[0]
                can_tell = isinstance(error, GroupRefused) or not isinstance(error, Mm2Error)
                self._apply(Refused(error) if can_tell else MemberFailed(error))
            if isinstance(self.state, Leaving):
                await self._say_left(outcome_unknown=self.state.outcome_unknown)
        finally:
            self._apply(MemberStopped())
        if isinstance(self.state, MemberEnded) and self.state.cause is not None:
            raise self.state.cause

    # Its states

    def _apply(self, event: Event) -> None:
        before = self.state
        self.state, effects = step(before, event)
        for effect in effects:
            self._carry_out(effect)
        if self.state is not before:
            self._moved.set()
            self._leader_loop.news.set()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Effect.ASK_TO_JOIN:
                self._tasks.create_task(self._join(), name=f"{self.id} joining")
            case Effect.TAKE_PART:
                self._log.info("member.joined", members=len(self.view.members), leader=self.view.leader)
                self._tasks.create_task(self._send_heartbeats(), name=f"{self.id} heartbeats")
                self._tasks.create_task(self._check_gate(), name=f"{self.id} gate")
                self._tasks.create_task(self._leader_loop.run(self._tasks), name=f"{self.id} leader loop")
                self._tasks.create_task(self._candidate.run(), name=f"{self.id} candidate")
            case Effect.LOG_SUSPENDED:
                self._log.warning(
                    "member.suspended",
                    doing="waiting for the control log",
                    why=f"no heartbeat was acknowledged for {self._settings.session_timeout_s:g} s",
                    effect="nothing is copied until one is",
                )
            case Effect.LOG_RESUMED:
                self._log.info("member.resumed")
            case Effect.EXPIRE_DRAIN:
                self._tasks.create_task(self._expire_drain(), name=f"{self.id} draining")
            case Effect.CLOSE_GATE:
                self.gate.end(self._why_ended())
                for ownership in self._ownerships.values():
                    ownership.changed.set()

    def _why_ended(self) -> str:
        cause = None if isinstance(self.state, Preparing | Joining | Active | Suspended) else self.state.cause
        return cause.what if isinstance(cause, Mm2Error) else "it has left"

    async def _until_moved(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    async def _until_leaving(self) -> None:
        while not isinstance(self.state, Leaving | MemberEnded):
            await self._until_moved()
        raise _Done

    async def _say_left(self, *, outcome_unknown: bool) -> None:
        with contextlib.suppress(Mm2Error, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self._control_log.append([Left(self.id, outcome_unknown)])

    async def _expire_drain(self) -> None:
        await asyncio.sleep(MEMBER_DRAIN_S)
        self._apply(DrainExpired())

    # Taking part

    async def _join(self) -> None:
        sent_at_s = self._clock.boottime()
        await self.say([self._leader_loop.joined])
        self.gate.renew(sent_at_s)
        self._apply(JoinRead())

    async def _send_heartbeats(self) -> None:
        """Renew the gate with each heartbeat that was read back, if this was still a member at the heartbeat's offset.

        The story: w1 wakes after it was evicted. Its heartbeat is acknowledged like any other, because a broker knows
        nothing of members. If the acknowledgement were enough, w1 would continue to write until it reads that it was
        evicted.
        """
        while True:
            begun_s = self._clock.boottime()
            await self.say(
                [
                    Beat(
                        self.id,
                        dict(self.applied),
                        dict(self.held),
                        dict(self.links),
                        dict(self.troubles),
                        dict(self.not_started),
                        dict(self.safe),
                        dict(self.waits),
                    ),
                    *self._changed_loads(),
                ]
            )
            if isinstance(self.state, MemberDraining) and not self.gate.is_fresh:
                # The others may have evicted this member, and it cannot read whether they have.
                return self._apply(EvictionRead(MemberEvicted()))
            self.gate.renew(begun_s)
            if self.gate.is_open:
                self._apply(HeartbeatAcknowledged())
            took_s = self._clock.boottime() - begun_s
            await asyncio.sleep(max(0.0, self._settings.heartbeat_interval_s - took_s))

    def _changed_loads(self) -> list[Loads]:
        now_s = self._clock.monotonic()
        if now_s < self._loads_due_s:
            return []
        self._loads_due_s = now_s + LOADS_EVERY_S
        loads, self._loads = self._loads, {}
        changed = [(task, load) for task, load in loads.items() if _differs(self.view.loads.get(task), load)]
        return [
            Loads(self.id, dict(changed[at : at + LOADS_A_RECORD])) for at in range(0, len(changed), LOADS_A_RECORD)
        ]

    async def _check_gate(self) -> None:
        while True:
            self.gate.check()
            await asyncio.sleep(GATE_CHECK_EVERY_S)

    # Following the control log

    async def _follow(self) -> None:
        opening = await open_with_history(self._control_log, self._settings.session_timeout_s, self._log)
        if opening.state is not None:
            self.view = read_snapshot(opening.state)
        for entry in opening.entries:
            self.view.take(entry)
        await self._wait_for_contradicting()
        self._apply(HistoryRead())
        try:
            while True:
                self._take(await self._control_log.read())
        except NewerFormat as error:
            # A member that drained need not be fenced: a worker of the newer version copies its partitions at once.
            self._log.error("member.too_old", why=str(error), effect="it drains its partitions and leaves")
            self._apply(RecordTooNew(error))

    async def _wait_for_contradicting(self) -> None:
        """Wait until the members that contradict this one seem dead. They are evicted once it has joined.

        The story: a group elects through ZooKeeper and loses power. The operator changes the election to the control
        log, and starts the workers again. If dead members could refuse them, no worker would ever evict the dead.

        Raises:
            GroupRefused: one of them still writes.
        """
        patience_ms = 0
        for name, one in self.view.members.items():
            if (error := refusal(self._leader_loop.joined, one.joined, self._settings)) is not None:
                self._contradicting[name] = error
                patience_ms = max(patience_ms, one.joined.session_timeout_ms)
                self._log.warning(
                    "member.contradicted",
                    by=name,
                    why=error.what,
                    effect="this worker waits until it knows whether that member is alive",
                )
        until_s = self._clock.monotonic() + patience_ms / 1000
        while self._clock.monotonic() < until_s and not self._contradicting.keys().isdisjoint(self.view.members):
            self._take(await self._control_log.read())

    def _take(self, entries: Sequence[Entry]) -> None:
        touched: set[Flow] = set()
        for entry in entries:
            match entry.record:
                case Joined(member=member) if member == self.id and isinstance(self.state, Joining):
                    self.joined_at = entry.offset
                case Writes(writer=writer):
                    touched.add(writer.flow)
                case Listed(flow=flow):
                    touched.add(flow)
                case _:
                    pass
            self._note_clock(entry.time_ms)
            self.view.take(entry)
            self._refuse_beside(entry.record)
        if self.takes_part and self.id not in self.view.members:
            self._apply(EvictionRead(MemberEvicted()))  # before another task runs: a heartbeat may come after it
        self.gate.is_exempt = self.view.members.keys() == {self.id} and self.view.can_be_fenced(self.id)
        if entries:
            self._moved.set()
            self._tell_changes(touched)

    def _refuse_beside(self, record: ControlRecord) -> None:
        """If two members contradict each other, the one that joined later leaves when it reads a record of the other.

        Raises:
            GroupRefused: this record is one.
        """
        if isinstance(record, Joined) and self.id not in self.view.members:
            error = refusal(self._leader_loop.joined, record, self._settings)
            if error is not None:
                self._contradicting[record.member] = error
        if record.member in self._contradicting and record.member in self.view.members:
            raise self._contradicting[record.member]

    def _note_clock(self, append_time_ms: int) -> None:
        """Log that the log's clock stepped back. That does no harm here, but operators compare its times."""
        back_ms = self.view.append_time_ms - append_time_ms
        if back_ms >= CLOCK_STEP_TOLD_MS:
            self._log.warning(
                "member.log_clock_stepped_back",
                by_s=round(back_ms / 1000, 1),
                why="the clock of a broker that led the control log was wrong, or is",
                effect="none on sessions and leadership: these go by the differences of append times",
                remedy="See to it that the clocks of the target's brokers agree.",
            )

    def _tell_changes(self, touched: Collection[Flow]) -> None:
        """Wake only the parts whose answers may have changed: from each member a record is read every second."""
        members, moves = self.view.member_changes, self.view.revocations.flow_changes
        for flow, tasks in self._ownerships.items():
            if flow in touched or members != self._seen_members or moves.get(flow) != self._seen_moves.get(flow):
                tasks.changed.set()
        self._seen_members, self._seen_moves = members, dict(moves)
        if self.view.changes != self._seen_changes or self.view.can_be_claimed():
            self._seen_changes = self.view.changes
            self._leader_loop.news.set()


def _differs(known: float | None, measured: float) -> bool:
    if known is None:
        return measured > 0
    low, high = sorted((max(known, 1024.0), max(measured, 1024.0)))
    return high > low * LOAD_CHANGED
