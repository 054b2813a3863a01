"""What a worker waits for while partitions of a flow are behind, as its heartbeats and its metrics report it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Wait(StrEnum):
    """What a partition that is behind waits for at one moment."""

    SOURCE = "source"
    """An answer of a near source broker."""
    SOURCE_LINK = "source-link"
    """An answer of a source broker that is far away."""
    PLANNING = "planning"
    """What was read is being decoded."""
    TARGET = "target"
    """Acknowledgements of a near target broker: as much is in flight to it as may be."""
    TARGET_LINK = "target-link"
    """Acknowledgements of a target broker that is far away."""
    MEMORY = "memory"
    """``memory.max.bytes``, although the target could take more."""
    RATE = "rate"
    """``bytes.per.second.max``."""


@dataclass(frozen=True, slots=True)
class FlowWaits:
    """What one worker waited for in the last ten seconds, in the partitions of a flow that are behind.

    Percentages of times are of these seconds. A worker whose partitions keep up tells only zeros.
    """

    behind: int = 0
    """How many of its partitions are behind."""
    waits: Mapping[str, int] = field(default_factory=dict)
    """How often they were found to wait for each ``Wait``, in percent. A later version may have further words."""
    source_throttled: int = 0
    """For how much of the time a quota of the source delayed reads, in percent."""
    target_throttled: int = 0
    """The same of writes to the target."""
    cpu: int = 0
    """How much CPU time the process used, in percent of one core."""
    cpu_waited: int = 0
    """For how much of the time it could not run since no core of its machine was free, in percent."""
    bytes_per_s: int = 0
    """How fast it copied."""
    source_ms: int = 0
    """How long the source took to answer a read of a backlog, on average; 0: none was answered."""
    target_ms: int = 0
    """How long the target took to answer a write, on average; 0: none was answered."""
    round_trip_ms: int = 0
    """How far away the broker is that was waited for; 0: it is near."""
    memory_bytes: int = 0
    """``memory.max.bytes``."""
    rebuilds: str = ""
    """Why most batches were made anew; empty: most passed as they were."""
