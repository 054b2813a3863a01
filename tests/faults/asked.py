"""Administrative requests that librdkafka does not offer: quotas, reassignments, the present coordinator.

Each call is one connection and one request; contents are written and read by kio, not by mm2py's code.
"""

from __future__ import annotations

import datetime
import io
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest, EntityData, EntryData, OpData
from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse
from kio.schema.alter_partition_reassignments.v0.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.alter_partition_reassignments.v0.response import AlterPartitionReassignmentsResponse
from kio.schema.describe_quorum.v1.request import DescribeQuorumRequest, PartitionData, TopicData
from kio.schema.describe_quorum.v1.response import DescribeQuorumResponse
from kio.schema.list_transactions.v0.request import ListTransactionsRequest
from kio.schema.list_transactions.v0.response import ListTransactionsResponse
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import f64, i16, i32, i32Timedelta
from kio.static.protocol import Payload

from deploy.local.kafka import Broker, KafkaCluster
from tests.cluster.running import ANSWER_S, wait_until

_CORRELATION: Final = 7
_HEADER_BYTES: Final = 5
"""Correlation id and an empty list of tags, before the body of a reply."""
R = TypeVar("R", bound=Payload)


def ask(broker: Broker, request: Payload, reply: type[R]) -> R:
    """Send one request to one broker and return its reply.

    Raises:
        OSError: the broker is unreachable, or does not answer in time.
    """
    with socket.create_connection((broker.address.host, broker.port), timeout=ANSWER_S) as connection:
        header = RequestHeader(
            request_api_key=i16(request.__api_key__),
            request_api_version=i16(request.__version__),
            correlation_id=i32(_CORRELATION),
            client_id="tests-ask",
        )
        out = io.BytesIO()
        entity_writer(RequestHeader)(out, header)
        entity_writer(type(request))(out, request)
        connection.sendall(struct.pack(">i", len(out.getvalue())) + out.getvalue())
        stream = connection.makefile("rb")
        frame = stream.read(struct.unpack(">i", stream.read(4))[0])
        return entity_reader(reply)(frame, _HEADER_BYTES)[0]


def ask_any(cluster: KafkaCluster, request: Payload, reply: type[R]) -> R:
    """As ``ask``, of the first broker that answers, which forwards requests for the controller."""

    def asked() -> list[R]:
        for broker in cluster.brokers:
            with suppress(OSError, struct.error):
                return [ask(broker, request, reply)]
        return []

    return wait_until(asked, f"a broker answers {type(request).__name__}")[0]


# Leaders and coordinators


def active_controller(cluster: KafkaCluster) -> Broker:
    """Return the node that leads the controllers."""
    metadata = TopicData(
        topic_name=TopicName("__cluster_metadata"), partitions=(PartitionData(partition_index=i32(0)),)
    )

    def leader() -> Broker | None:
        reply = ask_any(cluster, DescribeQuorumRequest(topics=(metadata,)), DescribeQuorumResponse)
        node_id = int(reply.topics[0].partitions[0].leader_id)
        return cluster.broker(node_id) if node_id >= 0 else None

    return wait_until(leader, "there is a controller")


def coordinator_of(cluster: KafkaCluster, prefix: str) -> Broker:
    """Return the broker that coordinates the transactional id with this prefix; there is only one such id."""
    request = ListTransactionsRequest(state_filters=(), producer_id_filters=())

    def coordinator() -> Broker | None:
        for broker in cluster.brokers:
            found = ask(broker, request, ListTransactionsResponse).transaction_states
            if any(state.transactional_id.startswith(prefix) for state in found):
                return broker
        return None

    return wait_until(coordinator, f"there is a transactional id {prefix}...")


# Reassignments


def reassign(cluster: KafkaCluster, replicas: Mapping[tuple[str, int], Sequence[int]]) -> None:
    """Start to move partitions to these brokers, the preferred leader first."""
    by_topic: dict[str, list[ReassignablePartition]] = {}
    for (topic, number), node_ids in replicas.items():
        wanted = tuple(BrokerId(node_id) for node_id in node_ids)
        by_topic.setdefault(topic, []).append(ReassignablePartition(partition_index=i32(number), replicas=wanted))
    topics = tuple(ReassignableTopic(name=TopicName(topic), partitions=tuple(of)) for topic, of in by_topic.items())
    timeout = i32Timedelta.parse(datetime.timedelta(seconds=ANSWER_S))
    request = AlterPartitionReassignmentsRequest(timeout=timeout, topics=topics)
    reply = ask_any(cluster, request, AlterPartitionReassignmentsResponse)
    assert not int(reply.error_code), reply


# Quotas


@contextmanager
def quota(cluster: KafkaCluster, key: str, value: float) -> Iterator[None]:
    """Set a quota for every client id without one of its own, while the ``with`` block lasts."""
    _alter_quota(cluster, key, value, remove=False)
    try:
        yield
    finally:
        _alter_quota(cluster, key, 0.0, remove=True)


def _alter_quota(cluster: KafkaCluster, key: str, value: float, *, remove: bool) -> None:
    entry = EntryData(
        entity=(EntityData(entity_type="client-id", entity_name=None),),
        ops=(OpData(key=key, value=f64(float(value)), remove=remove),),
    )
    request = AlterClientQuotasRequest(entries=(entry,), validate_only=False)
    reply: Any = ask_any(cluster, request, AlterClientQuotasResponse)
    assert all(not int(done.error_code) for done in reply.entries), reply
