"""Moves one group, or all groups of a flow, to the other cluster: waits, commits, and looks once more.

``judgement.py`` decides. A group moves whole: all its partitions are committed there, or none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from mm2py.clock import Clock
from mm2py.dr.groups.group_commits import commit_all, committed
from mm2py.dr.groups.group_inquiry import GroupMoveInquiry
from mm2py.dr.groups.judgement import (
    SHARE,
    GroupMove,
    GroupToMove,
    MoveState,
    commits_of,
    judge_at_ends,
    judge_idle,
)
from mm2py.errors import Mm2Error, for_each
from mm2py.kafka.consumer_groups import list_groups
from mm2py.kafka.errors import KafkaError
from mm2py.kafka.port import Brokers, TopicPartition
from mm2py.offsets.group_sync import CONSUMERS, IDLE

LOOK_EVERY_S: Final = 1.0
GROUPS_AT_ONCE: Final = 16


class GroupWentOn(Mm2Error):
    """The group has committed on the cluster that it left, or has got members there, while it was moved."""

    def __init__(self, group: str, here: str, there: str, why: str) -> None:
        super().__init__(
            f"Group {group} is committed on {there}, but it went on on {here} meanwhile: {why}.",
            remedy=f"Stop its consumers on both clusters, and move it again. On {there} it would read again what it has"
            f" read on {here} since.",
        )


class JudgedGroup(NamedTuple):
    """A group as both clusters show it, and what is decided about it."""

    facts: GroupToMove
    move: GroupMove


async def look_at_group(
    inquiry: GroupMoveInquiry, group: str, *, left_topics: Collection[str] = ()
) -> JudgedGroup | None:
    """Return whether one idle group can move now; None: the cluster lists no such group. Raises: as ``look``."""
    facts = (await inquiry.look([group], left_topics=left_topics)).get(group)
    return None if facts is None else JudgedGroup(facts, judge_idle(facts))


async def wait_for_group(
    inquiry: GroupMoveInquiry,
    group: str,
    *,
    left_topics: Collection[str] = (),
    timeout_s: float,
    clock: Clock,
    say: Callable[[str], None],
) -> JudgedGroup | None:
    """Wait while a group waits for the copy, or a coordinator moves, and return how it stands then.

    Args:
        timeout_s: after this time it is returned as it is, also if it still waits.
        say: is told what it waits for, each time when that has changed.
    Returns: None: there is no such group.
    Raises: as ``GroupMoveInquiry.look``. Cancelling costs nothing.
    """
    end_s, told = clock.monotonic() + timeout_s, ""
    while True:
        try:
            found = await look_at_group(inquiry, group, left_topics=left_topics)
            if found is None or found.move.state is not MoveState.WAITS or clock.monotonic() >= end_s:
                return found
            why = found.move.why
        except KafkaError as error:
            if not error.retriable or clock.monotonic() >= end_s:
                raise
            why = error.what
        if why != told:
            told = why
            say(f"group {group} waits: {told}")
        await asyncio.sleep(LOOK_EVERY_S)


async def move_group(inquiry: GroupMoveInquiry, found: JudgedGroup, brokers: Brokers) -> None:
    """Commit there where a group that is ready goes on, and check that it has not gone on here meanwhile.

    Args:
        brokers: of the cluster there; they pass a gate, so that a process that was suspended commits nothing old.
    Raises:
        GroupWentOn: it was moved, and must be moved once more.
        Mm2Error: as ``commit_all``.
    """
    facts, here = found.facts, inquiry.here
    if not found.move.is_there:
        await commit_all(brokers, inquiry.there.alias, facts.group, commits_of(facts, found.move))
    listed = (await list_groups(here.brokers)).get(facts.group)
    if facts.is_idle and listed is not None and listed.state != IDLE:
        raise GroupWentOn(facts.group, facts.here, facts.there, f"it has members ({listed.state})")
    now = await committed(here.brokers, facts.group)
    for part in facts.partitions:
        commit = now.get(part.key)
        if commit is not None and commit.offset != part.committed.offset:
            why = f"its commit in {part.name} was {part.committed.offset:,}, and is {commit.offset:,}"
            raise GroupWentOn(facts.group, facts.here, facts.there, why)


async def judge_flow(
    inquiry: GroupMoveInquiry,
    ends: Mapping[TopicPartition, int],
    *,
    left_groups: Collection[str] = (),
    left_topics: Collection[str] = (),
) -> list[JudgedGroup]:
    """Return all groups of a flow at the ends at which its producers are fenced, sorted by name.

    Groups that have committed nothing in what the flow copies are not among them. Share groups are: each is left.

    Args:
        ends: by partition of the cluster here.
        left_groups: an operator leaves them out.
        left_topics: as in ``GroupMoveInquiry.look``.
    Raises: as ``GroupMoveInquiry.look``.
    """
    names = [name for name, one in (await inquiry.all_groups()).items() if one.protocol_type in {*CONSUMERS, SHARE}]
    found = await inquiry.look(names, left_topics=left_topics, ends=ends)
    return [
        JudgedGroup(facts, judge_at_ends(facts, is_left=name in left_groups))
        for name, facts in sorted(found.items())
        if facts.protocol_type == SHARE or any(not part.unknown for part in facts.partitions)
    ]


async def commit_flow(inquiry: GroupMoveInquiry, found: Sequence[JudgedGroup], brokers: Brokers) -> list[str]:
    """Commit there all groups that are ready, and return their names.

    Args:
        found: as ``judge_flow`` returned them; none of them waits or is refused.
        brokers: as in ``move_group``.
    Raises: as ``move_group``, for the first group that fails. Others may have been moved: the same can be done again.
    """
    open_ = [one.move.group for one in found if one.move.state in {MoveState.WAITS, MoveState.REFUSED}]
    if open_:
        raise AssertionError(f"groups are not final: {open_}")
    ready = [one for one in found if one.move.state is MoveState.READY]

    async def move(one: JudgedGroup) -> None:
        await move_group(inquiry, one, brokers)

    await for_each(ready, move, at_once=GROUPS_AT_ONCE, name="moving groups")
    return [one.move.group for one in ready]
