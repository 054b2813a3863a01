"""What a partition that is behind waits for, and what the looks of ten seconds tell together."""

from __future__ import annotations

from collections import Counter

import pytest

from mm2py.copying.waits import BrokerTimes, WaitFacts, WaitLooks, WaitSums, wait_of
from mm2py.metrics.counters import CpuTime
from mm2py.records.flow_waits import FlowWaits, Wait

READING = WaitFacts(
    is_planned=False,
    has_room=True,
    rate_s=0.0,
    memory_is_full=False,
    target_is_full=False,
    is_source_far=False,
    is_target_far=False,
)


@pytest.mark.parametrize(
    ("seen", "wait"),
    [
        (READING, Wait.SOURCE),
        (READING._replace(is_source_far=True), Wait.SOURCE_LINK),
        (READING._replace(target_is_full=True), Wait.SOURCE),
        (READING._replace(is_planned=True, has_room=False), Wait.PLANNING),
        (READING._replace(has_room=False, is_source_far=True), Wait.TARGET),
        (READING._replace(has_room=False, is_target_far=True), Wait.TARGET_LINK),
        (READING._replace(has_room=False, rate_s=0.5, memory_is_full=True), Wait.TARGET),
        (READING._replace(rate_s=0.5, memory_is_full=True), Wait.RATE),
        (READING._replace(memory_is_full=True), Wait.MEMORY),
        # More memory would only be filled as well.
        (READING._replace(memory_is_full=True, target_is_full=True), Wait.TARGET),
        (READING._replace(memory_is_full=True, target_is_full=True, is_target_far=True), Wait.TARGET_LINK),
    ],
)
def test_a_partition_waits_for_what_keeps_it_from_being_read(seen: WaitFacts, wait: Wait) -> None:
    assert wait_of(seen) is wait


def test_delays_of_several_brokers_at_once_count_once_and_only_up_to_now() -> None:
    times = BrokerTimes()
    times.throttled(0, 1.0)
    assert times.throttled_s(5.0) == 0
    times.throttled(1000, 10.0)
    times.throttled(1000, 10.5)
    times.throttled(200, 10.6)
    assert times.throttled_s(11.0) == pytest.approx(1.0)
    assert times.throttled_s(20.0) == pytest.approx(1.5)
    times.throttled(500, 20.0)
    assert times.throttled_s(21.0) == pytest.approx(2.0)


def sums(at_s: float, **counts: float) -> WaitSums:
    """Return the sums of a flow that began at 0 and does all at the same pace, so much a second."""
    cpu = CpuTime(counts.get("used", 0.0) * at_s, counts.get("waited", 0.0) * at_s)
    answers, throttled = counts.get("answers", 0) * at_s, counts.get("throttled", 0.0) * at_s
    return WaitSums(at_s, round(1000 * at_s), cpu, 0.0, round(answers), answers / 10, throttled, 0, 0.0)


def told(looks: WaitLooks) -> FlowWaits | None:
    return looks.told(behind=3, round_trip_s=0.0, memory_bytes=7, rebuilds="repack")


def test_the_looks_of_the_last_ten_seconds_tell_how_often_what_was_waited_for() -> None:
    looks = WaitLooks()
    assert told(looks) is None
    looks.add(sums(100.0), Counter({Wait.MEMORY: 50}))
    assert told(looks) is None, "one look has no length of time"
    for at_s in range(105, 116):
        pace = sums(float(at_s), used=0.75, waited=0.1, answers=10, throttled=0.5)
        looks.add(pace, Counter({Wait.TARGET: 3, Wait.SOURCE: 1}))
    assert told(looks) == FlowWaits(
        3,
        {"target": 75, "source": 25},
        source_throttled=0,
        target_throttled=50,
        cpu=75,
        cpu_waited=10,
        bytes_per_s=1000,
        source_ms=100,
        target_ms=0,
        memory_bytes=7,
        rebuilds="repack",
    )
    looks.forget()
    assert told(looks) is None


def test_looks_in_which_nothing_is_copied_tell_no_wait() -> None:
    looks = WaitLooks()
    looks.add(sums(0.0), Counter())
    looks.add(sums(1.0), Counter())
    found = told(looks)
    assert found is not None and (found.behind, found.waits) == (3, {})
