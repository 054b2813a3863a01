"""Two clusters of three nodes each, for all tests of this folder. Each test leaves all six brokers running.

Both have an authorizer. Brokers and tests are super users; a flow that connects to the listener ``SASL``, as
``RIGHTS_USER``, may do what no ACL forbids (``test_rights``).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.local.kafka import start_clusters
from tests.cluster.kafka_proxy import KafkaProxy
from tests.cluster.running import PATIENCE
from tests.cluster.shared_cluster import SharedCluster
from tests.faults.campaign import FaultCampaign
from tests.faults.scene import NODES, Pair, heal

RIGHTS_USER = "anna"
RIGHTS_PASSWORD = "canary-password"  # noqa: S105
READY_S = 180.0
"""Six brokers that start at the same moment on two cores are slow."""
LISTENERS = {"PLAINTEXT": "PLAINTEXT", "SASL": "SASL_PLAINTEXT"}
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": True,
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{RIGHTS_USER}="{RIGHTS_PASSWORD}";'
    ),
    "min.insync.replicas": min(2, NODES),
    "unclean.leader.election.enable": False,
    "replica.lag.time.max.ms": 5_000,
    "log.retention.check.interval.ms": 500,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--faults-resume", action="store_true", help="leave out what has passed at the same commit")
    parser.addoption(
        "--faults-keep", action="store_true", help="keep what other commits came to, and run all asked for"
    )
    parser.addoption("--faults-save", action="store_true", help="write docs/results/faults-DATE.md")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config.option, "faults_resume"):  # otherwise pytest was asked for more than this folder
        campaign = FaultCampaign(
            resume=config.option.faults_resume, keep=config.option.faults_keep, save=config.option.faults_save
        )
        config.pluginmanager.register(campaign, "fault campaign")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this folder is slow: ``make faults`` runs it."""
    for item in items:
        if "tests/faults/" in item.nodeid:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def clusters() -> Iterator[Pair]:
    made = [
        SharedCluster(
            f"faults-{side}",
            nodes=NODES,
            settings=SETTINGS,
            listeners=LISTENERS,
            ready_timeout_s=READY_S * PATIENCE,
        )
        for side in ("source", "target")
    ]
    with start_clusters(made) as (source, target):
        yield Pair(source, target)


@pytest.fixture
def pair(clusters: Pair) -> Iterator[Pair]:
    """The two clusters; all brokers run again when the test is over."""
    yield clusters
    heal(clusters.source)
    heal(clusters.target)


@pytest.fixture
def at_target(pair: Pair) -> Iterator[KafkaProxy]:
    """A proxy before the target."""
    with KafkaProxy(pair.target.bootstrap) as proxy:
        yield proxy
