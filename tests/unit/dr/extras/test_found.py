"""Where the records begin and end that only the old side has, and how that is told."""

from __future__ import annotations

import pytest

from mm2py.dr.extras.found import ExtrasFound, OldSideFacts, PartitionExtras, judged
from mm2py.flow import parse_flow

FLOW = parse_flow("A->B")


@pytest.mark.parametrize(
    ("facts", "first", "lost", "deleted"),
    [
        (OldSideFacts(7, 0, 10), 7, None, None),
        (OldSideFacts(10, 0, 10), 10, None, None),
        (OldSideFacts(7, 0, 10, epoch_end=7), 7, None, None),
        (OldSideFacts(7, 0, 10, epoch_end=9), 7, None, None),
        (OldSideFacts(7, 0, 5), 5, (5, 7), None),
        (OldSideFacts(7, 0, 10, epoch_end=4), 4, (4, 7), None),
        (OldSideFacts(7, 9, 12), 9, None, (7, 9)),
        (OldSideFacts(7, 2, 5, is_anew=True), 2, (0, 7), None),
        (OldSideFacts(0, 0, 3, is_anew=True), 0, None, None),
    ],
    ids=["extras", "none", "epoch-ends-there", "epoch-goes-on", "cut-back", "diverged", "expired", "anew", "never"],
)
def test_extras_begin_behind_what_was_copied_or_where_the_old_side_was_cut_back(
    facts: OldSideFacts, first: int, lost: tuple[int, int] | None, deleted: tuple[int, int] | None
) -> None:
    found = judged("orders", 0, facts)
    assert (found.first, found.end, found.lost, found.deleted) == (first, facts.log_end, lost, deleted)
    assert found.has_gap == (lost is not None)


def test_each_case_is_told_in_words() -> None:
    found = ExtrasFound(
        FLOW,
        (
            PartitionExtras("a", 0, 7, 10, records=2),
            PartitionExtras("b", 0, 5, 5, lost=(5, 7)),
            PartitionExtras("c", 1, 9, 9, deleted=(7, 9)),
            PartitionExtras("d", 0, 1, 9, records=3, open_from=5),
            PartitionExtras("e", 0, 4, 8, records=4, unclear="the copy is gone"),
            PartitionExtras("f", 0, 4, 4),
        ),
    )
    assert found.lines == [
        "A has 9 record(s) that B never got:",
        "  a-0: 2 record(s) in 7 ... 9",
        "  b-0: gap: A was cut back, or its topic made anew. It has lost 5 ... 6, which B has",
        "  c-1: A has deleted 7 ... 8 itself",
        "  d-0: 3 record(s) in 1 ... 8; a transaction is open from 5 on",
        "  e-0: 4 record(s) in 4 ... 7; not known where they begin: the copy is gone",
    ]
    assert found.topics == ["a", "b", "d", "e"]
    assert ExtrasFound(FLOW, ()).lines == ["A has nothing that B has not, in 0 partition(s)."]
