"""What is committed on the target for a group that reads the source. Pure.

As in MirrorMaker 2, a group that has members on the target is never moved, and no group is moved back. In addition,
every commit is within the remote partition, and a group that was set back on the source can be followed, if the target
still has the offset that mm2py has committed there.

Counterpart: MirrorCheckpointTask.syncGroupOffset of Apache Kafka's Connect, mirror.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mm2py.kafka.port import TopicPartition

IDLE: Final = "Empty"
"""Kafka's word for the state of a group without members."""
CONSUMERS: Final = frozenset({"", "consumer"})
"""Protocol types of groups whose offsets are positions in topics; empty: offsets were only committed."""


@dataclass(frozen=True, slots=True)
class PartitionOnTarget:
    """What is known about one remote partition and one group. Offsets are those of the target."""

    wanted: int
    """Where the group may continue, by its checkpoint."""
    log_start: int
    log_end: int
    committed: int | None = None
    """What the group has committed there; None: nothing."""
    ours: int | None = None
    """What mm2py has committed there last; None: nothing that it knows of."""


def why_not_moved(state: str | None, protocol_type: str) -> str | None:
    """Return why nothing may be committed for a group, None if it may.

    Args:
        state: the group's on the target; None: there is no such group.
        protocol_type: as its coordinator lists it.
    """
    if state is None:
        return None
    if protocol_type not in CONSUMERS:
        return f"on the target it is a group of type {protocol_type}"
    return None if state == IDLE else f"it has members on the target ({state})"


def commits_for(
    partitions: Mapping[TopicPartition, PartitionOnTarget], *, follows_rewinds: bool
) -> dict[TopicPartition, int]:
    """Return what to commit for a group without members: offsets by remote partition, each within its log.

    Args:
        partitions: those of the group that have a checkpoint and exist on the target.
        follows_rewinds: ``sync.group.offsets.rewind``: a group that was set back on the source is set back, too.
    """
    found: dict[TopicPartition, int] = {}
    for key, at in partitions.items():
        wanted = min(max(at.wanted, at.log_start), at.log_end)
        is_set_back = follows_rewinds and at.committed is not None and at.committed == at.ours
        if at.committed is None or at.committed < wanted or (is_set_back and at.committed > wanted):
            found[key] = wanted
    return found
