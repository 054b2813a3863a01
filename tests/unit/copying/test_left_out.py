"""A source without the records of some producers: their batches arrive empty, and everything else as it is."""

from __future__ import annotations

from mm2py.copying.planning.planner import plan
from mm2py.copying.planning.steps import Dropped, Outgoing, TargetRules
from mm2py.copying.reading.left_out import emptied
from mm2py.kafka.port import FetchedPartition
from mm2py.records.batch import NewRecord, build_batch, place, stamp

REPLAYED, OTHER = 41, 7


def batch(producer_id: int, first: int, count: int) -> bytearray:
    made = build_batch([NewRecord(None, f"{first + at}".encode(), 1) for at in range(count)])
    stamp(made, producer_id, 0, 0)
    place(made, first, first + count)
    made[12:16] = (9).to_bytes(4, "big")
    return made


def read(*batches: bytes | bytearray) -> FetchedPartition:
    return FetchedPartition("orders", 0, 0, records=memoryview(bytearray().join(batches)))


def offsets(part: FetchedPartition) -> list[tuple[str, int, int]]:
    planned = plan(
        part.records, wanted_offset=0, read_committed=True, aborted=(), rules=TargetRules(max_message_bytes=1 << 20)
    )
    assert planned.fault is None
    return [
        ("copied" if isinstance(one, Outgoing) else one.reason, one.next_offset, one.leader_epoch)
        for one in planned.steps
        if isinstance(one, (Outgoing, Dropped))
    ]


def test_records_that_were_replayed_are_not_copied_and_copying_goes_on_behind_them() -> None:
    found = emptied(read(batch(OTHER, 0, 2), batch(REPLAYED, 2, 3), batch(OTHER, 5, 1)), {REPLAYED})
    assert offsets(found) == [("copied", 2, 9), ("empty", 5, 9), ("copied", 6, 9)]


def test_a_batch_that_is_cut_at_the_end_of_a_read_or_damaged_stays_as_it_is() -> None:
    cut = batch(REPLAYED, 2, 3)[:-4]
    found = emptied(read(batch(REPLAYED, 0, 2), cut), {REPLAYED})
    assert bytes(found.records).endswith(bytes(cut))
    damaged = batch(REPLAYED, 0, 2)
    damaged[-1] ^= 1
    assert bytes(emptied(read(damaged), {REPLAYED}).records) == bytes(damaged)


def test_without_such_a_batch_nothing_is_copied_in_memory() -> None:
    part = read(batch(OTHER, 0, 2))
    assert emptied(part, {REPLAYED}).records is part.records
