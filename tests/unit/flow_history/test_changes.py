"""What changes in a flow's state becomes an event: once, after two looks that agree, and also after a restart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mm2py.flow_history.changes import LAG, STEPS_S, VERDICT, changes_of
from mm2py.flow_history.rings import FlowHistory
from mm2py.flow_history.sampling import SampledLook
from mm2py.status.report import report_of
from mm2py.status.verdict import Readiness
from mm2py_rest.events.event import EventKind
from mm2py_rest.history.keeper import KINDS
from tests.fakes.v1_services import FLOW, NOW_MS, facts_of

STEP_MS = 10_000
PARTS = {
    Readiness.SAFE: ("safe to fail over", "0.4 s and 7 records behind"),
    Readiness.INCOMPLETE: ("not safe to fail over: part of what is selected is not copied", "not copied: t (paused)"),
    Readiness.BEHIND: ("not safe to fail over: t-0 is behind the others", "90 s behind"),
    Readiness.UNKNOWN: ("not known whether it is safe to fail over: no safe time from w1 yet",),
}


class Watched:
    """A flow whose coordinator looks every ten seconds and writes what has changed."""

    def __init__(self) -> None:
        facts = facts_of()
        self._facts = next(one for one in facts.flows if one.settings.flow == FLOW)
        self._report = next(one for one in report_of(facts).flows if one.flow == FLOW)
        self.history = FlowHistory()
        self._before: SampledLook | None = None
        self.at_ms = NOW_MS

    def look(self, readiness: Readiness, behind_s: float | None = 0.4) -> list[tuple[str, str]]:
        """Look once; return kind and text of what is written."""
        self.at_ms += STEP_MS
        safe_at_ms = None if behind_s is None else self.at_ms - int(behind_s * 1000)
        parts = PARTS[readiness]
        verdict = replace(
            self._report.verdict,
            readiness=readiness,
            text=f"{FLOW}: {'; '.join(parts)}",
            parts=parts,
            behind_s=behind_s,
            safe_at_ms=safe_at_ms,
            oldest="t-0",
        )
        now = SampledLook(self.at_ms, self._facts, replace(self._report, verdict=verdict))
        events = self.history.events_due(changes_of(self.history, self._before, now), self.at_ms)
        for one in events:
            self.history.take(one)
        self._before = now
        return [(one.kind, one.text) for one in events]

    def restart(self) -> None:
        """Another worker coordinates: it has read the topic, and has not looked yet."""
        self._before = None


def test_a_verdict_is_told_when_two_looks_agree_and_only_once() -> None:
    flow = Watched()
    assert flow.look(Readiness.SAFE) == []
    assert flow.look(Readiness.SAFE) == [(VERDICT, "safe: 0.4 s and 7 records behind")]
    assert flow.look(Readiness.SAFE) == []
    assert flow.look(Readiness.INCOMPLETE) == []
    assert flow.look(Readiness.INCOMPLETE) == [(VERDICT, "incomplete (was safe): not copied: t (paused)")]
    assert flow.history.last_event(VERDICT) is not None
    assert flow.look(Readiness.INCOMPLETE) == []


def test_the_time_of_a_change_is_that_of_the_first_look_that_saw_it() -> None:
    flow = Watched()
    flow.look(Readiness.SAFE)
    seen_ms = flow.at_ms
    flow.look(Readiness.SAFE)
    event = flow.history.last_event(VERDICT)
    assert event is not None and event.at_ms == seen_ms


def test_a_moment_is_no_change() -> None:
    flow = Watched()
    for _ in range(2):
        flow.look(Readiness.SAFE)
    assert flow.look(Readiness.UNKNOWN, None) == []
    assert flow.look(Readiness.SAFE) == []
    assert flow.look(Readiness.SAFE) == []


def test_what_changed_while_no_coordinator_ran_is_told_by_the_next_one_and_nothing_twice() -> None:
    flow = Watched()
    for _ in range(2):
        flow.look(Readiness.SAFE)
    flow.restart()
    for _ in range(3):
        assert flow.look(Readiness.SAFE) == []
    flow.restart()
    assert flow.look(Readiness.BEHIND, 9.0) == [], "it has looked once"
    assert flow.look(Readiness.BEHIND, 9.0) == [
        (VERDICT, "behind (was safe): not safe to fail over: t-0 is behind the others; 90 s behind")
    ]


def test_a_flow_that_falls_behind_tells_each_step_once_and_when_it_keeps_up_again() -> None:
    flow = Watched()
    told = []
    ages = [0.4, 0.4, 30, 55, 65, 58, 62, 66, 300, 700, 710, 640, 300, 20, 11, 9, 2, 1, 1]
    for age in ages:
        told += [text for kind, text in flow.look(Readiness.INCOMPLETE, age) if kind == LAG]
    assert told == [
        "t-0 is more than 60 s behind: 66 s.",
        "t-0 is more than 10 min behind: 12 min.",
        "It keeps up again: 2.0 s.",
    ]


def test_a_flow_that_is_far_behind_at_once_tells_the_furthest_step_alone() -> None:
    flow = Watched()
    far = STEPS_S[-1] + 100.0
    assert flow.look(Readiness.BEHIND, far) == []
    assert [text for kind, text in flow.look(Readiness.BEHIND, far) if kind == LAG] == [
        "t-0 is more than 60 min behind: 62 min."
    ]


@pytest.mark.parametrize("age", [None, 0.4])
def test_an_age_that_is_not_known_is_neither_behind_nor_kept_up(age: float | None) -> None:
    """A worker's clock is ahead, or nothing is known: the number, if there is one, says nothing."""
    flow = Watched()
    for _ in range(2):
        flow.look(Readiness.BEHIND, 90.0)
    for _ in range(3):
        assert not [text for kind, text in flow.look(Readiness.UNKNOWN, age) if kind == LAG]


def test_the_history_has_a_place_for_these_kinds() -> None:
    assert {EventKind(VERDICT), EventKind(LAG)} <= KINDS
