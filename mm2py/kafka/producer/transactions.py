"""The requests that fence a producer: empty transactions, their markers, and which producers a partition remembers.

A fence is a transaction without records. Partitions are added under the raised epoch, and the end of the transaction
writes a marker of that epoch into each. A partition that has the marker refuses the old owner (INVALID_PRODUCER_EPOCH).
The coordinator answers before the markers are written, and leaves some out, so only a marker that is read back from the
log is proof (docs/broker-facts.md#c3). These are plain functions over the brokers' port, one request each. Errors of
single partitions are returned with the results, errors of the whole request are raised.
Source: KafkaApis, TransactionCoordinator, ProducerAppendInfo, Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import i16, i32

from mm2py.kafka import messages
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata
from mm2py.kafka.error_codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    OPERATION_NOT_ATTEMPTED,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from mm2py.kafka.errors import BrokerRefused, CorruptReply
from mm2py.kafka.port import BrokerId, Brokers, TopicPartition, ask

TOPIC: Final = "__transaction_state"
_OF_PARTITIONS: Final = frozenset({0, UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED, OPERATION_NOT_ATTEMPTED})


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer as a replica of one partition remembers it. ``epoch`` is the highest it has seen.

    ``last_sequence`` is -1 if nothing was written in that epoch, ``txn_start_offset`` if it has no transaction open in
    the partition, ``coordinator_epoch`` if it never had a marker there. ``last_timestamp_ms`` is the newest record's
    time, or the marker's. The broker forgets the producer ``producer.id.expiration.ms`` after that time
    (docs/broker-facts.md#h4).
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    txn_start_offset: int
    coordinator_epoch: int = -1


async def find_topic(brokers: Brokers) -> TopicMetadata | None:
    """Return the topic of transactional ids, whose partitions' leaders are the coordinators.

    None if there is no such topic: no id was ever asked for, or the cluster is too small for it
    (docs/broker-facts.md#m8). A topic that we may not see is returned with its error.
    """
    found = (await fetch_metadata(brokers, [TOPIC])).topics.get(TOPIC)
    return None if found is None or found.error_code == UNKNOWN_TOPIC_OR_PARTITION else found


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """A transactional id as its coordinator knows it; ``state`` as Kafka spells it: Empty, Ongoing, CompleteAbort."""

    transactional_id: str
    producer_id: int
    state: str


async def add_partitions_to_txn(
    brokers: Brokers,
    coordinator: BrokerId,
    transactional_id: str,
    producer_id: int,
    epoch: int,
    partitions: Iterable[TopicPartition],
    *,
    channel: str = "control",
) -> dict[TopicPartition, int]:
    """Add all partitions to the transaction of this producer, or none (docs/broker-facts.md#h8).

    The first call begins the transaction.

    Returns:
        An error code each. Where one has UNKNOWN_TOPIC_OR_PARTITION or TOPIC_AUTHORIZATION_FAILED, all others have
        OPERATION_NOT_ATTEMPTED: drop the former and ask again.
    Raises:
        BrokerRefused: INVALID_PRODUCER_ID_MAPPING, the transactional id is not known or has another producer id by now
            (docs/broker-facts.md#c2); PRODUCER_FENCED, another process has
            raised the epoch; CONCURRENT_TRANSACTIONS, the markers of the transaction before are still being written;
            TRANSACTIONAL_ID_AUTHORIZATION_FAILED, WRITE on the transactional id is missing; or one of
            ``error_codes.NO_COORDINATOR``.
    """
    by_topic = _by_topic(partitions)
    request = messages.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TransactionalId(transactional_id),
        v3_and_below_producer_id=ProducerId(producer_id),
        v3_and_below_producer_epoch=i16(epoch),
        v3_and_below_topics=tuple(
            messages.AddPartitionsToTxnTopic(name=TopicName(topic), partitions=numbers)
            for topic, numbers in by_topic.items()
        ),
    )
    what = f"Adding partitions to a transaction of {transactional_id}"
    reply = await ask(brokers, coordinator, request, messages.AddPartitionsToTxnResponse, channel=channel)
    codes = {
        (str(topic.name), int(part.partition_index)): int(part.partition_error_code)
        for topic in reply.results_by_topic_v3_and_below
        for part in topic.results_by_partition
    }
    _check_complete(what, by_topic, codes)
    for code in codes.values():
        if code not in _OF_PARTITIONS:  # version 3 has no other place for what concerns the whole request
            raise BrokerRefused(what, code)
    return codes


async def end_txn(
    brokers: Brokers,
    coordinator: BrokerId,
    transactional_id: str,
    producer_id: int,
    epoch: int,
    *,
    committed: bool = False,
    channel: str = "control",
) -> None:
    """Abort or commit the transaction; its markers may be written after this returns, and the epoch stays.

    A second request for the same end succeeds and does nothing.

    Raises:
        BrokerRefused: INVALID_TXN_STATE, no transaction was started since the producer id was requested (after one that
            was aborted it succeeds, and does nothing); CONCURRENT_TRANSACTIONS, it is being aborted already; otherwise
            as ``add_partitions_to_txn``.
    """
    request = messages.EndTxnRequest(
        transactional_id=TransactionalId(transactional_id),
        producer_id=ProducerId(producer_id),
        producer_epoch=i16(epoch),
        committed=committed,
    )
    reply = await ask(brokers, coordinator, request, messages.EndTxnResponse, channel=channel)
    code = int(reply.error_code)
    if code:
        raise BrokerRefused(f"{'Committing' if committed else 'Aborting'} the transaction of {transactional_id}", code)


async def write_txn_markers(
    brokers: Brokers,
    broker: BrokerId,
    producer_id: int,
    epoch: int,
    partitions: Iterable[TopicPartition],
    *,
    coordinator_epoch: int = 0,
    channel: str = "control",
) -> dict[TopicPartition, int]:
    """Write markers, without the coordinator, into partitions that ``broker`` leads; wait until they are replicated.

    This is the only way left when the transactional id has another producer id by now (docs/broker-facts.md#c2). A
    partition that already has a marker of this epoch gets another one (docs/broker-facts.md#m1).

    Args:
        coordinator_epoch: at least that of the producer's last marker in each partition (``ActiveProducer``).
    Returns:
        An error code each: INVALID_PRODUCER_EPOCH, the partition has seen a higher epoch;
        TRANSACTION_COORDINATOR_FENCED, it has seen a higher coordinator epoch.
    Raises:
        BrokerRefused: CLUSTER_AUTHORIZATION_FAILED, neither ALTER nor CLUSTER_ACTION on the cluster is granted.
    """
    by_topic = _by_topic(partitions)
    marker = messages.WritableTxnMarker(
        producer_id=ProducerId(producer_id),
        producer_epoch=i16(epoch),
        transaction_result=False,
        topics=tuple(
            messages.WritableTxnMarkerTopic(name=TopicName(topic), partition_indexes=numbers)
            for topic, numbers in by_topic.items()
        ),
        coordinator_epoch=i32(coordinator_epoch),
    )
    what = f"Writing markers of producer id {producer_id}"
    request = messages.WriteTxnMarkersRequest(markers=(marker,))
    reply = await ask(brokers, broker, request, messages.WriteTxnMarkersResponse, channel=channel)
    codes = {
        (str(topic.name), int(part.partition_index)): int(part.error_code)
        for result in reply.markers
        for topic in result.topics
        for part in topic.partitions
    }
    _check_complete(what, by_topic, codes)
    if CLUSTER_AUTHORIZATION_FAILED in codes.values():
        raise BrokerRefused(what, CLUSTER_AUTHORIZATION_FAILED)
    return codes


async def describe_producers(
    brokers: Brokers, broker: BrokerId, partitions: Iterable[TopicPartition], *, channel: str = "control"
) -> dict[TopicPartition, Sequence[ActiveProducer] | int]:
    """Return which producers a broker remembers in each partition it has a replica of, or the partition's error code.

    Followers answer too, from their own state: ask the leader.
    """
    by_topic = _by_topic(partitions)
    request = messages.DescribeProducersRequest(
        topics=tuple(
            messages.DescribeProducersTopic(name=TopicName(topic), partition_indexes=numbers)
            for topic, numbers in by_topic.items()
        )
    )
    reply = await ask(brokers, broker, request, messages.DescribeProducersResponse, channel=channel)
    found: dict[TopicPartition, Sequence[ActiveProducer] | int] = {
        (str(topic.name), int(part.partition_index)): int(part.error_code)
        or [
            ActiveProducer(
                int(producer.producer_id),
                int(producer.producer_epoch),
                int(producer.last_sequence),
                int(producer.last_timestamp),
                int(producer.current_txn_start_offset),
                int(producer.coordinator_epoch),
            )
            for producer in part.active_producers
        ]
        for topic in reply.topics
        for part in topic.partitions
    }
    _check_complete("Describing producers", by_topic, found)
    return found


async def list_transactions(
    brokers: Brokers, broker: BrokerId, *, channel: str = "control"
) -> Sequence[ListedTransaction]:
    """Return the transactional ids that ``broker`` coordinates and we may describe.

    Raises:
        BrokerRefused: COORDINATOR_LOAD_IN_PROGRESS, it is still loading them.
    """
    request = messages.ListTransactionsRequest(state_filters=(), producer_id_filters=())
    reply = await ask(brokers, broker, request, messages.ListTransactionsResponse, channel=channel)
    code = int(reply.error_code)
    if code:
        raise BrokerRefused(f"Listing the transactional ids of broker {broker}", code)
    return [
        ListedTransaction(str(listed.transactional_id), int(listed.producer_id), listed.transaction_state)
        for listed in reply.transaction_states
    ]


async def describe_transactions(
    brokers: Brokers, coordinator: BrokerId, transactional_ids: Sequence[str], *, channel: str = "control"
) -> dict[str, frozenset[TopicPartition] | int]:
    """Return the partitions of open transactions, as far as we may describe their topics, or an error code each.

    Source: DescribeTransactionsHandler, Apache Kafka's clients.
    """
    request = messages.DescribeTransactionsRequest(transactional_ids=tuple(map(TransactionalId, transactional_ids)))
    reply = await ask(brokers, coordinator, request, messages.DescribeTransactionsResponse, channel=channel)
    return {
        str(one.transactional_id): int(one.error_code)
        or frozenset((str(topic.topic), int(number)) for topic in one.topics for number in topic.partitions)
        for one in reply.transaction_states
    }


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, tuple[i32, ...]]:
    by_topic: dict[str, list[i32]] = {}
    for topic, partition in dict.fromkeys(partitions):
        by_topic.setdefault(topic, []).append(i32(partition))
    return {topic: tuple(numbers) for topic, numbers in by_topic.items()}


def _check_complete(what: str, asked: Mapping[str, Sequence[int]], answered: Mapping[TopicPartition, object]) -> None:
    """Raise if the answer leaves out a partition, which callers would take for one without an error."""
    missing = [(topic, number) for topic, numbers in asked.items() for number in numbers]
    missing = [place for place in missing if place not in answered]
    if missing:
        raise CorruptReply("A broker", f"{what}: {len(missing)} partitions are left out, {missing[0]} among them")
