"""What partitions are told to carry, and that workers are not given partitions because moved ones look idle."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from mm2py.copying.planning.steps import Tally
from mm2py.copying.states import COPYING, Reconciling, State, Storing
from mm2py.flow import parse_flow
from mm2py.group.assignor import Piece, assign, steady_load
from mm2py.group.member import LOADS_EVERY_S, _differs
from mm2py.kafka.port import TopicPartition
from mm2py_connectors.source.assigned_partitions import MEASURE_EVERY_S, SETTLED_S, LoadMeter
from tests.fakes.virtual_time import VirtualClock

FLOW = frozenset({parse_flow("A->B")})
MB = 1_000_000
BALANCE_EVERY_S = 60
ONE: TopicPartition = ("t", 0)


@dataclass
class Copied:
    """What of a copier is looked at."""

    state: State = COPYING
    tally: Tally = field(default_factory=Tally)


@dataclass(eq=False)
class Partition:
    """Stands for a partition that is copied here."""

    copier: Copied = field(default_factory=Copied)

    def copy(self, count: float) -> None:
        self.copier.tally.bytes += round(count)


class Told:
    """The group, as far as it is told of loads: of those that changed, as a member does."""

    def __init__(self, known: dict[TopicPartition, float]) -> None:
        self.known = known
        self.said: dict[TopicPartition, float] = {}

    def measure(self, bytes_per_s: Mapping[TopicPartition, float]) -> None:
        self.said.update(bytes_per_s)

    def load_of(self, key: TopicPartition) -> float | None:
        return self.known.get(key)

    def beat(self, owned: Collection[TopicPartition]) -> None:
        said, self.said = self.said, {}
        self.known |= {key: of for key, of in said.items() if key in owned and _differs(self.known.get(key), of)}


def loads_of(parts: dict[TopicPartition, Partition], told: Told) -> LoadMeter:
    return LoadMeter(cast("Any", parts), cast("Any", told), VirtualClock())


def test_a_partition_that_nobody_knows_is_measured_over_its_own_time() -> None:
    part, told = Partition(), Told({})
    loads = loads_of({ONE: part}, told)
    part.copy(40 * MB)  # in the part of an interval that had gone by when it began
    loads.measure(MEASURE_EVERY_S)
    assert told.said == {}
    for _ in range(20):
        part.copy(5 * MB)
        loads.measure(MEASURE_EVERY_S)
        assert told.said[ONE] == pytest.approx(MB)


def test_a_partition_that_is_idle_fades() -> None:
    part, told = Partition(), Told({ONE: MB})
    loads = loads_of({ONE: part}, told)
    seen = []
    for _ in range(30):
        loads.measure(MEASURE_EVERY_S)
        seen.append(told.said[ONE])
    assert seen[0] == MB
    assert seen == sorted(seen, reverse=True)
    assert seen[6] == pytest.approx(MB / 2, rel=0.05)
    assert seen[-1] < MB / 20


def test_another_attempt_of_a_partition_neither_counts_twice_nor_makes_it_idle() -> None:
    """It was begun anew behind a gap: its tally begins with nothing."""
    told = Told({})
    parts = {ONE: Partition()}
    loads = loads_of(parts, told)
    loads.measure(MEASURE_EVERY_S)
    for life in range(5):
        for _ in range(3):
            parts[ONE].copy(5 * MB)
            loads.measure(MEASURE_EVERY_S)
            assert told.said[ONE] == pytest.approx(MB), life
        parts[ONE] = Partition()
        parts[ONE].copy(3 * MB)
        loads.measure(MEASURE_EVERY_S)


def test_while_a_partition_is_reconciled_it_keeps_what_it_carried() -> None:
    part, told = Partition(), Told({ONE: MB})
    loads = loads_of({ONE: part}, told)
    for state in [Reconciling()] * 20 + [Storing()] * 2:
        part.copier.state = state
        loads.measure(MEASURE_EVERY_S)
        assert told.said[ONE] == MB


def test_what_came_and_went_begins_with_what_others_told_meanwhile() -> None:
    told, parts = Told({}), {ONE: Partition()}
    loads = loads_of(parts, told)
    for _ in range(5):
        parts[ONE].copy(5 * MB)
        loads.measure(MEASURE_EVERY_S)
    del parts[ONE]
    loads.measure(MEASURE_EVERY_S)
    parts[ONE], told.known[ONE] = Partition(), 7 * MB
    loads.measure(MEASURE_EVERY_S)
    assert told.said[ONE] == 7 * MB


@pytest.mark.walk(range(8))
def test_a_partition_of_steady_load_is_never_told_far_below_it_however_it_moves(seed: int) -> None:
    """Each move costs a pause of up to five seconds; what has come meanwhile is copied behind it."""
    rng = random.Random(seed)
    known: dict[TopicPartition, float] = {}
    workers = [
        (parts := dict[TopicPartition, Partition](), told := Told(known), loads_of(parts, told)) for _ in range(3)
    ]
    rate = rng.choice([2_000, 50_000, MB, 100 * MB])
    at, waiting, pause_s = rng.randrange(3), 0.0, 0.0
    workers[at][0][ONE] = Partition()
    for second in range(600):
        waiting += rate
        pause_s -= 1
        for number, (parts, told, loads) in enumerate(workers):
            if ONE in parts and pause_s <= 0:
                parts[ONE].copy(waiting)
                waiting = 0.0
            if second % MEASURE_EVERY_S == number:  # each at times of its own
                loads.measure(MEASURE_EVERY_S)
            if second % LOADS_EVERY_S == 2 * number:
                told.beat(parts)
            if ONE in told.said:
                assert told.said[ONE] > 0.7 * rate, second
        if ONE in known:
            assert known[ONE] > 0.7 * rate
            if rng.random() < 0.02:
                workers[at][0].clear()
                at, pause_s = rng.choice([each for each in range(3) if each != at]), rng.uniform(0, 5)
                workers[at][0][ONE] = Partition()
    assert ONE in known


class Planned:
    """Workers that measure equal partitions of steady load, and a leader that plans with what they tell."""

    def __init__(self, partitions: int) -> None:
        self.known: dict[TopicPartition, float] = {}
        self.owners: dict[TopicPartition, str] = {("t", number): "w1" for number in range(partitions)}
        self.loads: dict[TopicPartition, float] = {}
        self.parts: dict[str, dict[TopicPartition, Partition]] = {}
        self.measured: dict[str, tuple[Told, LoadMeter]] = {}
        self.moves = 0
        self.now_s = 0
        self.join("w1")
        self.parts["w1"].update({key: Partition() for key in self.owners})

    def join(self, name: str) -> None:
        told = Told(self.known)
        self.parts[name] = {}
        self.measured[name] = told, loads_of(self.parts[name], told)

    def begin_anew(self, name: str) -> None:
        """A new life of its source connector."""
        self.parts[name].update({key: Partition() for key in self.parts[name]})
        told, _ = self.measured[name]
        self.measured[name] = told, loads_of(self.parts[name], told)

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now_s += 1
            for part in self._all():
                part.copy(MB)
            for name, (told, loads) in self.measured.items():
                if self.now_s % MEASURE_EVERY_S == 0:
                    loads.measure(MEASURE_EVERY_S)
                if self.now_s % LOADS_EVERY_S == 0:
                    told.beat(self.parts[name])
            if self.now_s % BALANCE_EVERY_S == 0:
                self.plan()

    def plan(self) -> int:
        """Let the leader plan, and partitions move; returns how many did."""
        measured = {key: self.known.get(key, 0.0) for key in self.owners}
        self.loads = {key: steady_load(self.loads.get(key, of), of) for key, of in measured.items()}
        workers = dict.fromkeys(self.parts, FLOW)
        planned = assign([Piece(key, self.loads[key], FLOW) for key in self.owners], workers, self.owners, {})
        moved = [key for key, owner in planned.items() if owner != self.owners[key]]
        for key in moved:
            del self.parts[self.owners[key]][key]
            self.parts[planned[key]][key] = Partition()
        self.owners = planned
        self.moves += len(moved)
        return len(moved)

    def shares(self) -> list[int]:
        return sorted(len(parts) for parts in self.parts.values())

    def _all(self) -> Iterable[Partition]:
        return [part for parts in self.parts.values() for part in parts.values()]


def test_after_a_worker_joined_nothing_more_moves_while_the_load_is_steady() -> None:
    group = Planned(100)
    group.run(300)
    group.join("w2")
    assert group.plan() in (49, 50)
    group.moves = 0
    group.run(1200)
    assert group.moves == 0


def test_a_source_connector_that_restarts_moves_nothing() -> None:
    group = Planned(100)
    group.run(300)
    group.join("w2")
    group.plan()
    group.run(300)
    group.moves = 0
    for _ in range(10):
        group.begin_anew("w1")
        group.run(47)
    assert group.moves == 0


def test_what_was_measured_for_long_and_what_was_told_weigh_alike() -> None:
    long_s = 0.0
    for _ in range(1000):
        long_s = long_s * 2 ** (-MEASURE_EVERY_S / 30) + MEASURE_EVERY_S
    assert long_s == pytest.approx(SETTLED_S, rel=0.1)
