"""Flows that would copy in a ring."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.flow import ClusterAlias, Flow, parse_flow
from mm2py.topics.names import IdentityReplicationPolicy, rings


def flows(**topics_of: Sequence[str]) -> dict[Flow, Sequence[str]]:
    return {parse_flow(name.replace("_", "->")): topics for name, topics in topics_of.items()}


def identity_rings(topics: Mapping[Flow, Sequence[str]]) -> dict[Flow, list[ClusterAlias]]:
    return rings({flow: IdentityReplicationPolicy(source_alias=flow.source) for flow in topics}, topics)


def names(found: Mapping[Flow, object]) -> list[str]:
    return sorted(map(str, found))


def test_two_identity_flows_against_each_other_are_one() -> None:
    found = identity_rings(flows(A_B=[".*"], B_A=[".*"], A_C=[".*"]))
    assert names(found) == ["A->B", "B->A"]
    assert found[parse_flow("A->B")] == ["B", "A"]


def test_a_ring_of_three_is_one() -> None:
    assert names(identity_rings(flows(A_B=[".*"], B_C=[".*"], C_A=[".*"]))) == ["A->B", "B->C", "C->A"]


@pytest.mark.parametrize(
    ("there", "back"),
    [
        (["orders"], ["invoices"]),
        (["a-.*"], ["b-.*"]),
        (["a\\..*", "c"], ["b\\..*", "d"]),
        (["orders-[0-9]+"], ["orders_.*"]),
    ],
)
def test_topics_that_begin_differently_are_no_ring(there: list[str], back: list[str]) -> None:
    assert identity_rings(flows(A_B=there, B_A=back)) == {}


@pytest.mark.parametrize(
    ("there", "back"),
    [
        (["orders"], ["orders"]),
        (["orders"], ["ord.*"]),
        (["a|b"], ["c"]),
        (["ab?"], ["a"]),
        (["ab*"], ["a"]),
        (["ab{0,1}"], ["a"]),
        (["(?i)A"], ["a"]),
        (["x.y"], ["x-y"]),
        (["a", "b"], ["c", "b"]),
        (["ab(?i)c", "X"], ["x"]),
        ([".*"], ["x"]),
    ],
)
def test_topics_that_may_meet_are_one(there: list[str], back: list[str]) -> None:
    assert names(identity_rings(flows(A_B=there, B_A=back))) == ["A->B", "B->A"]


def test_a_flow_without_topics_carries_nothing_back() -> None:
    assert identity_rings(flows(A_B=[".*"], B_A=[])) == {}


PATTERNS = st.text(alphabet="ab.-_*?+|[]()\\{}1", min_size=1, max_size=6)


@given(PATTERNS, PATTERNS, st.text(alphabet="ab.-_1", min_size=1, max_size=5))
def test_whatever_matches_both_is_seen_as_a_ring(one: str, other: str, topic: str) -> None:
    try:
        both = re.fullmatch(one, topic) and re.fullmatch(other, topic)
    except re.error:
        return
    if both:
        assert len(identity_rings(flows(A_B=[one], B_A=[other]))) == 2
