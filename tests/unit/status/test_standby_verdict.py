"""The sentence on a flow that is standby: who has decided it, and what turns it on."""

from __future__ import annotations

import pytest

from mm2py.flow import ClusterAlias, Flow
from mm2py.records.author import Author
from mm2py.status.verdict import FlowSafety, Readiness, VerdictFacts, verdict_of

ANN = Author("ann", "ops1", "A burns")


@pytest.mark.parametrize(
    ("command", "then"),
    [
        ("mm2py dr turn", "turns on with mm2py dr turn FILE 'A->B'"),
        ("mm2py dr failover", "A was lost, and nothing of it is copied any more"),
    ],
)
def test_a_flow_that_a_failover_has_ended_is_not_said_to_be_turned_on(command: str, then: str) -> None:
    by = ANN.by_command(command)
    facts = VerdictFacts(
        flow=Flow(ClusterAlias("A"), ClusterAlias("B")),
        now_ms=0,
        is_enabled=True,
        held=f"standby by {by}: {ANN.reason}",
        not_running="",
        is_running_known=True,
        safety=FlowSafety(None, "", ""),
        lag=None,
        is_lag_partial=False,
        topics=(),
        skipped=0,
        unread=(),
        consumer_groups=None,
        is_standby=True,
    )
    found = verdict_of(facts)
    assert found.readiness is Readiness.NOT_COPIED
    assert found.text == f"A->B: standby by ann on ops1 ({command}): A burns; {then}"
