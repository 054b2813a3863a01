"""What is asked about a flow, on clusters in memory: what has no answer is told, and not taken for nothing."""

from __future__ import annotations

import datetime
import random
from typing import Any

import pytest
from kio.static.primitive import i32Timedelta

from mm2py.checks.asking_flow import FlowAsking
from mm2py.checks.facts import FlowAnswers, PartitionAnswer
from mm2py.kafka.messages import DescribeTransactionsRequest, DescribeTransactionsResponse
from mm2py.kafka.port import BrokerId
from mm2py.records.source_offset import SourcePartition, StoredPosition, encode_key, encode_value
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.broker.record_batch import Record
from tests.fakes.check_answers import cluster, configuration
from tests.fakes.virtual_time import VirtualClock

pytestmark = pytest.mark.virtual_time(limit_s=600)


class CheckedCluster(ClusterModel):
    """A cluster that also answers about transactional ids: it knows none."""

    async def send(self, broker: BrokerId, request: Any, *, channel: str = "control") -> Any:
        if isinstance(request, DescribeTransactionsRequest):
            no_wait = i32Timedelta.parse(datetime.timedelta(0))
            return DescribeTransactionsResponse(throttle_time=no_wait, transaction_states=())
        return await super().send(broker, request, channel=channel)


def clusters() -> tuple[CheckedCluster, CheckedCluster]:
    clock = VirtualClock()
    return CheckedCluster("A", clock, random.Random(1)), CheckedCluster("B", clock, random.Random(2))


async def asked(source: ClusterModel, target: ClusterModel, **extra: str) -> FlowAnswers:
    asking = FlowAsking(configuration(**extra).flows[0], [], [], "mm2py", 1.0, source, target, VirtualClock())
    return await asking.ask(cluster("A"), cluster("B"))


async def test_remote_partitions_without_a_leader_are_not_taken_for_empty() -> None:
    source, target = clusters()
    source.create_topic("orders", 3)
    target.create_topic("A.orders", 4)
    target.append("A.orders", 0, [b"of someone else"])
    answers = await asked(source, target)
    assert (answers.filled, answers.unlooked) == ({"orders": (0,)}, {})
    for number in (1, 3):  # no source partition is copied to the last one
        target.topics["A.orders"].partitions[number].leader = -1
    answers = await asked(source, target)
    assert (answers.filled, answers.unlooked) == ({"orders": (0,)}, {"orders": (1,)})


async def test_the_remote_topic_of_a_source_topic_that_may_not_be_seen_is_looked_at_as_a_whole() -> None:
    """Its number of partitions was taken for 0, so its remote topic was said to be free."""
    source, target = clusters()
    source.create_topic("orders", 2)
    source.denied_topics.add("orders")
    target.create_topic("A.orders", 2)
    target.append("A.orders", 1, [b"of someone else"])
    answers = await asked(source, target, **{"A->B.topics": "orders"})
    assert (answers.selected, answers.filled) == (("orders",), {"orders": (1,)})


async def test_without_an_answer_about_remote_topics_none_of_their_partitions_was_looked_at() -> None:
    source, target = clusters()
    source.create_topic("orders", 2)
    source.create_topic("orders.eu", 1)
    target.create_topic("A.orders", 2)
    target.hung_apis.add("ListOffsets")
    answers = await asked(source, target)
    assert (answers.filled, answers.unlooked) == ({}, {"orders": (0, 1)})


async def test_the_backlog_has_each_partition_that_answers_and_whether_its_age_is_known() -> None:
    source, target = clusters()
    source.create_topic("orders", 3)
    source.append("orders", 0, [b"1", b"2"])
    target.create_topic("mm2-offsets.A.internal", 1)
    places = [
        Record(encode_value(StoredPosition(0)), key=encode_key(SourcePartition("A", "orders", number)))
        for number in (0, 1)
    ]
    target.append("mm2-offsets.A.internal", 0, places)
    source.topics["orders"].partitions[1].leader = -1
    answers = await asked(source, target)
    assert answers.placed == {"orders": frozenset({0, 1})}
    assert answers.partitions == {("orders", 0): PartitionAnswer(0, 2, 0, 0)}
    source.hung_apis.add("DescribeConfigs")
    answers = await asked(source, target)
    assert answers.partitions == {("orders", 0): PartitionAnswer(0, 2, 0, None, is_age_known=False)}
    source.hung_apis.add("ListOffsets")
    answers = await asked(source, target)
    assert answers.partitions == {} and answers.placed == {"orders": frozenset({0, 1})}
