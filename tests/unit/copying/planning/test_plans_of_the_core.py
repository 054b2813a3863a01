"""The compiled core plans what the pure modules plan: same steps, same bytes, same faults.

``tests/fuzz/reads.py`` makes reads from seeds; ``make fuzz`` goes on with others. The logs of Hypothesis are those that
the tests of repacking draw.
"""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.compiled_core import CHOICE, WalkRules
from mm2py.copying.planning.merge import merge
from mm2py.copying.planning.planner import plan
from mm2py.copying.planning.steps import MergeRule, Outgoing, TargetRules
from mm2py.records.batch import HEADER_BYTES, Codec, NewRecord, build_batch, place, read_header
from tests.fuzz.reads import Read, compare, damaged, difference
from tests.unit.copying.planning.test_repack import MERGING, ROWS, RULES, Log, Row, batch_of, logs

if CHOICE.core is None:
    pytest.skip(str(CHOICE), allow_module_level=True)
CORE = CHOICE.core
ROOMY = TargetRules(max_message_bytes=1 << 20)
SEEDS = 300
DAMAGED = 30
"""Of each seed: about ten seconds in all."""


@pytest.mark.parametrize("part", range(5))
def test_reads_of_seeds_whole_and_damaged_are_planned_the_same(part: int) -> None:
    seeds = range(part * SEEDS // 5, (part + 1) * SEEDS // 5)
    assert next(compare(seeds, each=DAMAGED, core=CORE), "") == ""


@given(logs(), RULES, MERGING, st.booleans(), st.data())
def test_any_log_is_planned_the_same(
    log: Log, rules: TargetRules, merging: MergeRule, read_committed: bool, data: st.DataObject
) -> None:
    wanted = data.draw(st.integers(max(0, log.begin - 3), log.end), label="wanted offset")
    fetched = log.fetch(wanted, data.draw(st.none() | st.integers(0, 3_000), label="cut"))
    assert difference(Read((fetched,), wanted, read_committed, (), rules, merging), CORE) == ""


@given(logs(), RULES, MERGING, st.booleans(), st.integers(0, 10**6))
def test_any_damaged_log_is_planned_the_same(
    log: Log, rules: TargetRules, merging: MergeRule, read_committed: bool, seed: int
) -> None:
    read = Read(tuple(piece.data for piece in log.pieces), log.begin, read_committed, (), rules, merging)
    assert difference(damaged(read, str(seed)), CORE) == ""


@given(st.lists(ROWS, min_size=2, max_size=6))
def test_the_core_merges_every_plain_batch_that_a_writer_writes(parts: list[list[Row]]) -> None:
    """So the slow way is taken for odd ones only: a core that declined everything would pass every other test."""
    batches = [batch_of(rows, 40) for rows in parts]
    merged = CORE.merge_batches([b"".join(batches)])
    assert merged is not None
    assert merged == CORE.merge_batches(batches) == merge(batches, Codec.NONE, as_codec=0, max_bytes=1 << 20).data


def small(first: int, *, value: bytes = b"v") -> bytearray:
    batch = build_batch([NewRecord(b"k", value, 1_700_000_000_000 + first)])
    place(batch, first, first + 1)
    return batch


def test_what_passes_stays_a_view_of_what_was_read_and_what_is_merged_can_be_stamped() -> None:
    records = memoryview(bytearray(small(0) + small(1) + small(2, value=bytes(9_000)) + small(7)))
    merging = MergeRule(1_000, 0, "tests")
    merged, passed, alone = plan(
        records, wanted_offset=0, read_committed=True, aborted=(), rules=ROOMY, merging=merging
    ).steps
    assert isinstance(merged, Outgoing)
    assert isinstance(merged.data, bytearray)
    for step in (passed, alone):
        assert isinstance(step, Outgoing)
        assert isinstance(step.data, memoryview)
        assert step.data.obj is records.obj
    merged.data.append(0)  # nothing holds the buffer any more
    records.release()


@pytest.mark.parametrize("count", [2, 1_000, 2**31 - 1])
def test_a_record_count_that_cannot_be_true_costs_no_memory(count: int) -> None:
    batch = small(0)
    struct.pack_into(">i", batch, 57, count)
    place(batch, 0, count)
    tracemalloc.start()
    assert CORE.merge_batches([batch, small(1)]) is None
    assert tracemalloc.get_traced_memory()[1] < 10_000
    tracemalloc.stop()


RULES_OF_A_WALK = WalkRules(0, 1 << 20, 0b11111, -1, [1 << 20] * 8, 2**31, 1 << 20)


@pytest.mark.parametrize("position", [0, 5, 10**6, 2**62])
def test_a_walk_from_anywhere_ends_where_it_began_if_no_batch_is_there(position: int) -> None:
    assert CORE.walk(b"12345", position, 0, RULES_OF_A_WALK) == (position, 0, False, False, b"", None)


def test_a_walk_stops_in_front_of_a_batch_that_is_damaged_cut_or_of_an_earlier_offset() -> None:
    good, size = small(5), len(small(5))
    wrong, magic = small(6), small(6)
    wrong[HEADER_BYTES] ^= 1
    magic[16] = 1
    for bad in (wrong, magic, good, small(6)[:-1], small(6)[:60]):
        position, log_offset, _, is_closed, rows, group = CORE.walk(good + bad, 0, 0, RULES_OF_A_WALK)
        assert (position, log_offset, is_closed, rows) == (size, 6, False, b"")
        assert group is not None
        assert group[:4] == (0, 1, 5, 6)


@pytest.mark.parametrize("records", [1, 16, 5_000])
def test_a_merged_batch_is_as_long_as_its_header_says(records: int) -> None:
    batch = build_batch([NewRecord(None, b"", 5)] * records)
    merged = CORE.merge_batches([batch, batch])
    assert merged is not None
    assert read_header(merged).size_bytes == len(merged)
    assert read_header(merged).record_count == 2 * records
