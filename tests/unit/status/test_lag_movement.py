"""How a lag moves, when it is caught up, and whether the source deletes records before they are copied."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from mm2py.metrics.lag_trend import APART_MS, KEEPS_UP_MS, KEPT_EVERY_MS, LagTrend
from mm2py.records.lag_seen import LagSeen
from mm2py.status.lag_movement import (
    KEEPS_UP,
    NOT_KNOWN,
    BehindFacts,
    Expiry,
    LagMovement,
    LagTrendWord,
    movement_of,
    movement_text,
    together,
)
from mm2py.topics.retention import Retention, retention_of

NOW_MS = 1_764_338_527_000  # 2025-11-28T14:02:07Z
HOUR_S = 3600.0
DAY_MS = 86_400_000


def facts(
    *, end: int = 2_200, position: int = 1_000, before: tuple[int, int] | None = (1_800, 1_000), **extra: object
) -> BehindFacts:
    """Return a partition of which 1,200 records wait; ten seconds ago 800 did."""
    seen = None if before is None else LagSeen(NOW_MS - 10_000, *before, NOW_MS - 60_000)
    found = BehindFacts(LagSeen(NOW_MS, end, position, NOW_MS - 60_000), seen)
    return found._replace(**extra)  # type: ignore[arg-type]


def test_a_lag_that_grows_has_no_time_in_which_it_is_caught_up() -> None:
    found = movement_of(facts())
    assert (found.per_s, found.trend, found.catch_up_s) == (40.0, LagTrendWord.GROWING, None)


def test_a_lag_that_shrinks_is_caught_up_at_this_rate() -> None:
    found = movement_of(facts(position=1_900, end=2_200, before=(1_900, 1_000)))
    assert (found.per_s, found.trend, found.catch_up_s) == (-60.0, LagTrendWord.SHRINKING, 5.0)


def test_a_lag_that_does_not_move_is_steady_and_is_not_caught_up() -> None:
    found = movement_of(facts(end=2_200, position=1_400, before=(1_800, 1_000)))
    assert (found.per_s, found.trend, found.catch_up_s) == (0.0, LagTrendWord.STEADY, None)


@pytest.mark.parametrize("before", [None, (2_300, 1_000), (1_800, 1_100)], ids=["none", "cut back", "copied again"])
def test_without_an_earlier_look_at_the_same_log_nothing_is_known_of_the_rate(before: tuple[int, int] | None) -> None:
    found = movement_of(facts(before=before, retention=Retention(ms=DAY_MS), waiting_s=60.0))
    assert (found.per_s, found.trend, found.catch_up_s) == (None, None, None)
    assert found.expires_s is None and found.expiry is Expiry.UNKNOWN
    assert found.retention_share == pytest.approx(60 / 86_400), "the share needs no rate"


def test_bytes_are_not_known_where_no_record_was_copied() -> None:
    assert movement_of(facts()).bytes is None
    assert movement_of(facts(record_bytes=100.0)).bytes == 120_000


@pytest.mark.parametrize("seed", range(20))
def test_rate_and_catching_up_are_those_of_a_simulated_lag(seed: int) -> None:
    """Records come and are copied at random rates. What is said at any moment must come true if the rates stay."""
    rng = random.Random(seed)
    trend, end, position = LagTrend(), rng.randrange(5_000, 50_000), 0
    produced, copied = rng.randrange(0, 300), rng.randrange(0, 300)
    at_ms = NOW_MS
    for second in range(120):
        if second < 60 and rng.random() < 0.1:
            produced, copied = rng.randrange(0, 300), rng.randrange(0, 300)
        at_ms += 1000
        end += produced
        position = min(end, position + copied)
        trend.keep(LagSeen(at_ms, end, position))
        before = trend.before(at_ms)
        assert before is None or APART_MS <= at_ms - before.at_ms <= 2 * KEPT_EVERY_MS
    if position >= end:
        return  # it has caught up
    found = movement_of(BehindFacts(LagSeen(at_ms, end, position), trend.before(at_ms)))
    assert found.per_s == pytest.approx(produced - copied), f"seed {seed}"
    if found.catch_up_s is None:
        assert copied <= produced
    else:
        seconds = 0
        while position < end:
            seconds, end, position = seconds + 1, end + produced, position + copied
        assert found.catch_up_s == pytest.approx(seconds, abs=1.0), f"seed {seed}"


# Retention


def test_what_stands_still_expires_when_the_rest_of_its_time_has_passed() -> None:
    found = movement_of(facts(retention=Retention(ms=4 * 3_600_000), waiting_s=HOUR_S))
    assert (found.retention_share, found.expiry, found.expires_s) == (0.25, Expiry.AT_THIS_RATE, 3 * HOUR_S)


def test_what_is_copied_at_half_the_rate_expires_in_twice_the_time() -> None:
    """In ten seconds the copy has come five seconds further."""
    found = facts(position=1_100, retention=Retention(ms=4 * 3_600_000), waiting_s=HOUR_S)
    found = found._replace(now=found.now._replace(newest_ms=NOW_MS - 55_000))
    assert movement_of(found).expires_s == pytest.approx(6 * HOUR_S)


def test_what_catches_up_does_not_expire_at_this_rate() -> None:
    found = facts(position=1_900, before=(1_900, 1_000), retention=Retention(ms=7_200_000), waiting_s=HOUR_S)
    moves = movement_of(found._replace(now=found.now._replace(newest_ms=NOW_MS - 30_000)))
    assert (moves.retention_share, moves.expiry, moves.expires_s) == (0.5, Expiry.NOT_AT_THIS_RATE, None)


def test_what_is_caught_up_before_it_expires_does_not_expire() -> None:
    """No more records come, and the rest is copied at half the rate at which it was produced: the oldest one that waits
    becomes older, and in ten seconds none waits."""
    slow = facts(position=1_600, before=(2_200, 1_000), retention=Retention(ms=7_200_000), waiting_s=HOUR_S)
    slow = slow._replace(now=slow.now._replace(newest_ms=NOW_MS - 55_000))
    assert movement_of(slow).catch_up_s == 10.0
    assert (movement_of(slow).expiry, movement_of(slow).expires_s) == (Expiry.NOT_AT_THIS_RATE, None)
    soon = movement_of(slow._replace(waiting_s=7_198.0))
    assert (soon.expiry, soon.expires_s) == (Expiry.AT_THIS_RATE, 4.0)
    now = movement_of(slow._replace(waiting_s=7_200.0))
    assert (now.expiry, now.expires_s) == (Expiry.AT_THIS_RATE, 0.0)


def test_a_log_that_is_bounded_in_bytes_deletes_what_is_that_far_from_its_end() -> None:
    found = movement_of(facts(retention=Retention(bytes=480_000), record_bytes=100.0))
    assert (found.retention_share, found.expires_s) == (0.25, 90.0), "360,000 bytes are left, and 4,000 come a second"
    both = movement_of(facts(retention=Retention(40_000, 480_000), record_bytes=100.0, waiting_s=10.0))
    assert (both.retention_share, both.expires_s) == (0.25, 30.0), "the first of both limits counts"


def test_what_has_used_up_its_time_may_be_deleted_now_whatever_the_rate() -> None:
    found = movement_of(facts(before=None, retention=Retention(ms=1000), waiting_s=2.0))
    assert (found.retention_share, found.expiry, found.expires_s) == (2.0, Expiry.AT_THIS_RATE, 0.0)


def test_records_behind_which_the_log_starts_are_gone() -> None:
    assert movement_of(facts(log_start=1_001, retention=Retention())).expiry is Expiry.GONE
    assert movement_of(facts(log_start=1_000, retention=Retention())).expiry is Expiry.NEVER


@pytest.mark.parametrize(
    ("settings", "limits"),
    [
        ({"cleanup.policy": "delete", "retention.ms": "1000", "retention.bytes": "-1"}, Retention(1000, None)),
        ({"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "7"}, Retention(None, 7)),
        ({"cleanup.policy": "compact", "retention.ms": "1000", "retention.bytes": "7"}, Retention()),
        ({"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}, Retention()),
        ({"cleanup.policy": "delete", "retention.ms": None, "retention.bytes": "-1"}, None),
        ({"retention.ms": "1000", "retention.bytes": "-1"}, None),
    ],
)
def test_a_topic_keeps_its_records_as_its_settings_say(
    settings: dict[str, str | None], limits: Retention | None
) -> None:
    assert retention_of(settings) == limits


@pytest.mark.parametrize("seed", range(50))
def test_what_is_not_known_is_never_told_and_what_is_only_compacted_never_expires(seed: int) -> None:
    rng = random.Random(seed)

    def some(value: object) -> object:
        return rng.choice([None, value])

    end, position = rng.randrange(100, 10_000), rng.randrange(0, 100)
    before = (end - rng.randrange(0, 50), max(0, position - rng.randrange(0, 50)))
    given = facts(
        end=end,
        position=position,
        before=rng.choice([None, before]),
        record_bytes=some(10.0),
        waiting_s=some(5.0),
        retention=some(Retention(some(10_000), some(50_000))),  # type: ignore[arg-type]
    )
    found = movement_of(given)
    compacted = movement_of(given._replace(retention=Retention()))
    assert (compacted.expiry, compacted.expires_s) == (Expiry.NEVER, None)
    assert "expire" not in movement_text(9, compacted, NOW_MS)
    assert (found.bytes is None) == (given.record_bytes is None)
    assert (found.per_s is None) == (given.before is None)
    if given.retention is None:
        assert (found.retention_share, found.expiry) == (None, Expiry.UNKNOWN)
    else:
        needs_age, needs_size = given.retention.ms is not None, given.retention.bytes is not None
        lacks = (needs_age and given.waiting_s is None) or (needs_size and given.record_bytes is None)
        assert (found.retention_share is None) == lacks
        if found.expiry is Expiry.NOT_AT_THIS_RATE:
            assert not lacks and given.before is not None


# Several partitions


def test_together_the_worst_is_told() -> None:
    growing = movement_of(facts(record_bytes=1.0, since_ms=5, retention=Retention(ms=DAY_MS), waiting_s=10.0))
    shrinking = movement_of(facts(position=1_900, before=(1_900, 1_000), record_bytes=1.0, since_ms=3))
    found = together([growing, shrinking, KEEPS_UP])
    assert (found.per_s, found.trend, found.catch_up_s) == (-20.0, LagTrendWord.SHRINKING, None)
    assert (found.since_ms, found.bytes) == (3, 1_500)
    assert (found.expiry, found.expires_s) == (Expiry.AT_THIS_RATE, growing.expires_s)
    assert found.retention_share is None, "that of the other is not known"
    assert together([KEEPS_UP, KEEPS_UP]) == KEEPS_UP
    assert together([]) == KEEPS_UP


def test_together_with_what_is_not_known_nothing_is_well() -> None:
    found = together([KEEPS_UP, NOT_KNOWN])
    assert (found.per_s, found.trend, found.catch_up_s, found.bytes) == (None, None, None, None)
    assert found.expiry is Expiry.UNKNOWN and found.is_behind


# Words


def test_a_line_says_how_far_how_fast_since_when_and_until_when() -> None:
    base = movement_of(facts(since_ms=NOW_MS - 7_000, retention=Retention(ms=4 * 3_600_000), waiting_s=HOUR_S))
    assert movement_text(1_200, base, NOW_MS) == (
        "1,200 records behind, growing by 40/s, since 14:02:00Z, the oldest expires in 3 h at this rate"
    )
    assert movement_text(1, NOT_KNOWN, NOW_MS) == "1 record behind, not known when the oldest expires"
    yesterday = replace(base, since_ms=NOW_MS - DAY_MS, expiry=Expiry.NEVER, bytes=1_500_000)
    assert movement_text(1_200, yesterday, NOW_MS) == (
        "1,200 records behind, about 1.5 MB, growing by 40/s, since 2025-11-27T14:02:07Z"
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"per_s": -3.14, "trend": LagTrendWord.SHRINKING, "catch_up_s": 600.0}, "shrinking by 3.1/s, caught up in 10"),
        ({"per_s": 0.0, "trend": LagTrendWord.STEADY}, "neither growing nor shrinking"),
        ({"expiry": Expiry.GONE}, "and the source has deleted the oldest"),
        ({"expiry": Expiry.AT_THIS_RATE, "expires_s": 0.0}, "the source may delete the oldest at any moment"),
        ({"expiry": Expiry.NOT_AT_THIS_RATE, "retention_share": 0.42}, "42% of its retention used"),
    ],
)
def test_a_line_has_words_for_each_state(changed: dict[str, object], said: str) -> None:
    assert said in movement_text(7, replace(LagMovement(*[None] * 6, Expiry.NEVER, None), **changed), NOW_MS)  # type: ignore[arg-type]


# What a worker remembers


def test_a_partition_is_behind_when_its_safe_time_is_old_and_records_wait() -> None:
    trend = LagTrend()
    trend.look(NOW_MS, 50, 40, None, safe_ms=NOW_MS - KEEPS_UP_MS)
    assert trend.behind_since_ms is None, "a busy partition that is copied in time always has some that wait"
    trend.look(NOW_MS + 1, 50, 40, None, safe_ms=NOW_MS - KEEPS_UP_MS)
    assert trend.behind_since_ms == NOW_MS - KEEPS_UP_MS
    trend.look(NOW_MS + 60_000, 90, 80, None, safe_ms=NOW_MS + 20_000)
    assert trend.behind_since_ms == NOW_MS - KEEPS_UP_MS, "it is behind since then, although it comes further"
    trend.look(NOW_MS + 70_000, 90, 80, None, safe_ms=NOW_MS + 65_000)
    assert trend.behind_since_ms is None
    trend.look(NOW_MS + 90_000, 90, 90, None, safe_ms=NOW_MS + 65_000)
    assert trend.behind_since_ms is None, "nothing waits: an open transaction keeps its safe time back"


def test_a_partition_that_has_caught_up_remembers_nothing_of_the_time_before() -> None:
    """Hours later it is behind again. Its rate is not that since the time before."""
    trend = LagTrend()
    assert not trend.has_nothing_to_note(NOW_MS, None)
    trend.look(NOW_MS, 50, 40, None, safe_ms=1)
    assert trend.before(NOW_MS + APART_MS) is not None
    assert not trend.has_nothing_to_note(NOW_MS, NOW_MS), "it has been behind until now"
    trend.look(NOW_MS + 1000, 50, 40, None, safe_ms=NOW_MS)
    assert trend.before(NOW_MS + APART_MS) is None
    assert trend.has_nothing_to_note(NOW_MS + 1000, NOW_MS)
    assert not trend.has_nothing_to_note(NOW_MS + KEEPS_UP_MS + 1, NOW_MS)


def test_a_new_owner_keeps_what_the_one_before_has_stored() -> None:
    trend = LagTrend(behind_since_ms=5)
    trend.look(NOW_MS, None, 40, None, safe_ms=None)
    trend.look(NOW_MS + 5000, 50, 40, None, safe_ms=None)
    assert trend.behind_since_ms == 5
    trend.look(NOW_MS + 10_000, 50, 50, None, safe_ms=None)
    assert trend.behind_since_ms is None
    fresh = LagTrend()
    fresh.look(NOW_MS, None, 40, None, safe_ms=None)
    assert fresh.behind_since_ms is None, "nothing is known yet"
    fresh.look(NOW_MS + 1, 50, 40, None, safe_ms=None)
    assert fresh.behind_since_ms == NOW_MS + 1


def test_a_clock_that_is_set_back_and_a_copy_that_begins_again_forget_what_was_seen() -> None:
    trend = LagTrend()
    trend.keep(LagSeen(NOW_MS, 50, 40))
    assert trend.before(NOW_MS + APART_MS) == LagSeen(NOW_MS, 50, 40)
    assert trend.before(NOW_MS + APART_MS - 1) is None
    trend.keep(LagSeen(NOW_MS - 1, 50, 40))
    assert trend.before(NOW_MS + APART_MS - 1) == LagSeen(NOW_MS - 1, 50, 40)
    trend.keep(LagSeen(NOW_MS, 50, 0))
    assert trend.before(NOW_MS + APART_MS) == LagSeen(NOW_MS, 50, 0)


def test_what_was_seen_is_stored_as_a_text_and_read_back() -> None:
    for seen in (LagSeen(1, 2, 3, 4), LagSeen(1, 2, 3)):
        assert LagSeen.of(seen.text) == seen
    assert LagSeen.of("") is LagSeen.of(None) is None
    assert LagSeen.of("1,2") is LagSeen.of("1,2,x,4") is None
    assert LagSeen.of("1,2,3,4,more of a later version") == LagSeen(1, 2, 3, 4)
