"""How a worker uses the link of a flow: told by its heartbeats, and by its metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinkUse:
    """How one member uses the link of a flow: over how many connections, and what keeps it from carrying more."""

    connections: int
    """That read backlogs, or write them, to the farther side."""
    bytes_per_s: int
    """In the last half second or so that was measured."""
    percent: int
    """Of the most that was measured since these connections were opened."""
    limit: str
    """What bounds the rate, in a few words."""
