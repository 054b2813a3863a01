"""Where copying goes on after MirrorMaker 2 was killed, found by comparing records. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.copying.planning.planner import plan
from mm2py.copying.planning.steps import Plan, TargetRules
from mm2py.records.batch import Record as ReadRecord
from mm2py_connectors.source.resume_from_mm2 import search
from mm2py_connectors.source.resume_from_mm2.search import (
    LAST_RECORDS,
    LOOK_AHEAD,
    LastRecords,
    SourceSearch,
    fingerprint,
)
from tests.fakes.broker.cluster_state import ClusterState
from tests.fakes.broker.record_batch import Record, StoredRecord
from tests.fakes.virtual_time import VirtualClock

RULES = TargetRules(max_message_bytes=1 << 20)
NOW_MS = 1_760_000_000_000


class Pair:
    """A source log, and its copy by MirrorMaker 2."""

    def __init__(self, *, committed: bool = True, stamped: bool = False) -> None:
        self.state = ClusterState("x", VirtualClock(), random.Random(1))
        self.state.create_topic("s", 1)
        self.state.create_topic("t", 1, {"message.timestamp.type": "LogAppendTime"} if stamped else {})
        self.committed = committed
        self.number = 0
        self.read_to = 0
        """How far ``find`` has read the source."""

    def write(self, count: int, *, same: bool = False, aborted: bool = False) -> None:
        records = []
        for _ in range(count):
            self.number += 1
            value = b"same" if same else b"%d" % self.number
            records.append(Record(value, timestamp_ms=NOW_MS if same else NOW_MS + self.number))
        if aborted:
            transaction = self.state.transaction()
            transaction.append("s", 0, records)
            transaction.abort()
        elif records:
            self.state.append("s", 0, records)

    @property
    def source(self) -> list[StoredRecord]:
        """What is to be copied."""
        return self.state.records("s", 0, committed=self.committed)

    @property
    def copies(self) -> list[bytes | None]:
        return [record.value for record in self.state.records("t", 0, committed=True)]

    def copy(self, records: Sequence[StoredRecord], *, batch: int = 4, aborted: bool = False) -> None:
        for at in range(0, len(records), batch):
            made = [
                Record(one.value, one.key, headers=one.headers, timestamp_ms=one.timestamp_ms)
                for one in records[at : at + batch]
            ]
            if aborted:
                transaction = self.state.transaction()
                transaction.append("t", 0, made)
                transaction.abort()
            else:
                self.state.append("t", 0, made)

    def plan(self, topic: str, offset: int, *, batches: int = 1 << 30, committed: bool = True) -> Plan:
        log = self.state.partition(topic, 0).log
        raws = [bytes(batch.raw) for batch in log.batches if batch.last_offset >= offset][:batches]
        aborted = log.aborted_within(offset, log.end_offset) if committed else []
        self.raw = memoryview(b"".join(raws))
        return plan(self.raw, wanted_offset=offset, read_committed=committed, aborted=aborted, rules=RULES)

    def find(self, position: int, *, batches: int = 1 << 30) -> SourceSearch:
        """Return what comes of a position, the next source offset; both logs are read so many batches at a time."""
        part, last = self.state.partition("t", 0), LastRecords()
        offset = max(part.log.log_start_offset, part.log.end_offset - 2 * LAST_RECORDS)
        while offset < part.log.end_offset:
            planned = self.plan("t", offset, batches=batches)
            last.take(self.raw, planned.steps)
            offset = planned.next_offset
        found = SourceSearch(last, position, -1, records_most=part.log.end_offset - part.log.log_start_offset)
        source = self.state.partition("s", 0).log
        if found.read_offset < source.log_start_offset:
            return found
        offset = found.read_offset
        while offset < source.end_offset:
            planned = self.plan("s", offset, batches=batches, committed=self.committed)
            offset = self.read_to = planned.next_offset
            if found.take(planned.steps):
                break
        return found


def is_within(wanted: Sequence[object], have: Sequence[object]) -> bool:
    """Whether all of ``wanted`` are in ``have``, in this order, with or without others between them."""
    left = iter(have)
    return all(one in left for one in wanted)


@given(
    batches=st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["data", "data", "same", "abort"])), max_size=14),
    committed=st.booleans(),
    cuts=st.lists(st.floats(0, 1), min_size=2, max_size=7),
    same=st.booleans(),
    markers=st.booleans(),
    foreign=st.booleans(),
    resent=st.booleans(),
    read=st.integers(1, 4),
    more=st.integers(0, 5),
)
def test_no_record_is_left_out_and_no_unique_record_is_repeated(  # noqa: PLR0917
    batches: list[tuple[int, str]],
    committed: bool,
    cuts: list[float],
    same: bool,
    markers: bool,
    foreign: bool,
    resent: bool,
    read: int,
    more: int,
) -> None:
    """MirrorMaker 2 was killed and restarted at stored positions several times; its producer sends some twice."""
    pair = Pair(committed=committed)
    for count, kind in batches:
        pair.write(count, same=same and kind == "same", aborted=kind == "abort")
    pair.write(1)
    source = pair.source
    places = sorted(max(1, round(cut * len(source))) for cut in cuts)
    stored, end = 0, 0
    for begin, reached in pairwise(places):  # begins where it last stored, and stores where the next one begins
        end = reached
        pair.copy(source[stored:end])
        if resent:
            pair.copy(source[max(stored, end - 2) : end], batch=2)
        if markers:
            pair.copy(source[end : end + 3], aborted=True)
        stored = max(stored, min(begin, end))
    if foreign:
        pair.state.producer().append("t", 0, [Record(b"foreign", timestamp_ms=NOW_MS)])
    pair.write(more, same=same)
    position = source[stored - 1].offset + 1
    copied = source[end - 1].offset + 1
    found = pair.find(position, batches=read)
    assert position <= found.resume_offset
    source = pair.source
    pair.copy([record for record in source if record.offset >= found.resume_offset])
    wanted = [record.value for record in source]
    assert is_within(wanted, pair.copies), "nothing is left out"
    if not same:
        assert found.is_proven and not found.is_ambiguous
        assert found.resume_offset == copied, "nothing is repeated"
        assert found.records == end - stored


@pytest.mark.parametrize("behind", [0, 1, 5])
def test_records_that_all_look_the_same_are_repeated_from_the_position_and_reported_as_ambiguous(behind: int) -> None:
    pair = Pair()
    pair.write(20, same=True)
    pair.copy(pair.source[: 7 + behind])
    found = pair.find(7)
    assert (found.resume_offset, found.is_ambiguous, found.is_proven) == (7, True, True)


def test_equal_records_among_others_are_not_repeated() -> None:
    pair = Pair(stamped=True)
    for _ in range(6):
        pair.write(2, same=True)
        pair.write(3)
    pair.copy(pair.source[:22])  # up to the second of two equal ones
    found = pair.find(9)
    assert (found.resume_offset, found.records, found.is_ambiguous) == (22, 13, False)


@pytest.mark.parametrize("gone", ["expired", "cleaned away"])
def test_without_the_positions_own_record_copying_goes_on_at_the_position(gone: str) -> None:
    """The last copy is of that record, which is gone from the source, and looks like a later one."""
    pair = Pair()
    for _ in range(4):
        pair.write(1, same=True)
    pair.write(4)
    pair.copy(pair.source[:3])
    if gone == "expired":
        pair.state.delete_records("s", 0, 3)
    else:
        del pair.state.partition("s", 0).log.batches[2]
    found = pair.find(3)
    assert (found.resume_offset, found.records, found.is_proven) == (3, 0, False)


def test_no_more_of_the_source_is_read_than_can_have_been_copied() -> None:
    """Another writer has emptied the remote partition and written to it."""
    pair = Pair()
    for _ in range(20):
        pair.write(20)
    pair.state.append("t", 0, [Record(b"foreign%d" % number) for number in range(50)])
    found = pair.find(10, batches=1)
    assert (found.resume_offset, found.is_proven) == (10, False)
    assert pair.read_to <= 10 + 50 + 20


def test_in_a_source_that_was_cleaned_behind_the_position_one_matching_record_proves_nothing() -> None:
    """The last copy was cleaned away, a later record looks just like it, and one between them was never copied."""
    pair = Pair()
    pair.write(2)
    pair.state.append("s", 0, [Record(b"x", timestamp_ms=NOW_MS)])
    pair.write(1)
    pair.state.append("s", 0, [Record(b"x", timestamp_ms=NOW_MS)])
    pair.copy(pair.source[:3])
    del pair.state.partition("s", 0).log.batches[1]
    found = pair.find(2)
    assert (found.resume_offset, found.is_proven) == (2, False)


def test_a_cleaned_copy_is_matched_by_its_last_record() -> None:
    pair = Pair()
    pair.write(30)
    pair.copy(pair.source[:20], batch=1)
    del pair.state.partition("t", 0).log.batches[5:18:2]
    found = pair.find(4)
    assert (found.resume_offset, found.is_proven) == (20, True)


def test_an_empty_copy_proves_nothing() -> None:
    pair = Pair()
    pair.write(9)
    pair.copy(pair.source[:8])
    pair.state.delete_records("t", 0, 8)
    found = pair.find(4)
    assert (found.resume_offset, found.is_proven, found.is_ambiguous) == (4, False, False)


def test_the_walk_ends_soon_behind_the_place_that_was_found() -> None:
    """The source goes on for millions of records; only the first few matter."""
    pair = Pair()
    for _ in range(5):
        pair.write(LOOK_AHEAD // 2)
    pair.copy(pair.source[:50])
    found = pair.find(10, batches=1)
    assert (found.resume_offset, found.is_ambiguous) == (50, False)
    assert pair.read_to <= 50 + LOOK_AHEAD + LOOK_AHEAD // 2


def test_a_batch_that_was_sent_twice_at_the_end_does_not_cause_a_read_of_the_whole_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "LOOK_FURTHER", 300)
    pair = Pair()
    for _ in range(30):
        pair.write(100)
    pair.copy(pair.source[:50])
    pair.copy(pair.source[46:50])
    found = pair.find(10, batches=1)
    assert (found.resume_offset, found.is_proven, found.is_ambiguous) == (50, True, False)
    assert pair.read_to <= 500


def test_many_more_records_may_be_copied_behind_the_position_than_are_compared() -> None:
    pair = Pair()
    for _ in range(40):
        pair.write(50)
    pair.copy(pair.source[:1900], batch=37)
    found = pair.find(10, batches=3)
    assert (found.resume_offset, found.records, found.is_proven) == (1900, 1890, True)


def test_a_damaged_read_of_the_target_counts_up_to_the_damage() -> None:
    pair = Pair()
    pair.write(9)
    pair.copy(pair.source[:8])
    planned, last = pair.plan("t", 0), LastRecords()
    second = len(pair.raw) // 2
    for at, bit in ((second + 8, 0x40), (second + 22, 0x08)):  # its length, and who has stamped it
        hurt = bytearray(pair.raw)
        hurt[at] ^= bit
        last.take(memoryview(hurt), planned.steps[:1])
        assert last.is_timed
    last.take(pair.raw, planned.steps[1:])
    assert len(last.fingerprints) == 4 + 4 + 4


@pytest.mark.parametrize(
    "other",
    [
        ReadRecord(5, 8, b"k", b"v", [("h", b"1")]),
        ReadRecord(5, 7, b"K", b"v", [("h", b"1")]),
        ReadRecord(5, 7, None, b"v", [("h", b"1")]),
        ReadRecord(5, 7, b"k", b"", [("h", b"1")]),
        ReadRecord(5, 7, b"k", b"v", []),
        ReadRecord(5, 7, b"k", b"v", [("h", None)]),
        ReadRecord(5, 7, b"kv", b"", [("h", b"1")]),
    ],
)
def test_any_difference_but_the_offset_tells_records_apart(other: ReadRecord) -> None:
    one = ReadRecord(5, 7, b"k", b"v", [("h", b"1")])
    assert fingerprint(one, timed=True) == fingerprint(one._replace(offset=99), timed=True)
    assert fingerprint(one, timed=True) != fingerprint(other, timed=True)
    assert (fingerprint(one, timed=False) == fingerprint(other, timed=False)) == (other.timestamp_ms == 8)
