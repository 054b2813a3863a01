"""Up to which moment a worker has copied its partitions of a flow: said by its heartbeats. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SafePoint:
    """The safe time of one worker's partitions of a flow, see ``mm2py/copying/safe_time.py``."""

    at_ms: int | None
    """All of them are copied up to this moment, by the worker's clock. None: of ``oldest`` that is not known yet, or
    there are none."""
    oldest: str
    """The partition that is behind the others, as ``orders-3``; empty if there are none."""
    left_out: int
    """How many do not count, because they wait for an operator."""
    seen: int
    """The worker had read the control log below this offset when it looked at its partitions."""
