"""Where a group goes on: by the ledger, by offset syncs only where the ledger does not reach back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mm2py.offsets.answers import AnswerKind
from mm2py.offsets.ledger import Ledger
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.offsets.runs import Run
from mm2py.offsets.sync_store import SyncStore
from mm2py.offsets.translation import Basis, Translation, forward, reverse

KEY = ("orders", 0)
UNKNOWN = Translation(AnswerKind.BEFORE_LEDGER, None, False, Basis.NOTHING)


def syncs(*pairs: tuple[int, int]) -> SyncStore:
    store = SyncStore(keeps_history=True)
    for pair in pairs:
        store.add(KEY, *pair)
    store.loaded()
    return store


def ledger(start: tuple[int, int], *runs: Run) -> PartitionLedger:
    one = Ledger(*start, is_whole=False)
    one.catch_up(runs)
    partition = PartitionLedger()
    partition.start(1, one)
    return partition


KNOWN = ledger((100, 90), Run(100, 90, 50), Run(151, 140, 9))
SYNCS = syncs((10, 9), (40, 36))


def test_the_ledger_answers_exactly_and_offset_syncs_only_for_what_was_copied_before_it() -> None:
    assert forward(KNOWN, SYNCS, KEY, 130) == Translation(AnswerKind.COPIED, 120, True, Basis.LEDGER)
    assert forward(KNOWN, SYNCS, KEY, 50) == Translation(AnswerKind.BEFORE_LEDGER, 37, False, Basis.OFFSET_SYNCS)
    assert forward(KNOWN, SYNCS, KEY, 5) == UNKNOWN
    assert forward(KNOWN, None, KEY, 50) == UNKNOWN
    assert forward(PartitionLedger(), SYNCS, KEY, 130).offset == 37


def test_an_offset_that_the_ledger_does_not_reach_yet_is_not_left_to_offset_syncs() -> None:
    assert forward(KNOWN, SYNCS, KEY, 161) == Translation(AnswerKind.NOT_YET, None, False, Basis.NOTHING)


def test_the_way_back_is_the_same() -> None:
    assert reverse(KNOWN, SYNCS, KEY, 120) == Translation(AnswerKind.COPIED, 130, True, Basis.LEDGER)
    assert reverse(KNOWN, SYNCS, KEY, 36).offset == 40
    assert reverse(KNOWN, SYNCS, KEY, 50) == Translation(AnswerKind.BEFORE_LEDGER, 41, False, Basis.OFFSET_SYNCS)
    assert reverse(KNOWN, SYNCS, KEY, 5) == UNKNOWN


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=60), st.data())
def test_offset_syncs_skip_no_record_in_either_direction(gaps: list[tuple[int, int]], data: st.DataObject) -> None:
    """A group has read all records before its offset; each of those behind it is read on the other side."""
    pairs, at = [], (0, 0)
    for source, target in gaps:
        at = (at[0] + source, at[1] + target)
        pairs.append(at)
    store = syncs(*(pair for pair in pairs if data.draw(st.booleans())))
    for offset in range(at[0] + 3):
        to = forward(PartitionLedger(), store, KEY, offset).offset
        assert to is None or all(target >= to for source, target in pairs if source >= offset)
    for offset in range(at[1] + 3):
        to = reverse(PartitionLedger(), store, KEY, offset).offset
        assert to is None or all(source >= to for source, target in pairs if target >= offset)
