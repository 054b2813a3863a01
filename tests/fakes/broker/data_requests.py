"""Produce and Fetch at a broker: the two requests that may wait before they are answered.

Source: ReplicaManager, DelayedProduce, DelayedFetch, Partition.fetchRecords, LocalLog.read, Apache Kafka 4.3.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kio.schema.errors import ErrorCode

from mm2py.kafka.port import (
    FetchedPartition,
    FetchReply,
    FetchRequest,
    PartitionFetch,
    PartitionProduce,
    ProducedPartition,
    ProduceReply,
    ProduceRequest,
)
from tests.fakes.broker.cluster_state import ClusterState, Topic
from tests.fakes.broker.partition_model import Partition
from tests.fakes.broker.produce_rules import look_at_frames
from tests.fakes.broker.producer_state import Refused
from tests.fakes.broker.record_batch import ATTRIBUTES_AT, TRANSACTIONAL

_FRAME_HEAD_BYTES: Final = 64
"""Size of the bytes before the records in a reply, so that a view does not start where its buffer starts."""

_WITHOUT_LOG_START: Final = frozenset({ErrorCode.message_too_large, ErrorCode.corrupt_message})
"""Errors that the broker answers without the log's start offset."""

_keys = itertools.count()


class Pending:
    """A request that has reached its broker. ``done`` is called once with the reply, unless it was abandoned."""

    def __init__(self, done: Callable[[object], None]) -> None:
        self._done = done
        self._watched: list[Partition] = []
        self._key = next(_keys)
        self._timer: asyncio.TimerHandle | None = None
        self._checking = False
        self.over = False

    def abandon(self) -> None:
        """End without a reply, because the broker died."""
        self.over = True
        for partition in self._watched:
            partition.watchers.pop(self._key, None)
        self._watched.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self, partitions: Sequence[Partition], timeout_s: float) -> None:
        for partition in partitions:
            partition.watchers[self._key] = self._changed
            self._watched.append(partition)
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self._expired)

    def _changed(self) -> None:
        if not self._checking and not self.over:
            self._checking = True
            asyncio.get_running_loop().call_soon(self._look_again)

    def _look_again(self) -> None:
        self._checking = False
        if not self.over:
            self._check()

    def _check(self) -> None:
        raise NotImplementedError

    def _expired(self) -> None:
        raise NotImplementedError

    def _finish(self, reply: object) -> None:
        if not self.over:
            self.abandon()
            self._done(reply)


def resolve(state: ClusterState, node: int, name: str, topic_id: uuid.UUID | None) -> Topic | ErrorCode:
    """Return the topic of a request, by id if the request has one, as Fetch and Produce have from version 13 on."""
    if topic_id is not None:
        by_id = state.topic_with_id(topic_id)
        if by_id is None or not state.is_visible(node, by_id, 0):
            return ErrorCode.unknown_topic_id
        name = by_id.name
    if name in state.denied_topics:
        return ErrorCode.topic_authorization_failed
    by_name = state.topics.get(name)
    return ErrorCode.unknown_topic_or_partition if by_name is None else by_name


def locate(state: ClusterState, node: int, topic: Topic, index: int) -> Partition | ErrorCode:
    """Return the partition if this broker has a replica of it."""
    if not 0 <= index < len(topic.partitions) or not state.is_visible(node, topic, index):
        return ErrorCode.unknown_topic_or_partition
    partition = topic.partitions[index]
    return partition if node in partition.replicas else ErrorCode.not_leader_or_follower


def check_leader_epoch(partition: Partition, current_leader_epoch: int) -> ErrorCode:
    """Return the error if the client's leader epoch differs from the broker's."""
    if current_leader_epoch < 0 or current_leader_epoch == partition.leader_epoch:
        return ErrorCode.none
    if current_leader_epoch < partition.leader_epoch:
        return ErrorCode.fenced_leader_epoch
    return ErrorCode.unknown_leader_epoch


# ---- produce


@dataclass(slots=True)
class _Produced:
    topic: Topic | None
    name: str
    index: int
    partition: Partition | None = None
    code: ErrorCode = ErrorCode.none
    message: str | None = None
    base_offset: int = -1
    last_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    done: bool = True


class PendingProduce(Pending):
    """Stores on the leader at once, and answers when every replica in sync has the records.

    Args:
        by_topic_id: the broker supports Produce 13 (4.1 on); older ones do not recognise a recreated topic
            (docs/broker-facts.md#m4).
        interfere: called per partition; the error that a fault answers instead, and whether the batch is stored.
    """

    def __init__(
        self,
        state: ClusterState,
        node: int,
        request: ProduceRequest,
        done: Callable[[object], None],
        *,
        by_topic_id: bool = True,
        interfere: Callable[[str], tuple[ErrorCode, bool] | None] = lambda _: None,
    ) -> None:
        super().__init__(done)
        self._state = state
        self._node = node
        self._interfere = interfere
        self._results: list[_Produced] = []
        door = _refused_at_the_door(request)
        for topic in request.topics:
            found = resolve(state, node, topic.name, topic.topic_id if by_topic_id else None)
            for one in topic.partitions:
                if door is not None:
                    result = _Produced(None, topic.name, one.partition, code=door)
                elif isinstance(found, ErrorCode):
                    result = _Produced(None, topic.name, one.partition, code=found)
                elif found.name in state.unwritable_topics:
                    result = _Produced(None, topic.name, one.partition, code=ErrorCode.topic_authorization_failed)
                else:
                    result = self._store(found, topic.name, one)
                self._results.append(result)
        seen = [(result.name, result.index) for result in self._results]
        assert len(set(seen)) == len(seen), f"one batch per partition and request: {seen}"
        waiting = [result.partition for result in self._results if result.partition is not None and not result.done]
        self._check()
        if not self.over:
            self._wait(waiting, request.timeout_ms / 1000)

    def _store(self, topic: Topic, name: str, one: PartitionProduce) -> _Produced:
        result = _Produced(topic, name, one.partition)
        partition = locate(self._state, self._node, topic, one.partition)
        if isinstance(partition, ErrorCode):
            result.code = partition
            return result
        if partition.leader != self._node:
            result.code = ErrorCode.not_leader_or_follower
            return result
        fault = self._interfere(name)
        if fault is not None and not fault[1]:
            result.code, result.message = fault[0], "injected"
            return result
        try:
            stored, batch = partition.append_from_client(one.records, topic.config, now_ms=self._state.clock.wall_ms())
        except Refused as refused:
            result.code, result.message = refused.code, refused.message
            if refused.code not in _WITHOUT_LOG_START and not refused.at_the_door:
                result.log_start_offset = partition.log.log_start_offset
            return result
        result.partition = partition
        result.log_start_offset = partition.log.log_start_offset
        if fault is not None:
            result.code, result.message = fault[0], "injected, but stored"
        else:
            result.base_offset, result.last_offset = stored.base_offset, stored.last_offset
            result.log_append_time_ms = stored.log_append_time_ms
            result.done = False
        if batch is not None:
            self._state.replicate_later(partition)
        return result

    def _check(self) -> None:
        for result in self._results:
            partition = result.partition
            if result.done or partition is None or result.topic is None:
                continue
            if self._state.topics.get(result.topic.name) is not result.topic:
                self._fail(result, ErrorCode.unknown_topic_or_partition)
            elif partition.leader != self._node:
                self._fail(result, ErrorCode.not_leader_or_follower)
            elif partition.high_watermark > result.last_offset:
                result.done = True
                if len(partition.isr) < result.topic.config.min_insync_replicas:
                    self._fail(result, ErrorCode.not_enough_replicas_after_append)
        if all(result.done for result in self._results):
            self._finish(self._reply())

    def _fail(self, result: _Produced, code: ErrorCode) -> None:
        result.done, result.code = True, code
        result.base_offset = result.log_append_time_ms = -1

    def _expired(self) -> None:
        for result in self._results:
            if not result.done:
                self._fail(result, ErrorCode.request_timed_out)
        self._finish(self._reply())

    def _reply(self) -> ProduceReply:
        return ProduceReply(
            [
                ProducedPartition(
                    result.name,
                    result.index,
                    int(result.code),
                    result.base_offset,
                    result.log_append_time_ms,
                    result.log_start_offset,
                    result.message,
                )
                for result in self._results
            ]
        )


def _refused_at_the_door(request: ProduceRequest) -> ErrorCode | None:
    """Return the error of one batch for which the whole request is refused, or None."""
    for topic in request.topics:
        for one in topic.partitions:
            try:
                frames = look_at_frames(one.records, only_first=True)
            except Refused as refused:
                return refused.code
            if any(one.records[begin + ATTRIBUTES_AT] & TRANSACTIONAL for begin, _ in frames):
                return ErrorCode.transactional_id_authorization_failed
    return None


# ---- fetch


@dataclass(slots=True)
class _Read:
    name: str
    index: int
    code: ErrorCode = ErrorCode.none
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    parts: list[bytes] = field(default_factory=list)
    size: int = 0
    aborted: list[tuple[int, int]] = field(default_factory=list)
    diverging_epoch: tuple[int, int] | None = None
    preferred_replica: int = -1


class PendingFetch(Pending):
    """Answers when enough bytes are there, when there is an error, or when the wait is over.

    Args:
        max_bytes: the broker's own limit of a reply.
        interfere: called per partition; the error that a fault answers instead.
    """

    def __init__(
        self,
        state: ClusterState,
        node: int,
        request: FetchRequest,
        done: Callable[[object], None],
        *,
        interfere: Callable[[], ErrorCode | None] = lambda: None,
    ) -> None:
        super().__init__(done)
        self._state = state
        self._node = node
        self._request = request
        self._max_bytes = int(state.broker_config["fetch.max.bytes"])
        self._injected = {
            (topic.name, want.partition): code
            for topic in request.topics
            for want in topic.partitions
            if (code := interfere()) is not None
        }
        self._check()
        if not self.over:
            self._wait(self._partitions(), request.max_wait_ms / 1000)

    def _partitions(self) -> list[Partition]:
        found = []
        for topic in self._request.topics:
            resolved = resolve(self._state, self._node, topic.name, topic.topic_id)
            if isinstance(resolved, Topic):
                found += [resolved.partitions[want.partition] for want in topic.partitions]
        return found

    def _check(self) -> None:
        reads = self._read_all()
        size = sum(read.size for read in reads)
        if (
            self._request.max_wait_ms <= 0
            or not reads
            or size >= self._request.min_bytes
            or any(read.code or read.diverging_epoch or read.preferred_replica >= 0 for read in reads)
        ):
            self._finish(_fetch_reply(reads))

    def _expired(self) -> None:
        self._finish(_fetch_reply(self._read_all()))

    def _read_all(self) -> list[_Read]:
        left = min(self._request.max_bytes, self._max_bytes)
        at_least_one = True
        reads = []
        for topic in self._request.topics:
            resolved = resolve(self._state, self._node, topic.name, topic.topic_id)
            for want in topic.partitions:
                read = _Read(topic.name, want.partition)
                injected = self._injected.get((topic.name, want.partition))
                if injected is not None:
                    read.code = injected
                elif isinstance(resolved, ErrorCode):
                    read.code = resolved
                else:
                    self._read(resolved, want, read, left, at_least_one=at_least_one)
                if read.size:
                    at_least_one = False
                    left = max(0, left - read.size)
                reads.append(read)
        return reads

    def _read(self, topic: Topic, want: PartitionFetch, read: _Read, left: int, *, at_least_one: bool) -> None:
        """Read one partition. Followers answer too: since Fetch 11 a consumer may read from them."""
        partition = locate(self._state, self._node, topic, want.partition)
        if isinstance(partition, ErrorCode):
            read.code = partition
            return
        read.code = check_leader_epoch(partition, want.current_leader_epoch)
        if not read.code and partition.leader != self._node:
            read.code = self._state.follower_error
        if read.code:
            return
        replica, log = partition.replicas[self._node], partition.log
        read.preferred_replica = self._preferred_replica(partition, want)
        if read.preferred_replica >= 0:  # the leader names it instead of reading
            read.high_watermark = replica.high_watermark
            read.last_stable_offset = log.last_stable_offset(replica.high_watermark)
            read.log_start_offset = log.log_start_offset
            return
        end_offset = min(replica.end_offset, log.end_offset)
        diverging = None
        if want.last_fetched_epoch >= 0:
            epoch, epoch_end = log.end_of_epoch(want.last_fetched_epoch, end_offset)
            if epoch < 0 or want.fetch_offset < log.log_start_offset:
                read.code = ErrorCode.offset_out_of_range
                return
            if epoch < want.last_fetched_epoch or epoch_end < want.fetch_offset:
                diverging = epoch, epoch_end
        elif not log.log_start_offset <= want.fetch_offset <= end_offset:
            read.code = ErrorCode.offset_out_of_range
            return
        read.high_watermark = replica.high_watermark
        read.last_stable_offset = log.last_stable_offset(replica.high_watermark)
        read.log_start_offset = log.log_start_offset
        read.diverging_epoch = diverging
        if diverging is None:
            limit = read.last_stable_offset if self._request.read_committed else read.high_watermark
            self._collect(partition, want, read, limit, min(want.max_bytes, left), at_least_one=at_least_one)

    def _preferred_replica(self, partition: Partition, want: PartitionFetch) -> int:
        """Return the replica that a ``RackAwareReplicaSelector`` names; -1: the leader, or no selector is set.

        Source: ReplicaManager.findPreferredReadReplica, RackAwareReplicaSelector.
        """
        rack, nodes = self._request.rack, self._state.nodes
        selects = str(self._state.broker_config["replica.selector.class"]).endswith("RackAwareReplicaSelector")
        if not selects or not rack or partition.leader != self._node or nodes[self._node].rack == rack:
            return -1
        near = [
            node
            for node in partition.isr
            if nodes[node].rack == rack
            and nodes[node].registered
            and partition.log.log_start_offset <= want.fetch_offset <= partition.replicas[node].end_offset
        ]
        return max(near, key=lambda node: partition.replicas[node].end_offset, default=-1)

    def _collect(
        self, partition: Partition, want: PartitionFetch, read: _Read, limit: int, max_bytes: int, *, at_least_one: bool
    ) -> None:
        end_offset = want.fetch_offset
        for batch in partition.log.from_offset(want.fetch_offset, limit):
            raw = batch.raw
            if not read.parts:
                limit_of_segment = partition.log.segment_end(batch.base_offset)
                if len(raw) > max_bytes and not at_least_one:
                    break
                max_bytes = max(max_bytes, len(raw))
            elif batch.base_offset >= limit_of_segment:
                break
            end_offset = batch.last_offset + 1
            read.parts.append(raw[: max_bytes - read.size])  # the last batch is cut where the bytes end
            read.size += len(read.parts[-1])
            if read.size >= max_bytes:
                break
        if self._request.read_committed and read.parts:
            read.aborted = partition.log.aborted_within(want.fetch_offset, end_offset)


def _fetch_reply(reads: Sequence[_Read]) -> FetchReply:
    frame = bytearray(_FRAME_HEAD_BYTES + sum(read.size for read in reads))
    view = memoryview(frame)
    at = _FRAME_HEAD_BYTES
    partitions = []
    for read in reads:
        begin = at
        for part in read.parts:
            frame_end = at + len(part)
            view[at:frame_end] = part
            at = frame_end
        partitions.append(
            FetchedPartition(
                read.name,
                read.index,
                int(read.code),
                read.high_watermark,
                read.last_stable_offset,
                read.log_start_offset,
                view[begin:at],
                read.aborted,
                read.diverging_epoch,
                read.preferred_replica,
            )
        )
    return FetchReply(partitions, size_bytes=len(frame))
