"""Where an offset is exactly on the other cluster, and which offsets have no exact place."""

from __future__ import annotations

from typing import Any

import pytest

from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.offsets.runs import Entry, Hole, HoleCause, Run
from mm2py.relocate.placing import TwoLogs, place_exactly
from tests.fakes.ledger_topic import chunk


def ledger(*entries: Entry, **more: Any) -> PartitionLedger:
    found = PartitionLedger()
    found.take(chunk(*entries, **more))
    return found


NONE = PartitionLedger()
OUTWARD = ledger(Run(10, 0, 5), Run(20, 5, 10), begin=(10, 0), copied_to=40)
"""Ten offsets before it were never copied; markers are at 15 to 19 and behind 29."""


def facts(
    outward: PartitionLedger = OUTWARD,
    homeward: PartitionLedger | None = NONE,
    bounds: tuple[int, int] | None = (0, 45),
    there: tuple[int, int] = (0, 15),
) -> TwoLogs:
    return TwoLogs("A", "B", "orders-0", "A.orders-0", outward, homeward, bounds, there)


@pytest.mark.parametrize(
    ("offset", "there"), [(10, 0), (12, 2), (15, 5), (19, 5), (20, 5), (29, 14), (30, 15), (40, 15)]
)
def test_an_offset_of_a_copied_stretch_has_its_exact_place(offset: int, there: int) -> None:
    assert place_exactly(offset, facts()).offset == there
    assert place_exactly(offset, facts(homeward=None, bounds=None)).offset == there, "also by the target alone"


@pytest.mark.parametrize(
    ("offset", "found", "why", "remedy"),
    [
        (41, facts(), "not copied to B yet, or not in the ledger", "Let A->B run on, and ask again"),
        (46, facts(), "beyond the end of orders-0 on A, which is 45", "Is it a checkpoint of A?"),
        (5, facts(), "before the ledger", "mm2py rebuild-ledger FILE 'A->B'"),
        (5, facts(ledger(Run(10, 0, 5), begin=(10, 0), is_whole=True)), "the first copies on B are behind it", "on A"),
        (12, facts(there=(3, 15)), "B has deleted the records before 3 of A.orders-0", "Let it read on on A"),
        (29, facts(there=(0, 9)), "its place is 14, and A.orders-0 ends at 9 on B: records were lost", "mm2py gaps"),
        (
            3,
            facts(ledger(Hole(0, 0, 10, 8, HoleCause.COUNTED), Run(10, 8, 5))),
            "not exact: only counted after a crash",
            "Let it read on on A",
        ),
        (5, facts(NONE), "no ledger on B knows a copy of orders-0", "mm2py rebuild-ledger FILE 'A->B'"),
        (5, facts(NONE, None), "and a ledger on A cannot be read", "mm2py rebuild-ledger"),
    ],
)
def test_an_offset_without_an_exact_place_is_refused_with_the_way_out(
    offset: int, found: TwoLogs, why: str, remedy: str
) -> None:
    place = place_exactly(offset, found)
    assert place.offset is None
    assert why in place.text and remedy in place.remedy


def test_copies_that_the_target_has_deleted_do_not_matter_behind_the_last_one() -> None:
    assert place_exactly(40, facts(there=(20, 30))).offset == 20


@pytest.mark.parametrize(
    ("offset", "bounds", "there", "found"),
    [
        (0, (0, 0), (0, 0), 0),
        (0, (0, 7), (0, 0), 0),
        (0, None, (0, 0), 0),
        (7, (7, 7), (0, 0), 0),
        (3, (0, 7), (0, 0), None),
        (3, None, (0, 0), None),
        (0, (0, 7), (0, 2), None),
    ],
)
def test_a_partition_of_which_nothing_was_copied_or_read_begins_at_its_first_offset(
    offset: int, bounds: tuple[int, int] | None, there: tuple[int, int], found: int | None
) -> None:
    assert place_exactly(offset, facts(NONE, NONE, bounds, there)).offset == found


def test_both_ledgers_count_where_records_came_from_the_other_cluster() -> None:
    """B took over at 100, and A has read its own 103 records: B's records behind them come back to A."""
    homeward = ledger(Run(0, 0, 100))
    back = ledger(Run(100, 103, 20), begin=(100, 103), is_whole=False)
    for on_b, on_a in ((70, 70), (100, 103), (112, 115), (120, 123)):
        found = place_exactly(on_b, facts(back, homeward, (0, 120), (0, 123)))
        assert found.offset == on_a
    assert place_exactly(70, facts(back, None, None, (0, 123))).offset is None, "A's ledger is not there to tell"
