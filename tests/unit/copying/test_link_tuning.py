"""How many connections a worker opens, on a model of a link."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from mm2py.copying.link_tuning import FIRST, IDLE_S, LOOK_S, TRY_AGAIN_S, Limit, LinkTuner, Look
from mm2py.copying.reading.stripes import STRIPE_BYTES_MOST

MB = 1e6
WINDOW_BYTES = 180_000
"""What one connection carries a round trip."""


@dataclass
class _Link:
    """A link, a worker that reads over it, and the looks at it."""

    round_trip_s: float
    bytes_per_s: float
    noise: float = 0.0
    most: int = 64
    seed: int = 1
    target_bytes_per_s: float = 1e12
    now_s: float = 0.0
    received: float = 0.0
    tuner: LinkTuner = field(default_factory=LinkTuner)
    numbers: list[int] = field(default_factory=list)

    def rate(self) -> float:
        free = min(self.tuner.connections * WINDOW_BYTES / self.round_trip_s, self.bytes_per_s)
        return min(free, self.target_bytes_per_s)

    def asked(self) -> int:
        """Return what is under way: two reads on each connection."""
        return 2 * STRIPE_BYTES_MOST * self.tuner.connections

    def run(self, seconds: float, *, backlog: bool = True) -> None:
        rng = random.Random(self.seed)
        for _ in range(int(seconds / LOOK_S)):
            self.now_s += LOOK_S
            self.received += backlog * self.rate() * LOOK_S * (1 + self.noise * rng.uniform(-1, 1))
            free = self.rate() < self.target_bytes_per_s
            held_up_by = None if free else Limit.TARGET
            look = Look(self.now_s, self.round_trip_s, int(self.received), backlog, self.asked(), held_up_by)
            self.tuner.look(look, self.most)
            self.numbers.append(self.tuner.connections)


def test_a_near_broker_is_read_over_one_connection() -> None:
    link = _Link(0.0005, 2_000 * MB)
    link.run(60)
    assert set(link.numbers) == {1}
    assert link.tuner.limit is Limit.NEAR


@pytest.mark.parametrize("round_trip_s", [0.02, 0.05, 0.1, 0.2])
@pytest.mark.parametrize("megabytes", [2, 12, 40, 125])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_far_link_is_used_to_the_full_within_twenty_seconds(
    round_trip_s: float, megabytes: int, noise: float
) -> None:
    link = _Link(round_trip_s, megabytes * MB, noise)
    link.run(20)
    reachable = min(64 * WINDOW_BYTES / round_trip_s, link.bytes_per_s)
    assert link.rate() >= 0.9 * reachable
    needed = link.bytes_per_s * round_trip_s / WINDOW_BYTES
    assert link.tuner.connections <= max(6, 2 * needed + 1)


@pytest.mark.parametrize("round_trip_s", [0.02, 0.05, 0.1])
def test_a_wide_link_has_all_its_connections_within_one_and_a_half_seconds(round_trip_s: float) -> None:
    link = _Link(round_trip_s, 1_000 * MB)
    link.run(1.5)
    assert link.tuner.connections == 64


def test_ten_minutes_on_a_full_link_change_the_number_a_few_times_only() -> None:
    link = _Link(0.1, 12 * MB, noise=0.1)
    link.run(20)
    link.numbers.clear()
    link.run(600)
    changes = sum(one != other for one, other in zip(link.numbers, link.numbers[1:], strict=False))
    assert changes <= 2 * (600 / TRY_AGAIN_S)
    assert max(link.numbers) <= 2 * min(link.numbers)
    assert link.tuner.limit in {Limit.LINK, Limit.GROWING}


def test_a_link_that_becomes_faster_is_used_after_the_next_try() -> None:
    link = _Link(0.1, 12 * MB)
    link.run(20)
    link.bytes_per_s = 60 * MB
    link.run(200)
    assert link.rate() >= 0.9 * link.bytes_per_s


@pytest.mark.parametrize("kilobytes", [60, 125, 250])
def test_over_a_narrow_link_no_more_is_asked_for_than_comes_before_requests_time_out(kilobytes: int) -> None:
    """F36: 64 connections asked for 33 MB over 1 Mbit/s, and every request timed out."""
    link = _Link(0.1, kilobytes * 1e3)
    link.run(600)
    one = 2 * STRIPE_BYTES_MOST / link.bytes_per_s
    assert max(link.numbers) * one <= max(FIRST * one, 20)


def test_after_a_time_out_few_connections_show_again_what_the_link_carries() -> None:
    """The link was cut and is as wide as before; or it has become narrow."""
    link = _Link(0.1, 125 * MB)
    link.run(20)
    link.tuner.timed_out()
    assert link.tuner.connections == FIRST
    link.run(20)
    assert link.tuner.connections == 64


def test_connections_are_closed_when_there_is_nothing_to_catch_up() -> None:
    link = _Link(0.1, 125 * MB)
    link.run(20)
    assert link.tuner.connections == 64
    assert link.tuner.limit is Limit.CONNECTIONS
    link.run(IDLE_S + 1, backlog=False)
    assert link.tuner.connections == 1
    assert link.tuner.limit is Limit.NOTHING_TO_DO


def test_a_target_that_is_slow_now_and_then_does_not_make_a_found_number_grow() -> None:
    """What was found of the link was forgotten with each look at which the target was slow."""
    link = _Link(0.1, 12 * MB)
    link.run(20)
    found = link.tuner.connections
    for _ in range(5):
        link.target_bytes_per_s = 1 * MB
        link.run(1)
        link.target_bytes_per_s = 1e12
        link.run(4)
        assert link.tuner.connections == found
        assert link.tuner.limit is Limit.LINK


def test_one_slow_moment_closes_no_connections() -> None:
    link = _Link(0.1, 125 * MB)
    link.run(20)
    link.bytes_per_s = 20 * MB
    link.run(1)
    link.bytes_per_s = 125 * MB
    link.run(5)
    assert link.tuner.connections == 64


def test_connections_over_which_nothing_comes_do_not_become_more() -> None:
    """There are only backlogs that are too small for several reads."""
    link = _Link(0.1, 0.0)
    link.run(60)
    assert link.tuner.connections <= 4


def test_a_slow_target_is_no_reason_for_more_connections() -> None:
    link = _Link(0.1, 125 * MB, target_bytes_per_s=5 * MB)
    link.run(120)
    assert link.tuner.connections <= 4
    assert link.tuner.limit is Limit.TARGET


def test_never_more_than_the_setting_says_also_if_it_changes() -> None:
    link = _Link(0.1, 125 * MB, most=6)
    link.run(20)
    assert link.tuner.connections == 6
    link.most = 2
    link.run(1)
    assert link.tuner.connections == 2
    link.most = 1
    link.run(20)
    assert link.tuner.connections == 1


def test_a_moment_in_which_the_target_is_slow_does_not_count_against_new_connections() -> None:
    link = _Link(0.1, 125 * MB)
    while link.tuner.connections < 64:
        link.run(LOOK_S)
    link.run(3 * LOOK_S)  # the new ones are being measured
    link.target_bytes_per_s = 1 * MB
    link.run(LOOK_S)
    link.target_bytes_per_s = 1e12
    link.run(5)
    assert set(link.numbers[-20:]) == {64}
