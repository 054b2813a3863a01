"""Asks both clusters of a flow about consumer groups. It asks no worker, and writes nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Coroutine, Mapping
from typing import Any

from structlog.typing import FilteringBoundLogger

from mm2py.config.settings import CheckpointSettings, FlowSettings
from mm2py.copying.reading.internal_table import each_record
from mm2py.copying.reading.offset_tables import CheckpointTable
from mm2py.flow import TopicName
from mm2py.kafka.cluster import ClusterMetadata, TopicMetadata, fetch_metadata
from mm2py.kafka.consumer_groups import Commit, Commits, ListedGroup, committed_offsets, list_groups, refused_groups
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.list_offsets import EARLIEST, LATEST, find_offsets
from mm2py.kafka.port import Brokers, TopicPartition
from mm2py.offsets.checkpoint_rule import remote_topic_of, upstream_topic_of
from mm2py.offsets.group_sync import CONSUMERS, IDLE
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.records import checkpoint
from mm2py.records.java_struct import MalformedRecord
from mm2py.status.consumer_groups import ConsumerGroupFacts, ConsumerGroupsFacts
from mm2py.status.ledger_topics import missing, recreated, side_of, unknown_side
from mm2py.status.offset_inquiry import are_syncs_on_source, offsets_of
from mm2py.topics.filters import PatternTooSlow, WhyNot, is_cycle


class DatedCheckpointTable(CheckpointTable):
    """The last checkpoint of each group and remote partition, and when it was made."""

    def __init__(self, brokers: Brokers, topic: str, log: FilteringBoundLogger) -> None:
        super().__init__(brokers, topic, log, may_be_missing=True)
        self.at_ms: dict[tuple[str, TopicPartition], int] = {}

    def _clear(self) -> None:
        super()._clear()
        self.at_ms.clear()

    async def _read(self, brokers: Brokers, topic: TopicMetadata) -> None:
        async for record in each_record(brokers, topic, self._read_to):
            self._take(record.key, record.value)
            with contextlib.suppress(MalformedRecord):
                found = checkpoint.decode(record.key, record.value)
                self.at_ms[found.group, (found.topic, found.partition)] = record.timestamp_ms


class ConsumerGroupInquiry:
    """The groups that a flow emits checkpoints of. Each look reads only what is new in topics."""

    def __init__(self, settings: FlowSettings, source: Brokers, target: Brokers, log: FilteringBoundLogger) -> None:
        checkpoints = settings.checkpoints
        if checkpoints is None:
            raise AssertionError("the flow emits no checkpoints")
        self._settings = settings
        self._checkpoint_settings = checkpoints
        self._source = source
        self._target = target
        self._log = log
        self._new_tables()

    def _new_tables(self) -> None:
        self._offsets = offsets_of(self._settings, self._source, self._target, self._log)
        self._checkpoints = DatedCheckpointTable(self._target, self._checkpoint_settings.topic, self._log)

    async def look(self) -> ConsumerGroupsFacts:
        """Return what both clusters say. If it is cancelled, the next look reads the topics from their start.

        Raises:
            BrokerRefused: a right is missing; the error names it.
            NewerLedgerFormat: a newer mm2py has written the ledger.
            DamagedTopic: as ``read_table``.
            KafkaError: as ``Brokers.send``.
        """
        return await self._or_new_tables(self._look())

    async def look_at_target(self) -> ConsumerGroupsFacts:
        """Return what the target alone knows, by the last checkpoint of each group. The source is not asked.

        Cancelling and errors: as ``look``.
        """
        return await self._or_new_tables(self._look_at_target())

    async def _or_new_tables(self, looking: Coroutine[Any, Any, ConsumerGroupsFacts]) -> ConsumerGroupsFacts:
        try:
            return await looking
        except asyncio.CancelledError:
            self._new_tables()  # the old ones may lack records
            raise

    async def _look(self) -> ConsumerGroupsFacts:
        settings, source, target = self._settings, self._source, self._target
        found = await list_groups(source)
        listed = {name: one for name, one in found.items() if _is_mirrored(one, self._checkpoint_settings)}
        found_commits = await _commits(source, listed)
        committed = {name: _of_flow(commits, settings) for name, commits in found_commits.items() if commits}
        left_out = {name: _left_out(found_commits[name], settings) for name, commits in committed.items() if commits}
        on_target, committed_there, refused = await self._ask_target(committed)
        keys = sorted({key for commits in committed.values() for key in commits})
        remote = {
            key: (str(remote_topic_of(TopicName(key[0]), settings.policy, settings.flow)), key[1]) for key in keys
        }
        await self._offsets.follow(keys)  # after the commits, so that it reaches them
        await self._checkpoints.follow()
        others = [(topic, 0) for topics in left_out.values() for topic in topics]
        of_source = await _topics(source, [*keys, *others])  # after the ledgers
        of_target = await _topics(target, remote.values())
        stale = self._stale(remote, of_source, of_target)
        return ConsumerGroupsFacts(
            [
                ConsumerGroupFacts(
                    name,
                    listed[name],
                    on_target.get(name),
                    commits,
                    committed_there.get(name, {}),
                    str(refused.get(name, "")),
                    tuple(topic for topic in left_out[name] if _exists(topic, of_source)),
                )
                for name, commits in committed.items()
                if commits
            ],
            remote,
            await _offsets(source, of_source, keys, LATEST),
            await _offsets(target, of_target, remote.values(), EARLIEST),
            {key: PartitionLedger() if key in stale else self._offsets.ledger(key) for key in keys},
            stale,
            self._offsets.syncs,
            self._checkpoints.last,
            self._checkpoint_settings.group_sync is not None,
            self._checkpoints.at_ms,
        )

    async def _look_at_target(self) -> ConsumerGroupsFacts:
        settings, target = self._settings, self._target
        await self._checkpoints.follow()
        if settings.policy.renames:
            await self._offsets.follow((), with_syncs=False)  # the ledger's topics tell which copy is whose
        committed, remote = self._checkpointed()
        on_target, committed_there, refused = await self._ask_target(committed)
        syncs_unread = are_syncs_on_source(settings)
        await self._offsets.follow(sorted(remote), with_syncs=not syncs_unread)  # after the checkpoints
        of_target = await _topics(target, remote.values())  # after the ledgers
        stale = self._stale(remote, None, of_target)
        return ConsumerGroupsFacts(
            [
                ConsumerGroupFacts(
                    name,
                    None,
                    on_target.get(name),
                    commits,
                    committed_there.get(name, {}),
                    str(refused.get(name, "")),
                )
                for name, commits in committed.items()
            ],
            remote,
            {},
            await _offsets(target, of_target, remote.values(), EARLIEST),
            {key: PartitionLedger() if key in stale else self._offsets.ledger(key) for key in remote},
            stale,
            None if syncs_unread else self._offsets.syncs,
            self._checkpoints.last,
            self._checkpoint_settings.group_sync is not None,
            self._checkpoints.at_ms,
            is_target_alone=True,
        )

    def _checkpointed(self) -> tuple[dict[str, dict[TopicPartition, Commit]], dict[TopicPartition, TopicPartition]]:
        """Return the groups' commits on the source, by their checkpoints, and the remote partitions of these."""
        settings = self._settings
        keys: dict[TopicPartition, TopicPartition | None] = {}
        passes: dict[str, bool] = {}
        committed: dict[str, dict[TopicPartition, Commit]] = {}
        for (group, there), found in self._checkpoints.last.items():
            if group not in passes:
                passes[group] = _passes(group, self._checkpoint_settings)
            if there not in keys:
                topic = upstream_topic_of(TopicName(there[0]), settings.policy, settings.flow, self._offsets.topics())
                keys[there] = (topic, there[1]) if topic is not None and _is_copied(topic, settings) else None
            key = keys[there]
            if passes[group] and key is not None and found.downstream_offset >= 0:
                committed.setdefault(group, {})[key] = Commit(found.upstream_offset)
        return committed, {key: there for there, key in keys.items() if key is not None}

    async def _ask_target(
        self, names: Collection[str]
    ) -> tuple[dict[str, ListedGroup], dict[str, Commits], dict[str, BrokerRefused]]:
        """Return which of these groups the target has, what they have committed there, and which rights are missing."""
        target = self._target
        on_target = {name: one for name, one in (await list_groups(target)).items() if name in names}
        committed: dict[str, Commits] = {}
        refused: dict[str, BrokerRefused] = {}
        for name, commits in (await committed_offsets(target, list(on_target))).items():
            if isinstance(commits, BrokerRefused):
                refused[name] = commits
            else:
                committed[name] = commits
        if self._checkpoint_settings.group_sync is not None:
            idle = [name for name in names if name not in on_target or on_target[name].state == IDLE]
            refused |= await refused_groups(target, idle)
        return on_target, committed, refused

    def _stale(
        self,
        remote: Mapping[TopicPartition, TopicPartition],
        of_source: ClusterMetadata | None,
        of_target: ClusterMetadata | None,
    ) -> dict[TopicPartition, str]:
        """Return the partitions whose ledger does not count, and why.

        Args:
            of_source: None: the source does not answer, or nothing was asked for.
            of_target: None: nothing was asked for.
        """
        found: dict[TopicPartition, str] = {}
        if of_target is None:
            return found
        for key, there in remote.items():
            alias = self._settings.flow.source
            source = (
                unknown_side(key, alias) if of_source is None else side_of(key, alias, of_source.topics.get(key[0]))
            )
            target = side_of(there, self._settings.flow.target, of_target.topics.get(there[0]))
            why = missing(source, target) or recreated(self._offsets.ledger(key), source, target)
            if why:
                found[key] = why
        return found


def _is_mirrored(group: ListedGroup, settings: CheckpointSettings) -> bool:
    return group.protocol_type in CONSUMERS and _passes(group.group, settings)


def _passes(group: str, settings: CheckpointSettings) -> bool:
    try:
        return settings.group_filter.should_replicate(group)
    except PatternTooSlow:
        return False  # the worker says so in its log


def _of_flow(commits: Commits, settings: FlowSettings) -> Commits:
    return {key: commit for key, commit in commits.items() if _is_copied(key[0], settings)}


def _is_copied(topic: str, settings: FlowSettings) -> bool:
    if is_cycle(TopicName(topic), settings.policy, settings.flow.target):
        return False
    try:
        return settings.topic_filter.should_replicate(topic)
    except PatternTooSlow:
        return False


def _left_out(commits: Commits, settings: FlowSettings) -> list[str]:
    """Return the topics of these commits that the flow does not copy, in their order.

    Topics that no application reads, such as internal ones and heartbeats, are not among them.
    """
    topics = sorted({topic for topic, _ in commits})
    return [
        topic
        for topic in topics
        if not settings.policy.is_heartbeats_topic(TopicName(topic)) and _is_out(topic, settings)
    ]


def _is_out(topic: str, settings: FlowSettings) -> bool:
    try:
        return settings.decision(topic).why_not in {WhyNot.CYCLE, WhyNot.NOT_INCLUDED, WhyNot.EXCLUDED}
    except PatternTooSlow:
        return True


def _exists(topic: str, of_source: ClusterMetadata | None) -> bool:
    found = None if of_source is None else of_source.topics.get(topic)
    return found is not None and found.error_code != UNKNOWN_TOPIC_OR_PARTITION


async def _commits(brokers: Brokers, groups: dict[str, ListedGroup]) -> dict[str, Commits]:
    """Return the commits of these groups. Raises: BrokerRefused, for any of them."""
    found: dict[str, Commits] = {}
    for name, commits in (await committed_offsets(brokers, list(groups))).items():
        if isinstance(commits, BrokerRefused):
            raise commits
        found[name] = commits
    return found


async def _topics(brokers: Brokers, keys: Collection[TopicPartition]) -> ClusterMetadata | None:
    return await fetch_metadata(brokers, sorted({topic for topic, _ in keys})) if keys else None


async def _offsets(
    brokers: Brokers, metadata: ClusterMetadata | None, keys: Collection[TopicPartition], when: int
) -> dict[TopicPartition, int]:
    if metadata is None:
        return {}
    return await find_offsets(brokers, {key: metadata.leader_of(*key) for key in keys}, when)
