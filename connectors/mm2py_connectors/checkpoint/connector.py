"""The checkpoint connector of a flow: writes to the target where the source's consumer groups may continue.

One worker runs it for a flow. Every ``emit.checkpoints.interval.seconds`` it asks the source for the committed offsets
of all groups, translates them, and writes those that are new to the checkpoints topic. If asked, it commits them on the
target (``group_sync.py``). MM2 does only that. Here the ledger translates; offset syncs, by MM2's rule, translate only
what the ledger does not know. The connector also asks for the states of the groups every two seconds, in one request to
each broker. A group that has become idle gets its checkpoints at once: in most cases it is about to be moved.

Counterpart: MirrorCheckpointConnector and MirrorCheckpointTask of Apache Kafka's Connect, mirror.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.config.internal_topics import checkpoints_topic
from mm2py.config.settings import CheckpointSettings, FlowSettings
from mm2py.copying.reading.flow_offsets import FlowOffsets
from mm2py.copying.reading.ledger_table import LedgerTable
from mm2py.copying.reading.offset_tables import CheckpointTable, OffsetSyncTable
from mm2py.flow import TopicName
from mm2py.kafka import internal_topic
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.consumer_groups import Commit, Commits, ListedGroup, committed_offsets, list_groups
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.internal_topic import TopicWriter
from mm2py.kafka.port import Brokers, TopicPartition
from mm2py.metrics.windows import Window
from mm2py.metrics.worker_numbers import CHECKPOINT_ROWS, ROWS_A_PART, CheckpointSnapshot, ConnectorPart, Rows
from mm2py.offsets.answers import AnswerKind
from mm2py.offsets.checkpoint_rule import is_more_recent, remote_topic_of
from mm2py.offsets.group_sync import CONSUMERS, IDLE
from mm2py.offsets.translation import Translation
from mm2py.records.checkpoint import Checkpoint, encode
from mm2py.status.ledger_topics import missing, recreated, side_of
from mm2py.topics.filters import PatternTooSlow
from mm2py.topics.names import ledger_topic
from mm2py_connectors.checkpoint.group_sync import GroupSync
from mm2py_connectors.checkpoint.ledger_upkeep import LedgerUpkeep
from mm2py_connectors.rounds import RoundsConnector

LOOK_EVERY_S: Final = 2.0
"""How often the states of groups are asked for."""
IDLE_FOLLOWED_S: Final = 15.0
"""How long a group that has become idle is asked for in each look. The ledger knows the group's last record a second
after that was copied. Where there is no ledger, the offset sync of the last record comes up to ten seconds later."""
IDLE_FOLLOWED_MOST: Final = 1000
"""If more groups become idle at once, as at a start, each is asked for once."""
NOT_MIRRORED: Final = frozenset({"share", "streams"})
"""Protocol types of groups that keep their positions elsewhere, or in a form of their own."""
NAMED_MOST: Final = 10
LEDGER_WRITTEN_S: Final = 1.0
"""How long after its copy was acknowledged a record is in the ledger, at most."""
LEDGER_READS: Final = 3
"""How often the ledger is read in a round of all groups until it reaches their commits."""
COMMITS_AT_ONCE: Final = 1000
"""Other tasks run after this many commits."""

GroupPartition = tuple[str, TopicPartition]


def now_idle(before: Mapping[str, ListedGroup], now: Mapping[str, ListedGroup]) -> frozenset[str]:
    """Return the groups that have become idle between two looks, or that are new and idle."""
    idle_before = {name for name, group in before.items() if group.state == IDLE}
    return frozenset(name for name, group in now.items() if group.state == IDLE and name not in idle_before)


class CheckpointConnector(RoundsConnector):
    """Emits the checkpoints of one flow."""

    def __init__(
        self,
        settings: FlowSettings,
        source: Brokers,
        target: Brokers,
        *,
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """``target`` passes the gate of this worker's group."""
        effect = "checkpoints, and group offsets on the target, come later; copying of records does not need them"
        super().__init__("checkpoints", effect=effect, clock=clock, rng=rng, log=log)
        if settings.checkpoints is None:
            raise AssertionError("it emits no checkpoints")
        self._flow_settings = settings
        self._settings: CheckpointSettings = settings.checkpoints
        self._source = source
        self._target = target
        self._rng = rng
        syncs = settings.offset_syncs
        self._offsets = FlowOffsets(
            LedgerTable(target, ledger_topic(settings.flow.source), log),
            None if syncs is None else OffsetSyncTable(source if syncs.on_source else target, syncs.topic, log),
        )
        self._upkeep = LedgerUpkeep(settings, self._offsets.ledgers, source, target, clock=clock, rng=rng, log=log)
        self._checkpoints = CheckpointTable(target, self._settings.topic, log)
        sync = self._settings.group_sync
        self._group_sync = None if sync is None else GroupSync(sync, target, log)
        self._sync_interval_s = 0.0 if sync is None else sync.interval_s
        self._synced: dict[str, set[TopicPartition]] = {}
        """The remote partitions of each group for which it had a commit on the source when it was asked last."""
        self._waiting: dict[GroupPartition, Commit] = {}
        """The oldest commit of each group that the ledger had not reached. The story: the copy lags by three seconds
        for an hour, and a group commits ten times a second what was written just before. What it has committed when a
        round asks is not copied yet; what it had committed in an earlier round is."""
        self._writer: TopicWriter | None = None
        self._groups: dict[str, ListedGroup] = {}
        """The groups that the last round knew."""
        self._idle_until_s: dict[str, float] = {}
        """Groups that have become idle, and until when they are asked for in each look."""
        self._first_groups: frozenset[str] | None = None
        """The groups that existed at the start."""
        self._due_s = 0.0
        """When the offsets of all groups are due."""
        self._sync_due_s = 0.0
        """When all groups are due to be moved on the target."""
        self._emitted = 0
        """How many checkpoints were written."""
        self._latencies: dict[GroupPartition, Window] = {}
        """How long checkpoints took to be acknowledged, in ms, by group and remote partition."""
        self._said: set[str] = set()

    def status(self, *, with_topics: bool = True) -> None:
        """Nothing yet: see the log."""

    def measure(self) -> Iterator[ConnectorPart]:
        """Yield how long checkpoints took; see ``Connector``."""
        flow, keys = self._flow_settings.flow, list(self._latencies)
        yield CheckpointSnapshot(flow.source, flow.target, self._emitted, len(keys))
        for at in range(0, len(keys), ROWS_A_PART):
            rows = (
                (group, topic, partition, window.last, window.plain_samples())
                for group, (topic, partition) in keys[at : at + ROWS_A_PART]
                if (window := self._latencies.get((group, (topic, partition)))) is not None
            )
            yield Rows(CHECKPOINT_ROWS, tuple(rows))

    async def _round(self) -> float:
        if self._writer is None:
            self._writer = await self._make_writer()
        groups = self._mirrored(await list_groups(self._source))
        now_s = self._clock.monotonic()
        self._idle_until_s = {name: at_s for name, at_s in self._idle_until_s.items() if at_s > now_s}
        became_idle = now_idle(self._groups, groups)
        followed_s = IDLE_FOLLOWED_S if len(became_idle) <= IDLE_FOLLOWED_MOST else 0.0
        self._idle_until_s |= dict.fromkeys(became_idle, now_s + followed_s)
        idle = [name for name in self._idle_until_s if name in groups and groups[name].state == IDLE]
        all_due = now_s >= self._due_s
        due = groups if all_due else idle
        if due:
            await self._emit(self._writer, due, ledger_reads=LEDGER_READS if all_due else 1)
        await self._sync_groups(idle, groups, now_s)
        await self._upkeep.run_if_due()
        self._groups = groups
        if all_due:
            self._waiting = {at: commit for at, commit in self._waiting.items() if at[0] in groups}
            self._latencies = {at: window for at, window in self._latencies.items() if at[0] in groups}
            self._due_s = max(self._due_s + self._settings.interval_s, now_s)
        next_s = min(self._due_s, self._sync_due_s) if self._group_sync is not None else self._due_s
        return max(0.0, min(LOOK_EVERY_S, next_s - self._clock.monotonic()))

    async def _sync_groups(self, idle: Collection[str], groups: Collection[str], now_s: float) -> None:
        """Move groups on the target: those that have become idle, or all."""
        if self._group_sync is None:
            return
        all_groups = now_s >= self._sync_due_s
        names = groups if all_groups else idle
        if names:
            last = self._checkpoints.last
            found = [last[name, key] for name in names for key in self._synced.get(name, ()) if (name, key) in last]
            await self._group_sync.sync(found, all_groups=all_groups)
        if all_groups:
            self._sync_due_s = max(self._sync_due_s + self._sync_interval_s, now_s)

    def _round_failed(self, pause_s: float) -> None:
        """Do nothing: groups that were due stay due, because only successful rounds count."""

    async def _make_writer(self) -> TopicWriter:
        wanted = checkpoints_topic(self._settings)
        return await internal_topic.open_writer(
            self._target,
            wanted.topic,
            wanted.replication_factor,
            setting=wanted.setting,
            made=lambda: self._log.info("checkpoints.topic_created", topic=str(wanted.topic.name)),
            rng=self._rng,
            timeout_ms=int(self._flow_settings.target_request_timeout_s * 500),
            channel="checkpoints",
        )

    def _mirrored(self, listed: Mapping[str, ListedGroup]) -> dict[str, ListedGroup]:
        """Return the groups that get checkpoints."""
        left_out = {name: one for name, one in listed.items() if one.protocol_type in NOT_MIRRORED}
        self._name_once(left_out, "share groups and groups of the streams protocol have no offsets to translate")
        found: dict[str, ListedGroup] = {}
        for name, group in listed.items():
            try:
                if group.protocol_type in CONSUMERS and self._settings.group_filter.should_replicate(name):
                    found[name] = group
            except PatternTooSlow as error:
                self._name_once([name], str(error))
        if self._settings.refreshes_groups:
            return found
        if self._first_groups is None:
            self._first_groups = frozenset(found)
        return {name: group for name, group in found.items() if name in self._first_groups}

    def _name_once(self, names: Collection[str], why: str) -> None:
        new = sorted(set(names) - self._said)
        if new:
            self._said.update(new)
            self._log.warning("checkpoints.not_mirrored", groups=new[:NAMED_MOST], count=len(new), why=why)

    async def _emit(self, writer: TopicWriter, groups: Collection[str], *, ledger_reads: int) -> None:
        """Write the checkpoints of these groups that are new.

        Args:
            ledger_reads: how often the ledger is read until it reaches all commits.
        """
        committed = await committed_offsets(self._source, sorted(groups))
        wanted = {
            (group, key): commit
            for group, commits in committed.items()
            if not isinstance(commits, BrokerRefused)
            for key, commit in self._of_flow(group, commits).items()
        }
        await self._checkpoints.follow()
        translated = await self._translated(wanted, ledger_reads)
        unclear = await self._of_other_topics({key for _, key in wanted})
        self._synced |= {group: set() for group, commits in committed.items() if not isinstance(commits, BrokerRefused)}
        new = [
            found
            for at, commit in wanted.items()
            if at[1] not in unclear and (found := self._checkpoint(at, commit, translated)) is not None
        ]
        if new:
            now_ms = self._clock.wall_ms()
            await writer.write({0: [encode(one, now_ms) for one in new]})
            if not self._emitted:
                names = {one.group for one in new}
                self._log.info("checkpoints.emitting", topic=self._settings.topic, groups=len(names))
            self._emitted += len(new)
            self._note_latency(new, self._clock.wall_ms() - now_ms)
        await self._checkpoints.follow()
        for group, commits in committed.items():
            if isinstance(commits, BrokerRefused):
                if commits.retriable:
                    raise commits  # the next round asks for these groups again
                self._name_once([group], str(commits))

    def _note_latency(self, emitted: Iterable[Checkpoint], latency_ms: int) -> None:
        now_s = self._clock.monotonic()
        for one in emitted:
            window = self._latencies.setdefault((one.group, (one.topic, one.partition)), Window())
            window.add(max(0, latency_ms), now_s)

    def _of_flow(self, group: str, commits: Commits) -> Commits:
        """Return the commits of a group in topics that the flow copies."""
        found: dict[TopicPartition, Commit] = {}
        for key, commit in commits.items():
            try:
                if self._flow_settings.topic_filter.should_replicate(key[0]):
                    found[key] = commit
            except PatternTooSlow as error:
                self._name_once([f"{group} in {key[0]}"], str(error))
        return found

    async def _translated(
        self, wanted: Mapping[GroupPartition, Commit], reads: int
    ) -> dict[tuple[TopicPartition, int], Translation]:
        """Return the translation of each commit, by partition and offset.

        The ledger is read after the commits, and several times. The story: a group keeps up, and commits ten times a
        second what was written just before. Its records are copied, but the ledger has them up to a second later. If a
        round read the ledger only once, the ledger would never reach the group's commit.
        """
        left = dict.fromkeys((key, commit.offset) for (_, key), commit in wanted.items())
        left |= dict.fromkeys((at[1], self._waiting[at].offset) for at in wanted if at in self._waiting)
        found: dict[tuple[TopicPartition, int], Translation] = {}
        for read in range(reads):
            if read:
                await asyncio.sleep(LEDGER_WRITTEN_S)
            await self._offsets.follow({key for key, _ in left})
            for at, one in enumerate(left):
                found[one] = self._offsets.forward(*one)
                if at % COMMITS_AT_ONCE == COMMITS_AT_ONCE - 1:
                    await asyncio.sleep(0)
            left = {one: None for one in left if found[one].kind is AnswerKind.NOT_YET}
            if not left:
                break
        return found

    async def _of_other_topics(self, keys: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return, and log, the partitions whose ledger belongs to a topic that is missing now or was created again.

        Until the new topic is copied, it is not known where a group may continue there.
        """
        known = {key for key in keys if self._offsets.ledger(key).ledgers}
        names = {topic: self._remote_name(topic) for topic, _ in known}
        if not names:
            return set()
        upstreams = (await fetch_metadata(self._source, sorted(names))).topics
        remotes = (await fetch_metadata(self._target, sorted(names.values()))).topics
        flow, found = self._flow_settings.flow, set[TopicPartition]()
        for key in known:
            source = side_of(key, flow.source, upstreams.get(key[0]))
            target = side_of((names[key[0]], key[1]), flow.target, remotes.get(names[key[0]]))
            why = missing(source, target) or recreated(self._offsets.ledger(key), source, target)
            if why:
                found.add(key)
                if why not in self._said:
                    self._said.add(why)
                    self._log.warning("checkpoints.stopped", topic=key[0], partition=key[1], why=why)
        return found

    def _remote_name(self, topic: str) -> str:
        settings = self._flow_settings
        return str(remote_topic_of(TopicName(topic), settings.policy, settings.flow))

    def _checkpoint(
        self, at: GroupPartition, commit: Commit, translated: Mapping[tuple[TopicPartition, int], Translation]
    ) -> Checkpoint | None:
        """Return the checkpoint of a commit, or of an earlier one that the ledger has reached, if it is due."""
        settings, (group, key) = self._flow_settings, at
        waiting, translation = self._waiting.pop(at, None), translated[key, commit.offset]
        if translation.kind is AnswerKind.NOT_YET:
            self._waiting[at] = commit
            if waiting is not None and waiting.offset < commit.offset:
                earlier = translated[key, waiting.offset]
                if earlier.kind is AnswerKind.NOT_YET:
                    self._waiting[at] = waiting
                else:
                    commit, translation = waiting, earlier
        topic, partition = remote_topic_of(TopicName(key[0]), settings.policy, settings.flow), key[1]
        last = self._checkpoints.last.get((group, (topic, partition)))
        is_behind = last is not None and last.upstream_offset <= commit.offset
        if translation.offset is None:
            if translation.kind is AnswerKind.NOT_YET and is_behind:
                self._synced[group].add((topic, partition))
            return None
        self._synced[group].add((topic, partition))
        before = None if last is None else (last.upstream_offset, last.downstream_offset)
        if not is_more_recent(before, (commit.offset, translation.offset), is_exact=translation.is_exact):
            return None
        return Checkpoint(group, topic, partition, commit.offset, translation.offset, commit.metadata)
