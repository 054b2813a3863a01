"""What a worker reports to the process that serves REST for it: its health, in plain values. Both have one release.

Everything else that REST answers is stored in topics on the target, which any worker's REST process reads itself.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

from mm2py.connector import FlowStatus

FACTS: Final = "facts"
"""The question for ``WorkerFacts``."""
SNAPSHOT: Final = "snapshot"
"""The question for the parts of a ``WorkerSnapshot``, for metrics."""
LOG_LEVEL: Final = "log level"
"""The question for the log level. If a level follows, the worker logs at that level from now on."""

COORDINATED: Final = "coordinated"
"""The question for the flows that this worker coordinates now."""

HEAD: Final = struct.Struct(">QIB")
"""Precedes each part of an answer: the question's number, the size of the pickled part in bytes, a ``Frame``."""


class Frame(IntEnum):
    """What follows a ``HEAD``."""

    PART = 0
    END = 1
    """The answer is whole; nothing follows."""
    FAILED = 2
    """There is no answer, or no more of it; nothing follows."""


class Health(StrEnum):
    """As Kafka Connect names it."""

    HEALTHY = "healthy"
    STARTING = "starting"
    """It has not joined a group yet, or a flow has not started."""
    UNHEALTHY = "unhealthy"
    """It stops, or does not answer."""


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """The health of one worker at one moment."""

    health: Health
    message: str
    """Why, in a sentence."""


def health_of(flows: tuple[FlowStatus, ...], joined: int, targets: int, *, stops: bool) -> WorkerFacts:
    """Return the health of a worker, and why. A flow that waits or is refused does not make a worker unhealthy.

    Args:
        joined: how many groups it has joined.
        targets: how many groups it is to join.
    """
    if stops:
        return WorkerFacts(Health.UNHEALTHY, "The worker is stopping.")
    if joined < targets:
        return WorkerFacts(Health.STARTING, f"It has joined {joined} of {targets} groups.")
    starting = [str(status.flow) for status in flows if status.state == "starting"]
    if starting:
        return WorkerFacts(Health.STARTING, f"It has not started {', '.join(starting)} yet.")
    return WorkerFacts(Health.HEALTHY, "The worker has joined its groups and started its flows.")
