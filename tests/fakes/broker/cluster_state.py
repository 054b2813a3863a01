"""The state of a cluster (brokers, topics, leaders, producers), and how a test changes it.

This module has no requests and no connections. Records that a test appends are replicated at once; records that arrive
by a request take the time of replication (``ClusterModel``). Methods without ``async`` may be called before a run and
during it.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kio.schema.errors import ErrorCode

from mm2py.topics.acls import TopicAcl
from tests.fakes.broker.consumer_groups import ConsumerGroups
from tests.fakes.broker.coordinator_model import Coordinator
from tests.fakes.broker.partition_model import NO_LEADER, Leadership, Partition, Replica
from tests.fakes.broker.producer_state import ProducerTable, Refused
from tests.fakes.broker.record_batch import (
    SEQUENCES,
    TRANSACTIONAL,
    Batch,
    Record,
    StoredRecord,
    build_batch,
    parse_batch,
)
from tests.fakes.broker.topic_config import BROKER_DEFAULTS, TopicConfig, parse_topic_config
from tests.fakes.virtual_time import VirtualClock

_ALWAYS: Final = -1.0
MAX_TOPIC_NAME: Final = 249


@dataclass(slots=True)
class Node:
    """One broker. ``up``: the process runs; ``registered``: the controller still believes that it is alive."""

    id: int
    host: str
    port: int
    up: bool = True
    registered: bool = True
    reachable: bool = True
    incarnation: int = 0
    metadata_lag_s: float = 0.0
    rack: str = ""
    """``broker.rack``."""


@dataclass(slots=True)
class Topic:
    """One incarnation of a topic; a recreated topic is another one with the same name."""

    name: str
    id: uuid.UUID
    overrides: dict[str, str]
    config: TopicConfig
    partitions: list[Partition]
    created_s: float
    deleted_s: float | None = None
    partitions_since_s: list[float] = field(default_factory=list)


@dataclass(slots=True)
class ProducerHandle:
    """A client of the test with a producer id; it counts its sequences itself."""

    cluster: ClusterState
    producer_id: int
    producer_epoch: int = 0
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)

    def append(self, topic: str, partition: int, records: Sequence[Record | bytes], *, codec: str = "none") -> int:
        """Store one idempotent batch and return its base offset."""
        return self._append(topic, partition, records, codec=codec, attributes=0)

    def _append(
        self, topic: str, partition: int, records: Sequence[Record | bytes], *, codec: str, attributes: int
    ) -> int:
        sequence = self.sequences.get((topic, partition), 0)
        raw = build_batch(
            _as_records(records),
            now_ms=self.cluster.clock.wall_ms(),
            codec=codec,
            attributes=attributes,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
        )
        offset = self.cluster.append(topic, partition, raw)
        self.sequences[topic, partition] = (sequence + len(records)) % SEQUENCES
        return offset


@dataclass(slots=True)
class Transaction(ProducerHandle):
    """A transactional client of the test; ``commit`` and ``abort`` write the markers and start the next transaction."""

    touched: dict[tuple[str, int], None] = field(default_factory=dict)

    def append(self, topic: str, partition: int, records: Sequence[Record | bytes], *, codec: str = "none") -> int:
        self.touched[topic, partition] = None
        return self._append(topic, partition, records, codec=codec, attributes=TRANSACTIONAL)

    def commit(self) -> None:
        self._end(commit=True)

    def abort(self) -> None:
        self._end(commit=False)

    def _end(self, *, commit: bool) -> None:
        for topic, partition in self.touched:
            self.cluster.write_marker(topic, partition, self.producer_id, self.producer_epoch, commit=commit)
        self.touched.clear()


class ClusterState:
    """The cluster.

    Args:
        name: appears in errors, host names and the cluster id.
        clock: virtual time.
        rng: the source of every choice of the model; the same seed makes the same choices.
        nodes: the number of brokers; their ids count from 1.
        broker_config: what differs from ``BROKER_DEFAULTS``.
        broker_session_timeout_s: how long the controller believes that a killed broker is alive.
        metadata_lag_s: the longest lag of a broker's metadata; 0 for a cluster without surprises.
    """

    def __init__(
        self,
        name: str,
        clock: VirtualClock,
        rng: random.Random,
        *,
        nodes: int = 1,
        broker_config: Mapping[str, str] | None = None,
        broker_session_timeout_s: float = 9.0,
        metadata_lag_s: float = 0.03,
    ) -> None:
        self.name = name
        self.clock = clock
        self._since_ms = clock.wall_ms()
        self.broker_session_timeout_s = broker_session_timeout_s
        self.broker_config = {**BROKER_DEFAULTS, **(broker_config or {})}
        self._choices = random.Random(rng.getrandbits(64))
        self.cluster_id = f"{name}-{self._choices.getrandbits(64):016x}"
        self.nodes = {
            number: Node(
                number, f"{name}-{number}.test", 9092, metadata_lag_s=self._choices.uniform(0.0, metadata_lag_s)
            )
            for number in range(1, nodes + 1)
        }
        self.topics: dict[str, Topic] = {}
        self._former: list[Topic] = []
        self._by_id: dict[uuid.UUID, Topic] = {}
        self.denied_topics: set[str] = set()
        self.unwritable_topics: set[str] = set()
        """Topics on which the right WRITE is revoked, and all others are not."""
        self.denied_configs: set[str] = set()
        """Topics whose settings may be read and not changed."""
        self.hidden_configs: set[str] = set()
        """Topics whose settings may not be read."""
        self.unknown_configs: set[str] = set()
        """Settings of topics that these brokers do not know, because they are too old or too new."""
        self.acls: set[TopicAcl] | None = None
        """The ACLs of topics; None: the cluster has no authorizer. The model stores them, and enforces none."""
        self.denied_on_cluster: set[str] = set()
        """Rights on the cluster itself that are revoked: DESCRIBE, ALTER, CLUSTER_ACTION."""
        self.groups = ConsumerGroups()
        self.transactions_available = True
        self.follower_error = ErrorCode.none
        """The error that followers answer to reads of their partitions."""
        self.coordinator = Coordinator(
            first_producer_id=1000 + self._choices.randrange(1000),
            expiration_ms=int(self.broker_config["transactional.id.expiration.ms"]),
        )

    # ---- brokers

    @property
    def alive(self) -> list[int]:
        """Ids of the brokers whose process runs."""
        return [node.id for node in self.nodes.values() if node.up]

    @property
    def registered(self) -> list[int]:
        """Ids of the brokers that metadata name."""
        return [node.id for node in self.nodes.values() if node.registered]

    def stop_broker(self, node: int, *, clean: bool = True) -> None:
        """Stop a broker cleanly, which moves its leaderships, or kill it, so that the controller notices later."""
        broker = self.nodes[node]
        if not broker.up:
            return
        if clean:
            self._unregister(node)
        broker.up = False
        broker.incarnation += 1
        self.on_broker_stopped(node)
        if not clean:
            self.later(self.broker_session_timeout_s, partial(self._session_expired, node, broker.incarnation))

    def start_broker(self, node: int) -> None:
        """Start a stopped broker: its producer tables have lost what a restart loses, then it catches up."""
        broker = self.nodes[node]
        if broker.up:
            return
        self._unregister(node)
        broker.up = broker.registered = True
        now_ms, now_s = self.clock.wall_ms(), self.clock.monotonic()
        for partition in self._partitions_on(node):
            replica = partition.replicas[node]
            if not replica.diverged:
                replica.table.reload(now_ms)  # after a crash too: recovery ends with a snapshot
            if partition.leader == NO_LEADER:
                if node in partition.isr:
                    partition.elect(node, [node], now_s=now_s)
            else:
                self.later(self._catch_up_s(), partial(self._rejoin, partition, node))

    def cut_broker(self, node: int) -> None:
        """Lose every packet to and from a broker; the broker does not notice."""
        self.nodes[node].reachable = False

    def join_broker(self, node: int) -> None:
        """Undo ``cut_broker``."""
        self.nodes[node].reachable = True

    def _session_expired(self, node: int, incarnation: int) -> None:
        if self.nodes[node].incarnation == incarnation and not self.nodes[node].up:
            self._unregister(node)

    def _unregister(self, node: int) -> None:
        """Let the controller remove a broker from every ISR, and move its leaderships."""
        broker = self.nodes[node]
        if not broker.registered:
            return
        broker.registered = False
        now_s = self.clock.monotonic()
        for partition in self._partitions_on(node):
            others = [other for other in partition.isr if other != node]
            if partition.leader == node:
                candidates = [other for other in others if self.nodes[other].up and self.nodes[other].registered]
                if candidates:
                    partition.elect(self._choices.choice(candidates), others, now_s=now_s)
                    self.replicate_later(partition)
                else:
                    partition.elect(NO_LEADER, partition.isr, now_s=now_s)
            elif partition.leader != NO_LEADER and node in partition.isr:
                partition.set_isr(others, now_s=now_s)
                self.replicate_later(partition)

    def _rejoin(self, partition: Partition, node: int) -> None:
        if not self.nodes[node].up or partition.leader in (NO_LEADER, node) or node in partition.isr:
            return
        if not self.nodes[partition.leader].up:
            self.later(self._catch_up_s(), partial(self._rejoin, partition, node))
            return
        partition.catch_up(node, now_ms=self.clock.wall_ms())
        partition.set_isr([*partition.isr, node], now_s=self.clock.monotonic())
        self.replicate_later(partition)

    def _partitions_on(self, node: int) -> list[Partition]:
        return [
            partition for topic in self.topics.values() for partition in topic.partitions if node in partition.replicas
        ]

    def _catch_up_s(self) -> float:
        return self._choices.uniform(0.05, 1.0)

    def draw_s(self, least_s: float, most_s: float) -> float:
        """Draw a duration evenly from this range."""
        return self._choices.uniform(least_s, most_s)

    # ---- hooks for ClusterModel

    def on_broker_stopped(self, node: int) -> None:
        """Break the connections to this broker; here there are none."""

    def replicate_later(self, partition: Partition) -> None:
        """Let the followers of a partition fetch; here at once."""
        partition.settle(self.alive, now_ms=self.clock.wall_ms())

    def later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call back after a delay of virtual time; outside a run at once."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            callback()
        else:
            loop.call_later(delay_s, callback)

    # ---- topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        *,
        replication_factor: int | None = None,
        visible_at_once: bool = True,
    ) -> uuid.UUID:
        """Create a topic and return its id. Without ``replication_factor`` all brokers have replicas.

        Raises:
            Refused: TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_CONFIG.
        """
        if name in self.topics:
            raise Refused(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
        overrides = dict(configs or {})
        config = parse_topic_config(overrides)
        factor = len(self.nodes) if replication_factor is None else replication_factor
        created_s = _ALWAYS if visible_at_once else self.clock.monotonic()
        topic_id = uuid.UUID(int=self._choices.getrandbits(128), version=4)
        topic = Topic(name, topic_id, overrides, config, [], created_s)
        self.topics[name] = self._by_id[topic_id] = topic
        first = self._choices.randrange(len(self.nodes))
        for index in range(partitions):
            self._add_partition(topic, index, first + index, factor, created_s)
        return topic_id

    def add_partitions(self, name: str, count: int, *, visible_at_once: bool = True) -> None:
        """Widen a topic to ``count`` partitions."""
        topic = self.topics[name]
        factor = len(topic.partitions[0].replicas)
        since_s = _ALWAYS if visible_at_once else self.clock.monotonic()
        first = self._choices.randrange(len(self.nodes))
        for index in range(len(topic.partitions), count):
            self._add_partition(topic, index, first + index, factor, since_s)

    def _add_partition(self, topic: Topic, index: int, first: int, factor: int, since_s: float) -> None:
        ids = sorted(
            self.nodes, key=lambda node: (not self.nodes[node].registered, (node - 1 - first) % len(self.nodes))
        )
        replicas = {node: Replica(self._new_table()) for node in ids[:factor]}
        living = [node for node in replicas if self.nodes[node].registered]
        partition = Partition(topic.name, topic.id, index, replicas, living[0] if living else NO_LEADER, living)
        partition.obey(topic.config)
        partition.log.assign_epoch(0, 0)
        partition.remember(since_s)
        topic.partitions.append(partition)
        topic.partitions_since_s.append(since_s)

    def _new_table(self) -> ProducerTable:
        return ProducerTable(
            expiration_ms=int(self.broker_config["producer.id.expiration.ms"]),
            check_interval_ms=int(self.broker_config["producer.id.expiration.check.interval.ms"]),
            since_ms=self._since_ms,
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and answer the requests that wait for it."""
        topic = self.topics.pop(name)
        del self._by_id[topic.id]
        topic.deleted_s = self.clock.monotonic()
        self._former.append(topic)
        self.groups.forget_topic(name)
        for partition in topic.partitions:
            partition.notify()

    def recreate_topic(self, name: str, partitions: int | None = None) -> uuid.UUID:
        """Delete a topic and create it again with the same settings: same name, new id, empty logs."""
        topic = self.topics[name]
        self.delete_topic(name)
        count = len(topic.partitions) if partitions is None else partitions
        return self.create_topic(name, count, topic.overrides, replication_factor=len(topic.partitions[0].replicas))

    def configure_topic(self, name: str, configs: Mapping[str, str]) -> None:
        """Change settings of a topic."""
        self.replace_overrides(name, {**self.topics[name].overrides, **configs})

    def replace_overrides(self, name: str, overrides: Mapping[str, str]) -> None:
        """Replace all of the topic's own settings by these."""
        topic = self.topics[name]
        topic.config = parse_topic_config(overrides)
        topic.overrides = dict(overrides)
        for partition in topic.partitions:
            partition.obey(topic.config)

    def deny(self, topic: str) -> None:
        """Revoke every right to a topic; it need not exist."""
        self.denied_topics.add(topic)

    def allow(self, topic: str) -> None:
        self.denied_topics.discard(topic)

    def topic_with_id(self, topic_id: uuid.UUID) -> Topic | None:
        return self._by_id.get(topic_id)

    def topics_seen_by(self, node: int) -> dict[str, Topic]:
        """Return the topics in a broker's metadata now, which lag a little."""
        at_s = self._as_of_s(node)
        seen = {
            topic.name: topic
            for topic in self._former
            if topic.deleted_s is not None and topic.created_s <= at_s < topic.deleted_s
        }
        seen.update({topic.name: topic for topic in self.topics.values() if topic.created_s <= at_s})
        return seen

    def partitions_seen_by(self, node: int, topic: Topic) -> list[tuple[Partition, Leadership]]:
        """Return a topic's partitions and their leaders in a broker's metadata now."""
        at_s = self._as_of_s(node)
        return [
            (partition, partition.as_of(at_s))
            for partition, since_s in zip(topic.partitions, topic.partitions_since_s, strict=True)
            if since_s <= at_s
        ]

    def is_visible(self, node: int, topic: Topic, index: int) -> bool:
        """Whether a broker's metadata have this partition."""
        return topic.partitions_since_s[index] <= self._as_of_s(node)

    def _as_of_s(self, node: int) -> float:
        return self.clock.monotonic() - self.nodes[node].metadata_lag_s

    def partition(self, topic: str, partition: int) -> Partition:
        return self.topics[topic].partitions[partition]

    # ---- logs

    def append(
        self,
        topic: str,
        partition: int,
        records: bytes | Sequence[Record | bytes],
        *,
        codec: str = "none",
        as_is: bool = False,
        at_offset: int | None = None,
    ) -> int:
        """Store records, or one batch given as bytes, as an application would, and return the base offset.

        Args:
            records: bytes in the sequence are values of records without key.
            as_is: do not check the batch; only its offsets and leader epoch are set (a log older than
                today's rules, a bug of an old broker).
            at_offset: leave a hole before it, as compaction does.
        Raises:
            Refused: the broker would not take the batch.
        """
        found = self.topics[topic].partitions[partition]
        now_ms = self.clock.wall_ms()
        raw = records if isinstance(records, bytes) else build_batch(_as_records(records), now_ms=now_ms, codec=codec)
        if found.leader == NO_LEADER or not self.nodes[found.leader].up:
            raise Refused(ErrorCode.leader_not_available, f"{found} has no leader")
        if at_offset is not None:
            found.log.skip_to(at_offset)
        if as_is:
            base_offset = found.append_as_leader(parse_batch(raw)).base_offset
        else:
            base_offset = found.append_from_client(raw, self.topics[topic].config, now_ms=now_ms)[0].base_offset
        found.settle(self.alive, now_ms=now_ms)
        return base_offset

    def producer(self) -> ProducerHandle:
        """Return a client with a producer id of its own."""
        return ProducerHandle(self, self.coordinator.new_producer_id())

    def transaction(self) -> Transaction:
        """Return a transactional client with a producer id of its own, in an open transaction."""
        return Transaction(self, self.coordinator.new_producer_id())

    def write_marker(
        self, topic: str, partition: int, producer_id: int, producer_epoch: int, *, commit: bool = False
    ) -> int:
        """Write a transaction's end, or a fence (its higher epoch fences the old owner). Return the marker's offset."""
        found = self.partition(topic, partition)
        offset = found.append_marker(
            commit=commit, producer_id=producer_id, producer_epoch=producer_epoch, now_ms=self.clock.wall_ms()
        )
        found.settle(self.alive, now_ms=self.clock.wall_ms())
        return offset

    def records(
        self, topic: str, partition: int, *, committed: bool = False, with_control: bool = False
    ) -> list[StoredRecord]:
        """Return every record of a partition below the high watermark, or below the last stable offset."""
        found = self.partition(topic, partition)
        limit = found.high_watermark
        if committed:
            limit = found.log.last_stable_offset(limit)
        return found.log.records(limit, committed=committed, with_control=with_control)

    def newest(self, topic: str, partition: int, *, committed: bool = False, count: int = 1) -> list[StoredRecord]:
        """Return the last of ``records``."""
        found = self.partition(topic, partition)
        limit = found.high_watermark
        if committed:
            limit = found.log.last_stable_offset(limit)
        return found.log.newest(limit, committed=committed, count=count)

    def batches(self, topic: str, partition: int) -> list[Batch]:
        """Return every batch of a partition, control batches included."""
        log = self.partition(topic, partition).log
        return list(log.from_offset(log.log_start_offset, log.end_offset))

    def compact(self, topic: str) -> None:
        """Let the cleaner run over all of a topic's closed transactions."""
        config = self.topics[topic].config
        for partition in self.topics[topic].partitions:
            limit = partition.log.last_stable_offset(partition.high_watermark)
            partition.log.compact(limit, delete_retention_ms=config.delete_retention_ms, now_ms=self.clock.wall_ms())

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Move the log start, as DeleteRecords does."""
        found = self.partition(topic, partition)
        found.log.delete_before(min(before_offset, found.high_watermark))
        found.notify()

    def expire(self, topic: str) -> None:
        """Run the broker's retention check: it removes segments whose newest *record* is older than retention.ms."""
        config = self.topics[topic].config
        for partition in self.topics[topic].partitions:
            partition.log.remove_old_segments(
                high_watermark=partition.high_watermark,
                retention_ms=config.retention_ms,
                now_ms=self.clock.wall_ms(),
            )
            partition.notify()

    def truncate(self, topic: str, partition: int, to_offset: int) -> None:
        """Elect an unclean leader in a new leader epoch: records from ``to_offset`` on are lost, even answered ones."""
        found = self.partition(topic, partition)
        found.truncate(to_offset)
        candidates = [node for node in found.replicas if self.nodes[node].up]
        found.elect(self._choices.choice(candidates), candidates, now_s=self.clock.monotonic())
        found.settle(self.alive, now_ms=self.clock.wall_ms())

    def move_leader(self, topic: str, partition: int, node: int | None = None) -> int:
        """Elect ``node``, or another replica in sync (the same one if it is alone); return the new leader."""
        found = self.partition(topic, partition)
        others = [other for other in found.isr if other != found.leader and self.nodes[other].up]
        leader = node if node is not None else self._choices.choice(others or [found.leader])
        if leader == NO_LEADER:
            return NO_LEADER
        assert leader in found.isr and self.nodes[leader].up, f"broker {leader} cannot lead {found}: not in sync"
        found.elect(leader, found.isr, now_s=self.clock.monotonic())
        self.replicate_later(found)
        return leader

    def coordinator_of(self, key: str) -> int | None:
        """Return the broker that coordinates a group or transactional id; None while there is none."""
        living = self.registered
        if not living:
            return None
        return living[sum(key.encode()) % len(living)]


def _as_records(records: Sequence[Record | bytes]) -> list[Record]:
    return [record if isinstance(record, Record) else Record(record) for record in records]
