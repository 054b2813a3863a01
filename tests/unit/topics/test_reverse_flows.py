"""Which topics a flow that leads back has made, and when a topic may be copied in the other direction."""

from __future__ import annotations

import itertools

import pytest

from mm2py.flow import parse_flow
from mm2py.topics.filters import TopicFilter
from mm2py.topics.names import make_policy
from mm2py.topics.reverse_flows import NameOrigin, ReverseFlow, Verdict, origin_of, sources_of, verdict_on

DEFAULT, IDENTITY = "DefaultReplicationPolicy", "IdentityReplicationPolicy"


def reverse(policy: str, separator: str = ".", topics: tuple[str, ...] = (".*",)) -> ReverseFlow:
    flow = parse_flow("y->x")
    made = make_policy(policy, source_alias=flow.source, separator=separator, internal_separator_enabled=None)
    return ReverseFlow(flow, "group", made, TopicFilter(topics))


@pytest.mark.parametrize(
    ("policy", "separator", "topic", "origin"),
    [
        (DEFAULT, ".", "y.orders", NameOrigin.COPY),
        (DEFAULT, ".", "y.heartbeats", NameOrigin.COPY),
        (DEFAULT, ".", "y.far.orders", NameOrigin.COPY),
        (DEFAULT, ".", "far.y.orders", NameOrigin.COPY),
        (DEFAULT, ".", "orders", NameOrigin.OTHER),
        (DEFAULT, ".", "yy.orders", NameOrigin.OTHER),
        (DEFAULT, ".", "x.orders", NameOrigin.OTHER),
        (DEFAULT, "_", "y.orders", NameOrigin.OTHER),
        (DEFAULT, "_", "y_orders", NameOrigin.COPY),
        (IDENTITY, ".", "orders", NameOrigin.UNKNOWN),
        (IDENTITY, ".", "y.orders", NameOrigin.UNKNOWN),
        (IDENTITY, ".", "heartbeats", NameOrigin.OTHER),
        (IDENTITY, ".", "y.heartbeats", NameOrigin.COPY),
    ],
)
def test_what_a_name_says(policy: str, separator: str, topic: str, origin: NameOrigin) -> None:
    assert origin_of(topic, reverse(policy, separator)) is origin


def test_a_flow_that_is_switched_off_selects_nothing() -> None:
    on = reverse(IDENTITY, topics=("orders.*",))
    off = ReverseFlow(on.flow, on.group, on.policy, None)
    assert [on.selects("orders1"), on.selects("payments"), off.selects("orders1")] == [True, False, False]


def test_the_sources_of_a_cluster_are_found_by_either_topic() -> None:
    topics = ["mm2-configs.a.internal", "mm2-offsets.a.internal", "mm2-offsets.b.c.internal", "mm2-status.d.internal"]
    assert sources_of([*topics, "mm2-configs..internal", "mm2-configs.internal", "orders"]) == ["a", "b.c"]


@pytest.mark.parametrize(
    ("brought_to", "starts", "is_selected", "verdict"),
    [
        ({}, {}, False, Verdict.COPY),
        ({}, {}, True, Verdict.BOTH),
        ({}, {0: 5}, True, Verdict.COPY),
        ({0: 7}, {}, False, Verdict.BACK),
        ({0: 7}, {0: 6}, False, Verdict.BACK),
        ({0: 7}, {0: 7}, True, Verdict.COPY_BEHIND),
        ({0: 7, 1: 3}, {0: 7}, True, Verdict.BACK),
        ({0: 7, 1: 0}, {0: 7}, True, Verdict.COPY_BEHIND),
        ({0: None}, {0: 7}, True, Verdict.BACK),
    ],
)
def test_a_topic_is_copied_back_only_behind_what_was_brought(
    brought_to: dict[int, int | None], starts: dict[int, int], is_selected: bool, verdict: Verdict
) -> None:
    assert verdict_on(brought_to, starts, is_selected=is_selected, has_begun=bool(starts)) is verdict


def test_a_topic_that_the_group_has_listed_goes_on_before_its_first_position_is_stored() -> None:
    assert verdict_on({}, {}, is_selected=True, has_begun=True) is Verdict.COPY
    assert verdict_on({0: 1}, {}, is_selected=True, has_begun=True) is Verdict.BACK


def test_two_flows_never_bring_each_other_the_same_record() -> None:
    """Each flow has copied up to an offset of its source and written up to one of its target, or has no position. If
    both may copy, records of neither come back to the other: each starts behind what the other has written."""
    ends = [None, 0, 1, 2]
    for there_from, there_to, back_from, back_to in itertools.product(ends, repeat=4):
        if (there_from is None) is not (there_to is None) or (back_from is None) is not (back_to is None):
            continue
        there, back = (
            verdict_on(
                {} if brought is None else {0: brought},
                {} if start is None else {0: start},
                is_selected=True,
                has_begun=start is not None,
            )
            for brought, start in ((back_to, there_from), (there_to, back_from))
        )
        both_may = {there, back} <= {Verdict.COPY, Verdict.COPY_BEHIND}
        if both_may:
            assert there_from is None or back_to is None or there_from >= back_to
            assert back_from is None or there_to is None or back_from >= there_to
        if there_from is None and back_from is None:
            assert there is back is Verdict.BOTH
        if there is Verdict.COPY and back is Verdict.COPY:
            raise AssertionError("none looks whether the other one has ended")
