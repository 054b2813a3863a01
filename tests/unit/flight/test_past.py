"""What the flight recorder says of a moment: what stood still, who recorded it, and what changed around it."""

from __future__ import annotations

from mm2py.flight.past import AROUND_MOST, AROUND_MS, past_of
from mm2py.records.flight_record import CausesChanged, ChangesLost, FlightEvent, LineLogged, RecordedAnew
from mm2py.records.standstill import Cause, Standstill

STALLED = Cause("stalled", "records wait", "", 900, "0-3")
T = 10_000_000


def test_the_state_of_a_moment_is_that_of_the_last_change_before_it() -> None:
    log = [
        RecordedAnew(T - 5_000, "m", is_start=True),
        CausesChanged(T - 4_000, "m", "orders", (STALLED,)),
        CausesChanged(T + 1, "m", "orders", ()),
    ]
    assert past_of(log, T, "orders").standstills == (Standstill("m", "orders", (STALLED,)),)
    assert past_of(log, T + 1, "orders").standstills == ()
    assert past_of(log, T - 4_001, "orders").standstills == ()


def test_a_start_ends_what_the_same_worker_had_recorded_and_nothing_of_others() -> None:
    log: list[FlightEvent] = [
        CausesChanged(T - 9, "m", "orders", (STALLED,)),
        CausesChanged(T - 8, "n", "orders", (STALLED,)),
        RecordedAnew(T - 7, "m", is_start=True),
    ]
    past = past_of(log, T, "orders")
    assert [one.member for one in past.standstills] == ["n"]
    assert past.covered == {"m"}  # of n it is not known whether more stood still


def test_what_changed_around_it_concerns_the_topic_or_the_whole_flow_and_the_nearest_come() -> None:
    log: list[FlightEvent] = [
        RecordedAnew(T - 50, "m", is_start=True),
        RecordedAnew(T - 40, "m", is_start=False),
        CausesChanged(T - 30, "m", "other", (STALLED,)),
        CausesChanged(T - 20, "m", "orders", (STALLED,)),
        CausesChanged(T + 20, "m", "orders", ()),
        LineLogged(T + 30, "m", "warning", "target.denied", "orders", 3, "why=no"),
        LineLogged(T + 30, "m", "warning", "target.denied", "other", 3, "why=no"),
        ChangesLost(T + 40, "m", 7, T),
        LineLogged(T + AROUND_MS + 1, "m", "info", "late", "orders", None, ""),
    ]
    past = past_of(log, T, "orders")
    assert [one.text for one in past.around] == [
        "starts the flow",
        "orders: stalled (partitions 0-3) since 1970-01-01T00:00:00Z: records wait",
        "orders: it copies all of its part again",
        "WARNING target.denied partition 3 why=no",
    ]
    assert past.lost == 7
    many = [LineLogged(T + number, "m", "info", str(number), "", None, "") for number in range(-50, 50)]
    near = past_of(many, T, "orders").around
    assert len(near) == AROUND_MOST
    assert [one.at_ms for one in near] == sorted(one.at_ms for one in near)
    assert all(abs(one.at_ms - T) <= AROUND_MOST / 2 for one in near)
