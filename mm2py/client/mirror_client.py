"""The client: hops, upstream clusters, topics, offsets of groups, and any offset by the ledger.

Every call asks the cluster again; the client caches nothing between two calls.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from mm2py.client.ledger_records import LedgerRecords
from mm2py.client.topic_paths import replication_hops, source_clusters
from mm2py.client.topic_reader import MissingTopic, ReadDenied, read_to_end, stop
from mm2py.flow import ClusterAlias, TopicName
from mm2py.offsets.answers import Answer
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.records import checkpoint
from mm2py.records.checkpoint import Checkpoint
from mm2py.records.java_struct import MalformedRecord
from mm2py.records.ledger_record import NewerLedgerFormat
from mm2py.topics.names import DefaultReplicationPolicy, ReplicationPolicy, ledger_topic

Partition = tuple[str, int]
"""Topic and partition number. Those that the client returns are aiokafka's ``TopicPartition``."""
_DEFAULT_POLICY: Final = DefaultReplicationPolicy()
_FIXED: Final = MappingProxyType(
    {
        "group_id": None,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
        "key_deserializer": None,
        "value_deserializer": None,
    }
)
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RemoteOffset:
    """Where a group continues in a remote partition. Both offsets are of the record to be read next."""

    source_offset: int
    """The offset that the group had committed on the source cluster when its checkpoint was emitted."""
    target_offset: int
    """The offset at which the group continues on the target cluster. The group skips no record."""
    metadata: str
    """The text that the group committed with its offset, empty if there was none."""
    is_exact: bool
    """True if the ledger confirms that the group reads no record twice. False also if the ledger does not know."""


class MirrorClient:
    """Asks a target cluster about the topics and groups that are mirrored to it.

    Use it with ``async with``. Several tasks may use it at the same time.

    Every method waits until the brokers have answered. The caller limits that with ``asyncio.timeout``; cancelling
    changes nothing on the cluster. All may raise aiokafka's ``KafkaError``: no broker answers, or a log-in fails.

    Source: MirrorClient and RemoteClusterUtils, Apache Kafka, connect/mirror-client.
    """

    policy: ReplicationPolicy
    """How remote topics are named, as Java's ``MirrorClient.replicationPolicy``."""

    def __init__(
        self,
        *,
        bootstrap_servers: str | list[str],
        policy: ReplicationPolicy = _DEFAULT_POLICY,
        **aiokafka_options: Any,
    ) -> None:
        """Make a client of the target cluster. ``async with`` connects it.

        Args:
            bootstrap_servers: ``host:port``, several as a list.
            policy: the replication policy of the flows, with the same separator:
                ``DefaultReplicationPolicy(separator="_")``. With
                ``IdentityReplicationPolicy(source_alias=ClusterAlias("A"))`` a topic counts as a copy from A. A flow
                with ``topics.rename`` needs ``renaming(policy, "A", "orders -> sales.orders")``.
            aiokafka_options: further arguments of ``AIOKafkaConsumer``: ``security_protocol``, ``ssl_context``,
                ``sasl_mechanism``, ``client_id`` and the like.
        Raises:
            TypeError: the client sets one of the options itself.
        """
        if fixed := sorted(_FIXED.keys() & aiokafka_options.keys()):
            raise TypeError(f"MirrorClient sets {', '.join(fixed)} itself. Leave it out.")
        self.policy = policy
        self._options = {"bootstrap_servers": bootstrap_servers, **aiokafka_options, **_FIXED}
        self._lister: AIOKafkaConsumer | None = None

    async def __aenter__(self) -> Self:
        lister = AIOKafkaConsumer(**self._options)
        try:
            await lister.start()
        except BaseException:
            await stop(lister)
            raise
        self._lister = lister
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lister, self._lister = self._lister, None
        if lister is not None:
            await stop(lister)

    # What is upstream

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        """Return the name that a topic of a source cluster has on this cluster.

        Source: ReplicationPolicy.formatRemoteTopic, Apache Kafka, connect/mirror-client.
        """
        return self.policy.format_remote_topic(ClusterAlias(source_alias), TopicName(topic))

    async def replication_hops(self, upstream_alias: str) -> int | None:
        """Return the number of flows on the shortest way from a cluster to this one; None if no records come from it.

        The names of the heartbeats topics show the way, as in all methods that name clusters.
        Source: MirrorClient.replicationHops, Apache Kafka, connect/mirror-client. It returns -1 instead of None.
        """
        hops = (replication_hops(topic, upstream_alias, self.policy) for topic in await self.heartbeat_topics())
        return min((one for one in hops if one is not None), default=None)

    async def upstream_clusters(self) -> set[str]:
        """Return the aliases of all clusters from which records come, directly or over other clusters.

        Source: MirrorClient.upstreamClusters, Apache Kafka, connect/mirror-client.
        """
        return {alias for topic in await self.heartbeat_topics() for alias in source_clusters(topic, self.policy)}

    async def heartbeat_topics(self) -> set[str]:
        """Return the cluster's own heartbeats topic, and the copies of other clusters' heartbeats topics.

        Source: MirrorClient.heartbeatTopics, Apache Kafka, connect/mirror-client.
        """
        return {topic for topic in await self._topics() if self.policy.is_heartbeats_topic(topic)}

    async def checkpoint_topics(self) -> set[str]:
        """Return the topics that hold checkpoints, one for each source cluster.

        Source: MirrorClient.checkpointTopics, Apache Kafka, connect/mirror-client.
        """
        return {topic for topic in await self._topics() if self.policy.is_checkpoints_topic(topic)}

    async def remote_topics(self, source_alias: str | None = None) -> set[str]:
        """Return the topics whose names say that they are copies. Internal topics are left out.

        Args:
            source_alias: return only topics whose last hop was from this cluster; by default all.
        Source: MirrorClient.remoteTopics, Apache Kafka, connect/mirror-client.
        """
        sources = {
            topic: self.policy.topic_source(topic)
            for topic in await self._topics()
            if not self.policy.is_internal_topic(topic)
        }
        return {
            topic
            for topic, source in sources.items()
            if source is not None and (source_alias is None or source == source_alias)
        }

    # Where a group continues

    async def remote_consumer_offsets(self, group: str, source_alias: str) -> dict[Partition, RemoteOffset]:
        """Return where a group of a source cluster continues on this cluster, by its checkpoints.

        Args:
            group: the group id.
            source_alias: the source cluster of the flow; Java calls it remote cluster.
        Returns:
            By remote partition. Empty if no checkpoint of the group was emitted: the group is unknown, the flow does
            not select it, or nothing could be translated yet.
        Raises:
            MissingTopic: the cluster has no checkpoints from this source.
            ReadDenied: the application may not read them.
        Source: MirrorClient.remoteConsumerOffsets, RemoteClusterUtils.translateOffsets, Apache Kafka,
        connect/mirror-client. When their time-out ends, they return what they have read by then. Here
        ``asyncio.timeout`` raises, because checkpoints that were read so far may be outdated.
        """
        return (await self._remote_offsets(source_alias, lambda one: one == group)).get(group, {})

    async def remote_consumer_offsets_matching(
        self, groups: re.Pattern[str], source_alias: str
    ) -> dict[str, dict[Partition, RemoteOffset]]:
        """Return where many groups continue on this cluster: see ``remote_consumer_offsets``.

        Args:
            groups: matches the whole group id. The pattern is Python's.
        Returns:
            By group id; groups without checkpoints are left out.
        Source: the methods of the same names that take a Pattern, Apache Kafka, connect/mirror-client.
        """
        return await self._remote_offsets(source_alias, lambda one: groups.fullmatch(one) is not None)

    async def _remote_offsets(
        self, source_alias: str, is_asked: Callable[[str], bool]
    ) -> dict[str, dict[Partition, RemoteOffset]]:
        last: dict[tuple[str, Partition], Checkpoint] = {}

        def take(record: ConsumerRecord) -> None:
            try:
                found = checkpoint.decode(record.key, record.value)
            except MalformedRecord as error:
                _log.info("A record of %s is passed over: %s", record.topic, error)
                return
            if is_asked(found.group) and found.downstream_offset >= 0:
                last[found.group, TopicPartition(found.topic, found.partition)] = found

        topic = self.policy.checkpoints_topic(ClusterAlias(source_alias))
        remedy = (
            "Check the source's alias and the separator of the policy, let a flow with emit.checkpoints.enabled=true"
            f" write to this cluster, and grant the application DESCRIBE and READ on {topic}."
        )
        await self._read(topic, take, remedy=remedy)
        ledgers = await self._known_ledgers(source_alias, {place for _, place in last})
        offsets: dict[str, dict[Partition, RemoteOffset]] = {}
        for (group, place), one in last.items():
            ledger = ledgers.get(place)
            answer = None if ledger is None else ledger.forward(one.upstream_offset)
            is_exact = answer is not None and answer.is_exact and answer.offset == one.downstream_offset
            offsets.setdefault(group, {})[place] = RemoteOffset(
                one.upstream_offset, one.downstream_offset, one.metadata, is_exact
            )
        return offsets

    async def _known_ledgers(
        self, source_alias: str, remote: Collection[Partition]
    ) -> dict[Partition, PartitionLedger]:
        """Return the ledgers of remote partitions that have one; a group can continue without a ledger."""
        try:
            ledgers = await self._ledgers_of_copies(source_alias, remote)
        except MissingTopic:
            return {}
        except (ReadDenied, NewerLedgerFormat) as error:
            _log.warning("Whether offsets of groups are exact is not known: %s", error)
            return {}
        return {place: ledger for place, (_, ledger) in ledgers.items()}

    # Any offset, exactly

    async def translate(
        self, source_alias: str, offsets: Mapping[Partition, Iterable[int]]
    ) -> dict[Partition, list[Answer]]:
        """Translate source offsets: return where to continue on this cluster. The ledger topic is read once for all.

        Args:
            source_alias: the source cluster of the flow.
            offsets: source offsets by topic and partition, named as on the source cluster.
        Returns:
            The answers by remote partition, in the order of the offsets. ``Answer.kind`` says what was found.
            ``Answer.offset`` is None if the record was not copied yet, or so recently that the ledger does not have it
            yet (``NOT_YET``); and if the record was copied before the ledger was kept (``BEFORE_LEDGER``).
            ``Answer.is_exact``: no record is skipped and none is read twice.
        Raises:
            MissingTopic: no ledger of this source is kept here. MirrorMaker 2 keeps none.
            ReadDenied: the application may not read the ledger.
            NewerLedgerFormat: a newer mm2py wrote the ledger.
            ValueError: an offset is negative.
        """
        asked = {TopicPartition(*place): _checked(place, some) for place, some in offsets.items()}
        ledgers = await self._ledgers(source_alias, asked)

        def answers() -> dict[Partition, list[Answer]]:
            return {
                TopicPartition(self.format_remote_topic(source_alias, place.topic), place.partition): [
                    ledgers[place].forward(offset) for offset in some
                ]
                for place, some in asked.items()
            }

        return await asyncio.to_thread(answers)

    async def translate_back(
        self, source_alias: str, offsets: Mapping[Partition, Iterable[int]]
    ) -> dict[Partition, list[Answer]]:
        """Translate target offsets: return where to continue on a source cluster. The inverse of ``translate``.

        Args:
            source_alias: the source cluster of the flow.
            offsets: target offsets by remote topic and partition, named as on this cluster.
        Returns:
            The answers by source partition, in the order of the offsets; see ``translate``.
        Raises:
            MissingTopic, ReadDenied, NewerLedgerFormat: as ``translate``.
            ValueError: an offset is negative, or the name of a topic is not that of a copy from this source.
        """
        asked = {TopicPartition(*place): _checked(place, some) for place, some in offsets.items()}
        for place in asked:
            if not self.policy.renames and self._upstream(source_alias, place) is None:
                raise ValueError(f"{place.topic} is no remote topic of {source_alias}, by the replication policy.")
        ledgers = await self._ledgers_of_copies(source_alias, asked)
        if unknown := asked.keys() - ledgers.keys():
            raise ValueError(f"{min(unknown).topic} is no remote topic of {source_alias}, by the rules and the ledger.")

        def answers() -> dict[Partition, list[Answer]]:
            return {
                ledgers[place][0]: [ledgers[place][1].reverse(offset) for offset in some]
                for place, some in asked.items()
            }

        return await asyncio.to_thread(answers)

    async def _ledgers(self, source_alias: str, partitions: Collection[Partition]) -> dict[Partition, PartitionLedger]:
        """Return the ledgers of source partitions; those of an unknown partition are empty.

        Ledgers are built and queried in a thread: a million runs take three seconds, and the application's event loop
        must not wait for that.
        """
        if not partitions:
            return {}
        found = await self._ledgers_where(source_alias, lambda place: place in partitions)
        return {place: found.get(place, PartitionLedger()) for place in partitions}

    async def _ledgers_of_copies(
        self, source_alias: str, copies: Collection[Partition]
    ) -> dict[Partition, tuple[TopicPartition, PartitionLedger]]:
        """Return, by remote partition, its source partition and the ledger of that; strangers are left out.

        If rules give topics other names, the ledger tells which topics were copied, and so which one a copy is of.
        """
        if not self.policy.renames:
            sources = {place: source for place in copies if (source := self._upstream(source_alias, place)) is not None}
            ledgers = await self._ledgers(source_alias, set(sources.values()))
            return {place: (source, ledgers[source]) for place, source in sources.items()}
        if not copies:
            return {}

        def copy_of(place: Partition) -> Partition:
            return self.format_remote_topic(source_alias, place[0]), place[1]

        found = await self._ledgers_where(source_alias, lambda place: copy_of(place) in copies)
        return {TopicPartition(*copy_of(place)): (TopicPartition(*place), ledger) for place, ledger in found.items()}

    async def _ledgers_where(
        self, source_alias: str, is_wanted: Callable[[Partition], bool]
    ) -> dict[Partition, PartitionLedger]:
        records = LedgerRecords(is_wanted)
        topic = ledger_topic(ClusterAlias(source_alias))
        remedy = (
            "Check the source's alias, let mm2py copy from it to this cluster, and grant the application DESCRIBE and"
            f" READ on {topic}."
        )
        await self._read(
            topic, lambda one: records.take(one.partition, one.timestamp, one.key, one.value), remedy=remedy
        )
        return await asyncio.to_thread(records.ledgers)

    def _upstream(self, source_alias: str, remote: Partition) -> TopicPartition | None:
        """Return the source partition of a remote one; None if it is no copy from this source."""
        topic, partition = TopicName(remote[0]), remote[1]
        upstream = self.policy.upstream_topic(topic)
        if upstream is None or self.format_remote_topic(source_alias, upstream) != topic:
            return None
        return TopicPartition(upstream, partition)

    # Reading

    async def _topics(self) -> set[TopicName]:
        if self._lister is None:
            raise RuntimeError("The client is not connected. Use it with `async with`.")
        return {TopicName(topic) for topic in await self._lister.topics()}

    async def _read(self, topic: str, take: Callable[[ConsumerRecord], None], *, remedy: str) -> None:
        """Read a topic if the cluster lists it: a broker might create a missing topic that a client asks for."""
        if topic not in await self._topics():
            raise MissingTopic(topic, remedy=remedy)
        await read_to_end(topic, self._options, take, remedy=remedy)


def _checked(place: Partition, offsets: Iterable[int]) -> list[int]:
    found = list(offsets)
    if wrong := [one for one in found if one < 0]:
        raise ValueError(f"{place[0]}-{place[1]}: an offset is at least 0, not {wrong[0]}.")
    return found
