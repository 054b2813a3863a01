"""How transaction markers get into the logs: through a coordinator, after its answer, or by a request.

A coordinator skips a partition without leader as if it were deleted (docs/broker-facts.md#c3). It gives up a whole
transaction as soon as one partition refuses its marker: the transaction stays PrepareAbort for ever.
Source: TransactionMarkerChannelManager, KafkaApis.handleWriteTxnMarkersRequest, Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kio.schema.errors import ErrorCode
from kio.schema.write_txn_markers.v1.response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
)
from kio.static.primitive import i32

from mm2py.kafka.messages import WritableTxnMarker, WriteTxnMarkersRequest, WriteTxnMarkersResponse
from tests.fakes.broker.cluster_state import ClusterState, Topic
from tests.fakes.broker.data_requests import Pending, locate
from tests.fakes.broker.partition_model import NO_LEADER, Partition
from tests.fakes.broker.producer_state import Refused

_ROUND_S: Final = (0.001, 0.02)
"""Range of the time in which a coordinator sends markers, or learns that they are replicated."""
_MARKER_RIGHTS: Final = frozenset({"ALTER", "CLUSTER_ACTION"})
_TIMEOUT_S: Final = 30.0


def write_markers_later(state: ClusterState, transactional_id: str) -> None:
    """Let the coordinator write the abort markers of a transaction and complete it, both after it has answered."""
    _Ending(state, transactional_id).later()


@dataclass(slots=True)
class _Written:
    """A marker on its leader. It is written again if the leader changes before the marker is replicated."""

    offset: int
    leader_epoch: int


class _Ending:
    def __init__(self, state: ClusterState, transactional_id: str) -> None:
        self._state = state
        self._transaction = state.coordinator.transactional_ids[transactional_id]
        self._written: dict[tuple[str, int], _Written] = {}

    def later(self) -> None:
        self._state.later(self._state.draw_s(*_ROUND_S), self._go_on)

    def _go_on(self) -> None:
        for place in list(self._transaction.partitions):
            try:
                if self._is_done(place):
                    del self._transaction.partitions[place]
            except Refused:
                return
        if self._transaction.partitions:
            self.later()
        else:
            self._transaction.complete(self._state.clock.wall_ms())

    def _is_done(self, place: tuple[str, int]) -> bool:
        """Write the marker of one partition if needed. Return whether it is replicated, or not needed any more."""
        name, index = place
        topic = self._state.topics.get(name)
        if topic is None or index >= len(topic.partitions) or topic.partitions[index].leader == NO_LEADER:
            return True
        partition = topic.partitions[index]
        written = self._written.get(place)
        if written is not None and written.leader_epoch == partition.leader_epoch:
            return partition.high_watermark > written.offset
        if not self._state.nodes[partition.leader].up or len(partition.isr) < topic.config.min_insync_replicas:
            return False
        offset = partition.append_marker(
            commit=False,
            producer_id=self._transaction.producer_id,
            producer_epoch=self._transaction.producer_epoch,
            now_ms=self._state.clock.wall_ms(),
        )
        self._written[place] = _Written(offset, partition.leader_epoch)
        self._state.replicate_later(partition)
        return partition.high_watermark > offset


@dataclass(slots=True)
class _Asked:
    """One marker of a request for one partition."""

    code: ErrorCode = ErrorCode.none
    topic: Topic | None = None
    partition: Partition | None = None
    offset: int = -1

    @property
    def waits(self) -> bool:
        return self.partition is not None and self.code is ErrorCode.none


class PendingMarkers(Pending):
    """A WriteTxnMarkers request: writes on the leader at once, answers when every replica in sync has the markers."""

    def __init__(
        self, state: ClusterState, node: int, request: WriteTxnMarkersRequest, done: Callable[[object], None]
    ) -> None:
        super().__init__(done)
        self._state = state
        self._node = node
        self._request = request
        self._asked = {
            (number, str(topic.name), int(index)): self._write(marker, str(topic.name), int(index))
            for number, marker in enumerate(request.markers)
            for topic in marker.topics
            for index in topic.partition_indexes
        }
        self._check()
        if not self.over:
            self._wait([one.partition for one in self._asked.values() if one.partition is not None], _TIMEOUT_S)

    def _write(self, marker: WritableTxnMarker, name: str, index: int) -> _Asked:
        if self._state.denied_on_cluster >= _MARKER_RIGHTS:
            return _Asked(ErrorCode.cluster_authorization_failed)
        topic = self._state.topics.get(name)
        if topic is None:
            return _Asked(ErrorCode.unknown_topic_or_partition)
        partition = locate(self._state, self._node, topic, index)
        if isinstance(partition, ErrorCode):
            return _Asked(
                ErrorCode.unknown_topic_or_partition
            )  # a broker without a replica does not know the partition
        if partition.leader != self._node:
            return _Asked(ErrorCode.not_leader_or_follower)
        if len(partition.isr) < topic.config.min_insync_replicas:
            return _Asked(ErrorCode.not_enough_replicas)
        try:
            offset = partition.append_marker(
                commit=marker.transaction_result,
                producer_id=int(marker.producer_id),
                producer_epoch=int(marker.producer_epoch),
                now_ms=self._state.clock.wall_ms(),
                coordinator_epoch=int(marker.coordinator_epoch),
            )
        except Refused as refused:
            return _Asked(refused.code)
        self._state.replicate_later(partition)
        return _Asked(ErrorCode.none, topic, partition, offset)

    def _check(self) -> None:
        waiting = False
        for one in self._asked.values():
            if not one.waits or one.partition is None or one.topic is None:
                continue
            if self._state.topics.get(one.topic.name) is not one.topic:
                one.code = ErrorCode.unknown_topic_or_partition
            elif one.partition.leader != self._node:
                one.code = ErrorCode.not_leader_or_follower
            elif one.partition.high_watermark <= one.offset:
                waiting = True
        if not waiting:
            self._finish(self._reply())

    def _expired(self) -> None:
        for one in self._asked.values():
            if one.waits and one.partition is not None and one.partition.high_watermark <= one.offset:
                one.code = ErrorCode.request_timed_out
        self._finish(self._reply())

    def _reply(self) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(
            markers=tuple(
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=tuple(
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=tuple(
                                WritableTxnMarkerPartitionResult(
                                    partition_index=i32(index),
                                    error_code=self._asked[number, str(topic.name), int(index)].code,
                                )
                                for index in topic.partition_indexes
                            ),
                        )
                        for topic in marker.topics
                    ),
                )
                for number, marker in enumerate(self._request.markers)
            )
        )
