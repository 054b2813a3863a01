"""An internal topic is found or made in one place, and turned down where it would lose what it keeps."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from mm2py.flow import TopicName
from mm2py.kafka import messages
from mm2py.kafka.error_codes import INVALID_REPLICATION_FACTOR, LEADER_NOT_AVAILABLE
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.internal_topic import (
    BATCH_BYTES,
    BATCH_RECORDS,
    TopicNotMade,
    TopicUnsuitable,
    find_or_make,
    open_writer,
    read_settings,
)
from mm2py.kafka.port import BrokerId
from mm2py.records.batch import NewRecord
from mm2py.topics.names import InternalTopic
from mm2py.topics.replicas import AtMost
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.virtual_time import VirtualClock

TOPIC = InternalTopic(TopicName("kept"), 3)


def a_cluster() -> ClusterModel:
    return ClusterModel("B", VirtualClock(), random.Random(1))


async def test_a_topic_that_is_missing_is_made_once_and_found_when_it_has_leaders() -> None:
    cluster, made = a_cluster(), []
    found = await find_or_make(cluster, TOPIC, 1, setting="x", made=lambda: made.append(1))
    assert all(part.leader is not None for part in found.partitions.values())
    found = await find_or_make(cluster, TOPIC, 1, setting="x", made=lambda: made.append(1))
    assert (len(found.partitions), made) == (3, [1])
    assert await read_settings(cluster, TOPIC) == {"cleanup.policy": "compact"}


async def test_a_new_topic_without_leaders_is_asked_for_again() -> None:
    cluster = ClusterModel("B", VirtualClock(), random.Random(1), metadata_lag_s=10.0)
    with pytest.raises(BrokerRefused, match="Waiting for kept") as waiting:
        await find_or_make(cluster, TOPIC, 1, setting="x")
    assert (waiting.value.retriable, waiting.value.code) == (True, LEADER_NOT_AVAILABLE)


async def test_a_new_topic_of_which_the_broker_tells_no_partitions_yet_is_asked_for_again() -> None:
    """It answers with an error for the topic and no partitions; taken as it is, the topic would have none."""

    class Late:
        def __init__(self, cluster: ClusterModel) -> None:
            self.cluster = cluster

        async def send(self, broker: BrokerId, request: Any, *, channel: str = "control") -> Any:
            reply = await self.cluster.send(broker, request, channel=channel)
            if not isinstance(reply, messages.MetadataResponse):
                return reply
            code = ErrorCode.leader_not_available
            topics = [
                topic if topic.error_code else replace(topic, error_code=code, partitions=()) for topic in reply.topics
            ]
            return replace(reply, topics=tuple(topics))

    with pytest.raises(BrokerRefused, match="kept") as waiting:
        await find_or_make(Late(a_cluster()), TOPIC, 1, setting="x")
    assert waiting.value.retriable


@pytest.mark.parametrize(("nodes", "replicas"), [(1, 1), (2, 2), (4, 3)])
async def test_a_replication_factor_that_nobody_has_written_fits_the_brokers(nodes: int, replicas: int) -> None:
    cluster = ClusterModel("B", VirtualClock(), random.Random(1), nodes=nodes)
    found = await find_or_make(cluster, TOPIC, AtMost(3), setting="x")
    assert {len(part.replicas) for part in cluster.topics[str(TOPIC.name)].partitions} == {replicas}
    assert len(found.partitions) == 3


async def test_a_refusal_that_nothing_mends_names_the_setting_and_what_to_make_by_hand() -> None:
    with pytest.raises(TopicNotMade) as refused:
        await find_or_make(a_cluster(), TOPIC, 5, setting="some.replication.factor")
    assert (refused.value.code, refused.value.retriable) == (INVALID_REPLICATION_FACTOR, False)
    assert refused.value.may_be_mended
    assert "Set some.replication.factor (5) to what the cluster can hold" in refused.value.remedy
    assert "by hand with 3 partition(s) and cleanup.policy=compact." in refused.value.remedy


async def test_a_topic_with_other_settings_is_turned_down() -> None:
    cluster = a_cluster()
    cluster.create_topic("kept", 3, {"cleanup.policy": "delete"})
    with pytest.raises(TopicUnsuitable, match=r"it has cleanup\.policy=delete\. Set cleanup\.policy=compact on it"):
        await read_settings(cluster, TOPIC)
    assert await read_settings(cluster, TOPIC, must_be=()) == {"cleanup.policy": "delete"}


@pytest.mark.parametrize(("count", "size", "batches"), [(BATCH_RECORDS + 1, 10, 2), (9, BATCH_BYTES // 4, 3)])
async def test_many_records_and_large_ones_are_written_in_batches_that_brokers_take(
    count: int, size: int, batches: int
) -> None:
    cluster = a_cluster()
    cluster.create_topic("kept", 1, {"cleanup.policy": "compact"})
    topic = InternalTopic(TopicName("kept"), 1)
    writer = await open_writer(
        cluster, topic, 1, setting="x", made=list, rng=random.Random(1), timeout_ms=1000, channel="test"
    )
    await writer.write({0: [NewRecord(b"%d" % at, b"x" * size, 1) for at in range(count)]})
    assert [record.key for record in cluster.records("kept", 0)] == [b"%d" % at for at in range(count)]
    assert len(cluster.batches("kept", 0)) == batches
