"""What tests of DataFrames share: a flow between the two clusters, records with all that they can have, and options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Producer

from deploy.local.broker_settings import render_properties
from deploy.local.kafka import KafkaCluster
from tests.cluster.kafka_client import new_name
from tests.cluster.running import ANSWER_S, one_way_properties

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Header = tuple[str, bytes | None]


class Sent(NamedTuple):
    """A record to be written, or that was read."""

    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int | None = None
    headers: Sequence[Header] = ()
    partition: int = 0


class FlowFile:
    """A settings file with one flow, whose aliases no other test has."""

    def __init__(self, folder: Path, source: KafkaCluster, target: KafkaCluster, **extra: Any) -> None:
        self.source, self.target = source, target
        self.alias, self.other = new_name("A").replace("-", ""), new_name("B").replace("-", "")
        self.flow = f"{self.alias}->{self.other}"
        properties = one_way_properties(source, target, names=(self.alias, self.other), **extra)
        self.properties = properties | {f"{self.flow}.topics": ".*"}
        self.path = folder / "mm2.properties"
        self.path.write_text(render_properties(self.properties))

    def options(self, topic: str, side: str = "source", **more: str) -> dict[str, str]:
        return {"file": str(self.path), "flow": self.flow, "side": side, "topic": topic, **more}

    def read(self, spark: SparkSession, topic: str, side: str = "source", **more: str) -> DataFrame:
        return spark.read.format("mm2py").options(**self.options(topic, side, **more)).load()


def send(cluster: KafkaCluster, topic: str, records: Iterable[Sent], **settings: Any) -> None:
    """Write records, and wait for all acknowledgements."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **settings})
    for one in records:
        _produce(producer, topic, one)
    assert producer.flush(ANSWER_S) == 0


def send_transactions(cluster: KafkaCluster, topic: str, transactions: Iterable[tuple[bool, Iterable[Sent]]]) -> None:
    """Write transactions, each committed or aborted."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": new_name("tests"), "log_level": 0})
    producer.init_transactions(ANSWER_S)
    for is_committed, records in transactions:
        producer.begin_transaction()
        for one in records:
            _produce(producer, topic, one)
        producer.flush(ANSWER_S)
        if is_committed:
            producer.commit_transaction(ANSWER_S)
        else:
            producer.abort_transaction(ANSWER_S)


def _produce(producer: Producer, topic: str, one: Sent) -> None:
    extra: Mapping[str, Any] = {} if one.timestamp_ms is None else {"timestamp": one.timestamp_ms}
    producer.produce(topic, one.value, one.key, partition=one.partition, headers=list(one.headers), **extra)
    producer.poll(0)
