"""The clock by which tests of real processes wait."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.patience import SLOWEST, PatientClock, counted_s, stalled_s


@pytest.mark.parametrize(
    ("passed", "stalled", "counted"), [(10, 0, 10), (10, 4, 6), (10, 10, 2.5), (10, 9, 2.5), (0, 0, 0)]
)
def test_time_without_a_core_is_left_out_and_the_clock_never_stands(
    passed: float, stalled: float, counted: float
) -> None:
    assert counted_s(passed, stalled) == counted


def test_a_deadline_lasts_longer_while_the_machine_is_busy() -> None:
    wall, stall = [0.0], [0.0]
    clock = PatientClock(lambda: wall[0], lambda: stall[0])
    end_s = clock.now_s() + 30
    for _ in range(30):  # idle for half of it, then without a core for most of the time
        wall[0] += 0.5
        clock.now_s()
    while clock.now_s() < end_s:
        wall[0] += 0.5
        stall[0] += 0.45
    assert wall[0] == pytest.approx(15 + 15 / SLOWEST, abs=1)


def test_a_machine_that_does_not_say_what_waits_has_the_wall_clock(tmp_path: Path) -> None:
    assert stalled_s(tmp_path / "none") == 0
    (tmp_path / "odd").write_text("nothing\n")
    assert stalled_s(tmp_path / "odd") == 0
    (tmp_path / "cpu").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 total=9\n")
    assert stalled_s(tmp_path / "cpu") == 2.5
