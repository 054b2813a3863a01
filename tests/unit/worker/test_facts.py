"""What a worker tells of itself: its health, and whether it copies nothing because of itself."""

from __future__ import annotations

import pytest

from mm2py.connector import FlowStatus
from mm2py.flow import Flow, parse_flow
from mm2py.worker.facts import Health, facts_of


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
    found = facts_of(tuple(map(flow, states)), joined, 1, stops=stops, has_run=True)
    assert found.health is health
    assert why in found.message


AB, CB = parse_flow("A->B"), parse_flow("C->B")


def two(first: str, second: str) -> tuple[FlowStatus, ...]:
    return FlowStatus(AB, first, "", "", (), {}), FlowStatus(CB, second, "no right to read C", "", (), {})


@pytest.mark.parametrize(
    "states",
    [
        ("running", "refused"),
        ("waiting", "waiting"),  # clusters that do not answer: no other worker would copy either
        ("waiting", "refused"),
        ("paused", "paused"),
        ("stopped", "off"),
        ("off", "running"),
    ],
)
def test_a_worker_is_ready_unless_it_copies_nothing_because_of_itself(states: tuple[str, str]) -> None:
    assert facts_of(two(*states), 1, 1, stops=False, has_run=True).unready == ""


@pytest.mark.parametrize(
    ("states", "joined", "stops", "failing", "why"),
    [
        (("waiting", "waiting"), 1, False, {}, "It runs none of its flows. A->B, and 1 more: it has not started yet"),
        (("running", "running"), 1, True, {}, "The worker is stopping."),
        (("running", "running"), 0, False, {}, "It has joined none of its 1 groups."),
        (("starting", "starting"), 1, False, {}, "It runs none of its flows. A->B, and 1 more: it has not started yet"),
        (("off", "refused"), 1, False, {}, "It runs none of its flows. C->B: no right to read C"),
        (("paused", "refused"), 1, False, {}, "It runs none of its flows. C->B: no right to read C"),
        (("running", "off"), 1, False, {AB: "bad password"}, "It runs none of its flows. A->B: bad password"),
        (("running", "refused"), 1, False, {AB: "bad password"}, "A->B, and 1 more: bad password"),
    ],
)
def test_a_worker_that_copies_nothing_because_of_itself_is_not_ready_and_says_why(
    states: tuple[str, str], joined: int, *, stops: bool, failing: dict[Flow, str], why: str
) -> None:
    assert why in facts_of(two(*states), joined, 1, stops=stops, has_run=False, failing=failing).unready


def test_a_flow_that_fails_beside_one_that_runs_leaves_the_worker_ready() -> None:
    found = facts_of(two("running", "running"), 1, 1, stops=False, has_run=True, failing={AB: "bad password"})
    assert found.unready == ""


def test_a_worker_that_only_emits_heartbeats_is_ready_once_it_has_joined() -> None:
    assert facts_of((), 1, 1, stops=False, has_run=False).unready == ""
    assert facts_of((), 0, 1, stops=False, has_run=False).unready == "It has joined none of its 1 groups."
    assert facts_of((), 0, 0, stops=False, has_run=False).unready == ""
