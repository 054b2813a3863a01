"""A rebuilt ledger, with those that were kept behind it, answers as one that was kept from the start."""

from __future__ import annotations

import uuid
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mm2py.flow import TopicName
from mm2py.offsets.answers import BEFORE_LEDGER, NOT_YET, Answer, AnswerKind
from mm2py.offsets.own_ledger import LedgerOf
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.offsets.rebuilt_ledger import RebuiltLedger
from mm2py.offsets.runs import Entry, Hole, HoleCause, Run
from mm2py.records.ledger_record import ChunkKey, LedgerChunk, decode

ORDERS = TopicName("orders")
OF = LedgerOf(ORDERS, 0)


def rebuilt(runs: list[Run], end: int, *, number: int = 9, chunk_entries: int = 2000) -> list[LedgerChunk]:
    ledger = RebuiltLedger(OF, number, chunk_entries=chunk_entries)
    for run in runs:
        for at in range(run.record_count):
            ledger.add(run.source_offset + at, run.target_offset + at)
    chunks = [decode(record.key, record.value) for record in ledger.finish(end)]
    return [chunk for chunk in chunks if chunk is not None]


def kept(
    begin: tuple[int, int], entries: list[Entry], copied_to: int, *, is_whole: bool = False, number: int = 5
) -> LedgerChunk:
    key = ChunkKey(ORDERS, 0, number, begin[0])
    return LedgerChunk(key, begin[1], tuple(entries), copied_to, is_whole=is_whole)


def taken(*chunks: LedgerChunk) -> PartitionLedger:
    ledger = PartitionLedger()
    for chunk in chunks:
        ledger.take(chunk)
    return ledger


@st.composite
def entries(draw: st.DrawFn, start: tuple[int, int], *, only_runs: bool, least: int) -> list[Entry]:
    source, target = start
    found: list[Entry] = []
    for _ in range(draw(st.integers(least, 6))):
        source, target = source + draw(st.sampled_from([0, 1, 1, 3])), target + draw(st.sampled_from([0, 0, 1, 2]))
        if only_runs or draw(st.booleans()):
            found.append(Run(source, target, draw(st.integers(1, 4))))
        else:
            cause = draw(st.sampled_from(HoleCause))
            copies = draw(st.integers(1, 3)) if cause.is_copied else 0
            found.append(Hole(source, target, draw(st.integers(1, 3)), copies, cause))
        source, target = found[-1].source_end, found[-1].target_end
    return found


@given(st.data(), st.integers(1, 3))
def test_with_what_was_rebuilt_all_offsets_are_answered_as_if_the_ledger_had_been_kept_from_the_start(
    data: st.DataObject, chunk_entries: int
) -> None:
    older = [one for one in data.draw(entries((0, 0), only_runs=True, least=0)) if isinstance(one, Run)]
    end = (older[-1].source_end, older[-1].target_end) if older else (0, 0)
    newer = data.draw(entries((end[0] + data.draw(st.integers(0, 2)), end[1]), only_runs=False, least=1))
    seam = data.draw(st.integers(end[0], newer[0][0])), data.draw(st.integers(end[1], newer[0][1]))
    copied_to = newer[-1].source_end + 1
    whole = taken(kept((0, 0), [*older, *newer], copied_to, is_whole=True))
    rest = kept(seam, newer, copied_to)
    chunks = rebuilt(older, seam[0], chunk_entries=chunk_entries)
    assert all(len(chunk.entries) <= chunk_entries for chunk in chunks)
    assert [chunk.is_whole for chunk in chunks] == [True] + [False] * (len(chunks) - 1)
    for order in ([rest, *chunks], [*chunks, rest], [rest, *chunks, rest], [rest, *chunks, *chunks]):
        joined = taken(*order)
        assert [one.is_rebuilt for one in joined.ledgers] == [True, False]
        for offset in range(copied_to + 3):
            assert joined.forward(offset) == whole.forward(offset), f"source offset {offset}"
        for offset in range(newer[-1].target_end + 3):
            assert joined.reverse(offset) == whole.reverse(offset), f"target offset {offset}"


def test_the_chunks_of_a_half_written_ledger_answer_only_for_what_they_have() -> None:
    first, *_ = rebuilt([Run(0, 0, 5), Run(6, 5, 4), Run(11, 9, 9)], 20, chunk_entries=1)
    for ledger in (taken(kept((20, 18), [Run(20, 18, 5)], 25), first), taken(first)):
        assert ledger.forward(3) == Answer(AnswerKind.COPIED, 3, True)
        assert ledger.forward(7) == ledger.forward(19) == BEFORE_LEDGER
        assert ledger.reverse(7) == BEFORE_LEDGER


def test_of_several_rebuilt_ledgers_the_last_one_counts_and_none_becomes_the_newest() -> None:
    live = kept((20, 20), [Run(20, 20, 5)], 25)
    first, second = rebuilt([Run(0, 0, 20)], 20), rebuilt([Run(0, 0, 8), Run(10, 10, 10)], 20, number=10)
    for chunks in ((live, *first, *second), (*first, live, *second), (live, *second, *first)):
        ledger = taken(*chunks)
        assert ledger.forward(8) == Answer(AnswerKind.DROPPED, 10, True)
        assert [one.number for one in ledger.ledgers] == [10, 5]
        ledger.take(kept((20, 20), [Run(20, 20, 7)], 27))
        assert ledger.forward(26) == Answer(AnswerKind.COPIED, 26, True)
        ledger.take(kept((30, 30), [Run(30, 30, 1)], 31, number=6))
        assert ledger.forward(30).kind is AnswerKind.COPIED and ledger.forward(3).offset == 3


def test_alone_it_answers_to_its_end_and_a_ledger_that_is_begun_there_goes_on() -> None:
    ledger = taken(*rebuilt([Run(0, 0, 10)], 12))
    assert ledger.forward(10) == Answer(AnswerKind.END, 10, True)
    assert ledger.forward(13) == BEFORE_LEDGER, "it does not grow: the offset syncs may know more"
    ledger.take(kept((12, 11), [], 12))
    assert ledger.forward(11) == Answer(AnswerKind.END, 10, True)
    assert ledger.forward(13) == NOT_YET
    ledger.take(kept((12, 11), [Run(12, 11, 3)], 15))
    assert ledger.forward(11) == Answer(AnswerKind.DROPPED, 11, True)


def test_it_goes_with_topics_that_were_recreated_and_one_of_other_topics_is_passed_over() -> None:
    old, new = uuid.UUID(int=1), uuid.UUID(int=2)
    live = kept((20, 20), [Run(20, 20, 5)], 25)
    chunks = [replace(one, source_topic_id=old) for one in rebuilt([Run(0, 0, 20)], 20)]
    ledger = taken(replace(live, source_topic_id=old), *chunks)
    assert ledger.forward(3).kind is AnswerKind.COPIED
    recreated = replace(kept((2, 2), [Run(2, 2, 1)], 3, number=7), source_topic_id=new)
    ledger.take(recreated)
    ledger.take(chunks[0])
    assert [one.number for one in ledger.ledgers] == [7]
