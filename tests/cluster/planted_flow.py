"""Flows that no worker runs: a source topic, its remote topic and the ledger between them, as a test wants them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deploy.local.broker_settings import render_properties
from deploy.local.kafka import KafkaCluster
from mm2py.flow import TopicName
from mm2py.offsets.runs import Run
from mm2py.records.batch import NewRecord, build_batch
from mm2py.records.ledger_record import ChunkKey, LedgerChunk, encode
from tests.checker.dumped import Dumped
from tests.cluster.copies import make_topic, now_ms
from tests.cluster.kafka_client import new_name, topic_id
from tests.cluster.raw_batches import append_batches, append_rows
from tests.cluster.running import one_way_properties


def new_names() -> tuple[str, str]:
    return new_name("A").replace("-", ""), new_name("B").replace("-", "")


def planted_copy(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    names: tuple[str, str],
    folder: Path,
    *,
    partitions: int,
    batches_each: int,
    batch_records: int = 100,
) -> tuple[str, Path]:
    """Write a topic and its exact copy, with values of 1 KB. Returns the topic and the file of the flow."""
    topic = f"{names[0]}.copied".lower()
    record = NewRecord(b"key", b"v" * 1000, now_ms())
    batch = bytes(build_batch([record] * batch_records))
    for cluster, name in ((source_cluster, topic), (target_cluster, f"{names[0]}.{topic}")):
        make_topic(cluster, name, partitions)
        append_rows(cluster, name, [dict.fromkeys(range(partitions), batch)] * batches_each)
    count = batches_each * batch_records
    runs = [(Run(0, 0, count),)] * partitions
    return topic, planted_flow(source_cluster, target_cluster, names, topic, runs, folder)


def batches(records: Sequence[Dumped], size: int) -> list[bytearray]:
    """Return records as batches, without offsets that are left out."""
    rows = [NewRecord(one.key, one.value, one.timestamp_ms, one.headers) for one in records]
    return [build_batch(rows[at : at + size]) for at in range(0, len(rows), size)]


def planted_flow(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    names: tuple[str, str],
    topic: str,
    runs: Sequence[Sequence[Run]],
    folder: Path,
) -> Path:
    """Write the ledger of a topic, runs of each partition, and return the file of its flow."""
    alias = names[0]
    ids = topic_id(source_cluster, topic), topic_id(target_cluster, f"{alias}.{topic}")
    ledger = f"mm2-ledger.{alias}.internal"
    make_topic(target_cluster, ledger)
    chunks = []
    for number, some in enumerate(runs):
        key = ChunkKey(TopicName(topic), number, 1, 0)
        chunk = LedgerChunk(key, 0, tuple(some), some[-1].source_end, True, *ids)
        chunks.append(encode(chunk, 1))
    append_batches(target_cluster, ledger, [build_batch(chunks)])
    properties = one_way_properties(source_cluster, target_cluster, names=names)
    properties |= {f"{alias}->{names[1]}.topics": topic}
    file = folder / "mm2.properties"
    file.write_text(render_properties(properties))
    return file
