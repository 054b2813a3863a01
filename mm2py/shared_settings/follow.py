"""The settings with which this worker runs one flow: decided when it starts, followed while it runs.

The stored settings count, and a file is a way to store some: ``flow_config.py`` has the rules. If a worker is started
with ``--apply`` and its file switches a flow off, no connector of that flow runs here that would store this. So
``SwitchingOff`` does it once.

Counterpart: what MM2's herder does when it becomes leader (it writes its own file over what is stored) and
Connect's listener for changed configurations.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from typing import Final, Protocol

from structlog.typing import FilteringBoundLogger

from mm2py.config.configuration import SettingsFile
from mm2py.config.flow_properties import ENABLED, FlowProperties, StoredConfigUnusable, is_enabled
from mm2py.config.settings import Configuration, FlowSettings, HeartbeatSettings
from mm2py.errors import ConfigError, Mm2Error
from mm2py.flow import Flow
from mm2py.group.member import Member
from mm2py.group.membership import GroupState
from mm2py.kafka.cluster import WAITING_REPORT_S
from mm2py.kafka.write_gate import IncarnationEnded
from mm2py.logs import CONNECT_LEVELS, set_level
from mm2py.records.backfill_record import Holds
from mm2py.records.connector_config import DecidedBy, FlowConfig
from mm2py.records.control_record import MemberId
from mm2py.records.operator_request import RestartPartitions, told_by
from mm2py.records.pause_record import Pauses
from mm2py.shared_settings.config_log import ConfigLog, Lost
from mm2py.shared_settings.current_settings import ASKED, CurrentSettings
from mm2py.shared_settings.direction_watch import DirectionWatch
from mm2py.shared_settings.flow_config import (
    Difference,
    Follow,
    Keep,
    Restore,
    StartChoice,
    StartDecision,
    decide,
    depends_on_runners,
    difference,
    follow,
)
from mm2py.shared_settings.flow_owner import OwnerWatch

TRIES_MOST: Final = 10
SHOWN_MOST: Final = 20
PREVIOUS_REMEDY: Final = "mm2py apply FILE --previous restores the previous settings."
OTHERS_SETTLE_S: Final = 3.0
"""How long a worker waits until those that joined before it have said what they run."""

Changed = Callable[[FlowSettings | None, Follow], None]
"""Is called when a flow has new settings; None: it is switched off. Its errors end ``ConfigWatch.run``."""
Ready = Callable[[], Awaitable[None]]
"""Returns when a worker may store something: the source has answered, and is not the target. Raises: it may not."""
Asked = Callable[[RestartPartitions | Holds | Pauses], None]
"""Is called with the partitions that are to restart, with the topics that are left to backfills from now on, or with
what is paused from now on."""


class ChangedWithoutEnd(Mm2Error):
    """Other writers change the stored settings each time that this worker wants to."""


class Others(Protocol):
    """Which other workers run the flow."""

    async def __call__(self, *, for_sure: bool) -> Collection[str]:
        """Return the workers that run it, or are about to.

        Args:
            for_sure: wait until the dead among them are known, which takes their session time-out if there are any.
        """
        ...


def merged(file: SettingsFile, flow: Flow, stored: FlowConfig) -> FlowSettings | None:
    """Return the settings of a flow: addresses and credentials of the file, everything else as it is stored.

    Returns:
        None, if the stored settings switch the flow off.
    Raises:
        StoredConfigUnusable: what is stored cannot be run with this file.
    """
    if not is_enabled(stored.properties):
        return None
    configuration = _configuration(file, flow, stored)
    for settings in configuration.flows:
        if settings.flow == flow:
            return settings
    why = configuration.refused.get(flow)
    raise StoredConfigUnusable(flow, str(why) if why is not None else "the file does not enable it")


def merged_or_file(file: SettingsFile, by_file: FlowSettings, config: FlowConfig | None) -> FlowSettings:
    """Return the settings with which workers run a flow, or would run it if it is switched off.

    Args:
        by_file: the flow's settings in the file, which count if mm2py has stored nothing.
        config: what counts in the configs topic. Workers ignore what MirrorMaker 2 writes over the settings of mm2py.
    Raises: as ``merged``.
    """
    stored = config.previous if config is not None and config.by is DecidedBy.MM2 else config
    if stored is None:
        return by_file
    switched_on = {**stored.properties, ENABLED: "true"}
    return merged(file, by_file.flow, replace(stored, properties=switched_on)) or by_file


def merged_heartbeats(file: SettingsFile, flow: Flow, stored: FlowConfig) -> HeartbeatSettings | None:
    """Return the same for a flow's heartbeats, emitted also while the flow is switched off; None: not with this file.

    Raises: as ``merged``.
    """
    found = _configuration(file, flow, stored).heartbeats
    return next((settings for settings in found if settings.flow == flow), None)


def _configuration(file: SettingsFile, flow: Flow, stored: FlowConfig) -> Configuration:
    try:
        return file.configuration({flow: stored.properties})
    except StoredConfigUnusable:
        raise
    except ConfigError as error:
        raise StoredConfigUnusable(flow, error.what) from error


# -- which other workers run a flow ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Runners:
    """The other members of a group that run a flow, or are about to; none whose session has expired."""

    applied: frozenset[MemberId]
    """They have said that they run it with stored settings."""
    unreported: frozenset[MemberId]
    """They joined before this worker, and have not said yet what they run."""
    quiet: frozenset[MemberId]
    """Members of both kinds that have written nothing since the offset that was asked for, and may be dead."""

    @property
    def is_known(self) -> bool:
        """Whether it is known if a live member runs the flow with stored settings. ``unreported`` does not count."""
        return not self.quiet or not self.applied <= self.quiet

    @classmethod
    def of(cls, view: GroupState, flow: Flow, me: MemberId, since: int) -> Runners:
        """Return which other members run a flow, or are about to.

        The story: two workers are started at the same time, with a file that none has run before. If each of them
        assumed that the other runs the flow, neither would store the file. So the later one waits for the earlier one.

        Args:
            since: an offset of the log; members that wrote nothing from there on are ``quiet``.
        """
        members = {name: one for name, one in view.members.items() if name != me and not one.expired}
        applied = frozenset(name for name, one in members.items() if one.applied.get(flow))
        before = itertools.takewhile(lambda name: name != me, view.members)
        unreported = frozenset(
            name
            for name in before
            if name in members and flow in members[name].joined.flows and flow not in members[name].applied
        )
        quiet = frozenset(name for name in applied | unreported if members[name].last_offset < since)
        return cls(applied, unreported, quiet)


async def other_runners(
    member: Member, flow: Flow, log: FilteringBoundLogger, *, for_sure: bool
) -> Collection[MemberId]:
    """See ``Others``: wait for members that joined before this one, but not for one that is slow to say what it runs.

    Raises:
        IncarnationEnded: this member has ended, so it cannot know them any more.
    """
    if for_sure:
        try:
            async with asyncio.timeout(WAITING_REPORT_S):
                await _until_heard_twice(member, flow)
        except TimeoutError:
            log.warning(
                "flow.waiting",
                doing="reading the stored settings of the flow",
                why="some members that ran the flow send no heartbeats; waiting until they are evicted",
            )
            await _until_heard_twice(member, flow)
    try:
        async with asyncio.timeout(OTHERS_SETTLE_S):
            await member.until(lambda: not Runners.of(member.view, flow, member.id, 0).unreported)
    except TimeoutError:
        pass
    if member.is_stopping:
        raise IncarnationEnded("it takes part no more")
    found = Runners.of(member.view, flow, member.id, 0)
    return found.applied | found.unreported


async def _until_heard_twice(member: Member, flow: Flow) -> None:
    """Return when it is known which members that run the flow are alive, or when the dead ones are evicted.

    The story: all workers were killed, and one is started with another file. The dead ones are still members, and have
    said that they run the flow. The last heartbeat of one of them was on its way when it died, and is in the log after
    this worker's own first record. So a member counts as alive only when it has been heard twice.
    """
    await member.until(lambda: Runners.of(member.view, flow, member.id, member.joined_at).is_known)
    since = member.view.next_offset
    await member.until(lambda: Runners.of(member.view, flow, member.id, since).is_known)


# -- what this worker runs the flow by ---------------------------------------------------------------------------------


class ConfigWatch:
    """Keeps ``current`` up to date: call ``settle`` whenever the flow starts, then ``run``."""

    def __init__(
        self,
        flow: Flow,
        file: SettingsFile,
        config_log: ConfigLog,
        current: CurrentSettings,
        *,
        owner: OwnerWatch,
        apply: bool,
        log: FilteringBoundLogger,
        direction: DirectionWatch | None = None,
    ) -> None:
        """``current`` is what the file says until something else is settled; ``apply`` is ``--apply``."""
        self.flow = flow
        self.current = current
        self.drift: Difference = ()
        """How the worker's file differs from what it runs."""
        self._file = file
        self._config_log = config_log
        self._owner = owner
        self._direction = direction
        self._apply = apply
        self._log = log
        self._applied: FlowConfig | None = None

    @property
    def version(self) -> int:
        """The version that this worker runs, or is about to; 0 before the first."""
        return 0 if self._applied is None else self._applied.version

    @property
    def is_of_another_group(self) -> bool:
        """Whether another group has claimed the flow, by what was read last."""
        return self._owner.is_of_another_group

    @property
    def is_settled(self) -> bool:
        """Whether it is known what to run; from then on ``settle`` and ``run`` only follow the stored settings."""
        return self._applied is not None

    @property
    def must_know_direction(self) -> bool:
        """Whether the flow must not run before it is known whether it is standby."""
        return self._direction is not None and self._direction.must_be_known

    async def settle_direction(self) -> None:
        """Find out whether the flow is standby, after ``settle``. Raises: as ``DirectionWatch.settle``."""
        if self._direction is not None:
            await self._direction.settle()

    async def follow_direction(self) -> None:
        """Look at the flow back, until cancelled."""
        if self._direction is None:
            await asyncio.Event().wait()
        else:
            await self._direction.run()

    async def settle(self, others: Others, ready: Ready) -> None:
        """Take the flow for this worker's group, decide what to run, and store what has to be stored.

        The file counts once, when the process starts. The story: an operator has changed the stored settings, and the
        flow restarts because of that, or after a failure. If this decided again, ``--apply`` would undo the change.
        Raises:
            StoredConfigUnusable: what is stored cannot be run with this file.
            FlowOfAnotherGroup: another group runs the flow. Nothing was stored.
            Others as ``ConfigLog.write``, ``others``, ``ready``.
        """
        try:
            await self._config_log.read_patiently(self._config_log.rng)
        except Mm2Error:
            await self._owner.refuse_unread()
            raise
        await self._owner.take(ready)
        if self._applied is not None:
            await self._heed(self._config_log.config, lambda _settings, _news: None)
            self._become(merged(self._file, self.flow, self._applied), self._applied)
            self._heed_requests()
            return
        mine = self._file.shared(self.flow)

        async def decision(lost_to: FlowConfig | None) -> StartDecision:
            runners = await self._runners(others, mine, lost_to)
            decision = decide(self._config_log.config, mine, runners=runners, apply=self._apply, lost_to=lost_to)
            merged(self._file, self.flow, decision.config)  # what cannot be run is not stored
            if decision.choice in (
                StartChoice.ADDED,
                StartChoice.REPLACED,
            ):  # else only this worker's file is remembered
                await ready()
            return decision

        settled = await _store(self._config_log, decision)
        assert settled is not None  # noqa: S101
        decided, config = settled
        settings = merged(self._file, self.flow, config)
        self._tell(decided, config)
        self._become(settings, config)
        self._heed_requests()

    async def _runners(self, others: Others, mine: FlowProperties, lost_to: FlowConfig | None) -> Collection[str]:
        """Return which others run the flow, and read the log again. If the decision depends on that, wait until it is
        known which of them are dead."""
        for_sure = False
        while True:
            for_sure = for_sure or self._depends_on_runners(mine, lost_to)
            runners = await others(for_sure=for_sure)
            await self._config_log.read_patiently(self._config_log.rng)
            if for_sure or not self._depends_on_runners(mine, lost_to):
                return runners

    def _depends_on_runners(self, mine: FlowProperties, lost_to: FlowConfig | None) -> bool:
        return depends_on_runners(self._config_log.config, mine, apply=self._apply, lost_to=lost_to)

    async def run(self, changed: Changed, asked: Asked) -> None:
        """Follow the stored settings until cancelled; ``changed`` is called after each change of settings.

        Settings that cannot be run are logged, and the flow continues unchanged.
        Raises:
            OwnerLost: another group has claimed the flow.
            Others as ``ConfigLog.looks``, ``ConfigLog.write`` and ``changed``.
        """
        await self._keep()
        self._heed_requests(asked)  # a hold comes before the settings that select its topics
        await self._heed(self._config_log.config, changed)
        async for is_changed in self._looks():
            await self._keep()
            self._heed_requests(asked)
            if is_changed:
                await self._heed(self._config_log.config, changed)

    async def _keep(self) -> None:
        await self._owner.keep()
        if self._direction is not None:
            await self._direction.keep()

    async def follow_requests(self) -> None:
        """Follow only what operators ask of the connectors, until cancelled. Raises: as ``ConfigLog.looks``."""
        async for _ in self._looks():
            self._heed_requests()

    def _looks(self) -> AsyncIterator[bool]:
        return self._config_log.looks(lambda why: self._log.debug("config.unread", why=why))

    def _say_malformed(self) -> None:
        found = self._config_log.records.malformed
        if found:
            self._log.warning("config.malformed", topic=self._config_log.topic, records=len(found), first=found[0])
            found.clear()

    def _heed_requests(self, asked: Asked = lambda _: None) -> None:
        """Follow what operators ask. While the topic is missing, its last content counts. Without ``asked`` no
        partition restarts, because none is copied."""
        self._say_malformed()
        if self._direction is not None:
            self._direction.heed()
        if self._config_log.is_missing:
            return
        targets = {kind: self._config_log.records.target_of(kind) for kind in ASKED}
        for kind, target in self.current.direct(targets).items():
            self._log.info(f"connector.{target.word}", connector=f"{self.flow}.{kind}", why=target.text)
        for restart in self._config_log.take_restarts():
            if isinstance(restart, RestartPartitions):
                asked(restart)
            elif restart.connector in ASKED:
                only = ", where it has failed," if restart.only_failed else ""
                why = f"asked for{only} by {told_by(restart.by, restart.author)}"
                self._log.info("connector.restarting", connector=f"{self.flow}.{restart.connector}", why=why)
                self.current.restart(restart)
        holds = Holds.of(self._config_log.records.backfills.values())
        if holds != self.current.holds:
            self.current.holds = holds
            asked(holds)
        self._heed_pauses(asked)
        level = CONNECT_LEVELS.get(self._config_log.take_log_level() or "")
        if level is not None:
            self._log.info("log.level", level=level, why="an operator asked all workers of the flow for it")
            set_level(self._log, level)

    def _heed_pauses(self, asked: Asked) -> None:
        before, pauses = self.current.pauses, self._config_log.records.pauses
        if pauses == before:
            return
        self.current.pauses = pauses
        known = {one.part: one for one in before.all()}
        now = {one.part: one for one in pauses.all()}
        for topic, partition in now.keys() - known.keys():
            why = now[topic, partition].who_and_why
            self._log.info("topic.paused", topic=topic, partition=partition, reason="paused", why=f"paused by {why}")
        for topic, partition in known.keys() - now.keys():
            self._log.info("topic.resumed", topic=topic, partition=partition)
        asked(pauses)

    async def _heed(self, stored: FlowConfig | None, changed: Changed) -> None:
        assert self._applied is not None, "it was not settled"  # noqa: S101
        match follow(self._applied, stored):
            case Keep():
                if stored is not None:
                    self._applied = stored
            case Follow() as news:
                await self._follow(news, changed)
            case Restore(config, why):
                self._log.warning("config.restored", why=why, version=config.version)
                outcome = await self._config_log.write(config, instead_of=stored, again=why)
                if not isinstance(outcome, Lost):
                    self._applied = outcome.config

    async def _follow(self, news: Follow, changed: Changed) -> None:
        config = news.config
        try:  # long lists of patterns take seconds to compile: longer than a session of this worker may last
            settings = await asyncio.to_thread(merged, self._file, self.flow, config)
        except StoredConfigUnusable as error:
            self._log.error("config.unusable", version=config.version, why=error.what, remedy=error.remedy)
            return
        self._log.info(
            "config.changed",
            version=config.version,
            by=str(config.by),
            stored_by=config.who_and_why,
            touched=sorted(news.touched),
        )
        self.drift = difference(config.properties, self._file.shared(self.flow))
        self._become(settings, config)
        changed(settings, news)

    def _become(self, settings: FlowSettings | None, config: FlowConfig) -> None:
        self._applied = config
        heartbeats = self.current.heartbeats
        try:
            heartbeats = merged_heartbeats(self._file, self.flow, config)
        except StoredConfigUnusable as error:  # switched off, else its settings could not be used either
            self._log.warning("heartbeats.as_before", why=str(error))
        self.current.become(settings, heartbeats)

    def _tell(self, decision: StartDecision, config: FlowConfig) -> None:
        event, log = decision.choice, self._log.bind(version=config.version)
        if event is StartChoice.REPLACED:
            _tell_replaced(decision, config, self._log)
            return
        self.drift = decision.difference
        if event in (StartChoice.DRIFTED, StartChoice.KEPT):
            why = "other workers run it so, and a rolling restart applies no file"
            if event is StartChoice.KEPT:
                why = "an operator changed it last, and this file has not changed since"
            log.warning(
                event,
                difference=shown(decision.difference),
                effect=f"this worker runs the flow by what is stored (version {config.version}, by"
                f" {config.who_and_why}), NOT by its file: {why}",
                remedy=f"To make all workers run by this file: mm2py apply {self._file.argument}",
            )
        else:
            log.info(event)


async def _store(
    config_log: ConfigLog, decision_of: Callable[[FlowConfig | None], Awaitable[StartDecision | None]]
) -> tuple[StartDecision, FlowConfig] | None:
    """Store what is decided, and decide again while other writers are quicker. Return the decision, and what counts.

    Args:
        decision_of: gets what another writer has stored instead, if one has; returns None to change nothing.
            It decides by what ``config_log`` has when it returns.
    Raises: as ``ConfigLog.write`` and ``decision_of``; ChangedWithoutEnd.
    """
    lost_to: FlowConfig | None = None
    for _ in range(TRIES_MOST):
        decision = await decision_of(lost_to)
        if decision is None:
            return None
        if decision.to_store is None:
            return decision, decision.config
        outcome = await config_log.write(decision.to_store, instead_of=config_log.config)
        if not isinstance(outcome, Lost):
            return decision, outcome.config
        lost_to = outcome.config
    raise ChangedWithoutEnd(
        f"Other writers changed {config_log.topic} {TRIES_MOST} times while this one tried to.",
        remedy="It is tried again. Look at who applies files: each start with --apply does.",
    )


def _tell_replaced(decision: StartDecision, config: FlowConfig, log: FilteringBoundLogger) -> None:
    log.warning(
        decision.choice,
        version=config.version,
        why=decision.why,
        difference=shown(decision.difference),
        remedy=PREVIOUS_REMEDY,
    )


def shown(difference: Difference) -> list[str]:
    """Return the first differences, as lines for a log."""
    lines = [str(change) for change in difference[:SHOWN_MOST]]
    return lines if len(difference) <= SHOWN_MOST else [*lines, f"and {len(difference) - SHOWN_MOST} more"]


class SwitchingOff:
    """A ``Connector`` that stores once that a flow is switched off. In MirrorMaker 2 each process follows its file."""

    leaves_outcome_unknown = False

    def __init__(
        self,
        config_log: ConfigLog,
        file: FlowProperties,
        log: FilteringBoundLogger,
        *,
        refuse: Callable[[], Awaitable[object]],
    ) -> None:
        """Make one.

        Args:
            file: the flow's settings in the file, which switch it off.
            refuse: raises FlowOfAnotherGroup if another group runs the flow, by what ``config_log`` has read.
        """
        self._config_log = config_log
        self._refuse = refuse
        self._file = file
        self._log = log

    async def run(self) -> None:
        """Store that the flow is switched off, if workers of mm2py may run it. Waits as long as the target does not
        answer; cancelling may leave it stored or not.

        Raises: as ``ConfigLog.write``; ChangedWithoutEnd, FlowOfAnotherGroup.
        """
        assert not is_enabled(self._file)  # noqa: S101
        await self._config_log.read_patiently(self._config_log.rng)
        if self._config_log.config is not None:
            await self._refuse()
        if (stored := await _store(self._config_log, self._decision)) is not None:
            _tell_replaced(*stored, self._log)

    async def _decision(self, _: FlowConfig | None) -> StartDecision | None:
        stored = self._config_log.config
        if stored is None or stored.by is DecidedBy.MM2:
            return None  # no worker of ours runs it, and what MirrorMaker 2 keeps there is its own
        decision = decide(stored, self._file, runners=(), apply=True)
        return decision if decision.choice is StartChoice.REPLACED else None

    async def drain(self) -> None:
        """Nothing is under way that would be repeated."""

    def status(self, *, with_topics: bool = True) -> None:
        """Nothing of the flow runs here."""

    def measure(self) -> tuple[()]:
        """It counts nothing."""
        return ()
