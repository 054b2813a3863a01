"""Reads of a partition, whole and damaged, from a seed; and the comparison of two ways to plan them.

The compiled core and the pure modules must plan the same: same steps, same bytes, same faults. A seed makes a log and
what a copier asks of it; each number after it damages a read of that log in another way, mostly under right checksums.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from mm2py.compiled_core import Core
from mm2py.copying.planning.planner import plan
from mm2py.copying.planning.steps import (
    MERGE_ALL,
    MERGE_SMALL,
    MERGED_MAX_BYTES,
    PASS_ALL,
    MergeRule,
    Outgoing,
    Plan,
    TargetRules,
)
from mm2py.records.batch import HEADER_BYTES, build_batch, crc_is_right, place, split
from mm2py.records.batch import NewRecord as Record
from tests.fakes.broker.record_batch import build_marker

LOG_APPEND_TIME, TRANSACTIONAL, DELETE_HORIZON = 0x08, 0x10, 0x40
KINDS: Final = ["plain"] * 8 + ["bits", "thinned", "appended", "marker", "negative", "text", "many"]
EDGES: Final = (0, 1, 2, 6, 7, 0x7F, 0x80, 0xFE, 0xFF)


@dataclass(frozen=True)
class Read:
    """One read of a partition, and what is asked of it: the arguments of ``plan``."""

    batches: tuple[bytes, ...]
    wanted_offset: int
    read_committed: bool
    aborted: tuple[tuple[int, int], ...]
    rules: TargetRules
    merging: MergeRule
    cut_until: int = -1
    sent_before: tuple[tuple[int, int], ...] = ()

    def planned(self, core: Core | None) -> Plan:
        """Plan it from a buffer of its own, which must stay as it is."""
        data = b"".join(self.batches)
        records = memoryview(bytearray(data))
        result = plan(
            records,
            wanted_offset=self.wanted_offset,
            read_committed=self.read_committed,
            aborted=self.aborted,
            rules=self.rules,
            merging=self.merging,
            cut_until=self.cut_until,
            sent_before=self.sent_before,
            core=core,
        )
        assert records == data, "what was read was written to"
        return result


def difference(read: Read, core: Core) -> str:
    """Return how the plan of the core differs from that of the pure modules; empty if it does not."""
    theirs, ours = read.planned(core), read.planned(None)
    if theirs == ours and kinds_of(theirs) == kinds_of(ours):
        return ""
    return f"{read}\nwith the core:    {theirs}\nwithout the core: {ours}"


def kinds_of(result: Plan) -> list[Any]:
    return [(type(step), type(step.data) if isinstance(step, Outgoing) else None) for step in result.steps]


def read_of(seed: int) -> Read:
    """Return a read of an undamaged log."""
    rng = random.Random(seed)
    codecs = rng.choice([[0], [0], [0, 0, 0, rng.randrange(5)], [rng.randrange(5)]])
    at, epoch, batches = rng.choice([0, 0, 5, 10**15]), 3, []
    begin = at
    for _ in range(rng.randint(1, 12)):
        at += rng.choice([0] * 9 + [1, 1000])
        epoch += rng.choice([0] * 9 + [1])
        batch = _batch(rng, rng.choice(KINDS), at, rng.choice(codecs))
        struct.pack_into(">i", batch, 12, epoch)
        batches.append(bytes(batch))
        at += 1 + int.from_bytes(batch[23:27], "big")
    rules = TargetRules(
        max_message_bytes=rng.choice([1 << 20, 1 << 20, 1_000, 300]),
        compression=rng.choice([None, None, None, rng.randrange(5)]),
        refuses_null_keys=rng.random() < 0.1,
        merged_max_bytes=rng.choice([MERGED_MAX_BYTES, 1_000, 300]),
        decode_budget_bytes=rng.choice([8 << 20, 500]),
    )
    read = Read(
        tuple(batches),
        rng.choice([begin, begin, rng.randint(max(0, begin - 3), at)]),
        rng.random() < 0.5,
        rng.choice([(), (), ((9, rng.randint(begin, at)),)]),
        rules,
        rng.choice([MERGE_ALL, MERGE_ALL, MERGE_SMALL, PASS_ALL, MergeRule(200, 100, "tests", 4)]),
        rng.choice([-1] * 5 + [rng.randint(begin, at)]),
    )
    if rng.random() < 0.1:
        sent = [
            (step.first_offset, step.next_offset) for step in read.planned(None).steps if isinstance(step, Outgoing)
        ]
        read = replace(read, sent_before=tuple(sent[rng.randint(0, 2) :]), merging=MERGE_ALL)
    return read


def _batch(rng: random.Random, kind: str, at: int, codec: int) -> bytearray:
    if kind == "marker":
        batch = bytearray(build_marker(commit=rng.random() < 0.5, producer_id=9, producer_epoch=0, timestamp_ms=1))
        place(batch, at, at + 1)
        return batch
    count = rng.randint(60, 200) if kind == "many" else rng.randint(1, 3)
    records = [_record(rng, kind) for _ in range(count)]
    deltas = [2 * n for n in range(count)] if kind == "thinned" else range(count)
    batch = build_batch(records, codec=codec, deltas=deltas)
    if kind == "appended":
        batch[22] |= LOG_APPEND_TIME
    elif kind == "bits":
        batch[22] |= rng.choice([TRANSACTIONAL, DELETE_HORIZON, TRANSACTIONAL | DELETE_HORIZON])
        struct.pack_into(">q", batch, 43, rng.choice([9, 10]))
    place(batch, at, at + deltas[-1] + 1)
    return batch


def _record(rng: random.Random, kind: str) -> Record:
    headers = [(rng.choice(["", "h", "é"]), _data(rng)) for _ in range(rng.choice([0, 0, 0, 1, 3]))]
    if kind == "text":
        headers.append(("\udcff", b"no text"))
    times = [0, 1, 2**62, 2**63 - 1, rng.randrange(2**45)] + ([-1, -(2**40)] if kind == "negative" else [])
    return Record(_data(rng), _data(rng), rng.choice(times), headers)


def _data(rng: random.Random) -> bytes | None:
    return rng.choice([None, b"", b"k", rng.randbytes(rng.randrange(130))])


def damaged(read: Read, seed: str) -> Read:
    """Return the read with some bytes changed, taken out or put in."""
    rng = random.Random(seed)
    batches = [bytearray(batch) for batch in read.batches]
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        batch = rng.choice(batches)
        if len(batch) <= HEADER_BYTES:
            continue
        at = rng.randrange(len(batch)) if rng.random() < 0.4 else rng.randrange(HEADER_BYTES, len(batch))
        match rng.randrange(6):
            case 0:
                batch[at] ^= 1 << rng.randrange(8)
            case 1 | 2:
                batch[at] = rng.choice(EDGES)
            case 3:
                batch[at] = rng.randrange(256)
            case 4:
                del batch[at : at + rng.randint(1, 3)]
            case _:
                batch[at:at] = rng.choice([b"\x00", b"\x80", b"\x80\x00", rng.randbytes(rng.randint(1, 3))])
    if rng.random() < 0.9:
        for batch in batches:
            _mend(batch, keeps_length=rng.random() < 0.05)
    if rng.random() < 0.1:
        del batches[-1][rng.randrange(len(batches[-1])) :]
    return replace(read, batches=tuple(map(bytes, batches)))


def _mend(batch: bytearray, *, keeps_length: bool) -> None:
    """Let length and checksum fit the batch again."""
    if len(batch) < HEADER_BYTES:
        return
    if not keeps_length:
        struct.pack_into(">i", batch, 8, len(batch) - 12)
    base_offset = struct.unpack_from(">q", batch)[0]
    place(batch, base_offset, base_offset + struct.unpack_from(">i", batch, 23)[0] + 1)


def compare(seeds: range, *, each: int, core: Core, tell: Callable[[int], None] = lambda _: None) -> Iterator[str]:
    """Plan the read of each seed, and ``each`` damaged ones, in both ways, and yield what differs."""
    for seed in seeds:
        read = read_of(seed)
        assert all(crc_is_right(batch) for batch in split(memoryview(b"".join(read.batches))))
        if told := difference(read, core):
            yield f"seed {seed}: {told}"
        for number in range(each):
            if told := difference(damaged(read, f"{seed}/{number}"), core):
                yield f"seed {seed}, damage {number}: {told}"
        tell(seed)
