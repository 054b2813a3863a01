"""What a worker writes to the flight recorder: each change once, within a budget, and what was lost is told."""

from __future__ import annotations

import random
from dataclasses import replace

from mm2py.flight.past import WRITTEN_MS, past_of
from mm2py.flight.pending import ANEW_MS, BURST_BYTES, BYTES_PER_S, LINES_MOST, MARK_MS, FlightPending
from mm2py.records.flight_record import (
    AllWritten,
    CausesChanged,
    ChangesLost,
    FlightEvent,
    LineLogged,
    RecordedAnew,
    decode_flight,
)
from mm2py.records.standstill import Cause


def cause(reason: str = "stalled", why: str = "records wait", partitions: str = "") -> Cause:
    return Cause(reason, why, "", 1_000, partitions)


def taken(pending: FlightPending, now_ms: int) -> list[FlightEvent]:
    """Return what is written now, without the mark that nothing waits."""
    return [event for event in all_taken(pending, now_ms) if not isinstance(event, AllWritten)]


def all_taken(pending: FlightPending, now_ms: int) -> list[FlightEvent]:
    events = [decode_flight(value) for _, value in pending.take(now_ms)]
    return [event for event in events if event is not None]


def test_a_change_is_written_once_and_so_is_its_end() -> None:
    pending = FlightPending("m")
    pending.show({"orders": [cause()]}, 1_000)
    assert taken(pending, 1_000) == [
        RecordedAnew(1_000, "m", is_start=True),
        CausesChanged(1_000, "m", "orders", (cause(),)),
    ]
    pending.show({"orders": [cause(why="in other words")]}, 2_000)
    assert pending.is_empty
    pending.show({"orders": [cause(partitions="3")]}, 3_000)
    assert taken(pending, 3_000) == [CausesChanged(3_000, "m", "orders", (cause(partitions="3"),))]
    pending.show({}, 4_000)
    assert taken(pending, 4_000) == [CausesChanged(4_000, "m", "orders", ())]
    pending.show({}, 5_000)
    assert pending.is_empty


def test_every_ten_seconds_it_is_written_that_nothing_waits_and_never_while_something_does() -> None:
    pending = FlightPending("m")
    pending.show({}, 0)
    assert all_taken(pending, 0)[-1] == AllWritten(0, "m")
    assert all_taken(pending, MARK_MS - 1) == []
    assert all_taken(pending, MARK_MS) == [AllWritten(MARK_MS, "m")]
    for number in range(3):
        pending.show({f"t{number}-{at}": [cause(why="x" * 900)] for at in range(1_000)}, MARK_MS + number)
        pending.take(MARK_MS + number)
    assert not pending.is_empty
    assert AllWritten(2 * MARK_MS, "m") not in all_taken(pending, 2 * MARK_MS)


def test_what_was_not_written_when_all_is_written_anew_is_told_as_lost() -> None:
    pending = FlightPending("m")
    pending.show({}, 0)
    taken(pending, 0)
    pending.show({"orders": [cause()]}, 10)
    pending.show({}, ANEW_MS)
    assert taken(pending, ANEW_MS) == [RecordedAnew(ANEW_MS, "m", is_start=False), ChangesLost(ANEW_MS, "m", 1, 0, 10)]


def test_after_an_hour_all_is_written_anew() -> None:
    pending = FlightPending("m")
    pending.show({"orders": [cause()]}, 0)
    taken(pending, 0)
    pending.show({"orders": [cause()]}, ANEW_MS - 1)
    assert pending.is_empty
    pending.show({"orders": [cause()]}, ANEW_MS)
    assert taken(pending, ANEW_MS) == [
        RecordedAnew(ANEW_MS, "m", is_start=False),
        CausesChanged(ANEW_MS, "m", "orders", (cause(),)),
    ]


def test_a_worker_that_copies_everything_says_so_every_hour() -> None:
    pending = FlightPending("m")
    for now_ms in (0, ANEW_MS):
        pending.show({}, now_ms)
        assert taken(pending, now_ms) == [RecordedAnew(now_ms, "m", is_start=now_ms == 0)]


def test_of_a_topic_that_changes_again_and_again_the_last_change_counts_and_the_others_are_told_as_lost() -> None:
    pending = FlightPending("m")
    pending.show({}, 0)
    taken(pending, 0)
    for at_ms in range(1, 11):
        pending.show({"orders": [cause(partitions=str(at_ms))]}, at_ms)
    assert taken(pending, 11) == [
        ChangesLost(11, "m", 9, 0, 1),
        CausesChanged(10, "m", "orders", (cause(partitions="10"),)),
    ]
    assert pending.is_empty


def test_log_lines_beyond_the_limit_are_lost_and_told() -> None:
    pending = FlightPending("m")
    for at_ms in range(LINES_MOST + 3):
        pending.line("warning", {"event": "e", "flow": "A->B", "topic": "t", "partition": 3, "why": "x"}, at_ms)
    events = taken(pending, 1_000)
    assert events[0] == ChangesLost(1_000, "m", 0, 3, 0)
    assert events[1] == LineLogged(3, "m", "warning", "e", "t", 3, "why=x")
    assert len(events) == 1 + LINES_MOST


def test_it_writes_no_more_than_its_budget_and_tells_how_many_changes_are_lost() -> None:
    pending = FlightPending("m")
    seconds, topics, written, changes, lost = 60, 100, 0, 0, 0
    for second in range(2 * seconds):
        now_ms = second * 1000
        words = [cause(partitions=str(min(second, seconds - 1)), why="x" * 900)]
        pending.show({f"t{number}": words for number in range(topics)}, now_ms)
        records = pending.take(now_ms)
        written += sum(len(value) for _, value in records)
        assert written <= BURST_BYTES + second * BYTES_PER_S + 2_000
        found = [decode_flight(value) for _, value in records]
        changes += sum(isinstance(one, CausesChanged) for one in found)
        lost += sum(one.changes for one in found if isinstance(one, ChangesLost))
    assert changes + lost == seconds * topics and lost > seconds * topics / 2
    assert pending.is_empty


def test_what_is_read_back_of_any_moment_is_what_was_shown_then() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        pendings = {name: FlightPending(name) for name in ("m1", "m2")}
        log: list[FlightEvent] = []
        truth: dict[int, dict[tuple[str, str], str]] = {}
        now: dict[tuple[str, str], str] = {}
        for step in range(60):
            now_ms = step * rng.choice([1_000, ANEW_MS // 20])
            now_ms = max(now_ms, max(truth, default=-1) + 1)
            for member in ("m1", "m2"):
                if rng.random() < 0.05:  # the worker restarts the flow; what it had not written is lost with it
                    pendings[member] = FlightPending(member)
                    now = {at: text for at, text in now.items() if at[0] != member}
                if rng.random() < 0.5:
                    topic = rng.choice("abc")
                    now.pop((member, topic), None)
                    if rng.random() < 0.6:
                        now[member, topic] = str(rng.randrange(8))
                shown = {
                    topic: [replace(cause(partitions=text), since_ms=now_ms)]
                    for (of, topic), text in now.items()
                    if of == member
                }
                pendings[member].show(shown, now_ms)
                log += all_taken(pendings[member], now_ms)
            truth[now_ms] = dict(now)
        for at_ms, expected in truth.items():
            past = past_of(log, at_ms, "a")
            found = {(one.member, one.topic): one.causes[0].partitions for one in past.standstills}
            assert found == expected, (seed, at_ms)
            assert past.covered == {"m1", "m2"}


def test_a_worker_that_cannot_write_is_never_told_to_have_copied_what_it_did_not() -> None:
    """Writing stops and goes on at random; whoever asks then gets the truth, or hears that it is not known."""
    unknown = 0
    for seed in range(60):
        rng = random.Random(seed)
        pending, log = FlightPending("m"), list[FlightEvent]()
        truth: dict[int, set[str]] = {}
        standing: set[str] = set()
        writes = True
        for second in range(0, 1_200, 10):
            now_ms = 1_000_000 + second * 1000
            writes = writes if rng.random() < 0.95 else not writes
            if rng.random() < 0.1:
                standing ^= {rng.choice("abc")}
            pending.show({topic: [replace(cause(), since_ms=now_ms)] for topic in standing}, now_ms)
            if writes:
                log += all_taken(pending, now_ms)
            truth[now_ms] = set(standing)
        newest_ms = max(event.at_ms for event in log if isinstance(event, AllWritten))
        for at_ms, expected in truth.items():
            if newest_ms < at_ms <= newest_ms + WRITTEN_MS:
                continue  # that nothing is written any more is not noticed yet
            past = past_of(log, at_ms, "a")
            if "m" in past.covered:
                assert {one.topic for one in past.standstills} >= expected, (seed, at_ms)
            else:
                unknown += 1
    assert unknown > 100
