"""Which of several flows has a remote topic: who was listed first, unless all of them mix."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.flow import Flow, Kind, parse_flow
from mm2py.group.state_snapshot import read_snapshot, snapshot_text
from mm2py.group.topic_claims import TopicClaims
from mm2py.records.control_codec import read_topic_claims, topic_claim_fields
from mm2py.records.control_record import Listed, TaskName, TopicClaim
from mm2py.topics.names import DefaultReplicationPolicy, IdentityReplicationPolicy
from tests.fakes.group_log import A_B, C_B, W1, W2, GroupLog, joined

KEPT, MIXED = TopicClaim("", mixes=False), TopicClaim("", mixes=True)
D_B = parse_flow("D->B")
NOBODY: frozenset[Flow] = frozenset()


def test_a_remote_topic_is_of_the_flow_that_was_first_until_that_leaves_it() -> None:
    claims = TopicClaims()
    assert claims.take(A_B, "orders", KEPT)
    assert not claims.take(C_B, "orders", KEPT)
    assert claims.take(C_B, "bills", KEPT)
    assert claims.conflicting_flows(C_B, "orders", KEPT) == {A_B}
    assert claims.conflicting_flows(A_B, "orders", KEPT) == NOBODY
    assert claims.take(A_B, "orders", KEPT), "once more"
    claims.drop(A_B, "orders")
    assert claims.take(C_B, "orders", KEPT)
    assert claims.conflicting_flows(A_B, "orders", KEPT) == {C_B}


def test_other_names_are_in_nobodys_way_and_the_same_name_is_wherever_it_comes_from() -> None:
    claims = TopicClaims()
    assert claims.take(A_B, "orders", TopicClaim("A.", mixes=False))
    assert claims.take(C_B, "orders", TopicClaim("C.", mixes=False))
    assert claims.conflicting_flows(D_B, "A.orders", KEPT) == {A_B}


@pytest.mark.parametrize(
    ("first", "second", "mixed"), [(KEPT, MIXED, False), (MIXED, KEPT, False), (MIXED, MIXED, True)]
)
def test_flows_are_mixed_if_each_of_them_is_to_be(first: TopicClaim, second: TopicClaim, mixed: bool) -> None:
    claims = TopicClaims()
    assert claims.take(A_B, "orders", first)
    assert claims.take(C_B, "orders", second) is mixed
    assert claims.conflicting_flows(D_B, "orders", KEPT) == ({A_B, C_B} if mixed else {A_B})


def test_a_topic_that_is_copied_elsewhere_now_leaves_its_earlier_place() -> None:
    claims = TopicClaims()
    assert claims.take(A_B, "orders", KEPT)
    assert claims.take(A_B, "orders", TopicClaim("A.", mixes=False))
    assert claims.take(C_B, "orders", KEPT)


def test_flows_that_nobody_runs_have_nothing() -> None:
    claims = TopicClaims()
    claims.take(A_B, "orders", KEPT)
    claims.take(C_B, "bills", KEPT)
    claims.keep({C_B})
    assert claims.by_flow == {C_B: {"bills": KEPT}}
    assert claims.conflicting_flows(D_B, "orders", KEPT) == NOBODY
    assert claims.conflicting_flows(D_B, "bills", KEPT) == {C_B}


steps = st.tuples(
    st.sampled_from([A_B, C_B, D_B]),
    st.sampled_from(["x", "A.x", "y"]),
    st.sampled_from([KEPT, MIXED, TopicClaim("A.", mixes=False), None]),
)


@given(st.lists(steps, max_size=30))
def test_no_two_ever_share_what_is_not_to_be_mixed_and_it_can_be_recreated(
    walk: list[tuple[Flow, str, TopicClaim | None]],
) -> None:
    claims = TopicClaims()
    for flow, topic, claim in walk:
        if claim is None:
            claims.drop(flow, topic)
        else:
            assert claims.take(flow, topic, claim) is (topic in claims.by_flow.get(flow, {}))
        into: dict[str, list[tuple[Flow, TopicClaim]]] = {}
        for name, found in claims.by_flow.items():
            for each, its in found.items():
                into.setdefault(its.remote_topic(each), []).append((name, its))
        for owners in into.values():
            assert len({name for name, _ in owners}) == 1 or all(its.mixes for _, its in owners)
    anew = TopicClaims.of(claims.by_flow)
    assert {flow: found for flow, found in anew.by_flow.items() if found} == {
        flow: found for flow, found in claims.by_flow.items() if found
    }


# In the control log


def listed(log: GroupLog, flow: Flow, topics: dict[str, int], claim: TopicClaim = KEPT) -> None:
    head = log.view.owner(TaskName(flow, Kind.SOURCE))
    assert head is not None
    log.add(Listed(head, flow, topics, claims=dict.fromkeys(topics, claim)))


def two_heads() -> GroupLog:
    log = GroupLog()
    log.add(joined(W1, A_B, C_B), joined(W2, A_B, C_B))
    log.lead(W1)
    log.own({TaskName(A_B, Kind.SOURCE): W1, TaskName(C_B, Kind.SOURCE): W2})
    return log


def test_of_two_heads_that_list_a_topic_at_once_the_first_in_the_log_counts_for_everybody() -> None:
    log = two_heads()
    listed(log, C_B, {"orders": 3})
    listed(log, A_B, {"orders": 3, "bills": 1})
    assert log.view.topics == {C_B: {"orders": 3}, A_B: {"bills": 1}}
    assert TaskName(A_B, Kind.SOURCE, "orders", 0) not in log.view.tasks()
    again = read_snapshot(snapshot_text(log.view))
    assert snapshot_text(again) == snapshot_text(log.view)
    assert again.topic_claims.conflicting_flows(A_B, "orders", KEPT) == {C_B}


def test_what_its_flow_gives_up_another_one_may_list() -> None:
    log = two_heads()
    listed(log, C_B, {"orders": 3})
    listed(log, C_B, {"orders": 0})
    listed(log, A_B, {"orders": 3})
    assert log.view.topics[A_B] == {"orders": 3}
    log.add(joined(W1, C_B), joined(W2, C_B))
    assert log.view.topic_claims.conflicting_flows(C_B, "orders", KEPT) == NOBODY, "nobody alive runs A->B"


def test_a_topic_that_may_be_mixed_no_more_is_taken_off_the_list() -> None:
    log = two_heads()
    for flow in (A_B, C_B):
        listed(log, flow, {"orders": 3}, MIXED)
    listed(log, A_B, {"orders": 3}, KEPT)
    assert log.view.topics == {C_B: {"orders": 3}, A_B: {}}


def test_leads_are_written_with_few_bytes_and_read_as_they_were() -> None:
    rng = random.Random(1)
    topics = [f"t{number}" for number in range(1000)]
    claims = {topic: TopicClaim("A.", mixes=False) for topic in topics} | {"t7": KEPT, "t9": MIXED}
    assert read_topic_claims(topic_claim_fields(claims, topics), topics) == claims
    assert len(repr(topic_claim_fields(claims, topics))) < 100
    assert read_topic_claims(topic_claim_fields(claims, [*topics, "older"]), [*topics, "older"]) == claims
    for count in range(5):
        few = {topic: rng.choice([KEPT, MIXED, TopicClaim("x", mixes=True)]) for topic in topics[:count]}
        assert read_topic_claims(topic_claim_fields(few, few), few) == few


@given(st.text("ab.-_", min_size=1), st.sampled_from(["A", "a-b"]), st.sampled_from([".", "-", "__"]))
def test_every_policy_names_a_remote_topic_by_what_stands_before_the_name(
    topic: str, alias: str, separator: str
) -> None:
    for policy in (DefaultReplicationPolicy(separator=separator), IdentityReplicationPolicy(separator=separator)):
        remote = str(policy.format_remote_topic(alias, topic))  # type: ignore[arg-type]
        claim = TopicClaim.of(topic, remote, mixes=False)
        assert claim.prefix + topic == remote


def test_a_claim_on_a_renamed_topic_keeps_the_whole_name_and_older_workers_read_another_one() -> None:
    claim = TopicClaim.of("orders", "copies", mixes=False)
    assert claim.remote_topic("orders") == "copies"
    assert claim.prefix + "orders" == "copies/orders", "what workers that know no rules take for the name"
    claims = {"orders": claim, "bills": TopicClaim.of("bills", "x.bills", mixes=False)}
    assert read_topic_claims(topic_claim_fields(claims, claims), claims) == claims
    assert claims["bills"].remote_topic("bills") == "x.bills"


def test_of_two_topics_of_a_flow_that_rules_give_one_name_the_first_gets_it() -> None:
    claims = TopicClaims()
    first, second = (TopicClaim.of(topic, "orders", mixes=True) for topic in ("orders", "orders.v1"))
    assert claims.take(A_B, "orders", first)
    assert not claims.take(A_B, "orders.v1", second), "also where flows may be mixed"
    assert claims.conflicting_topic(A_B, "orders.v1", second) == "orders"
    assert claims.conflicting_topic(A_B, "orders", first) is None
    assert claims.take(C_B, "orders.v1", second)
    claims.drop(A_B, "orders")
    assert claims.take(A_B, "orders.v1", second)
