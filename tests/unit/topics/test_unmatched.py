"""An entry of ``topics`` that matches nothing is found: a name with a typing error, or a pattern of nothing."""

from __future__ import annotations

from mm2py.topics.filters import TopicFilter
from mm2py.topics.unmatched import Unmatched, is_name, unmatched

NAMES = {"orders", "orders.v1", "pay-1", "__consumer_offsets"}


def found(*entries: str) -> list[Unmatched]:
    return unmatched(TopicFilter(entries).included, NAMES)


def test_names_and_patterns_that_match_something_are_not_named() -> None:
    assert found("orders", "orders.v1", "pay-.*", ".*") == []
    assert found("orders.v.") == [], "a name is a pattern as well"


def test_a_missing_name_and_a_pattern_of_nothing_are_told_apart() -> None:
    assert found("order", "bills.*", "orders") == [
        Unmatched("order", is_name=True),
        Unmatched("bills.*", is_name=False),
    ]


def test_only_the_characters_of_topic_names_make_a_name() -> None:
    assert [is_name(entry) for entry in ("a.b_c-1", "a.*", "a|b", "(a)")] == [True, False, False, False]


def test_entries_that_are_one_pattern_only_together_are_not_named() -> None:
    """``topics=orders-(eu,us)`` is joined by ``|``: MirrorMaker 2 copies orders-eu and orders-us."""
    assert unmatched(TopicFilter(("nothing-(eu", "us)")).included, NAMES) == []


def test_a_flag_at_the_front_is_for_all_entries() -> None:
    assert found("(?i)ORDERS", "PAY-1") == []
    assert found("(?i)ORDER", "PAY") == [Unmatched("ORDER", is_name=True), Unmatched("PAY", is_name=True)]


def test_a_name_whose_copy_the_source_has_is_for_the_other_direction() -> None:
    names = {"A.orders", "heartbeats"}
    assert unmatched(TopicFilter(("orders",)).included, names, copy_of=lambda name: f"A.{name}") == []
    assert unmatched(TopicFilter(("bills",)).included, names, copy_of=lambda name: f"A.{name}") == [
        Unmatched("bills", is_name=True)
    ]


def test_an_excluded_topic_matches_its_entry() -> None:
    assert unmatched(TopicFilter(("orders",), ("orders",)).included, NAMES) == []
