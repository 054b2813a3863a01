"""Measures the event loop of a process of mm2py, and its memory: Python runs this when the process starts.

The process has this folder in its ``PYTHONPATH``, and an output folder in ``MM2PY_WATCH``. A task of the loop sleeps
for 2 ms repeatedly. If the loop's thread used much processor time meanwhile, something blocked the loop: a line in
``<pid>.jsonl`` has the time of day in s, and the processor time in ms. It includes other callbacks within the 2 ms, so
it is never less than the pause. When the loop has ended, a last line has the peak memory of the process in KiB.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

_OUT: Final = Path(os.environ["MM2PY_WATCH"]) / f"{os.getpid()}.jsonl"
_EVERY_S: Final = 0.002
_LEAST_MS: Final = 5.0
_run = asyncio.Runner.run


def _note(**fields: float) -> None:
    with _OUT.open("a") as out:
        out.write(json.dumps(fields) + "\n")


def _peak_kib() -> float:
    """Return the peak memory of this program. ``getrusage`` would include the memory of its parent at the fork."""
    status = Path("/proc/self/status").read_text()
    return float(status.partition("VmHWM:")[2].split()[0])


async def _watch() -> None:
    while True:
        before_s = time.thread_time()
        await asyncio.sleep(_EVERY_S)
        used_ms = (time.thread_time() - before_s) * 1000
        if used_ms > _LEAST_MS:
            _note(at_s=time.time(), cpu_ms=used_ms)


async def _watched(main: Coroutine[Any, Any, Any]) -> Any:
    watching = asyncio.create_task(_watch(), name="watch of the loop")
    try:
        return await main
    finally:
        watching.cancel()
        _note(peak_kib=_peak_kib())


def _run_watched(self: asyncio.Runner, coro: Coroutine[Any, Any, Any], **more: Any) -> Any:
    return _run(self, _watched(coro), **more)


asyncio.Runner.run = _run_watched  # type: ignore[method-assign]
