"""Where groups go on when their source is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mm2py.dr.failover.placing import FailoverPoint, KnownCommit, LostGroup, chosen, placed, point_of
from mm2py.dr.groups.judgement import MoveState
from mm2py.kafka.consumer_groups import Commit
from mm2py.offsets.answers import NOT_YET, Answer, AnswerKind

ONE = KnownCommit(
    "orders",
    0,
    "A.orders",
    committed=100,
    checkpoint=80,
    metadata="m",
    place=Answer(AnswerKind.COPIED, 90, True),
    start_there=10,
    end_there=120,
)
GROUP = LostGroup("billing", commits=(ONE,))
LATEST = FailoverPoint()
AT = FailoverPoint("safe", 1_000)


def place(point: FailoverPoint = LATEST, **changes: object) -> tuple[int, int, int, bool]:
    found = placed(replace(GROUP, commits=(replace(ONE, **changes),)), point)  # type: ignore[arg-type]
    assert found.state is MoveState.READY
    (one,) = found.partitions
    return one.goes_on_at, one.read_again, one.read_again_most, one.is_exact


def test_latest_is_the_exact_translation_of_the_last_known_commit() -> None:
    assert place() == (90, 0, 30, True)


@pytest.mark.parametrize("answer", [None, NOT_YET, Answer(AnswerKind.COUNTED, 85, False)])
def test_where_the_ledger_does_not_tell_the_checkpoint_does_and_no_record_is_skipped(answer: Answer | None) -> None:
    assert place(place=answer) == (80, 0, 40, False)


def test_a_group_goes_on_within_the_log() -> None:
    assert place(place=Answer(AnswerKind.COPIED, 5, True))[0] == 10
    assert place(place=Answer(AnswerKind.END, 500, True))[0] == 120


def test_a_group_that_has_committed_more_on_the_target_does_not_go_back() -> None:
    assert place(committed_there=110) == (110, 0, 10, True)
    assert place(committed_there=40) == (90, 0, 30, True)
    assert place(committed_there=999)[0] == 120


def test_from_one_instant_on_records_are_read_again_and_counted() -> None:
    assert place(AT, at_instant=60) == (60, 30, 60, True)


def test_a_group_that_lags_behind_the_instant_skips_nothing() -> None:
    assert place(AT, at_instant=95) == (90, 0, 30, True)
    assert place(AT, at_instant=None) == (90, 0, 30, True)


def test_the_instant_counts_also_for_what_was_committed_on_the_target() -> None:
    assert place(AT, at_instant=60, committed_there=110) == (60, 50, 60, True)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"state_there": "Stable", "protocol_there": "consumer", "members_there": ("m1 on h",)},
            "members on the target",
        ),
        ({"state_there": "Empty", "protocol_there": "share"}, "it is a share group"),
        ({"refused": "READ on group billing is missing."}, "READ on group billing is missing"),
        ({"commits": (replace(ONE, unknown="A.orders-0 does not exist on B"),)}, "A.orders-0 does not exist on B"),
    ],
)
def test_a_group_that_cannot_go_on_is_refused_by_name_and_may_be_left(changes: dict[str, object], why: str) -> None:
    group = replace(GROUP, **changes)  # type: ignore[arg-type]
    found = placed(group, LATEST)
    assert found.state is MoveState.REFUSED and why in found.why
    assert "--leave-group billing" in found.remedy
    left = placed(group, LATEST, is_left=True)
    assert left.state is MoveState.LEFT and left.lines == ["group billing: left, an operator leaves it out"]


def test_what_is_committed_and_whether_it_is_there_already() -> None:
    found = placed(GROUP, LATEST)
    assert found.commits == {("A.orders", 0): Commit(90, "m")}
    assert found.offsets == {"orders-0": 90}
    assert not found.is_there
    assert placed(replace(GROUP, commits=(replace(ONE, committed_there=90),)), LATEST).is_there
    assert found.lines == [
        "group billing: reads again 0 record(s), at most 30",
        "  orders-0  100 -> A.orders-0  90, exact, reads again 0, at most 30",
    ]


def test_only_some_groups_take_part() -> None:
    groups = [placed(LostGroup(name), LATEST) for name in ("b", "a")]
    assert [one.group for one in chosen(groups, ())] == ["a", "b"]
    assert [one.group for one in chosen(groups, ["b"])] == ["b"]


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("latest", LATEST),
        ("safe", FailoverPoint("safe")),
        ("10m", FailoverPoint("10m", 9_400_000)),
        ("1970-01-01T00:00:05Z", FailoverPoint("1970-01-01T00:00:05Z", 5_000)),
        ("1970-01-02T00:00:00Z", None),
        ("yesterday", None),
    ],
)
def test_to_takes_a_word_or_a_time_that_is_over(text: str, point: FailoverPoint | None) -> None:
    assert point_of(text, 10_000_000) == point


def test_a_point_in_words() -> None:
    assert LATEST.text == "latest"
    assert AT.text == "safe, the first record at or after 1970-01-01T00:00:01.000Z"
    assert FailoverPoint("safe").text == "safe"
