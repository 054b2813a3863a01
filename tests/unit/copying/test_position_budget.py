"""How many position records a worker writes in a second, and who may write them."""

from __future__ import annotations

import random

import pytest

from mm2py.copying.positions import PositionBudget


def test_flows_that_want_much_share_what_the_others_leave() -> None:
    budget = PositionBudget(1_000)
    small, large, larger = budget.open(), budget.open(), budget.open()
    for account, wanted in ((small, 100), (large, 3_000), (larger, 9_000)):
        account.take(wanted, 0.0)  # whoever comes first finds nobody, and may take all
    assert [small.take(100, 1.0), large.take(3_000, 1.1), larger.take(9_000, 1.2)] == [100, 450, 450]


def test_a_flow_that_was_alone_gives_way_to_one_that_comes_later() -> None:
    budget = PositionBudget(1_000)
    first, second = budget.open(), budget.open()
    assert first.take(3_000, 0.0) == 1_000
    assert second.take(800, 0.5) == 0
    assert first.take(3_000, 1.0) == 500, "it asks first, and the other one's half is kept"
    assert second.take(800, 1.5) == 500


def test_a_flow_that_has_ended_keeps_nothing_from_the_others() -> None:
    budget = PositionBudget(1_000)
    ended, other = budget.open(), budget.open()
    assert ended.take(600, 0.0) == 600
    ended.take(3_000, 0.1)
    ended.close()
    assert other.take(3_000, 0.5) == 0, "what it has written in this second is written"
    assert other.take(3_000, 1.1) == 1_000


def test_what_is_not_given_is_worth_asking_for_when_the_second_is_over() -> None:
    account = PositionBudget(10).open()
    account.take(20, 5.0)
    assert account.again_in_s(5.25) == 0.75
    assert account.again_in_s(6.5) == 0.05


@pytest.mark.walk(range(4))
def test_no_second_holds_more_than_the_limit_and_no_flow_starves(seed: int) -> None:
    rng = random.Random(seed)
    budget = PositionBudget(100)
    accounts = [budget.open() for _ in range(rng.randint(1, 6))]
    given: list[tuple[float, int]] = []
    had = [0] * len(accounts)
    now_s = 0.0
    while now_s < 15:
        now_s += rng.uniform(0.0, 0.05)
        who = rng.randrange(len(accounts))
        records = accounts[who].take(500, now_s)
        given.append((now_s, records))
        had[who] += records if now_s > 2 else 0  # whoever comes first has all of the first second
    for at_s, _ in given:
        assert sum(records for when_s, records in given if at_s <= when_s < at_s + 1.0) <= 100
    assert min(had) > 0.7 * max(had), had
    assert sum(had) > 0.8 * 100 * 13, "what is there is used"
