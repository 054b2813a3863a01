"""Whole workers of two versions in one group: a newer one writes records that the older ones do not know."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from mm2py.group import control_log
from mm2py.records import control_codec
from mm2py.records.control_record import ControlRecord, Evicted, Fenced, Left, MemberId, Skipped
from tests.fakes.broker.broker_model import Record
from tests.scenarios.shared_world import Process, SharedWorld
from tests.simulation.incarnation import SimulationLoop, current_incarnation

pytestmark = pytest.mark.virtual_time(limit_s=20_000, make_loop=SimulationLoop)

SEEDS = range(1)
LOG = "mm2-cluster.mm2py.internal"
YOUNGER = "99.0"


@pytest.fixture
def younger(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[int]]:
    """The numbers of the workers of a newer version: they know the kind ``Vote``, and ignore it."""
    numbers: set[int] = set()

    def decode(data: bytes | None, *, where: str) -> ControlRecord:
        try:
            return control_codec.decode(data, where=where)
        except control_codec.NewerFormat as error:
            incarnation = current_incarnation()
            if incarnation is not None and incarnation.number in numbers and error.kind == "Vote":
                return Skipped(MemberId(json.loads(data or b"")["member"]), error.kind, error.needs_version)
            raise

    monkeypatch.setattr(control_log, "decode", decode)
    yield numbers


def says(world: SharedWorld, by: Process, *, kind: str, skippable: bool, layout: int = 1) -> None:
    """Append a record of the newer version to the control log, by one of its workers."""
    assert by.member is not None
    fields = {"format": layout, "kind": kind, "skippable": skippable, "version": YOUNGER, "member": by.member.id}
    world.target.append(LOG, 0, [Record(json.dumps({**fields, "mood": "bright"}).encode())])


def written(world: SharedWorld, *kinds: type[ControlRecord]) -> list[ControlRecord]:
    """Return the records of some kinds in the control log, as this version reads them."""
    found = []
    for record in world.target.records(LOG, 0):
        try:
            found.append(control_codec.decode(record.value, where=LOG))
        except control_codec.NewerFormat:
            continue
    return [record for record in found if isinstance(record, kinds)]


@pytest.mark.walk(SEEDS)
async def test_an_optional_record_of_a_newer_version_stops_no_worker_and_fences_none(
    seed: int, younger: set[int]
) -> None:
    world = SharedWorld(seed)
    names = world.make_topics(5, 3)
    younger.add(3)
    processes = [world.start() for _ in range(3)]
    await world.until(world.is_fully_assigned)
    members, owners = [process.member for process in processes], world.owners()
    tasks = [asyncio.create_task(world.traffic(names)), asyncio.create_task(world.watch())]
    await asyncio.sleep(2)
    world.pauses.clear()
    for _ in range(20):
        says(world, processes[2], kind="Mood", skippable=True)
        says(world, processes[2], kind="Beat", skippable=True, layout=2)
        await asyncio.sleep(0.25)
    assert max(world.pauses.values()) < 1.0
    for task in tasks:
        task.cancel()
    await world.finish()
    assert [process.member for process in processes] == members
    assert world.owners() == owners
    assert written(world, Fenced, Evicted) == []
    assert world.promises_once


@pytest.mark.walk(SEEDS)
async def test_a_mandatory_record_of_a_newer_version_makes_older_workers_drain_and_the_newer_one_continues(
    seed: int, younger: set[int]
) -> None:
    world = SharedWorld(seed)
    names = world.make_topics(5, 3)
    younger.add(3)
    older, new = [world.start(), world.start()], world.start()
    await world.until(world.is_fully_assigned)
    tasks = [asyncio.create_task(world.traffic(names)), asyncio.create_task(world.watch())]
    await asyncio.sleep(2)
    world.pauses.clear()
    kept = new.owns(world.flow)
    says(world, new, kind="Vote", skippable=False)
    await world.until(lambda: all(process.incarnation.over for process in older), within_s=10)
    await asyncio.sleep(3)
    assert world.owners() == {key: [new.name] for key in sorted(world.keys())}
    assert all(world.pauses[f"A.{name}", number] < 1.0 for name, number in kept), "it copied meanwhile"
    for task in tasks:
        task.cancel()
    await world.finish()
    assert world.promises_once
    for process in older:
        assert all(
            YOUNGER in line["why"] for said in ("member.too_old", "group.refused") for line in process.said(said)
        )
        assert process.said("group.refused")
        assert await process.stop() != 0
    left = {record.member for record in written(world, Left)}
    assert len(left) == len(older), "they leave by themselves, and are not evicted"
    assert not any(record.outcome_unknown for record in written(world, Left)), "all of theirs was answered"
    assert written(world, Fenced, Evicted) == []
