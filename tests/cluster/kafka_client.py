"""What tests do to real clusters besides running mm2py: make topics, write, read, delete. All through librdkafka.

Each call is complete when it returns: a topic can be written to, a deleted one is gone.

Tests ask twenty times a second whether something has come true. A new client for each question would cost several
milliseconds of CPU on both sides, which the workers need; so clients of a cluster of one node are kept as long as its
object. Where there are several nodes each call has a new client: a kept one may wait for a broker that a test froze.
"""

from __future__ import annotations

import itertools
import struct
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec  # type: ignore[attr-defined, unused-ignore]

from deploy.local.kafka import KafkaCluster
from tests.checker.dump import MOVING
from tests.cluster.patience import now_s
from tests.cluster.running import ANSWER_S, PATIENCE, pause, wait_until

READ_S: Final = 30.0 * PATIENCE
QUESTION_S: Final = 10.0 * PATIENCE
"""For where a partition begins and ends. A consumer may wait for a broker that has been killed; a new one does not."""
_STILL_COMING_UP: Final = frozenset(
    # librdkafka heard that a broker is gone while it was being asked, or has not heard of it
    {*MOVING, KafkaError._DESTROY_BROKER, KafkaError._TIMED_OUT}
)
_ABSENT: Final = frozenset({KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART})
_RECONNECT: Final = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}
"""Kept clients find a broker soon that was away for long."""
T = TypeVar("T")
_numbers = itertools.count(1)
_admins: WeakKeyDictionary[KafkaCluster, tuple[str, AdminClient]] = WeakKeyDictionary()
_idle_consumers: WeakKeyDictionary[KafkaCluster, list[tuple[str, Consumer]]] = WeakKeyDictionary()


def new_name(stem: str) -> str:
    """Return a topic name that no other test has: clusters are shared."""
    return f"{stem}-{next(_numbers)}-{uuid.uuid4().hex[:6]}"


def admin(cluster: KafkaCluster) -> AdminClient:
    """Return a client; with several nodes a new one, whose answers are lost with it."""
    bootstrap = cluster.internal_bootstrap
    kept = _admins.get(cluster)
    if kept is not None and kept[0] == bootstrap:
        return kept[1]
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **_RECONNECT})
    if len(cluster.brokers) == 1:
        _admins[cluster] = bootstrap, client
    return client


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
    made[topic].result(ANSWER_S)
    wait_until(lambda: _leaders(client, topic) == partitions, f"{topic} has leaders")


def delete_topic(cluster: KafkaCluster, topic: str) -> None:
    """Delete a topic and wait until the cluster no longer names it."""
    client = admin(cluster)
    client.delete_topics([topic])[topic].result(ANSWER_S)
    wait_until(lambda: topic not in client.list_topics(timeout=ANSWER_S).topics, f"{topic} is gone")


def topic_config(cluster: KafkaCluster, topic: str, name: str) -> str:
    """Return the value of one setting of a topic."""
    client = admin(cluster)
    wanted = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found: dict[str, Any] = client.describe_configs([wanted])[wanted].result(ANSWER_S)
    return str(found[name].value)


def topic_names(cluster: KafkaCluster) -> set[str]:
    return set(admin(cluster).list_topics(timeout=ANSWER_S).topics)


def write(cluster: KafkaCluster, topic: str, values: Iterable[bytes | str], *, partition: int = 0) -> None:
    """Append records without a key, and wait until they are acknowledged."""
    producer = Producer({"bootstrap.servers": cluster.internal_bootstrap, "log_level": 0})
    failed: list[KafkaError] = []

    def settled(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=settled)
    left = producer.flush(ANSWER_S)
    assert not left, f"{left} records were not acknowledged"
    assert not failed, failed[0]


def offsets(cluster: KafkaCluster, topic: str, partition: int = 0) -> tuple[int, int]:
    """Return the first offset and the next one; (0, 0) for a topic that is not there."""
    return _asked(cluster, lambda consumer: _offsets(consumer, topic, partition))


def record_count(cluster: KafkaCluster, topic: str, partitions: Sequence[int] = (0,)) -> int:
    """Return log end minus log start; 0 for a topic that is not there."""
    ends = _asked(cluster, lambda consumer: [_offsets(consumer, topic, number) for number in partitions])
    return sum(last - first for first, last in ends)


def has_open_transactions(cluster: KafkaCluster, topic: str) -> bool:
    """Return whether a reader of committed records would stop before an end of the topic.

    A coordinator answers that a transaction is committed before its markers stand in all partitions.
    """
    client = admin(cluster)
    numbers = client.list_topics(topic, timeout=ANSWER_S).topics[topic].partitions

    def ends(level: IsolationLevel) -> list[int]:
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in numbers}
        return [
            one.result(ANSWER_S).offset
            for one in client.list_offsets(asked, isolation_level=level, request_timeout=ANSWER_S).values()
        ]

    return ends(IsolationLevel.READ_COMMITTED) != ends(IsolationLevel.READ_UNCOMMITTED)


def read(cluster: KafkaCluster, topic: str, partitions: Sequence[int] = (0,)) -> list[Message]:
    """Return all records, partition by partition in order, up to the ends as they are now."""
    return _asked(cluster, lambda consumer: [*itertools.chain(*(_read(consumer, topic, one) for one in partitions))])


def values(cluster: KafkaCluster, topic: str, partitions: Sequence[int] = (0,)) -> list[bytes]:
    """Return the values of all records; see ``read``."""
    return [message.value() or b"" for message in read(cluster, topic, partitions)]


def _asked(cluster: KafkaCluster, ask: Callable[[Consumer], T]) -> T:
    """Ask through a consumer that nobody else has meanwhile; what a kept one cannot answer is asked of a new one."""
    bootstrap = cluster.internal_bootstrap
    idle = _idle_consumers.setdefault(cluster, [])
    kept_for, consumer = idle.pop() if idle else ("", None)
    if consumer is not None:
        try:
            if kept_for != bootstrap:
                raise KafkaException(KafkaError(KafkaError._STATE))
            answer = ask(consumer)
        except KafkaException:  # such as: the leader epochs that it knows are those of a topic that was recreated since
            consumer.close()
        except BaseException:
            consumer.close()
            raise
        else:
            idle.append((bootstrap, consumer))
            return answer
    end_s = now_s() + READ_S
    while True:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": "tests-read",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
            **_RECONNECT,
        }
        consumer = Consumer(settings)
        try:
            answer = ask(consumer)
        except KafkaException as error:
            consumer.close()
            if error.args[0].code() not in _STILL_COMING_UP | _ABSENT or now_s() > end_s:
                raise
            pause(0.05, "nothing announces a leader, and the question costs the broker a microsecond")
        except BaseException:
            consumer.close()
            raise
        else:
            if len(cluster.brokers) == 1:
                idle.append((bootstrap, consumer))
            else:
                consumer.close()
            return answer


def _offsets(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    place = TopicPartition(topic, partition)
    try:
        return consumer.get_watermark_offsets(place, timeout=QUESTION_S)
    except KafkaException as error:
        if error.args[0].code() not in _ABSENT:
            raise
    # It remembers what was not there, until it asks for that topic by name.
    if partition not in consumer.list_topics(topic, timeout=READ_S).topics[topic].partitions:
        return 0, 0
    return consumer.get_watermark_offsets(place, timeout=QUESTION_S)


def _read(consumer: Consumer, topic: str, partition: int) -> list[Message]:
    messages: list[Message] = []
    first, last = _offsets(consumer, topic, partition)
    if first < last:
        consumer.assign([TopicPartition(topic, partition, first)])
    while first < last:
        message = consumer.poll(ANSWER_S)
        assert message is not None, f"{topic}-{partition} was not readable at {first}"
        if (message.topic(), message.partition()) != (topic, partition):
            continue  # of an assignment before this one
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            break  # what stands before the end are control records
        messages.append(message)
        first = (message.offset() or 0) + 1
    consumer.unassign()
    return messages


def _leaders(client: AdminClient, topic: str) -> int:
    found = client.list_topics(topic, timeout=ANSWER_S).topics[topic]
    return sum(part.leader >= 0 for part in found.partitions.values())
