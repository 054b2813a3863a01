"""How much a read asks for: so that what is merged becomes few large batches."""

from __future__ import annotations

import pytest

from mm2py.copying.copied_partition import CopiedPartition
from mm2py.copying.copier import Copier
from mm2py.copying.events import CopySettings
from mm2py.copying.planning.steps import Outgoing, Step, TargetRules, bytes_of_one
from mm2py.copying.positions import Position
from mm2py.copying.reading.planned_read import UnplannedRead
from mm2py.copying.reading.read_sizes import partition_bytes
from mm2py.kafka.port import FetchedPartition, ProducerIdentity
from mm2py.records.batch import NewRecord, build_batch, place, read_header
from tests.fakes.broker.record_batch import build_marker
from tests.fakes.read_settings import READ_SETTINGS
from tests.fakes.shell import DeafShell

MEBIBYTE = 1 << 20


@pytest.mark.parametrize(
    ("merged", "asked"),
    [
        (None, MEBIBYTE),
        (880_000, 880_000),
        (400_000, 800_000),
        (10_000, 1_040_000),
        (2 * MEBIBYTE, MEBIBYTE),
    ],
)
def test_a_read_brings_whole_merged_batches_and_is_never_much_smaller_than_the_setting(
    merged: int | None, asked: int
) -> None:
    """A remote topic may take batches of 10 KB at most: reads of that size would take ages."""
    assert partition_bytes(MEBIBYTE, merged, waits=False, is_far=False) == asked


def test_a_far_read_brings_no_more_than_shows_how_large_records_are() -> None:
    assert partition_bytes(MEBIBYTE, 880_000, waits=False, is_far=True) == 256 << 10


@pytest.mark.parametrize(("records", "size"), [(16, 1_000), (1, 200), (3, 20)])
def test_reads_of_a_partition_alone_become_large_batches_only(records: int, size: int) -> None:
    """The story: four mebibytes became four merged batches, and one of 33 KB, which cost as much as a large one."""
    log = log_of(records, size, 12 * MEBIBYTE)
    first, *others = reads(log, 4 * MEBIBYTE, times=3)
    sizes = [len(step.data) for step in first if isinstance(step, Outgoing)]
    assert sizes == [sizes[0]] * (len(sizes) - 1) + [sizes[-1]]
    assert sizes[-1] < sizes[0]
    for steps in others:
        assert [len(step.data) for step in steps if isinstance(step, Outgoing)] == sizes[:-1]


def test_a_merged_batch_that_a_marker_ended_says_nothing_about_the_size_of_full_ones() -> None:
    """Else reads would be half as large as they may be, and there would be twice as many."""
    log = log_of(16, 1_000, 6 * MEBIBYTE, marker_every=36)
    sizes = [sum(step.record_count for step in steps) for steps in reads(log, MEBIBYTE, times=5)]
    assert min(sizes) > 0.8 * MEBIBYTE / 1_050


def test_a_remote_topic_that_takes_small_batches_only_is_read_in_multiples_of_those() -> None:
    assert bytes_of_one(TargetRules(max_message_bytes=50_000), 1_050) == 49_342


def log_of(records: int, size: int, most: int, marker_every: int = 0) -> bytearray:
    """Return a log of equal batches, with markers between them if asked for."""
    one = build_batch([NewRecord(None, b"x" * size, 1_700_000_000_000)] * records)
    marker = bytearray(build_marker(commit=True, producer_id=1, producer_epoch=0, timestamp_ms=1_700_000_000_000))
    log, offset, number = bytearray(), 0, 0
    while len(log) < most:
        number += 1
        is_marker = marker_every and number % marker_every == 0
        batch, count = (marker, 1) if is_marker else (one, records)
        place(batch, offset, offset + count)
        log += batch
        offset += count
    return log


def reads(log: bytearray, most: int, *, times: int) -> list[list[Step]]:
    """Read a partition alone so often, and return what becomes of each read. A broker cuts the last batch of a read."""
    copier = Copier("t-0", Position(0), ProducerIdentity(7, 0, "t"), CopySettings(MEBIBYTE))
    part = CopiedPartition("t", "A.t", 0, copier, TargetRules(max_message_bytes=1_048_588), DeafShell())
    offset = at = 0
    found = []
    for _ in range(times):
        size = partition_bytes(most, part.reading.merged_bytes, waits=False, is_far=False)
        fetched = FetchedPartition("t", 0, 0, 10**9, 10**9, 0, memoryview(log)[at : at + size])
        read = UnplannedRead(part, offset, fetched, READ_SETTINGS, is_stripe=False)
        planned = read.plan(light=False)
        read.note(planned)
        found.append(planned.steps)
        while offset < planned.next_offset:
            header = read_header(memoryview(log)[at:])
            offset, at = header.next_offset, at + header.size_bytes
    return found
