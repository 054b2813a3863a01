"""The Kafka messages mm2py sends, each in one version that every broker from 3.3 to 4.3 speaks.

Fetch and Produce are missing: they carry record batches and have a codec of their own (``wire.py``), which chooses the
version per connection. For the rest one fixed version inside the brokers' common range needs no conversion; a broker
outside it is refused by name and version (``UnsupportedVersion``).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.api_versions.v3.response import ApiVersionsResponse
from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse
from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.describe_groups.v5.response import DescribeGroupsResponse
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.init_producer_id.v4.response import InitProducerIdResponse
from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.list_offsets.v7.response import ListOffsetsResponse
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse, MetadataResponseTopic
from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kio.schema.offset_for_leader_epoch.v4.response import OffsetForLeaderEpochResponse
from kio.static.protocol import Payload

__all__ = (
    "REPLY_TO",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "CreatableTopic",
    "CreatableTopicConfig",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreatePartitionsTopic",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "DescribeConfigsRequest",
    "DescribeConfigsResource",
    "DescribeConfigsResponse",
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
    "InitProducerIdRequest",
    "InitProducerIdResponse",
    "ListOffsetsPartition",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListOffsetsTopic",
    "MetadataRequest",
    "MetadataRequestTopic",
    "MetadataResponse",
    "MetadataResponseTopic",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "OffsetForLeaderPartition",
    "OffsetForLeaderTopic",
)

REPLY_TO: Final[Mapping[type[Payload], type[Payload]]] = MappingProxyType(
    {
        ApiVersionsRequest: ApiVersionsResponse,
        CreatePartitionsRequest: CreatePartitionsResponse,
        CreateTopicsRequest: CreateTopicsResponse,
        DescribeConfigsRequest: DescribeConfigsResponse,
        DescribeGroupsRequest: DescribeGroupsResponse,
        FindCoordinatorRequest: FindCoordinatorResponse,
        InitProducerIdRequest: InitProducerIdResponse,
        ListOffsetsRequest: ListOffsetsResponse,
        MetadataRequest: MetadataResponse,
        OffsetForLeaderEpochRequest: OffsetForLeaderEpochResponse,
    }
)
"""Which reply answers which request; the brokers' port returns exactly these."""
