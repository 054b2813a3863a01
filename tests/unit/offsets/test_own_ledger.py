"""What an owner writes of its ledger: a reader of the topic knows as much as the owner, whenever owners change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.flow import TopicName
from mm2py.offsets.answers import BEFORE_LEDGER, NOT_YET, Answer, AnswerKind
from mm2py.offsets.ledger import Ledger
from mm2py.offsets.own_ledger import CHUNK_ENTRIES, ENTRIES_AT_ONCE, WAITING_MOST, LedgerOf, OwnLedger
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.offsets.runs import Entry, Hole, HoleCause, Run
from mm2py.records.ledger_record import LedgerChunk, decode, encode

OF = LedgerOf(TopicName("orders"), 0)


def test_what_grows_is_written_again_under_the_same_key_and_only_when_it_has_grown() -> None:
    own, reader = OwnLedger(OF, 1, (0, 0), is_whole=True), PartitionLedger()
    first = write(own, reader)
    own.add([Run(0, 0, 100)], 5)
    own.advance(100, 100)
    second = write(own, reader)
    assert [chunk.key for chunk in first] == [chunk.key for chunk in second]
    assert own.chunks() == ()
    own.advance(101, 100)
    assert write(own, reader)[0].copied_to == 101, "a marker is behind the last record"
    assert reader.forward(101) == Answer(AnswerKind.END, 100, True)
    assert reader.forward(102) == NOT_YET


def test_a_partition_that_starts_again_where_it_stood_writes_nothing_until_it_has_moved() -> None:
    own = OwnLedger(OF, 1, (100, 90), continues=True)
    assert own.chunks() == ()
    own.advance(100, 95)
    assert own.chunks() == ()
    own.add([Run(100, 96, 1)], 5)
    (chunk,) = own.chunks()
    assert (chunk.key.source_offset, chunk.target_offset, chunk.is_whole) == (100, 90, False)


def test_a_plain_partition_keeps_one_chunk_however_often_its_owner_changes() -> None:
    reader, keys = PartitionLedger(), set()
    own = OwnLedger(OF, 1, (0, 0), is_whole=True)
    for at in range(0, 1000, 10):
        own.add([Run(at, at, 10)], 5)
        keys |= {chunk.key for chunk in write(own, reader)}
        own = OwnLedger(OF, 1, (at + 10, at + 12), continues=True, run=own.run)
        assert own.chunks() == ()
    assert len(keys) == 1
    assert reader.forward(995) == Answer(AnswerKind.COPIED, 995, True)
    alone = PartitionLedger()
    own.write_again()
    (chunk,) = write(own, alone)
    assert chunk.is_whole
    assert alone.forward(5) == Answer(AnswerKind.COPIED, 5, True)


def test_a_partition_with_a_marker_begins_a_chunk_where_its_next_owner_starts() -> None:
    own = OwnLedger(OF, 1, (0, 0), is_whole=True)
    own.add([Run(0, 0, 10)], 5)
    own.advance(11, 10)
    assert own.run is None, "what it says would not reach the position"
    own.add([Run(11, 10, 10)], 5)
    assert own.run is None, "there are two runs"


def test_chunks_that_fill_up_during_a_write_are_part_of_the_next_one() -> None:
    """A final position is formed while an earlier write of the same partition is under way."""
    own, reader = OwnLedger(OF, 1, (0, 0), is_whole=True), PartitionLedger()
    runs = [Run(at * 2, at, 1) for at in range(2 * CHUNK_ENTRIES)]
    own.add(runs[:CHUNK_ENTRIES], 5)
    under_way = own.chunks()
    own.add(runs[CHUNK_ENTRIES:], 5)
    own.chunks()
    own.written(under_way)
    for chunk in (*under_way, *own.chunks()):
        reader.take(chunk)
    assert reader.newest is not None
    assert list(reader.newest.entries()) == runs


def test_many_runs_at_once_become_chunks_of_a_size_that_brokers_take() -> None:
    own, reader = OwnLedger(OF, 1, (0, 0), is_whole=True), PartitionLedger()
    runs = [Run(at * 10 + 1, at * 9, 9) for at in range(3 * ENTRIES_AT_ONCE + 5)]
    own.add(runs, 5)
    own.advance(runs[-1].source_end + 1, runs[-1].target_end)
    chunks = write(own, reader)
    assert len(chunks) == 4
    assert all(len(encode(chunk, 0).value or b"") < 100_000 for chunk in chunks)
    assert reader.newest is not None
    assert list(reader.newest.entries()) == runs
    assert own.chunks() == ()


@pytest.mark.parametrize("markers", [0, 1])
def test_records_that_overwrite_what_the_target_has_lost_begin_a_new_ledger(markers: int) -> None:
    own, reader = OwnLedger(OF, 1, (0, 0), is_whole=True), PartitionLedger()
    own.add([Run(0, 0, 100)], 5)
    write(own, reader)
    own.add([Run(100 + markers, 90, 10)], 5)
    own.advance(110 + markers, 100)
    write(own, reader)
    assert own.number == 5
    assert reader.forward(105 + markers) == Answer(AnswerKind.COPIED, 95, True)
    assert reader.forward(80) == Answer(AnswerKind.COPIED, 80, True)
    assert reader.forward(95) == Answer(AnswerKind.GAP, 90, False)


def test_records_that_an_operator_lets_be_skipped_are_a_gap_of_the_same_ledger() -> None:
    own, reader = OwnLedger(OF, 1, (0, 0), is_whole=True), PartitionLedger()
    own.add([Run(0, 0, 100)], 5)
    write(own, reader)
    again = OwnLedger(OF, 1, (150, 101), continues=True, skipped=[(100, 109), (120, 149)])
    again.add([Run(150, 101, 5)], 5)
    write(again, reader)
    assert reader.forward(50) == Answer(AnswerKind.COPIED, 50, True)
    assert reader.forward(105) == Answer(AnswerKind.GAP, 101, True)
    assert reader.forward(115) == Answer(AnswerKind.DROPPED, 101, True)
    assert reader.forward(151) == Answer(AnswerKind.COPIED, 102, True)


def test_a_topic_that_cannot_be_written_to_for_long_costs_what_was_known_not_memory() -> None:
    own, reader = OwnLedger(OF, 1, (0, 0), is_whole=True), PartitionLedger()
    own.add([Run(at * 2, at, 1) for at in range(WAITING_MOST + 10)], 5)
    assert sum(len(chunk.entries) for chunk in write(own, reader)) == 10
    assert reader.forward(1) == BEFORE_LEDGER


def test_a_target_offset_that_is_not_known_at_the_start_is_known_with_the_first_record() -> None:
    own, reader = OwnLedger(OF, 1, (70, None)), PartitionLedger()
    assert own.chunks() == ()
    own.add([Run(80, 60, 5)], 5)
    write(own, reader)
    assert reader.forward(82) == Answer(AnswerKind.COPIED, 62, True)
    assert reader.forward(75) == BEFORE_LEDGER


def test_a_topic_that_was_recreated_gets_what_is_still_known() -> None:
    own = OwnLedger(OF, 1, (0, 0), is_whole=True)
    own.add([Run(0, 0, 100)], 5)
    write(own, PartitionLedger())
    own.write_again()
    reader = PartitionLedger()
    write(own, reader)
    assert reader.forward(50) == Answer(AnswerKind.COPIED, 50, True)


@st.composite
def steps(draw: st.DrawFn) -> list[Entry]:
    """What is copied, from (0, 0) on; markers and foreign records between, and gaps."""
    source = target = 0
    found: list[Entry] = []
    for _ in range(draw(st.integers(1, 12))):
        source += draw(st.integers(0, 2))
        target += draw(st.integers(0, 2))
        if draw(st.integers(0, 5)):
            found.append(Run(source, target, draw(st.integers(1, 4))))
        else:
            found.append(Hole(source, target, draw(st.integers(1, 3)), 0, HoleCause.GAP))
        source, target = found[-1].source_end, found[-1].target_end
    return found


@given(steps(), st.data())
def test_a_reader_knows_all_that_was_copied_however_often_the_owner_dies(
    history: list[Entry], data: st.DataObject
) -> None:
    """The stories: a crash before anything is written; after the ledger, before the position; a planned move."""
    reader, truth = PartitionLedger(), Ledger(0, 0, is_whole=True)
    own = OwnLedger(OF, 1, (0, 0), is_whole=True)
    write(own, reader)
    position, stored_to, done, run = (0, 0), 0, 0, own.run
    while done < len(history):
        upto = data.draw(st.integers(done + 1, len(history)))
        own.add(history[done:upto], 5)
        done = upto
        what = data.draw(st.sampled_from(["copies on", "stores", "dies", "writes the ledger and dies"]))
        ends = history[done - 1].source_end, history[done - 1].target_end
        if what not in {"copies on", "dies"}:
            own.advance(*ends)
            write(own, reader)
        if what == "stores":
            position, stored_to, run = ends, done, own.run
        if "dies" in what:
            own = OwnLedger(OF, 1, position, continues=True, run=run)
            own.add(history[stored_to:done], 5)  # what is found out behind the position
    own.advance(*(history[-1].source_end, history[-1].target_end))
    write(own, reader)
    truth.catch_up(history)
    assert reader.newest is not None
    assert list(reader.newest.entries()) == list(truth.entries())
    for offset in range(history[-1].source_end + 2):
        assert reader.forward(offset) == truth.forward(offset)


@pytest.mark.parametrize("count", [1, CHUNK_ENTRIES - 1, CHUNK_ENTRIES, CHUNK_ENTRIES + 1, 3 * CHUNK_ENTRIES])
def test_a_ledger_that_is_written_again_and_again_has_each_run_once(count: int) -> None:
    own, reader = OwnLedger(OF, 1, (0, 0), is_whole=True), PartitionLedger()
    runs = [Run(at * 3, at * 2, 2) for at in range(count)]
    for run in runs:
        own.add([run], 5)
        own.advance(run.source_end, run.target_end)
        write(own, reader)
    assert reader.newest is not None
    assert list(reader.newest.entries()) == runs


def write(own: OwnLedger, reader: PartitionLedger) -> list[LedgerChunk]:
    """Write what is due, as the ledger topic does it, and have it acknowledged."""
    chunks = list(own.chunks())
    for chunk in chunks:
        record = encode(chunk, 7)
        read = decode(record.key, record.value)
        assert read == chunk
        reader.take(chunk)
    own.written(chunks)
    return chunks
