"""What the target of a flow tells: whether it can fence, whether MirrorMaker 2 runs, and the clocks."""

from __future__ import annotations

from typing import Any

import pytest

from mm2py.checks.facts import ClockAnswer, GroupAnswer, Unanswered
from mm2py.checks.judge_target import judge_target
from mm2py.checks.results import CheckResult, CheckState
from tests.fakes.check_answers import NOW_MS, cluster, configuration, flow_answers, hidden, missing, topic

OK, WARNING, FAILED, UNKNOWN = CheckState.OK, CheckState.WARNING, CheckState.FAILED, CheckState.UNKNOWN
TRANSACTIONS = "__transaction_state"
EXACTLY = {"B.exactly.once.source.support": "enabled"}


def judged(code: str, settings: Any = None, **changes: Any) -> CheckResult:
    (found,) = [one for one in judge_target(flow_answers(settings, **changes)) if one.code == code]
    return found


def replicas(factor: str | None) -> Any:
    return cluster("B", broker_settings={"transaction.state.log.replication.factor": factor})


@pytest.mark.parametrize(
    ("found", "factor", "settings", "state", "text"),
    [
        (topic(TRANSACTIONS), "1", {}, OK, "mm2py can fence dead workers on B: __transaction_state is there"),
        (topic(TRANSACTIONS, leaderless=(1,)), "1", {}, WARNING, "partitions without a leader"),
        (missing(TRANSACTIONS), "1", {}, OK, "it has enough brokers"),
        (missing(TRANSACTIONS), "3", {}, WARNING, "is 3, and B has 1 broker: the flow is copied at least once"),
        (missing(TRANSACTIONS), "3", EXACTLY, FAILED, "the flow is refused"),
        (hidden(TRANSACTIONS), "3", {}, UNKNOWN, "B shows neither __transaction_state nor"),
        (missing(TRANSACTIONS), None, {}, UNKNOWN, "is not known"),
    ],
)
def test_a_target_that_can_fence(
    found: Any, factor: str | None, settings: dict[str, str], state: CheckState, text: str
) -> None:
    result = judged("MM0303", configuration(**settings), target=replicas(factor), target_topics={TRANSACTIONS: found})
    assert (result.state, text in result.sentence) == (state, True), result


@pytest.mark.parametrize(
    ("group", "harmless", "state", "text"),
    [
        (
            GroupAnswer("A-mm2", is_denied=False),
            False,
            OK,
            "No MirrorMaker 2 runs the flow in group A-mm2 of B. MirrorMaker 2's connectors in another Connect",
        ),
        (GroupAnswer("A-mm2", False, None, 1, "connect"), True, OK, "only emits heartbeats"),
        (GroupAnswer("A-mm2", False, None, 1, "connect"), False, FAILED, "group A-mm2 of B has 1 member"),
        (GroupAnswer("A-mm2", False, None, 2, "consumer"), True, FAILED, "has 2 members"),
        (GroupAnswer("A-mm2", is_denied=True), False, UNKNOWN, "DESCRIBE on it is missing"),
        (None, False, UNKNOWN, "is not known"),
    ],
)
def test_a_running_mirror_maker(group: GroupAnswer | None, harmless: bool, state: CheckState, text: str) -> None:
    groups = {} if group is None else {"A-mm2": group}
    result = judged("MM0605", target_groups=groups, mm2_only_emits_heartbeats=harmless)
    assert (result.state, text in result.sentence) == (state, True), result


@pytest.mark.parametrize(
    ("clock", "state", "text"),
    [
        (None, UNKNOWN, "no worker writes to B now"),
        (ClockAnswer(NOW_MS - 60_000, None, NOW_MS), UNKNOWN, "no worker writes to B now"),
        (ClockAnswer(NOW_MS + 100, NOW_MS - 500, NOW_MS), OK, "agree to 2 s"),
        (ClockAnswer(NOW_MS + 5_000, NOW_MS - 500, NOW_MS), WARNING, "this machine is 5 s or more behind that of B"),
        (ClockAnswer(NOW_MS - 5_500, NOW_MS - 500, NOW_MS), WARNING, "this machine is 5 s or more ahead of that of B"),
        (ClockAnswer(NOW_MS + 5_000, None, NOW_MS), WARNING, "5 s or more behind"),
        (ClockAnswer(NOW_MS - 3_600_500, NOW_MS - 500, NOW_MS), FAILED, "3600 s or more ahead"),
    ],
)
def test_the_clock_of_the_target(clock: ClockAnswer | None, state: CheckState, text: str) -> None:
    result = judged("MM0801", clock=clock)
    assert (result.state, text in result.sentence) == (state, True), result


def test_the_clock_of_the_source_is_never_known() -> None:
    assert judged("MM0802").state is UNKNOWN


def test_a_target_that_is_away() -> None:
    away = cluster("B", silent=Unanswered("B is away.", "Start it."))
    found = list(judge_target(flow_answers(target=away)))
    assert {one.code for one in found if one.waits_for == "B"} == {"MM0303", "MM0605", "MM0801"}
