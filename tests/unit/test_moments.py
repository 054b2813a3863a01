"""Points in time as people write them."""

from __future__ import annotations

import pytest

from mm2py.moments import age_or_iso_ms, moment_ms, span_s

NOW_MS = 1_764_000_000_000


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("24h", NOW_MS - 86_400_000),
        ("90s", NOW_MS - 90_000),
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T00:00:01", 1_000),
        ("1970-01-01T01:00:01+01:00", 1_000),
        ("1970-01-01T01:00:01 01:00", 1_000),
        ("1970-01-02", 86_400_000),
        ("1960-01-01", 0),
        ("1764000000000", NOW_MS),
        ("0", 0),
    ],
)
def test_ages_times_and_milliseconds_are_understood_and_a_time_without_zone_is_utc(text: str, at_ms: int) -> None:
    assert moment_ms(text, NOW_MS) == at_ms


@pytest.mark.parametrize("text", ["", "x", "24", "yesterday", "7w", "-1", "1e3", "٣h", "9" * 16, "2026-13-01"])
def test_what_is_no_time_is_none(text: str) -> None:
    assert age_or_iso_ms(text, NOW_MS) is None


@pytest.mark.parametrize(("text", "seconds"), [("45s", 45), ("30m", 1800), ("2h", 7200), ("7d", 604_800)])
def test_a_span_is_a_number_with_its_unit(text: str, seconds: int) -> None:
    assert span_s(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "m", "-1m", "1.5h", "2026-11-23"])
def test_what_is_no_span_is_none(text: str) -> None:
    assert span_s(text) is None
