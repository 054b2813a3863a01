"""Watches fenced topics until the fence is verified, or time is over.

What is found out counts for the process that saw it: nothing of it is stored.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from mm2py.clock import Clock
from mm2py.dr.fence.asking import FenceInquiry
from mm2py.dr.fence.open_transactions import end_transactions, plan_ends
from mm2py.dr.fence.stillness import STILL_S, BegunTransaction, FenceSample, Stillness, look_again
from mm2py.kafka.errors import KafkaError
from mm2py.kafka.port import Brokers

SAMPLE_EVERY_S: Final = 0.5
TIMEOUT_S: Final = 120
"""By default how long a fence may take to be verified: longer than Kafka's default of transaction.timeout.ms."""


async def verify_fence(
    inquiry: FenceInquiry,
    topics: Sequence[str],
    *,
    clock: Clock,
    timeout_s: float = TIMEOUT_S,
    tell: Callable[[Stillness], None] = lambda _: None,
) -> Stillness:
    """Return what was seen when the fence was verified, or when the time was over. Cancelling changes nothing.

    Args:
        tell: is called after each look.
    """
    end_s = clock.monotonic() + max(timeout_s, STILL_S)
    known: Stillness | None = None
    while True:
        known = look_again(known, await _sample(inquiry, topics, clock))
        tell(known)
        if known.is_proven or clock.monotonic() >= end_s:
            return known
        await asyncio.sleep(SAMPLE_EVERY_S)


async def end_what_is_open(
    inquiry: FenceInquiry, brokers: Brokers, topics: Sequence[str], *, clock: Clock, rng: random.Random
) -> tuple[list[str], list[str]]:
    """Abort the transactions that are open on the topics. Return which, and what could not be aborted, in words.

    A transaction that ends by itself while its coordinator is asked, is left alone: it is open in the first look only.
    """
    first = await _open(inquiry, topics, clock)
    known = await inquiry.transactions() if first else []
    still = set(await _open(inquiry, topics, clock)) if first else set()
    ends = plan_ends([one for one in first if one in still], known)
    return [str(one) for one in ends], await end_transactions(brokers, ends, rng=rng)


async def _open(inquiry: FenceInquiry, topics: Sequence[str], clock: Clock) -> list[BegunTransaction]:
    return look_again(None, await inquiry.sample(topics, clock.monotonic())).open


async def _sample(inquiry: FenceInquiry, topics: Sequence[str], clock: Clock) -> FenceSample:
    begun_s = clock.monotonic()
    try:
        sample = await inquiry.sample(topics, begun_s)
    except KafkaError as error:
        if not error.retriable:
            raise
        sample = FenceSample(begun_s, {}, {}, {}, (str(error),))
    return replace(sample, answered_s=clock.monotonic())
