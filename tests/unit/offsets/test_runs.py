"""Runs: what a copier notes of acknowledged batches says where the copy of each record is, in as few runs as can be."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mm2py.offsets.runs import NewRuns, Run


def test_batches_that_continue_each_other_are_one_run() -> None:
    runs = NewRuns()
    runs.add(10, 100, 5)
    runs.add(15, 105, 5)
    runs.add(20, 111, 1)
    runs.add(22, 112, 1)
    assert runs.take() == [Run(10, 100, 10), Run(20, 111, 1), Run(22, 112, 1)]
    assert runs.take() == []
    runs.add(23, 113, 1)
    assert runs.take() == [Run(23, 113, 1)], "what was taken is not repeated"


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),  # target offsets that others took before the batch
            st.lists(st.integers(0, 3), min_size=1, max_size=8),  # source offsets left out before each record
        ),
        max_size=10,
    )
)
def test_every_record_of_every_batch_is_found_again(batches: list[tuple[int, list[int]]]) -> None:
    runs, expected = NewRuns(), []
    source, target = 5, 50
    for taken, holes in batches:
        target += taken
        offsets = [source := source + hole + 1 for hole in holes]
        starts = [(0, offsets[0])] + [
            (index, offset) for index, (before, offset) in enumerate(pairwise(offsets), 1) if offset != before + 1
        ]
        runs.add_batch(starts, target, len(offsets))
        expected += [(offset, target + index) for index, offset in enumerate(offsets)]
        target += len(offsets)
    found = runs.take()
    assert [(run.source_offset + at, run.target_offset + at) for run in found for at in range(run.record_count)] == (
        expected
    )
    assert all(
        (one.source_offset + one.record_count, one.target_offset + one.record_count) != other[:2]
        for one, other in pairwise(found)
    ), "neighbours are joined"
