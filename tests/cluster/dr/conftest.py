"""Tests of recoveries leave no flows on the brokers that the tests of a process share.

The story: a cutover leaves B->A claimed on A, and switched on. To every flow between the same clusters it is a ring,
and each test behind it that asks what a flow does not copy gets that answer as well.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.kafka_client import delete_topic, topic_names

SHARED = ("source_cluster", "target_cluster")


@pytest.fixture(autouse=True)
def forget_flows(request: pytest.FixtureRequest) -> Iterator[None]:
    """Delete what shared brokers know of the flows of a test, when it is over."""
    shared = [request.getfixturevalue(name) for name in SHARED if name in request.fixturenames]
    yield
    for cluster in shared:
        for topic in topic_names(cluster):
            if topic.startswith("mm2-configs."):
                delete_topic(cluster, topic)
