"""Random walks through the life of a group: whatever happens, no two workers are at one share, and all heals."""

from __future__ import annotations

import random

import pytest

from mm2py.group.state_snapshot import read_snapshot, snapshot_text
from mm2py.records.control_record import Snapshot
from tests.fakes.group_walk import Walk


@pytest.mark.walk(range(5))
def test_whatever_happens_no_two_workers_are_at_one_task_and_all_heals(seed: int) -> None:
    print(f"seed {seed}")
    walk = Walk(seed, workers=1 + seed % 5, topics={"a": 3, "b": 1})
    for _ in range(600):
        walk.step()
    walk.heal()
    for _ in range(800):
        walk.step()
    walk.check_all_is_owned()
    print(walk.counts)


@pytest.mark.walk(range(2))
def test_a_reader_that_begins_at_any_place_from_a_state_agrees_with_all_others(seed: int) -> None:
    print(f"seed {seed}")
    walk = Walk(seed, workers=3, topics={"a": 3})
    for _ in range(400):
        walk.step()
    rng = random.Random(seed)
    for cut in rng.sample(range(len(walk.entries)), 40):
        view = read_snapshot(walk.states[cut])
        assert snapshot_text(view) == walk.states[cut]
        for entry in walk.entries[cut : cut + 200]:
            view.take(entry)
            if rng.random() < 0.1:
                assert snapshot_text(view) == walk.states[view.next_offset]
    assert any(isinstance(entry.record, Snapshot) for entry in walk.entries)
