"""A check sends no request that could change a cluster."""

from __future__ import annotations

import random

import pytest

from mm2py.checks.only_reads import OnlyReads
from mm2py.kafka import admin
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.port import Brokers
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.virtual_time import VirtualClock

NEW = admin.NewTopic("orders", 1, 1, {})


def model() -> ClusterModel:
    return ClusterModel("A", VirtualClock(), random.Random(1))


async def test_reading_and_validating_pass() -> None:
    cluster = model()
    brokers: Brokers = OnlyReads(cluster)
    assert (await fetch_metadata(brokers, None)).topics == {}
    assert await admin.create_topics(brokers, [NEW], validate_only=True) == {"orders": None}
    assert not cluster.topics


async def test_what_changes_something_is_refused_also_the_question_that_makes_kafkas_own_topics() -> None:
    cluster = model()
    brokers: Brokers = OnlyReads(cluster)
    with pytest.raises(TypeError, match="CreateTopicsRequest"):
        await admin.create_topics(brokers, [NEW])
    with pytest.raises(TypeError, match="CreatePartitionsRequest"):
        await admin.create_partitions(brokers, {"orders": 3})
    with pytest.raises(TypeError, match="FindCoordinatorRequest"):
        await admin.find_coordinator(brokers, "billing", transactions=False)
    assert not cluster.topics
