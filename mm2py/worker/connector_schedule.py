"""When a connector runs on this worker: while its group and its operators let it, and by which settings.

Counterpart: what DistributedHerder does with connectors and tasks after each rebalance, and when a configuration
changes: Connect restarts a connector for any change. Here a source connector runs on every member, and copies the
partitions that are its own; a flow's heartbeats and its checkpoints are emitted by one member each. Most changes of
settings take effect while a flow copies (``shared_settings/flow_config.py``); for the others the source connector is
drained and restarts. A paused source connector is drained, and its partitions stay assigned.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.config.flow_part import FlowPart
from mm2py.config.flow_properties import StoredConfigUnusable
from mm2py.config.settings import FlowSettings
from mm2py.errors import Mm2Error
from mm2py.flow import ConnectorName, Flow, Kind
from mm2py.group.control_topic import ControlLogUnusable
from mm2py.group.group import Group
from mm2py.group.member import Member
from mm2py.group.ownership import Ownership
from mm2py.group.refusal import GroupRefused
from mm2py.kafka.cluster import WAITING_REPORT_S, now_and_then, until_answered
from mm2py.kafka.errors import KafkaError
from mm2py.kafka.write_gate import IncarnationEnded
from mm2py.records.backfill_record import Holds
from mm2py.records.control_codec import NewerFormat
from mm2py.records.control_record import NotStarted, Released, TaskName
from mm2py.records.operator_request import RestartPartitions, Target
from mm2py.records.pause_record import Pauses
from mm2py.shared_settings.current_settings import ConnectorRequests, CurrentSettings
from mm2py.shared_settings.flow_config import Follow
from mm2py.shared_settings.flow_owner import FlowOfAnotherGroup, OwnerLost
from mm2py.shared_settings.follow import ChangedWithoutEnd, ConfigWatch, other_runners
from mm2py.status.not_copied import Reason
from mm2py.worker.schedule import Always

AGAIN_S: Final = 30.0
"""How soon stored settings that could not be read are read again."""

SETTLING: Final = "it is not settled yet by which settings, and by which group, the flow runs"

SettingsT = TypeVar("SettingsT")


class Attempts(Protocol):
    """The source connectors of one flow, attempt after attempt."""

    def change(self, settings: FlowSettings, parts: Collection[FlowPart]) -> None:
        """Give new settings to parts of the running connector."""
        ...

    def asked(self, what: RestartPartitions | Holds | Pauses) -> None:
        """Ask the running connector to read partitions again from their positions, to leave topics to backfills, or to
        pause topics and partitions."""
        ...

    def leaves_outcome_unknown(self, member: Member) -> bool:
        """Whether something that was sent in the name of a member may be stored later."""
        ...


class MemberSchedule:
    """A connector runs as long as this worker is the same member of its group, and operators want it to."""

    def __init__(self, group: Group, flow: Flow, kind: Kind, current: CurrentSettings) -> None:
        self._group = group
        self._flow = flow
        self._kind = kind
        self._current = current
        self._asked = ConnectorRequests()
        """What operators asked when it was granted."""
        self._member: Member | None = None
        self.waits_for = ""
        """See ``ConnectorSchedule``."""

    @property
    def member(self) -> Member:
        """The member in whose name the connector runs."""
        if self._member is None:
            raise AssertionError("it was not granted")
        return self._member

    @property
    def held(self) -> Target | None:
        """See ``ConnectorSchedule``."""
        return self._current.asked(self._kind).held

    @property
    def is_off(self) -> bool:
        """See ``ConnectorSchedule``."""
        return self._kind is Kind.SOURCE and self._current.settings is None

    async def until_asked(self) -> None:
        """See ``ConnectorSchedule``."""
        before = self._current.asked(self._kind)
        await self._current.until(lambda: self._current.asked(self._kind) != before)

    async def granted(self) -> None:
        """Raises: Mm2Error if this worker takes no part in the group."""
        self._member = await self._group.joined()

    async def revoked(self) -> bool:
        """A member that cannot follow the control log any more still has time to drain."""
        await self.member.until(lambda: False)
        return self.member.can_drain

    async def stopped(self, *, outcome_unknown: bool) -> None:
        """The member may wait for this before it leaves."""
        self.member.flow_ended(self._flow, outcome_unknown=outcome_unknown)

    def failed(self, why: str) -> None:
        """Only the log says so."""

    def refuse(self, why: str) -> None:
        """Tell the group why; the tasks of a source connector go to other workers."""
        self._group.refuse(ConnectorName(self._flow, self._kind), why)

    def allow(self) -> None:
        """The worker may get tasks again."""
        self._group.allow(ConnectorName(self._flow, self._kind))

    def withdraw(self) -> None:
        """The leader assigns this worker's tasks of the flow to others, which wait until they are released."""
        self._group.withdraw(self._flow)

    async def release_refused(self, *, outcome_unknown: bool) -> None:
        """Release the tasks of the flow that the group has assigned to this worker.

        The story: w2 has no right to read the source. Its group does not know that, and assigns it a third of the
        partitions: no worker would copy them as long as w2 lives, and other flows keep it alive.
        """
        if outcome_unknown and self._member is not None:
            why = f"{self._flow} is refused, and something it sent was not answered"
            await self._member.leave(outcome_unknown=True, cause=IncarnationEnded(why))
        with contextlib.suppress(GroupRefused, IncarnationEnded, ControlLogUnusable, NewerFormat):
            while True:
                member = await self._group.joined()
                with contextlib.suppress(IncarnationEnded):
                    await _release_all(member, member.ownership(self._flow))


class UndividedSchedule(MemberSchedule, Generic[SettingsT]):
    """A connector with one undivided task runs as long as this worker owns the task, and its settings do not change."""

    def __init__(
        self, group: Group, task: TaskName, current: CurrentSettings, wanted: Callable[[], SettingsT | None]
    ) -> None:
        """``wanted`` returns the settings of ``current`` for the connector; None while it is not to run."""
        super().__init__(group, task.flow, task.kind, current)
        self._task = task
        self._wanted = wanted
        self._settings: SettingsT | None = None

    @property
    def settings(self) -> SettingsT:
        """The settings with which the connector runs."""
        if self._settings is None:
            raise AssertionError("it was not granted")
        return self._settings

    async def granted(self) -> None:
        """See ``ConnectorSchedule``. Meanwhile a task for which others wait, and that does not run here, is released.

        Raises: as ``MemberSchedule``.
        """
        while True:
            await super().granted()
            await self.stopped(outcome_unknown=False)  # the task may have come and gone before anything started
            self._asked, self._settings = self._current.asked(self._kind), self._wanted()
            if self._asked.held is not None or self._settings is None:
                await _until_any(self.member.until(self._is_awaited), self._current.until(self._is_changed))
            elif not self._may_run():
                await self.member.until(lambda: self._may_run() or self._is_awaited())
            elif not self.member.is_stopping:
                return
            await asyncio.sleep(0)

    async def revoked(self) -> bool:
        await _until_any(self.member.until(lambda: not self._may_run()), self._current.until(self._is_changed))
        return False

    async def stopped(self, *, outcome_unknown: bool) -> None:
        """Release the task. It writes nothing that could be fenced."""
        member = self.member
        if self._is_awaited():
            with contextlib.suppress(IncarnationEnded):  # no worker waits for a member that has ended
                await member.say([Released(member.id, member.view.generation, frozenset({self._task}))])

    def withdraw(self) -> None:
        """The task moves when the worker leaves."""

    async def release_refused(self, *, outcome_unknown: bool) -> None:
        """No other worker could run it either: an account or a name is refused."""

    def _is_changed(self) -> bool:
        lets_run = self._current.asked(self._kind).lets_run(self._asked)
        return not lets_run or self._wanted() != self._settings

    def _may_run(self) -> bool:
        return self.member.view.may_run(self._task, self.member.id)

    def _is_awaited(self) -> bool:
        return not self.member.is_over and self._task in self.member.view.awaited_of(self.member.id)


class PathSchedule(Always):
    """A connector that reads back the heartbeats of a flow. It runs on every worker whose flow copies heartbeats, until
    their topic or their interval changes, or the flow is paused."""

    def __init__(self, current: CurrentSettings, topic_of: Callable[[FlowSettings], str | None]) -> None:
        """``topic_of`` returns the flow's name for the copies of heartbeats; None if it copies none."""
        self.topic = ""
        self.interval_s: float | None = None
        self._current = current
        self._topic_of = topic_of

    async def granted(self) -> None:
        await self._current.until(lambda: self._found() is not None)
        self.topic, self.interval_s = self._found() or ("", None)

    async def revoked(self) -> bool:
        await self._current.until(lambda: self._found() != (self.topic, self.interval_s))
        return False

    def _found(self) -> tuple[str, float | None] | None:
        """Return topic and interval; None also while the flow is paused, because then no heartbeats are missed."""
        settings = None if self._current.asked(Kind.SOURCE).held else self._current.settings
        topic = None if settings is None else self._topic_of(settings)
        return None if settings is None or topic is None else (topic, settings.heartbeats_interval_s)


class _Restart(Exception):
    """The source connector has to restart with the settings that are stored now."""


@dataclass(frozen=True, slots=True)
class StartConditions:
    """What must hold before a worker starts a flow, and before it stores anything of it."""

    no_mm2: Callable[[], Awaitable[None]]
    """Raises Mm2IsRunning if a live MirrorMaker 2 runs the flow: it keeps its settings in the same topic."""
    source_answers: Callable[[Ownership, Callable[[str], None], bool], Coroutine[Any, Any, None]]
    """Returns when the source has answered; until then it reports why it has not. Raises one of ``refusals`` if the
    source is the wrong cluster."""
    refusals: tuple[type[Mm2Error], ...]
    """Errors after which the connector must not run."""


class SourceSchedule(MemberSchedule):
    """A source connector runs as long as its worker is the same member and the flow is switched on, with the settings
    that the flow's workers share."""

    def __init__(
        self,
        group: Group,
        watch: ConfigWatch,
        attempts: Attempts,
        *,
        conditions: StartConditions,
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        super().__init__(group, watch.flow, Kind.SOURCE, watch.current)
        self._watch = watch
        self._attempts = attempts
        self._conditions = conditions
        self._refusals: tuple[type[Mm2Error], ...] = (*conditions.refusals, StoredConfigUnusable, ChangedWithoutEnd)
        self._clock = clock
        self._rng = rng
        self._log = log
        self._said_why = ""
        self._settling = SETTLING

    @property
    def settings(self) -> FlowSettings:
        """The settings with which the connector runs."""
        if self._current.settings is None:
            raise AssertionError("the flow is switched off")
        return self._current.settings

    @property
    def holds(self) -> Holds:
        """Topics that are left to backfills."""
        return self._current.holds

    @property
    def pauses(self) -> Pauses:
        """Topics and partitions that operators have paused."""
        return self._current.pauses

    async def granted(self) -> None:
        """Wait also while the flow is switched off or paused, and while the stored settings cannot be read.

        Raises:
            Mm2Error: as ``MemberSchedule``, ``StartConditions``, ``ConfigWatch.settle``.
        """
        while True:
            await super().granted()
            await self._settle()
            self._asked = self._current.asked(self._kind)
            held, is_on = self._asked.held, self._current.settings is not None
            if held is not None and self._attempts.leaves_outcome_unknown(self.member):
                await self._leave_unsettled(self.member)
                continue
            self.member.holds(self._flow, None if held is None else held.offset)
            if held is not None or not is_on:
                self.member.started(self._flow)
            if is_on and not self.member.is_stopping:
                self._current.may_run()
                if held is None:
                    return
            waits = self._release_meanwhile(self.member) if is_on and held is not None else self._unlist()
            await _until_any(self.revoked(), waits)

    async def revoked(self) -> bool:
        """Wait, and meanwhile follow the stored settings."""
        is_asked = self._current.until(lambda: not self._current.asked(self._kind).lets_run(self._asked))
        await _until_any(super().revoked(), self._follow(), self._watch.follow_direction(), is_asked)
        return self.member.can_drain

    def failed(self, why: str) -> None:
        """Let the status name a flow whose attempts keep failing: nothing of the flow runs that could say why."""
        if self._member is not None:
            self._member.start_failed(self._flow, Reason.NOT_STARTED, why)

    def refuse(self, why: str) -> None:
        if self._member is not None:
            self._member.started(self._flow)
        super().refuse(why)

    async def until_asked(self) -> None:
        """Wait, and meanwhile follow what operators ask."""
        await _until_any(super().until_asked(), self._follow_requests())

    async def _follow_requests(self) -> None:
        with contextlib.suppress(Mm2Error):  # ``granted`` meets the error again
            await self._watch.follow_requests()
        await asyncio.Event().wait()

    async def _leave_unsettled(self, member: Member) -> None:
        """Let the member leave, so that the group fences it.

        The story: an attempt fails with a request unanswered, and the flow is paused. If its partitions were released
        then, no worker would fence that request.
        """
        why = f"{self._flow} is to pause, and something it sent was not answered"
        await member.leave(outcome_unknown=True, cause=IncarnationEnded(why))

    async def _release_meanwhile(self, member: Member) -> None:
        """Keep what is assigned here, and release what other workers wait for: all of it is drained."""
        with contextlib.suppress(IncarnationEnded):
            await _release_all(member, member.ownership(self._flow))
        await asyncio.Event().wait()

    async def _unlist(self) -> None:
        """While the flow is switched off, let other flows have the remote topics that it copies into."""
        member = self.member
        ownership = member.ownership(self._flow)
        with contextlib.suppress(IncarnationEnded):
            while not member.is_stopping:
                await ownership.list_partitions(dict.fromkeys(ownership.listed, 0), {}, {})
                await member.until(lambda: ownership.is_coordinator and bool(ownership.listed))
        await asyncio.Event().wait()

    async def _settle(self) -> None:
        """Settle with which settings the flow runs. Tell the group if that takes long: nothing runs meanwhile."""
        telling = asyncio.create_task(self._tell_settling(self.member), name=f"{self._flow} is settled")
        try:
            await self._settle_before_start()
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    async def _tell_settling(self, member: Member) -> None:
        begun_ms = self._clock.wall_ms()
        while True:
            await asyncio.sleep(WAITING_REPORT_S)
            if not self.waits_for:  # a source that does not answer is reported as such
                waiting = NotStarted(begun_ms, Reason.NOT_STARTED, self._settling)
                member.cannot_start(self._flow, waiting)

    async def _settle_before_start(self) -> None:
        self._settling = SETTLING
        if not self._watch.is_settled:
            await until_answered(
                self._conditions.no_mm2, rng=self._rng, on_error=now_and_then(self._report_waiting, self._clock)
            )
        releases = not self._attempts.leaves_outcome_unknown(self.member)
        try:
            await self._settle_now(releases=releases)
        except self._refusals:
            raise
        except IncarnationEnded:
            pass  # the next member settles the flow
        except Mm2Error as error:
            if self._watch.is_of_another_group:
                raise  # that group may come back: without a claim both would run the flow
            if self._watch.must_know_direction:
                raise  # the flow back may be on
            self._note_unusable(error)
            self._tell_group()

    def _report_waiting(self, error: KafkaError) -> None:
        self._settling = f"{SETTLING}: {error}"
        self._log.warning("flow.waiting", doing="reading the stored settings of the flow", why=str(error))

    async def _settle_now(self, *, releases: bool) -> None:
        """Settle. ``releases``: nothing of the flow runs, and all it sent was answered, see ``_ready``."""
        others = functools.partial(other_runners, self.member, self._flow, self._log)
        await self._watch.settle(others, functools.partial(self._ready, self.member, releases=releases))
        await self._watch.settle_direction()
        self._said_why = ""
        self._tell_group()

    async def _ready(self, member: Member, *, releases: bool) -> None:
        """Return when the source has answered: a worker that cannot reach it must not decide what the flow does.

        The story: a worker is started with a file that names a source that does not exist, while others run the flow.
        Its settings replaced those of the flow, and all workers followed.

        Args:
            releases: whether to release meanwhile what other workers wait for. A running connector does that by itself.
        Raises: IncarnationEnded, if this member ends before; as ``StartConditions``.
        """

        def show(why: str) -> None:
            self.waits_for = why

        is_first = releases  # a connector that runs had its answer
        answers = self._conditions.source_answers(member.ownership(self._flow), show, is_first)
        meanwhile = [self._release_meanwhile(member)] if releases else []
        try:
            await _until_any(answers, member.until(lambda: False), *meanwhile)
        finally:
            self.waits_for = ""
        if member.is_stopping:
            raise IncarnationEnded("it takes part no more")

    async def _follow(self) -> None:
        """Follow the stored settings until the connector has to restart, or this member has ended. If they cannot be
        read any more, the flow continues unchanged, and this tries again."""
        while True:
            try:
                if not self._watch.is_settled:
                    await self._settle_now(releases=False)
                    self._attempts.asked(self._current.holds)  # the connector runs already, with what it knew before
                    self._attempts.asked(self._current.pauses)
                    if self._current.settings is None or self._watch.drift:  # else the file says the same
                        raise _Restart
                await self._watch.run(self._changed, self._attempts.asked)
            except IncarnationEnded:
                return
            except (OwnerLost, FlowOfAnotherGroup) as error:
                self._log.warning("flow.lost", why=error.what, effect="it is drained here")
                return
            except _Restart:
                effect = "it is drained, and restarts where it is to run"
                self._log.info("flow.changing", version=self._watch.version, effect=effect)
                return
            except Mm2Error as error:
                self._note_unusable(error)
                await asyncio.sleep(AGAIN_S)

    def _changed(self, settings: FlowSettings | None, news: Follow) -> None:
        is_in_place = all(part.is_in_place for part in news.parts)
        if FlowPart.ON_OFF in news.parts or (settings is not None and not is_in_place):
            raise _Restart
        if settings is not None:
            self._attempts.change(settings, news.parts)
        self._tell_group()

    def _tell_group(self) -> None:
        """The next heartbeat tells the group which version of the settings this worker runs."""
        if self._current.settings is not None:
            self._group.spread(self._flow, self._current.settings.tasks_max)
        self.member.runs_by(self._flow, self._watch.version)

    def _note_unusable(self, error: Mm2Error) -> None:
        if str(error) != self._said_why:
            self._said_why = str(error)
            effect = "as it did before" if self._watch.is_settled else "by this worker's own file"
            self._log.warning(
                "config.unshared",
                why=error.what,
                effect=f"the flow runs {effect}, and does not follow what other workers share; looked for again every"
                f" {AGAIN_S:g} s",
                remedy=error.remedy,
            )


async def _release_all(member: Member, ownership: Ownership) -> None:
    """Release all that other members wait for, as long as a member lasts. Raises: IncarnationEnded."""
    while not member.is_over:
        ownership.changed.clear()
        await ownership.release(ownership.to_release())
        await ownership.changed.wait()


async def _until_any(*waits: Coroutine[Any, Any, object]) -> None:
    """Return when one of the coroutines has returned; cancel the others."""
    tasks = [asyncio.create_task(wait, name="schedule") for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
