"""Where groups are moved on the target, and which are not."""

from __future__ import annotations

import pytest

from mm2py.offsets.group_sync import PartitionOnTarget, commits_for, why_not_moved

KEY = ("A.t", 0)


@pytest.mark.parametrize(
    ("state", "protocol_type", "why"),
    [
        (None, "", None),
        ("Empty", "", None),
        ("Empty", "consumer", None),
        ("Stable", "consumer", "it has members on the target (Stable)"),
        ("PreparingRebalance", "consumer", "it has members on the target (PreparingRebalance)"),
        ("Dead", "consumer", "it has members on the target (Dead)"),
        ("Empty", "share", "on the target it is a group of type share"),
    ],
)
def test_a_group_with_members_on_the_target_is_never_moved(state: str | None, protocol_type: str, why: str) -> None:
    assert why_not_moved(state, protocol_type) == why


@pytest.mark.parametrize(
    ("committed", "ours", "rewinds", "expected"),
    [
        (None, None, False, 100),
        (99, None, False, 100),
        (100, None, False, None),
        (101, None, False, None),
        (101, 101, False, None),
        (101, 101, True, 100),
        (101, 99, True, None),  # its own consumers have moved it on
        (101, None, True, None),
    ],
)
def test_a_group_is_moved_on_and_back_only_where_that_is_asked_for_and_nobody_else_moved_it(
    committed: int | None, ours: int | None, rewinds: bool, expected: int | None
) -> None:
    at = PartitionOnTarget(100, 0, 1000, committed, ours)
    assert commits_for({KEY: at}, follows_rewinds=rewinds).get(KEY) == expected


def test_every_commit_lies_within_the_log_of_the_target() -> None:
    assert commits_for({KEY: PartitionOnTarget(100, 0, 50)}, follows_rewinds=False) == {KEY: 50}
    assert commits_for({KEY: PartitionOnTarget(100, 200, 300)}, follows_rewinds=False) == {KEY: 200}
    cut_back = PartitionOnTarget(100, 0, 50, committed=60)
    assert commits_for({KEY: cut_back}, follows_rewinds=False) == {}, "a group is not set back"
