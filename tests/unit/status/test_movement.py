"""A partition of which records wait and whose position does not move stands still, whatever its worker says."""

from __future__ import annotations

from mm2py.kafka.port import TopicPartition
from mm2py.records.source_offset import StoredPosition
from mm2py.status.movement import AHEAD_MS, SETTLE_S, Movement, waiting_since_ms, waits_since_lately

KEY: TopicPartition = ("orders", 0)
TIMEOUT_MS = 30_000
NOW_MS = 1_000_000


def standing(
    movement: Movement, moved_ms: int | None, *, now_s: float, now_ms: int = NOW_MS
) -> dict[TopicPartition, int | None]:
    positions = {KEY: StoredPosition(5, moved_ms=moved_ms)}
    return movement.standing(positions, now_s=now_s, now_ms=now_ms, timeout_ms=TIMEOUT_MS)


def watched(*looks: tuple[float, int | None]) -> Movement:
    """Return what so many looks have found: when, and where the partition stood; records waited in each of them."""
    movement = Movement()
    for at_s, position in looks:
        movement.look({KEY: position}, at_s)
    return movement


def test_a_position_that_moved_within_the_time_out_does_not_stand() -> None:
    movement = watched((0, 5), (SETTLE_S, 5))
    assert standing(movement, NOW_MS - TIMEOUT_MS + 100, now_s=SETTLE_S) == {}
    assert standing(movement, NOW_MS - TIMEOUT_MS - 100, now_s=SETTLE_S) == {KEY: NOW_MS - TIMEOUT_MS - 100}


def test_a_record_that_has_just_come_makes_no_partition_stand() -> None:
    """The topic was at rest for an hour, and its worker has not stored the next position yet."""
    an_hour_ago = NOW_MS - 3_600_000
    assert standing(watched((0, 5)), an_hour_ago, now_s=0) == {}
    assert standing(watched((0, 5), (1, 6), (SETTLE_S, 6)), an_hour_ago, now_s=SETTLE_S) == {}, "it has moved meanwhile"
    movement = watched((0, 5))
    movement.look({}, 1)  # all was copied
    movement.look({KEY: 5}, SETTLE_S)
    assert standing(movement, an_hour_ago, now_s=SETTLE_S) == {}


def test_a_position_without_a_time_stands_when_it_was_seen_in_one_place() -> None:
    """MirrorMaker 2 or an older version stored it; or none is stored at all."""
    movement = watched((0, 5), (SETTLE_S, 5))
    assert standing(movement, None, now_s=SETTLE_S) == {KEY: None}
    nothing = watched((0, None), (SETTLE_S, None))
    assert nothing.standing({}, now_s=SETTLE_S, now_ms=NOW_MS, timeout_ms=TIMEOUT_MS) == {KEY: None}


def test_a_clock_that_is_ahead_makes_it_slower_to_tell_and_never_green_for_good() -> None:
    an_hour_ahead = NOW_MS + 3_600_000
    late_s = (TIMEOUT_MS + 1) / 1000
    movement = watched((0, 5), (SETTLE_S, 5), (late_s, 5))
    assert standing(movement, an_hour_ahead, now_s=SETTLE_S) == {}
    assert standing(movement, an_hour_ahead, now_s=late_s) == {KEY: None}


def test_only_what_may_stand_still_is_looked_at_again() -> None:
    movement = watched((0, 5))
    fresh = {KEY: StoredPosition(5, moved_ms=NOW_MS - 1000)}
    old = {KEY: StoredPosition(5, moved_ms=NOW_MS - 3_600_000)}
    assert list(movement.suspects(fresh, now_ms=NOW_MS, timeout_ms=TIMEOUT_MS)) == []
    assert list(movement.suspects(old, now_ms=NOW_MS, timeout_ms=TIMEOUT_MS)) == [KEY]


def test_what_a_look_could_not_tell_stands_as_before() -> None:
    """Once a source that hiccupped made a partition green that had stood for hours."""
    movement = watched((0, 5), (SETTLE_S, 5))
    movement.look({}, 10, unknown=[KEY])
    assert standing(movement, None, now_s=10) == {KEY: None}
    movement.look({}, 11)
    assert standing(movement, None, now_s=11) == {}


def test_records_that_came_within_the_time_out_make_no_partition_stand() -> None:
    """The first record of the last half minute stands at offset 7."""
    assert waits_since_lately(7, 7, NOW_MS - 1000, now_ms=NOW_MS)
    assert waits_since_lately(9, 7, NOW_MS - 1000, now_ms=NOW_MS)
    assert not waits_since_lately(6, 7, NOW_MS - 1000, now_ms=NOW_MS), "the record at 6 is older, and waits"
    assert not waits_since_lately(7, 7, NOW_MS + AHEAD_MS + 1, now_ms=NOW_MS), "a clock that is ahead tells nothing"


def test_what_waits_is_as_old_as_the_first_record_after_the_position_that_is_younger_than_what_was_copied() -> None:
    assert waiting_since_ms(10, 10, 5_000) == 5_000
    assert waiting_since_ms(10, 12, 5_000) == 5_000, (
        "the offsets between are markers, or have the time of the last copy"
    )
    assert waiting_since_ms(10, 7, 5_000) is None, "timestamps are not in order"
