"""What ``top`` reads of the history that REST tells."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mm2py.top.flow_chart import SAMPLES, ChartEvent, chart_of


def body(**extra: Any) -> bytes:
    series = {"lag_records": [None, 5, *range(40)], "copied_records_per_s": [1.5, "x", None, True]}
    return json.dumps({"series": series, "events": [], "problem": "", "of_a_later_version": 1, **extra}).encode()


def test_the_last_thirty_samples_and_the_events_are_read_and_what_is_unknown_is_left_out() -> None:
    events = [{"at_ms": 5, "kind": "gap", "text": "lost"}, {"at_ms": "x"}, 7, {"at_ms": 6, "kind": "gap", "text": None}]
    chart = chart_of(body(events=events, problem="denied"))
    assert chart.lag == [float(number) for number in range(10, 40)] and len(chart.lag) == SAMPLES
    assert chart.rate[:3] == [1.5, None, None]
    assert (chart.events, chart.problem) == ((ChartEvent(5, "gap", "lost"),), "denied")


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"series": []}', b"<html>", b"\xff"])
def test_an_answer_that_is_no_history_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        chart_of(text)
