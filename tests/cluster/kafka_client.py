"""What tests do to real clusters besides running mm2py: make topics, write, read, delete. All through librdkafka.

Each call is complete when it returns: a topic can be written to, a deleted one is gone.
"""

from __future__ import annotations

import itertools
import struct
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined, unused-ignore]

from deploy.local.kafka import KafkaCluster
from tests.checker.dump import MOVING
from tests.cluster.running import wait_until

READ_S: Final = 30.0
ANSWER_S: Final = 30.0
_STILL_COMING_UP: Final = frozenset(
    {*MOVING, KafkaError._DESTROY_BROKER}  # librdkafka heard that a broker is gone while it was being asked
)
_numbers = itertools.count(1)


def new_name(stem: str) -> str:
    """Return a topic name that no other test has: clusters are shared."""
    return f"{stem}-{next(_numbers)}-{uuid.uuid4().hex[:6]}"


def admin(cluster: KafkaCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.internal_bootstrap, "log_level": 0})


def topic_id(cluster: KafkaCluster, topic: str) -> uuid.UUID:
    client = admin(cluster)  # its answers are lost with it
    found = client.describe_topics(TopicCollection([topic]))[topic].result(ANSWER_S).topic_id
    return uuid.UUID(bytes=struct.pack(">qq", found.get_most_significant_bits(), found.get_least_significant_bits()))


def create_topic(
    cluster: KafkaCluster,
    topic: str,
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
    *,
    replicas: int = 1,
) -> None:
    """Create a topic and wait until its partitions have leaders."""
    client = admin(cluster)
    made = client.create_topics([NewTopic(topic, partitions, replicas, config=dict(configs or {}))])
    made[topic].result(30)
    wait_until(lambda: _leaders(client, topic) == partitions, f"{topic} has leaders")


def delete_topic(cluster: KafkaCluster, topic: str) -> None:
    """Delete a topic and wait until the cluster no longer names it."""
    client = admin(cluster)
    client.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in client.list_topics(timeout=30).topics, f"{topic} is gone")


def topic_names(cluster: KafkaCluster) -> set[str]:
    return set(admin(cluster).list_topics(timeout=30).topics)


def write(cluster: KafkaCluster, topic: str, values: Iterable[bytes | str], *, partition: int = 0) -> None:
    """Append records without a key, and wait until they are acknowledged."""
    producer = Producer({"bootstrap.servers": cluster.internal_bootstrap, "log_level": 0})
    failed: list[KafkaError] = []

    def settled(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=settled)
    left = producer.flush(30)
    assert not left, f"{left} records were not acknowledged"
    assert not failed, failed[0]


def offsets(cluster: KafkaCluster, topic: str, partition: int = 0) -> tuple[int, int]:
    """Return the first offset and the next one; (0, 0) for a topic that is not there."""
    consumer = _consumer(cluster)
    end_s = time.monotonic() + READ_S
    try:
        while True:
            try:
                return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=READ_S)
            except KafkaException as error:
                code = error.args[0].code()
                if code in {KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART}:
                    return 0, 0
                if code not in _STILL_COMING_UP or time.monotonic() > end_s:
                    raise
                time.sleep(0.05)  # nothing announces a leader; the question costs the broker a microsecond
    finally:
        consumer.close()


def record_count(cluster: KafkaCluster, topic: str, partitions: Sequence[int] = (0,)) -> int:
    """Return log end minus log start; 0 for a topic that is not there."""
    ends = [offsets(cluster, topic, number) for number in partitions]
    return sum(last - first for first, last in ends)


def read(cluster: KafkaCluster, topic: str, partitions: Sequence[int] = (0,)) -> list[Message]:
    """Return all records, partition by partition in order, up to the ends as they are now."""
    consumer = _consumer(cluster)
    try:
        messages: list[Message] = []
        for number in partitions:
            first, last = offsets(cluster, topic, number)
            if first < last:
                consumer.assign([TopicPartition(topic, number, first)])
            while first < last:
                message = consumer.poll(30)
                assert message is not None, f"{topic}-{number} was not readable at {first}"
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    break  # what stands before the end are control records
                messages.append(message)
                first = (message.offset() or 0) + 1
        return messages
    finally:
        consumer.close()


def values(cluster: KafkaCluster, topic: str, partitions: Sequence[int] = (0,)) -> list[bytes]:
    """Return the values of all records; see ``read``."""
    return [message.value() or b"" for message in read(cluster, topic, partitions)]


def _consumer(cluster: KafkaCluster) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.internal_bootstrap,
            "group.id": "tests-read",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )


def _leaders(client: AdminClient, topic: str) -> int:
    found = client.list_topics(topic, timeout=30).topics[topic]
    return sum(part.leader >= 0 for part in found.partitions.values())
