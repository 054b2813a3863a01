"""When ``mm2py mirror --until-caught-up`` ends: not too early, and not never."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from mm2py.flow import ClusterAlias, Flow
from mm2py.mirror.progress import STUCK_S, MirrorState, ProgressWatch
from mm2py.status.not_copied import Reason
from mm2py.status.report import Report
from mm2py.status.verdict import LeftOutTopic, Readiness

BEGUN_MS = 1_000_000
FLOW = Flow(ClusterAlias("old"), ClusterAlias("target"))


def flow_of(
    readiness: Readiness, safe_at_ms: int | None, *left_out: Reason, topics: int = 2, whole: tuple[Reason, ...] = ()
) -> Any:
    verdict = SimpleNamespace(
        readiness=readiness,
        safe_at_ms=safe_at_ms,
        left_out=[LeftOutTopic(f"t{number}", str(reason), "") for number, reason in enumerate(left_out)],
    )
    not_copied = [SimpleNamespace(reason=reason) for reason in whole]
    return SimpleNamespace(flow=FLOW, topics=[None] * topics, lag=0, verdict=verdict, not_copied=not_copied)


def states(*looks: Any, every_s: float = STUCK_S) -> list[MirrorState]:
    watch = ProgressWatch(BEGUN_MS)
    return [
        watch.judge(
            cast(
                "Report",
                SimpleNamespace(
                    at_ms=BEGUN_MS + int(number * every_s * 1000),
                    flows=[look] if not isinstance(look, list) else look,
                    groups=[],
                    problems=[],
                ),
            )
        ).state
        for number, look in enumerate(looks)
    ]


COPIES, CAUGHT_UP, STUCK = MirrorState


def test_it_is_caught_up_when_all_is_copied_up_to_its_begin() -> None:
    assert states(flow_of(Readiness.SAFE, BEGUN_MS - 1), flow_of(Readiness.SAFE, BEGUN_MS)) == [COPIES, CAUGHT_UP]
    assert states(flow_of(Readiness.BEHIND, BEGUN_MS)) == [CAUGHT_UP]


def test_it_waits_for_each_flow() -> None:
    late, early = flow_of(Readiness.SAFE, BEGUN_MS - 1), flow_of(Readiness.SAFE, BEGUN_MS)
    assert states([early, late], [early, early]) == [COPIES, CAUGHT_UP]


@pytest.mark.parametrize("readiness", [Readiness.UNKNOWN, Readiness.NOT_COPIED])
def test_what_is_not_known_is_never_caught_up(readiness: Readiness) -> None:
    unknown = flow_of(readiness, BEGUN_MS)
    assert states(unknown, unknown, unknown) == [COPIES] * 3
    assert states([], [], []) == [COPIES] * 3


def test_a_topic_that_waits_for_somebody_ends_it_after_a_while_and_one_that_is_tried_again_does_not() -> None:
    refused = flow_of(Readiness.INCOMPLETE, BEGUN_MS, Reason.REFUSED)
    assert states(refused, refused) == [COPIES, STUCK]
    for other in (Reason.NOT_STARTED, Reason.RETRYING, Reason.STARTING, Reason.UNOWNED):
        retried = flow_of(Readiness.INCOMPLETE, BEGUN_MS, Reason.REFUSED, other)
        assert states(retried, retried, retried) == [COPIES] * 3


def test_it_is_not_stuck_while_other_topics_copy_their_backlog_or_after_one_good_look() -> None:
    refused, behind = (flow_of(Readiness.INCOMPLETE, at, Reason.REFUSED) for at in (BEGUN_MS, BEGUN_MS - 1))
    assert states(behind, behind, behind) == [COPIES] * 3
    assert states(refused, behind, refused, refused) == [COPIES, COPIES, COPIES, STUCK]


def test_a_pattern_that_matches_nothing_ends_it_and_an_empty_source_is_caught_up() -> None:
    nothing = flow_of(Readiness.UNKNOWN, None, topics=0, whole=(Reason.NO_MATCH,))
    assert states(nothing, nothing) == [COPIES, STUCK]
    assert states(flow_of(Readiness.SAFE, None, topics=0)) == [CAUGHT_UP]
