"""The health that a worker tells: starting until it has joined and started, and not unhealthy for a flow that waits."""

from __future__ import annotations

import pytest

from mm2py.connector import ClusterAlias, FlowStatus, parse_flow
from mm2py.records.control_record import MemberId
from mm2py.worker.facts import Health, health_of

JOINED = {ClusterAlias("B"): MemberId("0000000a")}


def flow(state: str) -> FlowStatus:
    return FlowStatus(parse_flow("A->B"), state, "", "", (), {})


@pytest.mark.parametrize(
    ("states", "joined", "stops", "health", "why"),
    [
        (["running"], JOINED, False, Health.HEALTHY, "joined its groups"),
        (["waiting"], JOINED, False, Health.HEALTHY, "joined its groups"),
        (["refused"], JOINED, False, Health.HEALTHY, "joined its groups"),
        ([], JOINED, False, Health.HEALTHY, "joined its groups"),
        (["running"], {}, False, Health.STARTING, "It has joined 0 of 1 groups."),
        (["starting"], JOINED, False, Health.STARTING, "It has not started A->B yet."),
        (["running"], JOINED, True, Health.UNHEALTHY, "The worker is stopping."),
    ],
)
def test_a_worker_is_healthy_once_it_has_joined_and_started(
    states: list[str], joined: dict[ClusterAlias, MemberId], *, stops: bool, health: Health, why: str
) -> None:
    found, text = health_of(tuple(map(flow, states)), joined, 1, stops=stops)
    assert found is health
    assert why in text
