"""Asks both clusters of a flow about consumer groups. It asks no worker, and writes nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping

from structlog.typing import FilteringBoundLogger

from mm2py.config.settings import CheckpointSettings, FlowSettings
from mm2py.connector import TopicName
from mm2py.kafka.cluster import ClusterMetadata, fetch_metadata
from mm2py.kafka.consumer_groups import Commits, ListedGroup, committed_offsets, list_groups, refused_groups
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.list_offsets import EARLIEST, LATEST, find_offsets
from mm2py.kafka.port import Brokers, TopicPartition
from mm2py.offsets.checkpoint_rule import remote_topic_of
from mm2py.offsets.group_sync import CONSUMERS, IDLE
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.replication.reading.offset_tables import CheckpointTable
from mm2py.status.consumer_groups import ConsumerGroupFacts, ConsumerGroupsFacts
from mm2py.status.ledger_topics import missing, recreated, side_of
from mm2py.status.offset_inquiry import offsets_of
from mm2py.topics.filters import PatternTooSlow


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
        self._offsets = offsets_of(settings, source, target, log)
        self._checkpoints = CheckpointTable(target, checkpoints.topic, log, may_be_missing=True)

    async def look(self) -> ConsumerGroupsFacts:
        """Return what both clusters say.

        Raises:
            BrokerRefused: a right is missing; the error names it.
            NewerLedgerFormat: a newer mm2py has written the ledger.
            DamagedTopic: as ``read_table``.
            KafkaError: as ``Brokers.send``.
        """
        settings, source, target = self._settings, self._source, self._target
        found = await list_groups(source)
        listed = {name: one for name, one in found.items() if _is_mirrored(one, self._checkpoint_settings)}
        committed = {
            name: _of_flow(commits, settings) for name, commits in (await _commits(source, listed)).items() if commits
        }
        on_target = {name: one for name, one in (await list_groups(target)).items() if name in committed}
        committed_there: dict[str, Commits] = {}
        refused: dict[str, BrokerRefused] = {}
        for name, commits in (await committed_offsets(target, list(on_target))).items():
            if isinstance(commits, BrokerRefused):
                refused[name] = commits
            else:
                committed_there[name] = commits
        is_synced = self._checkpoint_settings.group_sync is not None
        if is_synced:
            idle = [name for name in committed if name not in on_target or on_target[name].state == IDLE]
            refused |= await refused_groups(target, idle)
        keys = sorted({key for commits in committed.values() for key in commits})
        remote = {
            key: (str(remote_topic_of(TopicName(key[0]), settings.policy, settings.flow)), key[1]) for key in keys
        }
        await self._offsets.follow(keys)  # after the commits, so that it reaches them
        await self._checkpoints.follow()
        of_source, of_target = await _topics(source, keys), await _topics(target, remote.values())  # after the ledgers
        stale = self._stale(remote, of_source, of_target)
        return ConsumerGroupsFacts(
            [
                ConsumerGroupFacts(
                    listed[name],
                    on_target.get(name),
                    commits,
                    committed_there.get(name, {}),
                    str(refused.get(name, "")),
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
            is_synced,
        )

    def _stale(
        self,
        remote: Mapping[TopicPartition, TopicPartition],
        of_source: ClusterMetadata | None,
        of_target: ClusterMetadata | None,
    ) -> dict[TopicPartition, str]:
        """Return the partitions whose ledger does not count, and why."""
        found: dict[TopicPartition, str] = {}
        if of_source is None or of_target is None:
            return found
        for key, there in remote.items():
            source = side_of(key, self._settings.flow.source, of_source.topics.get(key[0]))
            target = side_of(there, self._settings.flow.target, of_target.topics.get(there[0]))
            why = missing(source, target) or recreated(self._offsets.ledger(key), source, target)
            if why:
                found[key] = why
        return found


def _is_mirrored(group: ListedGroup, settings: CheckpointSettings) -> bool:
    try:
        return group.protocol_type in CONSUMERS and settings.group_filter.should_replicate(group.group)
    except PatternTooSlow:
        return False  # the worker says so in its log


def _of_flow(commits: Commits, settings: FlowSettings) -> Commits:
    found = {}
    for key, commit in commits.items():
        with contextlib.suppress(PatternTooSlow):
            if settings.topic_filter.should_replicate(key[0]):
                found[key] = commit
    return found


async def _commits(brokers: Brokers, groups: dict[str, ListedGroup]) -> dict[str, Commits]:
    """Raises: BrokerRefused, of any of them."""
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
