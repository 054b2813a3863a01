"""``mm2py plan``: which connectors run already, by what the workers of a group tell."""

from __future__ import annotations

from mm2py.cli.plan import of_workers
from mm2py.flow import Kind
from mm2py.flow_plan.planned import PlannedFlow, PlannedRefusal
from mm2py.records.control_record import Beat, NotStarted
from tests.unit.status.test_report import A_TO_B, NOW_MS, W1, W2, Log, two_members

FAILS = NotStarted(NOW_MS - 9_000, "not-started", "WRITE is missing.")
WANTED = [Kind.SOURCE, Kind.HEARTBEAT]


def planned(log: Log) -> PlannedFlow:
    return of_workers(PlannedFlow(str(A_TO_B)), WANTED, log.facts(has_grown=True), A_TO_B, log.at_ms)


def test_connectors_that_live_workers_have_run_already() -> None:
    assert planned(two_members({}, {})) == PlannedFlow("A->B", runs=(Kind.SOURCE, Kind.HEARTBEAT))


def test_a_worker_whose_session_has_expired_runs_nothing() -> None:
    log = two_members({}, {})
    for member in log.view.members.values():
        member.expired = True
    assert planned(log) == PlannedFlow("A->B", starts=(Kind.SOURCE, Kind.HEARTBEAT))


def test_a_flow_that_no_worker_can_start_does_not_run_and_the_plan_says_why() -> None:
    """The workers were there, so there was nothing to do, and not one record was copied."""
    log = two_members({}, {}).take(*[Beat(one, not_started={A_TO_B: FAILS}) for one in (W1, W2)])
    why = "host-0000000a, host-0000000b cannot start the flow: WRITE is missing."
    assert planned(log) == PlannedFlow("A->B", runs=(Kind.HEARTBEAT,), refusals=(PlannedRefusal("A->B", why, ""),))


def test_a_worker_that_cannot_start_a_flow_beside_one_that_runs_it_is_told() -> None:
    log = two_members({}, {}).take(Beat(W2, not_started={A_TO_B: FAILS}))
    found = planned(log)
    assert found.runs == (Kind.SOURCE, Kind.HEARTBEAT) and found.changes
    assert found.refusals[0].why.startswith("host-0000000b cannot start the flow")
