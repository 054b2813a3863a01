"""The ledger topic as a table: what it answers is what the owners of partitions have written."""

from __future__ import annotations

import asyncio
import io
import random
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm2py.copying.reading import ledger_table
from mm2py.copying.reading.ledger_table import LedgerTable, PlacedChunk
from mm2py.logs import make_logger
from mm2py.offsets.answers import BEFORE_LEDGER, NOT_YET, Answer, AnswerKind
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.offsets.runs import Entry, Run
from mm2py.records.ledger_record import LedgerChunk, NewerLedgerFormat, encode, encode_deletion
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.broker.record_batch import Record
from tests.fakes.ledger_topic import LEDGER, chunk, write_chunks
from tests.fakes.virtual_time import VirtualClock, run_virtual

ORDERS = ("orders", 0)


def make() -> tuple[ClusterModel, LedgerTable, io.StringIO]:
    cluster, log = ClusterModel("B", VirtualClock(), random.Random(1)), io.StringIO()
    return cluster, LedgerTable(cluster, LEDGER, make_logger("info", "text", log)), log


async def test_without_a_topic_every_offset_is_left_to_the_offset_syncs_and_a_topic_that_comes_is_followed() -> None:
    cluster, table, _ = make()
    await table.follow()
    assert table.of(ORDERS).forward(5) == BEFORE_LEDGER
    write_chunks(cluster, [chunk(Run(0, 0, 10)), chunk(Run(0, 0, 7), topic="other", partition=3)])
    await table.follow()
    assert table.of(ORDERS).forward(5) == Answer(AnswerKind.COPIED, 5, True)
    assert table.of(ORDERS).forward(11) == NOT_YET
    write_chunks(cluster, [chunk(Run(0, 0, 10), Run(11, 10, 9))])
    await table.follow()
    assert table.of(ORDERS).forward(12) == Answer(AnswerKind.COPIED, 11, True)
    assert table.of(("other", 3)).reverse(6) == Answer(AnswerKind.COPIED, 6, True)
    assert table.of(("other", 0)).forward(6) == BEFORE_LEDGER


async def test_a_topic_that_was_deleted_or_recreated_takes_its_ledgers_with_it() -> None:
    cluster, table, _ = make()
    write_chunks(cluster, [chunk(Run(0, 0, 10))])
    await table.follow()
    cluster.recreate_topic(LEDGER)
    await asyncio.sleep(5)  # until all brokers know
    await table.follow()
    assert table.of(ORDERS).forward(5) == BEFORE_LEDGER
    write_chunks(cluster, [chunk(Run(0, 0, 10))])
    await table.follow()
    assert table.of(ORDERS).forward(5).offset == 5
    cluster.delete_topic(LEDGER)
    await asyncio.sleep(5)
    await table.follow()
    assert table.of(ORDERS).forward(5) == BEFORE_LEDGER


async def test_what_is_no_ledger_record_is_passed_over_and_named_once() -> None:
    cluster, table, log = make()
    good = encode(chunk(Run(0, 0, 10)), 0)
    assert good.value is not None
    write_chunks(cluster, [chunk(Run(0, 0, 10))])
    cluster.append(LEDGER, 0, [Record(key=b"?", value=b"1"), Record(key=good.key, value=b"")])
    broken = encode(chunk(Run(10, 10, 5), begin=(10, 10)), 0)
    cluster.append(LEDGER, 1, [Record(key=broken.key, value=(broken.value or b"")[:-1])])
    await table.follow()
    assert table.of(ORDERS).forward(5).offset == 5
    assert table.of(ORDERS).forward(12) == NOT_YET
    (line,) = [line for line in log.getvalue().splitlines() if "checkpoints.malformed_record" in line]
    assert LEDGER in line


async def test_a_record_that_only_a_newer_mm2py_understands_is_an_error_each_time_that_the_topic_is_followed() -> None:
    cluster, table, _ = make()
    write_chunks(cluster, [chunk(Run(0, 0, 10))])
    newer = encode(chunk(Run(0, 0, 10)), 0)
    cluster.append(LEDGER, 0, [Record(key=newer.key, value=b"\x07\x07" + (newer.value or b"")[2:])])
    for _ in range(2):
        with pytest.raises(NewerLedgerFormat, match="format 7"):
            await table.follow()


async def test_a_chunk_that_contradicts_what_is_known_replaces_it_and_is_named_once_for_its_partition() -> None:
    cluster, table, log = make()
    write_chunks(cluster, [chunk(Run(0, 0, 100)), chunk(Run(50, 51, 100), begin=(50, 51))])
    write_chunks(cluster, [chunk(Run(100, 300, 100), begin=(100, 300))])
    await table.follow()
    assert table.of(ORDERS).forward(120) == Answer(AnswerKind.COPIED, 320, True)
    assert len([line for line in log.getvalue().splitlines() if "ledger.contradicted" in line]) == 1


ENTRIES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(1, 4)), max_size=5)


@settings(max_examples=60)
@given(st.lists(ENTRIES, min_size=1, max_size=6), st.data())
def test_chunks_that_wait_are_read_as_if_each_had_been_taken_in_when_it_came(
    history: list[list[tuple[int, int, int]]], data: st.DataObject
) -> None:
    async def scenario() -> None:
        cluster, table, _ = make()
        plain = PartitionLedger()
        at = (0, 0)
        for gaps in history:
            entries: list[Entry] = []
            source, target = at
            for source_gap, target_gap, count in gaps:
                entries.append(Run(source + source_gap, target + target_gap, count))
                source, target = entries[-1].source_end, entries[-1].target_end
                if data.draw(st.booleans()):
                    write(cluster, plain, chunk(*entries, begin=at))
            write(cluster, plain, chunk(*entries, begin=at))
            at = (source, target)
            if data.draw(st.booleans()):
                await table.follow()
            if data.draw(st.booleans()):
                await table.prepare([ORDERS])
        if data.draw(st.booleans()):
            cluster.compact(LEDGER)
        await table.follow()
        for offset in range(at[0] + 3):
            assert table.of(ORDERS).forward(offset) == plain.forward(offset)
        for offset in range(at[1] + 3):
            assert table.of(ORDERS).reverse(offset) == plain.reverse(offset)

    run_virtual(scenario())


def write(cluster: ClusterModel, plain: PartitionLedger, one: LedgerChunk) -> None:
    write_chunks(cluster, [one])
    plain.take(one)


def chunks_of(count: int, entries: int) -> list[LedgerChunk]:
    """Ten source offsets an entry: a marker, then nine records."""
    return [
        chunk(
            *[Run(at * 10 + 1, at * 9, 9) for at in range(first, first + entries)],
            begin=(first * 10, first * 9),
        )
        for first in range(0, count * entries, entries)
    ]


@pytest.mark.parametrize("is_asked", [True, False])
async def test_chunks_of_which_both_logs_have_deleted_everything_are_told_and_never_the_newest(is_asked: bool) -> None:
    cluster, table, _ = make()
    write_chunks(cluster, chunks_of(4, 10))
    write_chunks(cluster, [chunk(Run(0, 0, 50), partition=1)])
    await table.follow()
    if is_asked:
        await table.prepare([ORDERS])
    assert table.large() == [ORDERS]
    assert starts(table.trim(ORDERS, 99, 1000)) == []
    assert starts(table.trim(ORDERS, 1000, 89)) == []
    assert starts(table.trim(ORDERS, 250, 180)) == [0, 100]
    outdated = table.trim(ORDERS, 1000, 1000)
    assert starts(outdated) == [0, 100, 200]
    for one in outdated:
        record = encode_deletion(one.key, 0)
        cluster.append(LEDGER, one.ledger_partition, [Record(key=record.key, value=None)])
    await table.follow()
    assert table.large() == [], "a tombstone in the chunk's own partition has removed each"
    assert table.of(ORDERS).forward(305).offset is not None


async def test_a_set_back_position_leaves_chunks_of_an_older_ledger_that_are_told_when_their_records_are_gone() -> None:
    cluster, table, _ = make()
    write_chunks(cluster, [chunk(Run(0, 0, 100)), chunk(Run(50, 100, 100), number=2, begin=(50, 100))])
    write_chunks(cluster, [chunk(Run(0, 0, 90))])  # late, of the older one
    await table.follow()
    assert table.of(ORDERS).forward(60) == Answer(AnswerKind.COPIED, 110, True)
    assert table.trim(ORDERS, 100, 90) == []
    (outdated,) = table.trim(ORDERS, 100, 100)
    assert outdated.key.number == 1


async def test_chunks_of_a_rebuilt_ledger_go_before_all_others_and_never_stop_those_of_the_newest() -> None:
    cluster, table, _ = make()
    live, grown = (chunk(Run(100, 100, count), begin=(100, 100), is_whole=False) for count in (50, 80))
    older = [
        chunk(Run(0, 0, 60), number=7, is_rebuilt=True),
        chunk(Run(61, 60, 39), number=7, begin=(60, 60), is_rebuilt=True),
    ]
    write_chunks(cluster, [live, *older, grown])
    write_chunks(cluster, [chunk(Run(200, 200, 9), number=8, begin=(200, 200), is_whole=False)])
    await table.follow()
    assert table.of(ORDERS).forward(70) == Answer(AnswerKind.COPIED, 69, True)
    assert table.of(ORDERS).forward(170) == Answer(AnswerKind.COPIED, 170, True)
    assert table.of(ORDERS).reverse(99) == Answer(AnswerKind.NOT_OURS, 100, True)
    assert table.of(ORDERS).forward(205).offset == 205
    assert [one.key for one in table.trim(ORDERS, 60, 50)] == []
    assert [one.key.number for one in table.trim(ORDERS, 100, 100)] == [7, 7]
    assert [one.key.number for one in table.trim(ORDERS, 200, 200)] == [7, 7, 1]
    write_chunks(cluster, [chunk(Run(200, 200, 30), number=8, begin=(200, 200), is_whole=False)])
    await table.follow()
    assert table.of(ORDERS).forward(220).offset == 220


def starts(found: list[PlacedChunk]) -> list[int]:
    return [one.key.source_offset for one in found]


@pytest.mark.parametrize("is_asked", [True, False])
async def test_a_ledger_that_has_become_too_large_loses_its_older_half(
    is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, table, _ = make()
    write_chunks(cluster, chunks_of(10, 300))
    await table.follow()
    if is_asked:
        await table.prepare([ORDERS])
    assert table.limit(ORDERS) == []
    monkeypatch.setattr(ledger_table, "BYTES_MOST", 2000)
    found = table.limit(ORDERS)
    assert len(found) == 7
    for one in found:
        cluster.append(LEDGER, one.ledger_partition, [Record(key=encode_deletion(one.key, 0).key, value=None)])
    await table.follow()
    assert table.limit(ORDERS) == []
    assert table.of(ORDERS).forward(3_000) == BEFORE_LEDGER
    assert table.of(ORDERS).reverse(3_000) == BEFORE_LEDGER
    assert table.of(ORDERS).forward(25_005) == Answer(AnswerKind.COPIED, 22_504, True)


@pytest.mark.slow
def test_fifty_thousand_partitions_fit_into_memory_ten_of_them_transactional_with_a_hundred_thousand_runs_each() -> (
    None
):
    async def scenario() -> None:
        cluster, table, _ = make()
        for first in range(0, 50_000, 1_000):
            some = range(first, first + 1_000)
            plain = [chunk(Run(5, 0, 10**6), topic="plain", partition=at, begin=(5, 0)) for at in some]
            write_chunks(cluster, plain, partitions=25)
        long_one = chunks_of(50, 2_000)
        for partition in range(10):
            write_chunks(cluster, [replace(one, key=replace(one.key, partition=partition)) for one in long_one])
        keys = [("plain", at) for at in range(50_000)] + [("orders", at) for at in range(10)]
        tracemalloc.start()
        try:
            await table.follow()
            read = tracemalloc.get_traced_memory()[0]
            await table.prepare(keys)
            asked = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert read < 80 << 20
        assert asked < 120 << 20
        assert table.of(("plain", 77)).forward(1_005).offset == 1_000
        assert table.of(("orders", 7)).forward(500_005).offset == 450_004

    run_virtual(scenario(), limit_s=600)
