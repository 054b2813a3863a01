"""What a worker tells the process that serves REST for it: how it is, in plain values. Both are of one release.

Everything else that REST answers stands in topics on the target, which any worker's REST process reads for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mm2py.connector import ClusterAlias, FlowStatus
from mm2py.records.control_record import MemberId

FACTS: Final = "facts"
"""What a REST process asks for: ``WorkerFacts``."""
SNAPSHOT: Final = "snapshot"
"""And a ``WorkerSnapshot``, for its metrics."""
LOG_LEVEL: Final = "log level"
"""And how much it logs; followed by a level, it logs at that from now on."""


class Health(StrEnum):
    """As Kafka Connect names it."""

    HEALTHY = "healthy"
    STARTING = "starting"
    """It has not joined a group yet, or a flow has not started."""
    UNHEALTHY = "unhealthy"
    """It stops, or does not answer."""


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """One worker, as of one moment."""

    worker: str
    """Its name, as members of its groups see it."""
    version: str
    health: Health
    message: str
    """Why, in a sentence."""
    flows: tuple[FlowStatus, ...]
    """Without their topics."""
    members: Mapping[ClusterAlias, MemberId]
    """Its member id in the group of each target cluster that it has joined."""


def health_of(
    flows: tuple[FlowStatus, ...], joined: Mapping[ClusterAlias, MemberId], targets: int, *, stops: bool
) -> tuple[Health, str]:
    """Return the health of a worker, and why. A flow that waits or is refused does not make a worker unhealthy.

    Args:
        joined: as ``WorkerFacts.members``.
        targets: in how many groups the worker is to be.
    """
    if stops:
        return Health.UNHEALTHY, "The worker is stopping."
    if len(joined) < targets:
        return Health.STARTING, f"It has joined {len(joined)} of {targets} groups."
    starting = [str(status.flow) for status in flows if status.state == "starting"]
    if starting:
        return Health.STARTING, f"It has not started {', '.join(starting)} yet."
    return Health.HEALTHY, "The worker has joined its groups and started its flows."
