"""A fence is verified only if nothing has moved for ten seconds, all leaders have answered, and nothing is open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from mm2py.dr.fence.stillness import STILL_S, FenceSample, Stillness, look_again
from mm2py.kafka.producer.transactions import ActiveProducer

KEY = ("orders", 0)


def producer(
    number: int = 1, *, sequence: int = 7, at_ms: int = 100, epoch: int = 0, start: int = -1
) -> ActiveProducer:
    return ActiveProducer(number, epoch, sequence, at_ms, start)


def sample(
    at_s: float,
    end: int | None = 10,
    *producers: ActiveProducer,
    stable: int | None = None,
    unread: Sequence[str] = (),
) -> FenceSample:
    ends = {} if end is None else {KEY: end}
    readable = {} if end is None else {KEY: end if stable is None else stable}
    return FenceSample(at_s, ends, readable, {KEY: producers}, unread)


def judged(*samples: FenceSample) -> Stillness:
    known: Stillness | None = None
    for one in samples:
        known = look_again(known, one)
    assert known is not None
    return known


def test_ten_seconds_without_a_movement_are_a_proof() -> None:
    found = judged(sample(0.0, 10, producer()), sample(5.0, 10, producer()), sample(STILL_S, 10, producer()))
    assert found.is_proven and found.reasons() == []


@pytest.mark.parametrize(
    ("samples", "why"),
    [
        ([sample(0.0), sample(9.9)], "Nothing has moved for 9.9 s only"),
        ([sample(0.0), sample(5.0, 11), sample(14.9, 11)], "orders-0 went from offset 10 to 11"),
        ([sample(0.0, 10, producer()), sample(9.0, 10, producer(sequence=8)), sample(10.0, 10, producer(sequence=8))],
         "heard of producer id 1"),
        ([sample(0.0, 10, producer()), sample(9.0, 10, producer(at_ms=101)), sample(10.0, 10, producer(at_ms=101))],
         "heard of producer id 1"),
        ([sample(0.0), sample(9.0, 10, producer()), sample(10.0, 10, producer())], "heard of producer id 1"),
        ([sample(0.0), sample(10.0, 10, producer(start=4), stable=4)], "open transaction of producer id 1"),
        ([sample(0.0, stable=9), sample(10.0, stable=9)], "ends at 10, and may be read up to 9"),
        ([sample(0.0), sample(10.0, unread=["orders-0 has no leader"])], "orders-0 has no leader"),
        ([sample(0.0), sample(5.0, unread=["orders-0 has no leader"]), sample(10.0)], "0.0 s only"),
        ([sample(0.0, unread=["orders-0 has no leader"]), sample(10.0)], "0.0 s only"),
        ([sample(0.0, None), sample(10.0, None)], "No partition was looked at"),
        ([sample(0.0, None), sample(10.0)], "orders-0 is new"),
    ],
)  # fmt: skip
def test_anything_else_is_none_and_says_why(samples: list[FenceSample], why: str) -> None:
    found = judged(*samples)
    assert not found.is_proven
    assert any(why in one for one in found.reasons()), found.reasons()


def test_a_movement_names_who_wrote() -> None:
    plain = judged(sample(0.0), sample(1.0, 11))
    assert "by a producer that brokers do not name" in plain.moved[0]
    named = judged(sample(0.0, 10, producer()), sample(1.0, 11, producer(sequence=8)))
    assert "by producer id 1" in named.moved[0]


def test_after_the_last_movement_ten_seconds_count_again() -> None:
    found = judged(sample(0.0), sample(5.0, 11), sample(15.0, 11))
    assert found.is_proven


def test_a_look_that_takes_long_is_no_proof_of_that_time() -> None:
    """A broker answers after 12 s. The next look is right after that: the log was watched for half a second."""
    slow = replace(sample(0.0), answered_s=12.0)
    assert not judged(slow, sample(12.5)).is_proven
    assert judged(slow, sample(12.0 + STILL_S)).is_proven
    after_a_move = judged(sample(0.0), replace(sample(1.0, 11), answered_s=12.0), sample(12.5, 11))
    assert not after_a_move.is_proven and after_a_move.still_s == 0.5
    assert judged(slow).still_s == 0.0


def test_a_producer_that_brokers_forget_has_not_written() -> None:
    assert judged(sample(0.0, 10, producer()), sample(STILL_S, 10)).is_proven


def test_an_open_transaction_alone_is_no_proof() -> None:
    """Its records may have been replicated and read: only its end is open."""
    begun = producer(start=10)
    assert not judged(sample(0.0, 10, begun), sample(STILL_S, 10, begun)).is_proven
