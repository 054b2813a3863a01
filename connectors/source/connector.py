"""The source connector of a flow: finds what to copy, sees that it has a place to go, and hands it to the task.

Answers to MirrorSourceConnector of Apache Kafka's Connect, mirror. One metadata request every
``topics.watch.interval.ms`` shows new topics, new partitions and moved leaders; nothing else is asked while nothing
changes. What must not be copied is refused with its way out, and looked at again now and then.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, TypeVar

from structlog.typing import FilteringBoundLogger

from connectors.source import remote_topics
from connectors.source.claims import RemoteTopicClaims
from connectors.source.refusals import (
    FlowRefused,
    Mm2IsRunning,
    NoPosition,
    OffsetsTopicUnusable,
    OneCluster,
    Recreated,
    RemoteNameIllegal,
    SeveralFlows,
    TargetNotEmpty,
    TopicRefused,
)
from connectors.source.task import Cluster, SourceTask
from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.connector import FlowStatus, Side, TopicStatus
from mm2py.errors import Mm2Error
from mm2py.flow import TopicName
from mm2py.kafka import admin
from mm2py.kafka.admin import NewTopic
from mm2py.kafka.cluster import ClusterMetadata, TopicMetadata, fetch_metadata
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.incarnation import Incarnation
from mm2py.kafka.port import Brokers
from mm2py.kafka.retry import Backoff, Reaction, reaction_to
from mm2py.kafka.topic_writer import TopicWriter
from mm2py.records.compression import Codec
from mm2py.records.source_offset import BY_OPERATOR, StoredPosition
from mm2py.replication.copier import Copier, Phase
from mm2py.replication.lane import CopiedPartition
from mm2py.replication.memory import MemoryBudget
from mm2py.replication.position import Position
from mm2py.replication.position_store import PositionStore, read_positions
from mm2py.replication.rewrite import TargetRules
from mm2py.topics.names import remote_name_problem
from mm2py.topics.selection import should_replicate

UNREACHABLE_REPORT_S: Final = 5.0
REFUSED_AGAIN_S: Final = 30.0
"""How often a refused topic is looked at again: the way out may have been taken."""
INCOMPLETE_AGAIN_S: Final = 0.25
"""How soon the next round comes while a topic that was just made has no leader yet."""
GONE_AFTER_ROUNDS: Final = 2
"""A topic is taken for deleted when so many rounds in a row do not show it."""
DEFAULT_MAX_MESSAGE_BYTES: Final = 1_048_588
DEFAULT_PRODUCER_EXPIRY_MS: Final = 86_400_000

T = TypeVar("T")


class SourceConnector:
    """One flow's source connector together with its one task."""

    def __init__(
        self,
        settings: FlowSettings,
        source: Side,
        target: Side,
        *,
        transactional_id: str,
        claims: RemoteTopicClaims,
        allow_recopy: set[str],
        budget: MemoryBudget,
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        self._settings = settings
        self._flow = settings.flow
        self._source = source
        self._target = target
        self._claims = claims
        self._allow_recopy = allow_recopy
        self._budget = budget
        self._clock = clock
        self._rng = rng
        self._log = log
        self._incarnation = Incarnation(
            target.brokers,
            transactional_id,
            clock=clock,
            rng=rng,
            report=lambda text: log.warning("producer.degraded", why=text),
        )
        self._positions: dict[tuple[str, int], StoredPosition] = {}
        self._store: PositionStore | None = None
        self._task: SourceTask | None = None
        self._source_id: str | None = None
        self._target_id: str | None = None
        self._refused: dict[str, TopicRefused] = {}
        self._narrow: dict[str, Mm2Error] = {}
        self._look_again_at_s = 0.0
        self._missing_rounds: dict[str, int] = {}
        self._state = "starting"
        self._reason = ""
        self._running: asyncio.Task[None] | None = None
        self._draining = False

    # Life

    async def run(self) -> None:
        """Copy the flow until cancelled.

        Raises:
            FlowRefused: the flow must not run; the error names the way out.
            Fenced, BrokerRefused and other Mm2Errors: it cannot go on as it is, but may when begun anew.
        """
        task = await self._prepare()
        self._task = task
        self._state, self._reason = "running", ""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(task.run(), name=f"{self._flow} source task")
                tasks.create_task(self._watch(task), name=f"{self._flow} watch")
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            self._state = "stopped"

    async def drain(self) -> None:
        """Settle what is on its way and store final positions; nothing new is begun meanwhile."""
        self._draining = True
        if self._task is not None:
            await self._task.drain()

    async def _prepare(self) -> SourceTask:
        self._source_id, self._target_id = await asyncio.gather(
            self._reach(self._source, "source"), self._reach(self._target, "target")
        )
        if self._source_id is not None and self._source_id == self._target_id:
            raise OneCluster(self._flow, self._source_id)
        await self._until_answered(self._refuse_live_mm2, "looking for a live MirrorMaker 2")
        partitions = await self._until_answered(self._ensure_offsets_topic, "creating the offsets topic")
        identity = await self._incarnation.start()
        metadata = await self._until_answered(self._read_positions, "reading positions")
        writer = TopicWriter(
            self._target.brokers,
            self._settings.offsets_topic,
            self._incarnation,
            rng=self._rng,
            timeout_ms=int(self._settings.target_request_timeout_s * 500),
        )
        self._store = PositionStore(self._settings.source.alias, partitions, writer, self._clock)
        self._log.info(
            "flow.ready",
            source_cluster=self._source_id,
            target_cluster=self._target_id,
            positions=len(self._positions),
            producer_id=identity.producer_id,
            guarantee=self._guarantee(),
        )
        for side in (self._source, self._target):
            if side.reads_topic_ids() is False:
                self._log.warning(
                    "cluster.no_topic_ids",
                    cluster=side.alias,
                    effect="a topic that is deleted and made again is recognised by epochs and offsets only",
                )
        return SourceTask(
            self._settings,
            Cluster(self._source_id, self._source.brokers),
            Cluster(self._target_id, self._target.brokers),
            incarnation=self._incarnation,
            store=self._store,
            budget=self._budget,
            producer_expiry_ms=await self._producer_expiry_ms(metadata),
            clock=self._clock,
            rng=self._rng,
            log=self._log,
        )

    async def _reach(self, side: Side, role: str) -> str | None:
        """Wait until a cluster answers; say every few seconds that it does not."""
        backoff = Backoff(self._rng, most_s=2.0)
        said_at_s = float("-inf")
        while True:
            try:
                cluster_id = await side.identify()
            except KafkaError as error:
                if not error.retriable:
                    raise FlowRefused(error.what, remedy=error.remedy) from error
                self._state, self._reason = "waiting", str(error)
                if self._clock.monotonic() - said_at_s >= UNREACHABLE_REPORT_S:
                    said_at_s = self._clock.monotonic()
                    self._log.warning("cluster.unreachable", cluster=side.alias, role=role, why=str(error))
                await asyncio.sleep(backoff.next_s())
            else:
                if said_at_s > float("-inf"):
                    self._log.info("cluster.reached", cluster=side.alias, role=role)
                return cluster_id

    async def _until_answered(self, ask: Callable[[], Coroutine[Any, Any, T]], what: str) -> T:
        """Repeat a question until it is answered; what no repetition mends is raised."""
        backoff = Backoff(self._rng, most_s=2.0)
        said_at_s = self._clock.monotonic()
        while True:
            try:
                return await ask()
            except KafkaError as error:
                passing = error.retriable or (
                    isinstance(error, BrokerRefused) and reaction_to(error.code) in {Reaction.RETRY, Reaction.REFRESH}
                )
                if not passing:
                    raise
                self._state, self._reason = "waiting", f"{what}: {error}"
                if self._clock.monotonic() - said_at_s >= UNREACHABLE_REPORT_S:
                    said_at_s = self._clock.monotonic()
                    self._log.warning("flow.waiting", doing=what, why=str(error))
                await asyncio.sleep(backoff.next_s())

    async def _refuse_live_mm2(self) -> None:
        group = self._settings.mm2_group_id
        try:
            coordinator = await admin.find_coordinator(self._target.brokers, group, transactions=False)
            _, members = await admin.group_state(self._target.brokers, coordinator, group)
        except BrokerRefused as error:
            if reaction_to(error.code) is Reaction.DENIED:
                self._log.warning(
                    "mm2.unknown", why=str(error), remedy=f"Grant DESCRIBE on group {group}, or make sure no MM2 runs."
                )
                return
            raise
        if members:
            raise Mm2IsRunning(self._flow, group, members)

    async def _ensure_offsets_topic(self) -> int:
        """Return how many partitions the offsets topic has, creating it where it is missing."""
        settings = self._settings
        name, brokers = settings.offsets_topic, self._target.brokers
        topic = (await fetch_metadata(brokers, [name])).topics.get(name)
        if topic is None or topic.error_code == 3:
            new = NewTopic(
                name,
                settings.offsets_topic_partitions,
                settings.offsets_topic_replication_factor,
                {"cleanup.policy": "compact"},
            )
            refusal = (await admin.create_topics(brokers, [new]))[name]
            if refusal is not None and refusal.code != 36:
                if reaction_to(refusal.code) in {Reaction.RETRY, Reaction.REFRESH}:
                    raise refusal
                raise OffsetsTopicUnusable(
                    self._flow,
                    name,
                    str(refusal),
                    remedy=f"Set offset.storage.replication.factor to what {settings.target.alias} can hold, grant CREATE,"
                    " or create the topic by hand with cleanup.policy=compact.",
                )
            raise BrokerRefused(f"Waiting for {name}", 5, "LEADER_NOT_AVAILABLE")
        if topic.error_code or any(part.leader is None for part in topic.partitions.values()):
            raise BrokerRefused(f"Finding the leaders of {name}", topic.error_code or 5, "LEADER_NOT_AVAILABLE")
        found = (await admin.describe_topic_configs(brokers, [name], keys=["cleanup.policy"]))[name]
        if not isinstance(found, BrokerRefused):
            policy = next((entry.value for entry in found if entry.name == "cleanup.policy"), None)
            if policy != "compact":
                raise OffsetsTopicUnusable(
                    self._flow,
                    name,
                    f"its cleanup.policy is {policy}",
                    remedy="Set cleanup.policy=compact on it: with another one positions would expire.",
                )
        return len(topic.partitions)

    async def _read_positions(self) -> ClusterMetadata:
        name = self._settings.offsets_topic
        metadata = await fetch_metadata(self._target.brokers, [name])
        self._positions, malformed = await read_positions(
            self._target.brokers, metadata.topics[name], self._settings.source.alias
        )
        if malformed:
            self._log.warning("positions.malformed", topic=name, records=len(malformed), first=malformed[0])
        return metadata

    async def _producer_expiry_ms(self, metadata: ClusterMetadata) -> int:
        broker = next(iter(metadata.brokers))
        try:
            value = await admin.describe_broker_config(self._target.brokers, broker, "producer.id.expiration.ms")
            return int(value) if value else DEFAULT_PRODUCER_EXPIRY_MS
        except (KafkaError, ValueError):
            return DEFAULT_PRODUCER_EXPIRY_MS

    def _guarantee(self) -> str:
        return "at-least-once, several flows in one topic" if self._settings.many_to_one else "at-least-once"

    # Watching

    async def _watch(self, task: SourceTask) -> None:
        settings = self._settings
        interval_s = settings.topics_watch_interval_s if settings.refresh_topics_interval_s is not None else None
        backoff = Backoff(self._rng, first_s=0.2, most_s=5.0)
        discovering = True
        first = True
        while True:
            try:
                task.metadata_wanted.clear()
                metadata = await fetch_metadata(self._source.brokers, None, channel="watch")
                task.learn_source(metadata)
                if task.partitions:
                    task.learn_target(await self._remote_metadata(task))
                if discovering and not self._draining:
                    complete = await self._discover(task, metadata, first=first)
                    first = False
                    discovering = interval_s is not None or not complete
                    pause_s = interval_s if complete else INCOMPLETE_AGAIN_S
                else:
                    pause_s = interval_s
                backoff.reset()
                self._state, self._reason = "running", ""
            except KafkaError as error:
                if not (error.retriable or isinstance(error, BrokerRefused)):
                    raise
                self._reason = str(error)
                pause_s = backoff.next_s()
                if backoff.attempts == 4:
                    self._log.warning("watch.failing", why=str(error))
            await self._wait_for_news(task, pause_s)

    async def _wait_for_news(self, task: SourceTask, pause_s: float | None) -> None:
        """Until the next round is due, or a copier asks for fresh metadata; never twice within a tenth of a second."""
        await asyncio.sleep(0.1)
        try:
            async with asyncio.timeout(None if pause_s is None else max(0.0, pause_s - 0.1)):
                await task.metadata_wanted.wait()
        except TimeoutError:
            pass

    async def _remote_metadata(self, task: SourceTask) -> ClusterMetadata:
        names = sorted({part.target_topic for part in task.partitions.values()})
        return await fetch_metadata(self._target.brokers, names, channel="watch")

    async def _discover(self, task: SourceTask, metadata: ClusterMetadata, *, first: bool) -> bool:
        """Begin what is new. Returns False if something has to wait for a leader: the next round comes soon then."""
        now_s = self._clock.monotonic()
        if now_s >= self._look_again_at_s:
            self._look_again_at_s = now_s + REFUSED_AGAIN_S
            again = set(self._refused)
        else:
            again = set()
        wanted = self._select(metadata)
        await self._drop_vanished(task, metadata)
        held = frozenset(self._remote(topic) for topic, _ in self._positions)
        held |= {part.target_topic for part in task.partitions.values()}
        self._claims.claim(self._flow, [self._remote(topic) for topic in wanted], held=held)
        if first:
            await self._claims.settled()
        fresh = {
            name: topic
            for name, topic in wanted.items()
            if (name not in self._refused or name in again)
            and any((name, number) not in task.partitions for number in topic.partitions)
        }
        if not fresh:
            return True
        refused: dict[str, TopicRefused] = {}
        checked = self._check_names(fresh, refused)
        found = (
            await remote_topics.ensure(self._settings, self._source.brokers, self._target.brokers, checked)
            if checked
            else None
        )
        if found is not None:
            refused |= found.refused
            self._say_created(found)
            self._note_narrow(found)
            await self._begin(
                task,
                {name: (topic, found.ready[name]) for name, (_, topic) in checked.items() if name in found.ready},
                refused,
            )
        self._note_refused({*fresh}, refused)
        return all(
            (name, number) in task.partitions or name in self._refused or name in self._narrow
            for name, topic in fresh.items()
            for number in topic.partitions
        )

    def _select(self, metadata: ClusterMetadata) -> dict[str, TopicMetadata]:
        wanted: dict[str, TopicMetadata] = {}
        for name, topic in metadata.topics.items():
            if topic.is_internal or topic.error_code or not topic.partitions:
                continue
            decision = should_replicate(
                TopicName(name),
                policy=self._settings.policy,
                topic_filter=self._settings.topic_filter,
                heartbeats_replication=self._settings.heartbeats_replication,
                target_alias=self._flow.target,
            )
            if decision.replicate:
                wanted[name] = topic
        return wanted

    def _remote(self, topic: str) -> str:
        return str(self._settings.policy.format_remote_topic(self._flow.source, TopicName(topic)))

    def _check_names(
        self, topics: Mapping[str, TopicMetadata], refused: dict[str, TopicRefused]
    ) -> dict[str, tuple[str, TopicMetadata]]:
        checked: dict[str, tuple[str, TopicMetadata]] = {}
        for name, topic in topics.items():
            remote = self._remote(name)
            problem = remote_name_problem(remote)
            others = self._claims.others(self._flow, remote)
            if problem is not None:
                refused[name] = RemoteNameIllegal(self._flow, name, remote, problem)
            elif others and not self._settings.many_to_one:
                refused[name] = SeveralFlows(self._flow, name, remote, others)
            else:
                checked[name] = (remote, topic)
        return checked

    async def _drop_vanished(self, task: SourceTask, metadata: ClusterMetadata) -> None:
        """Stop copying topics that are gone or were made anew upstream; the remote topic is kept."""
        copied = {part.source_topic: part for part in task.partitions.values()}
        for name, part in copied.items():
            topic = metadata.topics.get(name)
            if topic is not None and topic.error_code == 0 and topic.topic_id == part.source_topic_id:
                self._missing_rounds.pop(name, None)
                continue
            rounds = self._missing_rounds[name] = self._missing_rounds.get(name, 0) + 1
            remade = topic is not None and topic.error_code == 0
            if not remade and rounds < GONE_AFTER_ROUNDS:
                continue
            keys = [key for key in task.partitions if key[0] == name]
            stored = [self._stored_now(task.partitions[key]) for key in keys]
            await task.remove(keys)
            self._positions.update(zip(keys, stored, strict=True))
            if remade:
                self._note_refused({name}, {name: Recreated(self._flow, name, "it was deleted and made anew upstream")})
            else:
                self._log.warning(
                    "topic.gone", topic=name, effect="copying stops; the remote topic and its position are kept"
                )

    def _stored_now(self, part: CopiedPartition) -> StoredPosition:
        return StoredPosition(
            next_source=part.copier.position.source_offset,
            source_cluster=self._source_id,
            source_topic_id=part.source_topic_id,
            target_topic_id=part.target_topic_id,
        )

    # Beginning

    async def _begin(
        self,
        task: SourceTask,
        topics: Mapping[str, tuple[TopicMetadata, TopicMetadata]],
        refused: dict[str, TopicRefused],
    ) -> None:
        """Start copying the partitions that are new, each from its position."""
        new: dict[tuple[str, int], tuple[TopicMetadata, TopicMetadata]] = {}
        for name, (upstream, remote) in topics.items():
            self._refuse_recreated(upstream, remote, refused)
            for number in upstream.partitions:
                if number in remote.partitions and (name, number) not in task.partitions and name not in refused:
                    new[name, number] = (upstream, remote)
        without = {key: pair for key, pair in new.items() if not self._has_position(key)}
        await self._refuse_filled(without, refused)
        begun = {key: pair for key, pair in new.items() if key[0] not in refused}
        starts = await self._start_offsets({key: without[key] for key in without if key in begun}, refused)
        await self._record_recopies({key: start for key, start in starts.items() if self._recopies(key[0])}, begun)
        limits = await self._target_rules({pair[1].name: pair for pair in begun.values()})
        task.add(
            self._copied_partition(key, pair, starts.get(key), limits[pair[1].name])
            for key, pair in begun.items()
            if key[0] not in refused and (key not in without or key in starts)
        )
        if begun:
            task.learn_source(await fetch_metadata(self._source.brokers, {name for name, _ in begun}, channel="watch"))
            self._log.info(
                "topics.copying",
                topics=len({name for name, _ in begun}),
                partitions=len(begun),
                resumed=len(begun) - len(starts),
                first=sorted({name for name, _ in begun})[0],
            )

    def _recopies(self, topic: str) -> bool:
        return topic in self._allow_recopy

    def _has_position(self, key: tuple[str, int]) -> bool:
        return key in self._positions

    def _refuse_recreated(
        self, upstream: TopicMetadata, remote: TopicMetadata, refused: dict[str, TopicRefused]
    ) -> None:
        """A position speaks of one source topic and one remote topic, by id where there are ids."""
        name = upstream.name
        stale: dict[tuple[str, int], str] = {}
        for number in upstream.partitions:
            position = self._positions.get((name, number))
            if position is None:
                continue
            if position.source_cluster not in {None, self._source_id}:
                stale[name, number] = (
                    f"its position belongs to cluster {position.source_cluster}, {self._flow.source} is {self._source_id}"
                )
            elif position.source_topic_id not in {None, upstream.topic_id}:
                stale[name, number] = "it was deleted and made anew upstream"
            elif position.target_topic_id not in {None, remote.topic_id}:
                stale[name, number] = f"{remote.name} on {self._flow.target} was deleted and made anew"
        if not stale:
            return
        if self._recopies(name):
            for key in stale:
                del self._positions[key]
        else:
            refused[name] = Recreated(self._flow, name, next(iter(stale.values())))

    async def _refuse_filled(
        self,
        partitions: Mapping[tuple[str, int], tuple[TopicMetadata, TopicMetadata]],
        refused: dict[str, TopicRefused],
    ) -> None:
        """Without a position, only an empty remote partition may be written to, unless an operator said otherwise."""
        if self._settings.many_to_one:
            return
        asked = {
            (pair[1].name, key[1]): (key[0], pair[1]) for key, pair in partitions.items() if not self._recopies(key[0])
        }
        leaders = {at: remote.partitions[at[1]].leader for at, (_, remote) in asked.items()}
        first = await self._list_offsets(self._target.brokers, leaders, admin.EARLIEST)
        last = await self._list_offsets(self._target.brokers, leaders, admin.LATEST)
        filled: dict[str, list[int]] = {}
        for at, (name, remote) in asked.items():
            if at not in first or at not in last:
                refused.setdefault(name, _NotYet(self._flow, name, f"{remote.name}-{at[1]} has no leader yet"))
            elif last[at] > first[at]:
                filled.setdefault(name, []).append(at[1])
        for name, numbers in filled.items():
            refused[name] = TargetNotEmpty(self._flow, name, self._remote(name), numbers)

    async def _start_offsets(
        self,
        partitions: Mapping[tuple[str, int], tuple[TopicMetadata, TopicMetadata]],
        refused: dict[str, TopicRefused],
    ) -> dict[tuple[str, int], int]:
        """Return where to begin partitions that have no position."""
        reset = self._settings.auto_offset_reset
        if reset == "none":
            for name, _ in partitions:
                refused[name] = NoPosition(self._flow, name)
            return {}
        leaders = {key: pair[0].partitions[key[1]].leader for key, pair in partitions.items()}
        when = admin.LATEST if reset == "latest" else admin.EARLIEST
        return await self._list_offsets(self._source.brokers, leaders, when)

    async def _list_offsets(
        self, brokers: Brokers, leaders: Mapping[tuple[str, int], Any], when: int
    ) -> dict[tuple[str, int], int]:
        """Ask each leader once; partitions without a leader or with an error are left out, and begun a round later."""
        by_leader: dict[Any, list[tuple[str, int]]] = {}
        for key, leader in leaders.items():
            if leader is not None:
                by_leader.setdefault(leader, []).append(key)
        found: dict[tuple[str, int], int] = {}
        for leader, keys in by_leader.items():
            try:
                answers = await admin.list_offsets(brokers, leader, keys, when)
            except KafkaError as error:
                if not error.retriable:
                    raise
                continue
            found |= {key: answer.offset for key, answer in answers.items() if answer.error_code == 0}
        return found

    async def _record_recopies(
        self,
        starts: Mapping[tuple[str, int], int],
        pairs: Mapping[tuple[str, int], tuple[TopicMetadata, TopicMetadata]],
    ) -> None:
        """Keep what ``--allow-recopy`` allowed as an operator's position: given again, the flag finds it and does nothing."""
        if not starts or self._store is None:
            return
        operators = {
            key: StoredPosition(
                next_source=start,
                source_cluster=self._source_id,
                source_topic_id=pairs[key][0].topic_id,
                target_topic_id=pairs[key][1].topic_id,
                by=BY_OPERATOR,
            )
            for key, start in starts.items()
        }
        await self._store.store(operators)
        self._positions |= operators
        for name in sorted({name for name, _ in starts}):
            self._log.warning(
                "topic.recopied", topic=name, effect="copied once more from its start, as --allow-recopy says"
            )

    async def _target_rules(self, remotes: Mapping[str, tuple[TopicMetadata, TopicMetadata]]) -> dict[str, TargetRules]:
        compression = self._settings.compression
        codec = None if compression is None else int(Codec[compression.upper()])
        names = list(remotes)
        rules: dict[str, TargetRules] = {}
        for at in range(0, len(names), remote_topics.CHUNK):
            page = names[at : at + remote_topics.CHUNK]
            targets = await admin.describe_topic_configs(
                self._target.brokers, page, keys=["max.message.bytes", "cleanup.policy"]
            )
            sources = await admin.describe_topic_configs(
                self._source.brokers, [remotes[name][0].name for name in page], keys=["cleanup.policy"]
            )
            for name in page:
                ours, theirs = _values(targets.get(name)), _values(sources.get(remotes[name][0].name))
                compacted = "compact" in ours.get("cleanup.policy", "")
                rules[name] = TargetRules(
                    max_message_bytes=int(ours.get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES)),
                    compression=codec,
                    compacted=compacted and "compact" not in theirs.get("cleanup.policy", "delete"),
                )
        return rules

    def _copied_partition(
        self,
        key: tuple[str, int],
        pair: tuple[TopicMetadata, TopicMetadata],
        start: int | None,
        rules: TargetRules,
    ) -> CopiedPartition:
        upstream, remote = pair
        name, number = key
        stored = self._positions.get(key)
        if stored is None or stored.by == BY_OPERATOR:
            position = Position(stored.next_source if stored is not None else start or 0)
        else:
            epoch = -1 if stored.source_leader_epoch is None else stored.source_leader_epoch
            position = Position(
                stored.next_source,
                source_leader_epoch=epoch,
                target_offset=stored.next_target,
                target_leader_epoch=stored.target_leader_epoch,
                skipped=stored.skipped,
            )
        copier = Copier(
            f"{name}-{number}",
            position,
            self._incarnation.identity,
            ready_max_bytes=self._settings.fetch_partition_max_bytes,
        )
        copier.target_leader_epoch = remote.partitions[number].leader_epoch
        return CopiedPartition(
            source_topic=name,
            target_topic=remote.name,
            partition=number,
            copier=copier,
            rules=rules,
            source_topic_id=upstream.topic_id,
            target_topic_id=remote.topic_id,
            source_leader=upstream.partitions[number].leader,
            source_leader_epoch=upstream.partitions[number].leader_epoch,
            target_leader=remote.partitions[number].leader,
        )

    # Saying so

    def _say_created(self, found: remote_topics.RemoteTopics) -> None:
        if found.created:
            self._log.info("remote_topics.created", topics=len(found.created), first=self._remote(found.created[0]))
        if found.widened:
            self._log.info("remote_topics.widened", topics=len(found.widened), first=self._remote(found.widened[0]))

    def _note_narrow(self, found: remote_topics.RemoteTopics) -> None:
        for name, error in found.too_narrow.items():
            if str(self._narrow.get(name)) != str(error):
                self._log.error("topic.too_narrow", topic=name, why=str(error))
        self._narrow = dict(found.too_narrow)

    def _note_refused(self, looked_at: Iterable[str], refused: Mapping[str, TopicRefused]) -> None:
        for name in looked_at:
            error = refused.get(name)
            before = self._refused.get(name)
            if error is None:
                if self._refused.pop(name, None) is not None:
                    self._log.info("topic.accepted", topic=name)
            elif isinstance(error, _NotYet):
                continue
            elif str(before) != str(error):
                self._log.error(error.event, topic=name, why=str(error))
                self._refused[name] = error

    def status(self) -> FlowStatus:
        """Return what an operator would ask for first; cheap enough for every second."""
        by_topic: dict[str, list[CopiedPartition]] = {}
        if self._task is not None:
            for part in self._task.partitions.values():
                by_topic.setdefault(part.source_topic, []).append(part)
        now_ms = self._clock.wall_ms()
        topics = tuple(_topic_status(name, parts, now_ms) for name, parts in sorted(by_topic.items()))
        degraded = self._incarnation.degraded
        guarantee = self._guarantee() + (f" ({degraded})" if degraded else "")
        return FlowStatus(
            self._flow,
            self._state,
            self._reason,
            guarantee,
            topics,
            {name: str(error) for name, error in {**self._narrow, **self._refused}.items()},
        )


class _NotYet(TopicRefused):
    """Nothing is wrong; the next round will find a leader."""

    def __init__(self, flow: object, topic: str, why: str) -> None:
        super().__init__(f"Topic {topic} of {flow} waits: {why}.", remedy="")


def _values(found: object) -> dict[str, str]:
    if isinstance(found, BrokerRefused) or not isinstance(found, list):
        return {}
    return {entry.name: entry.value for entry in found if entry.value is not None}


def _topic_status(name: str, parts: list[CopiedPartition], now_ms: int) -> TopicStatus:
    rebuilt: dict[str, int] = {}
    dropped: dict[str, int] = {}
    lags = [part.copier.lag() for part in parts]
    known = [lag for lag in lags if lag is not None]
    behind = [
        part.copier.tally.last_timestamp_ms
        for part, lag in zip(parts, lags, strict=True)
        if lag and part.copier.tally.last_timestamp_ms >= 0
    ]
    for part in parts:
        for reason, count in part.copier.tally.rebuilt.items():
            rebuilt[reason] = rebuilt.get(reason, 0) + count
        for reason, count in part.copier.tally.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
    waiting = {Phase.WAITING, Phase.STALLED}
    return TopicStatus(
        topic=name,
        remote_topic=parts[0].target_topic,
        partitions=len(parts),
        records=sum(part.copier.tally.records for part in parts),
        bytes=sum(part.copier.tally.bytes for part in parts),
        passed=sum(part.copier.tally.passed for part in parts),
        rebuilt=rebuilt,
        dropped=dropped,
        lag_records=sum(known) if known else None,
        lag_s=max(0.0, (now_ms - min(behind)) / 1000) if behind else (0.0 if known else None),
        problems=tuple(sorted({part.copier.reason for part in parts if part.copier.phase in waiting})),
    )
