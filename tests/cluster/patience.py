"""By what tests measure time that real processes take: a factor, and a clock that slows down on a busy machine.

A deadline by the wall clock is red by luck: on a machine with more work than cores, a worker that needs two seconds of
a core gets them in twenty. Linux says for how long some task was ready to run and had no core (``/proc/pressure/cpu``,
kernel 4.20 and later). This clock leaves that time out, so far that it still goes at a quarter of the wall clock's
speed: a test that waits for what never comes ends. Where the kernel does not say it, it is the wall clock.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

PATIENCE: Final = float(os.environ.get("MM2PY_TESTS_PATIENCE", "1"))
"""By what all deadlines are multiplied, where many others use the machine."""
SLOWEST: Final = 0.25
PRESSURE: Final = Path("/proc/pressure/cpu")
_SOME: Final = re.compile(r"^some .*total=(\d+)$", re.MULTILINE)


def stalled_s(path: Path = PRESSURE) -> float:
    """Return for how long some task has waited for a core since the machine started; 0 where that is not known."""
    try:
        found = _SOME.search(path.read_text())
    except OSError:  # an older kernel, another system, or one that does not count it
        return 0.0
    return int(found[1]) / 1e6 if found else 0.0


def counted_s(passed_s: float, stalled_s: float) -> float:
    """Return by how much the clock advances within ``passed_s``, for ``stalled_s`` of which some task had no core."""
    return max(passed_s - stalled_s, SLOWEST * passed_s)


class PatientClock:
    """Never goes back. It may be asked from several threads."""

    def __init__(
        self, monotonic_s: Callable[[], float] = time.monotonic, stalled_s: Callable[[], float] = stalled_s
    ) -> None:
        self._monotonic_s, self._stalled_s = monotonic_s, stalled_s
        self._lock = threading.Lock()
        self._seen = monotonic_s(), stalled_s()
        self._now_s = 0.0

    def now_s(self) -> float:
        """Return the time of this clock in seconds; only differences mean something."""
        with self._lock:
            seen = self._monotonic_s(), self._stalled_s()
            self._now_s += counted_s(seen[0] - self._seen[0], seen[1] - self._seen[1])
            self._seen = seen
            return self._now_s


now_s: Final = PatientClock().now_s
"""The clock of this process. It has to be asked now and then: what passed since the last time is judged as a whole."""
