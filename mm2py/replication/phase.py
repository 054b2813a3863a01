"""The states of a copier; docs/architecture.md says what leads from one to another. Pure."""

from __future__ import annotations

import enum


class Phase(enum.Enum):
    RECONCILING = "finding out how far an earlier writer got"
    STORING = "storing its position"
    COPYING = "copying"
    WAITING = "waiting"
    STALLED = "stalled"
    DRAINING = "draining"
    DRAINED = "drained"
