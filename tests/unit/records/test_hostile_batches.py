"""What a hostile producer may send costs no more than in proportion to its size, and to what a batch may hold."""

from __future__ import annotations

import tracemalloc
import zlib
from typing import Any

import pytest

from mm2py.records import compression
from mm2py.records.batch import NewRecord, build_batch, each_record, read_records
from mm2py.records.compression import (
    LIGHT_WORK_BYTES,
    RECORD_WORK_BYTES,
    RECORDS_MAX,
    WHOLE_BUDGET,
    BatchOverBudget,
    Codec,
    CompressedDataCorrupt,
    DecodeBudget,
    DecompressionBomb,
    decompress,
)
from tests.fakes.hostile_batches import HOSTILE, batch_of_tiny_records, gzip_member, tiny_records

SIZE = 1 << 16


class _Counted:
    """zlib's decompressor, counting the bytes that it is given and that it copies behind a member's end."""

    bytes_seen = 0

    def __init__(self, wbits: int) -> None:
        self._real = _REAL(wbits=wbits)

    def decompress(self, data: memoryview, max_length: int) -> bytes:
        plain = self._real.decompress(data, max_length)
        type(self).bytes_seen += len(data) + len(self._real.unused_data)
        return plain

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


_REAL = zlib.decompressobj


def bytes_seen(data: bytes, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(compression.zlib, "decompressobj", _Counted)
    _Counted.bytes_seen = 0
    decompress(Codec.GZIP, data)
    return _Counted.bytes_seen


@pytest.mark.parametrize("content", [b"", b"x", bytes(300), bytes(range(256)) * 20])
def test_gzip_takes_time_in_proportion_to_its_bytes_whatever_its_members(
    content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The story: each of 50,000 members of one byte was given all that follows. 8 MB froze a worker for minutes."""
    member = gzip_member(content)
    small, large = (bytes_seen(member * (times * SIZE // len(member)), monkeypatch) for times in (1, 8))
    assert large < 9 * small


@pytest.mark.parametrize("sizes", [(1, 5_000, 1), (5_000, 1, 70_000, 1), (1, 1, 1_023, 1_024, 1_025, 300_000)])
def test_members_of_all_sizes_are_read_as_one(sizes: tuple[int, ...]) -> None:
    contents = [bytes(at * number % 251 for at in range(size)) for number, size in enumerate(sizes, 3)]
    data = b"".join(map(gzip_member, contents))
    assert decompress(Codec.GZIP, data) == b"".join(contents)
    with pytest.raises(CompressedDataCorrupt, match="ends before its last block"):
        decompress(Codec.GZIP, data[:-1])
    with pytest.raises(DecompressionBomb):
        decompress(Codec.GZIP, data, max_bytes=sum(sizes) - 1)
    assert len(decompress(Codec.GZIP, data, max_bytes=sum(sizes))) == sum(sizes)


@pytest.mark.parametrize("name", HOSTILE)
def test_no_codec_takes_memory_out_of_proportion(name: str) -> None:
    codec, make = HOSTILE[name]
    for times in (1, 4):
        data = make(times * SIZE)
        tracemalloc.start()
        try:
            held = len(decompress(codec, data, max_bytes=4 << 20))
        except (DecompressionBomb, CompressedDataCorrupt):
            held = 4 << 20
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < 3 * held + 10 * len(data), f"{name}: {peak} bytes for {len(data)}"


def test_a_batch_is_decoded_up_to_its_budget_and_no_further() -> None:
    batch = batch_of_tiny_records(1_000)
    size = len(tiny_records(1_000))
    fits = DecodeBudget(input_bytes=len(batch), output_bytes=size, records=1_000)
    assert len(read_records(batch, fits)) == 1_000
    for over in (
        DecodeBudget(input_bytes=len(batch) - 62),
        DecodeBudget(output_bytes=size - 1),
        DecodeBudget(records=999),
    ):
        with pytest.raises(BatchOverBudget):
            each_record(batch, over)


def test_what_is_decoded_on_the_event_loop_is_a_budget_of_its_own() -> None:
    assert DecodeBudget().within(LIGHT_WORK_BYTES) == DecodeBudget(
        LIGHT_WORK_BYTES,
        LIGHT_WORK_BYTES,
        LIGHT_WORK_BYTES // RECORD_WORK_BYTES,
        LIGHT_WORK_BYTES // RECORD_WORK_BYTES,
    )
    with pytest.raises(BatchOverBudget):
        DecodeBudget().within(-1).check(0, 0)


def test_records_are_made_one_at_a_time() -> None:
    batch = batch_of_tiny_records(100_000)
    tracemalloc.start()
    try:
        count = sum(1 for _ in each_record(batch))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 100_000
    assert peak < 4 * len(tiny_records(100_000))


def test_more_than_a_million_records_in_one_batch_are_not_decoded() -> None:
    with pytest.raises(BatchOverBudget, match=r"A batch of 1048577 records has more than the 1048576 that are decoded"):
        each_record(batch_of_tiny_records(RECORDS_MAX + 1))


def test_headers_have_a_limit_too() -> None:
    """An empty header takes two bytes, nothing when compressed, and 70 bytes and some microseconds once it is read."""
    record = NewRecord(None, b"value", 1_000, [("", None)] * 3_000)
    batch = build_batch([record] * 10, codec=Codec.ZSTD)
    assert len(batch) < 1_000
    assert len(read_records(batch)) == 10
    with pytest.raises(BatchOverBudget, match="more than the 29999 headers"):
        read_records(batch, DecodeBudget(headers=29_999))
    assert WHOLE_BUDGET.within(3_200).headers == 100
