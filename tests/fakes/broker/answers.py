"""A broker's answers to the requests that never wait: metadata, offsets, coordinators, topics.

Source: KafkaApis, ReplicationControlManager, ConfigHelper, Apache Kafka 4.3.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Final

from kio.schema.api_versions.v3.response import ApiVersion
from kio.schema.create_partitions.v3.response import CreatePartitionsTopicResult
from kio.schema.create_topics.v7.response import CreatableTopicConfigs, CreatableTopicResult
from kio.schema.describe_configs.v4.response import DescribeConfigsResourceResult, DescribeConfigsResult
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4.response import Coordinator as CoordinatorNode
from kio.schema.list_offsets.v7.response import ListOffsetsPartitionResponse, ListOffsetsTopicResponse
from kio.schema.metadata.v12.response import MetadataResponseBroker, MetadataResponsePartition
from kio.schema.offset_for_leader_epoch.v4.response import EpochEndOffset, OffsetForLeaderTopicResult
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64
from kio.static.protocol import Payload

from mm2py.kafka.messages import (
    AddPartitionsToTxnRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    ConsumerGroupDescribeRequest,
    CreatableTopic,
    CreateAclsRequest,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeAclsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    ListGroupsRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListTransactionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
)
from tests.fakes.broker.admin_answers import create_acls, describe_acls, incremental_alter_configs
from tests.fakes.broker.cluster_state import MAX_TOPIC_NAME, ClusterState, Topic
from tests.fakes.broker.consumer_groups import (
    consumer_group_describe,
    describe_groups,
    list_groups,
    offset_commit,
    offset_fetch,
)
from tests.fakes.broker.data_requests import check_leader_epoch, locate, resolve
from tests.fakes.broker.partition_model import NO_LEADER, Partition
from tests.fakes.broker.topic_config import TOPIC_DEFAULTS, BadConfig, parse_topic_config
from tests.fakes.broker.transaction_answers import (
    add_partitions_to_txn,
    describe_producers,
    end_txn,
    init_producer_id,
    list_transactions,
)

NO_THROTTLE: Final = i32Timedelta.parse(datetime.timedelta(0))
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3

_LEGAL_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]+")
_TRANSACTION_KEY: Final = 1
_TOPIC_RESOURCE: Final = 2
_BROKER_RESOURCE: Final = 4
_FROM_TOPIC: Final = 1
_FROM_BROKER_FILE: Final = 4
_FROM_DEFAULT: Final = 5

_SPOKEN: Final[Mapping[int, tuple[int, int]]] = {
    0: (3, 13),
    1: (4, 18),
    2: (1, 11),
    3: (0, 13),
    8: (2, 10),
    9: (1, 10),
    10: (0, 6),
    15: (0, 6),
    16: (0, 5),
    18: (0, 4),
    19: (2, 7),
    22: (0, 5),
    23: (2, 4),
    24: (0, 5),
    26: (0, 5),
    27: (1, 2),
    29: (1, 3),
    30: (1, 3),
    32: (1, 4),
    37: (0, 3),
    44: (0, 1),
    61: (0, 0),
    66: (0, 2),
    69: (0, 1),
}
"""API key to the versions that Kafka 4.3.1 answers."""


def answer(state: ClusterState, node: int, request: Payload) -> Payload:
    """Return the reply of broker ``node``, of the class that ``messages.REPLY_TO`` names."""
    match request:
        case MetadataRequest():
            return metadata(state, node, request)
        case ListOffsetsRequest():
            return list_offsets(state, node, request)
        case OffsetForLeaderEpochRequest():
            return offset_for_leader_epoch(state, node, request)
        case FindCoordinatorRequest():
            return find_coordinator(state, request)
        case InitProducerIdRequest():
            return init_producer_id(state, node, request)
        case CreateTopicsRequest():
            return create_topics(state, request)
        case CreatePartitionsRequest():
            return create_partitions(state, request)
        case DescribeConfigsRequest():
            return describe_configs(state, node, request)
        case ConsumerGroupDescribeRequest():
            return consumer_group_describe(state, node, request)
        case DescribeGroupsRequest():
            return describe_groups(state, node, request)
        case ListGroupsRequest():
            return list_groups(state, node, request)
        case OffsetFetchRequest():
            return offset_fetch(state, node, request)
        case OffsetCommitRequest():
            return offset_commit(state, node, request)
        case IncrementalAlterConfigsRequest():
            return incremental_alter_configs(state, request)
        case DescribeAclsRequest():
            return describe_acls(state, request)
        case CreateAclsRequest():
            return create_acls(state, request)
        case AddPartitionsToTxnRequest():
            return add_partitions_to_txn(state, node, request)
        case EndTxnRequest():
            return end_txn(state, node, request)
        case DescribeProducersRequest():
            return describe_producers(state, node, request)
        case ListTransactionsRequest():
            return list_transactions(state, node)
        case ApiVersionsRequest():
            return _api_versions()
    raise NotImplementedError(f"the broker model does not answer {type(request).__name__}")


# ---- metadata


def metadata(state: ClusterState, node: int, request: MetadataRequest) -> MetadataResponse:
    seen = state.topics_seen_by(node)
    if request.topics is None:
        topics = [
            _described_topic(state, node, topic) for name, topic in seen.items() if name not in state.denied_topics
        ]
    else:
        topics = [_asked_topic(state, node, seen, asked, request) for asked in request.topics]
    living = state.registered
    return MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=tuple(
            MetadataResponseBroker(
                node_id=BrokerId(number), host=state.nodes[number].host, port=i32(state.nodes[number].port)
            )
            for number in living
        ),
        cluster_id=state.cluster_id,
        controller_id=BrokerId(living[0] if living else -1),
        topics=tuple(topics),
    )


def _asked_topic(
    state: ClusterState,
    node: int,
    seen: Mapping[str, Topic],
    asked: MetadataRequestTopic,
    request: MetadataRequest,
) -> MetadataResponseTopic:
    if asked.topic_id is not None:
        topic = next((topic for topic in seen.values() if topic.id == asked.topic_id), None)
        if topic is None or topic.name in state.denied_topics:
            return MetadataResponseTopic(
                error_code=ErrorCode.unknown_topic_id, name=None, topic_id=asked.topic_id, partitions=()
            )
        return _described_topic(state, node, topic)
    name = asked.name or ""
    if name in state.denied_topics:
        code = ErrorCode.topic_authorization_failed
    elif name in seen:
        return _described_topic(state, node, seen[name])
    elif not is_legal_topic(name):
        code = ErrorCode.invalid_topic_exception
    elif name == "__transaction_state" and state.coordinator.transactional_ids:
        code = ErrorCode.leader_not_available  # the topic exists, but under another id
    else:
        code = ErrorCode.unknown_topic_or_partition
        automatic = state.broker_config["auto.create.topics.enable"] == "true"
        if request.allow_auto_topic_creation and automatic and name not in state.topics:
            state.create_topic(name, int(state.broker_config["num.partitions"]), visible_at_once=False)
    return MetadataResponseTopic(error_code=code, name=TopicName(name), topic_id=None, partitions=())


def _described_topic(state: ClusterState, node: int, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.none,
        name=TopicName(topic.name),
        topic_id=topic.id,
        is_internal=topic.name in {"__consumer_offsets", "__transaction_state"},
        partitions=tuple(
            MetadataResponsePartition(
                error_code=ErrorCode.leader_not_available if led.leader == NO_LEADER else ErrorCode.none,
                partition_index=i32(partition.index),
                leader_id=BrokerId(led.leader),
                leader_epoch=i32(led.leader_epoch),
                replica_nodes=tuple(BrokerId(replica) for replica in partition.replicas),
                isr_nodes=tuple(BrokerId(replica) for replica in led.isr),
                offline_replicas=tuple(
                    BrokerId(replica) for replica in partition.replicas if not state.nodes[replica].registered
                ),
            )
            for partition, led in state.partitions_seen_by(node, topic)
        ),
    )


def is_legal_topic(name: str) -> bool:
    return name not in {"", ".", ".."} and len(name) <= MAX_TOPIC_NAME and _LEGAL_TOPIC.fullmatch(name) is not None


# ---- offsets


def list_offsets(state: ClusterState, node: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    _listed_offset(state, node, topic.name, want, committed=request.isolation_level == 1)
                    for want in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def _listed_offset(
    state: ClusterState, node: int, name: str, want: ListOffsetsPartition, *, committed: bool
) -> ListOffsetsPartitionResponse:
    partition = _led_partition(state, node, name, want.partition_index, want.current_leader_epoch)
    if isinstance(partition, ErrorCode):
        return ListOffsetsPartitionResponse(partition_index=want.partition_index, error_code=partition)
    log, high_watermark = partition.log, partition.high_watermark
    fetchable = log.last_stable_offset(high_watermark) if committed else high_watermark
    lagging = partition.epoch_start_offset > high_watermark
    code, timestamp, offset, epoch = ErrorCode.none, -1, -1, -1
    if want.timestamp == EARLIEST:
        offset = log.log_start_offset
        epoch = log.epochs[0][0] if log.epochs and log.epochs[0][1] <= offset else -1
    elif want.timestamp == LATEST:
        if lagging:
            code = ErrorCode.offset_not_available
        else:
            offset, epoch = fetchable, partition.leader_epoch
    else:
        at_ms = int(want.timestamp)
        found = log.find_newest() if at_ms == MAX_TIMESTAMP else log.find_timestamp(at_ms)
        if found is not None and found.offset < fetchable:
            timestamp, offset, epoch = found.timestamp_ms, found.offset, found.partition_leader_epoch
        elif lagging:
            code = ErrorCode.offset_not_available
    return ListOffsetsPartitionResponse(
        partition_index=want.partition_index,
        error_code=code,
        timestamp=i64(timestamp),
        offset=i64(offset),
        leader_epoch=i32(epoch),
    )


def offset_for_leader_epoch(
    state: ClusterState, node: int, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=tuple(_epoch_end(state, node, topic.topic, want) for want in topic.partitions),
            )
            for topic in request.topics
        ),
    )


def _epoch_end(state: ClusterState, node: int, name: str, want: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = _led_partition(state, node, name, want.partition, want.current_leader_epoch)
    if isinstance(partition, ErrorCode):
        return EpochEndOffset(error_code=partition, partition=want.partition)
    epoch, end_offset = partition.log.end_of_epoch(want.leader_epoch, partition.log.end_offset)
    return EpochEndOffset(
        error_code=ErrorCode.none, partition=want.partition, leader_epoch=i32(epoch), end_offset=i64(end_offset)
    )


def _led_partition(
    state: ClusterState, node: int, name: str, index: int, current_leader_epoch: int
) -> Partition | ErrorCode:
    topic = resolve(state, node, name, None)
    if isinstance(topic, ErrorCode):
        return topic
    partition = locate(state, node, topic, index)
    if isinstance(partition, ErrorCode):
        return partition
    code = check_leader_epoch(partition, current_leader_epoch)
    if code:
        return code
    return partition if partition.leader == node else ErrorCode.not_leader_or_follower


# ---- coordinators


def find_coordinator(state: ClusterState, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        throttle_time=NO_THROTTLE,
        coordinators=tuple(_coordinator(state, request.key_type, key) for key in request.coordinator_keys),
    )


def _coordinator(state: ClusterState, key_type: int, key: str) -> CoordinatorNode:
    node = state.coordinator_of(key)
    of_group = key_type != _TRANSACTION_KEY
    code = ErrorCode.none
    if of_group and key in state.groups.denied:
        code = ErrorCode.group_authorization_failed
    elif node is None or not (state.groups.available if of_group else state.transactions_available):
        code = ErrorCode.coordinator_not_available
    if code or node is None:
        return CoordinatorNode(
            key=key, node_id=BrokerId(-1), host="", port=i32(-1), error_code=code, error_message=None
        )
    broker = state.nodes[node]
    return CoordinatorNode(
        key=key,
        node_id=BrokerId(node),
        host=broker.host,
        port=i32(broker.port),
        error_code=ErrorCode.none,
        error_message=None,
    )


# ---- topics


def create_topics(state: ClusterState, request: CreateTopicsRequest) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(_created(state, topic, validate_only=request.validate_only) for topic in request.topics),
    )


def _created(state: ClusterState, wanted: CreatableTopic, *, validate_only: bool) -> CreatableTopicResult:
    overrides = {config.name: config.value for config in wanted.configs if config.value is not None}
    partitions = int(state.broker_config["num.partitions"]) if wanted.num_partitions == -1 else wanted.num_partitions
    factor = wanted.replication_factor
    if factor == -1:
        factor = i16(min(int(state.broker_config["default.replication.factor"]), len(state.nodes)))
    code, message = _judge_topic(state, wanted.name, partitions, factor, overrides)
    if code:
        return CreatableTopicResult(name=wanted.name, topic_id=None, error_code=code, error_message=message, configs=())
    topic_id = None
    if not validate_only:
        topic_id = state.create_topic(
            wanted.name, partitions, overrides, replication_factor=factor, visible_at_once=False
        )
    return CreatableTopicResult(
        name=wanted.name,
        topic_id=topic_id,
        error_code=ErrorCode.none,
        error_message=None,
        num_partitions=i32(partitions),
        replication_factor=i16(factor),
        configs=tuple(
            CreatableTopicConfigs(
                name=name,
                value=overrides.get(name, default),
                read_only=False,
                config_source=i8(_FROM_TOPIC if name in overrides else _FROM_DEFAULT),
                is_sensitive=False,
            )
            for name, default in TOPIC_DEFAULTS.items()
        ),
    )


def _judge_topic(
    state: ClusterState, name: str, partitions: int, factor: int, overrides: Mapping[str, str]
) -> tuple[ErrorCode, str | None]:
    if name in state.denied_topics:
        return ErrorCode.topic_authorization_failed, "Authorization failed."
    if not is_legal_topic(name):
        return ErrorCode.invalid_topic_exception, f"Topic name is invalid: '{name}'"
    if name in state.topics:
        return ErrorCode.topic_already_exists, f"Topic '{name}' already exists."
    colliding = [other for other in state.topics if other.replace(".", "_") == name.replace(".", "_")]
    if colliding:
        return ErrorCode.invalid_topic_exception, f"Topic '{name}' collides with existing topic: {colliding[0]}"
    if partitions < 1:
        return ErrorCode.invalid_partitions, "Number of partitions was set to an invalid non-positive value."
    if factor < 1:
        return ErrorCode.invalid_replication_factor, "Replication factor must be larger than 0."
    if factor > len(state.nodes):  # a stopped broker counts: it gets its replica when it is back
        return ErrorCode.invalid_replication_factor, f"Unable to replicate the partition {factor} time(s)"
    unknown = state.unknown_configs & overrides.keys()
    if unknown:
        return ErrorCode.invalid_config, f"Unknown topic config name: {min(unknown)}"
    try:
        parse_topic_config(overrides)
    except BadConfig as cause:
        return ErrorCode.invalid_config, str(cause)
    return ErrorCode.none, None


def create_partitions(state: ClusterState, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(_widened(state, topic, validate_only=request.validate_only) for topic in request.topics),
    )


def _widened(state: ClusterState, wanted: CreatePartitionsTopic, *, validate_only: bool) -> CreatePartitionsTopicResult:
    topic = state.topics.get(wanted.name)
    code, message = ErrorCode.none, None
    if wanted.name in state.denied_topics:
        code = ErrorCode.topic_authorization_failed
    elif topic is None:
        code = ErrorCode.unknown_topic_or_partition
    elif wanted.count <= len(topic.partitions):
        code = ErrorCode.invalid_partitions
        message = f"Topic currently has {len(topic.partitions)} partitions, {wanted.count} would not be an increase."
    elif not validate_only:
        state.add_partitions(wanted.name, wanted.count, visible_at_once=False)
    return CreatePartitionsTopicResult(name=wanted.name, error_code=code, error_message=message)


def describe_configs(state: ClusterState, node: int, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(_described_configs(state, node, resource) for resource in request.resources),
    )


def _described_configs(state: ClusterState, node: int, resource: DescribeConfigsResource) -> DescribeConfigsResult:
    code, message = ErrorCode.none, None
    values: dict[str, tuple[str, int]] = {}
    name = resource.resource_name
    if resource.resource_type == _TOPIC_RESOURCE:
        topic = state.topics_seen_by(node).get(name)
        if name in state.denied_topics or name in state.hidden_configs:
            code = ErrorCode.topic_authorization_failed
        elif topic is None:
            code = ErrorCode.unknown_topic_or_partition
        else:
            values = {key: (value, _FROM_DEFAULT) for key, value in TOPIC_DEFAULTS.items()}
            values |= {key: (value, _FROM_TOPIC) for key, value in topic.overrides.items()}
    elif resource.resource_type == _BROKER_RESOURCE and name in {"", str(node)}:
        values = {key: (value, _FROM_BROKER_FILE) for key, value in state.broker_config.items()}
    else:
        code, message = ErrorCode.invalid_request, f"Unexpected broker id, expected {node} or empty string: {name}"
    keys = resource.configuration_keys or None
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=name,
        configs=tuple(
            DescribeConfigsResourceResult(
                name=key,
                value=value,
                read_only=False,
                config_source=i8(source),
                is_sensitive=False,
                synonyms=(),
                documentation=None,
            )
            for key, (value, source) in values.items()
            if keys is None or key in keys
        ),
    )


def _api_versions() -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=ErrorCode.none,
        api_keys=tuple(
            ApiVersion(api_key=i16(key), min_version=i16(lowest), max_version=i16(highest))
            for key, (lowest, highest) in _SPOKEN.items()
        ),
        throttle_time=NO_THROTTLE,
    )
