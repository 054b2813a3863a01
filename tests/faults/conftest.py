"""Two clusters of three nodes each, for all tests of this folder. A test leaves all six brokers running."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.local.kafka import KafkaCluster, start_clusters
from tests.faults.scene import Pair, heal

SETTINGS = {
    "min.insync.replicas": 2,
    "unclean.leader.election.enable": False,
    "replica.lag.time.max.ms": 5_000,
    "log.retention.check.interval.ms": 500,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this folder is slow: ``make faults`` runs it."""
    for item in items:
        if "tests/faults/" in item.nodeid:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def clusters() -> Iterator[Pair]:
    made = [KafkaCluster("faults-source", nodes=3, settings=SETTINGS)]
    made.append(KafkaCluster("faults-target", nodes=3, settings=SETTINGS))
    with start_clusters(made) as (source, target):
        yield Pair(source, target)


@pytest.fixture
def pair(clusters: Pair) -> Iterator[Pair]:
    """The two clusters, whole again when the test is over."""
    yield clusters
    heal(clusters.source)
    heal(clusters.target)
