"""Up to where each partition of a run is copied, by the stored positions."""

from __future__ import annotations

import pytest

from mm2py.dr.cutover.drained import behind, copied_to, lag_of, topic_of
from mm2py.records.source_offset import StoredPosition

KEY = ("orders", 0)
ENDS = {"orders-0": 10}


def at(source: int, target: int | None = None) -> StoredPosition:
    return StoredPosition(next_source=source, next_target=target)


@pytest.mark.parametrize(
    ("positions", "starts", "arrived", "copied"),
    [
        ({KEY: at(10)}, {KEY: 0}, {}, 10),
        ({KEY: at(7)}, {KEY: 0}, {}, 7),
        ({}, {KEY: 0}, {}, 0),
        ({}, {KEY: 10}, {}, 10),
        ({}, {}, {}, 0),
        ({KEY: at(4)}, {KEY: 0}, {KEY: at(99, 10)}, 10),
        ({KEY: at(7)}, {KEY: 0}, {KEY: at(99)}, 7),
    ],
    ids=[
        "copied",
        "behind",
        "never-copied",
        "an-empty-partition-needs-no-position",
        "a-start-that-is-not-told-proves-nothing",
        "what-the-flow-back-brought-is-not-copied-back",
        "a-flow-back-that-does-not-know-its-end-proves-nothing",
    ],
)
def test_a_partition_counts_as_copied_only_as_far_as_a_position_says(
    positions: dict[tuple[str, int], StoredPosition],
    starts: dict[tuple[str, int], int],
    arrived: dict[tuple[str, int], StoredPosition],
    copied: int,
) -> None:
    found = copied_to(ENDS, starts, positions, arrived)
    assert found == {"orders-0": copied}
    assert lag_of(ENDS, found) == 10 - copied
    assert [*behind(ENDS, found)] == ([] if copied == 10 else [f"orders-0 is copied to {copied} of 10"])


def test_a_position_beyond_the_verified_end_is_not_drained() -> None:
    assert [*behind(ENDS, {"orders-0": 11})] == ["orders-0 is copied to 11 of 10"]


def test_the_number_of_a_partition_stands_behind_the_last_dash() -> None:
    assert topic_of("a-b-12") == ("a-b", 12)
