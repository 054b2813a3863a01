"""Whether remote partitions still hold all that was acknowledged (M4 of docs/broker-facts.md).

The story: a replica that lacks records is elected, or a topic is made anew. Its leader may know no producer, and takes
any sequence: the copy then goes on behind a hole. So before a batch is sent under another leader epoch the end of the
partition is asked for; and now and then where nothing is sent. MirrorMaker 2 does not look.

An end that is too low is looked at twice: right after an election the new leader's high watermark may lag.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from mm2py.clock import Clock
from mm2py.kafka.list_offsets import LATEST, list_offsets
from mm2py.kafka.port import BrokerId, Brokers
from mm2py.replication.copying.copied_partition import CopiedPartition, Handler
from mm2py.replication.copying.events import TargetLost, TargetShort, TargetWhole
from mm2py.replication.copying.states import Copying

IDLE_EVERY_S: Final = 60.0
"""How often those are looked at that got no acknowledgement meanwhile."""
END_PATIENCE_S: Final = 3.0
"""How long a remote partition may seem shorter than what was stored in it until that is believed."""
GATHER_S: Final = 0.01
AGAIN_S: Final = (0.1, 0.2, 0.5, 1.0)
"""How soon a leader is asked again after its first, second, ... time without an answer that settles all."""

Key = tuple[str, int]


class TargetEnds:
    """Looks at the ends of a task's remote partitions, many in one request to each leader."""

    def __init__(
        self,
        target: Brokers,
        partitions: Mapping[Key, CopiedPartition],
        *,
        handle: Handler,
        stale: Callable[[], None],
        clock: Clock,
    ) -> None:
        """Make one; ``run`` starts it.

        Args:
            partitions: those that are copied, by source topic; it may change meanwhile.
            handle: gets ``TargetWhole``, ``TargetShort`` and ``TargetLost``.
            stale: called where fresh metadata may help.
        """
        self._target = target
        self._partitions = partitions
        self._handle = handle
        self._stale = stale
        self._clock = clock
        self._wanted: dict[CopiedPartition, None] = {}
        self._asked: set[BrokerId | None] = set()
        """Leaders that are being asked."""
        self._in_vain: dict[BrokerId | None, int] = {}
        self._short_since_s: dict[CopiedPartition, float] = {}
        self._seen: dict[CopiedPartition, int | None] = {}
        self._news = asyncio.Event()

    def look(self, part: CopiedPartition) -> None:
        """Find out whether this partition is whole; it waits for that (``Copier.is_end_unverified``)."""
        self._wanted[part] = None
        self._news.set()

    async def run(self) -> None:
        """Look until cancelled. Raises: KafkaError; what no repetition mends."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._look_at_idle(), name="ends of idle partitions")
                while True:
                    await self._news.wait()
                    await asyncio.sleep(GATHER_S)
                    self._news.clear()
                    for leader, parts in _by_leader(self._wanted).items():
                        if leader not in self._asked:  # one that does not answer holds up its own partitions only
                            self._asked.add(leader)
                            for part in parts:
                                del self._wanted[part]
                            tasks.create_task(self._settle(leader, parts), name=f"ends on broker {leader}")
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    async def _settle(self, leader: BrokerId | None, parts: Sequence[CopiedPartition]) -> None:
        """Ask about partitions whose end is unverified; soon once more about those of which it still is."""
        try:
            await self._ask(leader, parts)
            again = [part for part in parts if part.copier.is_end_unverified and self._is_asked(part)]
            times = self._in_vain[leader] = self._in_vain.get(leader, -1) + 1 if again else -1
            if again:
                if leader is not None:  # of those without a leader the watch takes care
                    self._stale()
                await asyncio.sleep(AGAIN_S[min(times, len(AGAIN_S) - 1)])
        finally:
            self._asked.discard(leader)
        for part in again:
            self._wanted[part] = None
        self._news.set()

    async def _look_at_idle(self) -> None:
        """Look at those that got no acknowledgement since the last time: what they got would have told."""
        while True:
            await asyncio.sleep(IDLE_EVERY_S)
            before = self._seen
            self._seen = {part: part.copier.vouched_offset for part in self._partitions.values()}
            idle = [
                part
                for part, offset in self._seen.items()
                if offset is not None
                and before.get(part) == offset
                and isinstance(part.copier.state, Copying)
                and not part.copier.is_end_unverified
            ]
            for leader, parts in _by_leader(idle).items():
                await self._ask(leader, parts)
                for part in parts:
                    if part.copier.is_end_unverified:
                        self.look(part)

    def _is_asked(self, part: CopiedPartition) -> bool:
        return self._partitions.get(part.key) is part and part.copier.vouched_offset is not None

    async def _ask(self, leader: BrokerId | None, parts: Sequence[CopiedPartition]) -> None:
        """Ask a leader, and tell the copiers; of some there may be no answer."""
        if leader is None:
            return
        asked = {
            (part.target_topic, part.partition): (part, part.copier.vouched_offset or 0, part.copier.end_checks)
            for part in parts
            if self._is_asked(part)
        }
        epochs = {
            key: part.copier.target_leader_epoch
            for key, (part, _, _) in asked.items()
            if part.copier.target_leader_epoch is not None
        }
        leaders = dict.fromkeys(asked, leader)
        answers = await list_offsets(self._target, leaders, LATEST, leader_epochs=epochs, skip_silent=True)
        for key, answer in answers.items():
            part, expected, check = asked[key]
            if answer.error_code == 0 and self._is_asked(part):
                self._judge(part, expected, answer.offset, check)

    def _judge(self, part: CopiedPartition, expected: int, end: int, check: int) -> None:
        if end >= expected:
            self._short_since_s.pop(part, None)
            self._handle(part, TargetWhole(check))
            return
        now_s = self._clock.monotonic()
        if not part.copier.is_end_unverified:
            self._handle(part, TargetShort())
        if now_s - self._short_since_s.setdefault(part, now_s) < END_PATIENCE_S:
            return
        del self._short_since_s[part]
        self._handle(part, TargetLost(expected, end))


def _by_leader(parts: Iterable[CopiedPartition]) -> dict[BrokerId | None, list[CopiedPartition]]:
    found: dict[BrokerId | None, list[CopiedPartition]] = {}
    for part in parts:
        found.setdefault(part.target_leader, []).append(part)
    return found
