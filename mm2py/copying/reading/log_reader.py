"""Reads stretches of many partitions of one cluster, in few requests, until each stretch has found what it looks for.

It serves lookups other than copying: the tails of remote partitions, and the source records that belong to them. The
reader follows a partition to its new leader. A partition without a leader waits and delays no other.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from mm2py.clock import Clock
from mm2py.copying.planning.planner import plan
from mm2py.copying.planning.steps import PASS_ALL, MergeRule, Plan, TargetRules
from mm2py.copying.planning.transforming import PartitionTransforms
from mm2py.copying.reading.beside_loop import beside_loop, is_light
from mm2py.errors import FirstErrorGroup
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.error_codes import OFFSET_OUT_OF_RANGE, TOPIC_CHANGED, UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import Backoff, BrokerRefused, KafkaError
from mm2py.kafka.list_offsets import chunks
from mm2py.kafka.port import BrokerId, Brokers, FetchedPartition, FetchRequest, PartitionFetch, TopicFetch

READ_BYTES: Final = 1 << 20
READ_BYTES_MOST: Final = 1 << 30
REQUEST_BYTES: Final = 16 << 20
PARTITIONS_A_REQUEST: Final = 1000
WAIT_MS: Final = 100
"""How long a read waits for records at the end of a log."""


class LogStretch(ABC):
    """A part of one partition's log that is to be read."""

    def __init__(self, topic: str, topic_id: uuid.UUID | None, partition: int, clock: Clock) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.read_bytes = READ_BYTES
        self.is_slow = False
        """Decoding it never runs on the event loop."""
        self._clock = clock
        self._give_up_at_s = float("inf")

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.partition

    @property
    @abstractmethod
    def offset(self) -> int:
        """Where to read next."""

    def decode(self, fetched: FetchedPartition) -> None:  # noqa: B027  (most have nothing to decode)
        """Decode records that were read from ``offset`` on, before ``take``. It may be called beside the event loop."""

    @abstractmethod
    def take(self, fetched: FetchedPartition) -> bool:
        """Take what was read from ``offset`` on, records or OFFSET_OUT_OF_RANGE. Return whether the stretch is done."""

    def _is_patient(self, patience_s: float) -> bool:
        """Whether to try again; asked when a read brought nothing new."""
        now_s = self._clock.monotonic()
        self._give_up_at_s = min(self._give_up_at_s, now_s + patience_s)
        return now_s < self._give_up_at_s


class LogReader:
    """Reads from the leaders of one cluster."""

    def __init__(self, brokers: Brokers, *, read_committed: bool, rng: random.Random, channel: str) -> None:
        self._brokers = brokers
        self._read_committed = read_committed
        self._rng = rng
        self._channel = channel

    async def read(self, stretches: Iterable[LogStretch], done: Callable[[Sequence[LogStretch]], None]) -> None:
        """Read until every stretch is done, or its topic is gone or refused. ``done`` gets them as they finish.

        Raises:
            KafkaError: an error that no repetition solves.
        Cancelling is safe: only ``offset`` is kept.
        """
        wanted = {stretch.key: stretch for stretch in stretches}
        async with FirstErrorGroup() as tasks:
            for chunk in chunks(list(wanted.values()), PARTITIONS_A_REQUEST):
                tasks.create_task(self._serve({stretch.key: stretch for stretch in chunk}, done, tasks))

    async def _serve(
        self,
        wanted: dict[tuple[str, int], LogStretch],
        done: Callable[[Sequence[LogStretch]], None],
        tasks: asyncio.TaskGroup,
    ) -> None:
        """Read stretches that probably have one leader. Those of other leaders get tasks of their own."""
        backoff = Backoff(self._rng, first_s=0.05, most_s=1.0)
        while wanted:
            try:
                by_leader = await self._by_leader(wanted.values())
                first, *others = sorted(by_leader, key=lambda leader: -1 if leader is None else leader)
                for other in others:
                    apart = {stretch.key: stretch for stretch in by_leader[other]}
                    for key in apart:
                        del wanted[key]
                    tasks.create_task(self._serve(apart, done, tasks))
                if first is not None:
                    while wanted:
                        if await self._read_once(first, wanted, done):
                            backoff.reset()
                        else:
                            break
            except KafkaError as error:
                if not error.retriable:
                    raise
            if wanted:
                await asyncio.sleep(backoff.next_s())

    async def _by_leader(self, stretches: Iterable[LogStretch]) -> dict[BrokerId | None, list[LogStretch]]:
        stretches = list(stretches)
        metadata = await fetch_metadata(
            self._brokers, sorted({stretch.topic for stretch in stretches}), channel=self._channel
        )
        found: dict[BrokerId | None, list[LogStretch]] = {}
        for stretch in stretches:
            topic = metadata.topics.get(stretch.topic)
            part = None if topic is None else topic.partitions.get(stretch.partition)
            found.setdefault(None if part is None else part.leader, []).append(stretch)
        return found

    async def _read_once(
        self,
        leader: BrokerId,
        wanted: dict[tuple[str, int], LogStretch],
        done: Callable[[Sequence[LogStretch]], None],
    ) -> bool:
        """Read once from one leader. Return whether it still leads all of them."""
        by_topic: dict[tuple[str, uuid.UUID | None], list[PartitionFetch]] = {}
        for stretch in wanted.values():
            by_topic.setdefault((stretch.topic, stretch.topic_id), []).append(
                PartitionFetch(stretch.partition, stretch.offset, stretch.read_bytes)
            )
        request = FetchRequest(
            [TopicFetch(topic, topic_id, parts) for (topic, topic_id), parts in by_topic.items()],
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=REQUEST_BYTES,
            read_committed=self._read_committed,
            answer_all=True,
        )
        reply = await self._brokers.send(leader, request, channel=self._channel)
        if reply.error_code:
            return False
        finished: list[LogStretch] = []
        leads_all = True
        for fetched in reply.partitions:
            key = (fetched.topic, fetched.partition)
            if key not in wanted:
                continue
            stretch = wanted[key]
            if fetched.error_code not in {0, OFFSET_OUT_OF_RANGE}:
                leads_all = False
                refused = BrokerRefused(f"Reading {stretch.topic}-{stretch.partition}", fetched.error_code)
                if not refused.retriable or refused.code in {UNKNOWN_TOPIC_OR_PARTITION, *TOPIC_CHANGED}:
                    finished.append(stretch)
                continue
            before = stretch.offset
            if not fetched.error_code:
                await _decode(stretch, fetched)
            if stretch.take(fetched):
                finished.append(stretch)
            elif stretch.offset == before and len(fetched.records):
                stretch.read_bytes = min(2 * stretch.read_bytes, READ_BYTES_MOST)  # its first batch was cut
            wanted[key] = wanted.pop(key)  # the partitions served now come last next time
        for stretch in finished:
            del wanted[stretch.key]
        if finished:
            done(finished)
        return leads_all


async def _decode(stretch: LogStretch, fetched: FetchedPartition) -> None:
    """Decode what was read. If cancelled, wait for the end: others may read the stretch next, so it must not change."""
    if not stretch.is_slow and is_light(fetched.records):
        stretch.decode(fetched)
        return
    decoding = asyncio.ensure_future(beside_loop(stretch.decode, fetched))
    try:
        await asyncio.shield(decoding)
    except asyncio.CancelledError:
        await asyncio.wait([decoding])
        raise


_ANY_SIZE: Final = TargetRules(max_message_bytes=(1 << 31) - 1)


class PlannedStretch(LogStretch):
    """A stretch of which only the records that would be copied are wanted.

    A damaged batch is not in the plan: it is read again.
    """

    def __init__(
        self,
        topic: str,
        topic_id: uuid.UUID | None,
        partition: int,
        *,
        offset: int,
        read_committed: bool,
        clock: Clock,
        transforms: PartitionTransforms | None,
        merging: MergeRule = PASS_ALL,
    ) -> None:
        """Make one.

        Args:
            transforms: what is done to each record before it is looked at, as when it is copied. None: nothing.
            merging: which batches are merged before they are looked at.
        """
        super().__init__(topic, topic_id, partition, clock)
        self.is_slow = transforms is not None
        self._transforms = transforms
        self.read_committed = read_committed
        self._merging = merging
        self._offset = offset
        self.planned = Plan(next_offset=offset)
        """What was read last."""

    @property
    def offset(self) -> int:
        return self._offset

    def decode(self, fetched: FetchedPartition) -> None:
        """Plan what was read."""
        self.planned = planned = plan(
            fetched.records,
            wanted_offset=self._offset,
            read_committed=self.read_committed,
            aborted=fetched.aborted,
            rules=_ANY_SIZE,
            merging=self._merging,
            transforms=self._transforms,
        )
        if planned.steps:
            self._give_up_at_s = float("inf")
        self._offset = planned.next_offset
