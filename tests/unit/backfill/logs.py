"""Two logs of made-up records: batches with real bytes, as a fetch brings them, and the runs between them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from mm2py.copying.planning.planner import plan
from mm2py.copying.planning.steps import PASS_ALL, MergeRule, Step, TargetRules
from mm2py.offsets.runs import NewRuns, Run
from mm2py.records.batch import NewRecord, build_batch

Content = NewRecord | None
"""A record, or an offset that holds none."""


def batches(first_offset: int, contents: Sequence[Content], sizes: Iterable[int], *, codec: int = 0) -> bytearray:
    """Return a log: batches of the given numbers of records, none across an offset without a record."""
    found = bytearray()
    some: list[NewRecord] = []
    start = first_offset
    left = iter(sizes)
    size = next(left, 1)

    def close() -> None:
        nonlocal some, size
        if some:
            batch = build_batch(some, codec=codec)
            struct.pack_into(">q", batch, 0, start)
            found.extend(batch)
            some, size = [], next(left, 1)

    for offset, content in enumerate(contents, first_offset):
        if content is None:
            close()
            continue
        if len(some) >= size:
            close()
        if not some:
            start = offset
        some.append(content)
    close()
    return found


def steps_of(log: bytes | bytearray, wanted_offset: int, merging: MergeRule = PASS_ALL) -> list[Step]:
    """Return what ``plan`` makes of a log."""
    planned = plan(
        memoryview(bytearray(log)),
        wanted_offset=wanted_offset,
        read_committed=False,
        aborted=(),
        rules=TargetRules(max_message_bytes=1 << 30),
        merging=merging,
    )
    assert planned.fault is None, planned.fault
    return planned.steps


def runs_of(pairs: Iterable[tuple[int, int]]) -> tuple[Run, ...]:
    """Return the runs of pairs of offsets."""
    runs = NewRuns()
    for source_offset, target_offset in pairs:
        runs.add(source_offset, target_offset, 1)
    return tuple(runs.runs)
