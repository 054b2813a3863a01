"""Where source partitions end that nobody reads just now: else nobody would know that records wait in them.

The story: a partition is idle when the leader of its remote partition goes away. Reads go by target broker, so none
names it any more; records that come then are seen by nobody, and ``partition.stalled`` would never be said. So it is
with one that is being reconciled, or waits for its first position. MirrorMaker 2 reads on, and shows it as RUNNING.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from mm2py.clock import Clock
from mm2py.kafka.list_offsets import LATEST, find_offsets
from mm2py.kafka.port import BrokerId, Brokers
from mm2py.replication.copying.copied_partition import CopiedPartition
from mm2py.replication.copying.states import Drained, Draining

LOOK_EVERY_S: Final = 5.0
"""How often each leader is asked, in one request for all its partitions that are not read."""
_ENDING: Final = (Draining, Drained)


class SourceEnds:
    """Keeps ``CopiedPartition.asked_end`` for the watchdog."""

    def __init__(
        self,
        source: Brokers,
        partitions: Mapping[tuple[str, int], CopiedPartition],
        *,
        fetch_max_wait_s: float,
        clock: Clock,
    ) -> None:
        """Make one; ``run`` starts it.

        Args:
            partitions: those that are copied; it may change meanwhile.
            fetch_max_wait_s: how long a read may wait at the source: so long nothing is heard of an idle partition.
        """
        self._source = source
        self._partitions = partitions
        self.fetch_max_wait_s = fetch_max_wait_s
        self._clock = clock
        self._asked: set[BrokerId] = set()

    async def run(self) -> None:
        """Ask until cancelled. Raises: KafkaError; what no repetition mends."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    await asyncio.sleep(LOOK_EVERY_S)
                    for leader, parts in self._unread().items():
                        if leader not in self._asked:  # one that does not answer is asked no more often
                            self._asked.add(leader)
                            tasks.create_task(self._ask(leader, parts), name=f"source ends on broker {leader}")
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    def _unread(self) -> dict[BrokerId, list[CopiedPartition]]:
        """Those of which nothing was heard for a while, and of which no records are known to wait; by their leaders."""
        found: dict[BrokerId, list[CopiedPartition]] = {}
        now_s = self._clock.monotonic()
        unread_after_s = LOOK_EVERY_S + self.fetch_max_wait_s
        for part in self._partitions.values():
            if now_s - part.read_at_s < unread_after_s:
                part.asked_end = 0
                continue
            known_end = max(part.copier.end_offset or 0, part.log_end)
            if part.source_leader is None or isinstance(part.copier.state, _ENDING):
                continue
            if part.copier.position.source_offset >= known_end:
                found.setdefault(part.source_leader, []).append(part)
        return found

    async def _ask(self, leader: BrokerId, parts: Sequence[CopiedPartition]) -> None:
        try:
            ends = await find_offsets(self._source, {part.key: leader for part in parts}, LATEST)
        finally:
            self._asked.discard(leader)
        for part in parts:
            part.asked_end = ends.get(part.key, part.asked_end)
