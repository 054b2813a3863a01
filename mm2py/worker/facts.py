"""What a worker reports to the process that serves REST for it: its health, in plain values. Both have one release.

Everything else that REST answers is stored in topics on the target, which any worker's REST process reads itself.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Final

from mm2py.connector import FlowStatus
from mm2py.flow import Flow

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


_NONE: Final[Mapping[Flow, str]] = MappingProxyType({})
_NOT_WANTED: Final = frozenset({"off", "paused", "stopped"})
"""States of flows that are not to run."""
_KEPT_HERE: Final = frozenset({"starting", "refused"})
"""States in which a flow does not run because of this worker. What waits for a cluster is ``waiting``."""
_BEFORE_THE_FIRST: Final = _KEPT_HERE | {"waiting"}
"""The same before any flow has run. A wrong password for a source cannot be told from a source that is away."""


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """The health of one worker at one moment."""

    health: Health
    message: str
    """Why, in a sentence."""
    unready: str = ""
    """Why the worker copies nothing because of itself, in a sentence; empty: it is ready."""


def facts_of(
    flows: tuple[FlowStatus, ...],
    joined: int,
    targets: int,
    *,
    stops: bool,
    has_run: bool,
    failing: Mapping[Flow, str] = _NONE,
) -> WorkerFacts:
    """Return the health of a worker, and why. A flow that waits or is refused does not make a worker unhealthy.

    Args:
        joined: how many groups it has joined.
        targets: how many groups it is to join.
        has_run: one of its flows has run.
        failing: flows that the worker tries to start again and again, and why that fails.
    """
    if stops:
        why = "The worker is stopping."
        return WorkerFacts(Health.UNHEALTHY, why, why)
    unready = _unready(flows, joined, targets, _KEPT_HERE if has_run else _BEFORE_THE_FIRST, failing)
    if joined < targets:
        return WorkerFacts(Health.STARTING, f"It has joined {joined} of {targets} groups.", unready)
    starting = [str(status.flow) for status in flows if status.state == "starting"]
    if starting:
        return WorkerFacts(Health.STARTING, f"It has not started {', '.join(starting)} yet.", unready)
    return WorkerFacts(Health.HEALTHY, "The worker has joined its groups and started its flows.", unready)


def _unready(
    flows: tuple[FlowStatus, ...], joined: int, targets: int, kept_in: Collection[str], failing: Mapping[Flow, str]
) -> str:
    """Return why a worker copies nothing because of itself.

    A worker that runs one of its flows is ready. So is one that has run and waits for a cluster, or whose flows are
    paused: another worker in its place would do no better, and its REST answers.
    """
    if targets and not joined:
        return f"It has joined none of its {targets} groups."
    wanted = [status for status in flows if status.state not in _NOT_WANTED]
    kept = [status for status in wanted if status.state in kept_in or status.flow in failing]
    if not wanted or len(kept) < len(wanted):
        return ""
    first = kept[0]
    why = failing.get(first.flow) or first.reason or "it has not started yet"
    others = f", and {len(kept) - 1} more" if len(kept) > 1 else ""
    return f"It runs none of its flows. {first.flow}{others}: {why}"
