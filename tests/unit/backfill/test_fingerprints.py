"""Fingerprints of records: other content has another one, and the compiled core makes the same as the pure modules."""

from __future__ import annotations

import struct
import tracemalloc
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.backfill.verifying.fingerprints import Fingerprints, fingerprint, fingerprints_of
from mm2py.compiled_core import CHOICE, CORE, Core
from mm2py.copying.planning.steps import Outgoing
from mm2py.errors import Mm2Error
from mm2py.records.batch import CODEC_MASK, HEADER_BYTES, NewRecord, build_batch, crc_is_right, read_records
from tests.fuzz.reads import damaged, read_of
from tests.unit.copying.planning.test_repack import ROWS, Row, batch_of

CONTENTS = [
    (None, None, ()),
    (b"", None, ()),
    (None, b"", ()),
    (b"ab", b"c", ()),
    (b"a", b"bc", ()),
    (b"a", b"b", (("c", None),)),
    (b"a", b"b", (("c", b""),)),
    (b"a", b"b", (("", b"c"),)),
    (b"a", b"b", (("c", None), ("", None))),
    (b"a", b"b", (("\udcff", None),)),
]


def test_other_content_has_another_fingerprint() -> None:
    found = [fingerprint(*content) for content in CONTENTS]
    assert len(set(found)) == len(CONTENTS)
    assert found == [fingerprint(*content) for content in CONTENTS]
    assert max(found) < 1 << 64


@pytest.fixture(scope="module", name="core")
def compiled_core() -> Core:
    if CORE is None:
        pytest.skip(str(CHOICE))
    return CORE


def by_python(*batches: bytes) -> tuple[bytes, bytes] | None:
    """Return what ``Core.fingerprints`` does, with ``read_records``; None if that refuses a batch."""
    found = Fingerprints(array("q"), array("Q"))
    try:
        records = [one for batch in batches for one in read_records(batch)]
    except Mm2Error:
        return None
    for one in records:
        found.timestamps.append(one.timestamp_ms)
        found.contents.append(fingerprint(one.key, one.value, one.headers))
    return found.timestamps.tobytes(), found.contents.tobytes()


@given(st.lists(ROWS, min_size=1, max_size=4))
def test_the_core_takes_every_plain_batch_that_a_writer_writes(core: Core, parts: list[list[Row]]) -> None:
    batches = [batch_of(rows, 40) for rows in parts]
    found = core.fingerprints(batches)
    assert found is not None
    assert found == by_python(*batches)


@given(st.lists(ROWS, min_size=1, max_size=4), st.sampled_from([0, 1, 4]))
def test_the_core_and_aiokafka_make_the_same(core: Core, parts: list[list[Row]], codec: int) -> None:
    records = [[NewRecord(key, value, time, list(headers)) for time, key, value, headers in rows] for rows in parts]
    steps = [Outgoing.passed(memoryview(build_batch(some, codec=codec))) for some in records]
    assert fingerprints_of(steps, core) == fingerprints_of(steps, None)


@pytest.mark.parametrize("part", range(3))
def test_the_core_takes_what_is_damaged_as_python_does_or_leaves_it_to_it(core: Core, part: int) -> None:
    taken = 0
    for seed in range(part * 60, part * 60 + 60):
        read = read_of(seed)
        for one in (read, *(damaged(read, f"{seed} {number}") for number in range(20))):
            for batch in one.batches:
                if len(batch) < HEADER_BYTES or batch[22] & CODEC_MASK or not crc_is_right(batch):
                    continue
                found = core.fingerprints([batch])
                if found is not None:
                    taken += 1
                    assert found == by_python(batch), batch.hex()
    assert taken > 1_000


@pytest.mark.parametrize("count", [2, 1_000, 2**31 - 1])
def test_a_record_count_that_cannot_be_true_costs_no_memory(core: Core, count: int) -> None:
    batch = build_batch([NewRecord(b"k", b"v", 1)])
    struct.pack_into(">i", batch, 57, count)
    tracemalloc.start()
    assert core.fingerprints([batch]) is None
    assert tracemalloc.get_traced_memory()[1] < 10_000
    tracemalloc.stop()
