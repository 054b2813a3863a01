"""``mm2py preview``: records before and after, and what a second run finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mm2py.records.batch import Record
from mm2py.transforms.chain import (
    DropRecord,
    InsertHeader,
    TopicChain,
    TransformFailed,
    TransformStep,
    UserFunction,
)
from mm2py.transforms.predicates import RecordIsTombstone
from mm2py.transforms.preview import lines_of, preview, summary_of

CHAIN = TopicChain(
    (TransformStep("i", InsertHeader("site", b"a")), TransformStep("f", DropRecord(), RecordIsTombstone()))
)
FUNCTION = TopicChain((TransformStep("u", UserFunction("/m.py", "f", "0", 1.0, 1 << 26)),))
RECORDS = [(0, Record(7, 5, b"k", b"v", [])), (3, Record(9, 6, None, None, []))]


@dataclass(frozen=True)
class Calling:
    function: Callable[[Record], Record | None]

    def call(self, function: Any, topic: str, partition: int, records: Sequence[Record]) -> Sequence[Record | None]:
        return [self.function(record) for record in records]


def test_a_preview_shows_what_changes_and_what_is_left_out() -> None:
    found = preview(CHAIN, RECORDS, remote_topic="A.orders")
    assert lines_of(found) == [
        "partition 0, offset 7",
        "  timestamp 5",
        "  key 'k'",
        "  value 'v'",
        "  headers []  ->  headers [site='a']",
        "partition 3, offset 9",
        "  timestamp 6",
        "  key null",
        "  value null",
        "  headers []",
        "  LEFT OUT",
    ]
    assert summary_of(found).startswith("2 record(s): 1 changed, 0 unchanged, 1 left out, 0 failed. A second run gave")


def test_a_record_that_fails_stops_no_other() -> None:
    def fail(record: Record) -> Record:
        if record.offset == 7:
            raise TransformFailed("It raised ValueError.", offset=7)
        return record

    calling = Calling(fail)
    found = preview(FUNCTION, RECORDS, remote_topic="A.orders", first=calling, second=calling)
    assert [one.failure for one in found] == ["It raised ValueError.", ""]
    assert "  FAILS: It raised ValueError." in lines_of(found)


def test_a_chain_that_counts_is_found_to_be_not_deterministic() -> None:
    seen: list[int] = []

    def count(record: Record) -> Record:
        seen.append(record.offset)
        return record._replace(value=b"%d" % len(seen))

    calling = Calling(count)
    found = preview(FUNCTION, RECORDS, remote_topic="A.orders", first=calling, second=calling)
    assert all(one.again for one in found)
    assert any("NOT DETERMINISTIC" in line for line in lines_of(found))
    assert "after a crash records are lost or repeated" in summary_of(found)
