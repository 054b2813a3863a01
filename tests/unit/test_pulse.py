"""A life that was out of touch for too long sends nothing more (H4)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from mm2py.clock import SystemClock
from mm2py.kafka.errors import BrokerUnreachable
from mm2py.kafka.port import BrokerId, Brokers, ProduceReply, ProduceRequest
from mm2py.kafka.pulse import LIMIT_LEAST_S, OutOfTouch, Pulse, Watched

DAY_MS = 86_400_000
REQUEST = ProduceRequest([], 1000)


class _Clock:
    def __init__(self) -> None:
        self.boot_s = 0.0

    def monotonic(self) -> float:
        return 0.0

    def boottime(self) -> float:
        return self.boot_s

    def wall_ms(self) -> int:
        return 0


class _Broker:
    """Takes its time, and answers unless it is away."""

    def __init__(self, clock: _Clock) -> None:
        self.clock = clock
        self.takes_s = 0.0
        self.away = False
        self.sent = 0

    async def send(self, _broker: BrokerId, _request: object, *, channel: str = "") -> object:
        del channel
        self.sent += 1
        self.clock.boot_s += self.takes_s
        if self.away:
            raise BrokerUnreachable("B", "it is away")
        return ProduceReply([])


def make() -> tuple[_Clock, Pulse, _Broker, Watched]:
    clock = _Clock()
    pulse, broker = Pulse(clock), _Broker(clock)
    pulse.obey(DAY_MS)
    return clock, pulse, broker, Watched(cast("Brokers", broker), pulse)


def run(work: Coroutine[Any, Any, object]) -> None:
    asyncio.run(work)  # type: ignore[arg-type]


def test_a_quarter_of_what_the_target_remembers_is_the_limit() -> None:
    clock, pulse, broker, watched = make()
    clock.boot_s = 6 * 3600.0
    run(watched.send(BrokerId(1), REQUEST))
    clock.boot_s += 6 * 3600.0 + 1
    for _ in range(2):
        with pytest.raises(OutOfTouch, match="asleep for 21601 s"):
            run(watched.send(BrokerId(1), REQUEST))
    assert broker.sent == 1
    with pytest.raises(OutOfTouch):
        run(pulse.run())


def test_a_sleep_before_the_limit_was_known_counts() -> None:
    clock, pulse, *_ = make()
    pulse.limit_s = float("inf")
    clock.boot_s = 7 * 3600.0
    pulse.check()
    pulse.obey(DAY_MS)
    with pytest.raises(OutOfTouch):
        pulse.check()


def test_an_answer_that_waited_through_a_sleep_does_not_hide_it() -> None:
    _, _, broker, watched = make()
    broker.takes_s = 7 * 3600.0
    with pytest.raises(OutOfTouch):
        run(watched.send(BrokerId(1), REQUEST))


def test_a_target_out_of_reach_ends_a_life_only_after_the_limit() -> None:
    clock, _, broker, watched = make()
    broker.away = True
    for _ in range(36):
        with pytest.raises(BrokerUnreachable):
            run(watched.send(BrokerId(1), REQUEST))
        clock.boot_s += 600
    broker.away = False
    run(watched.send(BrokerId(1), REQUEST))
    broker.away = True
    for _ in range(37):
        with pytest.raises(BrokerUnreachable):
            run(watched.send(BrokerId(1), REQUEST))
        clock.boot_s += 600
    broker.away = False
    with pytest.raises(OutOfTouch, match="did not answer for 22200 s"):
        run(watched.send(BrokerId(1), REQUEST))


def test_a_busy_machine_is_not_asleep() -> None:
    clock, pulse, *_ = make()
    pulse.obey(1000)
    clock.boot_s = LIMIT_LEAST_S
    pulse.check()


def test_the_machines_clock_goes_on() -> None:
    first = SystemClock().boottime()
    assert SystemClock().boottime() >= first > 0
