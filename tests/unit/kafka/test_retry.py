"""What an error code asks for, and how long the pauses between attempts are."""

from __future__ import annotations

import random

import pytest
from kio.schema.errors import ErrorCode

from mm2py.kafka.error_codes import name_of
from mm2py.kafka.errors import Backoff, Reaction, reaction_to

# By Kafka's numbers, so that a slip in a name would show.
REFRESH = [3, 5, 6, 8, 9, 15, 16, 41, 56, 72, 74, 75, 100, 103]
DENIED = [29, 30, 31, 53]


@pytest.mark.parametrize("code", REFRESH)
def test_a_moved_leader_or_coordinator_is_looked_up_again(code: int) -> None:
    assert reaction_to(code) is Reaction.REFRESH


@pytest.mark.parametrize("code", DENIED)
def test_a_missing_right_is_told_from_a_failure(code: int) -> None:
    assert reaction_to(code) is Reaction.DENIED


@pytest.mark.parametrize("code", [2, 7, 13, 14, 19, 20, 51, 89])
def test_what_kafka_calls_retriable_is_retried(code: int) -> None:
    assert reaction_to(code) is Reaction.RETRY


@pytest.mark.parametrize("code", [-1, 1, 10, 17, 18, 22, 35, 37, 38, 40, 42, 44, 45, 47, 54, 87, 90])
def test_what_no_repetition_mends_fails(code: int) -> None:
    assert reaction_to(code) is Reaction.FAIL


@pytest.mark.parametrize("code", [-2, 999, 32767, -32768])
def test_a_code_of_the_future_is_not_retried_and_keeps_its_number(code: int) -> None:
    assert reaction_to(code) is Reaction.FAIL
    assert name_of(code) == "an error code unknown to mm2py"


def test_codes_that_kafka_retries_are_never_taken_for_final() -> None:
    final = {code.name for code in ErrorCode if code.retriable and reaction_to(int(code)) is Reaction.FAIL}
    assert not final


@pytest.mark.parametrize(
    ("code", "name"),
    [(0, "NONE"), (3, "UNKNOWN_TOPIC_OR_PARTITION"), (29, "TOPIC_AUTHORIZATION_FAILED"), (100, "UNKNOWN_TOPIC_ID")],
)
def test_names_are_those_of_kafkas_documentation(code: int, name: str) -> None:
    assert name_of(code) == name


def test_pauses_double_up_to_the_most_and_are_spread_by_a_fifth() -> None:
    for seed in range(50):
        backoff = Backoff(random.Random(seed), first_s=0.1, most_s=5.0)
        for planned_s in [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]:
            assert 0.8 * planned_s <= backoff.next_s() <= 1.2 * planned_s
        assert backoff.attempts == 9


def test_a_success_makes_the_next_pause_short_again() -> None:
    backoff = Backoff(random.Random(1), first_s=0.1, most_s=5.0)
    for _ in range(10):
        backoff.next_s()
    backoff.reset()
    assert backoff.next_s() <= 0.12


def test_a_year_of_attempts_does_not_overflow() -> None:
    backoff = Backoff(random.Random(1), first_s=1.0, most_s=30.0, attempts=10**7)
    assert backoff.next_s() <= 36.0


def test_two_workers_that_fail_together_do_not_come_back_together() -> None:
    pauses = {Backoff(random.Random(seed)).next_s() for seed in range(20)}
    assert len(pauses) == 20
