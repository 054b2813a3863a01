"""The owners of the partitions of one topic, by the control log of a group. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from mm2py.group.membership import GroupState
from mm2py.records.control_record import Entry, TaskName


def owners_of(view: GroupState, topic: str) -> dict[TaskName, str]:
    """Return the owner of each partition that has an owner."""
    return {
        share: str(owned.member)
        for share, owned in view.owners.items()
        if share.is_partition and share.topic == topic and owned.member is not None
    }


def is_assigned(view: GroupState, topic: str, *, partitions: int, workers: int) -> bool:
    """Return whether exactly ``workers`` own all ``partitions`` of the topic, and none waits for a release."""
    owners = owners_of(view, topic)
    return (
        len(owners) == partitions
        and len(set(owners.values())) == len(view.members) == workers
        and view.leader is not None
        and not view.to_fence
        and all(owned.waits_for is None for owned in view.owners.values())
    )


def assigned_since(entries: Iterable[Entry], topic: str, *, partitions: int, workers: int) -> tuple[int | None, int]:
    """Return when (log time, ms) the topic was first assigned to this many workers, and the moves after that.

    Returns:
        The time, None if it never was, and how often a partition got another owner from then on.
    """
    view, moves = GroupState(), 0
    at_ms: int | None = None
    before: dict[TaskName, str] = {}
    for entry in entries:
        view.take(entry)
        if at_ms is not None:
            now = owners_of(view, topic)
            moves += sum(before.get(share) != owner for share, owner in now.items())
            before |= now
        elif is_assigned(view, topic, partitions=partitions, workers=workers):
            at_ms, before = entry.time_ms, owners_of(view, topic)
    return at_ms, moves
