"""Connect's state of a source connector and of its tasks, where workers cannot start the flow; and where they can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from mm2py.flow import ConnectorName, Kind
from mm2py.records.control_record import Assigned, Beat, Claim, NotStarted
from mm2py.status.facts import Facts, FlowFacts, GroupFacts
from mm2py.status.report import report_of
from mm2py_rest.clusters.live import View
from mm2py_rest.connector_status import status_of
from mm2py_rest.models import ConnectorStatus
from tests.unit.status.test_report import (
    A_TO_B,
    HEAD,
    NOW_MS,
    W1,
    W2,
    A,
    B,
    Log,
    gap,
    joined,
    of_flow,
    share,
    two_members,
)

FAILS = NotStarted(NOW_MS - 9_000, "not-started", "WRITE is missing.")
SILENT = NotStarted(NOW_MS - 9_000, "source-silent", "connection refused")
EACH_HAS_ONE = {share("orders", 0): W1, share("orders", 1): W2}


def status(flow: FlowFacts, group: GroupFacts) -> ConnectorStatus:
    facts = Facts(NOW_MS, {A: "", B: ""}, [group], [flow], {})
    return status_of(ConnectorName(A_TO_B, Kind.SOURCE), View(0.0, facts, report_of(facts)))


def states(found: ConnectorStatus) -> tuple[str, Sequence[str]]:
    return found.connector.state, [task.state for task in found.tasks]


@pytest.mark.parametrize(
    ("beats", "wanted"),
    [
        ({}, ("RUNNING", ["RUNNING", "RUNNING"])),
        ({W2: FAILS}, ("RUNNING", ["RUNNING", "FAILED"])),
        ({W1: FAILS, W2: FAILS}, ("FAILED", ["FAILED", "FAILED"])),
        ({W1: SILENT, W2: FAILS}, ("FAILED", ["RUNNING", "FAILED"])),
        ({W1: SILENT, W2: SILENT}, ("RUNNING", ["RUNNING", "RUNNING"])),
    ],
)
def test_tasks_of_workers_that_cannot_start_the_flow_have_failed_and_the_connector_if_none_can(
    beats: dict[Any, NotStarted], wanted: object
) -> None:
    log = two_members(EACH_HAS_ONE, {"orders": 2}).take(
        *[Beat(one, not_started={A_TO_B: why}) for one, why in beats.items()]
    )
    found = status(of_flow(selected={"orders": 2}), log.facts())
    assert states(found) == wanted
    for task, member in zip(found.tasks, (W1, W2), strict=True):
        assert ("WRITE is missing" in (task.trace or "")) is (beats.get(member) is FAILS), task


def test_a_worker_that_cannot_start_a_flow_beside_one_that_runs_it_without_topics_fails_no_connector() -> None:
    log = Log().take(joined(W1), joined(W2), Claim(W1, 1, "c"), Assigned(W1, 1, 1, {HEAD: W1}))
    found = status(of_flow(), log.take(Beat(W2, not_started={A_TO_B: FAILS})).facts())
    assert found.connector.state == "RUNNING" and "WRITE is missing" in (found.connector.trace or "")


def test_a_gap_that_no_task_has_fails_no_connector() -> None:
    log = Log().take(joined(W1), Claim(W1, 1, "c"), Assigned(W1, 1, 1, {HEAD: W1}))
    found = status(of_flow(gaps=[gap()]), log.facts())
    assert found.connector.state == "RUNNING" and "has stopped" in (found.connector.trace or "")
    assert status(of_flow(gaps=[gap()]), GroupFacts(B, "mm2py", "x", None)).connector.state == "UNASSIGNED"
