"""What a worker tells of its connectors and its process, whatever state these are in."""

from __future__ import annotations

import asyncio
import io
import os
import random
from typing import Any

from mm2py.connector import ConnectorName, Kind, parse_flow
from mm2py.errors import ConfigError, Mm2Error
from mm2py.logs import make_logger
from mm2py.metrics.snapshot import CheckpointSnapshot, ConnectorState, FlowSnapshot, PathSnapshot
from mm2py.metrics.windows import stats
from mm2py.worker.herder import Herder, Plan, RunningConnector
from mm2py.worker.snapshot import snapshot
from mm2py.worker.vitals import LOOKED_AT_EVERY_S, Vitals
from tests.fakes.virtual_time import VirtualClock, run_virtual

AB, AC = parse_flow("A->B"), parse_flow("A->C")
REFUSED = ConfigError("The flow must not run.", remedy="Change it.")


class Measured:
    """A connector that tells what it is made with."""

    def __init__(self, measures: object) -> None:
        self.measure = lambda: measures


def made(kind: Kind, measures: object = None, **parts: Any) -> RunningConnector:
    plan: Any = Plan(lambda _: None)  # type: ignore[arg-type, return-value]
    return RunningConnector(ConnectorName(AB, kind), plan, connector=Measured(measures), **parts)  # type: ignore[arg-type]


def herder_of(*connectors: RunningConnector, refused: dict[Any, Mm2Error] | None = None) -> Herder:
    herder = Herder(
        {},
        refused or {},
        groups={},
        is_refusal=lambda _: False,
        rng=random.Random(1),
        log=make_logger("info", "text", io.StringIO()),
        vitals=Vitals(name="host:7", clock=VirtualClock()),
    )
    herder.connectors = list(connectors)
    return herder


def test_each_connector_is_shown_in_connects_words_and_helpers_of_ours_are_not() -> None:
    async def scenario() -> None:
        herder = herder_of(
            made(Kind.SOURCE, is_up=True, attempts=1),
            made(Kind.CHECKPOINT, attempts=2),
            made(Kind.HEARTBEAT),
            made(Kind.PATH, is_up=True, attempts=1),
            refused={AC: REFUSED},
        )
        assert snapshot(herder).connectors == (
            ConnectorState("A->B", "MirrorSourceConnector", "running", 1),
            ConnectorState("A->B", "MirrorCheckpointConnector", "restarting", 2),
            ConnectorState("A->B", "MirrorHeartbeatConnector", "unassigned", 0),
            ConnectorState("A->C", "MirrorSourceConnector", "failed", 0),
        )

    run_virtual(scenario())


def test_a_connector_that_is_refused_is_shown_as_failed() -> None:
    async def scenario() -> None:
        (shown,) = snapshot(herder_of(made(Kind.SOURCE, refused=REFUSED, attempts=1))).connectors
        assert shown.state == "failed"

    run_virtual(scenario())


def test_numbers_of_an_attempt_that_has_ended_are_not_shown() -> None:
    """Other workers may have its partitions by now."""

    async def scenario() -> None:
        flow = FlowSnapshot("A", "B", "running", "exactly-once", 0.0)
        path, groups = PathSnapshot("A", "B", 1.0, 2.0), CheckpointSnapshot("A", "B", 0, ())
        up = herder_of(
            made(Kind.SOURCE, flow, is_up=True),
            made(Kind.CHECKPOINT, groups, is_up=True),
            made(Kind.PATH, path, is_up=True),
        )
        seen = snapshot(up)
        assert (seen.flows, seen.checkpoints, seen.paths) == ((flow,), (groups,), (path,))
        assert snapshot(herder_of(made(Kind.SOURCE, flow, attempts=1))).flows == ()

    run_virtual(scenario())


def test_a_process_tells_its_cpu_time_and_memory() -> None:
    async def scenario() -> None:
        process = snapshot(herder_of()).process
        assert process.pid == os.getpid()
        assert process.cpu_s > 0
        assert process.resident_bytes > 1_000_000

    run_virtual(scenario())


def test_a_loop_that_is_late_is_seen() -> None:
    class LateClock(VirtualClock):
        """Each third look comes 0.4 s late."""

        late_s = 0.0
        looks = 0

        def monotonic(self) -> float:
            self.looks += 1
            if self.looks % 6 == 0:
                self.late_s += 0.4
            return super().monotonic() + self.late_s

    async def scenario() -> None:
        vitals = Vitals(clock=LateClock())
        watching = asyncio.create_task(vitals.watch_loop())
        await asyncio.sleep(9.5 * LOOKED_AT_EVERY_S)
        watching.cancel()
        window = vitals.measure().loop_delay_s
        found = stats(window.last, window.samples, 10.0)
        assert window.weight == 9
        assert (round(found.low, 6), round(found.high, 6), round(found.avg, 6)) == (0.0, 0.4, round(0.4 / 3, 6))

    run_virtual(scenario())
