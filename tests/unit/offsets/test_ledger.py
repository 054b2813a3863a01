"""The ledger: for every offset of every history it answers what a plain table of all copied records says."""

from __future__ import annotations

import sys
import tracemalloc
import uuid
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.offsets.answers import BEFORE_LEDGER, NOT_YET, Answer, AnswerKind
from mm2py.offsets.ledger import BLOCK_ENTRIES, EntryOutOfOrder, Ledger
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.offsets.run_codec import OFFSET_MOST, CorruptRuns, encode_entries
from mm2py.offsets.runs import Entry, Hole, HoleCause, Run
from mm2py.records.java_struct import MalformedRecord
from mm2py.records.ledger_record import ChunkKey, LedgerChunk, encode, encoded_chunk

SOURCE, TARGET = 0, 1
KIND = {
    HoleCause.COUNTED: AnswerKind.COUNTED,
    HoleCause.TRIMMED: AnswerKind.TRIMMED,
    HoleCause.GAP: AnswerKind.GAP,
    HoleCause.QUARANTINED: AnswerKind.QUARANTINED,
}


@dataclass
class PlainTable:
    """Each copied record by itself, and the holes as they were noted."""

    start: tuple[int, int]
    is_whole: bool
    end: tuple[int, int] = (0, 0)
    copied_to: int = 0
    copies: list[tuple[int, int, bool]] = field(default_factory=list)
    """Source offset, target offset, whether they are exact: a record, or the begin of a hole that was copied."""
    kinds: tuple[dict[int, tuple[AnswerKind, int]], dict[int, tuple[AnswerKind, int]]] = field(
        default_factory=lambda: ({}, {})
    )
    """By side: of each offset what it is, and the answer of a record, or where its hole begins in the other log."""

    def __post_init__(self) -> None:
        self.end = self.start
        self.copied_to = self.start[SOURCE]

    def add(self, entry: Entry) -> None:
        source, target = entry[:2]
        if isinstance(entry, Run):
            for at in range(entry.record_count):
                self.copies.append((source + at, target + at, True))
                self.kinds[SOURCE][source + at] = (AnswerKind.COPIED, target + at)
                self.kinds[TARGET][target + at] = (AnswerKind.COPIED, source + at)
        else:
            if entry.cause.is_copied:
                self.copies.append((source, target, False))
            for at in range(entry.source_count):
                self.kinds[SOURCE][source + at] = (KIND[entry.cause], target)
            for at in range(entry.target_count):
                self.kinds[TARGET][target + at] = (KIND[entry.cause], source)
        self.end = (entry.source_end, entry.target_end)
        self.copied_to = max(self.copied_to, entry.source_end)

    def answer(self, offset: int, side: int) -> Answer:
        other = 1 - side
        if offset > (self.copied_to if side == SOURCE else self.end[TARGET]):
            return NOT_YET
        if offset < self.start[side]:
            return self.next_copy(AnswerKind.EXPIRED, -1, side) if self.is_whole else BEFORE_LEDGER
        if offset >= self.end[side]:
            return Answer(AnswerKind.END, self.end[other], True)
        plain = AnswerKind.DROPPED if side == SOURCE else AnswerKind.NOT_OURS
        kind, found = self.kinds[side].get(offset, (plain, -1))
        if kind is AnswerKind.COPIED:
            return Answer(kind, found, True)
        if kind in {AnswerKind.COUNTED, AnswerKind.TRIMMED}:
            return Answer(kind, found, False)
        return self.next_copy(kind, offset, side)

    def next_copy(self, kind: AnswerKind, offset: int, side: int) -> Answer:
        for copy in self.copies:
            if copy[side] >= offset:
                return Answer(kind, copy[1 - side], copy[2])
        return Answer(kind, self.end[1 - side], True)


@st.composite
def histories(draw: st.DrawFn, start: tuple[int, int] = (0, 0), entries_most: int = 12) -> list[Entry]:
    """Entries of one ledger that begins at ``start``."""
    source, target = start
    history: list[Entry] = []
    for _ in range(draw(st.integers(0, entries_most))):
        source += draw(st.sampled_from([0, 1, 1, 2, 5]))
        target += draw(st.sampled_from([0, 0, 0, 1, 3]))
        if draw(st.integers(0, 4)):
            history.append(Run(source, target, draw(st.integers(1, 5))))
        else:
            cause = draw(st.sampled_from(HoleCause))
            target_count = draw(st.integers(1, 4)) if cause.is_copied else 0
            history.append(Hole(source, target, draw(st.integers(1, 4)), target_count, cause))
        source, target = history[-1].source_end, history[-1].target_end
    return history


def make(
    history: list[Entry], start: tuple[int, int], *, is_whole: bool, advance: int, bytes_of: int = 0
) -> tuple[Ledger, PlainTable]:
    """``bytes_of`` so many entries are taken in at once; 0: each entry by itself."""
    ledger, table = Ledger(*start, is_whole=is_whole), PlainTable(start, is_whole)
    for entry in history:
        table.add(entry)
        if not bytes_of:
            ledger.append(entry)
    for first in range(0, len(history) if bytes_of else 0, bytes_of or 1):
        some, begin = history[first : first + bytes_of], (ledger.copied_to, ledger.target_end)
        ledger.append_encoded(*begin, bytes(encode_entries(some, *begin)), some[-1].source_end)
    table.copied_to += advance
    ledger.advance(table.copied_to)
    return ledger, table


def check(ledger: Ledger, table: PlainTable) -> None:
    for offset in range(table.copied_to + 3):
        assert ledger.forward(offset) == table.answer(offset, SOURCE), f"source offset {offset}"
    for offset in range(table.end[TARGET] + 3):
        assert ledger.reverse(offset) == table.answer(offset, TARGET), f"target offset {offset}"


STARTS = st.tuples(st.integers(0, 4), st.integers(0, 4))
SMALL_BLOCKS = st.sampled_from([1, 2, 3, BLOCK_ENTRIES])
BYTES_OF = st.sampled_from([0, 1, 4, 100])


@given(st.data(), STARTS, st.booleans(), st.integers(0, 2), SMALL_BLOCKS, BYTES_OF)
def test_every_offset_of_every_history_is_answered_as_by_a_table_of_all_records(
    data: st.DataObject, start: tuple[int, int], is_whole: bool, advance: int, block_entries: int, bytes_of: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mm2py.offsets.ledger.BLOCK_ENTRIES", block_entries)
        history = data.draw(histories(start))
        ledger, table = make(history, start, is_whole=is_whole, advance=advance, bytes_of=bytes_of)
    check(ledger, table)


@given(histories())
def test_a_ledger_gives_its_entries_back_with_neighbours_joined(history: list[Entry]) -> None:
    ledger, table = make(history, (0, 0), is_whole=True, advance=0)
    entries = list(ledger.entries())
    given_back = PlainTable((0, 0), True)
    for entry in entries:
        given_back.add(entry)
    records = [copy for copy in table.copies if copy[2]]
    assert [copy for copy in given_back.copies if copy[2]] == records
    assert given_back.kinds[SOURCE].keys() == table.kinds[SOURCE].keys()
    for one, other in pairwise(entries):
        are_runs = isinstance(one, Run) and isinstance(other, Run)
        assert not (are_runs and (one.source_end, one.target_end) == other[:2]), "neighbours are joined"


@given(st.data(), STARTS, st.booleans(), SMALL_BLOCKS, BYTES_OF)
def test_history_that_both_logs_have_deleted_is_forgotten_and_the_rest_is_answered_as_before(
    data: st.DataObject, start: tuple[int, int], is_whole: bool, block_entries: int, bytes_of: int
) -> None:
    history = data.draw(histories(start))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mm2py.offsets.ledger.BLOCK_ENTRIES", block_entries)
        ledger, table = make(history, start, is_whole=is_whole, advance=1, bytes_of=bytes_of)
        source = target = 0
        for _ in range(data.draw(st.integers(1, 3))):
            source = data.draw(st.integers(source, table.end[SOURCE] + 2))
            target = data.draw(st.integers(target, table.end[TARGET] + 2))
            ledger.trim(source, target)
        more = data.draw(histories((table.copied_to, table.end[TARGET])))
        for entry in more:
            ledger.append(entry)
            table.add(entry)
    assert not [run for run in ledger.entries() if _last(run, SOURCE) < source and _last(run, TARGET) < target]
    assert ledger.source_start <= max(start[SOURCE], source) and ledger.target_start <= max(start[TARGET], target)
    for side, ask in ((SOURCE, ledger.forward), (TARGET, ledger.reverse)):
        first = ledger.source_start if side == SOURCE else ledger.target_start
        for offset in range(max(table.copied_to, table.end[TARGET]) + 3):
            answer = ask(offset)
            if offset >= first:
                assert answer == table.answer(offset, side)
            elif not ledger.is_whole:
                assert answer == BEFORE_LEDGER
            else:
                assert answer[:2] == (AnswerKind.EXPIRED, ledger.first_copied(AnswerKind.EXPIRED, 1 - side).offset)


@given(st.data(), STARTS, SMALL_BLOCKS, BYTES_OF)
def test_what_a_ledger_that_is_too_large_forgets_is_left_to_the_offset_syncs_and_the_rest_is_answered_as_before(
    data: st.DataObject, start: tuple[int, int], block_entries: int, bytes_of: int
) -> None:
    history = data.draw(histories(start))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mm2py.offsets.ledger.BLOCK_ENTRIES", block_entries)
        ledger, table = make(history, start, is_whole=True, advance=1, bytes_of=bytes_of)
        forgotten = data.draw(st.integers(0, table.end[SOURCE] + 2))
        ledger.forget_before(forgotten)
        more = data.draw(histories((table.copied_to, table.end[TARGET])))
        for entry in more:
            ledger.append(entry)
            table.add(entry)
    assert ledger.source_start <= max(start[SOURCE], forgotten)
    for side, ask in ((SOURCE, ledger.forward), (TARGET, ledger.reverse)):
        first = ledger.source_start if side == SOURCE else ledger.target_start
        for offset in range(max(table.copied_to, table.end[TARGET]) + 3):
            if offset >= first or ledger.is_whole:
                assert ask(offset) == table.answer(offset, side)
            else:
                assert ask(offset) == BEFORE_LEDGER


def test_the_older_ledgers_of_a_partition_are_forgotten_before_the_newest_one() -> None:
    partition = PartitionLedger()
    partition.start(0, make([Run(0, 0, 100)], (0, 0), is_whole=True, advance=0)[0])
    partition.start(1, make([Run(50, 100, 100)], (50, 100), is_whole=False, advance=0)[0])
    partition.forget_before(1, 60)
    assert partition.forward(30) == BEFORE_LEDGER
    assert partition.forward(55) == Answer(AnswerKind.COPIED, 105, True), "a block is kept or forgotten as a whole"
    partition.forget_before(7, 60)
    assert partition.forward(55).offset == 105


def _last(entry: Entry, side: int) -> int:
    return (entry.target_end if side else entry.source_end) - 1


def test_a_record_that_only_one_log_has_deleted_is_still_answered() -> None:
    ledger = Ledger(0, 0, is_whole=True)
    ledger.append(Run(0, 0, 100))
    ledger.trim(60, 20)
    assert ledger.forward(30) == Answer(AnswerKind.COPIED, 30, True)
    assert ledger.forward(10) == Answer(AnswerKind.EXPIRED, 20, True)
    assert ledger.reverse(10) == Answer(AnswerKind.EXPIRED, 20, True)


def test_the_kinds_of_answers() -> None:
    ledger = Ledger(5, 0, is_whole=True)
    ledger.append(Run(5, 0, 2))
    ledger.append(Hole(8, 2, 2, 0, HoleCause.QUARANTINED))
    ledger.append(Hole(10, 2, 5, 0, HoleCause.GAP))
    ledger.append(Run(15, 4, 1))
    ledger.append(Hole(16, 5, 4, 3, HoleCause.COUNTED))
    ledger.advance(22)
    answers = {offset: ledger.forward(offset) for offset in (4, 5, 7, 9, 14, 15, 18, 20, 22, 23)}
    assert answers == {
        4: Answer(AnswerKind.EXPIRED, 0, True),
        5: Answer(AnswerKind.COPIED, 0, True),
        7: Answer(AnswerKind.DROPPED, 4, True),
        9: Answer(AnswerKind.QUARANTINED, 4, True),
        14: Answer(AnswerKind.GAP, 4, True),
        15: Answer(AnswerKind.COPIED, 4, True),
        18: Answer(AnswerKind.COUNTED, 5, False),
        20: Answer(AnswerKind.END, 8, True),
        22: Answer(AnswerKind.END, 8, True),
        23: NOT_YET,
    }
    assert ledger.reverse(2) == Answer(AnswerKind.NOT_OURS, 15, True)
    assert ledger.reverse(6) == Answer(AnswerKind.COUNTED, 16, False)
    assert ledger.reverse(8) == Answer(AnswerKind.END, 20, True)
    assert ledger.reverse(9) == NOT_YET


@pytest.mark.parametrize(
    "entry",
    [
        Run(9, 30, 1),  # in the last run
        Run(11, 30, 1),  # before ``copied_to``
        Run(20, 9, 1),  # the target's go back
        Run(20, 30, 0),
        Run(20, OFFSET_MOST, 1),
        Hole(20, 30, 0, 1, HoleCause.COUNTED),
        Hole(20, 30, 1, -1, HoleCause.COUNTED),
        Hole(20, 30, 1, 1, HoleCause.QUARANTINED),
        Hole(20, 30, 1, 0, HoleCause.TRIMMED),
    ],
)
def test_an_entry_that_contradicts_the_ledger_is_refused_and_changes_nothing(entry: Entry) -> None:
    ledger, table = make([Run(0, 0, 10)], (0, 0), is_whole=True, advance=2)
    with pytest.raises(EntryOutOfOrder):
        ledger.append(entry)
    check(ledger, table)


@given(histories(), st.data())
def test_entries_that_are_told_again_and_have_grown_change_nothing_twice(
    history: list[Entry], data: st.DataObject
) -> None:
    ledger, table = make(history, (0, 0), is_whole=True, advance=0)
    told = Ledger(0, 0, is_whole=True)
    entries = list(ledger.entries())
    for _ in range(3):
        upto = data.draw(st.integers(0, len(entries)))
        part = entries[:upto]
        if part and isinstance(part[-1], Run):
            part[-1] = part[-1]._replace(record_count=data.draw(st.integers(1, part[-1].record_count)))
        told.catch_up(part)
    told.catch_up(entries)
    assert list(told.entries()) == entries
    check(told, table)


@pytest.mark.parametrize("following", [[], [Run(10, 12, 5)]])
def test_records_that_the_target_lost_and_got_again_elsewhere_contradict_the_ledger(following: list[Entry]) -> None:
    """Their chunk ended exactly where the ledger did, so it was passed over: an answer was one too low, and exact."""
    ledger, table = make([Run(0, 0, 4), Run(4, 5, 6)], (0, 0), is_whole=True, advance=0)
    ledger.catch_up([Run(0, 0, 3)])
    with pytest.raises(EntryOutOfOrder, match="does not place source offset 9 at 10 as before"):
        ledger.catch_up([Run(0, 0, 4), Run(4, 5, 3), Run(7, 9, 3), *following])
    check(ledger, table)


def test_an_entry_that_begins_in_the_known_must_continue_it() -> None:
    ledger = Ledger(0, 0, is_whole=True)
    ledger.catch_up([Run(0, 0, 10)])
    with pytest.raises(EntryOutOfOrder):
        ledger.catch_up([Run(5, 6, 10)])
    ledger.trim(10, 10)
    ledger.catch_up([Run(0, 0, 15)])
    assert list(ledger.entries()) == [Run(10, 10, 5)]


def test_a_gap_says_nothing_of_records_that_are_known_to_be_copied() -> None:
    """Found by the simulation: such a gap was taken for a contradiction, and the exact ledger was thrown away."""
    ledger = Ledger(0, 0, is_whole=True)
    ledger.catch_up([Run(65, 64, 1)])
    ledger.catch_up([Hole(65, 66, 58, 0, HoleCause.GAP), Run(123, 70, 2)])
    assert list(ledger.entries()) == [Run(65, 64, 1), Hole(66, 66, 57, 0, HoleCause.GAP), Run(123, 70, 2)]


@pytest.mark.parametrize("before", [[], [Run(130, 13, 4)], [Hole(133, 13, 1, 0, HoleCause.GAP)]])
@pytest.mark.parametrize("first", [134, 135, 136])
def test_a_record_that_was_quarantined_and_then_copied_is_copied(before: list[Entry], first: int) -> None:
    """Its first owner died before the position was stored, and the next one found the limit raised.

    It stayed quarantined in the ledger, and a group that failed back was set behind it.
    """
    ledger = Ledger(130, 13, is_whole=True)
    target = before[-1].target_end if before else 13
    ledger.catch_up([*before, Hole(134, target, 3, 0, HoleCause.QUARANTINED)])
    ledger.advance(137)
    ledger.catch_up([Run(first, target + 1, 1)])
    assert ledger.forward(first) == Answer(AnswerKind.COPIED, target + 1, True)
    assert ledger.reverse(target + 1) == Answer(AnswerKind.COPIED, first, True)
    assert ledger.forward(133).kind in {AnswerKind.COPIED, AnswerKind.GAP, AnswerKind.DROPPED}
    assert ledger.copied_to == first + 1
    holes = [entry for entry in ledger.entries() if entry.source_offset >= 134 and isinstance(entry, Hole)]
    assert [hole.source_count for hole in holes] == ([first - 134] if first > 134 else [])


@pytest.mark.parametrize("run", [Run(132, 15, 2), Run(137, 20, 1)])
def test_a_run_before_or_behind_a_hole_leaves_it(run: Run) -> None:
    hole = Hole(134, 17, 3, 0, HoleCause.QUARANTINED)
    ledger = Ledger(130, 13, is_whole=True)
    ledger.catch_up([Run(130, 13, 4), hole])
    ledger.catch_up([run])
    assert hole in list(ledger.entries())


def test_a_transactional_topic_costs_less_than_three_bytes_a_run() -> None:
    ledger = _transactional(100_000)
    assert sys.getsizeof(ledger) < 3 * 100_000
    tracemalloc.start()
    small = _transactional(5_000)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 3 * 5_000, "what the size says is all that is held"
    assert small.forward(50) == ledger.forward(50)
    assert ledger.forward(500_005) == Answer(AnswerKind.COPIED, 450_004, True)
    assert ledger.reverse(450_004) == Answer(AnswerKind.COPIED, 500_005, True)


def _transactional(runs: int) -> Ledger:
    """Nine records, then the marker of their transaction, again and again."""
    ledger = Ledger(0, 0, is_whole=True)
    for at in range(runs):
        ledger.append(Run(at * 10 + 1, at * 9, 9))
    return ledger


def test_a_plain_topic_is_one_run() -> None:
    ledger = Ledger(7, 0, is_whole=True)
    for at in range(1000):
        ledger.append(Run(7 + at * 500, at * 500, 500))
    assert list(ledger.entries()) == [Run(7, 0, 500_000)]
    assert sys.getsizeof(ledger) < 1000


@given(st.data(), st.integers(0, 3))
def test_after_a_position_was_set_back_the_newest_ledger_that_reaches_the_offset_answers(
    data: st.DataObject, markers: int
) -> None:
    partition = PartitionLedger()
    tables: list[PlainTable] = []
    start = (0, 0)
    for number in range(data.draw(st.integers(1, 3))):
        ledger, table = make(data.draw(histories(start)), start, is_whole=number == 0, advance=0)
        partition.start(number, ledger)
        tables.append(table)
        start = (data.draw(st.integers(0, table.copied_to)), table.end[TARGET] + markers)
    for offset in range(tables[-1].copied_to + 3):
        reaches = next(table for table in reversed(tables) if offset >= table.start[SOURCE])
        assert partition.forward(offset) == reaches.answer(offset, SOURCE)
    for offset in range(tables[-1].end[TARGET] + 3):
        at = next(at for at in reversed(range(len(tables))) if offset >= tables[at].start[TARGET])
        expected = tables[at].answer(offset, TARGET)
        if at + 1 < len(tables) and offset >= tables[at].end[TARGET]:
            expected = tables[at + 1].next_copy(AnswerKind.NOT_OURS, -1, TARGET)
        if expected == NOT_YET:  # going on where the copies end skips nothing
            newest = partition.newest
            assert newest is not None
            expected = Answer(AnswerKind.NOT_YET, newest.source_end, False)
        assert partition.reverse(offset) == expected


def test_a_group_behind_the_offset_that_a_position_was_set_back_to_skips_nothing() -> None:
    partition = PartitionLedger()
    partition.start(0, make([Run(0, 0, 100)], (0, 0), is_whole=True, advance=0)[0])
    partition.start(1, make([Run(50, 100, 10)], (50, 100), is_whole=False, advance=0)[0])
    assert partition.forward(30) == Answer(AnswerKind.COPIED, 30, True)
    assert partition.forward(50) == Answer(AnswerKind.COPIED, 100, True)
    assert partition.forward(80) == NOT_YET
    assert partition.reverse(80) == Answer(AnswerKind.COPIED, 80, True)
    assert partition.reverse(105) == Answer(AnswerKind.COPIED, 55, True)


def test_copies_that_the_target_lost_are_not_pointed_at() -> None:
    partition = PartitionLedger()
    partition.start(0, make([Run(0, 0, 120)], (0, 0), is_whole=True, advance=0)[0])
    partition.start(1, make([Run(120, 110, 10)], (120, 110), is_whole=False, advance=0)[0])
    assert partition.forward(115) == Answer(AnswerKind.GAP, 110, False)
    assert partition.forward(105) == Answer(AnswerKind.COPIED, 105, True)


def test_offsets_between_two_ledgers_of_which_one_was_lost_are_left_to_the_offset_syncs() -> None:
    partition = PartitionLedger()
    partition.start(0, make([Run(0, 0, 100)], (0, 0), is_whole=True, advance=0)[0])
    partition.start(2, make([Run(500, 600, 10)], (500, 600), is_whole=False, advance=0)[0])
    assert partition.forward(300) == BEFORE_LEDGER
    assert partition.reverse(300) == BEFORE_LEDGER
    assert partition.forward(100) == Answer(AnswerKind.END, 100, True)


def test_ledgers_of_a_recreated_topic_answer_no_more() -> None:
    old, new, target = uuid.uuid4(), uuid.uuid4(), uuid.uuid4()
    partition = PartitionLedger()
    first = make([Run(0, 0, 100)], (0, 0), is_whole=True, advance=0)[0]
    partition.start(0, first, source_topic_id=old, target_topic_id=target)
    second = make([Run(0, 100, 10)], (0, 100), is_whole=True, advance=0)[0]
    partition.start(1, second, source_topic_id=new, target_topic_id=target)
    assert partition.forward(5) == Answer(AnswerKind.COPIED, 105, True)
    assert partition.reverse(5) == Answer(AnswerKind.EXPIRED, 0, True), "the group has read nothing of the new topic"
    with pytest.raises(EntryOutOfOrder):
        partition.start(1, second)


def test_a_partition_without_a_ledger_leaves_every_offset_to_the_offset_syncs() -> None:
    assert PartitionLedger().forward(5) == PartitionLedger().reverse(5) == BEFORE_LEDGER


def test_older_ledgers_are_forgotten_when_both_logs_have_deleted_their_records() -> None:
    partition = PartitionLedger()
    partition.start(0, make([Run(0, 0, 100)], (0, 0), is_whole=True, advance=0)[0])
    partition.start(1, make([Run(50, 100, 100)], (50, 100), is_whole=False, advance=0)[0])
    partition.trim(100, 90)
    assert len(partition.ledgers) == 2
    partition.trim(100, 110)
    assert len(partition.ledgers) == 1
    assert partition.forward(60) == Answer(AnswerKind.COPIED, 110, True), "only the source has deleted it"


@given(st.data(), st.integers(1, 4))
def test_chunks_of_the_ledger_topic_that_grow_and_come_again_make_the_ledger_that_wrote_them(
    data: st.DataObject, chunk_entries: int
) -> None:
    history = data.draw(histories())
    ledger, table = make(history, (0, 0), is_whole=True, advance=0)
    partition = PartitionLedger()
    partition.take(_chunk(1, (0, 0), ()))
    begins = (0, 0)
    for first in range(0, len(history), chunk_entries):
        entries = history[first : first + chunk_entries]
        for upto in sorted({data.draw(st.integers(1, len(entries))), len(entries)}):
            partition.take(_chunk(1, begins, tuple(entries[:upto])))
        begins = (entries[-1].source_end, entries[-1].target_end)
    assert partition.newest is not None
    assert list(partition.newest.entries()) == list(ledger.entries())
    check(partition.newest, table)


@given(st.data(), st.integers(1, 4), st.booleans())
def test_chunks_answer_the_same_whether_their_entries_are_taken_in_as_bytes_or_one_by_one(
    data: st.DataObject, chunk_entries: int, flips: bool
) -> None:
    """Also if bytes were flipped: then both refuse the same chunks."""
    history = data.draw(histories())
    by_bytes, one_by_one = PartitionLedger(), PartitionLedger()
    begins = (0, 0)
    for first in range(0, len(history), chunk_entries):
        chunk = _chunk(1, begins, tuple(history[first : first + chunk_entries]))
        encoded = encoded_chunk(chunk.key, encode(chunk, 0).value or b"")
        if flips:
            at = data.draw(st.integers(0, len(encoded.data) - 1))
            flipped = encoded.data[at] ^ data.draw(st.integers(0, 255))
            encoded = encoded._replace(data=encoded.data[:at] + bytes([flipped]) + encoded.data[at + 1 :])
        faults = []
        for take in (lambda: one_by_one.take(encoded.decoded()), lambda: by_bytes.take_encoded(encoded)):  # noqa: B023
            try:
                take()
                faults.append("")
            except (EntryOutOfOrder, MalformedRecord) as error:
                faults.append(str(error))
        assert faults[0] == faults[1]
        begins = (chunk.entries[-1].source_end, chunk.entries[-1].target_end)
    for offset in range(begins[0] + 3):
        assert by_bytes.forward(offset) == one_by_one.forward(offset)
    for offset in range(begins[1] + 3):
        assert by_bytes.reverse(offset) == one_by_one.reverse(offset)


def test_entries_as_bytes_that_contradict_the_ledger_are_refused_and_change_nothing() -> None:
    ledger, table = make([Run(0, 0, 9), Run(10, 9, 9)], (0, 0), is_whole=True, advance=1)
    data = bytes([9 << 2, 9 << 2])
    with pytest.raises(EntryOutOfOrder):
        ledger.append_encoded(19, 18, data, 40)
    with pytest.raises(EntryOutOfOrder):
        ledger.append_encoded(20, 17, data, 41)
    for wrong in (data + b"\x80", data + b"\x00\x09", data + bytes([9 << 2])):
        with pytest.raises(CorruptRuns):
            ledger.append_encoded(20, 18, wrong, 41)
    check(ledger, table)
    ledger.append_encoded(20, 18, data, 41)
    assert ledger.forward(33) == Answer(AnswerKind.COPIED, 29, True)


def test_a_late_chunk_of_an_older_ledger_changes_nothing() -> None:
    partition = PartitionLedger()
    partition.take(_chunk(7, (0, 0), (Run(0, 0, 100),)))
    partition.take(_chunk(5, (50, 100), (Run(50, 100, 10),)))
    partition.take(_chunk(7, (0, 0), (Run(0, 0, 500),)))
    assert partition.forward(55) == Answer(AnswerKind.COPIED, 105, True)
    assert partition.forward(70) == NOT_YET


def test_a_ledger_whose_first_chunks_are_gone_begins_with_the_first_that_is_left() -> None:
    partition = PartitionLedger()
    partition.take(_chunk(1, (0, 0), (Run(0, 0, 100),)))
    partition.take(_chunk(1, (200, 150), (Run(200, 150, 10),)))
    assert partition.forward(50) == BEFORE_LEDGER
    assert partition.forward(205) == Answer(AnswerKind.COPIED, 155, True)
    assert partition.reverse(50) == BEFORE_LEDGER


def test_a_chunk_that_contradicts_what_is_known_is_told_and_replaces_it() -> None:
    partition = PartitionLedger()
    partition.take(_chunk(1, (0, 0), (Run(0, 0, 100),)))
    with pytest.raises(EntryOutOfOrder):
        partition.take(_chunk(1, (50, 51), (Run(50, 51, 100),)))
    assert partition.forward(120) == Answer(AnswerKind.COPIED, 121, True)
    assert partition.forward(20) == BEFORE_LEDGER


def test_what_was_counted_after_a_crash_does_not_hide_what_the_ledger_knew_of_it() -> None:
    partition = PartitionLedger()
    partition.take(_chunk(1, (0, 0), (Run(0, 0, 100), Run(101, 100, 9))))
    partition.take(_chunk(1, (80, 80), (Hole(80, 80, 60, 50, HoleCause.COUNTED), Run(140, 130, 1))))
    assert partition.forward(90) == Answer(AnswerKind.COPIED, 90, True)
    assert partition.forward(105) == Answer(AnswerKind.COPIED, 104, True)
    assert partition.forward(120) == Answer(AnswerKind.COUNTED, 109, False)
    assert partition.reverse(120) == Answer(AnswerKind.COUNTED, 110, False)
    assert partition.forward(140) == Answer(AnswerKind.COPIED, 130, True)


def _chunk(number: int, begin: tuple[int, int], entries: tuple[Entry, ...]) -> LedgerChunk:
    copied_to = entries[-1].source_end if entries else begin[0]
    return LedgerChunk(ChunkKey("orders", 0, number, begin[0]), begin[1], entries, copied_to, is_whole=begin == (0, 0))


def test_the_offsets_between_copies_are_told_over_all_ledgers_of_a_partition() -> None:
    partition = PartitionLedger()
    first = Ledger(0, 2, is_whole=True)
    first.catch_up([Run(0, 4, 6), Hole(6, 10, 5, 8, HoleCause.COUNTED), Run(11, 20, 10)])
    partition.start(1, first)
    second = Ledger(15, 33, is_whole=False)  # the position was set back
    second.catch_up([Run(15, 33, 5), Run(20, 38, 5)])
    partition.start(2, second)
    after_a_loss = Ledger(99, 60, is_whole=False)  # what was copied between is not known
    after_a_loss.catch_up([Run(99, 61, 1)])
    partition.start(3, after_a_loss)
    assert list(partition.without_copy()) == [(2, 4), (10, 13), (18, 20), (30, 33), (60, 61)]
    assert list(PartitionLedger().without_copy()) == []
