"""What a worker says of a target cluster that does not answer: it is asked for the group first, for all flows there."""

from __future__ import annotations

import io
import random
import re

import pytest

from mm2py.config.settings import GroupSettings
from mm2py.connector import Side
from mm2py.flow import ClusterAlias, Kind, parse_flow
from mm2py.group.group import Group
from mm2py.kafka.cluster import WAITING_REPORT_S
from mm2py.kafka.errors import BrokerUnreachable
from mm2py.logs import make_logger
from mm2py.records.control_record import MemberId
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.virtual_time import VirtualClock

pytestmark = pytest.mark.virtual_time(limit_s=600)

DOWN_S = 60.0


def group_at(cluster: ClusterModel, clock: VirtualClock, text: io.StringIO, *, up_at_s: float) -> Group:
    """Return a worker's part in the group of a cluster that answers from ``up_at_s`` on."""

    async def identify() -> str:
        if clock.monotonic() < up_at_s:
            raise BrokerUnreachable("b:9092", "Connection refused")
        return "B-id"

    return Group(
        GroupSettings(ClusterAlias("B"), "g", 3.0, 0.5, "log", None),
        Side(ClusterAlias("B"), cluster, identify),
        (),
        {Kind.HEARTBEAT: (parse_flow("A->B"), parse_flow("C->B"))},
        name="w1",
        clock=clock,
        rng=random.Random(2),
        log=make_logger("info", "text", text),
    )


async def test_a_target_that_cannot_be_reached_is_named_every_few_seconds_and_once_when_it_is() -> None:
    clock, text = VirtualClock(), io.StringIO()
    up_at_s = clock.monotonic() + DOWN_S
    cluster = ClusterModel("B", clock, random.Random(1))
    member = await group_at(cluster, clock, text, up_at_s=up_at_s).new_member(MemberId("m1"))
    assert clock.monotonic() >= up_at_s
    assert not member.takes_part
    *said, reached = text.getvalue().splitlines()
    assert DOWN_S / (WAITING_REPORT_S + 2) <= len(said) <= DOWN_S / WAITING_REPORT_S
    for line in said:
        assert re.search(r" cluster\.unreachable .*cluster=B .*role=target", line)
        assert "b:9092 cannot be reached: Connection refused" in line
        assert "A->B C->B" in line
    assert re.search(r" cluster\.reached .*cluster=B .*role=target", reached)


async def test_a_target_that_answers_is_not_worth_a_line() -> None:
    clock, text = VirtualClock(), io.StringIO()
    cluster = ClusterModel("B", clock, random.Random(1))
    await group_at(cluster, clock, text, up_at_s=0).new_member(MemberId("m1"))
    assert text.getvalue() == ""
