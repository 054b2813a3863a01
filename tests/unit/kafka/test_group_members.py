"""Members of groups are told with their hosts, whichever protocol they speak."""

from __future__ import annotations

import random
from typing import Any

from kio.schema.errors import ErrorCode

from mm2py.kafka.errors import UnsupportedVersion
from mm2py.kafka.group_members import GroupMember, members_of
from mm2py.kafka.port import BrokerId
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.virtual_time import VirtualClock

ONE = GroupMember("classic-0", "client-0", "127.0.0.1")


def a_cluster() -> ClusterModel:
    cluster = ClusterModel("A", VirtualClock(), random.Random(1), nodes=3)
    cluster.groups.activate("classic")
    cluster.groups.activate("new", members=2)
    cluster.groups.of_new_protocol.add("new")
    cluster.groups.commit("idle", {})
    return cluster


async def test_members_of_both_protocols_are_told() -> None:
    cluster = a_cluster()
    found = await members_of(cluster, ["classic", "new", "idle", "unknown"])
    assert found == {
        "classic": (ONE,),
        "new": (GroupMember("new-0", "client-0", "127.0.0.1"), GroupMember("new-1", "client-1", "127.0.0.1")),
    }
    assert str(ONE) == "classic-0 on 127.0.0.1"
    assert await members_of(cluster, []) == {}
    assert not cluster.complaints


async def test_a_group_whose_coordinator_says_nothing_has_no_known_members() -> None:
    cluster = a_cluster()
    cluster.groups.errors["new"] = ErrorCode.coordinator_load_in_progress
    assert await members_of(cluster, ["classic", "new"]) == {"classic": (ONE,)}


class Old(ClusterModel):
    """A cluster of brokers that do not know the consumer protocol."""

    async def send(self, broker: BrokerId, request: Any, *, channel: str = "control") -> Any:
        if type(request).__name__ == "ConsumerGroupDescribeRequest":
            raise UnsupportedVersion("broker 1", "ConsumerGroupDescribe", wanted="0", offered="none")
        return await super().send(broker, request, channel=channel)


async def test_an_old_broker_has_classic_groups_only() -> None:
    cluster = Old("A", VirtualClock(), random.Random(1), nodes=1)
    cluster.groups.activate("classic")
    cluster.groups.commit("idle", {})
    assert await members_of(cluster, ["classic", "idle"]) == {"classic": (ONE,)}
