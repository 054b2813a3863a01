"""Batches of a topic with transforms: what comes out of them is planned as if the log had been cleaned."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest

from mm2py.copying.planning.planner import plan
from mm2py.copying.planning.steps import Dropped, Outgoing, Plan, Tally, TargetRules
from mm2py.copying.planning.transforming import PartitionTransforms
from mm2py.copying.recovery import LastWriter, SourceWalk, Tail
from mm2py.offsets.runs import NewRuns
from mm2py.records.batch import NewRecord, Record, build_batch, each_record, place, stamp
from mm2py.records.compression import Codec
from mm2py.transforms.chain import (
    DropHeaders,
    DropRecord,
    InsertHeader,
    TopicChain,
    TransformFailed,
    TransformStep,
    UserFunction,
)
from mm2py.transforms.predicates import HasHeaderKey, RecordIsTombstone

RULES = TargetRules(max_message_bytes=1 << 20)
TOMBSTONES = TransformStep("f", DropRecord(), RecordIsTombstone())
SITE = TransformStep("i", InsertHeader("site", b"a"))


def transforms(*steps: TransformStep, functions: Functions | None = None) -> PartitionTransforms:
    return PartitionTransforms(TopicChain(steps), "A.orders", 0, functions)


@dataclass(frozen=True)
class Functions:
    """Calls a function in this process."""

    function: Callable[[Record], Record | None]

    def call(
        self, function: UserFunction, topic: str, partition: int, records: Sequence[Record]
    ) -> Sequence[Record | None]:
        return [self.function(record) for record in records]


def calling(function: Callable[[Record], Record | None]) -> PartitionTransforms:
    step = TransformStep("u", UserFunction("/m.py", "f", "0", 1.0, 1 << 26))
    return transforms(step, functions=Functions(function))


def batch(base: int, values: Sequence[bytes | None], codec: int = Codec.NONE, deltas: Sequence[int] = ()) -> bytearray:
    """Return a batch of a log, with a record for each value."""
    at = list(deltas or range(len(values)))
    records = [NewRecord(b"k%d" % (base + delta), value, 1000 + delta) for delta, value in zip(at, values, strict=True)]
    made = build_batch(records, codec=codec, deltas=at)
    place(made, base, base + at[-1] + 1)
    return made


def planned(log: bytes | bytearray, by: PartitionTransforms | None, wanted: int = 0, **more: object) -> Plan:
    return plan(
        memoryview(bytearray(log)),
        wanted_offset=wanted,
        read_committed=True,
        aborted=(),
        rules=RULES,
        transforms=by,
        **more,  # type: ignore[arg-type]
    )


def copied(found: Plan) -> list[Record]:
    """Return the records that go out, with their source offsets."""
    records = []
    for step in found.steps:
        if isinstance(step, Outgoing):
            starts = [*step.runs(), (step.record_count, 0)]
            for (at, offset), (end, _) in pairwise(starts):
                some = list(each_record(step.data))[at:end]
                records += [one._replace(offset=offset + index) for index, one in enumerate(some)]
    return records


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_header_is_added_and_all_else_stays(codec: Codec) -> None:
    log = batch(7, [b"a", None, b"c"], codec)
    before, found = planned(log, None, 7), planned(log, transforms(SITE), 7)
    assert copied(found) == [one._replace(headers=[("site", b"a")]) for one in copied(before)]
    (step,) = found.steps
    assert isinstance(step, Outgoing)
    assert (step.first_offset, step.next_offset, step.reason, step.filtered) == (7, 10, "transform", 0)
    assert step.data[22] & 7 == codec, "its codec stays"


def test_dropped_records_leave_holes_and_are_counted() -> None:
    found = planned(batch(0, [None, b"b", None, b"d", None]), transforms(TOMBSTONES))
    (step,) = found.steps
    assert isinstance(step, Outgoing)
    assert [one.offset for one in copied(found)] == [1, 3]
    assert (step.first_offset, step.next_offset, found.next_offset) == (1, 5, 5), "the position passes the last one"
    tally = Tally()
    tally.count(step)
    assert (tally.records, tally.dropped, tally.last_mode) == (2, {"filtered": 3}, "transform")


def test_a_batch_of_which_nothing_is_left_is_passed_over() -> None:
    log = batch(0, [b"a"]) + batch(1, [None, None]) + batch(3, [b"d"])
    found = planned(log, transforms(TOMBSTONES))
    assert found.steps[1] == Dropped(3, 2, "filtered", found.steps[0].leader_epoch)
    assert [one.offset for one in copied(found)] == [0, 3]
    assert found.next_offset == 4


def test_a_copy_that_begins_in_a_batch_does_not_transform_what_stands_before() -> None:
    seen: list[int] = []

    def note(record: Record) -> Record:
        seen.append(record.offset)
        return record

    found = planned(batch(0, [b"a", b"b", b"c"]), calling(note), 1)
    assert (seen, [one.offset for one in copied(found)]) == ([1, 2], [1, 2])


def test_a_record_that_fails_stops_behind_those_before_it() -> None:
    def refuse(record: Record) -> Record | None:
        if record.value == b"bad":
            raise TransformFailed("It raised ValueError.", offset=record.offset)
        return record

    found = planned(batch(4, [b"a", b"b", b"bad", b"d"]), calling(refuse), 4)
    assert [one.offset for one in copied(found)] == [4, 5]
    assert found.next_offset == 6
    assert found.fault is not None
    assert (found.fault.kind, found.fault.offset, found.fault.next_offset) == ("transform failed", 6, 7)
    again = planned(batch(4, [b"a", b"b", b"bad", b"d"]), calling(refuse), 6)
    assert (again.steps, again.fault and again.fault.offset) == ([], 6), "it is met again, not left out"


def test_functions_of_users_never_run_on_the_event_loop() -> None:
    log = batch(0, [b"a"])
    assert planned(log, calling(lambda record: record), light=True).is_heavy
    assert not planned(log, transforms(SITE), light=True).is_heavy


def test_what_a_chain_does_to_keys_and_values_reaches_the_batch() -> None:
    changed = planned(batch(0, [b"a", b"b"]), calling(lambda one: one._replace(key=None, value=one.value or b"")))
    assert [(one.key, one.value) for one in copied(changed)] == [(None, b"a"), (None, b"b")]


@pytest.mark.parametrize("seed", range(40))
def test_recovery_counts_what_comes_out_and_the_ledger_translates_both_ways(seed: int) -> None:
    """A crash at any record: as many as the target has are counted, and copying goes on behind them."""
    rng = random.Random(seed)
    log, offset = bytearray(), 0
    for _ in range(rng.randint(1, 8)):
        deltas = sorted(rng.sample(range(12), rng.randint(1, 8)))
        values = [rng.choice([None, b"v%d" % rng.randrange(9)]) for _ in deltas]
        log += batch(offset, values, rng.choice([Codec.NONE, Codec.GZIP]), deltas)
        offset += deltas[-1] + 1 + rng.choice([0, 0, 3])
    by = transforms(SITE, TOMBSTONES, TransformStep("n", DropRecord(), HasHeaderKey("none")))
    whole = planned(log, by)
    out = copied(whole)
    assert all(one.value is not None and one.headers == [("site", b"a")] for one in out)

    target, places, written = bytearray(), NewRuns(), 0
    for step in whole.steps:
        if isinstance(step, Outgoing):
            data = bytearray(step.data)
            stamp(data, producer_id=7, producer_epoch=0, base_sequence=written)
            place(data, written, written + step.record_count)
            target += data
            places.add_batch([*step.runs()], written, step.record_count)
            written += step.record_count
    runs = [(run.source_offset, run.target_offset, run.record_count) for run in places.runs]
    there = {source + n: at + n for source, at, length in runs for n in range(length)}
    assert there == {one.offset: index for index, one in enumerate(out)}, "each record, and none that was dropped"

    for stored in range(1, written + 1):
        tail = Tail(0, LastWriter(7, 0, 0), fence_epoch=None, end=stored)
        tail.take(memoryview(target), high_watermark=stored)
        walk = SourceWalk(0, -1, stored)
        walk.take(whole.steps)
        assert walk.is_over
        rest = copied(planned(log, by, walk.resume_offset))
        assert [one.offset for one in rest] == [one.offset for one in out[stored:]], "none lost, none repeated"
        if tail.stored == stored:
            assert walk.is_proven_by(tail)


def test_records_that_were_left_out_are_no_holes_for_recovery_and_removed_ones_are() -> None:
    by = transforms(TOMBSTONES)
    log = batch(0, [b"a", None, b"c"]) + batch(3, [None, None]) + batch(5, [b"f", None])
    walk = SourceWalk(0, -1, 3)
    assert walk.take(planned(log, by).steps)
    assert (walk.resume_offset, walk.is_dense, walk.has_holes) == (7, True, False)
    cleaned = batch(0, [b"a", None, b"c"]) + batch(3, [None, None]) + batch(6, [b"f", None])
    walk = SourceWalk(0, -1, 3)
    assert walk.take(planned(cleaned, by).steps)
    assert (walk.is_dense, walk.has_holes) == (False, True)


@pytest.mark.parametrize("seed", range(30))
def test_records_whose_headers_alone_change_come_out_as_if_they_were_decoded(seed: int) -> None:
    """All but the headers is copied as bytes; a chain with a function that changes nothing decodes every record."""
    rng = random.Random(seed)
    records = [
        NewRecord(
            rng.choice([None, b"", rng.randbytes(rng.randint(1, 200))]),
            rng.choice([None, b"", rng.randbytes(rng.randint(1, 20_000))]),
            rng.choice([1000, 0, 1 << 50]) + rng.randint(-900, 900) * rng.randint(0, 1),
            rng.choice([(), (("drop", b"1"), ("h", None)), (("h", b""), ("\udcff", b"x" * 200), ("drop", None))]),
        )
        for _ in range(rng.randint(1, 40))
    ]
    deltas = sorted(rng.sample(range(300), len(records)))
    log = build_batch(records, codec=rng.choice([Codec.NONE, Codec.ZSTD]), deltas=deltas)
    place(log, 1 << 40, (1 << 40) + deltas[-1] + 1)
    if rng.random() < 0.3:
        log[22] |= 8  # log append time
        place(log, 1 << 40, (1 << 40) + deltas[-1] + 1)
    steps = (
        SITE,
        TransformStep("d", DropHeaders(frozenset({"drop"}))),
        TransformStep("f", DropRecord(), HasHeaderKey("\udcff"), negate=bool(seed % 2)),
        TOMBSTONES,
    )
    wanted = (1 << 40) + rng.choice([0, deltas[len(deltas) // 2]])
    same = TransformStep("u", UserFunction("/m.py", "f", "0", 1.0, 1 << 26))
    fast = planned(log, transforms(*steps), wanted)
    slow = planned(log, transforms(*steps, same, functions=Functions(lambda record: record)), wanted)
    assert [step[:5] + step[6:] for step in fast.steps] == [step[:5] + step[6:] for step in slow.steps]
    assert copied(fast) == copied(slow)
