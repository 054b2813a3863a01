"""What tests of several folders share: real clusters, started only by a test that asks for one."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from deploy.local.kafka import KafkaCluster


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "compat: against older brokers; has a make target of its own")


@pytest.fixture(scope="session")
def cluster_pair() -> "Iterator[tuple[KafkaCluster, KafkaCluster]]":
    """A source and a target cluster of one node each, for the whole run: topics and groups need names of their own."""
    from deploy.local.kafka import KafkaCluster, start_clusters

    with start_clusters([KafkaCluster("source"), KafkaCluster("target")]) as (source, target):
        yield source, target


@pytest.fixture(scope="session")
def source_cluster(cluster_pair: "tuple[KafkaCluster, KafkaCluster]") -> "KafkaCluster":
    """The source cluster that all tests share. A test that kills or freezes brokers takes ``make_cluster``."""
    return cluster_pair[0]


@pytest.fixture(scope="session")
def target_cluster(cluster_pair: "tuple[KafkaCluster, KafkaCluster]") -> "KafkaCluster":
    """The target cluster that all tests share. A test that kills or freezes brokers takes ``make_cluster``."""
    return cluster_pair[1]


@pytest.fixture
def make_cluster() -> "Iterator[Callable[..., KafkaCluster]]":
    """Starts clusters of one's own, with the arguments of ``KafkaCluster``; they end with the test."""
    from deploy.local.kafka import KafkaCluster

    made: list[KafkaCluster] = []

    def make(name: str = "own", **arguments: Any) -> KafkaCluster:
        cluster = KafkaCluster(name, **arguments)
        made.append(cluster)
        cluster.start()
        return cluster

    yield make
    for cluster in made:
        cluster.close()
