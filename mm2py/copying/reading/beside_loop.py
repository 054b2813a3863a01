"""Heavy decoding runs in one thread beside the event loop.

A batch may hold a thousand times its bytes, and a million records. On the event loop, decoding it would hold up
heartbeats, and the worker would be evicted for what one producer has sent. So ``plan`` first decodes no more than one
step of the loop may (``LIGHT_WORK_BYTES``). Where that is not enough, it is called again here. The codecs and the
compiled core let the loop run meanwhile, and Python's own code lets the loop run every 5 ms.

There is one thread, so at most one batch is decoded at a time, and the memory is that of one batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, TypeVar

from mm2py.copying.planning.steps import Plan
from mm2py.records.batch import MAGIC, read_header, split
from mm2py.records.compression import LIGHT_WORK_BYTES, RECORD_WORK_BYTES, Codec
from mm2py.records.varints import CorruptBatch

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

_THREAD: Final = ThreadPoolExecutor(1, "mm2py decoding")


async def beside_loop(
    function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """Call a function in the thread. If the call is cancelled, the function still ends, and its result is dropped."""
    return await asyncio.get_running_loop().run_in_executor(_THREAD, partial(function, *args, **kwargs))


def is_light(records: memoryview) -> bool:
    """Return whether all of a read may be decoded on the loop: it is small, has few records, and is not compressed."""
    work = len(records)
    try:
        for batch in split(records):
            header = read_header(batch)
            work += RECORD_WORK_BYTES * max(header.record_count, 0)
            if header.magic != MAGIC or header.codec != Codec.NONE or work > LIGHT_WORK_BYTES:
                return False
    except CorruptBatch:
        return False
    return True


async def planned_by(make: Callable[..., Plan]) -> Plan:
    """Return a plan that is made on the loop if that is quick, and in the thread otherwise.

    Args:
        make: ``plan`` with all its arguments but ``light``.
    """
    found = make(light=True)
    return await beside_loop(make, light=False) if found.is_heavy else found
