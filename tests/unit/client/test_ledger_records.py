"""The records of a ledger topic give the ledger that was written, whatever the topic has been through since."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.client.ledger_records import LedgerRecords
from mm2py.flow import TopicName
from mm2py.offsets.answers import Answer, AnswerKind
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.offsets.runs import Run
from mm2py.records.batch import NewRecord
from mm2py.records.ledger_record import ChunkKey, LedgerChunk, NewerLedgerFormat, encode, encode_deletion

ORDERS = (TopicName("orders"), 3)
OTHER = (TopicName("payments"), 0)


def chunks(rng: random.Random, place: tuple[TopicName, int], number: int) -> list[LedgerChunk]:
    """Return what is written one after another: each chunk several times, because it grows."""
    source = target = rng.randrange(1000)
    written: list[LedgerChunk] = []
    for at in range(rng.randrange(1, 5)):
        key, begin, runs = ChunkKey(*place, number, source), target, list[Run]()
        for _ in range(rng.randrange(1, 6)):
            source, target = source + rng.randrange(3), target + rng.randrange(3)
            runs.append(Run(source, target, rng.randrange(1, 5)))
            source, target = runs[-1].source_end, runs[-1].target_end
            written.append(LedgerChunk(key, begin, tuple(runs), source, is_whole=at == 0))
    return written


def direct(written: list[LedgerChunk]) -> PartitionLedger:
    ledger = PartitionLedger()
    for chunk in written:
        ledger.take(chunk)
    return ledger


def answers(ledger: PartitionLedger) -> list[Answer]:
    return [ask(offset) for ask in (ledger.forward, ledger.reverse) for offset in range(1200)]


def mixed(rng: random.Random, *logs: list[NewRecord]) -> Iterator[NewRecord]:
    """Yield the records of several writers as they come to be in one partition, with a foreign writer's between."""
    waiting = [list(log) for log in logs]
    while any(waiting):
        yield rng.choice([log for log in waiting if log]).pop(0)
        if rng.random() < 0.2:
            yield NewRecord(rng.choice([None, b"", b"not ours", b'["runs",1,2]', b'["later",7]']), None, 0)
            yield NewRecord(b'["later",7]', b"\x02\x01of a kind that may be passed over", 0)


@given(st.randoms(use_true_random=False), st.booleans())
def test_the_ledger_is_the_one_that_was_written_also_after_compaction_and_growth(
    rng: random.Random, is_cleaned: bool
) -> None:
    ours = chunks(rng, ORDERS, 1) + chunks(rng, ORDERS, 2) * rng.randrange(2)
    others = chunks(rng, OTHER, 1)
    grown_at = rng.randrange(len(ours) + 1)  # from here on they are in another partition, whose number may be lower
    before, after = (
        list(mixed(rng, [encode(one, at) for at, one in part], [encode(one, 0) for one in others]))
        for part in (list(enumerate(ours))[:grown_at], list(enumerate(ours))[grown_at:])
    )
    records = LedgerRecords({ORDERS}.__contains__)
    partitions = [(rng.choice([0, 2]), before), (1, after)]
    rng.shuffle(partitions)
    for partition, log in partitions:
        last = {record.key: at for at, record in enumerate(log)}
        for at, record in enumerate(log):
            if not is_cleaned or last[record.key] == at:
                records.take(partition, record.timestamp_ms, record.key, record.value)
    (found,) = records.ledgers().values()
    expected = answers(direct(ours))
    assert answers(found) == expected
    assert AnswerKind.COPIED in {answer.kind for answer in expected}, "else nothing was compared"


def test_a_deleted_chunk_is_not_used_whether_the_topic_was_cleaned_or_not() -> None:
    first = LedgerChunk(ChunkKey(*ORDERS, 1, 0), 0, (Run(0, 0, 10),), 10, is_whole=True)
    second = LedgerChunk(ChunkKey(*ORDERS, 1, 10), 10, (Run(12, 10, 10),), 22)
    records = LedgerRecords({ORDERS}.__contains__)
    for record in (encode(first, 1), encode(second, 2), encode_deletion(first.key, 3)):
        records.take(0, record.timestamp_ms, record.key, record.value)
    ledger = records.ledgers()[ORDERS]
    assert [ledger.forward(offset).offset for offset in (5, 12, 22)] == [None, 10, 20]


def test_a_chunk_that_contradicts_the_one_before_it_begins_the_ledger_again() -> None:
    first = LedgerChunk(ChunkKey(*ORDERS, 1, 0), 0, (Run(0, 0, 10),), 10)
    second = LedgerChunk(ChunkKey(*ORDERS, 1, 5), 100, (Run(5, 100, 10),), 15)
    records = LedgerRecords({ORDERS}.__contains__)
    for chunk in (first, second):
        record = encode(chunk, 1)
        records.take(0, 1, record.key, record.value)
    ledger = records.ledgers()[ORDERS]
    assert [ledger.forward(offset).offset for offset in (4, 5, 14)] == [None, 100, 109]


def test_a_chunk_in_a_newer_format_is_an_error_only_for_those_who_ask_about_its_partition() -> None:
    record = encode(LedgerChunk(ChunkKey(*ORDERS, 1, 0), 0, (Run(0, 0, 10),), 10), 1)
    assert record.value is not None
    for wanted in (ORDERS, OTHER):
        records = LedgerRecords({wanted}.__contains__)
        records.take(0, 1, record.key, b"\x09\x09" + record.value[2:])
        if wanted == ORDERS:
            with pytest.raises(NewerLedgerFormat):
                records.ledgers()
        else:
            assert records.ledgers() == {}


def test_a_record_of_an_unknown_kind_that_must_not_be_passed_over_is_an_error_for_all() -> None:
    with pytest.raises(NewerLedgerFormat):
        LedgerRecords({ORDERS}.__contains__).take(0, 1, b'["later",7]', b"\x09\x09more")
