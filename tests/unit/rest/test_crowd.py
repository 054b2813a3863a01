"""Which connections stay (B43, S17)."""

from __future__ import annotations

import random

import pytest

from mm2py_rest.access.callers import network_of
from mm2py_rest.access.crowd import BUSY_MOST, WAITING_MOST, Crowd, Limits, limits_of

SMALL = Limits(waiting=4, busy=6)


def test_a_new_connection_gets_in_for_the_one_that_has_been_silent_longest() -> None:
    """3,000 connections of one address that say nothing made the health fail."""
    crowd: Crowd[int] = Crowd(SMALL)
    closed = [crowd.enter(number, "a") for number in range(3_000)]
    assert closed == [None] * 4 + list(range(2_996))
    assert len(crowd) == 4


def test_who_has_few_is_not_closed_for_who_has_many() -> None:
    crowd: Crowd[str] = Crowd(SMALL)
    assert crowd.enter("probe", "b") is None
    closed = [crowd.enter(f"a{number}", "a") for number in range(20)]
    assert "probe" not in closed
    assert crowd.enter("another", "c") == "a17"


def test_a_connection_that_asks_is_not_closed_for_new_ones_and_waits_again_behind_the_others() -> None:
    crowd: Crowd[str] = Crowd(SMALL)
    for key in ("x", "1", "2", "3"):
        crowd.enter(key, "a")
    assert crowd.begins("x")
    assert [crowd.enter(key, "a") for key in ("4", "5")] == [None, "1"]
    assert crowd.ends("x") == "2"
    assert crowd.enter("6", "a") == "3"


def test_one_address_may_not_have_all_requests_and_further_ones_come_later() -> None:
    crowd: Crowd[int] = Crowd(Limits(waiting=10, busy=6))
    for number in range(5):
        crowd.enter(number, "a")
    assert [crowd.begins(number) for number in range(5)] == [True, True, True, False, False]
    for number in range(5, 9):
        crowd.enter(number, f"b{number}")
    assert [crowd.begins(number) for number in range(5, 9)] == [True, True, True, False]
    crowd.leave(0)
    assert crowd.begins(8)


def test_one_that_was_closed_begins_nothing() -> None:
    crowd: Crowd[int] = Crowd(Limits(waiting=1, busy=1))
    crowd.enter(1, "a")
    assert crowd.enter(2, "a") == 1
    assert not crowd.begins(1)
    assert crowd.ends(1) is None
    crowd.leave(1)
    assert len(crowd) == 1


@pytest.mark.parametrize("seed", range(20))
def test_the_bounds_hold_whatever_connections_do(seed: int) -> None:
    rng, crowd = random.Random(seed), Crowd[int](Limits(waiting=20, busy=12))
    there: set[int] = set()
    busy: set[int] = set()
    for number in range(3_000):
        closed: int | None = None
        match rng.randrange(4):
            case 0 | 1:
                there.add(number)
                closed = crowd.enter(number, f"n{rng.randrange(3)}")
            case 2 if there:
                key = rng.choice(sorted(there))
                if key in busy:
                    busy.discard(key)
                    closed = crowd.ends(key)
                elif crowd.begins(key):
                    busy.add(key)
            case _ if there:
                key = rng.choice(sorted(there))
                crowd.leave(key)
                there.discard(key)
                busy.discard(key)
        assert closed not in busy
        there.discard(-1 if closed is None else closed)
        assert len(crowd) == len(there) and len(busy) <= 12 and crowd.waiting == len(there - busy) <= 20


@pytest.mark.parametrize(
    ("descriptors", "listeners", "limits"),
    [
        (20_000, 4, Limits(WAITING_MOST, BUSY_MOST)),
        (1_024, 2, Limits(153, 231)),
        (100, 2, Limits(3, 5)),
    ],
)
def test_a_process_that_may_open_few_files_has_fewer_connections(
    descriptors: int, listeners: int, limits: Limits
) -> None:
    assert limits_of(descriptors, listeners) == limits


def test_a_network_of_ipv6_is_one_address() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:2") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert network_of("") == ""
