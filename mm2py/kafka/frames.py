"""Memory for received frames that is used again and again.

A frame of a backlog has megabytes and lives for some milliseconds. Taken from the heap each time, such blocks and the
small objects that are made between them tear holes into it: a mirror at full load grew by 5 MB every few minutes. Here
large frames get blocks that stay, as many as were ever in use at once, until they have not been needed for a while.

Nobody gives a block back. Whatever still reads from a frame holds a view of it, a ``bytearray`` with views refuses to
change its size, and that is how a block tells whether it is free: there is no count that could go wrong.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from typing import Final

Frame = bytearray | memoryview

KEPT_FROM_BYTES: Final = 256 << 10
"""Smaller frames are left to the allocator."""
STEP_BYTES: Final = 1 << 20
"""Blocks have a multiple of this size."""
MOST_SPARE: Final = 4
"""A block so many times larger than the frame is left for a larger one."""
KEPT_S: Final = 30.0
"""A block that nobody needed for so long goes back to the system."""


@dataclass(slots=True, order=True)
class _Block:
    size: int
    memory: bytearray = field(compare=False)
    used_at_s: float = field(compare=False)

    @property
    def is_free(self) -> bool:
        try:
            self.memory.append(self.memory.pop())
        except BufferError:
            return False
        return True


class FrameMemory:
    """The blocks of all connections of a process."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        """Smallest first."""
        self._look_again_at_s = 0.0

    @property
    def kept_bytes(self) -> int:
        return sum(block.size for block in self._blocks)

    def take(self, size: int, now_s: float) -> Frame:
        """Return ``size`` writable bytes, whatever they hold. They are free again when nobody has a view of them."""
        if now_s >= self._look_again_at_s:
            self._look_again_at_s = now_s + KEPT_S / 2
            self._blocks = [block for block in self._blocks if now_s - block.used_at_s < KEPT_S or not block.is_free]
        if size < KEPT_FROM_BYTES:
            return bytearray(size)
        for block in self._blocks:
            if size <= block.size <= max(STEP_BYTES, MOST_SPARE * size) and block.is_free:
                break
        else:
            whole = -(-size // STEP_BYTES) * STEP_BYTES
            block = _Block(whole, bytearray(whole), now_s)
            insort(self._blocks, block)
        block.used_at_s = now_s
        return memoryview(block.memory)[:size]
