"""The flight recorder beside a target that does not take its records: it says so, goes on, and can be ended."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from mm2py.errors import FirstErrorGroup
from mm2py.flight.pending import FlightPending
from mm2py.kafka.errors import RequestTimedOut
from mm2py.kafka.port import BrokerId
from mm2py.records.flight_record import AllWritten, CausesChanged, RecordedAnew, decode_flight
from mm2py.records.standstill import Cause
from mm2py_connectors.source.flight_recorder import FlightRecorder
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.flow_context import make_context
from tests.fakes.virtual_time import VirtualClock

NAME = "mm2-flight.A.internal"
STALLED = Cause("stalled", "records wait", "", 1, "0")


class Away:
    """A cluster that can be away: then no request is answered."""

    def __init__(self, cluster: ClusterModel) -> None:
        self.cluster = cluster
        self.is_away = True

    async def send(self, broker: BrokerId, request: Any, *, channel: str = "control") -> Any:
        if self.is_away:
            async with FirstErrorGroup() as tasks:
                tasks.create_task(self._fail(request))
        return await self.cluster.send(broker, request, channel=channel)

    async def _fail(self, request: Any) -> None:
        try:
            await asyncio.sleep(3)
        finally:  # also just when it is cancelled, as at the gate of a worker that was evicted
            raise RequestTimedOut("B", type(request).__name__, 3.0)


async def test_it_says_that_it_cannot_write_and_writes_when_the_target_is_back() -> None:
    clock = VirtualClock()
    target = Away(ClusterModel("B", clock, random.Random(1)))
    recorder = FlightRecorder(make_context(target=target, clock=clock, flight=FlightPending("m")))
    running = asyncio.create_task(recorder.run())
    recorder.show({"orders": [STALLED]})
    assert not recorder.is_failing
    await asyncio.sleep(10)
    assert recorder.is_failing
    target.is_away = False
    await asyncio.sleep(90)
    assert not recorder.is_failing
    found = [decode_flight(record.value) for record in target.cluster.records(NAME, 0)]
    assert {type(one) for one in found} == {RecordedAnew, CausesChanged, AllWritten}
    running.cancel()
    await asyncio.wait({running}, timeout=5)
    assert running.cancelled()


async def test_it_ends_when_it_is_to_end_while_a_request_is_under_way_and_fails() -> None:
    clock = VirtualClock()
    target = Away(ClusterModel("B", clock, random.Random(1)))
    recorder = FlightRecorder(make_context(target=target, clock=clock, flight=FlightPending("m")))
    running = asyncio.create_task(recorder.run())
    recorder.show({})
    await asyncio.sleep(2)  # its first request is under way
    running.cancel()
    await asyncio.wait({running}, timeout=5)
    assert running.cancelled()
