"""Reads from one source broker.

A *fetch lane* keeps a few requests in flight to its broker. Partitions with a backlog share one, which is answered at
once. Partitions at the end of their logs share requests that wait for new records, busy and idle partitions apart.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from math import inf
from typing import Final

from mm2py.clock import Clock
from mm2py.copying.copied_partition import CopiedPartition, LaneProblem
from mm2py.copying.events import Diverged, Fetched, FetchRefused
from mm2py.copying.link_tuning import LOOK_S
from mm2py.copying.planning.steps import Plan
from mm2py.copying.reading.beside_loop import beside_loop
from mm2py.copying.reading.limits import FrameLease, MemoryAccount, ReadLimits
from mm2py.copying.reading.planned_read import UnplannedRead
from mm2py.copying.reading.read_pool import ReadPool
from mm2py.copying.reading.read_replica import LEADER, ReadReplica, after_failure, named_by_leader
from mm2py.copying.reading.read_settings import ReadSettings
from mm2py.copying.reading.read_sizes import Kind, are_spread, partition_bytes, read_bytes, reads_at_once
from mm2py.copying.waits import BrokerTimes
from mm2py.errors import FirstErrorGroup
from mm2py.kafka.errors import Backoff, KafkaError
from mm2py.kafka.port import (
    BrokerId,
    Brokers,
    FetchedPartition,
    FetchRequest,
    PartitionFetch,
    TopicFetch,
    TopicPartition,
)

IDLE_AFTER_S: Final = 10.0
"""A partition at the end of its log that got nothing for this long is idle. Idle partitions are read together, so that
requests for busy partitions stay small."""
RATE_LOOKED_AT_S: Final = 0.5
"""How often a read that waits for its rate checks whether the rate has changed."""
LAST_WAIT_MS: Final = 50
"""How long a *brief* read may wait at the broker: a read on the last free channel."""
LITTLE_BYTES: Final = 4 << 10
"""A read that brings no more than this may use a connection that never carried more: kernels send this much at once."""
READS_APART_S: Final = 0.002
"""At the end of a log, reads that bring records start this far apart. Otherwise each record of a stream of 1,000 a
second would be read and sent alone. A single record never waits.
``docs/decisions/0007-reads-two-milliseconds-apart.md`` has the costs."""
_Queue = tuple[BrokerId, Kind]
"""The reads that a partition may join: by target broker, and by whether they wait for new records."""


class FetchLane:
    """Reads partitions from one source broker: their leader, or a follower in the worker's rack."""

    def __init__(
        self,
        broker: BrokerId,
        brokers: Brokers,
        settings: ReadSettings,
        limits: ReadLimits,
        *,
        clock: Clock,
        rng: random.Random,
        problem: LaneProblem,
        times: BrokerTimes | None = None,
    ) -> None:
        """Make a lane; ``run`` starts it. ``times`` are those of all lanes of the flow."""
        self.broker = broker
        self._times = times or BrokerTimes()
        self.partitions: dict[tuple[str, int], CopiedPartition] = {}
        self.problem = problem
        self._brokers = brokers
        self.settings = settings
        """The settings of the next read."""
        self._read_bytes = 0
        self._account = limits.account
        self._rate = limits.rate
        self._clock = clock
        self._backoff = Backoff(rng)
        self._wake = asyncio.Event()
        self._under_way: Counter[_Queue] = Counter()
        """Reads under way, by queue."""
        self._channels: dict[str, list[str]] = {}
        """Free channels, by the beginning of their names; a heap each."""
        self._made_channels: Counter[str] = Counter()
        self._brief: set[_Queue] = set()
        """Idle queues with a brief read under way."""
        self._queues: dict[_Queue, dict[tuple[str, int], CopiedPartition]] = {}
        """Partitions that may be read, in the order of the next request."""
        self._backlog_seen = asyncio.Event()
        """Set while some partition has a backlog, and after that until all but one connection are closed."""
        self.pool = ReadPool(broker, brokers, limits, self, clock=clock, rng=rng, problem=problem, times=self._times)

    def offer(self, partition: CopiedPartition, /) -> None:
        """Note that ``partition`` may be ready to be read."""
        is_pooled = self.pool.has(partition)
        if partition.reading.current is not None and not is_pooled:
            return
        replica = partition.leaders.replica
        if replica.follower is not None and self.is_read_here(partition) and replica.is_over(self._clock.monotonic()):
            self._read_from(partition, LEADER)
            return
        if is_pooled:
            self.pool.offer(partition)
            self._wake.set()
            return
        target = partition.leaders.target
        if target is None or not partition.copier.wants_fetch:
            return
        if partition.has_reached_seam or not self.is_read_here(partition):
            return
        queue: _Queue = (target, "backlog")
        if partition.copier.is_at_end:
            idle: _Queue = (target, "idle")
            rests = self._clock.monotonic() - partition.reading.active_at_s > IDLE_AFTER_S
            queue = idle if rests and self._free(idle) > 0 else (target, "tail")
        elif partition.copier.end_offset is not None:
            self._backlog_seen.set()
            if self.pool.wants(partition):
                self.pool.add(partition)
                return
        self._queues.setdefault(queue, {})[partition.key] = partition
        self._wake.set()

    @property
    def read_bytes(self) -> int:
        """Received since the start, frames as a whole."""
        return self._read_bytes + self.pool.read_bytes

    def wake(self) -> None:
        """Look at all partitions again."""
        for partition in list(self.partitions.values()):
            self.offer(partition)

    async def run(self) -> None:
        """Read until cancelled. Cancelling drops requests in flight; nothing depends on their answers."""
        async with FirstErrorGroup() as reads:
            self.pool.start(reads)
            reads.create_task(self._tune(), name=f"connections to broker {self.broker}")
            while True:
                self.pool.serve()
                self._start_reads(reads)
                await self._wake.wait()
                self._wake.clear()

    async def _tune(self) -> None:
        """Tune the number of connections while there is a backlog, until all but one are closed again."""
        while True:
            await self._backlog_seen.wait()
            await asyncio.sleep(LOOK_S)
            backlog = any(
                waiting or self._under_way[queue] for queue, waiting in self._queues.items() if queue[1] == "backlog"
            )
            self.pool.look(self.settings.connections_max, backlog=backlog)
            if not backlog and self.pool.tuner.connections == 1:
                self._backlog_seen.clear()

    def is_planning(self, part: CopiedPartition) -> bool:
        """Whether what was read of a partition is being decoded, or waits for that."""
        return isinstance(part.reading.current, list) or self.pool.is_planning(part)

    def is_read_here(self, part: CopiedPartition) -> bool:
        """Whether a partition is in this lane: it may have moved to another broker, or have been restarted."""
        return self.partitions.get(part.key) is part

    def _free(self, queue: _Queue) -> int:
        """Return how many more reads of this queue may be under way."""
        return reads_at_once(queue[1], is_far=self.pool.is_far()) - self._under_way[queue]

    def _take_channel(self, queue: _Queue, partitions: Iterable[CopiedPartition]) -> str:
        """Return the first free channel; ``_give_back`` takes it back. Different target brokers share no channel.

        Reads of different kinds from a far broker share channels, except reads that bring little. The story: reads at
        the end of logs had connections of their own. Each had only carried small answers, so the congestion control of
        the source's kernel (bbr) took 20 ms to send an answer of 11 KB. Over a connection that has carried a backlog it
        takes 5 ms. A partition with a record a second does not need such a connection, and would occupy it all the
        time.
        """
        target, kind = queue
        brings_much = kind == "backlog" or sum(part.reading.usual_bytes for part in partitions) > LITTLE_BYTES
        begins = f"far-{target}" if brings_much and self.pool.is_far() else f"{kind}-{target}"
        self._under_way[queue] += 1
        if free := self._channels.setdefault(begins, []):
            return heappop(free)
        self._made_channels[begins] += 1
        return f"{begins}-{self._made_channels[begins] - 1:02}"

    def _give_back(self, queue: _Queue, channel: str) -> None:
        self._under_way[queue] -= 1
        heappush(self._channels[channel.rpartition("-")[0]], channel)

    def _start_reads(self, reads: asyncio.TaskGroup) -> None:
        """Read each queue as a whole, as soon as it has a free channel.

        Idle partitions wait for the end of a brief read, and are then read together with its partitions. Otherwise both
        idle reads stay brief: each ends while the other is under way, so partitions that never get a record are read
        forty times a second instead of twice.
        """
        for queue, waiting in self._queues.items():
            if not waiting or self._free(queue) <= 0 or queue in self._brief:
                continue
            target = queue[0]
            partitions = [
                part
                for part in waiting.values()
                if part.reading.current is None
                and part.leaders.target == target
                and self.partitions.get(part.key) is part
            ]
            waiting.clear()
            if not partitions:
                continue
            together = len(partitions)
            if are_spread(queue[1], is_far=self.pool.is_far()):
                together = -(-together // self._free(queue))
            for at in range(0, len(partitions), together):
                self._start_read(reads, queue, partitions[at : at + together])

    def _start_read(self, reads: asyncio.TaskGroup, queue: _Queue, partitions: list[CopiedPartition]) -> None:
        read = object()
        for part in partitions:
            part.reading.current = read
        channel = self._take_channel(queue, partitions)
        reads.create_task(
            self._read(reads, read, queue, partitions, channel), name=f"fetch {channel} broker {self.broker}"
        )

    async def _read(
        self,
        reads: asyncio.TaskGroup,
        read: object,
        queue: _Queue,
        partitions: list[CopiedPartition],
        channel: str,
    ) -> None:
        served: set[tuple[str, int]] = set()
        heavy: list[tuple[CopiedPartition, UnplannedRead, FrameLease]] = []
        begun_s = self._clock.monotonic()
        wait_ms = self._wait_ms(queue)
        brief = {queue} if queue[1] == "idle" and self._free(queue) <= 0 else set()
        self._brief |= brief
        try:
            account = self._account(queue[0])
            served = await self._read_once(account, partitions, channel, heavy, wait_ms=wait_ms)
            self._backoff.reset()
            self.problem.set(None)
        except KafkaError as error:
            self.problem.set(str(error))
            self._brief -= brief
            for part in partitions:
                if part.reading.current is read:
                    self.lost_replica(part)
            self._end(read, partitions)  # another broker may lead them now
            await asyncio.sleep(self._backoff.next_s())
        finally:
            for part, _, _ in heavy:
                part.reading.current = heavy
            self._brief -= brief
            self._give_back(queue, channel)
            resting = [part for part in partitions if part.key in served]
            others = [part for part in partitions if part.key not in served]
            rests_s = 0.0
            if resting and queue[1] != "backlog":
                rests_s = self.settings.linger_s
                if not rests_s:  # all of them rest, so that the next read is one
                    rests_s = begun_s + READS_APART_S - self._clock.monotonic()
                    resting, others = [*others, *resting], []
            self._end(read, others)
            if rests_s > 0:
                reads.create_task(self._rest(read, resting, rests_s), name=f"rest {channel}")
            else:
                self._end(read, resting)  # those served come last next time: a reply is filled in the request's order
            self._wake.set()
        try:
            while heavy:
                part, unplanned, lease = heavy[0]
                if part.reading.current is heavy:
                    await self.plan_beside(part, unplanned, lease)
                self._end(heavy, [part])
                heavy.pop(0)[2].release(0)
        finally:
            for part, _, lease in heavy:
                lease.release(0)
                self._end(heavy, [part])

    async def _rest(self, read: object, partitions: list[CopiedPartition], seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._end(read, partitions)

    def _end(self, read: object, partitions: Iterable[CopiedPartition]) -> None:
        """Allow partitions to be read again, unless another read has started."""
        for part in partitions:
            if part.reading.current is read:
                part.reading.current = None
            if self.partitions.get(part.key) is part:
                self.offer(part)

    async def _read_once(
        self,
        account: MemoryAccount,
        partitions: list[CopiedPartition],
        channel: str,
        heavy: list[tuple[CopiedPartition, UnplannedRead, FrameLease]],
        *,
        wait_ms: int | None,
    ) -> set[tuple[str, int]]:
        """Read once; ``wait_ms``: see ``_wait_ms``.

        Args:
            heavy: gets the reads that must be planned beside the loop, each with its lease of the frame.
        Returns:
            The partitions that got whole batches.
        """
        while pause_s := self._rate.wait_s(self._clock.monotonic()):  # noqa: ASYNC110  (other reads spend as well)
            await asyncio.sleep(min(max(pause_s, 0.001), RATE_LOOKED_AT_S))
        size = read_bytes(account, waits=wait_ms is not None, is_far=self.pool.is_far())
        size = min(size, self.settings.max_bytes, self._rate.allowance or size)
        await account.reserve(size)
        reserved = size
        try:
            wanted = [
                part
                for part in partitions
                if part.copier.wants_fetch and part.key in self.partitions and not part.has_reached_seam
            ]
            if not wanted:
                return set()
            asked = {part.key: (part, part.copier.fetch_offset, part.leaders.replica) for part in wanted}
            epochs = [self._epoch_here(part) for part in wanted]
            request = self._request(wanted, size, wait_ms)
            sent_ms, sent_s = self._clock.wall_ms(), self._clock.monotonic()
            reply = await self._brokers.send(self.broker, request, channel=channel)
            reserved = 0
            now_s = self._clock.monotonic()
            self._times.throttled(reply.throttle_ms, now_s)
            if wait_ms is None:
                self._times.answered(now_s - sent_s)
            named = {(fetched.topic, fetched.partition): fetched for fetched in reply.partitions}
            lease = FrameLease(account, reserved_bytes=size, size_bytes=reply.size_bytes, read_at_s=now_s)
            self._read_bytes += reply.size_bytes
            self._rate.spend(reply.size_bytes, now_s)
            for part in wanted:
                part.reading.answered_at_s = now_s
                # A partition that is not in the answer has not changed, unless a broker that throttles leaves out all.
                if not (reply.error_code or reply.throttle_ms) and part.copier.end_offset is not None:
                    part.reading.end_told_at_s = now_s
            try:
                for key, fetched in named.items():
                    if key not in asked:
                        continue
                    part, fetch_offset, replica = asked[key]
                    if (
                        part.leaders.replica is replica
                    ):  # else this broker may have answered as a follower, and leads now
                        unplanned = self._take(part, fetch_offset, fetched, lease)
                        if unplanned is not None:
                            lease.hold(0)
                            heavy.append((part, unplanned, lease))
            finally:
                lease.release(0)
            if not reply.error_code:
                self._learn_ends(wanted, epochs, named, sent_ms, is_throttled=bool(reply.throttle_ms))
        finally:
            if reserved:
                account.give_back(reserved)
        if reply.error_code:
            for part in wanted:
                self._refused(part, FetchRefused(reply.error_code, self._clock.monotonic()))
        got = {key: len(fetched.records) for key, fetched in named.items()}
        for part in wanted:
            part.reading.usual_bytes = max(got.get(part.key, 0), part.reading.usual_bytes // 2)
        return {
            part.key for part in wanted if got.get(part.key) and not part.reading.fetch_bytes
        }  # without partitions whose batch was cut

    def _epoch_here(self, part: CopiedPartition) -> int:
        """Return the epoch under which this broker leads a partition; -1 if it is read from it as from a follower."""
        leaders = part.leaders
        return leaders.source_epoch if leaders.source == self.broker and leaders.replica.follower is None else -1

    @staticmethod
    def _learn_ends(
        wanted: Sequence[CopiedPartition],
        epochs: Sequence[int],
        named: Mapping[TopicPartition, FetchedPartition],
        sent_ms: int,
        *,
        is_throttled: bool,
    ) -> None:
        """Give the ends that a reply names to the safe times of its partitions.

        Args:
            epochs: ``_epoch_here`` of each partition when the request was sent.
            named: what the reply has of them.
        """
        for part, epoch in zip(wanted, epochs, strict=True):
            fetched, end = named.get(part.key), None
            if part.copier.is_end_unverified or (fetched is None and is_throttled):
                continue  # the target may have lost records; or a broker that throttles us leaves out all partitions
            if fetched is not None:
                if fetched.error_code or fetched.diverging_epoch is not None:
                    continue
                # Also under read_committed: behind an open transaction there may be records that are committed.
                end = fetched.high_watermark
            part.safe.learn_read(sent_ms, end, part.copier.position.source_offset, epoch)

    def _wait_ms(self, queue: _Queue) -> int | None:
        """Return how long a read that has just got its channel may wait at the broker; None for a backlog.

        The story: partitions reach the end of their logs one after the other, and their reads block all channels but
        one for half a second each. If the last channel were blocked as well, the next partition would wait as long.
        """
        if queue[1] == "backlog":
            return None
        return self.settings.max_wait_ms if self._free(queue) > 0 else min(LAST_WAIT_MS, self.settings.max_wait_ms)

    def _request(self, partitions: Sequence[CopiedPartition], size: int, wait_ms: int | None) -> FetchRequest:
        settings = self.settings
        waits, is_far = wait_ms is not None, self.pool.is_far()
        most = settings.alone_max_bytes if len(partitions) == 1 else settings.partition_max_bytes
        by_topic: dict[tuple[str, uuid.UUID | None], list[PartitionFetch]] = {}
        for part in partitions:
            copier = part.copier
            by_topic.setdefault((part.source_topic, part.source_topic_id), []).append(
                PartitionFetch(
                    part.partition,
                    copier.fetch_offset,
                    max(
                        partition_bytes(most, part.reading.merged_bytes, waits=waits, is_far=is_far),
                        part.reading.fetch_bytes,
                    ),
                    part.leaders.source_epoch,
                    copier.fetched_epoch,
                )
            )
        return FetchRequest(
            [TopicFetch(name, topic_id, wanted) for (name, topic_id), wanted in by_topic.items()],
            max_wait_ms=wait_ms or 0,
            min_bytes=0 if wait_ms is None else settings.min_bytes,
            max_bytes=max(
                size, *(part.reading.fetch_bytes for part in partitions)
            ),  # a batch that was cut must come whole
            read_committed=settings.read_committed,
            answer_all=any(part.copier.end_offset is None for part in partitions),
            rack=self.rack(partitions),
        )

    def rack(self, parts: Iterable[CopiedPartition]) -> str:
        """Return the rack that a read names. It applies to all its partitions, so each must be allowed to name it."""
        now_s = self._clock.monotonic()
        return self.settings.rack if all(part.leaders.replica.may_ask(now_s) for part in parts) else ""

    def _read_from(self, part: CopiedPartition, replica: ReadReplica) -> None:
        part.leaders.replica = replica
        part.shell.read_elsewhere(part)

    def lost_replica(self, part: CopiedPartition) -> bool:
        """Read a partition from its leader, if it was read from a follower here. Returns whether it was."""
        if part.leaders.replica.follower is None or not self.is_read_here(part):
            return False
        self._read_from(part, after_failure(self._clock.monotonic()))
        return True

    def _refused(self, part: CopiedPartition, event: FetchRefused | Diverged) -> None:
        """Pass a leader's refusal to the copier. A follower that refuses may only lag: read from the leader instead."""
        if not self.lost_replica(part):
            part.tell(event)

    def take_stripe(
        self, part: CopiedPartition, fetch_offset: int, fetched: FetchedPartition, lease: FrameLease
    ) -> UnplannedRead | None:
        """Give the copier what the pool has read. Returns the read if it must be planned beside the loop."""
        return self._take(part, fetch_offset, fetched, lease, is_stripe=True)

    def _take(
        self,
        part: CopiedPartition,
        fetch_offset: int,
        fetched: FetchedPartition,
        lease: FrameLease,
        *,
        is_stripe: bool = False,
    ) -> UnplannedRead | None:
        """Handle what was read of a partition. Returns the read if it must be planned beside the loop."""
        if self.partitions.get(part.key) is not part:
            return None  # it is no longer copied, or was restarted
        now_s = self._clock.monotonic()
        part.reading.end_told_at_s = -inf if fetched.error_code else now_s
        if fetched.error_code:
            self._refused(part, FetchRefused(fetched.error_code, now_s))
        elif fetched.diverging_epoch is not None:
            self._refused(part, Diverged(*fetched.diverging_epoch))
        elif replica := named_by_leader(fetched, leader=self.broker, now_s=now_s):
            self._read_from(part, replica)
        elif part.copier.fetch_offset == fetch_offset:
            unplanned = UnplannedRead(part, fetch_offset, fetched, self.settings, is_stripe=is_stripe)
            if part.reading.is_heavy or (planned := unplanned.plan(light=True)).is_heavy:
                return unplanned
            self._take_plan(part, unplanned, planned, lease)
        return None

    async def plan_beside(self, part: CopiedPartition, unplanned: UnplannedRead, lease: FrameLease) -> None:
        """Plan a heavy read. The caller keeps the lease. If this is cancelled, nothing of the read is copied."""
        reading = part.reading.current
        planned = await beside_loop(unplanned.plan, light=False)
        if part.reading.current is reading and self.is_read_here(part) and not unplanned.is_stale:
            self._take_plan(part, unplanned, planned, lease)

    def _take_plan(self, part: CopiedPartition, unplanned: UnplannedRead, planned: Plan, lease: FrameLease) -> None:
        now_s = self._clock.monotonic()
        end = unplanned.note(planned)
        if planned.steps:
            part.reading.active_at_s = now_s
        part.tell(Fetched(planned, lease, unplanned.offset, end, now_s))
