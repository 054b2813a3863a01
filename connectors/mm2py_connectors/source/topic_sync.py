"""Copies settings of upstream topics to their remote topics; ``Schedules`` repeats this and the ACL sync.

The remote topics are read first, and only what differs is sent. So a setting that an operator changes on a remote topic
is set back, unless ``config.properties.exclude`` names it, or the source's brokers have it in their own file. If the
target refuses a setting, only that one is left out (``RefusedConfigs``).

Counterpart: syncTopicConfigs and the schedules of MM2's MirrorSourceConnector and Scheduler of Apache Kafka's
Connect, mirror.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.config.flow_part import FlowPart
from mm2py.config.settings import FlowSettings
from mm2py.errors import Mm2Error
from mm2py.kafka import admin
from mm2py.kafka.admin import ConfigEntry
from mm2py.kafka.error_codes import CONTENT_REFUSED, name_of
from mm2py.kafka.errors import BrokerRefused, Reaction
from mm2py.kafka.port import Brokers
from mm2py.topics.filters import PatternTooSlow
from mm2py.topics.topic_configs import (
    MIN_INSYNC_REPLICAS,
    TELLING_THE_COPIER,
    ConfigChange,
    TopicConfigEntry,
    Tried,
    carried_names,
    config_changes,
    too_many_in_sync,
)
from mm2py_connectors.source.acl_sync import AclSync
from mm2py_connectors.source.context import FlowContext, FlowView
from mm2py_connectors.source.discovery.discovery import Discovery
from mm2py_connectors.source.discovery.remote_topics import RemoteRules
from mm2py_connectors.source.discovery.starting_offsets import StartingOffsets
from mm2py_connectors.source.notices import Notices, RefusedConfigs
from mm2py_connectors.source.task.source_task import SourceTask
from mm2py_connectors.source.timestamp_limits import entries_of

NEWS_EVERY_S: Final = 5.0


async def repeat(
    work: Callable[[], Awaitable[None]],
    *,
    name: str,
    interval_s: float,
    clock: Clock,
    log: FilteringBoundLogger,
    news: Callable[[], bool] | None = None,
) -> None:
    """Do the work now, and again every ``interval_s`` seconds after the first start, until cancelled.

    Two runs of the work never overlap. Missed starts are skipped; MM2 would catch up on them, one right after the
    other. An error does not end the schedule. It is logged, and later errors only if they are of another class.

    Args:
        name: the first part of the names of log events, such as ``topic_configs``.
        news: is called every few seconds; if True, the work is also done in between. The rate does not change.
    """
    said: set[str] = set()

    async def attempt() -> None:
        try:
            await work()
        except Exception as error:
            # An error that is no Mm2Error is a defect. It must not end the flow: the sync only accompanies the copying.
            known = isinstance(error, Mm2Error)
            kind = f"{type(error).__name__} {error.code if isinstance(error, BrokerRefused) else ''}"
            if kind not in said:
                said.add(kind)
                say = log.warning if known else log.error
                why = str(error) if known else _defect(error)
                say(f"{name}.failing", why=why, effect="copying of records does not need it; it is tried again")
        else:
            if said:
                said.clear()
                log.info(f"{name}.in_step")

    begun_s = clock.monotonic()
    times = 0
    while True:
        await attempt()
        times = max(times + 1, int((clock.monotonic() - begun_s) / interval_s) + 1)
        while (left_s := begun_s + times * interval_s - clock.monotonic()) > 0:
            if news is None or left_s <= NEWS_EVERY_S:
                await asyncio.sleep(left_s)
                continue
            await asyncio.sleep(NEWS_EVERY_S)
            if news():
                await attempt()


def _defect(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    where = " < ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in reversed(frames[-5:]))
    return f"{type(error).__name__}: {error} (at {where}). This is a defect in mm2py; please report it with this line."


CHANNEL: Final = "sync"
"""Its own connections: a target that hangs here does not delay copying."""
CHUNK: Final = 200


class TopicConfigSync:
    """One flow's configuration sync; ``run_once`` is what its schedule repeats."""

    def __init__(
        self,
        context: FlowView,
        *,
        topics: Callable[[], Mapping[str, str]],
        refused: RefusedConfigs,
        changed: Callable[[Mapping[str, Mapping[str, str]]], Awaitable[None]],
    ) -> None:
        """Make one; nothing is asked yet.

        Args:
            topics: returns the remote topic of each source topic that is copied just now.
            changed: is called with the remote topics where a setting that decides how to write to them has changed, and
                with the known new values. It is called again one round later: brokers may have answered with the old
                values.
        """
        self._context = context
        self._source = context.source.brokers
        self._target = context.target.brokers
        self._topics = topics
        self._refused = refused
        self._changed = changed
        self._log = context.log
        self._notices = Notices(context.log)
        self._carried: dict[str, frozenset[str]] = {}
        """By remote topic, the settings that its upstream topic had: one that is removed there is removed here."""
        self._tell_again: set[str] = set()

    async def run_once(self) -> None:
        """Bring the remote topics in step. Raises: as ``Brokers.send``; the next round does the rest.

        Cancelling may leave a request on its way; the next round reads its result.
        """
        topics = self._topics()
        copied = set(topics.values()) | set(topics)
        self._refused.keep(copied.__contains__)
        self._notices.keep(lambda of: not isinstance(of, tuple) or of[-1] in copied)
        self._carried = {remote: names for remote, names in self._carried.items() if remote in copied}
        telling, self._tell_again = self._tell_again & copied, set()
        if telling:
            await self._changed({topic: {} for topic in telling})
        names = sorted(topics)
        try:
            for at in range(0, len(names), CHUNK):
                await self._sync({name: topics[name] for name in names[at : at + CHUNK]})
        finally:
            self._notices.end()
            self._refused.end()

    async def _sync(self, topics: Mapping[str, str]) -> None:
        wanted = await self.wanted(topics)
        if self._context.settings.sync_topic_configs_dry_run:
            self._say_what_would_change(wanted)
        else:
            await self._change(wanted)

    async def wanted(self, topics: Mapping[str, str]) -> dict[str, list[ConfigChange]]:
        """Return what is to change on the remote topics of some source topics; nothing is changed.

        Topics whose settings cannot be read are left out. Raises: as ``Brokers.send``.
        """
        flow = self._context.settings.flow
        upstreams = await admin.describe_topic_configs(self._source, list(topics), channel=CHANNEL)
        remotes = await admin.describe_topic_configs(self._target, list(topics.values()), channel=CHANNEL)
        wanted: dict[str, list[ConfigChange]] = {}
        for name, remote in topics.items():
            ours = self._readable(flow.source, name, upstreams.get(name), "DESCRIBE_CONFIGS")
            theirs = self._readable(flow.target, remote, remotes.get(remote), "ALTER_CONFIGS")
            if ours is None or theirs is None:
                continue
            carried = carried_names(ours, theirs, self._carried.get(remote, frozenset()))
            self._carried[remote] = carried
            try:
                changes = config_changes(ours, theirs, self._context.settings.config_filter, carried=carried)
            except PatternTooSlow as error:
                if self._notices.is_new(("undecided", remote), str(error)):
                    self._log.warning("topic_configs.undecided", topic=remote, why=str(error))
                continue
            wanted[remote] = [one for one in changes if not self._refused.holds(remote, one.name, one.new)]
        await self._leave_out_unreachable(wanted)
        return wanted

    def _readable(
        self, alias: str, topic: str, found: Sequence[ConfigEntry] | BrokerRefused | None, right: str
    ) -> Sequence[TopicConfigEntry] | None:
        """Return a topic's settings, or None. A failure is logged, unless the topic was just created or deleted."""
        if found is None:
            return None
        of = ("unreadable", alias, topic)  # under the identity policy both sides have one name
        if not isinstance(found, BrokerRefused):
            self._notices.is_over(of)
            return entries_of(found)
        self._say_denied(of, alias, topic, found, right)
        return None

    def _say_denied(self, of: tuple[str, ...], alias: str, topic: str, refusal: BrokerRefused, right: str) -> None:
        if refusal.retriable or not self._notices.is_new(of, str(refusal)):
            return
        shared, own = {"why": f"{name_of(refusal.code)} ({refusal.code})"}, {"why": str(refusal)}
        if refusal.reaction is Reaction.DENIED:
            shared["remedy"] = f"Grant {right} on them on {alias}."
            own["remedy"] = f"Grant {right} on topic {topic} on {alias}."
        self._notices.say("topic_configs.denied", topic, level="warning", shared=shared, **own)

    async def _leave_out_unreachable(self, wanted: dict[str, list[ConfigChange]]) -> None:
        """Leave out a min.insync.replicas that a remote topic has not enough replicas for."""
        asked = [topic for topic, changes in wanted.items() if any(one.name == MIN_INSYNC_REPLICAS for one in changes)]
        if not asked:
            return
        replicas = await admin.replica_counts(self._target, asked, channel=CHANNEL)
        for topic in asked:
            for change in list(wanted[topic]):
                if change.name != MIN_INSYNC_REPLICAS or change.new is None:
                    continue
                why = too_many_in_sync(change.name, change.new, replicas.get(topic))
                if why is not None:
                    self._refused.note(topic, change.name, change.new, why)
                if why is not None or topic not in replicas:  # unknown replicas: the next round may know them
                    wanted[topic].remove(change)

    def _say_what_would_change(self, wanted: Mapping[str, Sequence[ConfigChange]]) -> None:
        for topic, changes in wanted.items():
            text = "; ".join(map(str, changes))
            if not changes:
                self._notices.is_over(("plan", topic))
            elif self._notices.is_new(("plan", topic), text):
                effect = {"effect": "nothing is changed: sync.topic.configs.dry.run=true"}
                self._notices.say("topic_configs.would_change", topic, detail=text, shared=effect, settings=text)

    async def _change(self, wanted: Mapping[str, Sequence[ConfigChange]]) -> None:
        tried, denied = await alter_configs(self._target, wanted)
        for topic in tried.done:
            self._notices.is_over(("denied", topic))
        for topic, refusal in denied.items():
            self._say_denied(("denied", topic), self._context.settings.target.alias, topic, refusal, "ALTER_CONFIGS")
        for topic, refused in tried.refused.items():
            for change, why in refused:
                self._refused.note(topic, change.name, change.new, why)
        for topic, changes in tried.done.items():
            text = "; ".join(map(str, changes))
            self._notices.say("topic_configs.changed", topic, detail=text, settings=text)
            for change in changes:
                self._refused.taken(topic, change.name)
        telling = {
            topic: {change.name: change.new for change in changes if change.new is not None}
            for topic, changes in tried.done.items()
            if any(change.name in TELLING_THE_COPIER for change in changes)
        }
        if telling:
            self._tell_again |= telling.keys()
            await self._changed(telling)


async def alter_configs(
    target: Brokers, wanted: Mapping[str, Sequence[ConfigChange]]
) -> tuple[Tried, dict[str, BrokerRefused]]:
    """Change settings of remote topics. A setting that the target refuses is left out alone.

    Returns:
        What was done and refused; and the topics for which something else than the settings was wrong.
    Raises: as ``Brokers.send``.
    """
    tried, denied = Tried(wanted), dict[str, BrokerRefused]()
    while batch := tried.next_round():
        answers = await admin.alter_topic_configs(
            target,
            {topic: {change.name: change.new for change in changes} for topic, changes in batch.items()},
            channel=CHANNEL,
        )
        for topic in batch:
            refusal = answers.get(topic)
            if topic in answers and refusal is None:
                tried.taken(topic)
            elif refusal is not None and refusal.code in CONTENT_REFUSED:
                tried.turned_down(topic, str(refusal))
            else:
                tried.give_up(topic)
                if refusal is not None:
                    denied[topic] = refusal
    return tried, denied


class Schedules:
    """The schedules of one flow. Changed settings restart the schedule that they concern."""

    def __init__(
        self,
        context: FlowContext,
        task: SourceTask,
        starting_offsets: StartingOffsets,
        discovery: Discovery,
    ) -> None:
        self._context = context
        self._task = task
        self._starting_offsets = starting_offsets
        self._discovery = discovery
        self._ownership = context.ownership
        self._looked_at = 0
        """How many partitions were listed when ACLs were synced last."""
        self._was_coordinator = context.ownership.is_coordinator
        self._changed = {FlowPart.TOPIC_CONFIGS: asyncio.Event(), FlowPart.TOPIC_ACLS: asyncio.Event()}

    def change(self, parts: Collection[FlowPart]) -> None:
        """Restart the schedules that ``parts`` name, by their new settings."""
        for part in self._changed.keys() & set(parts):
            self._changed[part].set()

    async def run(self) -> None:
        """Run until cancelled. The schedules start after the first round of discovery.

        The flow coordinator does all of it, for the topics that it has listed. The other workers only read the settings
        that decide how they write. Nothing is changed on remote topics of refused topics: another flow may own them.
        """
        await self._discovery.made.wait()
        name = self._context.flow
        async with asyncio.TaskGroup() as schedules:
            schedules.create_task(
                self._keep(FlowPart.TOPIC_CONFIGS, self._sync_configs), name=f"{name} sync of topic configurations"
            )
            schedules.create_task(self._keep(FlowPart.TOPIC_ACLS, self._sync_acls), name=f"{name} sync of ACLs")

    async def _keep(self, part: FlowPart, schedule: Callable[[FlowSettings], Coroutine[Any, Any, None]]) -> None:
        changed = self._changed[part]
        while True:
            changed.clear()
            running = asyncio.create_task(schedule(self._context.settings), name=part.name)
            news = asyncio.create_task(changed.wait(), name=f"{part.name} changed")
            try:
                await asyncio.wait([running, news], return_when=asyncio.FIRST_COMPLETED)
                if running.done():
                    running.result()
                    await news  # it is switched off
            finally:
                running.cancel()
                news.cancel()
                await asyncio.gather(running, news, return_exceptions=True)

    async def _sync_configs(self, settings: FlowSettings) -> None:
        if settings.sync_topic_configs_interval_s is None:
            return
        rules = RemoteRules(self._context)

        async def changed(settings_of: Mapping[str, Mapping[str, str]]) -> None:
            await rules.learn(settings_of, self._task.partitions.values())

        configs = TopicConfigSync(
            self._context.view, topics=self._topics, refused=self._discovery.refused_configs, changed=changed
        )

        async def sync() -> None:
            self._was_coordinator = self._ownership.is_coordinator
            if self._was_coordinator:
                await configs.run_once()
            else:
                await changed({part.target_topic: {} for part in self._task.partitions.values()})

        await repeat(
            sync,
            name="topic_configs",
            interval_s=settings.sync_topic_configs_interval_s,
            clock=self._context.clock,
            log=self._context.log,
            news=self._is_coordinator_now,
        )

    async def _sync_acls(self, settings: FlowSettings) -> None:
        if settings.sync_topic_acls_interval_s is None:
            return
        acls = AclSync(
            self._context.view,
            topics=lambda: self._topics().keys(),
            kept=lambda: {name for name, _ in self._starting_offsets.positions},
        )

        async def sync() -> None:
            self._looked_at = self._width() if self._ownership.is_coordinator else 0
            if self._ownership.is_coordinator:
                await acls.run_once()

        await repeat(
            sync,
            name="topic_acls",
            interval_s=settings.sync_topic_acls_interval_s,
            clock=self._context.clock,
            log=self._context.log,
            news=self._is_more_copied,
        )

    def _is_coordinator_now(self) -> bool:
        """A new coordinator does not wait for the interval: the previous one may have left topics out."""
        return self._ownership.is_coordinator and not self._was_coordinator

    def _is_more_copied(self) -> bool:
        """ACLs of a new topic do not wait for the interval; none is granted before the topic is copied."""
        return self._ownership.is_coordinator and self._width() > self._looked_at

    def _width(self) -> int:
        return sum(self._ownership.listed.values())

    def _topics(self) -> dict[str, str]:
        return {name: self._context.settings.remote_topic(name) for name in self._ownership.listed}
