"""Up to which moment the partitions of a task are copied: asks leaders for ends that no read names in time.

Most answers come for free: each read of a partition at its end names the end (``FetchLane``). For the others, leaders
are asked here once a second: partitions with a new leader, which has to be asked first (see ``SafeTime``); those that
are read from a follower; and those that no read has named for two seconds, because a backlog is read over many
connections, or because reads wait for longer at the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from mm2py.copying.copied_partition import CopiedPartition
from mm2py.copying.states import Copying
from mm2py.errors import FirstErrorGroup
from mm2py.kafka.errors import KafkaError
from mm2py.kafka.list_offsets import LATEST, list_offsets
from mm2py.kafka.port import BrokerId, TopicPartition
from mm2py.records.safe_point import SafePoint
from mm2py_connectors.source.context import FlowContext

ASK_EVERY_S: Final = 1.0
READ_LATE_S: Final = 2.0
"""A partition whose reads count is asked for when its last read that was answered is older."""
ASK_PATIENCE_S: Final = 10.0
"""How long a leader may take to answer before it is asked again."""
ASKED_MOST: Final = 2_000
"""How many partitions of one leader are asked for at once; those that were named longest ago come first."""


class SafeTimes:
    """Asks for the ends of one task's partitions."""

    def __init__(self, context: FlowContext, partitions: Mapping[TopicPartition, CopiedPartition]) -> None:
        """Make one; ``run`` starts it. ``partitions`` are those that are copied; it may change meanwhile."""
        self._context = context
        self._partitions = partitions
        self._clock = context.clock
        self._asking: set[BrokerId] = set()
        """Leaders that have not answered yet."""

    async def run(self) -> None:
        """Ask until cancelled. Raises: KafkaError that no retry mends."""
        async with FirstErrorGroup() as tasks:
            while True:
                await asyncio.sleep(ASK_EVERY_S)
                for leader, parts in self._due(self._clock.wall_ms()).items():
                    if leader not in self._asking:
                        self._asking.add(leader)
                        tasks.create_task(self._ask(leader, parts), name=f"safe times on broker {leader}")

    def _due(self, now_ms: int) -> dict[BrokerId, list[CopiedPartition]]:
        """Return by leader the partitions whose end no answer has named for a while."""
        due: dict[BrokerId, list[CopiedPartition]] = {}
        for part in self._partitions.values():
            leaders = part.leaders
            if leaders.source is None or leaders.target is None or type(part.copier.state) is not Copying:
                continue
            is_read = part.safe.counts_reads(leaders.source_epoch) and leaders.replica.follower is None
            passed_ms = now_ms - part.safe.asked_ms()  # below 0: the clock was set back
            if not 0 <= passed_ms < 1000 * (READ_LATE_S if is_read else ASK_EVERY_S):
                due.setdefault(leaders.source, []).append(part)
        for leader, parts in due.items():
            if len(parts) > ASKED_MOST:
                due[leader] = sorted(parts, key=lambda part: part.safe.asked_ms())[:ASKED_MOST]
        return due

    async def _ask(self, leader: BrokerId, parts: list[CopiedPartition]) -> None:
        epochs = {part.key: part.leaders.source_epoch for part in parts}
        positions = [part.copier.position.source_offset for part in parts]
        sent_ms = self._clock.wall_ms()
        try:
            async with asyncio.timeout(ASK_PATIENCE_S):
                answers = await list_offsets(
                    self._context.source.brokers,
                    dict.fromkeys(epochs, leader),
                    LATEST,
                    leader_epochs=epochs,
                )
        except (KafkaError, TimeoutError) as error:
            if isinstance(error, KafkaError) and not error.may_be_mended:
                raise
            return  # reads meet the same trouble, and tell of it
        finally:
            self._asking.discard(leader)
        for part, before in zip(parts, positions, strict=True):
            answer = answers.get(part.key)
            if answer is None or answer.error_code or self._partitions.get(part.key) is not part:
                continue
            if answer.offset >= before and not part.copier.is_end_unverified:  # else this is another log, or was cut
                part.safe.learn_end(sent_ms, answer.offset, part.copier.position.source_offset, epochs[part.key])


def safe_point(
    parts: Iterable[CopiedPartition], starting: TopicPartition | None, left_out: int, seen: int
) -> SafePoint:
    """Return up to when all these partitions are copied.

    Args:
        parts: the partitions that count.
        starting: one that this worker owns and does not copy yet; None: there is none.
        left_out: how many partitions do not count, because they wait for an operator.
        seen: the offset of the control log up to which this worker has read, before it looked at its partitions.
    """
    if starting is not None:
        return SafePoint(None, _name(starting), left_out, seen)
    oldest = min(parts, key=lambda part: part.safe.at_ms or 0, default=None)
    if oldest is None:
        return SafePoint(None, "", left_out, seen)
    return SafePoint(oldest.safe.at_ms, _name(oldest.key), left_out, seen)


def _name(key: TopicPartition) -> str:
    return f"{key[0]}-{key[1]}"
