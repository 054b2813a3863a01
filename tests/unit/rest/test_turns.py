"""Whose password is checked next (S17)."""

from __future__ import annotations

import random

import pytest

from mm2py_rest.access.turns import REST_S, WAITING_MOST, WAITING_MOST_OF_ONE, Turns


def test_each_address_has_its_turn_and_a_right_password_costs_no_rest() -> None:
    turns: Turns[str] = Turns()
    for check in ("a1", "a2", "a3", "b1"):
        assert turns.join(check, check[0]) is None
    taken = []
    while (check := turns.take(0.0)) is not None:
        taken.append(check)
        assert turns.take(0.0) is None, "one at a time"
        turns.checked(check[0], 0.0, is_right=True)
    assert taken == ["a1", "b1", "a2", "a3"]


def test_after_a_wrong_password_its_address_rests_and_others_do_not() -> None:
    turns: Turns[str] = Turns()
    for check in ("a1", "a2", "b1"):
        turns.join(check, check[0])
    assert turns.take(10.0) == "a1"
    turns.checked("a", 10.0, is_right=False)
    assert turns.take(10.0) == "b1"
    turns.checked("b", 10.0, is_right=False)
    assert turns.take(10.0) is None
    assert turns.wait_s(10.5) == REST_S - 0.5
    assert turns.take(10.0 + REST_S) == "a2"
    turns.checked("a", 12.0, is_right=True)
    assert turns.wait_s(12.0) is None, "none waits"


def test_one_address_cannot_fill_the_queue() -> None:
    turns: Turns[int] = Turns()
    turned_away = [turns.join(number, "a") for number in range(WAITING_MOST_OF_ONE + 3)]
    assert turned_away == [None] * WAITING_MOST_OF_ONE + list(range(WAITING_MOST_OF_ONE, WAITING_MOST_OF_ONE + 3))
    assert turns.join(100, "b") is None


def test_in_a_full_queue_an_address_with_many_gives_way_to_one_with_few() -> None:
    turns: Turns[tuple[str, int]] = Turns()
    networks = [f"10.0.0.{number}" for number in range(WAITING_MOST // WAITING_MOST_OF_ONE)]
    for network in networks:
        for number in range(WAITING_MOST_OF_ONE):
            assert turns.join((network, number), network) is None
    assert len(turns) == WAITING_MOST
    assert turns.join(("new", 0), "new") == ("10.0.0.0", WAITING_MOST_OF_ONE - 1), "its last one"
    assert turns.join(("10.0.0.0", 9), "10.0.0.0") == ("10.0.0.0", 9), "who has as many as others waits for none"


@pytest.mark.parametrize("seed", range(20))
def test_the_queue_is_bounded_and_guesses_of_an_address_keep_their_distance(seed: int) -> None:
    rng, turns, now_s = random.Random(seed), Turns[tuple[str, int]](), 0.0
    wrong_at_s: dict[str, float] = {}
    for number in range(3_000):
        now_s += rng.random() * 0.2
        network = f"10.0.0.{rng.randrange(rng.choice((2, 40)))}"
        turns.join((network, number), network)
        assert len(turns) <= WAITING_MOST
        check = turns.take(now_s)
        if check is not None:
            assert now_s - wrong_at_s.get(check[0], -9.0) >= REST_S
            is_right = rng.random() < 0.3
            if not is_right:
                wrong_at_s[check[0]] = now_s
            turns.checked(check[0], now_s, is_right=is_right)
        assert len(turns._rests_until_s) <= 40
