"""The judgement of a page that is watched for half an hour: what grows is found, what wavers is not."""

from __future__ import annotations

import pytest

from bench.page_heap import TabSample, findings


def tab(*, heap_mb: float = 0.0, nodes: float = 0.0, listeners: float = 0.0) -> list[TabSample]:
    """Return a sample a minute for half an hour; the numbers say how much there is more of each after a minute."""
    return [
        TabSample(
            minute * 60.0,
            6 + heap_mb * minute + (minute % 3) / 10,
            round(900 + nodes * minute + minute % 5),
            round(200 + listeners * minute),
        )
        for minute in range(30)
    ]


def test_a_page_that_only_wavers_is_flat() -> None:
    assert all(one.flat for one in findings(tab()))


@pytest.mark.parametrize("growing", ["heap_mb", "nodes", "listeners"])
def test_a_page_that_keeps_what_it_has_shown_is_found(growing: str) -> None:
    found = findings(tab(**{growing: 20.0}))
    assert [one.text.split()[0] for one in found if not one.flat] == [growing]


def test_of_a_short_look_nothing_is_said() -> None:
    assert [one.flat for one in findings(tab()[:5])] == [False]
