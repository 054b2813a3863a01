"""Tells the C library to keep large blocks of memory for the next batch instead of handing them back.

Merged batches and what is decompressed have up to some megabytes. By default glibc gives such a block back to the
system as soon as it is free, and the next one costs a page fault and a cleared page every 4 KB. While fetched frames
were such blocks too (they have memory of their own now, ``transport/frames.py``), passing 16 KB batches of 1 KB records
took 4.4 s of CPU a million records without this, and 2.5 s with it.
"""

from __future__ import annotations

import ctypes
from typing import Final

KEPT_BLOCK_BYTES: Final = 32 << 20
"""Blocks up to this size come from the heap. It is as much as may be asked for: where glibc checks it, it refuses more
than half of HEAP_MAX_SIZE, which is 64 MB on 64-bit systems by default."""
KEPT_HEAP_BYTES: Final = 16 << 20
"""The heap shrinks when more than this is free at its end. At full load memory was flat only with this and with the
blocks of ``kafka/transport/frames.py``."""
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3


def keep_large_blocks() -> bool:
    """Do so for this process. Returns False where the C library does not know how; all works there too, slower."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    taken = [mallopt(_MMAP_THRESHOLD, KEPT_BLOCK_BYTES), mallopt(_TRIM_THRESHOLD, KEPT_HEAP_BYTES)]
    return all(taken)
