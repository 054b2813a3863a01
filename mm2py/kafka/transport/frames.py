"""Memory for received frames that is used again and again.

A frame of a backlog has megabytes and lives for some milliseconds. Taken from the system each time, every page of it is
cleared once more. With frames from the heap, a mirror at full load grew by 5 MB every few minutes. Here large frames
get blocks of pages outside the heap, which stay until they have not been needed for a while. That alone was not enough:
the resident set still crept, from 172 to 176 MB in nine minutes. It was flat when the heap could shrink again as well
(``KEPT_HEAP_BYTES`` in ``allocator.py``).

No caller gives a block back. Code that still reads from a frame holds a view of it, and a ``mmap`` with views refuses
to change its size. So a block can tell whether it is free, without a count that could go wrong.
"""

from __future__ import annotations

import mmap
from typing import Final

Frame = bytearray | memoryview

KEPT_FROM_BYTES: Final = 512 << 10
"""Smaller frames are left to the allocator."""
STEP_BYTES: Final = 256 << 10
"""Blocks have a multiple of this size."""
MOST_SPARE: Final = 1.5
"""A block so many times larger than the frame is left for a larger one: memory is counted by frames."""
KEPT_S: Final = 30.0
"""A block that was not needed for so long goes back to the system."""
LIMIT_BYTES: Final = 48 << 20
"""The default for how much blocks may take; the command gives them half of ``memory.max.bytes``."""


class _Block:
    __slots__ = ("memory", "size", "used_at_s")

    def __init__(self, size: int) -> None:
        self.size = size
        self.memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.used_at_s = 0.0

    @property
    def is_free(self) -> bool:
        try:
            self.memory.resize(self.size)
        except BufferError:
            return False
        except (SystemError, OSError):  # what systems say that cannot or may not resize, after Python looked for views
            return True
        return True


class FrameMemory:
    """The blocks of all connections of a process."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        """``limit_bytes``: when blocks would take more than that, those that are free make room for a new one."""
        self._limit_bytes = limit_bytes
        self._blocks: list[_Block] = []
        """In the order of their last use."""
        self._look_again_at_s = 0.0

    @property
    def kept_bytes(self) -> int:
        return sum(block.size for block in self._blocks)

    def take(self, size: int, now_s: float) -> Frame:
        """Return ``size`` writable bytes with any content. They are free again when no view of them is left."""
        if now_s >= self._look_again_at_s:
            self._look_again_at_s = now_s + KEPT_S / 2
            self._blocks = [block for block in self._blocks if now_s - block.used_at_s < KEPT_S or not block.is_free]
        if size < KEPT_FROM_BYTES:
            return bytearray(size)
        block = self._free_block(size) or self._new_block(-(-size // STEP_BYTES) * STEP_BYTES)
        block.used_at_s = now_s
        self._blocks.append(block)
        return memoryview(block.memory)[:size]

    def _free_block(self, size: int) -> _Block | None:
        """Take out the smallest block that will do."""
        fitting = [block for block in self._blocks if size <= block.size <= MOST_SPARE * size and block.is_free]
        if not fitting:
            return None
        best = min(fitting, key=lambda block: block.size)
        self._blocks.remove(best)
        return best

    def _new_block(self, size: int) -> _Block:
        excess = self.kept_bytes + size - self._limit_bytes
        for block in list(self._blocks):
            if excess > 0 and block.is_free:
                self._blocks.remove(block)
                excess -= block.size
        return _Block(size)
