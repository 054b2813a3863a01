"""What a worker measures of its own process: memory, CPU, and how late its event loop runs what is due.

A late loop delays both heartbeats and answers. No other number shows that, because all of them are measured in this
loop.

Counterpart: the JVM's own metrics, which MirrorMaker 2's processes have too.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mm2py.clock import Clock, SystemClock
from mm2py.copying.reading.limits import MemoryBudget
from mm2py.metrics.counters import CpuTime, Metrics
from mm2py.metrics.worker_numbers import ProcessSnapshot

LOOKED_AT_EVERY_S: Final = 0.25
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_MEMORY: Final = Path("/proc/self/statm")
_SCHEDULER: Final = Path("/proc/self/schedstat")
"""Of the main thread, in which the event loop runs: nanoseconds on a core, nanoseconds of waiting for one, ..."""


@dataclass(frozen=True, slots=True)
class Vitals:
    """What a worker counts apart from its connectors."""

    name: str = ""
    """The worker's, for people."""
    clock: Clock = field(default_factory=SystemClock)
    metrics: Metrics = field(default_factory=Metrics)
    memory: MemoryBudget = field(default_factory=lambda: MemoryBudget(0))
    started_at_s: float = field(default_factory=time.time)

    def measure(self) -> ProcessSnapshot:
        """Return the present values."""
        return ProcessSnapshot(
            os.getpid(),
            self.started_at_s,
            time.process_time(),
            _resident_bytes(),
            self.memory.held_bytes,
            self.memory.limit_bytes,
            self.metrics.loop_delay_s.state(),
        )

    async def watch_loop(self) -> None:
        """Measure the delay of the event loop, and its CPU time, until cancelled."""
        clock, window = self.clock, self.metrics.loop_delay_s
        while True:
            due_s = clock.monotonic() + LOOKED_AT_EVERY_S
            await asyncio.sleep(LOOKED_AT_EVERY_S)
            now_s = clock.monotonic()
            window.add(max(0.0, now_s - due_s), now_s)
            self.metrics.cpu = CpuTime(time.process_time(), _waited_for_core_s())


def _resident_bytes() -> int:
    """Return the resident memory of the process; 0 if the system does not show it."""
    try:
        return int(_MEMORY.read_text("ascii").split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def _waited_for_core_s() -> float:
    """Return for how long the event loop has waited for a free core; 0 if the system does not show it."""
    try:
        return int(_SCHEDULER.read_text("ascii").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
