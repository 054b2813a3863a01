"""When a connector runs on this worker, by what its group says.

Answers to what DistributedHerder does with connectors and tasks after each rebalance. A source connector runs on every
member, and copies what partitions are its own; a flow's heartbeats, and its checkpoints, are emitted by one.

When the connectors of a flow run on this worker, and by which settings: those that the flow's workers task.

Answers to the listeners of Connect's herder for changed configurations, which restarts a connector for any change. Here
a change reaches the parts that it concerns (``reach.py``): most take it up while they copy. What needs more ends the
turn of the source connector, which is drained then, and begins anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.config.flow_properties import StoredConfigUnusable
from mm2py.config.settings import FlowSettings, HeartbeatSettings
from mm2py.connector import Flow
from mm2py.errors import Mm2Error
from mm2py.group.control_topic import ControlLogUnusable
from mm2py.group.group import Group
from mm2py.group.group_state import GroupRefused, Runners
from mm2py.group.member import Member
from mm2py.kafka.errors import Backoff, KafkaError
from mm2py.kafka.gate import IncarnationEnded
from mm2py.records.connector_config import ConfigTooNew
from mm2py.records.control_codec import NewerFormat
from mm2py.records.control_record import MemberId, Released, TaskName
from mm2py.settings.flow_config import Part, reach
from mm2py.settings.follow import ConfigWatch, Others
from mm2py.worker.herder import Always


class MemberSchedule:
    """As long as this worker is the same member of its group."""

    def __init__(self, group: Group, flow: Flow) -> None:
        self._group = group
        self._flow = flow
        self._member: Member | None = None

    @property
    def member(self) -> Member:
        """In whose name the connector runs that this turn has begun for."""
        if self._member is None:
            raise AssertionError("no turn has begun")
        return self._member

    async def begins(self) -> None:
        """Raises: Mm2Error if this worker takes no part in the group."""
        self._member = await self._group.joined()

    async def ends(self) -> bool:
        """who can follow the group no more, but is part of it, has time to drain."""
        await self.member.until(lambda: False)
        return self.member.can_drain

    async def over(self, *, in_doubt: bool) -> None:
        """the member may wait for that before it leaves."""
        self.member.flow_ended(self._flow, in_doubt=in_doubt)

    def give_way(self) -> None:
        """the group gives what this worker has of the flow to others, who wait until it is let go."""
        self._group.withdraw(self._flow)

    async def renounce(self, *, in_doubt: bool) -> None:
        """tell the group that this worker does not run the flow, and let go of what it got of it.

        The story: w2 may not see the source. Its group knows nothing of that and gives it a third of the partitions:
        nobody would copy them as long as w2 lives, and other flows keep it alive.
        """
        self._group.withdraw(self._flow)
        if in_doubt and self._member is not None:
            why = f"{self._flow} is refused, and something it sent was not answered"
            await self._member.leave(in_doubt=True, cause=IncarnationEnded(why))
        with contextlib.suppress(GroupRefused, IncarnationEnded, ControlLogUnusable, NewerFormat):
            while True:
                await self._release_all(await self._group.joined())

    async def _release_all(self, member: Member) -> None:
        ownership = member.ownership(self._flow)
        with contextlib.suppress(IncarnationEnded):
            while not member.is_over:
                ownership.changed.clear()
                await ownership.release(ownership.to_release())
                await ownership.changed.wait()


class TaskSchedule(MemberSchedule):
    """As long as a task that is run as a whole is this worker's."""

    def __init__(self, group: Group, task: TaskName) -> None:
        super().__init__(group, task.flow)
        self._task = task

    async def begins(self) -> None:
        """Raises: as there."""
        while True:
            await super().begins()
            await self.over(in_doubt=False)  # it may have been ours, and gone again, before anything began
            await self.member.until(lambda: self._may_run() or self._is_awaited())
            if self._may_run() and not self.member.is_over:
                return
            await asyncio.sleep(0)

    async def ends(self) -> bool:
        await self.member.until(lambda: not self._may_run())
        return False

    async def over(self, *, in_doubt: bool) -> None:
        """let whoever is next begin. What is run as a whole writes nothing that could be fenced."""
        member = self.member
        if self._is_awaited():
            with contextlib.suppress(IncarnationEnded):  # nobody waits for a word from who is out
                await member.say([Released(member.id, member.view.generation, frozenset({self._task}))])

    def give_way(self) -> None:
        """It moves when the worker leaves."""

    async def renounce(self, *, in_doubt: bool) -> None:
        """Nobody else could run it either: what is refused is an account, or a name."""

    def _may_run(self) -> bool:
        return self.member.view.may_run(self._task, self.member.id)

    def _is_awaited(self) -> bool:
        return not self.member.is_over and self._task in self.member.view.awaited_of(self.member.id)


OTHERS_SETTLE_S: Final = 3.0
"""How long a worker waits for those that came before it to say what they run."""
WAITING_REPORT_S: Final = 5.0
AGAIN_S: Final = 30.0
"""How soon stored settings are looked for again that could not be read."""

Change = Callable[[FlowSettings, Collection[Part]], None]
"""Lets parts of a connector that runs take new settings up."""


@dataclass(slots=True)
class Current:
    """What one flow is run by on this worker just now; what has another one's settings begins anew by itself."""

    settings: FlowSettings | None
    """None: it is switched off."""
    heartbeats: HeartbeatSettings | None
    """None: this worker emits none."""
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    def become(self, settings: FlowSettings | None, heartbeats: HeartbeatSettings | None) -> None:
        """Run by these from now on."""
        self.settings, self.heartbeats = settings, heartbeats
        self._moved.set()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Return when something is so that depends on the settings."""
        while not reached():
            self._moved.clear()
            await self._moved.wait()


class SourceSchedule(MemberSchedule):
    """The turn of a source connector: its worker is a member, and it is settled what the flow is run by."""

    def __init__(
        self,
        group: Group,
        flow: Flow,
        current: Current,
        make_watch: Callable[[Others], ConfigWatch],
        *,
        may_store: Callable[[], Awaitable[None]],
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """Make one.

        Args:
            current: what the file says; told to others, and kept up to date.
            make_watch: gets how to find out who else runs the flow.
            may_store: raises what forbids to touch the stored settings at all: that a live MirrorMaker 2 runs the flow.
        """
        super().__init__(group, flow)
        self.change: Change = lambda _settings, _parts: None
        """Of the connector that runs just now."""
        self._current = current
        self._may_store = may_store
        self._clock = clock
        self._rng = rng
        self._log = log
        self._watch = make_watch(self._others)
        self._anew = asyncio.Event()
        self._said_why = ""

    @property
    def settings(self) -> FlowSettings:
        """By what the connector runs that this turn has begun for."""
        if self._current.settings is None:
            raise AssertionError("the flow is switched off")
        return self._current.settings

    async def begins(self) -> None:
        """wait also while the flow is switched off, and while what is stored cannot be read just now.

        Raises:
            Mm2Error: as ``MemberSchedule``, ``may_store``; or what is stored cannot be run.
        """
        while True:
            await super().begins()
            await self._settle()
            if self._current.settings is not None and not self.member.is_stopping:
                return
            await _first(self.ends(), self._unlist())

    async def ends(self) -> bool:
        """Follows meanwhile what is stored."""
        self._anew.clear()
        await _first(super().ends(), self._anew.wait(), self._follow())
        return self.member.can_drain

    async def _unlist(self) -> None:
        """While the flow is switched off, let other flows have the remote topics that it leads into."""
        member = self.member
        ownership = member.ownership(self._flow)
        with contextlib.suppress(IncarnationEnded):
            while not member.is_stopping:
                await ownership.list_partitions(dict.fromkeys(ownership.listed, 0), {}, {})
                await member.until(lambda: ownership.is_coordinator and bool(ownership.listed))
        await asyncio.Event().wait()  # what ends the turn is not for this to say

    # What to begin by

    async def _settle(self) -> None:
        if not self._watch.is_settled:
            await self._until_answered(self._may_store)
        try:
            settings, version = await self._watch.settle()
        except (StoredConfigUnusable, ConfigTooNew):
            raise
        except IncarnationEnded:
            pass  # it is settled in the next life
        except Mm2Error as error:
            self._note_unusable(error)
            self._become(self._current.settings, self._watch.version)
        else:
            self._said_why = ""
            self._become(settings, version)

    async def _until_answered(self, ask: Callable[[], Awaitable[None]]) -> None:
        backoff = Backoff(self._rng, most_s=2.0)
        said_at_s = self._clock.monotonic()
        while True:
            try:
                return await ask()
            except KafkaError as error:
                if not error.retriable:
                    raise
                if self._clock.monotonic() - said_at_s >= WAITING_REPORT_S:
                    said_at_s = self._clock.monotonic()
                    self._log.warning("flow.waiting", doing="looking what the flow is to be run by", why=str(error))
            await asyncio.sleep(backoff.next_s())

    async def _others(self, *, for_sure: bool) -> Collection[MemberId]:
        """See ``Others``: wait for those that joined before us, but not for one that has not got so far in a while.

        Raises:
            IncarnationEnded: who they are cannot be told, as our own life in the group is over.
        """
        member = self.member
        if for_sure:
            await self._until_runners_known(member)
        try:
            async with asyncio.timeout(OTHERS_SETTLE_S):
                await member.until(lambda: not self._runners(member).untold)
        except TimeoutError:
            pass
        if member.is_stopping:
            raise IncarnationEnded("it takes part no more")
        found = self._runners(member)
        return found.told | found.untold

    async def _until_runners_known(self, member: Member) -> None:
        try:
            async with asyncio.timeout(WAITING_REPORT_S):
                return await self._until_heard_twice(member)
        except TimeoutError:
            self._log.warning(
                "flow.waiting",
                doing="looking what the flow is to be run by",
                why="members of the group ran it that have not been heard of: they are evicted after their session"
                " time-out",
            )
        await self._until_heard_twice(member)

    async def _until_heard_twice(self, member: Member) -> None:
        """Return when those that run the flow have been told from the dead, which the log knows for a session time-out.

        The story: all workers were killed, and one is started with another file. Those that are dead are members still,
        and say that they run the flow. And the last heartbeat of one of them was on its way when it died, and comes
        behind our own first record; so a worker counts as alive when it has been heard twice.
        """
        await member.until(lambda: self._runners(member).is_known)
        since = member.view.next_offset
        await member.until(lambda: self._runners(member, since).is_known)

    def _runners(self, member: Member, since: int | None = None) -> Runners:
        return member.view.runners(self._flow, member.id, member.joined_at if since is None else since)

    # What changes meanwhile

    async def _follow(self) -> None:
        """Where the settings cannot be read any more the flow goes on as it is, and they are looked for. Ends with our
        life in the group, if at all."""
        while True:
            try:
                if self._watch.is_settled:
                    await self._watch.run(self._changed)
                else:
                    await self._come_back()
            except IncarnationEnded:
                return  # and so does the turn
            except Mm2Error as error:
                self._note_unusable(error)
                await asyncio.sleep(AGAIN_S)

    async def _come_back(self) -> None:
        """Settle what could not be settled in the beginning. Raises: as there."""
        settings, version = await self._watch.settle()
        self._said_why = ""
        if settings is None or self._watch.drift:  # else it says what the file does, by which the flow runs
            await self._begin_anew(version)
        self._become(settings, version)

    async def _changed(self, flow: Flow, settings: FlowSettings | None, version: int, touched: Collection[str]) -> None:
        parts = reach(touched)
        was_off = self._current.settings is None
        if was_off is not (settings is None):
            await self._begin_anew(version)
        if settings is not None:
            if not all(part.is_in_place for part in parts):
                await self._begin_anew(version)
            self.change(settings, parts)
        self._become(settings, version)

    async def _begin_anew(self, version: int) -> None:
        self._log.info("flow.changing", version=version, effect="it is drained, and begun anew where it is to run")
        self._anew.set()
        await asyncio.Event().wait()  # until this is cancelled: what is stored is read once more when all has ended

    def _become(self, settings: FlowSettings | None, version: int) -> None:
        """The flow is run by these from now on; the group hears of it with the next beat."""
        heartbeats = self._current.heartbeats
        if self._watch.is_settled:
            try:
                heartbeats = self._watch.heartbeats
            except StoredConfigUnusable as error:  # switched off, else its settings could not be used either
                self._log.warning("heartbeats.as_before", why=str(error))
        self._current.become(settings, heartbeats)
        if settings is not None:
            self._group.spread(self._flow, settings.tasks_max)
        self.member.runs_by(self._flow, version)

    def _note_unusable(self, error: Mm2Error) -> None:
        if str(error) != self._said_why:
            self._said_why = str(error)
            effect = "as it did before" if self._watch.is_settled else "by this worker's own file"
            self._log.warning(
                "config.unshared",
                why=error.what,
                effect=f"the flow runs {effect}, and does not follow what other workers task; looked for again every"
                f" {AGAIN_S:g} s",
                remedy=error.remedy,
            )


class HeartbeatSchedule(TaskSchedule):
    """The turn of a heartbeat connector: its task is this worker's, and its settings stay as they are."""

    def __init__(self, group: Group, task: TaskName, current: Current) -> None:
        super().__init__(group, task)
        self._current = current
        self._settings: HeartbeatSettings | None = None

    @property
    def settings(self) -> HeartbeatSettings:
        """By what the connector runs that this turn has begun for."""
        if self._settings is None:
            raise AssertionError("no turn has begun")
        return self._settings

    async def begins(self) -> None:
        """Raises: as ``TaskSchedule``."""
        while True:
            await self._current.until(lambda: self._current.heartbeats is not None)
            await super().begins()
            self._settings = self._current.heartbeats
            if self._settings is not None:
                return

    async def ends(self) -> bool:
        await _first(super().ends(), self._current.until(lambda: self._current.heartbeats != self._settings))
        return False


class PathSchedule(Always):
    """The turn of a connector that reads the heartbeats of a flow back: any number of workers do, while they are copied
    under the name, and come as often, as it was told."""

    def __init__(self, current: Current, topic_of: Callable[[FlowSettings], str | None]) -> None:
        """``topic_of`` returns what the flow calls the copies of heartbeats; None if it copies none."""
        self.topic = ""
        self.interval_s: float | None = None
        self._current = current
        self._topic_of = topic_of

    async def begins(self) -> None:
        await self._current.until(lambda: self._found() is not None)
        self.topic, self.interval_s = self._found() or ("", None)

    async def ends(self) -> bool:
        await self._current.until(lambda: self._found() != (self.topic, self.interval_s))
        return False

    def _found(self) -> tuple[str, float | None] | None:
        settings = self._current.settings
        topic = None if settings is None else self._topic_of(settings)
        return None if settings is None or topic is None else (topic, settings.heartbeats_interval_s)


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    """Return when one of them has; the others end."""
    tasks = [asyncio.create_task(wait, name="turn") for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
