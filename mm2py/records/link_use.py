"""How a worker uses the link of a flow, as its heartbeats and its metrics report it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinkUse:
    """How one member uses the link of a flow: over how many connections, how fast, and what limits the rate."""

    connections: int
    """How many connections to the more distant cluster read or write backlogs."""
    bytes_per_s: int
    """The rate in the last measurement, over about half a second."""
    percent: int
    """The rate as a part of the highest one measured since these connections were opened."""
    limit: str
    """What bounds the rate, in a few words."""
