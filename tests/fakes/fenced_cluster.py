"""A cluster whose producers are fenced, and the records of fences, in memory: any step may be the last one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from mm2py.dr.fence.fence_log import FenceChangedMeanwhile
from mm2py.dr.fence.record import FenceBinding, FenceRecord, counting, decode_fence, encode_fence


class Killed(Exception):
    """The process ended here."""


class Steps:
    """Counts what reaches a cluster; the process ends before or after one of these."""

    def __init__(self, *, last: int | None = None, is_done: bool = False) -> None:
        """``last``: the step that is the last one; ``is_done``: it is carried out, and only its answer is lost."""
        self.last, self.is_done, self.count = last, is_done, 0

    def before(self) -> None:
        self.count += 1
        if self.count == self.last and not self.is_done:
            raise Killed

    def after(self) -> None:
        if self.count == self.last and self.is_done:
            raise Killed


class MemoryRecords:
    """A ``FenceRecords`` in memory, through the layout of the records."""

    def __init__(self, alias: str, steps: Steps) -> None:
        self.alias, self.steps = alias, steps
        self.log: list[bytes] = []
        self.sees_nothing_once = False
        """The next read was made before anything was written."""

    async def read(self, flow: str) -> FenceRecord | None:
        if self.sees_nothing_once:
            self.sees_nothing_once = False
            return None
        return counting(record for value in self.log if (record := decode_fence(value)).flow == flow)

    async def write(self, record: FenceRecord) -> None:
        self.steps.before()
        self.log.append(encode_fence(record))
        self.steps.after()
        counts = await self.read(record.flow)
        if counts != record:
            raise FenceChangedMeanwhile(self.alias, record.flow, counts)


class MemoryCluster:
    """A ``FencedCluster`` in memory. Each binding and each topic is a step of its own."""

    def __init__(self, steps: Steps, bindings: Collection[FenceBinding], sizes: Mapping[str, str | None]) -> None:
        self.steps = steps
        self.bindings = set(bindings)
        self.own_sizes = dict(sizes)

    async def add(self, bindings: Collection[FenceBinding]) -> None:
        for one in bindings:
            self.steps.before()
            self.bindings.add(one)
            self.steps.after()

    async def remove(self, bindings: Collection[FenceBinding]) -> None:
        for one in bindings:
            self.steps.before()
            self.bindings.discard(one)
            self.steps.after()

    async def sizes(self, topics: Sequence[str]) -> dict[str, str | None]:
        return {topic: self.own_sizes[topic] for topic in topics if topic in self.own_sizes}

    async def set_sizes(self, sizes: Mapping[str, str | None]) -> None:
        for topic, size in sizes.items():
            self.steps.before()
            self.own_sizes[topic] = size
            self.steps.after()
