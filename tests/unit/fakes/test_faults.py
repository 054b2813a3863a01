"""The faults between mm2py and the broker model strike where they say."""

from __future__ import annotations

import random

from mm2py.records.batch import crc_is_right, split
from tests.fakes.broker.record_batch import encode_records
from tests.fakes.faults import FaultSource


def test_a_flipped_bit_is_always_one_that_a_checksum_shows() -> None:
    batch = encode_records([(0, 1, b"key", b"value", ())])
    whole, cut = batch * 3, batch[:70]
    for seed in range(2_000):
        records = bytearray(whole + cut)
        FaultSource(random.Random(seed)).flip_bit(memoryview(records))
        hit = [at for at, byte in enumerate(records) if byte != (whole + cut)[at]]
        assert len(hit) == 1
        if hit[0] < len(whole):
            batches = list(split(memoryview(records)[: len(whole)]))
            assert [crc_is_right(each) for each in batches].count(False) == 1
