"""The source connector of a flow: finds what to copy, sees that it has a place to go, and hands it to the task.

Answers to MirrorSourceConnector of Apache Kafka's Connect, mirror. One metadata request every
``topics.watch.interval.ms`` shows new topics, new partitions and moved leaders; nothing else is asked while nothing
changes. What must not be copied is refused with its way out, and looked at again now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from structlog.typing import FilteringBoundLogger

from connectors.source import remote_topics, start, syncs
from connectors.source.beginning import Beginning
from connectors.source.claims import RemoteTopicClaims
from connectors.source.fences import Fences
from connectors.source.gap_keeper import GapKeeper, positions_of
from connectors.source.incarnations import Incarnations
from connectors.source.keep_alive import KeepAlive
from connectors.source.quarantine import Quarantine
from connectors.source.refusals import (
    ExactlyOnceImpossible,
    FlowRefused,
    OneCluster,
    Recreated,
    RemoteNameIllegal,
    SeveralFlows,
    TableUnusable,
    TopicRefused,
    Undecided,
)
from connectors.source.refused_configs import RefusedConfigs
from connectors.source.refused_topics import RefusedTopics
from connectors.source.stalls import Stalls
from connectors.source.status import topic_status
from connectors.source.stopped import StoppedPartitions
from connectors.source.takeover import EarlierLives
from connectors.source.task import Cluster, SourceTask
from connectors.source.vanished import Vanished, gone_while_down, say_gone
from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.connector import FlowStatus, Side
from mm2py.flow import TopicName
from mm2py.kafka.cluster import ClusterMetadata, TopicMetadata, fetch_metadata
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.incarnation import Incarnation
from mm2py.kafka.pulse import Pulse, Watched
from mm2py.kafka.retry import Backoff
from mm2py.kafka.topic_writer import TopicWriter
from mm2py.kafka.transactional_ids import TransactionalId
from mm2py.metrics import Metrics
from mm2py.records.source_offset import StoredPosition
from mm2py.records.status_record import Done, GapKind
from mm2py.replication.copier import Phase
from mm2py.replication.lane import CopiedPartition
from mm2py.replication.memory import MemoryBudget
from mm2py.replication.position_store import PositionStore, read_positions
from mm2py.replication.status_log import StatusLog
from mm2py.topics.filters import PatternTooSlow
from mm2py.topics.names import remote_name_problem
from mm2py.topics.selection import should_replicate

LOOK_AGAIN_MOST_S: Final = 30.0
"""How often, at least, refused topics are looked at again (the way out may have been taken), and the remote topics."""
LEADERLESS_AGAIN_S: Final = 1.0
"""How soon the next round comes while a partition that is copied has no leader, on either side."""
INCOMPLETE_AGAIN_S: Final = 0.25
"""How soon the next round comes while a topic that was just made has no leader yet."""
FAILING_REPORT_S: Final = 60.0
INCOMPLETE_REPORT_S: Final = 5.0
"""How long topics may wait for their leaders before that is worth a line in the log."""
UNKNOWN_TOPIC: Final = 3
LEAVE_S: Final = 3.0
"""How long a stop waits until it is known that this life has ended well."""
STATUS_PATIENCE_S: Final = 5.0
"""How long a flow waits for the status topic before it begins without."""


class SourceConnector:
    """One flow's source connector together with its one task."""

    def __init__(
        self,
        settings: FlowSettings,
        source: Side,
        target: Side,
        *,
        name: TransactionalId,
        claims: RemoteTopicClaims,
        allow_recopy: set[str],
        budget: MemoryBudget,
        metrics: Metrics,
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        self._settings = settings
        self._flow = settings.flow
        self._source = source
        self._pulse = Pulse(clock)
        self._target = target = replace(target, brokers=Watched(target.brokers, self._pulse))
        self._claims = claims
        self._refused_configs = RefusedConfigs(target.alias, clock=clock, log=log)
        self._discovered = asyncio.Event()
        self._allow_recopy = allow_recopy
        self._budget = budget
        self._metrics = metrics
        self._clock = clock
        self._rng = rng
        self._log = log
        self._incarnation = Incarnation(
            target.brokers,
            name.at,
            clock=clock,
            rng=rng,
            report=lambda text: log.warning("producer.degraded", why=text),
            waiting=lambda text: log.warning("flow.waiting", doing="getting a producer id", why=text),
        )
        self._gaps = GapKeeper(
            settings,
            source.brokers,
            target.brokers,
            incarnation=self._incarnation,
            metrics=metrics,
            clock=clock,
            rng=rng,
            log=log,
        )
        self._name = name
        self._keep_alive = KeepAlive(
            target.brokers,
            self._incarnation,
            replication_factor=settings.offsets_topic_replication_factor,
            log=log,
        )
        self._incarnations: Incarnations | None = None
        self._task: SourceTask | None = None
        self._beginning: Beginning | None = None
        self._source_id: str | None = None
        self._refused = RefusedTopics(log)
        self._look_again_s = min(LOOK_AGAIN_MOST_S, settings.refresh_topics_interval_s or LOOK_AGAIN_MOST_S)
        self._look_again_at_s = 0.0
        self._remotes_again_at_s = 0.0
        self._vanished = Vanished()
        self._stopped = StoppedPartitions(self._incarnation)
        self._state = "starting"
        self._reason = ""
        self._say_failing_at_s = 0.0
        self._incomplete_since_s: float | None = None
        self._incomplete_said = False
        self._draining = False

    # Life

    async def run(self) -> None:
        """Copy the flow until cancelled.

        Raises:
            FlowRefused: the flow must not run; the error names the way out.
            Fenced, BrokerRefused and other Mm2Errors: it cannot go on as it is, but may when begun anew.
        """
        try:
            task, beginning = await self._prepare()
        except FlowRefused:
            self._claims.leave(self._flow)
            raise
        self._task, self._beginning = task, beginning
        self._state, self._reason = "running", ""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(task.run(), name=f"{self._flow} source task")
                tasks.create_task(self._watch(task, beginning), name=f"{self._flow} watch")
                tasks.create_task(self._keep_in_step(task, beginning), name=f"{self._flow} syncs")
                tasks.create_task(self._gaps.run(), name=f"{self._flow} gaps")
                tasks.create_task(self._keep_alive.run(), name=f"{self._flow} keepalive")
                tasks.create_task(self._pulse.run(), name=f"{self._flow} pulse")
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            self._state = "stopped"

    async def drain(self) -> None:
        """Settle what is on its way and store final positions; nothing new is begun meanwhile."""
        self._draining = True
        if self._task is not None:
            await self._task.drain()
            await self._gaps.close()
            if self._incarnations is not None and not self._task.leaves_doubt:
                with contextlib.suppress(KafkaError, TimeoutError):  # then the next life shuts this one out
                    async with asyncio.timeout(LEAVE_S):
                        await self._incarnations.leave()

    async def _prepare(self) -> tuple[SourceTask, Beginning]:
        settings, target = self._settings, self._target.brokers
        patience = start.Patience(clock=self._clock, rng=self._rng, log=self._log, note=self._note_waiting)
        self._source_id, target_id = await asyncio.gather(
            patience.reach(self._source, "source"), patience.reach(self._target, "target")
        )
        if self._source_id is not None and self._source_id == target_id:
            raise OneCluster(self._flow, self._source_id)
        await patience.until_answered(
            lambda: start.refuse_live_mm2(settings, target, self._log), "looking for a live MirrorMaker 2"
        )
        partitions = await patience.until_answered(
            lambda: start.ensure_table(settings, start.offsets_table(settings), target), "creating the offsets topic"
        )
        status = await self._open_status(patience)
        if status is not None:
            self._incarnations = Incarnations(self._flow, self._name, target, status, clock=self._clock, log=self._log)
            self._incarnations.refuse_if_taken_over()
        identity = await self._incarnation.start()
        producer_expiry_ms = await patience.until_answered(
            lambda: start.producer_expiry_ms(target), "asking how long the target remembers producers"
        )
        self._pulse.obey(producer_expiry_ms)
        if self._incarnation.degraded and settings.exactly_once == "enabled":
            raise ExactlyOnceImpossible(self._flow, self._incarnation.degraded)
        lives = EarlierLives(target, self._incarnation, self._name, rng=self._rng)
        fences = self._fences(producer_expiry_ms)
        lives.on_fenced = lambda key, producer, epoch, leader_epoch: fences.note(
            key, producer, epoch, leader_epoch=leader_epoch
        )
        if self._incarnations is not None:
            enter = functools.partial(self._incarnations.enter, identity, lives)
            await patience.until_answered(enter, "looking for earlier lives")
            self._incarnation.announce = self._incarnations.announce
            self._gaps.on_read = self._incarnations.notice
            self._gaps.on_made_anew = self._incarnations.enter_again
        positions = await patience.until_answered(
            lambda: self._take_over(lives), "shutting earlier lives out and reading positions"
        )
        if self._incarnations is not None:
            await self._incarnations.shut_out()
        writer = TopicWriter(
            target,
            settings.offsets_topic,
            self._incarnation,
            rng=self._rng,
            timeout_ms=int(settings.target_request_timeout_s * 500),
        )
        store = PositionStore(settings.source.alias, partitions, writer, self._clock)
        self._log.info(
            "flow.ready",
            source_cluster=self._source_id,
            target_cluster=target_id,
            positions=len(positions),
            producer_id=identity.producer_id,
            guarantee=self._guarantee(),
        )
        self._say_topic_ids()
        quarantine = Quarantine(
            settings,
            self._source.brokers,
            target,
            source_id=self._source_id,
            incarnation=self._incarnation,
            clock=self._clock,
            rng=self._rng,
            log=self._log,
        )
        task = SourceTask(
            settings,
            Cluster(self._source_id, self._source.brokers),
            Cluster(target_id, target),
            incarnation=self._incarnation,
            lives=lives,
            fences=fences,
            store=store,
            keep=quarantine.keep,
            budget=self._budget,
            producer_expiry_ms=producer_expiry_ms,
            met_gap=self._gaps.met,
            gaps_written=self._gaps.written,
            stalls=Stalls(self._flow, settings.stall_timeout_s, self._metrics, self._log),
            clock=self._clock,
            rng=self._rng,
            log=self._log,
        )
        beginning = Beginning(
            settings,
            self._source.brokers,
            target,
            source_id=self._source_id,
            positions=positions,
            store=store,
            lives=lives,
            stopped=self._stopped,
            shut_out=lambda remote: lives.shut_out(remote, clock=self._clock, unfenced=self._say_unfenced),
            allow_recopy=frozenset(self._allow_recopy),
            met_gap=self._gaps.met_topic,
            log=self._log,
        )
        self._gaps.wake = task.metadata_wanted.set
        return task, beginning

    async def _keep_in_step(self, task: SourceTask, beginning: Beginning) -> None:
        await syncs.keep_in_step(
            self._settings,
            self._source.brokers,
            self._target.brokers,
            task=task,
            beginning=beginning,
            refused=self._refused_configs,
            begun=self._discovered,
            clock=self._clock,
            log=self._log,
        )

    def _fences(self, producer_expiry_ms: int) -> Fences:
        fences = Fences(self._target.brokers, clock=self._clock, rng=self._rng, log=self._log)
        fences.lasting_s = producer_expiry_ms / 1000
        return fences

    async def _open_status(self, patience: start.Patience) -> StatusLog | None:
        """Open the status topic. Without it copying goes on, unless exactly-once is a must; who else runs the flow is
        then told by positions alone."""
        must = self._settings.exactly_once == "enabled"
        try:
            async with asyncio.timeout(None if must else STATUS_PATIENCE_S):
                return await patience.until_answered(self._gaps.open, "opening the status topic")
        except TimeoutError:
            return None
        except (BrokerRefused, TableUnusable) as error:
            if must:
                raise ExactlyOnceImpossible(self._flow, str(error)) from error
            return None  # the gaps say so

    async def _take_over(self, lives: EarlierLives) -> dict[tuple[str, int], StoredPosition]:
        """Return positions that nobody else can change any more, where the target lets us see to that."""
        positions, metadata = await self._read_positions()
        lives.learn(positions.values())
        topic = metadata.topics[self._settings.offsets_topic]
        if await lives.shut_out(topic, clock=self._clock, unfenced=self._say_unfenced):
            positions, _ = await self._read_positions()
            lives.learn(positions.values())
        return positions

    def _say_unfenced(self, why: str) -> None:
        if self._settings.exactly_once == "enabled":
            raise ExactlyOnceImpossible(self._flow, why)
        self._log.warning(
            "writer.unfenced",
            topic=self._settings.offsets_topic,
            why=why,
            effect="if that process still runs, its positions may replace ours",
        )

    async def _read_positions(self) -> tuple[dict[tuple[str, int], StoredPosition], ClusterMetadata]:
        name = self._settings.offsets_topic
        metadata = await fetch_metadata(self._target.brokers, [name])
        positions, malformed = await read_positions(
            self._target.brokers, metadata.topics[name], self._settings.source.alias
        )
        if malformed:
            self._log.warning("positions.malformed", topic=name, records=len(malformed), first=malformed[0])
        return positions, metadata

    def _guarantee(self) -> str:
        """Say in words how often a record is there after crashes, and why not once, if so."""
        if self._settings.many_to_one:
            return "at-least-once, several flows in one topic"
        task, reasons = self._task, []
        if self._incarnation.degraded:
            reasons.append(self._incarnation.degraded)
        if task is not None and task.unfenced:
            reasons.append(task.unfenced)
        if reasons:
            return f"at-least-once ({'; '.join(reasons)})"
        others = sorted(task.foreign_topics) if task is not None else []
        return f"exactly-once (others write to {', '.join(others[:3])} as well)" if others else "exactly-once"

    # Watching

    async def _watch(self, task: SourceTask, beginning: Beginning) -> None:
        settings = self._settings
        interval_s = settings.topics_watch_interval_s if settings.refresh_topics_interval_s is not None else None
        backoff = Backoff(self._rng, first_s=0.2, most_s=5.0)
        discovering = True
        while True:
            pause_s = interval_s
            try:
                asked = task.metadata_wanted.is_set()
                task.metadata_wanted.clear()
                metadata = await fetch_metadata(self._source.brokers, None, channel="watch")
                task.learn_source(metadata)
                await self._look_at_remotes(task, beginning, asked=asked)
                if discovering and not self._draining:
                    missing = await self._discover(task, beginning, metadata)
                    self._discovered.set()
                    discovering = interval_s is not None or missing > 0
                    pause_s = self._pause_after(missing, interval_s)
                if not self._draining and await self._gaps.carry_out(task, beginning, self._stopped):
                    self._look_again_at_s, discovering = 0.0, True
                    task.metadata_wanted.set()
                backoff.reset()
                self._state, self._reason = "running", ""
            except KafkaError as error:
                if not (error.retriable or isinstance(error, BrokerRefused)):
                    raise
                task.metadata_wanted.set()
                self._note_waiting(str(error))
                pause_s = backoff.next_s()
                if backoff.attempts >= 4 and self._clock.monotonic() >= self._say_failing_at_s:
                    self._say_failing_at_s = self._clock.monotonic() + FAILING_REPORT_S
                    self._log.warning("watch.failing", why=str(error))
                await asyncio.sleep(pause_s)
            if any(part.source_leader is None or part.target_leader is None for part in task.partitions.values()):
                pause_s = min(LEADERLESS_AGAIN_S, pause_s or LEADERLESS_AGAIN_S)  # no error will ask for metadata
            await self._wait_for_news(task, pause_s)

    async def _wait_for_news(self, task: SourceTask, pause_s: float | None) -> None:
        """Until the next round is due, or a copier asks for fresh metadata; never twice within a tenth of a second."""
        await asyncio.sleep(0.1)
        try:
            async with asyncio.timeout(None if pause_s is None else max(0.0, pause_s - 0.1)):
                await task.metadata_wanted.wait()
        except TimeoutError:
            pass

    async def _look_at_remotes(self, task: SourceTask, beginning: Beginning, *, asked: bool) -> None:
        """Learn who leads the remote partitions; stop copying into a remote topic that was deleted under us."""
        now_s = self._clock.monotonic()
        leaderless = any(part.target_leader is None for part in task.partitions.values())
        if not task.partitions or not (asked or leaderless or now_s >= self._remotes_again_at_s):
            return
        self._remotes_again_at_s = now_s + self._look_again_s
        names = sorted({part.target_topic for part in task.partitions.values()} | {*task.fenced_topics})
        metadata = await fetch_metadata(self._target.brokers, names, channel="watch")
        task.learn_target(metadata)
        lost: dict[str, str] = {}
        for part in task.partitions.values():
            topic = metadata.topics.get(part.target_topic)
            if topic is not None and topic.error_code == UNKNOWN_TOPIC:
                lost[part.source_topic] = f"{part.target_topic} on {self._flow.target} was deleted"
            elif topic is not None and topic.error_code == 0 and part.target_topic_id not in {None, topic.topic_id}:
                lost[part.source_topic] = f"{part.target_topic} on {self._flow.target} was deleted and made anew"
        for name, why in lost.items():
            await self._stop_copying(task, beginning, name)
            self._meet_gap(beginning, GapKind.TARGET_DELETED, name, why)

    def _pause_after(self, missing: int, interval_s: float | None) -> float | None:
        """Return when to look again: soon, then less soon, while partitions that were found cannot begin yet."""
        now_s = self._clock.monotonic()
        if not missing:
            if self._incomplete_said:
                self._log.info("partitions.begun")
            self._incomplete_since_s, self._incomplete_said = None, False
            return interval_s
        if self._incomplete_since_s is None:
            self._incomplete_since_s = now_s
        waited_s = now_s - self._incomplete_since_s
        if waited_s >= INCOMPLETE_REPORT_S and not self._incomplete_said:
            self._incomplete_said = True
            self._log.warning(
                "partitions.not_begun",
                partitions=missing,
                why="they, or their remote partitions, have no leader that answers; the others are copied",
            )
        return max(INCOMPLETE_AGAIN_S, min(waited_s, interval_s or LOOK_AGAIN_MOST_S))

    async def _discover(self, task: SourceTask, beginning: Beginning, metadata: ClusterMetadata) -> int:
        """Begin what is new. Returns how many partitions were found and have to wait for a leader."""
        wanted = self._select(metadata)
        self._refused.keep(metadata.topics)
        await self._drop_vanished(task, beginning, metadata)
        self._say_once_at_start(wanted, beginning, metadata)
        held = frozenset(self._remote(topic) for topic, _ in beginning.positions)
        held |= {part.target_topic for part in task.partitions.values()}
        self._claims.claim(self._flow, [self._remote(topic) for topic in wanted], held=held)
        await self._claims.settled()
        settled = self._settled_refusals()
        fresh = {
            name: topic
            for name, topic in wanted.items()
            if name not in settled and any((name, number) not in task.partitions for number in topic.partitions)
        }
        if not fresh:
            return 0
        refused: dict[str, TopicRefused] = {}
        checked = self._check_names(fresh, refused)
        if checked:
            await self._begin(task, beginning, checked, refused)
        self._refused.note(fresh, refused)
        return sum(
            (name, number) not in task.partitions
            for name, topic in fresh.items()
            if name not in self._refused
            for number in topic.partitions
        )

    def _settled_refusals(self) -> set[str]:
        """Return the topics that need not be looked at in this round: refused before, and not long ago."""
        now_s = self._clock.monotonic()
        if now_s < self._look_again_at_s:
            return self._refused.names()
        self._look_again_at_s = now_s + self._look_again_s
        return set()

    async def _begin(
        self,
        task: SourceTask,
        beginning: Beginning,
        topics: Mapping[str, tuple[str, TopicMetadata]],
        refused: dict[str, TopicRefused],
    ) -> None:
        source, target = self._source.brokers, self._target.brokers
        others = {key for known in (task.partitions, beginning.positions) for key in known if key[0] not in topics}
        found = await remote_topics.ensure(self._settings, source, target, topics, partitions_elsewhere=len(others))
        refused |= found.refused
        self._say_created(found)
        self._refused.note_narrow(topics, found.too_narrow)
        pairs = {name: (upstream, found.ready[name]) for name, (_, upstream) in topics.items() if name in found.ready}
        begun = await beginning.begin(pairs, task.partitions, await self._stopped.identity_for(pairs))
        refused |= begun.refused
        self._stopped.begun(begun.partitions)
        self._gaps.begun(begun.partitions, beginning)
        task.add(
            begun.partitions,
            [job for job in begun.jobs if job.part.copier.phase is not Phase.STALLED],
            [part for part in begun.inherited if part.copier.phase is not Phase.STALLED],
        )
        if begun.partitions:
            names = sorted({part.source_topic for part in begun.partitions})
            task.learn_source(await fetch_metadata(source, names, channel="watch"))
            self._log.info(
                "topics.copying",
                topics=len(names),
                partitions=len(begun.partitions),
                resumed=begun.resumed,
                first=names[0],
            )

    def _select(self, metadata: ClusterMetadata) -> dict[str, TopicMetadata]:
        wanted: dict[str, TopicMetadata] = {}
        for name, topic in metadata.topics.items():
            if topic.is_internal or topic.error_code or not topic.partitions:
                continue
            try:
                decision = should_replicate(
                    TopicName(name),
                    policy=self._settings.policy,
                    topic_filter=self._settings.topic_filter,
                    heartbeats_replication=self._settings.heartbeats_replication,
                    target_alias=self._flow.target,
                )
            except PatternTooSlow as error:
                self._refused.note_one(name, Undecided(self._flow, name, error))
                continue
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

    async def _drop_vanished(self, task: SourceTask, beginning: Beginning, metadata: ClusterMetadata) -> None:
        """Stop copying topics that are gone or were made anew upstream; the remote topic is kept."""
        vanished = self._vanished.look(task.partitions.values(), metadata.topics)
        for name, made_anew in vanished.items():
            await self._stop_copying(task, beginning, name)
            kind = GapKind.DELETED if made_anew is None else GapKind.RECREATED
            self._meet_gap(beginning, kind, name, made_anew or "it was deleted, or mm2py may not see it any more")
        say_gone([name for name, made_anew in vanished.items() if made_anew is None], self._log)

    def _meet_gap(self, beginning: Beginning, kind: GapKind, name: str, why: str) -> None:
        """Refuse a topic that is not what was copied, unless policy lets it begin anew in the next round."""
        done = self._gaps.policy(kind)
        if done in {Done.STOPPED, Done.KEPT}:
            self._gaps.met_topic(kind, name, positions_of(name, beginning), why)
        if done is Done.STOPPED:
            self._refused.note_one(name, Recreated(self._flow, name, why))

    async def _stop_copying(self, task: SourceTask, beginning: Beginning, name: str) -> None:
        parts = [part for key, part in task.partitions.items() if key[0] == name]
        self._stopped.add(parts)
        await task.remove([part.key for part in parts])
        beginning.positions.update({part.key: task.stored_form(part) for part in parts if part.copier.owns_position})

    # Saying so

    def _say_once_at_start(self, wanted: Collection[str], beginning: Beginning, metadata: ClusterMetadata) -> None:
        """Say which topics ``--allow-recopy`` names in vain (a slip of the pen), and which went while we were down."""
        if self._discovered.is_set():
            return
        for name in sorted(self._allow_recopy - set(wanted)):
            self._log.warning(
                "recopy.unused", topic=name, why=f"--allow-recopy names it, and {self._flow} copies no such topic."
            )
        gone = gone_while_down(beginning.positions, metadata.topics)
        for name in gone:
            self._gaps.met_topic(
                GapKind.DELETED, name, positions_of(name, beginning), "it was deleted while mm2py was down"
            )
        if gone:
            self._log.info(
                "topics.gone",
                topics=len(gone),
                first=gone[0],
                why=f"they were copied once, and {self._flow.source} shows them no more",
                effect="their remote topics and positions are kept",
            )

    def _say_created(self, found: remote_topics.RemoteTopics) -> None:
        for one in found.left_out:
            self._refused_configs.note(one.remote, one.setting, one.value, one.why)
        if found.created:
            self._log.info("remote_topics.created", topics=len(found.created), first=self._remote(found.created[0]))
        if found.widened:
            self._log.info("remote_topics.widened", topics=len(found.widened), first=self._remote(found.widened[0]))

    def _note_waiting(self, reason: str) -> None:
        self._state, self._reason = "waiting", reason

    def _say_topic_ids(self) -> None:
        for side in (self._source, self._target):
            if side.reads_topic_ids() is False:
                self._log.warning(
                    "cluster.no_topic_ids",
                    cluster=side.alias,
                    effect="a topic that is deleted and made again is recognised by epochs and offsets only",
                )

    def status(self) -> FlowStatus:
        """Return what an operator would ask for first; cheap enough for every second."""
        by_topic: dict[str, list[CopiedPartition]] = {}
        if self._task is not None:
            for part in self._task.partitions.values():
                by_topic.setdefault(part.source_topic, []).append(part)
        now_ms = self._clock.wall_ms()
        topics = tuple(topic_status(name, parts, now_ms) for name, parts in sorted(by_topic.items()))
        return FlowStatus(
            self._flow,
            self._state,
            self._reason,
            self._guarantee(),
            topics,
            self._refused.shown(),
            positions_age_s=0.0 if self._task is None else self._task.positions_age_s(),
        )
