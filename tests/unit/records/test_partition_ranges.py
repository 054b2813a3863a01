"""Numbers of partitions as text: read as they were written, and bounded whatever a stranger has written."""

from __future__ import annotations

import pytest

from mm2py.records.partition_ranges import NUMBERS_MOST, numbers, ranges


@pytest.mark.parametrize("listed", [[], [0], [0, 1, 2, 5], [3, 7, 8]])
def test_ranges_are_read_as_they_were_written(listed: list[int]) -> None:
    assert numbers(ranges(listed)) == listed


def test_a_strangers_ranges_take_little_memory_and_no_error() -> None:
    """A record of one megabyte once named 20 billion partitions, and a number of 5,000 digits ended the answer."""
    assert len(numbers(",".join(["0-199999"] * 1000))) == NUMBERS_MOST
    assert numbers("9" * 5000) == numbers("x-3,-2,1-" + "9" * 5000) == numbers("5-3") == numbers("٣") == []
