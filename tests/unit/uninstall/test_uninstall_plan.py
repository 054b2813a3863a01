"""What of a flow that is gone is removed, and what stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mm2py.flow import ClusterAlias, Flow
from mm2py.topics.acls import Operation, Pattern, Permission, TopicAcl
from mm2py.uninstall.planned import FlowRemains, LeftTopic, UninstallPlan, plan_uninstall
from mm2py.uninstall.printout import lines_of

A, B = ClusterAlias("A"), ClusterAlias("B")
FLOW = Flow(A, B)
SYNCS = LeftTopic(A, "mm2-offset-syncs.B.internal")
POSITIONS, LEDGER, CONFIGS = (LeftTopic(B, f"mm2-{name}.A.internal") for name in ("offsets", "ledger", "configs"))
CONTROL_LOG = LeftTopic(B, "mm2-cluster.mm2py.internal")
COPIES = ("A.clicks", "A.orders")


def acl(name: str, pattern: Pattern = Pattern.LITERAL) -> TopicAcl:
    return TopicAcl(name, pattern, "User:mirror", "*", Operation.READ, Permission.ALLOW)


def remains(**changes: Any) -> FlowRemains:
    there = {A: {"orders", SYNCS.name}, B: {POSITIONS.name, LEDGER.name, CONFIGS.name, CONTROL_LOG.name, *COPIES, "b"}}
    found = FlowRemains(
        FLOW, [SYNCS, POSITIONS, LEDGER, CONFIGS], [CONTROL_LOG], there, is_recorded=True, copies=COPIES
    )
    return replace(found, **changes)


def test_its_own_topics_go_and_all_others_stay() -> None:
    plan = plan_uninstall(remains())
    assert plan.topics == (SYNCS, POSITIONS, LEDGER, CONFIGS)
    assert (plan.remote_topics, plan.acls, plan.refusals) == ((), (), ())
    assert [(one.cluster, one.what) for one in plan.kept] == [(B, CONTROL_LOG.name), (B, "A.clicks"), (B, "A.orders")]
    assert "it refuses A.clicks, A.orders: they are not empty" in plan.notes[0]
    assert plan.topics[-1] == CONFIGS, "a removal that was killed finds that the flow was ours"


def test_a_copy_goes_only_if_it_is_named_and_a_position_is_stored_of_it() -> None:
    plan = plan_uninstall(remains(), ["A.orders"])
    assert plan.remote_topics == (LeftTopic(B, "A.orders"),)
    assert "A.clicks" in [one.what for one in plan.kept]
    assert "A.orders" not in [one.what for one in plan.kept]
    assert plan_uninstall(remains(), ["b"]).refusals == (
        "b is no copy that A->B has a position of: delete it by hand if it is not needed.",
    )
    assert "A.ordres is not on B." in plan_uninstall(remains(), ["A.ordres"]).notes


def test_acls_go_by_the_exact_names_of_its_own_topics() -> None:
    ours = acl(POSITIONS.name)
    others = [acl("mm2-", Pattern.PREFIXED), acl("mm2-offsets.A.internal2"), acl("*"), acl("A.orders")]
    plan = plan_uninstall(remains(acls={B: [ours, *others], A: [ours]}))
    assert plan.acls == ((B, ours),), "on A there is no topic of ours with this name"
    assert "1 ACL of remote topics" in [one.what for one in plan.kept]


def test_acls_of_topics_that_a_killed_removal_has_deleted_go_too() -> None:
    plan = plan_uninstall(remains(there={A: set(), B: {"A.orders"}}, is_recorded=False, acls={B: [acl(CONFIGS.name)]}))
    assert (plan.topics, plan.refusals) == ((), ())
    assert plan.acls == ((B, acl(CONFIGS.name)),)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"users": ["Workers of group g run A->B: w1. Stop them."]}, "Workers of group g run"),
        ({"is_recorded": False}, "Nothing on B records that mm2py has run A->B"),
        ({"sharers": {POSITIONS: "C->B"}}, "B: topic mm2-offsets.A.internal is also used by C->B."),
    ],
)
def test_it_is_refused(changes: dict[str, Any], why: str) -> None:
    (refusal,) = plan_uninstall(remains(**changes)).refusals
    assert why in refusal


def test_a_topic_that_is_gone_may_be_shared() -> None:
    there = {A: {SYNCS.name}, B: {CONFIGS.name}}
    plan = plan_uninstall(remains(there=there, sharers={POSITIONS: "C->B"}))
    assert (plan.topics, plan.refusals) == ((SYNCS, CONFIGS), ())


def test_a_cluster_that_is_not_asked_is_named() -> None:
    plan = plan_uninstall(remains(there={B: {CONFIGS.name}}, acls_unread={B: "DESCRIBE is missing."}))
    assert plan.topics == (CONFIGS,)
    assert "A is not asked: what the flow has there stays." in plan.notes
    assert ("ACLs", "they are not known: DESCRIBE is missing.") in [(one.what, one.why) for one in plan.kept]


def test_people_read_what_goes_what_stays_and_why_it_is_refused() -> None:
    plan = UninstallPlan(FLOW, topics=(CONFIGS,), refusals=("Workers run it.",), notes=("A note.",))
    assert lines_of(plan, "kept") == [
        "A->B: removed would be",
        "  B: topic mm2-configs.A.internal",
        "Before that, positions and ledger are exported into kept.",
        "note: A note.",
        "refused: Workers run it.",
    ]
    assert lines_of(UninstallPlan(FLOW), "kept") == ["A->B: nothing is left to remove."]
