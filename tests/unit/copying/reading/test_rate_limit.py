"""``bytes.per.second.max``: over a long time not more than that, and no longer stops than needed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mm2py.copying.reading.limits import RateLimit


def test_without_a_limit_no_read_waits() -> None:
    rate = RateLimit(None)
    rate.spend(10**12, 0.0)
    assert rate.wait_s(0.0) == 0.0
    assert rate.allowance is None


def test_a_second_may_be_read_at_once_and_then_the_debt_is_waited_off() -> None:
    rate = RateLimit(1_000)
    assert rate.wait_s(0.0) == 0.0
    rate.spend(1_000, 0.0)
    assert rate.wait_s(0.0) == 0.0
    rate.spend(500, 0.0)
    assert rate.wait_s(0.0) == 0.5
    assert rate.wait_s(0.25) == 0.25
    assert rate.wait_s(0.5) == 0.0


def test_at_another_rate_what_was_saved_up_is_not_more_than_that_rate_allows() -> None:
    rate = RateLimit(1_000)
    rate.change(100, 0.0)
    rate.spend(200, 0.0)
    assert rate.wait_s(0.0) == 1.0
    rate.change(1_000, 0.5)
    assert rate.wait_s(0.5) == 0.05


def test_a_long_silence_saves_up_one_second_and_no_more() -> None:
    rate = RateLimit(1_000)
    rate.spend(1_000, 0.0)
    rate.spend(2_000, 3_600.0)
    assert rate.wait_s(3_600.0) == 1.0


def test_one_byte_a_second_still_moves() -> None:
    rate = RateLimit(1)
    assert rate.allowance == 1


@given(
    limit=st.integers(1, 10**9),
    sizes=st.lists(st.integers(1, 10**8), min_size=1, max_size=50),
    pauses=st.lists(st.floats(0, 10), min_size=50, max_size=50),
)
def test_the_long_run_keeps_the_limit_however_reads_come(limit: int, sizes: list[int], pauses: list[float]) -> None:
    """At every start of a read: what was read before it took at least its time, but for the first second."""
    rate = RateLimit(limit)
    now_s, total = 0.0, 0
    for size, pause_s in zip(sizes, pauses, strict=False):
        now_s += pause_s
        wait_s = rate.wait_s(now_s)
        now_s += wait_s
        assert rate.wait_s(now_s) < 1e-6 * max(1.0, now_s)
        assert total <= limit * (now_s + 1) * (1 + 1e-9) + 1
        rate.spend(size, now_s)
        total += size
