"""What the flight recorder says of a moment: what stood still, who recorded it, and what changed around it."""

from __future__ import annotations

from mm2py.flight.past import AROUND_MOST, AROUND_MS, WRITTEN_MS, past_of
from mm2py.records.flight_record import (
    AllWritten,
    CausesChanged,
    ChangesLost,
    FlightEvent,
    LineLogged,
    RecordedAnew,
)
from mm2py.records.standstill import Cause, Standstill

STALLED = Cause("stalled", "records wait", "", 10_000_000 - 4_000, "0-3")
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
        ChangesLost(T + 40, "m", 4, 3, T + 30),
        LineLogged(T + AROUND_MS + 1, "m", "info", "late", "orders", None, ""),
    ]
    past = past_of(log, T, "orders")
    assert [one.text for one in past.around] == [
        "starts the flow",
        "orders: stalled (partitions 0-3) since 1970-01-01T02:46:36Z: records wait",
        "orders: the reason has ended",
        "WARNING target.denied partition 3 why=no",
    ]
    assert past.lost == 7
    many = [LineLogged(T + number, "m", "info", str(number), "", None, "") for number in range(-50, 50)]
    near = past_of(many, T, "orders").around
    assert len(near) == AROUND_MOST
    assert [one.at_ms for one in near] == sorted(one.at_ms for one in near)
    assert all(abs(one.at_ms - T) <= AROUND_MOST / 2 for one in near)


def test_what_happened_to_the_topic_is_not_pushed_out_by_lines_of_the_flow() -> None:
    """A flow with two rings wrote twelve lines when it started; the end of the refusal was missing."""
    start: list[FlightEvent] = [LineLogged(T + at, "m", "info", "ring.found", "", None, "") for at in range(20)]
    ended: list[FlightEvent] = [CausesChanged(T + 30_000, "m", "orders", ())]
    around = past_of([*start, *ended], T, "orders").around
    assert around[-1].text == "orders: the reason has ended" and len(around) == AROUND_MOST


def test_a_cause_that_was_noticed_later_and_had_begun_before_counts() -> None:
    log: list[FlightEvent] = [RecordedAnew(T - 60_000, "m", is_start=True), CausesChanged(T, "m", "orders", (STALLED,))]
    assert past_of(log, T - 1, "orders").standstills == (Standstill("m", "orders", (STALLED,)),)
    assert past_of(log, STALLED.since_ms - 1, "orders").standstills == ()


def test_of_a_time_in_which_changes_were_lost_nothing_is_known() -> None:
    log: list[FlightEvent] = [
        RecordedAnew(T - 600_000, "m", is_start=True),
        ChangesLost(T, "m", 1, 0, T - 300_000),
        AllWritten(T, "m"),
    ]
    assert past_of(log, T - 300_001, "orders").covered == {"m"}
    assert past_of(log, T - 300_000, "orders").covered == frozenset()
    assert past_of(log, T, "orders").covered == frozenset()
    assert past_of(log, T + 1, "orders").covered == {"m"}
    lines = [RecordedAnew(T - 600_000, "m", is_start=True), ChangesLost(T, "m", 0, 5, T - 300_000), AllWritten(T, "m")]
    assert past_of(lines, T - 1, "orders").covered == {"m"}


def test_a_worker_that_wrote_nothing_since_may_have_been_unable_to() -> None:
    log: list[FlightEvent] = [RecordedAnew(T - 600_000, "m", is_start=True), AllWritten(T, "m")]
    assert past_of(log, T + WRITTEN_MS, "orders").covered == {"m"}
    assert past_of(log, T + WRITTEN_MS + 1, "orders").covered == frozenset()


def test_a_later_attempt_does_not_prove_that_an_earlier_one_could_write() -> None:
    """The leader of mm2-flight is away from T on. The attempt ends with changes that were not written and are lost. The
    next attempt writes that it starts, and that all is written: all of its own."""
    log: list[FlightEvent] = [
        RecordedAnew(T - 600_000, "m", is_start=True),
        AllWritten(T, "m"),
        RecordedAnew(T + 420_000, "m", is_start=True),
        AllWritten(T + 420_000, "m"),
        RecordedAnew(T + 430_000, "m", is_start=False),
    ]
    assert past_of(log, T + 120_000, "orders").covered == frozenset()
    assert past_of(log, T + WRITTEN_MS, "orders").covered == {"m"}, "it wrote all until just before"
    assert past_of(log, T + 420_000, "orders").covered == {"m"}
    other = [one if one.at_ms <= T else RecordedAnew(one.at_ms, "n", is_start=True) for one in log]
    assert past_of([*other, AllWritten(T + 450_000, "m")], T + 120_000, "orders").covered == {"m"}, "it went on"


def test_records_that_were_written_again_are_put_in_order_by_their_times() -> None:
    start = RecordedAnew(T - 60_000, "m", is_start=True)
    log: list[FlightEvent] = [start, CausesChanged(T - 30_000, "m", "orders", (STALLED,)), start]
    assert past_of(log, T, "orders").standstills == (Standstill("m", "orders", (STALLED,)),)
