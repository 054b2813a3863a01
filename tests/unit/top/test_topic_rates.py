"""How fast topics are copied, by the positions of two looks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mm2py.records.source_offset import StoredPosition
from mm2py.status.facts import Facts
from mm2py.top.topic_rates import FlowTopic, TopicRates
from tests.fakes.v1_services import FLOW, NOW_MS, facts_of, flow_facts

ORDERS, PAYMENTS = FlowTopic(FLOW, "orders"), FlowTopic(FLOW, "payments")


def at(passed_s: float, first: int, second: int, payments: int = 90, **extra: Any) -> Facts:
    offsets = {("orders", 0): first, ("orders", 1): second, ("payments", 0): payments}
    positions = {key: StoredPosition(offset) for key, offset in offsets.items()}
    return replace(facts_of(flow_facts(positions=positions, **extra)), at_ms=NOW_MS + round(passed_s * 1000))


def test_a_rate_takes_two_looks_that_are_some_seconds_apart() -> None:
    rates = TopicRates()
    assert rates.look(at(0, 100, 50)) == {}
    assert rates.look(at(2, 200, 50)) == {}, "positions are stored once a second"
    assert rates.look(at(4, 300, 90)) == {ORDERS: 60.0, PAYMENTS: 0.0}


def test_it_is_that_of_the_last_seconds_and_not_of_the_time_since_the_start() -> None:
    rates = TopicRates()
    for second in range(0, 100, 2):
        rates.look(at(second, 1_000 * second, 0))
    for second in range(100, 120, 2):
        found = rates.look(at(second, 100_000, 0))
    assert found[ORDERS] == 0.0


def test_a_partition_that_is_new_or_begins_again_is_no_rate() -> None:
    rates = TopicRates()
    rates.look(at(0, 100, 50, 90))
    assert rates.look(at(5, 150, 7, 5)) == {ORDERS: 10.0}
    rates = TopicRates()
    rates.look(at(0, 100, 50))
    assert rates.look(at(5, 150, 50, positions_unread="it does not answer")) == {}
    rates.look(at(-3600, 100, 50))
    assert rates.look(at(-3595, 150, 50))[ORDERS] == 10.0, "the clock was set back"
