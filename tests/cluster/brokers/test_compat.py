"""Real brokers of Kafka 3.3, 3.9 and 4.3 as source and as target of each other, in one worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice

import pytest

from deploy.local.errors import MissingTool
from deploy.local.kafka import KafkaCluster, start_clusters
from tests.checker.traffic import Traffic
from tests.cluster.copies import assert_copied, new_topic, now_ms, producer, send, send_with
from tests.cluster.kafka_client import new_name
from tests.cluster.running import ANSWER_S, PATIENCE, Mm2py, one_way_properties

pytestmark = [pytest.mark.compat, pytest.mark.timeout(600 * PATIENCE)]  # jars may have to be fetched

VERSIONS = {"V33": "3.3.2", "V39": "3.9.2", "V43": "4.3.1"}
WAYS = [(source, target) for source in VERSIONS for target in VERSIONS if source != target]
STEM = new_name("old")


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[str, KafkaCluster]]:
    """One broker of each version."""
    with ExitStack() as running:
        try:
            made = [KafkaCluster(alias.lower(), kafka_version=version) for alias, version in VERSIONS.items()]
            running.enter_context(start_clusters(made))
        except MissingTool as missing:
            pytest.skip(f"older brokers cannot be had: {missing.what}")
        yield dict(zip(VERSIONS, made, strict=True))


@pytest.fixture(scope="module")
def run(clusters: dict[str, KafkaCluster]) -> Iterator[Mm2py]:
    """A worker with a flow from each version to each other."""
    properties = one_way_properties(clusters["V33"], clusters["V39"], names=("V33", "V39")) | {
        "clusters": ",".join(clusters),
        "topics": f"{STEM}.*",
    }
    for alias, cluster in clusters.items():
        properties[f"{alias}.bootstrap.servers"] = cluster.bootstrap
        properties[f"{alias}.consumer.isolation.level"] = "read_committed"
    for source, target in WAYS:
        properties[f"{source}->{target}.enabled"] = True
    with Mm2py(properties) as run:
        for source, target in WAYS:
            run.wait_for_event("flow.ready", flow=f"{source}->{target}")
        yield run
        assert run.terminate() == 0
        assert not run.events("flow.crashed"), run.tail()
        assert not run.events("flow.failed"), run.tail()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_copy_from_one_version_to_all_others_is_exact(
    clusters: dict[str, KafkaCluster], run: Mm2py, version: str
) -> None:
    """All codecs, transactions, and a topic whose broker stamps the records."""
    source = clusters[version]
    mixed = new_topic(source, f"{STEM}-mixed", 3)
    records = Traffic(seed=61, partitions=3).records()
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        send(source, mixed, islice(records, 400), compression_type=codec)
    committed = new_topic(source, f"{STEM}-committed", 3)
    client = producer(source, transactional_id=f"{committed}-{now_ms()}", delivery_timeout_ms=60_000)
    client.init_transactions(ANSWER_S)
    for number in range(6):
        client.begin_transaction()
        send_with(client, committed, islice(records, 100))
        if number % 3 == 1:
            client.abort_transaction(ANSWER_S)
        else:
            client.commit_transaction(ANSWER_S)
    stamped = new_topic(source, f"{STEM}-stamped", 3, {"message.timestamp.type": "LogAppendTime"})
    send(source, stamped, islice(records, 400), compression_type="zstd")
    for target, cluster in clusters.items():
        if target != version:
            for topic in (mixed, committed, stamped):
                assert_copied(source, cluster, topic, f"{version}.{topic}", run=run, read_committed=True)


def test_a_restart_repeats_nothing_in_any_direction(clusters: dict[str, KafkaCluster], run: Mm2py) -> None:
    topics = {alias: new_topic(cluster, f"{STEM}-resumed", 3) for alias, cluster in clusters.items()}
    records = Traffic(seed=62, partitions=3, first_timestamp_ms=now_ms()).records()
    for life in range(3):
        if life:
            assert run.terminate() == 0
            run.start()
        for alias, topic in topics.items():
            send(clusters[alias], topic, islice(records, 500))
        for source, target in WAYS:
            assert_copied(clusters[source], clusters[target], topics[source], f"{source}.{topics[source]}", run=run)
