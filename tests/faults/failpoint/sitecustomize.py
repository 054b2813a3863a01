"""What goes wrong within one process of mm2py, at a word from a test: Python runs this when the process starts.

The process has this folder in its ``PYTHONPATH``, and a folder of its own in ``MM2PY_FAILPOINT``. There the test writes
by how much the clocks of this process are wrong (``clocks``), and what is to happen at the next SIGUSR1 (``strike``).
See ``tests/faults/shared.py``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

_FOLDER: Final = Path(os.environ["MM2PY_FAILPOINT"])
_true_time, _true_time_ns, _true_clock_gettime = time.time, time.time_ns, time.clock_gettime
_kept: list[Any] = []


def _wrong_s(which: int) -> float:
    """Return by how many seconds a clock is ahead: the wall clock (0), or the one that runs on in a sleep (1)."""
    try:
        return float((_FOLDER / "clocks").read_text().split()[which])
    except (OSError, ValueError, IndexError):
        return 0.0


def _clock_gettime(which: int) -> float:
    now_s = _true_clock_gettime(which)
    if which == time.CLOCK_REALTIME:
        return now_s + _wrong_s(0)
    return now_s + _wrong_s(1) if which == time.CLOCK_BOOTTIME else now_s


def _strike(*_: object) -> None:
    what, _, amount = (_FOLDER / "strike").read_text().partition(" ")
    if what == "block":  # the event loop, which runs in this thread
        time.sleep(float(amount))
    elif what == "fill":  # memory, until the kernel has had enough
        _kept.append(b"\1" * int(amount))
    elif what == "raise":  # a defect within the copying of partitions, once
        copier = sys.modules["mm2py.copying.copier"].Copier
        usual = copier.handle

        def handle(self: Any, event: Any) -> Any:
            copier.handle = usual
            raise RuntimeError("a defect that a test has planted")

        copier.handle = handle


time.time = lambda: _true_time() + _wrong_s(0)
time.time_ns = lambda: _true_time_ns() + int(_wrong_s(0) * 1e9)
time.clock_gettime = _clock_gettime
signal.signal(signal.SIGUSR1, _strike)
