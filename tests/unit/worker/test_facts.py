"""The health that a worker tells: starting until it has joined and started, and not unhealthy for a flow that waits."""

from __future__ import annotations

import pytest

from mm2py.connector import FlowStatus
from mm2py.flow import parse_flow
from mm2py.worker.facts import Health, health_of


def flow(state: str) -> FlowStatus:
    return FlowStatus(parse_flow("A->B"), state, "", "", (), {})


@pytest.mark.parametrize(
    ("states", "joined", "stops", "health", "why"),
    [
        (["running"], 1, False, Health.HEALTHY, "joined its groups"),
        (["waiting"], 1, False, Health.HEALTHY, "joined its groups"),
        (["refused"], 1, False, Health.HEALTHY, "joined its groups"),
        ([], 1, False, Health.HEALTHY, "joined its groups"),
        (["running"], 0, False, Health.STARTING, "It has joined 0 of 1 groups."),
        (["starting"], 1, False, Health.STARTING, "It has not started A->B yet."),
        (["running"], 1, True, Health.UNHEALTHY, "The worker is stopping."),
    ],
)
def test_a_worker_is_healthy_once_it_has_joined_and_started(
    states: list[str], joined: int, *, stops: bool, health: Health, why: str
) -> None:
    found = health_of(tuple(map(flow, states)), joined, 1, stops=stops)
    assert found.health is health
    assert why in found.message
