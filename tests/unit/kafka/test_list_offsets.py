"""Every ListOffsets request goes through one module: who is asked for what, and what is left out."""

from __future__ import annotations

import random

import pytest

from mm2py.kafka.error_codes import NOT_LEADER_OR_FOLLOWER
from mm2py.kafka.errors import BrokerRefused, BrokerUnreachable
from mm2py.kafka.list_offsets import (
    EARLIEST,
    LATEST,
    PARTITIONS_A_REQUEST,
    end_of,
    find_bounds,
    find_offsets,
    list_offsets,
)
from mm2py.kafka.messages import ListOffsetsRequest
from mm2py.kafka.port import BrokerId
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.virtual_time import VirtualClock

ONE, TWO = BrokerId(2), BrokerId(1)


def a_cluster() -> ClusterModel:
    """One broker leads t-0 with three records, the first of them deleted; the other leads t-1, which is empty."""
    cluster = ClusterModel("B", VirtualClock(), random.Random(1), nodes=2)
    cluster.create_topic("t", 2, replication_factor=1)
    assert [part.leader for part in cluster.topics["t"].partitions] == [ONE, TWO]
    cluster.append("t", 0, [b"1", b"2", b"3"])
    cluster.delete_records("t", 0, 1)
    return cluster


LEADERS = {("t", 0): ONE, ("t", 1): TWO, ("t", 2): None}


async def test_each_leader_is_asked_for_its_partitions_and_partitions_without_one_are_left_out() -> None:
    cluster = a_cluster()
    assert await find_offsets(cluster, LEADERS, EARLIEST) == {("t", 0): 1, ("t", 1): 0}
    assert await find_offsets(cluster, LEADERS, LATEST) == {("t", 0): 3, ("t", 1): 0}
    assert await find_bounds(cluster, LEADERS) == {("t", 0): (1, 3), ("t", 1): (0, 0)}
    assert await end_of(cluster, ONE, ("t", 0), LATEST) == 3


async def test_an_error_of_one_partition_is_in_its_answer() -> None:
    cluster = a_cluster()
    wrong = {("t", 0): TWO, ("t", 1): TWO}
    answers = await list_offsets(cluster, wrong, LATEST)
    assert answers["t", 0].error_code == NOT_LEADER_OR_FOLLOWER
    assert (answers["t", 1].error_code, answers["t", 1].offset) == (0, 0)
    assert await find_bounds(cluster, wrong) == {("t", 1): (0, 0)}
    with pytest.raises(BrokerRefused, match="NOT_LEADER_OR_FOLLOWER"):
        await end_of(cluster, TWO, ("t", 0), LATEST)


async def test_a_leader_that_does_not_answer_is_raised_or_left_out() -> None:
    cluster = a_cluster()
    cluster.stop_broker(TWO, clean=False)
    with pytest.raises(BrokerUnreachable):
        await list_offsets(cluster, LEADERS, LATEST)
    assert set(await list_offsets(cluster, LEADERS, LATEST, skip_silent=True)) == {("t", 0)}
    assert await find_bounds(cluster, LEADERS) == {("t", 0): (1, 3)}


async def test_many_partitions_are_asked_for_in_several_requests() -> None:
    cluster = ClusterModel("B", VirtualClock(), random.Random(1), nodes=1)
    number = PARTITIONS_A_REQUEST + 1
    cluster.create_topic("t", number, replication_factor=1)
    sizes: list[int] = []
    send = cluster.send

    async def counted(broker: BrokerId, request: object, *, channel: str = "control") -> object:
        assert isinstance(request, ListOffsetsRequest)
        sizes.append(sum(len(topic.partitions) for topic in request.topics))
        return await send(broker, request, channel=channel)

    cluster.send = counted  # type: ignore[method-assign,assignment]
    found = await find_offsets(cluster, {("t", at): BrokerId(1) for at in range(number)}, LATEST)
    assert len(found) == number
    assert sizes == [PARTITIONS_A_REQUEST, 1]
