"""What a worker tells of its connectors and its process, whatever state these are in."""

from __future__ import annotations

import asyncio
import io
import os
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mm2py.errors import ConfigError, Mm2Error
from mm2py.flow import ConnectorName, Kind, parse_flow
from mm2py.logs import make_logger
from mm2py.metrics.windows import stats
from mm2py.metrics.worker_numbers import (
    CHECKPOINT_ROWS,
    DEPARTED,
    PARTITIONS,
    ROWS_A_PART,
    CheckpointSnapshot,
    ConnectorSnapshot,
    FlowSnapshot,
    PathSnapshot,
    Rows,
    WorkerSnapshot,
    assembled,
    in_parts,
)
from mm2py.worker.herder import ConnectorPlan, Herder, RunningConnector
from mm2py.worker.snapshot import snapshot_parts
from mm2py.worker.vitals import LOOKED_AT_EVERY_S, Vitals
from mm2py_connectors.source.task.measures import partition_parts, partition_rows
from tests.fakes.virtual_time import VirtualClock
from tests.fakes.worker_snapshot import NOW_MS, NOW_S, copied

AB, AC = parse_flow("A->B"), parse_flow("A->C")
REFUSED = ConfigError("The flow must not run.", remedy="Change it.")


class Measured:
    """A connector that tells what it is made with."""

    def __init__(self, measures: Sequence[object]) -> None:
        self.measure = lambda: measures


def snapshot(herder: Herder, checkpoints_max: int = 10_000) -> WorkerSnapshot:
    return assembled(snapshot_parts(herder, checkpoints_max=checkpoints_max))


def made(kind: Kind, *measures: object, **parts: Any) -> RunningConnector:
    plan: Any = ConnectorPlan(lambda _: None)  # type: ignore[arg-type, return-value]
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


async def test_each_connector_is_shown_in_connects_words_and_helpers_of_ours_are_not() -> None:
    herder = herder_of(
        made(Kind.SOURCE, is_up=True, attempts=1),
        made(Kind.CHECKPOINT, attempts=2, has_failed=True),
        made(Kind.HEARTBEAT),
        made(Kind.PATH, is_up=True, attempts=1),
        refused={AC: REFUSED},
    )
    assert snapshot(herder).connectors == (
        ConnectorSnapshot("A->B", "MirrorSourceConnector", "running", 1),
        ConnectorSnapshot("A->B", "MirrorCheckpointConnector", "restarting", 2),
        ConnectorSnapshot("A->B", "MirrorHeartbeatConnector", "unassigned", 0),
        ConnectorSnapshot("A->C", "MirrorSourceConnector", "failed", 0),
    )


async def test_a_connector_that_is_refused_is_shown_as_failed() -> None:
    (shown,) = snapshot(herder_of(made(Kind.SOURCE, refused=REFUSED, attempts=1))).connectors
    assert shown.state == "failed"


async def test_a_connector_that_another_worker_has_now_is_unassigned_here() -> None:
    """Once it was shown as restarting for ever."""
    (shown,) = snapshot(herder_of(made(Kind.HEARTBEAT, attempts=1))).connectors
    assert shown.state == "unassigned"


async def test_numbers_of_an_attempt_that_has_ended_are_not_shown() -> None:
    """Other workers may have its partitions by now."""
    flow = FlowSnapshot("A", "B", "running", "exactly-once", 0.0)
    path, groups = PathSnapshot("A", "B", 1.0, 2.0), CheckpointSnapshot("A", "B", 0, 0)
    up = herder_of(
        made(Kind.SOURCE, flow, is_up=True),
        made(Kind.CHECKPOINT, groups, is_up=True),
        made(Kind.PATH, path, is_up=True),
    )
    seen = snapshot(up)
    assert (seen.flows, seen.checkpoints, seen.paths) == ((flow,), (groups,), (path,))
    assert snapshot(herder_of(made(Kind.SOURCE, flow, attempts=1))).flows == ()


async def test_rows_come_in_parts_and_go_to_the_connector_that_measured_them() -> None:
    flow, groups = FlowSnapshot("A", "B", "running", "exactly-once", 0.0), CheckpointSnapshot("A", "B", 3, 3)
    source = made(
        Kind.SOURCE,
        flow,
        Rows(DEPARTED, (("t0",),)),
        Rows(PARTITIONS, (("t1",),)),
        Rows(PARTITIONS, (("t2",),)),
        is_up=True,
    )
    emits = made(Kind.CHECKPOINT, groups, Rows(CHECKPOINT_ROWS, (("g1",), ("g2",))), is_up=True)
    seen = snapshot(herder_of(source, emits))
    assert seen.flows[0].departed == (("t0",),)
    assert seen.flows[0].partitions == (("t1",), ("t2",))
    assert seen.checkpoints[0].rows == (("g1",), ("g2",))


def test_no_part_of_a_snapshot_has_more_rows_than_the_event_loop_can_do_without_a_pause() -> None:
    """Once all 10,000 partitions were read in one go, and copying stood still for 25 ms."""
    partitions = [copied("t", number) for number in range(10_000)]
    found = [
        *partition_parts(partitions, NOW_S, NOW_MS),
        *in_parts(DEPARTED, [(str(number),) for number in range(1_001)]),
    ]
    assert max(len(part.rows) for part in found) == ROWS_A_PART
    assert sum(len(part.rows) for part in found) == 11_001
    assert [part.rows for part in found[:2]] == [
        partition_rows(partitions[at : at + ROWS_A_PART], NOW_S, NOW_MS) for at in (0, ROWS_A_PART)
    ]


async def test_checkpoints_beyond_the_setting_are_counted_and_not_even_read() -> None:
    read: list[int] = []

    class Emits:
        def measure(self) -> Iterator[object]:
            yield CheckpointSnapshot("A", "B", 27, 27)
            for at in range(9):
                read.append(at)
                yield Rows(CHECKPOINT_ROWS, tuple((f"g{at}{row}",) for row in range(3)))

    running = made(Kind.CHECKPOINT, is_up=True)
    running.connector = Emits()  # type: ignore[assignment]
    other = made(Kind.CHECKPOINT, CheckpointSnapshot("C", "B", 2, 2), Rows(CHECKPOINT_ROWS, (("x",),)), is_up=True)
    seen = snapshot(herder_of(running, other), checkpoints_max=4).checkpoints
    assert [one.groups - len(one.rows) for one in seen] == [23, 2]
    assert seen[0].rows == (("g00",), ("g01",), ("g02",), ("g10",))
    assert read == [0, 1, 2], "no more than the first part that is not told"


async def test_a_process_tells_its_cpu_time_and_memory() -> None:
    process = snapshot(herder_of()).process
    assert process.pid == os.getpid()
    assert process.cpu_s > 0
    assert process.resident_bytes > 1_000_000


async def test_a_loop_that_is_late_is_seen() -> None:
    class LateClock(VirtualClock):
        """Each third look comes 0.4 s late."""

        late_s = 0.0
        looks = 0

        def monotonic(self) -> float:
            self.looks += 1
            if self.looks % 6 == 0:
                self.late_s += 0.4
            return super().monotonic() + self.late_s

    vitals = Vitals(clock=LateClock())
    watching = asyncio.create_task(vitals.watch_loop())
    await asyncio.sleep(9.5 * LOOKED_AT_EVERY_S)
    watching.cancel()
    window = vitals.measure().loop_delay_s
    found = stats(window.last, window.samples, 10.0)
    assert window.weight == 9
    assert (round(found.low, 6), round(found.high, 6), round(found.avg, 6)) == (0.0, 0.4, round(0.4 / 3, 6))


async def test_what_the_process_uses_of_its_cores_is_measured_while_it_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scheduler = tmp_path / "schedstat"
    monkeypatch.setattr("mm2py.worker.vitals._SCHEDULER", scheduler)
    vitals = Vitals(clock=VirtualClock())
    watching = asyncio.create_task(vitals.watch_loop())
    await asyncio.sleep(1.5 * LOOKED_AT_EVERY_S)
    before = vitals.metrics.cpu
    assert before.used_s > 0 and before.waited_s == 0, "the system does not show it"
    scheduler.write_text("7000000000 2500000000 12\n")
    begun_s = time.process_time()
    while time.process_time() - begun_s < 0.05:
        pass
    await asyncio.sleep(LOOKED_AT_EVERY_S)
    watching.cancel()
    assert vitals.metrics.cpu.used_s - before.used_s >= 0.05
    assert vitals.metrics.cpu.waited_s == 2.5
