"""A partition is safe to the moment at which a request was sent whose answer named an end that is copied now."""

from __future__ import annotations

import random

from mm2py.copying.safe_time import CLOCK_STEP_MS, SafeTime


def test_before_any_answer_no_time_is_safe() -> None:
    assert SafeTime().at_ms is None


def test_a_partition_at_its_end_is_safe_to_the_moment_of_the_request() -> None:
    safe = SafeTime()
    safe.learn_end(1_000, end=10, position=10, leader_epoch=5)
    assert safe.at_ms == 1_000
    safe.learn_read(1_500, None, position=10, leader_epoch=5)  # an answer that does not name it: as before
    assert safe.at_ms == 1_500


def test_a_partition_is_safe_when_its_position_reaches_the_end_that_was_named() -> None:
    safe = SafeTime()
    safe.learn_end(1_000, end=10, position=4, leader_epoch=5)
    safe.learn_read(1_200, 14, position=9, leader_epoch=5)
    assert safe.at_ms is None
    safe.learn_read(1_400, 18, position=12, leader_epoch=5)
    assert safe.at_ms == 1_000
    safe.learn_read(1_600, 22, position=20, leader_epoch=5)
    assert safe.at_ms == 1_400, "both ends that were waited for are reached"


def test_the_first_answer_of_a_new_leader_to_a_read_does_not_count() -> None:
    """The old leader acknowledged records up to 12 and died. The new one does not know yet that they are committed."""
    safe = SafeTime()
    safe.learn_end(1_000, end=10, position=10, leader_epoch=5)
    safe.learn_read(2_000, 10, position=10, leader_epoch=6)
    assert safe.at_ms == 1_000
    safe.learn_end(2_100, end=12, position=10, leader_epoch=6)
    safe.learn_read(2_200, 12, position=12, leader_epoch=6)
    assert safe.at_ms == 2_200


def test_without_a_leader_epoch_only_list_offsets_counts() -> None:
    safe = SafeTime()
    safe.learn_end(1_000, end=10, position=10, leader_epoch=-1)
    safe.learn_read(2_000, 10, position=10, leader_epoch=-1)
    assert safe.at_ms == 1_000


def test_an_answer_that_comes_late_does_not_take_time_back_and_a_clock_that_is_set_back_does() -> None:
    safe = SafeTime()
    safe.learn_end(100_000, end=10, position=10, leader_epoch=5)
    safe.learn_end(99_000, end=10, position=10, leader_epoch=5)
    assert safe.at_ms == 100_000
    safe.learn_end(100_000 - CLOCK_STEP_MS, end=10, position=10, leader_epoch=5)
    assert safe.at_ms == 100_000 - CLOCK_STEP_MS


def test_in_random_histories_it_is_never_too_new_and_it_reaches_now_when_copying_stops() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        safe, appended_ms, position, now_ms = SafeTime(), [], 0, 0
        for _ in range(200):
            now_ms += rng.randrange(1, 300)
            appended_ms += [now_ms] * rng.choice([0, 0, 1, 5, 50])
            position += rng.randrange(0, len(appended_ms) - position + 1)
            sent_ms, end = now_ms - rng.randrange(0, 200), len(appended_ms)
            if rng.random() < 0.2:
                safe.learn_end(sent_ms, end, position, 1)
            else:
                safe.learn_read(sent_ms, end, position, 1)
            if safe.at_ms is not None:
                not_copied = appended_ms[position:]
                assert all(at_ms > safe.at_ms for at_ms in not_copied), f"seed {seed}"
        safe.learn_end(now_ms + 1_000, len(appended_ms), len(appended_ms), 1)
        assert safe.at_ms == now_ms + 1_000, f"seed {seed}"


def test_an_end_that_was_named_earlier_and_answered_later_takes_none_back() -> None:
    """ListOffsets names 100. A read that was answered before named 110, and later ones leave the partition out."""
    safe = SafeTime()
    safe.learn_read(1_010, 110, position=90, leader_epoch=5)
    safe.learn_end(1_000, end=100, position=100, leader_epoch=5)
    safe.learn_read(2_000, None, position=100, leader_epoch=5)
    assert safe.at_ms is None
    safe.learn_read(3_000, None, position=110, leader_epoch=5)
    assert safe.at_ms == 3_000


def test_a_log_that_was_cut_back_under_a_new_leader_has_a_lower_end() -> None:
    safe = SafeTime()
    safe.learn_end(1_000, end=100, position=90, leader_epoch=5)
    safe.learn_end(2_000, end=90, position=90, leader_epoch=6)
    assert safe.at_ms == 2_000
