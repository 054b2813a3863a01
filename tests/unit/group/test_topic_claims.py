"""Which of several flows has a remote topic: who was listed first, unless all of them mix."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.connector import Flow, Kind, parse_flow
from mm2py.group.claims import Leads
from mm2py.group.membership import View
from mm2py.records.control_codec import lead_fields, read_leads
from mm2py.records.control_record import Lead, Listed, Share
from mm2py.topics.names import DefaultReplicationPolicy, IdentityReplicationPolicy
from tests.fakes.group_log import A_B, C_B, W1, W2, GroupLog, joined

KEPT, MIXED = Lead("", mixes=False), Lead("", mixes=True)
D_B = parse_flow("D->B")
NOBODY: frozenset[Flow] = frozenset()


def test_a_remote_topic_is_of_the_flow_that_was_first_until_that_leaves_it() -> None:
    leads = Leads()
    assert leads.take(A_B, "orders", KEPT)
    assert not leads.take(C_B, "orders", KEPT)
    assert leads.take(C_B, "bills", KEPT)
    assert leads.in_the_way(C_B, "orders", KEPT) == {A_B}
    assert leads.in_the_way(A_B, "orders", KEPT) == NOBODY
    assert leads.take(A_B, "orders", KEPT), "once more"
    leads.drop(A_B, "orders")
    assert leads.take(C_B, "orders", KEPT)
    assert leads.in_the_way(A_B, "orders", KEPT) == {C_B}


def test_other_names_are_in_nobodys_way_and_the_same_name_is_wherever_it_comes_from() -> None:
    leads = Leads()
    assert leads.take(A_B, "orders", Lead("A.", mixes=False))
    assert leads.take(C_B, "orders", Lead("C.", mixes=False))
    assert leads.in_the_way(D_B, "A.orders", KEPT) == {A_B}


@pytest.mark.parametrize(
    ("first", "second", "mixed"), [(KEPT, MIXED, False), (MIXED, KEPT, False), (MIXED, MIXED, True)]
)
def test_flows_are_mixed_if_each_of_them_is_to_be(first: Lead, second: Lead, mixed: bool) -> None:
    leads = Leads()
    assert leads.take(A_B, "orders", first)
    assert leads.take(C_B, "orders", second) is mixed
    assert leads.in_the_way(D_B, "orders", KEPT) == ({A_B, C_B} if mixed else {A_B})


def test_who_is_not_to_be_mixed_any_more_leaves_a_topic_that_others_have_as_well() -> None:
    leads = Leads()
    for flow in (A_B, C_B):
        assert leads.take(flow, "orders", MIXED)
    assert not leads.take(A_B, "orders", KEPT)
    assert leads.in_the_way(C_B, "orders", KEPT) == NOBODY


def test_a_topic_that_is_copied_elsewhere_now_leaves_its_earlier_place() -> None:
    leads = Leads()
    assert leads.take(A_B, "orders", KEPT)
    assert leads.take(A_B, "orders", Lead("A.", mixes=False))
    assert leads.take(C_B, "orders", KEPT)


def test_flows_that_nobody_runs_have_nothing() -> None:
    leads = Leads()
    leads.take(A_B, "orders", KEPT)
    leads.take(C_B, "bills", KEPT)
    leads.keep({C_B})
    assert leads.by_flow == {C_B: {"bills": KEPT}}
    assert leads.in_the_way(D_B, "orders", KEPT) == NOBODY
    assert leads.in_the_way(D_B, "bills", KEPT) == {C_B}


steps = st.tuples(
    st.sampled_from([A_B, C_B, D_B]),
    st.sampled_from(["x", "A.x", "y"]),
    st.sampled_from([KEPT, MIXED, Lead("A.", mixes=False), None]),
)


@given(st.lists(steps, max_size=30))
def test_no_two_ever_share_what_is_not_to_be_mixed_and_it_can_be_made_anew(
    walk: list[tuple[Flow, str, Lead | None]],
) -> None:
    leads = Leads()
    for flow, topic, lead in walk:
        if lead is None:
            leads.drop(flow, topic)
        else:
            assert leads.take(flow, topic, lead) is (topic in leads.by_flow.get(flow, {}))
        into: dict[str, list[tuple[Flow, Lead]]] = {}
        for name, found in leads.by_flow.items():
            for each, its in found.items():
                into.setdefault(its.prefix + each, []).append((name, its))
        for owners in into.values():
            assert len({name for name, _ in owners}) == 1 or all(its.mixes for _, its in owners)
    anew = Leads.of(leads.by_flow)
    assert {flow: found for flow, found in anew.by_flow.items() if found} == {
        flow: found for flow, found in leads.by_flow.items() if found
    }


# In the control log


def listed(log: GroupLog, flow: Flow, topics: dict[str, int], lead: Lead = KEPT) -> None:
    head = log.view.owner(Share(flow, Kind.SOURCE))
    assert head is not None
    log.add(Listed(head, flow, topics, leads=dict.fromkeys(topics, lead)))


def two_heads() -> GroupLog:
    log = GroupLog()
    log.add(joined(W1, A_B, C_B), joined(W2, A_B, C_B))
    log.lead(W1)
    log.own({Share(A_B, Kind.SOURCE): W1, Share(C_B, Kind.SOURCE): W2})
    return log


def test_of_two_heads_that_list_a_topic_at_once_the_first_in_the_log_counts_for_everybody() -> None:
    log = two_heads()
    listed(log, C_B, {"orders": 3})
    listed(log, A_B, {"orders": 3, "bills": 1})
    assert log.view.topics == {C_B: {"orders": 3}, A_B: {"bills": 1}}
    assert Share(A_B, Kind.SOURCE, "orders", 0) not in log.view.shares()
    again = View.from_json(log.view.to_json())
    assert again.to_json() == log.view.to_json()
    assert again.leads.in_the_way(A_B, "orders", KEPT) == {C_B}


def test_what_its_flow_gives_up_another_one_may_list() -> None:
    log = two_heads()
    listed(log, C_B, {"orders": 3})
    listed(log, C_B, {"orders": 0})
    listed(log, A_B, {"orders": 3})
    assert log.view.topics[A_B] == {"orders": 3}
    log.add(joined(W1, C_B), joined(W2, C_B))
    assert log.view.leads.in_the_way(C_B, "orders", KEPT) == NOBODY, "nobody alive runs A->B"


def test_a_topic_that_may_be_mixed_no_more_is_taken_off_the_list() -> None:
    log = two_heads()
    for flow in (A_B, C_B):
        listed(log, flow, {"orders": 3}, MIXED)
    listed(log, A_B, {"orders": 3}, KEPT)
    assert log.view.topics == {C_B: {"orders": 3}, A_B: {}}


def test_leads_are_written_with_few_bytes_and_read_as_they_were() -> None:
    rng = random.Random(1)
    topics = [f"t{number}" for number in range(1000)]
    leads = {topic: Lead("A.", mixes=False) for topic in topics} | {"t7": KEPT, "t9": MIXED}
    assert read_leads(lead_fields(leads, topics), topics) == leads
    assert len(repr(lead_fields(leads, topics))) < 100
    assert read_leads(lead_fields(leads, [*topics, "older"]), [*topics, "older"]) == leads
    for count in range(5):
        few = {topic: rng.choice([KEPT, MIXED, Lead("x", mixes=True)]) for topic in topics[:count]}
        assert read_leads(lead_fields(few, few), few) == few


@given(st.text("ab.-_", min_size=1), st.sampled_from(["A", "a-b"]), st.sampled_from([".", "-", "__"]))
def test_every_policy_names_a_remote_topic_by_what_stands_before_the_name(
    topic: str, alias: str, separator: str
) -> None:
    for policy in (DefaultReplicationPolicy(separator=separator), IdentityReplicationPolicy(separator=separator)):
        remote = str(policy.format_remote_topic(alias, topic))  # type: ignore[arg-type]
        lead = Lead.of(topic, remote, mixes=False)
        assert lead.prefix + topic == remote


def test_a_remote_topic_that_does_not_end_like_its_source_topic_is_a_defect() -> None:
    with pytest.raises(ValueError, match="does not end like"):
        Lead.of("orders", "copies", mixes=False)
