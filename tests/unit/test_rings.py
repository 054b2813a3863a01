"""Flows that would copy in a ring."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm2py.config.rings import endless_flows
from mm2py.flow import Flow, parse_flow


def flows(**topics_of: Sequence[str]) -> dict[Flow, Sequence[str]]:
    return {parse_flow(name.replace("_", "->")): topics for name, topics in topics_of.items()}


def names(found: dict[Flow, list[str]]) -> list[str]:
    return sorted(map(str, found))


def test_one_way_is_no_ring() -> None:
    assert endless_flows(flows(A_B=[".*"], C_B=[".*"], B_D=[".*"]), []) == {}


def test_two_identity_flows_against_each_other_are_one() -> None:
    found = endless_flows(flows(A_B=[".*"], B_A=[".*"], A_C=[".*"]), [])
    assert names(found) == ["A->B", "B->A"]
    assert found[parse_flow("A->B")] == ["B", "A"]


def test_a_ring_of_three_is_one() -> None:
    assert names(endless_flows(flows(A_B=[".*"], B_C=[".*"], C_A=[".*"]), [])) == ["A->B", "B->C", "C->A"]


def test_a_flow_that_renames_does_not_stop_an_identity_flow_behind_it() -> None:
    """t goes to A.t, comes back as A.t, goes to A.A.t, and so on: the name grows, and nothing in it says stop."""
    assert names(endless_flows(flows(B_A=[".*"]), [parse_flow("A->B")])) == ["B->A"]


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
    assert endless_flows(flows(A_B=there, B_A=back), []) == {}


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
    assert names(endless_flows(flows(A_B=there, B_A=back), [])) == ["A->B", "B->A"]


def test_a_flow_without_topics_carries_nothing_back() -> None:
    assert endless_flows(flows(A_B=[".*"], B_A=[]), []) == {}


PATTERNS = st.text(alphabet="ab.-_*?+|[]()\\{}1", min_size=1, max_size=6)


@settings(deadline=None)
@given(PATTERNS, PATTERNS, st.text(alphabet="ab.-_1", min_size=1, max_size=5))
def test_whatever_matches_both_is_seen_as_a_ring(one: str, other: str, topic: str) -> None:
    try:
        both = re.fullmatch(one, topic) and re.fullmatch(other, topic)
    except re.error:
        return
    if both:
        assert len(endless_flows(flows(A_B=[one], B_A=[other]), [])) == 2
