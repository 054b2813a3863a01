"""Where the copying of one partition stands. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Position(NamedTuple):
    """Where the copying of a partition stands; offsets are the *next* ones. ``None`` where nobody can tell."""

    source_offset: int
    source_leader_epoch: int = -1
    target_offset: int | None = None
    target_leader_epoch: int | None = None
    sequence: int = 0
    skipped: tuple[tuple[int, int], ...] = ()
    """Ranges (first, last) left out since the last copied record."""
