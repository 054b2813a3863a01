"""Merges several batches into one: by the compiled core, or record by record. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from mm2py.compiled_core import Core
from mm2py.copying.planning.steps import GROWTH_BYTES, Merged, decompressed, most_merged_bytes
from mm2py.records.batch import HEADER_BYTES, assemble, read_header
from mm2py.records.compression import Codec, CompressedDataCorrupt, DecompressionBomb


def merge(
    batches: Sequence[memoryview | bytearray], codec: int, *, as_codec: int, max_bytes: int, core: Core | None = None
) -> Merged:
    """Merge the first of ``batches``, in order, into one batch: at least two, and as many as fit.

    The new batch ends before a batch that cannot be taken apart. Such a batch is better passed unchanged, and the
    target's broker judges it. A batch that aiokafka's classes would change counts as such, too: one with header keys
    that are not UTF-8, or with a first timestamp below 0, which aiokafka's builder takes for no timestamp.

    Args:
        batches: whole batches of magic 2, of data, with create times, checked, all compressed with ``codec``.
        as_codec: how the new batch is compressed.
        max_bytes: if ``batches`` are compressed, the most that the new batch may hold before compression. If they are
            not, the caller knows their size before.
        core: merges them if it can. The result is the same.
    """
    if core is not None:
        merged = _merged_by_core(core, batches, codec, max_bytes)
        if merged is not None:
            return _compressed(merged, as_codec)
    from mm2py.copying.planning.record_merge import merge_records  # noqa: PLC0415  (aiokafka slows the start down)

    return _compressed(merge_records(batches, codec, max_bytes=max_bytes), as_codec)


def _merged_by_core(core: Core, batches: Sequence[memoryview | bytearray], codec: int, max_bytes: int) -> Merged | None:
    """Make one plain batch as ``merge`` does, or return None if it must be done record by record."""
    if codec == Codec.NONE:
        data = core.merge_batches(batches)
        return None if data is None else Merged(data, len(batches), sum(map(len, batches)))
    room = max_bytes - HEADER_BYTES
    opened: list[bytearray] = []
    try:
        for batch in batches:
            plain = decompressed(batch, codec, room)
            room -= len(plain) - HEADER_BYTES + GROWTH_BYTES * read_header(plain).record_count
            opened.append(plain)
    except (DecompressionBomb, CompressedDataCorrupt):
        room -= most_merged_bytes(batch, room)
    if len(opened) < 2:
        return None
    data = core.merge_batches(opened)
    return None if data is None else Merged(data, len(opened), max_bytes - room)


def _compressed(merged: Merged, codec: int) -> Merged:
    """Compress a merged batch."""
    if codec == Codec.NONE or merged.data is None:
        return merged
    header = read_header(merged.data)
    compressed = assemble(
        memoryview(merged.data)[HEADER_BYTES:],
        codec=codec,
        record_count=header.record_count,
        base_timestamp_ms=header.base_timestamp_ms,
        max_timestamp_ms=header.max_timestamp_ms,
    )
    return merged._replace(data=compressed)
