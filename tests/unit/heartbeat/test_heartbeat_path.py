"""What is known of a path, and when it is logged: values in, values out."""

from __future__ import annotations

import pickle
import tracemalloc

import pytest

from mm2py.connector import PathStatus
from mm2py.flow import parse_flow
from mm2py.kafka.port import FetchedPartition
from mm2py.records.batch import NewRecord, build_batch
from mm2py.records.compression import Codec
from mm2py.records.heartbeat import Heartbeat, decode, encode
from mm2py_connectors.heartbeat import path as path_of_heartbeats
from mm2py_connectors.heartbeat.connector import next_due_s
from mm2py_connectors.heartbeat.path import (
    Arrived,
    Blind,
    Looked,
    Path,
    Phase,
    SayProven,
    SaySilent,
    begin,
    newest_heartbeat,
    status_of,
    step,
)
from tests.fakes.hostile_batches import batch_of_tiny_records

BA = parse_flow("B->A")
NOW_MS = 1_700_000_000_000


def arrived(at_s: float, *, latency_ms: int = 40, live: bool = True, pair: str = "B->A") -> Arrived:
    """One heartbeat that took so long; second 0 is NOW_MS."""
    at_ms = NOW_MS + int(at_s * 1000)
    return Arrived(Heartbeat(parse_flow(pair), at_ms - latency_ms), at_s, at_ms, live)


def after(path: Path, *events: Arrived | Looked | Blind) -> tuple[Path, list[SayProven | SaySilent]]:
    said: list[SayProven | SaySilent] = []
    for event in events:
        path, more = step(path, event)
        said += more
    return path, said


def test_a_heartbeat_that_was_there_before_proves_nothing_and_has_no_latency() -> None:
    """mm2py was down for an hour, and the path may not work now."""
    path, said = after(begin(1.0, 0.0), arrived(1.0, latency_ms=3_600_000, live=False))
    assert (said, path.phase) == ([], Phase.UNPROVEN)
    assert status_of(path, NOW_MS + 1000) == PathStatus(heartbeat_age_s=3600.0, path_latency_ms=None)
    path, said = after(begin(1.0, 0.0), arrived(1.0, live=False))
    assert (said, path.phase) == ([], Phase.UNPROVEN), "however young it is"


def test_heartbeats_that_stop_are_logged_once_and_so_is_their_return() -> None:
    path, said = after(begin(1.0, 0.0), arrived(1.0), Looked(6.0), Looked(11.0), Looked(15.9))
    assert said == [SayProven(BA, 40)]
    path, said = after(path, Looked(16.0), Looked(21.0), Looked(500.0))
    assert said == [SaySilent(ever=True)]
    path, said = after(path, arrived(501.0, latency_ms=60), arrived(502.0))
    assert said == [SayProven(BA, 60)]


def test_a_path_with_rare_heartbeats_is_silent_after_ten_intervals() -> None:
    path, _ = after(begin(60.0, 0.0), arrived(60.0))
    assert after(path, Looked(659.0))[1] == []
    assert after(path, Looked(660.0))[1] == [SaySilent(ever=True)]


def test_heartbeats_that_never_come_are_logged_if_the_file_names_an_emitter() -> None:
    assert after(begin(1.0, 0.0), Looked(74.9))[1] == []
    assert after(begin(1.0, 0.0), Looked(75.0), Looked(80.0))[1] == [SaySilent(ever=False)]
    assert after(begin(None, 0.0), Looked(10_000.0))[1] == []


def test_the_end_of_heartbeats_that_have_come_is_logged_whatever_emitted_them() -> None:
    assert after(begin(None, 0.0), arrived(1.0), Looked(16.0))[1] == [SayProven(BA, 40), SaySilent(ever=True)]


def test_a_path_is_not_silent_while_the_target_cannot_be_read() -> None:
    """The target is away for ten minutes, which is logged by itself. The wait starts again when it is back."""
    blind = [Blind(at_s) for at_s in range(5, 600, 5)]
    path, said = after(begin(1.0, 0.0), arrived(1.0), *blind, Looked(601.0), Looked(609.0))
    assert said == [SayProven(BA, 40)]
    assert after(path, Looked(610.0))[1] == [SaySilent(ever=True)]


def test_a_flow_that_catches_up_is_proven_when_it_has() -> None:
    """It stood still for an hour: the old heartbeats of that hour come first."""
    late = [arrived(1.0 + number / 10, latency_ms=3_600_000 - number * 100_000) for number in range(30)]
    path, said = after(begin(1.0, 0.0), *late)
    assert (said, path.phase) == ([], Phase.UNPROVEN)
    assert status_of(path, NOW_MS + 5000).path_latency_ms == 700_000.0
    assert after(path, arrived(5.0, latency_ms=100))[1] == [SayProven(BA, 100)]


def test_a_flow_that_stays_behind_or_clocks_that_differ_do_not_leave_the_path_unproven() -> None:
    minutes = [arrived(float(at_s), latency_ms=120_000) for at_s in range(1, 20)]
    path, said = after(begin(1.0, 0.0), *minutes)
    assert said == [SayProven(BA, 120_000)]
    assert path.phase is Phase.PROVEN


def test_a_clock_ahead_shows_as_a_latency_below_zero() -> None:
    path, said = after(begin(1.0, 0.0), arrived(1.0, latency_ms=-2500))
    assert said == [SayProven(BA, -2500)]
    assert status_of(path, NOW_MS + 1000) == PathStatus(heartbeat_age_s=-2.5, path_latency_ms=-2500.0)


def test_a_heartbeat_from_the_future_counts_only_until_the_next_one_comes() -> None:
    path, _ = after(begin(1.0, 0.0), arrived(1.0, latency_ms=-(10**15)), arrived(2.0, pair="C->A"))
    assert status_of(path, NOW_MS + 2000) == PathStatus(heartbeat_age_s=0.04, path_latency_ms=40.0)


def test_a_source_that_invents_a_pair_for_each_heartbeat_does_not_fill_the_memory() -> None:
    def known(pairs: int) -> int:
        path = begin(1.0, 0.0)
        for number in range(pairs):
            path, _ = step(path, Arrived(Heartbeat(parse_flow(f"x{number}->A"), NOW_MS), 1.0, NOW_MS, live=True))
        return len(pickle.dumps(path))

    assert known(2000) == known(20)


def test_the_status_is_that_of_the_last_heartbeat_of_any_pair() -> None:
    path, _ = after(begin(1.0, 0.0), arrived(1.0, latency_ms=40), arrived(1.5, latency_ms=90, pair="C->A"))
    assert status_of(path, NOW_MS + 2000) == PathStatus(heartbeat_age_s=0.59, path_latency_ms=90.0)
    assert status_of(begin(1.0, 0.0), NOW_MS) == PathStatus(None, None)


# -- reading -----------------------------------------------------------------------------------------------------------


def fetched(*records: NewRecord, at: int = 0) -> FetchedPartition:
    batch = build_batch(records)
    batch[0:8] = at.to_bytes(8, "big")
    return FetchedPartition("A.heartbeats", 0, 0, records=memoryview(batch))


def test_the_last_heartbeat_is_read_from_the_wanted_offset_on() -> None:
    beats = [Heartbeat(BA, NOW_MS + number) for number in range(4)]
    part = fetched(*(encode(beat) for beat in beats), at=10)
    assert newest_heartbeat(part, 12) == (beats[3], 14, None)
    assert newest_heartbeat(part, 14) == (None, 14, None)


def test_a_record_that_is_no_heartbeat_is_passed_over_and_logged_with_its_offset() -> None:
    """The topic holds a tombstone and a line of text."""
    good = Heartbeat(BA, NOW_MS)
    junk = [NewRecord(encode(good).key, None, NOW_MS), NewRecord(b"hello", b"world", NOW_MS)]
    for records, text in (
        ([junk[0], encode(good), junk[1]], "A.heartbeats-0 at offset 5: This is no heartbeat: it has no value"),
        ([encode(good), junk[1]], "A.heartbeats-0 at offset 6: This is no heartbeat: its key of 5 bytes ends inside"),
    ):
        found, next_offset, error = newest_heartbeat(fetched(*records, at=5), 0)
        assert (found, next_offset) == (good, 5 + len(records))
        assert str(error).startswith(text)


def test_a_heartbeat_in_front_of_a_damaged_batch_is_found() -> None:
    good = Heartbeat(BA, NOW_MS)
    whole, bad = fetched(encode(good), at=5), fetched(encode(good), at=6)
    bad.records[-1] ^= 1
    part = FetchedPartition("A.heartbeats", 0, 0, records=memoryview(bytearray([*whole.records, *bad.records])))
    found, next_offset, error = newest_heartbeat(part, 5)
    assert (found, next_offset) == (good, 7)
    assert str(error).startswith("A.heartbeats-0 at offset 6: This is not a whole record batch")
    assert newest_heartbeat(part, 6)[0] is None


def test_an_empty_reply_changes_nothing() -> None:
    assert newest_heartbeat(FetchedPartition("A.heartbeats", 0, 0), 7) == (None, 7, None)


def test_batches_of_a_million_tiny_records_take_no_memory() -> None:
    """The story: three batches of 1.2 million records in the source's ``heartbeats`` took a gigabyte."""
    count = 1_200_000
    big = [batch_of_tiny_records(count)] * 3
    good = build_batch([encode(Heartbeat(BA, NOW_MS))])
    part = FetchedPartition("A.heartbeats", 0, 0, records=memoryview(bytearray(b"".join([good, *big]))))
    tracemalloc.start()
    try:
        found, next_offset, error = newest_heartbeat(part, 0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == Heartbeat(BA, NOW_MS)
    assert next_offset == count
    assert "has more than the" in str(error)
    assert peak < 4_000_000


def test_of_a_reply_of_many_batches_as_much_is_decoded_as_one_step_of_the_loop_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """64 KB may hold hundreds of batches with ten thousand records each."""
    looked_at: list[bytes | None] = []

    def counted(key: bytes | None, value: bytes | None) -> Heartbeat:
        looked_at.append(key)
        return decode(key, value)

    monkeypatch.setattr(path_of_heartbeats, "decode", counted)
    beat = build_batch([encode(Heartbeat(BA, NOW_MS))])
    junk = build_batch([NewRecord(b"x", b"", NOW_MS)] * 10_000, codec=Codec.ZSTD)
    many = FetchedPartition("A.heartbeats", 0, 0, records=memoryview(bytearray(b"".join([beat, *[junk] * 100]))))
    assert newest_heartbeat(many, 0)[0] == Heartbeat(BA, NOW_MS)
    assert len(looked_at) == 20_001


# -- emitting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("due_s", "now_s", "wanted_s"),
    [
        (10.0, 10.01, 11.0),  # the rate is fixed, however long the answer took
        (10.0, 10.9, 11.0),
        (10.0, 11.5, 11.5),  # late: at once, and then one interval on
        (10.0, 600.0, 600.0),  # a broker was away: what was missed is not made up for
    ],
)
def test_heartbeats_keep_their_rate_and_catch_nothing_up(due_s: float, now_s: float, wanted_s: float) -> None:
    assert next_due_s(due_s, now_s, 1.0) == wanted_s
