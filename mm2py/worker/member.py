"""One life of a worker in its group: it joins, beats, follows the control log, and does what it has to do there.

Answers to Connect's WorkerGroupMember and WorkerCoordinator. What the records mean is folded in ``membership.py``, what
is to be done about it decided in ``role.py``; this is the shell around both. A life ends when the group has put it out,
when the control log was lost, or when it was out of touch for long; ``group.py`` begins the next under another id.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.errors import Mm2Error
from mm2py.flow import Flow
from mm2py.group.election.backend import ElectionBackend
from mm2py.group.election.candidate import Candidate
from mm2py.kafka.gate import Gate, GatedBrokers, IncarnationEnded
from mm2py.kafka.port import Brokers
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
    Share,
    Writes,
)
from mm2py.worker.control_history import open_with_history
from mm2py.worker.control_log import ControlLog
from mm2py.worker.dead_writers import DeadWriters
from mm2py.worker.duties import Duties
from mm2py.worker.flow_shares import FlowShares
from mm2py.worker.membership import View
from mm2py.worker.terms import GroupRefused, Terms, refusal

LEAVE_S: Final = 3.0
"""How long a member that ends waits until that is known."""
DRAIN_MOST_S: Final = 5.0
"""How long a member that cannot read the log any more beats on at most, for its partitions to be drained. What takes
longer is fenced, and gone on with elsewhere."""
CLOCK_STEP_TOLD_MS: Final = 1000
"""A step back of the control log's clock by so much is said."""
TOUCH_EVERY_S: Final = 1.0
LOADS_EVERY_S: Final = 10.0
LOAD_CHANGED: Final = 1.25
LOADS_A_RECORD: Final = 5000


class MemberOut(Mm2Error):
    """The group has put this member out."""

    def __init__(self) -> None:
        super().__init__(
            "It was silent for longer than its session time-out, and the others go on without it.",
            remedy="It joins anew under another id. If this happens often, look at its load and its way to the target.",
        )


class _HasLeft(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Runners:
    """The other members of a group that run a flow, or are about to; none that is silent."""

    told: frozenset[MemberId]
    """They run it by what is stored, as they have said."""
    untold: frozenset[MemberId]
    """They joined before us, and have not said yet what they run."""
    unheard: frozenset[MemberId]
    """Those of either kind that have written nothing since the asked place of the log, and may be dead."""

    @property
    def is_known(self) -> bool:
        """Whether it is known if anybody alive runs the flow by what is stored, but for those that have not said."""
        return not self.unheard or not self.told <= self.unheard


class Member:
    """One member. ``run`` it once; everything that is done in its name ends with it."""

    def __init__(
        self,
        member_id: MemberId,
        terms: Terms,
        control_log: ControlLog,
        dead_writers: DeadWriters,
        election: ElectionBackend,
        *,
        gate: Gate,
        bundle_of: Callable[[Share], Share] = lambda share: share,
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """Make one; nothing is asked yet. ``member_id`` is new for each life; ``bundle_of`` as in ``Situation``."""
        self.id = member_id
        self.view = View()
        self.applied: Mapping[Flow, int] = {}
        """The version of each flow's configuration that this worker runs; beats tell it."""
        self.joined = asyncio.Event()
        """The group knows this member; or it is over."""
        self.stop_wanted = asyncio.Event()
        """It can follow the log no more: its partitions are to be drained, and it leaves by itself. Or it is over."""
        self.over: Mm2Error | None = None
        """Why it is over, once it is."""
        self.gate = gate
        gate.on_wait = self._tell_waiting
        self._terms = terms
        self._log_of_group = control_log
        self._clock = clock
        self._log = log = log.bind(group=terms.group, target=terms.target, member=member_id)
        self._shares: dict[Flow, FlowShares] = {}
        self._moved = asyncio.Event()
        """The view has moved on; whoever waits for it looks again."""
        self._candidate = Candidate(election, self, self.gate, terms, clock)
        self._duties = Duties(
            self,
            terms,
            dead_writers,
            self._candidate,
            bundle_of=bundle_of,
            clock=clock,
            rng=rng,
            log=log,
        )
        self._left = asyncio.Event()
        self._joined_at = 0
        """Behind this offset of the log we are part of the group."""
        self._leaving = False
        self._said_waiting = False
        self._asked_to_join = False
        self._contradicting: dict[MemberId, GroupRefused] = {}
        """Those that joined before us and that we may not take part beside, should they still live."""
        self._unreadable: Mm2Error | None = None
        self._writing: set[Flow] = set()
        """The flows of which something may be sent in our name."""
        self._in_doubt = False
        """Something that was sent in our name was not answered."""
        self._let_go = asyncio.Event()
        self._rejoins_for: Mm2Error | None = None
        self._loads: dict[Share, float] = {}
        self._loads_due_s = 0.0
        self._seen_changes = self._seen_members = -1
        self._seen_moves: dict[Flow, int] = {}

    # What others ask of it

    @property
    def is_over(self) -> bool:
        return self.over is not None

    @property
    def is_leader(self) -> bool:
        return not self.is_over and self.view.leader == self.id

    @property
    def waits_for(self) -> str:
        """What keeps this worker from copying as a whole, for its status; empty if nothing does."""
        return "control log" if self.gate.waits else ""

    def shares(self, flow: Flow) -> FlowShares:
        """Return what of a flow is this member's."""
        return self._shares.setdefault(flow, FlowShares(self, flow, self._terms.group))

    def gated(self, brokers: Brokers) -> GatedBrokers:
        """Return the target as this member may write to it."""
        return GatedBrokers(brokers, self.gate, self._clock)

    def measure(self, bytes_per_s: Mapping[Share, float]) -> None:
        """Tell what shares of this member carry just now; the group hears of what has changed much."""
        self._loads.update(bytes_per_s)

    def runs_by(self, flow: Flow, version: int) -> None:
        """Tell by which version of a flow's configuration this worker runs it; 0: by its own file."""
        self.applied = {**self.applied, flow: version}

    def runners(self, flow: Flow, since: int | None = None) -> Runners:
        """Return who else runs a flow, or is about to.

        The story: two workers are started at once, with a file that nobody has run before. Did each of them take the
        other for one that runs the flow, neither would store it. So the later one waits for the earlier.

        Args:
            since: an offset of the log; who wrote nothing from there on is ``unheard``. None: our joining it.
        """
        members = {name: one for name, one in self.view.members.items() if name != self.id and not one.silent}
        told = frozenset(name for name, one in members.items() if one.applied.get(flow))
        before = list(itertools.takewhile(lambda name: name != self.id, self.view.members))
        untold = frozenset(
            name
            for name in before
            if name in members and flow in members[name].joined.flows and flow not in members[name].applied
        )
        since = self._joined_at if since is None else since
        return Runners(told, untold, frozenset(name for name in told | untold if members[name].last_offset < since))

    async def until_runners_known(self, flow: Flow) -> None:
        """Return when those that run a flow have been told from the dead, which the log knows for a session time-out.

        The story: all workers were killed, and one is started with another file. Those that are dead are members still,
        and say that they run the flow. And the last beat of one of them was on its way when it died, and comes behind
        our own first record; so who is taken for alive has been heard twice.
        """
        await self.until(lambda: self.runners(flow).is_known)
        since = self.view.next_offset
        await self.until(lambda: self.runners(flow, since).is_known)

    def offer(self, terms: Terms) -> None:
        """Take part on other terms from now on: other flows, or another ``tasks.max``."""
        self._duties.joined = terms.joined(self.id)
        self._duties.news.set()

    def let_go(self, flow: Flow, *, in_doubt: bool) -> None:
        """Tell that what ran of a flow in our name has ended; ``in_doubt``: something it sent may be stored later."""
        self._in_doubt |= in_doubt
        self._writing.discard(flow)
        self._let_go.set()

    async def say(self, records: Sequence[ControlRecord]) -> None:
        """Append records, and return when they are part of ``view``.

        Raises:
            IncarnationEnded: this member is over; or it only drains, and is to write under nothing new.
        Cancelling leaves open whether they were appended.
        """
        writes = {record.writer.flow for record in records if isinstance(record, Writes)}
        if writes and self._unreadable is not None:
            raise IncarnationEnded(self._unreadable.what)
        self._writing |= writes
        if self.over is None:
            offset = await self._log_of_group.append(records)
            while self.over is None and self._unreadable is None and self.view.next_offset <= offset:
                self._moved.clear()
                await self._moved.wait()
        if self.over is not None:
            raise IncarnationEnded(self._why_over())

    async def until(self, reached: Callable[[], bool]) -> None:
        """Return when something is so that depends on ``view``, or when nothing may be begun here any more."""
        while not (self.stop_wanted.is_set() or reached()):
            self._moved.clear()
            await self._moved.wait()

    async def leave(self, *, in_doubt: bool) -> None:
        """Leave for good; ``run`` returns. What could not be said in time is found out by the others.

        Args:
            in_doubt: something that was sent was not answered, so this member has to be fenced.
        """
        await self._say_left(in_doubt=in_doubt)
        self._left.set()

    async def rejoin(self, why: Mm2Error) -> None:
        """Leave in doubt, and let ``run`` raise ``why``: the others fence what was written in this member's name."""
        if self.over is None:
            self._rejoins_for = why
            await self.leave(in_doubt=True)

    async def _say_left(self, *, in_doubt: bool) -> None:
        self._leaving = True
        with contextlib.suppress(Mm2Error, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                if self.over is None and self._asked_to_join:  # else nobody knows it, nor will
                    await self._log_of_group.append([Left(self.id, in_doubt)])

    # Its life

    async def run(self) -> None:
        """Take part until ``leave``. Cancelled, it is put out by the others after a session time-out.

        Raises:
            MemberOut, ControlLogLost, IncarnationEnded: this life is over; come back under another id.
            GroupRefused, ControlLogUnusable, NewerFormat: this worker cannot take part; the error names the way out.
        """
        why: Mm2Error = IncarnationEnded("it has left")
        try:
            await self._live()
        except _HasLeft:
            lasting = self._unreadable or self._rejoins_for
            if lasting is not None:
                why = lasting
                raise why from None
        except Mm2Error as error:
            why = error
            if isinstance(error, GroupRefused):
                await self._say_left(in_doubt=True)
            raise
        except Exception:
            await self._say_left(in_doubt=True)
            raise
        finally:
            self._end(why)

    async def _live(self) -> None:
        opening = await open_with_history(self._log_of_group, self._terms.session_timeout_s, self._log)
        if opening.state is not None:
            self.view = View.from_json(opening.state)
        for entry in opening.entries:
            self.view.take(entry)
        await self._wait_for_contradicting()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read(), name=f"{self.id} reading")
                tasks.create_task(self._take_part(tasks), name=f"{self.id} joining")
                tasks.create_task(self._until_left(), name=f"{self.id} leaving")
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    async def _wait_for_contradicting(self) -> None:
        """Return when those that contradict us seem dead: they are put out when we have joined.

        The story: a group elects through ZooKeeper and loses power. Its operator turns to the control log, and starts
        its workers anew. Were they refused beside the dead, nobody would ever put these out.

        Raises:
            GroupRefused: one of them still writes.
        """
        patience_ms = 0
        for name, one in self.view.members.items():
            if (error := refusal(self._terms, one.joined)) is not None:
                self._contradicting[name] = error
                patience_ms = max(patience_ms, one.joined.session_timeout_ms)
                self._log.warning("member.contradicted", by=name, why=error.what, effect="we wait to see if it lives")
        until_s = self._clock.monotonic() + patience_ms / 1000
        while self._clock.monotonic() < until_s and not self._contradicting.keys().isdisjoint(self.view.members):
            self._take(await self._log_of_group.read())

    def _end(self, why: Mm2Error) -> None:
        if self.over is None:
            self.over = why
        self.gate.end(self._why_over())
        for event in (
            self._moved,
            self.joined,
            self.stop_wanted,
            *(shares.changed for shares in self._shares.values()),
        ):
            event.set()

    def _why_over(self) -> str:
        return "" if self.over is None else self.over.what

    async def _until_left(self) -> None:
        await self._left.wait()
        raise _HasLeft

    async def _take_part(self, tasks: asyncio.TaskGroup) -> None:
        sent_at_s = self._clock.boottime()
        self._asked_to_join = True
        await self.say([self._duties.joined])
        self.gate.renew(sent_at_s)
        self.joined.set()
        self._log.info("member.joined", members=len(self.view.members), leader=self.view.leader)
        tasks.create_task(self._beat(), name=f"{self.id} beating")
        tasks.create_task(self._keep_in_touch(), name=f"{self.id} touch")
        tasks.create_task(self._duties.run(tasks), name=f"{self.id} acting")
        tasks.create_task(self._candidate.run(), name=f"{self.id} candidate")

    async def _beat(self) -> None:
        """Renew the gate with each beat that was read back, while we were a member at its place in the log.

        The story: w1 wakes after it was put out. Its beat is acknowledged like any other, for a broker knows nothing of
        members; by that alone w1 would write on until it has read that it is out.
        """
        while True:
            begun_s = self._clock.boottime()
            await self.say([Beat(self.id, dict(self.applied)), *self._changed_loads()])
            if self._unreadable is not None and not self.gate.is_fresh:
                raise MemberOut  # so it may be: what the others did about its silence cannot be read
            self.gate.renew(begun_s)
            self._tell_back()
            took_s = self._clock.boottime() - begun_s
            await asyncio.sleep(max(0.0, self._terms.heartbeat_interval_s - took_s))

    def _changed_loads(self) -> list[Loads]:
        now_s = self._clock.monotonic()
        if now_s < self._loads_due_s:
            return []
        self._loads_due_s = now_s + LOADS_EVERY_S
        loads, self._loads = self._loads, {}
        changed = [(share, load) for share, load in loads.items() if _differs(self.view.loads.get(share), load)]
        return [
            Loads(self.id, dict(changed[at : at + LOADS_A_RECORD])) for at in range(0, len(changed), LOADS_A_RECORD)
        ]

    async def _keep_in_touch(self) -> None:
        while True:
            self.gate.check()
            await asyncio.sleep(TOUCH_EVERY_S)

    # Following

    async def _read(self) -> None:
        while True:
            try:
                entries = await self._log_of_group.read()
            except NewerFormat as error:
                await self._stop_reading(error)
            else:
                self._take(entries)

    async def _stop_reading(self, error: NewerFormat) -> None:
        """Beat on while partitions are drained: nobody may take over what we do not know to be given away.

        What was drained need not be fenced: a younger worker goes on with it at once.
        """
        self._unreadable = error
        self._log.error("member.too_old", why=str(error), effect="it drains its partitions and leaves")
        self.stop_wanted.set()
        self._moved.set()
        self._duties.resign()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_MOST_S):
                while self._writing:
                    self._let_go.clear()
                    await self._let_go.wait()
        await self.leave(in_doubt=self._in_doubt or bool(self._writing))

    def _take(self, entries: Sequence[Entry]) -> None:
        touched: set[Flow] = set()
        for entry in entries:
            match entry.record:
                case Joined(member=member) if member == self.id and not self.joined.is_set():
                    self._joined_at = entry.offset
                case Writes(writer=writer):
                    touched.add(writer.flow)
                case Listed(flow=flow):
                    touched.add(flow)
                case _:
                    pass
            self._note_clock(entry.time_ms)
            self.view.take(entry)
            self._refuse_beside(entry.record)
        if self.joined.is_set() and self.id not in self.view.members and not self._leaving:
            out = MemberOut()
            self._end(out)  # before anybody else runs: a beat of ours may stand behind that
            raise out
        self.gate.is_exempt = self.view.members.keys() == {self.id} and self.view.can_be_fenced(self.id)
        if entries:
            self._moved.set()
            self._tell_changes(touched)

    def _refuse_beside(self, record: ControlRecord) -> None:
        """Of two who contradict each other the later one yields, at the first sign of life of the earlier one.

        Raises:
            GroupRefused: this record is one.
        """
        if isinstance(record, Joined) and self.id not in self.view.members:
            error = refusal(self._terms, record)
            if error is not None:
                self._contradicting[record.member] = error
        if record.member in self._contradicting and record.member in self.view.members:
            raise self._contradicting[record.member]

    def _note_clock(self, append_time_ms: int) -> None:
        """Say that the log's clock stepped back; ``View`` is made for that, what operators compare is not."""
        back_ms = self.view.append_time_ms - append_time_ms
        if back_ms >= CLOCK_STEP_TOLD_MS:
            self._log.warning(
                "member.log_clock_stepped_back",
                by_s=round(back_ms / 1000, 1),
                why="the clock of a broker that led the control log was wrong, or is",
                effect="none on who is alive or leads: that goes by what lies between two append times",
                remedy="See to it that the clocks of the target's brokers agree.",
            )

    def _tell_changes(self, touched: Collection[Flow]) -> None:
        """Wake those whose answers may have changed, and no others: a record a second is read from each member."""
        members, moves = self.view.member_changes, self.view.hand_overs.flow_changes
        for flow, shares in self._shares.items():
            if flow in touched or members != self._seen_members or moves.get(flow) != self._seen_moves.get(flow):
                shares.changed.set()
        self._seen_members, self._seen_moves = members, dict(moves)
        if self.view.changes != self._seen_changes or self.view.can_be_claimed():
            self._seen_changes = self.view.changes
            self._duties.news.set()

    def _tell_waiting(self) -> None:
        if not self._said_waiting and not self.is_over:
            self._said_waiting = True
            self._log.warning(
                "member.waiting",
                doing="waiting for the control log",
                why=f"no beat was acknowledged for {self._terms.session_timeout_s:g} s",
                effect="nothing is copied until one is",
            )

    def _tell_back(self) -> None:
        if self._said_waiting and self.gate.is_open:
            self._said_waiting = False
            self._log.info("member.back")


def _differs(known: float | None, measured: float) -> bool:
    if known is None:
        return measured > 0
    low, high = sorted((max(known, 1024.0), max(measured, 1024.0)))
    return high > low * LOAD_CHANGED
