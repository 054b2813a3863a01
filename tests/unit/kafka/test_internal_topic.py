"""An internal topic is found or made in one place, and turned down where it would lose what it keeps."""

from __future__ import annotations

import random

import pytest

from mm2py.connector import TopicName
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
from mm2py.records.batch import NewRecord
from mm2py.topics.names import InternalTopic
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.virtual_time import VirtualClock, run_virtual

TOPIC = InternalTopic(TopicName("kept"), 3)


def a_cluster() -> ClusterModel:
    return ClusterModel("B", VirtualClock(), random.Random(1))


def test_a_topic_that_is_missing_is_made_once_and_found_when_it_has_leaders() -> None:
    async def scenario() -> None:
        cluster, made = a_cluster(), []
        with pytest.raises(BrokerRefused, match="Waiting for kept") as waiting:
            await find_or_make(cluster, TOPIC, 1, setting="x", made=lambda: made.append(1))
        assert (waiting.value.retriable, waiting.value.code) == (True, LEADER_NOT_AVAILABLE)
        for _ in range(100):
            try:
                found = await find_or_make(cluster, TOPIC, 1, setting="x", made=lambda: made.append(1))
                break
            except BrokerRefused as error:
                assert error.retriable
        assert (len(found.partitions), made) == (3, [1])
        assert await read_settings(cluster, TOPIC) == {"cleanup.policy": "compact"}

    run_virtual(scenario())


def test_a_refusal_that_nothing_mends_names_the_setting_and_what_to_make_by_hand() -> None:
    async def scenario() -> None:
        with pytest.raises(TopicNotMade) as refused:
            await find_or_make(a_cluster(), TOPIC, 5, setting="some.replication.factor")
        assert (refused.value.code, refused.value.retriable) == (INVALID_REPLICATION_FACTOR, False)
        assert refused.value.may_be_mended
        assert "Set some.replication.factor to what the cluster can hold" in refused.value.remedy
        assert "by hand with 3 partition(s) and cleanup.policy=compact." in refused.value.remedy

    run_virtual(scenario())


def test_a_topic_with_other_settings_is_turned_down() -> None:
    async def scenario() -> None:
        cluster = a_cluster()
        cluster.create_topic("kept", 3, {"cleanup.policy": "delete"})
        with pytest.raises(TopicUnsuitable, match=r"it has cleanup\.policy=delete\. Set cleanup\.policy=compact on it"):
            await read_settings(cluster, TOPIC)
        assert await read_settings(cluster, TOPIC, must_be=()) == {"cleanup.policy": "delete"}

    run_virtual(scenario())


@pytest.mark.parametrize(("count", "size", "batches"), [(BATCH_RECORDS + 1, 10, 2), (9, BATCH_BYTES // 4, 3)])
def test_many_records_and_large_ones_are_written_in_batches_that_brokers_take(
    count: int, size: int, batches: int
) -> None:
    async def scenario() -> None:
        cluster = a_cluster()
        cluster.create_topic("kept", 1, {"cleanup.policy": "compact"})
        topic = InternalTopic(TopicName("kept"), 1)
        writer = await open_writer(
            cluster, topic, 1, setting="x", made=list, rng=random.Random(1), timeout_ms=1000, channel="test"
        )
        await writer.write({0: [NewRecord(b"%d" % at, b"x" * size, 1) for at in range(count)]})
        assert [record.key for record in cluster.records("kept", 0)] == [b"%d" % at for at in range(count)]
        assert len(cluster.batches("kept", 0)) == batches

    run_virtual(scenario())
