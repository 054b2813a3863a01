"""The Kafka messages mm2py sends, each in one version that every broker from 3.3 to 4.4 speaks.

Fetch and Produce are missing: they carry record batches and have a codec of their own (``wire.py``), which chooses the
version per connection. For the other messages one fixed version that all these brokers speak needs no conversion. A
broker that does not speak it is refused by name and version (``UnsupportedVersion``). ConsumerGroupDescribe is the
exception: brokers before 3.7 do not know it, and have no groups that need it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kio.schema.add_partitions_to_txn.v3.request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kio.schema.add_partitions_to_txn.v3.response import AddPartitionsToTxnResponse
from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.api_versions.v3.response import ApiVersionsResponse
from kio.schema.consumer_group_describe.v0.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v0.response import ConsumerGroupDescribeResponse
from kio.schema.create_acls.v2.request import AclCreation, CreateAclsRequest
from kio.schema.create_acls.v2.response import CreateAclsResponse
from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse
from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.delete_acls.v2.request import DeleteAclsFilter, DeleteAclsRequest
from kio.schema.delete_acls.v2.response import DeleteAclsResponse
from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeleteGroupsResponse
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.delete_topics.v6.response import DeleteTopicsResponse
from kio.schema.describe_acls.v2.request import DescribeAclsRequest
from kio.schema.describe_acls.v2.response import DescribeAclsResponse
from kio.schema.describe_cluster.v0.request import DescribeClusterRequest
from kio.schema.describe_cluster.v0.response import DescribeClusterResponse
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse
from kio.schema.describe_groups.v5.request import DescribeGroupsRequest
from kio.schema.describe_groups.v5.response import DescribeGroupsResponse
from kio.schema.describe_log_dirs.v4.request import DescribableLogDirTopic, DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v4.response import DescribeLogDirsResponse
from kio.schema.describe_producers.v0.request import DescribeProducersRequest
from kio.schema.describe_producers.v0.request import TopicRequest as DescribeProducersTopic
from kio.schema.describe_producers.v0.response import DescribeProducersResponse
from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import DescribeTransactionsResponse
from kio.schema.end_txn.v3.request import EndTxnRequest
from kio.schema.end_txn.v3.response import EndTxnResponse
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.init_producer_id.v4.response import InitProducerIdResponse
from kio.schema.list_groups.v4.request import ListGroupsRequest
from kio.schema.list_groups.v4.response import ListGroupsResponse
from kio.schema.list_offsets.v7.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.list_offsets.v7.response import ListOffsetsResponse
from kio.schema.list_transactions.v0.request import ListTransactionsRequest
from kio.schema.list_transactions.v0.response import ListTransactionsResponse
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse, MetadataResponseTopic
from kio.schema.offset_commit.v8.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_commit.v8.response import OffsetCommitResponse
from kio.schema.offset_fetch.v8.request import OffsetFetchRequest, OffsetFetchRequestGroup
from kio.schema.offset_fetch.v8.response import OffsetFetchResponse, OffsetFetchResponseGroup
from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kio.schema.offset_for_leader_epoch.v4.response import OffsetForLeaderEpochResponse
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse
from kio.schema.write_txn_markers.v1.request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kio.schema.write_txn_markers.v1.response import WriteTxnMarkersResponse
from kio.static.protocol import Payload

__all__ = (
    "REPLY_TO",
    "AclCreation",
    "AddPartitionsToTxnRequest",
    "AddPartitionsToTxnResponse",
    "AddPartitionsToTxnTopic",
    "AlterConfigsResource",
    "AlterableConfig",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    "CreatableTopic",
    "CreatableTopicConfig",
    "CreateAclsRequest",
    "CreateAclsResponse",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreatePartitionsTopic",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "DeleteAclsFilter",
    "DeleteAclsRequest",
    "DeleteAclsResponse",
    "DeleteGroupsRequest",
    "DeleteGroupsResponse",
    "DeleteTopicState",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "DescribableLogDirTopic",
    "DescribeAclsRequest",
    "DescribeAclsResponse",
    "DescribeClusterRequest",
    "DescribeClusterResponse",
    "DescribeConfigsRequest",
    "DescribeConfigsResource",
    "DescribeConfigsResponse",
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "DescribeLogDirsRequest",
    "DescribeLogDirsResponse",
    "DescribeProducersRequest",
    "DescribeProducersResponse",
    "DescribeProducersTopic",
    "DescribeTransactionsRequest",
    "DescribeTransactionsResponse",
    "EndTxnRequest",
    "EndTxnResponse",
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
    "IncrementalAlterConfigsRequest",
    "IncrementalAlterConfigsResponse",
    "InitProducerIdRequest",
    "InitProducerIdResponse",
    "ListGroupsRequest",
    "ListGroupsResponse",
    "ListOffsetsPartition",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListOffsetsTopic",
    "ListTransactionsRequest",
    "ListTransactionsResponse",
    "MetadataRequest",
    "MetadataRequestTopic",
    "MetadataResponse",
    "MetadataResponseTopic",
    "OffsetCommitRequest",
    "OffsetCommitRequestPartition",
    "OffsetCommitRequestTopic",
    "OffsetCommitResponse",
    "OffsetFetchRequest",
    "OffsetFetchRequestGroup",
    "OffsetFetchResponse",
    "OffsetFetchResponseGroup",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "OffsetForLeaderPartition",
    "OffsetForLeaderTopic",
    "SaslAuthenticateRequest",
    "SaslAuthenticateResponse",
    "SaslHandshakeRequest",
    "SaslHandshakeResponse",
    "WritableTxnMarker",
    "WritableTxnMarkerTopic",
    "WriteTxnMarkersRequest",
    "WriteTxnMarkersResponse",
)

REPLY_TO: Final[Mapping[type[Payload], type[Payload]]] = MappingProxyType(
    {
        AddPartitionsToTxnRequest: AddPartitionsToTxnResponse,
        ApiVersionsRequest: ApiVersionsResponse,
        ConsumerGroupDescribeRequest: ConsumerGroupDescribeResponse,
        CreateAclsRequest: CreateAclsResponse,
        CreatePartitionsRequest: CreatePartitionsResponse,
        CreateTopicsRequest: CreateTopicsResponse,
        DeleteAclsRequest: DeleteAclsResponse,
        DeleteGroupsRequest: DeleteGroupsResponse,
        DeleteTopicsRequest: DeleteTopicsResponse,
        DescribeAclsRequest: DescribeAclsResponse,
        DescribeClusterRequest: DescribeClusterResponse,
        DescribeConfigsRequest: DescribeConfigsResponse,
        DescribeGroupsRequest: DescribeGroupsResponse,
        DescribeLogDirsRequest: DescribeLogDirsResponse,
        DescribeProducersRequest: DescribeProducersResponse,
        DescribeTransactionsRequest: DescribeTransactionsResponse,
        EndTxnRequest: EndTxnResponse,
        FindCoordinatorRequest: FindCoordinatorResponse,
        IncrementalAlterConfigsRequest: IncrementalAlterConfigsResponse,
        InitProducerIdRequest: InitProducerIdResponse,
        ListGroupsRequest: ListGroupsResponse,
        ListOffsetsRequest: ListOffsetsResponse,
        ListTransactionsRequest: ListTransactionsResponse,
        MetadataRequest: MetadataResponse,
        OffsetCommitRequest: OffsetCommitResponse,
        OffsetFetchRequest: OffsetFetchResponse,
        OffsetForLeaderEpochRequest: OffsetForLeaderEpochResponse,
        SaslAuthenticateRequest: SaslAuthenticateResponse,
        SaslHandshakeRequest: SaslHandshakeResponse,
        WriteTxnMarkersRequest: WriteTxnMarkersResponse,
    }
)
"""The reply class of each request class; the brokers' port returns exactly these."""
