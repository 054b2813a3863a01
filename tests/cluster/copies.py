"""What tests of whole copies do over and over: make topics that last, send chosen records, wait for a copy, judge it.

Traffic and judge are those of ``tests.checker``: nothing here decides what is right.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from deploy.local.kafka import KafkaCluster
from tests.checker.check import Report, check_copy
from tests.checker.dump import Bounds, Reader
from tests.checker.dumped import Dumped, sent
from tests.checker.ledger import Ledger
from tests.checker.traffic import Planned
from tests.cluster.kafka_client import QUESTION_S, admin, create_topic, new_name
from tests.cluster.running import ANSWER_S, DEADLINE_S, PATIENCE, Mm2py, wait_until

COPY_DEADLINE_S: Final = 60.0 * PATIENCE
KEEP: Final = {"retention.ms": "-1"}
"""Nothing expires, however old the records are."""
_MOVING: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._NOENT,  # "No leaders found"
    }
)
T = TypeVar("T")


def now_ms() -> int:
    return int(time.time() * 1000)


# Topics and rights


def new_topic(
    cluster: KafkaCluster,
    stem: str,
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
    *,
    replicas: int = 1,
) -> str:
    """Create a topic with a name of its own, in which nothing expires, and return the name."""
    topic = new_name(stem)
    make_topic(cluster, topic, partitions, configs, replicas=replicas)
    return topic


def make_topic(
    cluster: KafkaCluster,
    topic: str,
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
    *,
    replicas: int = 1,
) -> None:
    """Create a topic in which nothing expires."""
    create_topic(cluster, topic, partitions, {**KEEP, **(configs or {})}, replicas=replicas)


def add_partitions(cluster: KafkaCluster, topic: str, partitions: int) -> None:
    """Let a topic have that many partitions."""
    client = admin(cluster)
    client.create_partitions([NewPartitions(topic, partitions)])[topic].result(ANSWER_S)
    wait_until(  # brokers learn of them a moment later than the controller
        lambda: len(client.list_topics(topic, timeout=ANSWER_S).topics[topic].partitions) >= partitions,
        f"{topic} has {partitions} partitions",
    )


def set_by_hand(cluster: KafkaCluster, topic: str, **settings: str | None) -> None:
    """Set settings of a topic, or take them back (None); underscores for dots."""
    resource = ConfigResource(
        ConfigResource.Type.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry(
                name.replace("_", "."),
                value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for name, value in settings.items()
        ],
    )
    client = admin(cluster)
    client.incremental_alter_configs([resource])[resource].result(ANSWER_S)


@contextmanager
def without_right(cluster: KafkaCluster, topic: str, operation: AclOperation) -> Iterator[None]:
    """Leave all rights on a topic but one while the ``with`` block lasts; the cluster needs an authorizer."""
    all_rights = (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER,
    )
    with only_rights(cluster, topic, [one for one in all_rights if one != operation]):
        yield


@contextmanager
def only_rights(
    cluster: KafkaCluster, name: str, rights: Iterable[AclOperation], kind: ResourceType = ResourceType.TOPIC
) -> Iterator[None]:
    """Leave only these rights on a topic while the ``with`` block lasts, or on a resource of another kind.

    READ, WRITE and ALTER bring DESCRIBE with them.
    """
    where = (kind, name, ResourcePatternType.LITERAL)
    rules = [AclBinding(*where, "User:*", "*", one, AclPermissionType.ALLOW) for one in rights]
    own = AclBindingFilter(*where, None, None, AclOperation.ANY, AclPermissionType.ANY)
    client = admin(cluster)
    for made in client.create_acls(rules).values():
        made.result(ANSWER_S)
    try:
        yield
    finally:
        for gone in client.delete_acls([own]).values():
            gone.result(ANSWER_S)


# Sending


def producer(cluster: KafkaCluster, **settings: Any) -> Producer:
    """Return a producer; ``settings`` in Kafka's names with underscores for dots."""
    return Producer(
        {
            "bootstrap.servers": cluster.internal_bootstrap,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def send(
    cluster: KafkaCluster, topic: str, records: Iterable[Planned], *, ledger: Ledger | None = None, **settings: Any
) -> None:
    """Send these records with a producer of their own; all are acknowledged on return."""
    send_with(producer(cluster, **settings), topic, records, ledger=ledger)


def send_with(client: Producer, topic: str, records: Iterable[Planned], *, ledger: Ledger | None = None) -> None:
    """Send these records with ``client``; all are acknowledged on return."""
    failed: list[KafkaError] = []
    for record in records:

        def settled(error: KafkaError | None, message: Message, record: Planned = record) -> None:
            if error is not None:
                failed.append(error)
            elif ledger is not None:
                offset = message.offset()
                assert offset is not None
                entry = Dumped(offset, 1, record.timestamp_ms, record.key, record.value, record.headers)
                ledger.add(topic, record.partition, sent(entry))

        while True:
            try:
                client.produce(
                    topic,
                    value=record.value,
                    key=record.key,
                    partition=record.partition,
                    timestamp=record.timestamp_ms,
                    headers=list(record.headers),
                    on_delivery=settled,
                )
                break
            except BufferError:
                client.poll(0.1)
        client.poll(0)
    left = client.flush(ANSWER_S)
    assert not left, f"{left} records of {topic} were not acknowledged"
    assert not failed, f"{topic}: {failed[0]}"


# Looking


def answered(ask: Callable[[], T], *, deadline_s: float = DEADLINE_S) -> T:
    """Ask again while a partition has no leader or gives no answer: it is new, or its broker has just come back.

    ``deadline_s`` is for all the asking, so it has to be longer than one question may take.
    """

    def asked() -> list[T]:
        try:
            return [ask()]
        except TimeoutError:  # a client that asks a broker that is just back may never get its first answer
            return []
        except KafkaException as error:
            if error.args[0].code() in {*_MOVING, KafkaError._TIMED_OUT}:
                return []
            raise

    return wait_until(asked, "all partitions have leaders", deadline_s=deadline_s)[0]


def dump(
    cluster: KafkaCluster, topic: str, partitions: Iterable[int] = (0,), *, read_committed: bool = True
) -> dict[int, list[Dumped]]:
    """Return all records of the partitions, up to the ends as they are now."""
    with Reader(cluster.internal_bootstrap, read_committed=read_committed) as reader:
        bounds = answered(lambda: reader.bounds(topic, partitions))
        return {number: list(reader.records(topic, number, *bound)) for number, bound in bounds.items()}


def bounds_of(cluster: KafkaCluster, topic: str, partitions: Iterable[int] = (0,)) -> dict[int, Bounds]:
    """Return log start and log end of the partitions."""
    numbers, client = list(partitions), admin(cluster)

    def asked(spec: OffsetSpec) -> dict[int, int]:
        wanted = {TopicPartition(topic, number): spec for number in numbers}
        answers = client.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=QUESTION_S
        )
        return {place.partition: answer.result(ANSWER_S).offset for place, answer in answers.items()}

    with suppress(KafkaException):  # a kept client may know a leader of old: then a new one is asked
        starts, ends = asked(OffsetSpec.earliest()), asked(OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return {number: Bounds(starts[number], ends[number]) for number in numbers}
    with Reader(cluster.internal_bootstrap, read_committed=False) as reader:
        return answered(lambda: reader.bounds(topic, numbers))


def partitions_of(cluster: KafkaCluster, topic: str) -> int:
    """Return how many partitions a topic has, 0 if there is none of this name."""
    with Reader(cluster.internal_bootstrap, read_committed=False) as reader:
        return reader.partitions(topic)


# Judging


def assert_copied(
    source: KafkaCluster,
    target: KafkaCluster,
    topic: str,
    remote: str,
    *,
    run: Mm2py | None = None,
    deadline_s: float = COPY_DEADLINE_S,
    read_committed: bool = False,
    ledger: Ledger | None = None,
    max_rewinds: int | None = 0,
    max_rewound_records: int | None = None,
    target_starts: Mapping[tuple[str, int], int] | None = None,
) -> Report:
    """Let the checker judge a topic, and fail with what it finds. By default nothing may stand there twice.

    Args:
        run: the process that copies: it is given time until ``deadline_s``. Without one the copy has to be complete.
        others: as ``check_copy``.
    """
    report = answered(
        lambda: check_copy(
            source.internal_bootstrap,
            target.internal_bootstrap,
            {topic: remote},
            read_committed=read_committed,
            ledger=ledger,
            max_rewinds=max_rewinds,
            max_rewound_records=max_rewound_records,
            target_starts=target_starts,
            wait_s=deadline_s if run is not None else 0.0,
        ),
        deadline_s=deadline_s + 2 * DEADLINE_S,  # a question without an answer takes one of them
    )
    assert report.ok, f"{topic} is not copied right:\n{report}"
    return report
