"""Asks one cluster for the status: the state of a group from its control log, and the offsets of a source.

Each question has a time limit. Nothing is written, and the group is not joined.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings, GroupSettings
from mm2py.errors import Mm2Error
from mm2py.flow import ClusterAlias, TopicName
from mm2py.group.control_log import ControlLog, ControlLogLost
from mm2py.group.control_topic import MISSING_S, ControlLogMissing
from mm2py.group.membership import GroupState
from mm2py.group.state_snapshot import read_snapshot
from mm2py.kafka.admin import describe_topic_configs
from mm2py.kafka.cluster import ClusterMetadata, TopicMetadata, fetch_metadata, hidden_among
from mm2py.kafka.error_codes import name_of
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.list_offsets import EARLIEST, LATEST, OffsetAnswer, list_offsets
from mm2py.kafka.port import BrokerId, Brokers, TopicPartition
from mm2py.logs import make_logger
from mm2py.moments import time_text
from mm2py.status.facts import UNDECIDED, GroupFacts, LeftOut
from mm2py.status.report import seems_stopped
from mm2py.topics.filters import PatternTooSlow, WhyNot
from mm2py.topics.names import control_log
from mm2py.topics.retention import RETENTION_KEYS, Retention, retention_of
from mm2py.topics.unmatched import Unmatched, unmatched

PROBE_S: Final = 10.0
"""How long a cluster may take to answer at all."""
NEXT_PROBE_S: Final = 0.7
"""If a broker has not answered after this time, another one is asked in addition."""
PROBES_MOST: Final = 3
PART_S: Final = 30.0
"""How long one part may take, such as reading all positions."""
FAILING_S: Final = 5.0
"""How long a part may fail before that is reported. A partition leader that moves is back by then."""
AGAIN_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a look waits for a cluster that accepts connections and does not answer. The request itself goes on.

    While a connection is being made, each step that the cluster answers restarts the wait: a far cluster that needs six
    round trips with TLS and SASL is slow, but not silent.
    """

    clock: Clock
    """Gives the time since when the cluster is silent."""
    first_s: float = 1.5
    """For a cluster that answered the last time."""
    away_s: float = 0.2
    """For a cluster that did not answer the last time."""
    within_s: float = 3.0
    """For a cluster that falls silent while it is asked."""
    every_s: float = 1.5
    """During a question, how often the cluster is asked whether it still answers."""


def patience_of_commands(clock: Clock) -> Patience:
    """Return the patience of commands: a silent cluster costs them 3 s at most, also in the middle of a look."""
    return Patience(clock, first_s=2.0, within_s=2.0, every_s=0.5)


@runtime_checkable
class Connecting(Protocol):
    """Brokers that report how far a connection has come."""

    def step_s(self) -> float:
        """Return when a step of connecting was last answered, by the event loop's clock."""


class InquirySide:
    """The brokers of one cluster, with the rights of one flow."""

    def __init__(self, alias: ClusterAlias, brokers: Brokers, patience: Patience | None = None) -> None:
        """With ``patience``, call ``close`` at the end. Without it, each look waits up to ``PROBE_S``."""
        self.alias = alias
        self.brokers = brokers
        self.away = ""
        """Why the cluster did not answer last time; empty if it did."""
        self._patience = patience
        self._probing: asyncio.Task[str | None] | None = None
        self._looked: asyncio.Task[None] | None = None
        self._asked_at_ms = 0
        self._answering = 0
        """The connection of ``_any_answer`` that answered last."""
        self._silent_since_ms: int | None = None

    def begin_probe(self, tasks: asyncio.TaskGroup) -> None:
        """Start to find out whether the cluster answers. Questions to it wait for the result."""
        self._looked = tasks.create_task(self.probe(), name=f"status: does {self.alias} answer")

    async def why_away(self) -> str:
        """Wait for the probe, and return why the cluster does not answer; empty if it does."""
        if self._looked is not None:
            await asyncio.wait({self._looked})
        return self.away

    async def probe(self) -> None:
        """Find out whether the cluster answers. Cancelling loses nothing."""
        if self._patience is None:
            why = await self._ask()
            within = f"{self.alias} did not answer within {PROBE_S:g} s. Check its bootstrap.servers and the network."
            self.away = within if why is None else why
        else:
            await self._probe(self._patience, self._patience.away_s if self.away else self._patience.first_s)

    async def _probe(self, patience: Patience, most_s: float) -> None:
        if self._probing is None:
            self._asked_at_ms = patience.clock.wall_ms()
            self._probing = asyncio.create_task(self._ask(), name=f"status: is {self.alias} there")
        probing = self._probing
        await self._answer_or_silence(probing, most_s)
        why = probing.result() if probing.done() else None
        if why is not None:
            self._silent_since_ms, self.away = None, why
        else:
            if self._silent_since_ms is None:
                self._silent_since_ms = self._asked_at_ms
            since = time_text(self._silent_since_ms)
            self.away = f"{self.alias} has not answered since {since}. Check its bootstrap.servers and the network."
        if probing.done() and self._probing is probing:
            self._probing = None

    async def _answer_or_silence(self, probing: asyncio.Task[str | None], most_s: float) -> None:
        """Wait for the answer, or until the cluster has been silent for ``most_s``."""
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        while not probing.done():
            left_s = self._step_s(begun_s) + most_s - loop.time()
            if left_s <= 0:
                return
            await asyncio.wait({probing}, timeout=left_s)

    def _step_s(self, begun_s: float) -> float:
        """Return when a step of connecting was last answered; ``begun_s`` if none was since."""
        return max(begun_s, self.brokers.step_s()) if isinstance(self.brokers, Connecting) else begun_s

    async def _ask(self) -> str | None:
        """Return why the cluster refuses to answer; empty: it answers, None: it is silent."""
        try:
            async with asyncio.timeout(PROBE_S):
                await self._any_answer()
            return ""
        except TimeoutError:
            return None
        except Mm2Error as error:
            return said(error)

    async def _any_answer(self) -> None:
        """Return when the first broker answers. Raises: KafkaError, if the first answer is an error.

        The story: one of three brokers is frozen, or its host has disappeared. A client that has chosen this broker
        waits, and would call the whole cluster silent. So other brokers are asked in addition, on separate connections,
        where no slow answer delays the probe. A broker that has answered a step of connecting is only slow. Then no
        other broker is asked, because wrong passwords in quick succession lock accounts.
        """
        begun_s = asyncio.get_running_loop().time()
        asking: dict[asyncio.Task[ClusterMetadata], int] = {}
        try:
            for number in range(self._answering, self._answering + PROBES_MOST):
                channel = number % PROBES_MOST
                work = fetch_metadata(self.brokers, [], channel=f"probe-{channel}")
                asking[asyncio.create_task(work, name=f"status: is {self.alias} there, {channel}")] = channel
                await asyncio.wait(asking, timeout=NEXT_PROBE_S, return_when=asyncio.FIRST_COMPLETED)
                if any(task.done() for task in asking) or self._step_s(begun_s) > begun_s:
                    break
            (first, *_), _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            first.result()
            self._answering = asking[first]
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    async def close(self) -> None:
        """Cancel a probe that still runs."""
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait({self._probing})

    async def why_not(self, doing: str, work: Callable[[], Awaitable[None]]) -> str:
        """Do ``work``; repeat it after an error that may pass. Return why it failed; empty if it was done.

        Args:
            doing: what the work is, for the message that it took too long.
        """
        if why := await self.why_away():
            return why
        if self._patience is None:
            return await self._try(doing, work)
        trying = asyncio.create_task(self._try(doing, work), name=f"status: {doing}")
        silent = asyncio.create_task(self._until_silent(self._patience), name=f"status: is {self.alias} still there")
        try:
            await asyncio.wait({trying, silent}, return_when=asyncio.FIRST_COMPLETED)
            return trying.result() if trying.done() else self.away
        finally:
            for task in (trying, silent):
                task.cancel()
            await asyncio.gather(trying, silent, return_exceptions=True)

    async def _until_silent(self, patience: Patience) -> None:
        while not self.away:
            await asyncio.sleep(patience.every_s)
            await self._probe(patience, patience.within_s)

    async def _try(self, doing: str, work: Callable[[], Awaitable[None]]) -> str:
        why = ""
        try:
            async with asyncio.timeout(PART_S) as limit:
                while True:
                    try:
                        await work()
                        return ""
                    except Mm2Error as error:
                        if not error.retriable:
                            return said(error)
                        now_s = asyncio.get_running_loop().time()
                        left_s = (limit.when() or now_s) - now_s
                        if left_s <= 0:  # the limit caused the error, and an expired limit must not be moved
                            return said(error)
                        if not why:
                            limit.reschedule(now_s + min(FAILING_S, left_s))
                        why = said(error)
                    await asyncio.sleep(AGAIN_S)
        except TimeoutError:
            return why or f"{self.alias} does not answer: {doing} took more than {PART_S:g} s."


async def why_not_both(
    doing: str, source: InquirySide, target: InquirySide, work: Callable[[], Awaitable[None]]
) -> str:
    """Do ``work`` that asks both clusters, like ``InquirySide.why_not``. It ends if either cluster falls silent."""
    refused = ""

    async def guarded() -> None:
        nonlocal refused
        refused = await target.why_not(doing, work)

    return await source.why_not(doing, guarded) or refused


def said(error: Mm2Error) -> str:
    """Return an error's text. Unlike a worker, the status does not keep trying."""
    return str(error).replace("; mm2py keeps trying", "")


LOOK_ON_BEATS: Final = 4
"""If a log does not grow for this many heartbeat intervals, no worker runs."""
LOOK_ON_LEAST_S: Final = 1.5
HELD_UP_S: Final = MISSING_S + 2.0
"""How long reading may fail before we give up. By then it is known whether the log was deleted."""


class ControlLogSilent(Mm2Error):
    """The control log cannot be read at the moment, although the target answers."""

    def __init__(self, why: str) -> None:
        super().__init__(why, remedy="")


class GroupInquiry:
    """Reads a group's state. The first look starts at the newest snapshot; later looks read only new records."""

    def __init__(self, settings: GroupSettings, target: InquirySide, *, clock: Clock, rng: random.Random) -> None:
        self._settings = settings
        self._target = target
        self._clock = clock
        topic = control_log(settings.name, producer_expiry_ms=0)
        self.topic = str(topic.name)
        self._log = ControlLog(
            target.brokers,
            topic,
            poll_s=0.0,
            append_timeout_s=1.0,
            replication_factor=None,
            clock=clock,
            rng=rng,
            log=make_logger("error", "text", io.StringIO()),
        )
        self._view: GroupState | None = None
        self._looked: tuple[float, int] | None = None
        """When the log was read last, by our clock, and up to which offset."""

    async def look(self) -> GroupFacts:
        """Read the new records. If the last record does not show that a worker runs, watch whether the log grows."""
        before = self._looked
        unread = await self._read()
        has_grown: bool | None = None
        if not unread and self._view is not None and seems_stopped(self._view, self._clock.wall_ms()):
            now_s = self._clock.monotonic()
            look_on_s = max(LOOK_ON_LEAST_S, LOOK_ON_BEATS * self._settings.heartbeat_interval_s)
            if before is None or (before[1] == self._view.next_offset and now_s - before[0] < look_on_s):
                before = (now_s, self._view.next_offset)
                await asyncio.sleep(look_on_s)
                unread = await self._read()
            has_grown = self._view is not None and self._view.next_offset > before[1]
        if unread or self._view is None:
            self._looked = None
        elif before is None or before[1] != self._view.next_offset:
            self._looked = (self._clock.monotonic(), self._view.next_offset)
        return GroupFacts(
            self._settings.target, self._settings.name, self.topic, None if unread else self._view, unread, has_grown
        )

    async def _read(self) -> str:
        why = await self._target.why_not(f"reading {self.topic}", self._read_while_it_answers)
        if why:
            self._view = None  # read it from the newest snapshot next time
        return why

    async def _read_while_it_answers(self) -> None:
        """Read the control log, and stop after ``HELD_UP_S`` of failures. Its reader retries for ever, for members.

        Raises: ControlLogSilent.
        """
        reading = asyncio.ensure_future(self._read_on())
        failing_s = 0.0
        try:
            while not reading.done():
                await asyncio.wait({reading}, timeout=AGAIN_S)
                failing_s = failing_s + AGAIN_S if self._log.trouble else 0.0
                if failing_s >= HELD_UP_S and not reading.done():
                    raise ControlLogSilent(self._log.trouble)
            reading.result()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read_on(self) -> None:
        with contextlib.suppress(ControlLogMissing):
            try:
                if self._view is None:
                    await self._open()
                await self._to_the_end()
            except ControlLogLost:
                self._view = None
                await self._open()

    async def _open(self) -> None:
        opening = await self._log.open()
        view = GroupState() if opening.state is None else read_snapshot(opening.state, where=self.topic)
        for entry in opening.entries:
            view.take(entry)
        self._view = view

    async def _to_the_end(self) -> None:
        while self._view is not None:
            before = self._log.next_offset
            for entry in await self._log.read():
                self._view.take(entry)
            if self._log.next_offset == before and not self._log.trouble:
                return


TOPICS_KEPT_S: Final = 15.0
"""How long a list of all topics is reused while watching. On a large cluster the list is large."""

RETENTION_KEPT_S: Final = 60.0
"""How long the settings of topics are reused while watching."""


class SourceInquiry:
    """Asks the source of one flow for its topics and offsets."""

    def __init__(self, settings: FlowSettings, source: InquirySide) -> None:
        self.selected: dict[str, int] | None = None
        self.left_out: dict[str, LeftOut] = {}
        self.starts: dict[TopicPartition, int] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.unmatched: list[Unmatched] = []
        self.hidden: frozenset[str] = frozenset()
        """Copied topics that the user who asks may not describe. It is not known whether they exist."""
        self.unread: list[str] = []
        self._settings = settings
        self._source = source
        self._topics: list[TopicMetadata] = []
        self._listed_at_s: float | None = None
        self._decided: dict[str, LeftOut | None] = {}
        self._errors: Counter[int] = Counter()
        self._retentions: dict[str, Retention | None] = {}
        self._retentions_from_s = float("-inf")
        self._copied: set[str] = set()
        """Topics that had positions in the previous look."""

    async def look(
        self, positions: Collection[TopicPartition], *, with_starts: bool, told: Collection[str] = ()
    ) -> None:
        """Find the ends of all selected partitions, and the starts of those without a position.

        If the source does not list its topics, the settings only decide on topics that were copied or are in ``told``.

        Args:
            positions: the partitions that have a position.
            with_starts: False if ``positions`` could not be read.
            told: the topics that workers have stored as not copied.
        """
        self.unread, self.starts, self.ends, self._errors = [], {}, {}, Counter()
        copied = {topic for topic, _ in positions}
        if copied - self._copied:
            self._listed_at_s = None  # workers have found new topics since
        self._copied = copied
        why = await self._source.why_not("listing its topics", self._list_topics)
        if why:
            self._listed_at_s = None
            decided = {topic: self._decision(topic) for topic in copied.union(told)}
            left_out = {topic: rule for topic, rule in decided.items() if rule is not None}
            self.selected, self.left_out, self.unmatched, self.hidden = None, left_out, [], frozenset()
            self.unread.append(why)
            return
        self._select()
        leaders: dict[BrokerId, list[TopicPartition]] = {}
        headless = 0
        for topic in self._topics:
            for number, part in topic.partitions.items():
                if part.leader is None:
                    headless += 1
                else:
                    leaders.setdefault(part.leader, []).append((topic.name, number))
        if headless:
            self.unread.append(f"{headless} partition(s) on {self._source.alias} have no leader.")
        async with asyncio.TaskGroup() as tasks:
            for leader, keys in leaders.items():
                new = [key for key in keys if key not in positions] if with_starts else []
                tasks.create_task(self._ask(leader, keys, new), name=f"status: {self._source.alias} {leader}")
        for code, count in sorted(self._errors.items()):
            self.unread.append(f"{count} partition(s) on {self._source.alias} have no answer: {name_of(code)}.")
        if self.unread:
            self._listed_at_s = None  # their leaders may have moved

    def without_end(self) -> Collection[TopicPartition]:
        """Return the selected partitions whose end the last look did not find; all if the source listed no topics."""
        keys = [(topic.name, number) for topic in self._topics for number in topic.partitions]
        return keys if self.selected is None else [key for key in keys if key not in self.ends]

    async def first_since(self, since_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAnswer]:
        """Return each partition's first record that is not older; partitions without an answer are left out."""
        return await self._at(since_ms, "asking for the age of records that wait")

    async def _at(self, when: Mapping[TopicPartition, int], doing: str) -> dict[TopicPartition, OffsetAnswer]:
        leaders = {
            (topic.name, number): part.leader for topic in self._topics for number, part in topic.partitions.items()
        }
        found: dict[TopicPartition, OffsetAnswer] = {}

        async def ask() -> None:
            asked = {key: leaders[key] for key in when if leaders.get(key) is not None}
            found.update(await list_offsets(self._source.brokers, asked, when, skip_silent=True))

        await self._source.why_not(doing, ask)
        return {key: one for key, one in found.items() if not one.error_code and one.offset >= 0}

    async def retentions(self, topics: Sequence[str]) -> dict[str, Retention | None]:
        """Return how long the source keeps the records of topics; None: it does not tell. An answer is kept a while."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._retentions_from_s >= RETENTION_KEPT_S:
            self._retentions, self._retentions_from_s = {}, now_s
        asked = [topic for topic in topics if topic not in self._retentions]

        async def ask() -> None:
            answers = await describe_topic_configs(self._source.brokers, asked, keys=RETENTION_KEYS)
            for topic in asked:
                found = answers.get(topic)
                told = None if found is None or isinstance(found, BrokerRefused) else found
                self._retentions[topic] = None if told is None else retention_of({one.name: one.value for one in told})

        if asked:
            await self._source.why_not("asking how long records are kept", ask)
        return {topic: self._retentions.get(topic) for topic in topics}

    async def log_starts(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offsets of partitions; those without an answer are left out."""
        found = await self._at(dict.fromkeys(keys, EARLIEST), "asking where logs start")
        return {key: one.offset for key, one in found.items()}

    async def _list_topics(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._listed_at_s is None or now_s - self._listed_at_s >= TOPICS_KEPT_S:
            found = await fetch_metadata(self._source.brokers, None)
            why_not = {topic.name: self._why_not(topic) for topic in found.topics.values()}
            self.left_out = {name: why for name, why in why_not.items() if why is not None}
            self._topics = [topic for topic in found.topics.values() if topic.name not in self.left_out]
            self._listed_at_s = now_s
            names = {topic.name for topic in found.topics.values() if not topic.error_code}
            settings = self._settings

            def copy_of(name: str) -> str:
                return settings.policy.format_remote_topic(settings.flow.target, TopicName(name))

            self.unmatched = unmatched(settings.topic_filter.included, names, copy_of=copy_of)
            gone = [name for name in self._copied - found.topics.keys() if self._decision(name) is None]
            self.hidden = frozenset(await hidden_among(self._source.brokers, gone))

    def _why_not(self, topic: TopicMetadata) -> LeftOut | None:
        return WhyNot.INTERNAL if topic.is_internal else self._decision(topic.name)

    def _decision(self, topic: str) -> LeftOut | None:
        if topic not in self._decided:
            try:
                self._decided[topic] = self._settings.decision(topic).why_not
            except PatternTooSlow:
                self._decided[topic] = UNDECIDED  # the worker says so in its log, and copies none of it
        return self._decided[topic]

    def _select(self) -> None:
        self.selected = {topic.name: len(topic.partitions) for topic in self._topics}
        refused = Counter(topic.error_code for topic in self._topics if topic.error_code)
        for code, count in sorted(refused.items()):
            self.unread.append(f"{count} topic(s) on {self._source.alias} have no answer: {name_of(code)}.")

    async def _ask(self, leader: BrokerId, keys: Sequence[TopicPartition], new: Sequence[TopicPartition]) -> None:
        async def ask() -> None:
            await self._offsets(leader, keys, LATEST, self.ends)
            await self._offsets(leader, new, EARLIEST, self.starts)

        why = await self._source.why_not(f"asking broker {leader} for its offsets", ask)
        if why:
            self.unread.append(why)

    async def _offsets(
        self, leader: BrokerId, keys: Sequence[TopicPartition], timestamp: int, into: dict[TopicPartition, int]
    ) -> None:
        committed = self._settings.read_committed and timestamp == LATEST
        answers = await list_offsets(
            self._source.brokers, dict.fromkeys(keys, leader), timestamp, read_committed=committed
        )
        for key, answer in answers.items():
            if answer.error_code:
                self._errors[answer.error_code] += 1
            else:
                into[key] = answer.offset
