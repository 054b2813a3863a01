"""Why a worker may not take part in a group that has certain members. Pure."""

from __future__ import annotations

from mm2py.config.settings import GroupSettings
from mm2py.errors import Mm2Error
from mm2py.records.control_record import Joined


class GroupRefused(Mm2Error):
    """This worker and the members of the group contradict each other: it takes no part."""


def refusal(ours: Joined, other: Joined, group: GroupSettings) -> GroupRefused | None:
    """Return why a worker may not take part beside another one; None if it may. An unknown cluster id fits any."""
    target = group.target
    if None not in {ours.cluster_id, other.cluster_id} and ours.cluster_id != other.cluster_id:
        return GroupRefused(
            f"{target} is cluster {ours.cluster_id} here, and cluster {other.cluster_id} for worker {other.name}"
            f" of group {group.name}.",
            remedy=f"Let {target}.bootstrap.servers name the same cluster for all workers of a group, or give"
            f" this worker a group of its own ({target}.mm2py.group).",
        )
    if ours.election != other.election:
        return GroupRefused(
            f"leader.election is {ours.election} here, and {other.election} for worker {other.name} of group"
            f" {group.name}: there might be two leaders.",
            remedy="Set the same for all workers of a group; to change it, stop all of them first.",
        )
    return None
