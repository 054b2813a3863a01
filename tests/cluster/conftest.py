"""Clusters that only tests of this folder need."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from deploy.local.kafka import KafkaCluster
from tests.cluster.shared_cluster import SharedCluster
from tests.cluster.version_rows import RESULTS


@pytest.fixture(scope="session")
def guarded_cluster() -> Iterator[KafkaCluster]:
    """A cluster with an authorizer and no super user, for the whole run.

    Everybody may do everything until a resource has its first ACL. A test takes rights away on names of its own, and
    gives them back. It may freeze the broker, and thaws it.
    """
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": True,
    }
    with SharedCluster("guarded", settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def three_node_cluster() -> Iterator[KafkaCluster]:
    """Three nodes, for tests of leaders that move, hang or go. A test leaves all of them running."""
    with SharedCluster("three", nodes=3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def save_compat(request: pytest.FixtureRequest) -> Path | None:
    """The file into which a row of each version goes; None: nothing is saved."""
    if not request.config.getoption("--save-compat"):
        return None
    return RESULTS / f"compat-{datetime.now(UTC):%Y-%m-%d}.json"
