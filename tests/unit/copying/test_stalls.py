"""When a partition stands still, and the reason that is logged for it."""

from __future__ import annotations

import pytest

from mm2py.copying.copied_partition import Circumstances, Watch, why_stalled


def test_a_partition_with_nothing_to_copy_never_stands_still() -> None:
    watch = Watch()
    assert [watch.look(10, 10, now_s) for now_s in (0.0, 100.0, 1e6)] == [0.0, 0.0, 0.0]
    assert watch.look(0, 0, 2e6) == 0.0, "its end is not known yet"


def test_the_wait_of_records_counts_from_when_the_first_one_was_seen() -> None:
    watch = Watch()
    watch.look(10, 10, 0.0)
    assert watch.look(11, 10, 100.0) == 0.0, "the idle time before does not count"
    assert watch.look(15, 10, 110.0) == 10.0
    assert watch.look(20, 10, 131.0) == 31.0


def test_each_acknowledgement_restarts_the_count() -> None:
    watch = Watch()
    watch.look(10, 0, 0.0)
    assert watch.look(10, 0, 29.0) == 29.0
    assert watch.look(10, 1, 30.0) == 0.0
    assert watch.look(10, 1, 59.0) == 29.0


def test_a_position_that_an_operator_set_back_counts_as_a_move() -> None:
    watch = Watch()
    watch.look(10, 5, 0.0)
    assert watch.look(10, 0, 100.0) == 0.0


def test_it_is_over_when_all_is_acknowledged() -> None:
    watch = Watch()
    watch.look(10, 0, 0.0)
    assert watch.look(10, 10, 100.0) == 0.0
    assert watch.look(12, 10, 200.0) == 0.0


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (Circumstances(lacks_leader="the remote partition has no leader"), "the remote partition has no leader"),
        (Circumstances(reason="source offset 7 cannot be copied"), "source offset 7 cannot be copied"),
        (
            Circumstances(is_storing=True, target_problem="b:9 cannot be reached"),
            "its position is not stored on the target yet: b:9 cannot be reached",
        ),
        (
            Circumstances(is_storing=True, position_problem="mm2-offsets-0: it has no leader", target_problem="slow"),
            "its position is not stored on the target yet: mm2-offsets-0: it has no leader",
        ),
        (Circumstances(has_unacknowledged=True), "the target has not acknowledged what was read"),
        (Circumstances(throttled_s=0.5), "bytes.per.second.max holds reading back"),
        (Circumstances(memory_is_full=True), "memory.max.bytes is used up by records that wait for the target"),
        (Circumstances(source_problem="a:9 is slow"), "the source does not answer: a:9 is slow"),
        (Circumstances(is_reading=True), "the source was asked for records and has not sent any"),
        (Circumstances(), "nothing that it waits for is known; this is a defect in mm2py"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_reason_is_a_sentence(seen: Circumstances, why: str) -> None:
    assert why_stalled(seen) == why


def test_the_first_obstacle_on_the_way_is_the_reason() -> None:
    """A target that does not answer fills the memory; the memory is not the reason."""
    seen = Circumstances(has_unacknowledged=True, memory_is_full=True, source_problem="slow", throttled_s=1.0)
    assert why_stalled(seen) == "the target has not acknowledged what was read"
