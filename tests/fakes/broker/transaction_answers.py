"""A broker's answers about producer ids and transactions; the markers themselves are in ``marker_model.py``.

Source: KafkaApis, TransactionCoordinator, ReplicaManager.activeProducerState, Apache Kafka 4.3.
"""

from __future__ import annotations

import datetime
from functools import partial
from typing import Final

from kio.schema.add_partitions_to_txn.v3.response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnTopicResult,
)
from kio.schema.describe_producers.v0.response import PartitionResponse, ProducerState, TopicResponse
from kio.schema.errors import ErrorCode
from kio.schema.list_transactions.v0.response import TransactionState as ListedState
from kio.schema.types import ProducerId, TransactionalId
from kio.static.primitive import i16, i32, i32Timedelta, i64

from mm2py.kafka.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsResponse,
)
from tests.fakes.broker.cluster_state import ClusterState
from tests.fakes.broker.coordinator_model import TransactionState
from tests.fakes.broker.data_requests import locate, resolve
from tests.fakes.broker.marker_model import write_markers_later
from tests.fakes.broker.producer_state import Refused

_NO_THROTTLE: Final = i32Timedelta.parse(datetime.timedelta(0))


def init_producer_id(state: ClusterState, node: int, request: InitProducerIdRequest) -> InitProducerIdResponse:
    transactional_id = request.transactional_id
    timeout_ms = request.transaction_timeout // datetime.timedelta(milliseconds=1)
    expected = None if request.producer_id < 0 else (int(request.producer_id), int(request.producer_epoch))
    code, producer_id, epoch = ErrorCode.none, -1, -1
    if transactional_id and state.coordinator_of(transactional_id) != node:
        code = ErrorCode.not_coordinator
    elif transactional_id and not state.transactions_available:
        code = ErrorCode.coordinator_not_available
    elif transactional_id and not 0 < timeout_ms <= int(state.broker_config["transaction.max.timeout.ms"]):
        code = ErrorCode.invalid_transaction_timeout
    else:
        now_ms = state.clock.wall_ms()
        open_before = transactional_id is not None and _is_ongoing(state, transactional_id)
        try:
            producer_id, epoch = state.coordinator.init_producer_id(
                transactional_id, expected=expected, now_ms=now_ms, timeout_ms=timeout_ms
            )
        except Refused as refused:
            code = refused.code
        if open_before and transactional_id is not None and not _is_ongoing(state, transactional_id):
            write_markers_later(state, transactional_id)
    return InitProducerIdResponse(
        throttle_time=_NO_THROTTLE, error_code=code, producer_id=ProducerId(producer_id), producer_epoch=i16(epoch)
    )


def _is_ongoing(state: ClusterState, transactional_id: str) -> bool:
    known = state.coordinator.lookup(transactional_id, now_ms=state.clock.wall_ms())
    return known is not None and known.state is TransactionState.ONGOING


def add_partitions_to_txn(
    state: ClusterState, node: int, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    places = [(str(topic.name), int(index)) for topic in request.v3_and_below_topics for index in topic.partitions]
    codes = {place: _addable(state, node, place) for place in places}
    if any(codes.values()):  # all or nothing, and before the coordinator is asked (docs/broker-facts.md#h8)
        codes = {place: code or ErrorCode.operation_not_attempted for place, code in codes.items()}
    else:
        code = _added(state, node, request, places)
        codes = dict.fromkeys(places, code)
    return AddPartitionsToTxnResponse(
        throttle_time=_NO_THROTTLE,
        results_by_topic_v3_and_below=tuple(
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=tuple(
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=codes[str(topic.name), int(index)]
                    )
                    for index in topic.partitions
                ),
            )
            for topic in request.v3_and_below_topics
        ),
    )


def _addable(state: ClusterState, node: int, place: tuple[str, int]) -> ErrorCode:
    name, index = place
    if name in state.denied_topics or name in state.unwritable_topics:
        return ErrorCode.topic_authorization_failed
    topic = state.topics_seen_by(node).get(name)
    if topic is None or not 0 <= index < len(topic.partitions) or not state.is_visible(node, topic, index):
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.none


def _added(
    state: ClusterState, node: int, request: AddPartitionsToTxnRequest, places: list[tuple[str, int]]
) -> ErrorCode:
    transactional_id = str(request.v3_and_below_transactional_id)
    owner = int(request.v3_and_below_producer_id), int(request.v3_and_below_producer_epoch)
    if transactional_id and not _coordinates(state, node, transactional_id):
        return ErrorCode.not_coordinator
    try:
        begun = state.coordinator.add_partitions(transactional_id, owner, places, now_ms=state.clock.wall_ms())
    except Refused as refused:
        return refused.code
    if begun:
        _abort_when_too_long(state, transactional_id)
    return ErrorCode.none


def _coordinates(state: ClusterState, node: int, transactional_id: str) -> bool:
    return state.transactions_available and state.coordinator_of(transactional_id) == node


def _abort_when_too_long(state: ClusterState, transactional_id: str) -> None:
    """Abort a transaction at the first periodic check after its time-out, if it is still open then."""
    known = state.coordinator.transactional_ids[transactional_id]
    started_at_ms = known.started_at_ms
    interval_s = int(state.broker_config["transaction.abort.timed.out.transaction.cleanup.interval.ms"]) / 1000
    due_s = state.clock.monotonic() + known.timeout_ms / 1000
    check_s = (due_s // interval_s + 1) * interval_s

    def check() -> None:
        if known.state is TransactionState.ONGOING and known.started_at_ms == started_at_ms:
            known.fence(state.clock.wall_ms())
            write_markers_later(state, transactional_id)

    state.later(check_s - state.clock.monotonic(), check)


def end_txn(state: ClusterState, node: int, request: EndTxnRequest) -> EndTxnResponse:
    assert not request.committed, "the model only aborts: mm2py commits nothing"
    transactional_id = str(request.transactional_id)
    owner = int(request.producer_id), int(request.producer_epoch)
    code = ErrorCode.none
    if transactional_id and not _coordinates(state, node, transactional_id):
        code = ErrorCode.not_coordinator
    else:
        try:
            if state.coordinator.end(transactional_id, owner, now_ms=state.clock.wall_ms()):
                write_markers_later(state, transactional_id)
        except Refused as refused:
            code = refused.code
    return EndTxnResponse(throttle_time=_NO_THROTTLE, error_code=code)


def list_transactions(state: ClusterState, node: int) -> ListTransactionsResponse:
    lookup = partial(state.coordinator.lookup, now_ms=state.clock.wall_ms())
    known = {name: lookup(name) for name in sorted(state.coordinator.transactional_ids)}
    return ListTransactionsResponse(
        throttle_time=_NO_THROTTLE,
        error_code=ErrorCode.none,
        unknown_state_filters=(),
        transaction_states=tuple(
            ListedState(
                transactional_id=TransactionalId(name),
                producer_id=ProducerId(one.producer_id),
                transaction_state=one.state.value,
            )
            for name, one in known.items()
            if one is not None and _coordinates(state, node, name)
        ),
    )


def describe_producers(state: ClusterState, node: int, request: DescribeProducersRequest) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        throttle_time=_NO_THROTTLE,
        topics=tuple(
            TopicResponse(
                name=topic.name,
                partitions=tuple(
                    _described_producers(state, node, str(topic.name), int(index)) for index in topic.partition_indexes
                ),
            )
            for topic in request.topics
        ),
    )


def _described_producers(state: ClusterState, node: int, name: str, index: int) -> PartitionResponse:
    topic = resolve(state, node, name, None)
    partition = topic if isinstance(topic, ErrorCode) else locate(state, node, topic, index)
    if isinstance(partition, ErrorCode):
        return PartitionResponse(partition_index=i32(index), error_code=partition, active_producers=())
    table = partition.replicas[node].table
    table.tick(state.clock.wall_ms())
    return PartitionResponse(
        partition_index=i32(index),
        error_code=ErrorCode.none,
        active_producers=tuple(
            ProducerState(
                producer_id=ProducerId(producer_id),
                producer_epoch=i32(producer.epoch),
                last_sequence=i32(producer.last_sequence),
                last_timestamp=i64(producer.last_timestamp),
                coordinator_epoch=i32(producer.coordinator_epoch),
                current_txn_start_offset=i64(
                    -1 if producer.transaction_first_offset is None else producer.transaction_first_offset
                ),
            )
            for producer_id, producer in table.producers.items()
        ),
    )
