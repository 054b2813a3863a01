"""How long a topic keeps its records. Pure.

Source: ``UnifiedLog.deleteOldSegments`` of Apache Kafka, storage. A broker deletes a segment when its newest timestamp
is older than ``retention.ms``, or while the log without it has more than ``retention.bytes``. A topic whose
``cleanup.policy`` is ``compact`` alone deletes nothing by age or size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

RETENTION_KEYS: Final = ("cleanup.policy", "retention.bytes", "retention.ms")
"""The settings of a topic that decide it."""


class Retention(NamedTuple):
    """The limits of a topic; None: it has no such limit."""

    ms: int | None = None
    """The age at which records are deleted."""
    bytes: int | None = None
    """How large each partition may be."""

    @property
    def is_for_ever(self) -> bool:
        """Whether records are never deleted by age or size."""
        return self.ms is None and self.bytes is None


def retention_of(settings: Mapping[str, str | None]) -> Retention | None:
    """Return the limits by a topic's settings; None: the settings do not tell, as where a value is hidden."""
    policy = settings.get("cleanup.policy")
    if policy is None:
        return None
    if "delete" not in [one.strip() for one in policy.split(",")]:
        return Retention()
    try:
        ms, size = (int(settings.get(name) or "") for name in ("retention.ms", "retention.bytes"))
    except ValueError:
        return None
    return Retention(ms if ms >= 0 else None, size if size >= 0 else None)
