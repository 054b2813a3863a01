"""What the settings of a flow say about its reads."""

from __future__ import annotations

from dataclasses import dataclass, field

from mm2py.topics.filters import CopyModes


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How a flow reads; sizes in bytes."""

    partition_max_bytes: int
    alone_max_bytes: int
    """The same for a partition that is read alone."""
    max_bytes: int
    min_bytes: int
    max_wait_ms: int
    read_committed: bool
    copy_modes: CopyModes = field(default_factory=CopyModes)
    connections_max: int = 1
    """Most connections to one source broker, for backlogs."""
    linger_s: float = 0.0
    """How long a partition at the end of its log rests after it got records, so that the next read brings more."""
    rack: str = ""
    """The rack of this worker; empty: it reads from leaders only."""
