"""Offset syncs and checkpoints on real clusters as tests read them, and consumer groups that leave commits behind."""

from __future__ import annotations

from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from deploy.local.kafka import KafkaCluster
from mm2py.records import checkpoint, offset_sync
from mm2py.records.checkpoint import Checkpoint
from mm2py.records.offset_sync import OffsetSync
from tests.cluster.kafka_client import has_open_transactions, read, topic_names
from tests.cluster.running import ANSWER_S, wait_until

_NO_COORDINATOR_YET: Final = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError._WAIT_COORD,
    }
)


def syncs_in(cluster: KafkaCluster, topic: str) -> list[OffsetSync]:
    """Return the offset syncs of an internal topic in the order of the log; none if there is no such topic."""
    if topic not in topic_names(cluster):
        return []
    return [offset_sync.decode(message.key(), message.value()) for message in read(cluster, topic)]


def checkpoints_in(cluster: KafkaCluster, topic: str) -> dict[str, Checkpoint]:
    """Return the last checkpoint of each group; a test's groups each read one partition."""
    if topic not in topic_names(cluster):
        return {}
    found = [checkpoint.decode(message.key(), message.value()) for message in read(cluster, topic)]
    return {one.group: one for one in found}


def member(cluster: KafkaCluster, group: str, *, protocol: str = "classic") -> Consumer:
    """Return a consumer that commits only what it is told to; ``protocol``: ``classic`` or ``consumer``."""
    return member_at(cluster.internal_bootstrap, group, protocol=protocol)


def member_at(bootstrap: str, group: str, *, protocol: str) -> Consumer:
    """As ``member``, by the addresses of brokers."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )


def take(client: Consumer, topic: str, count: int) -> list[bytes]:
    """Join its group, read the first ``count`` records of a topic, and commit them."""
    client.subscribe([topic])
    values: list[bytes] = []

    def read_on() -> bool:
        for message in client.consume(count - len(values), 0.5):
            assert message.error() is None, message.error()
            values.append(message.value() or b"")
        return len(values) == count

    wait_until(read_on, f"{count} records of {topic} are read")
    client.commit(asynchronous=False)
    return values


def commit(cluster: KafkaCluster, group: str, topic: str, offset: int, metadata: str = "") -> None:
    """Commit for a group without members; a coordinator that is new is asked again."""
    client = member(cluster, group)

    def committed() -> bool:
        try:
            client.commit(offsets=[TopicPartition(topic, 0, offset, metadata)], asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in _NO_COORDINATOR_YET:
                raise
            return False
        return True

    try:
        wait_until(committed, f"{group} has committed")
    finally:
        client.close()


def write_transaction(cluster: KafkaCluster, topic: str, values: list[str], *, commits: bool = True) -> None:
    """Write records to partition 0 in one transaction; return when its end is written, a commit or an abort."""
    client = Producer(
        {"bootstrap.servers": cluster.internal_bootstrap, "transactional.id": f"tests-{topic}", "log_level": 0}
    )
    client.init_transactions(ANSWER_S)
    client.begin_transaction()
    for value in values:
        client.produce(topic, value, partition=0)
    assert client.flush(ANSWER_S) == 0
    if commits:
        client.commit_transaction(ANSWER_S)
    else:
        client.abort_transaction(ANSWER_S)
    wait_until(lambda: not has_open_transactions(cluster, topic), f"the last transaction of {topic} has ended")
