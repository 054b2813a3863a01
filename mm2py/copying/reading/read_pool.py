"""The reads of partitions with a backlog, over several connections to one source broker.

A far broker sends little over one connection, so a fetch lane has a pool of connections. Partitions with a backlog are
read over all of them: many partitions over some connections each, or one partition in stripes (``stripes``).
``link_tuning`` decides how many connections there are. With one connection the pool reads nothing, and the lane reads
backlogs itself.

The reads belong to no fetch session, because a broker keeps a limited number of sessions. A quota of the broker delays
all connections to it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from typing import Final, Protocol

from mm2py.clock import Clock
from mm2py.copying.copied_partition import CopiedPartition, LaneProblem
from mm2py.copying.link_tuning import ASKED_FOR_S, NEAR_S, Limit, LinkTuner, Look
from mm2py.copying.reading.limits import READ_BYTES_LEAST, FrameLease, MemoryAccount, ReadLimits
from mm2py.copying.reading.planned_read import UnplannedRead
from mm2py.copying.reading.read_settings import ReadSettings
from mm2py.copying.reading.stripes import Stripe, Stripes
from mm2py.copying.states import Copying
from mm2py.copying.waits import BrokerTimes
from mm2py.kafka.errors import Backoff, KafkaError, RequestTimedOut
from mm2py.kafka.port import BrokerId, Brokers, FetchedPartition, FetchRequest, PartitionFetch, TopicFetch

READS_A_CONNECTION: Final = 2
"""While one answer travels, the next request waits at the broker already."""
STRIPES_LEAST: Final = 2
"""A partition with a backlog of this many stripes is read by the pool."""
HELD_UP_PART: Final = 0.5
"""If more than this part of the reads, or of the partitions, waits for the same thing, this thing bounds the rate."""
LOOKED_AT_S: Final = 0.5
"""How often a read that waits for its rate checks whether the rate has changed."""
HOLES_PART: Final = 8
"""For this many connections there is one more, for holes, as stripes wait for holes. It has a negative number."""
HOLES_A_CONNECTION: Final = 4
"""How many holes each connection asks for before a copier waits for them. With more, when a time-out has left one
connection for holes, the hole that a copier waits for would come after megabytes of other holes."""


class PoolLane(Protocol):
    """The lane that a pool reads for, as far as the pool needs it: see ``FetchLane``."""

    settings: ReadSettings

    def is_read_here(self, part: CopiedPartition) -> bool: ...
    def take_stripe(
        self, part: CopiedPartition, fetch_offset: int, fetched: FetchedPartition, lease: FrameLease
    ) -> UnplannedRead | None: ...
    async def plan_beside(self, part: CopiedPartition, unplanned: UnplannedRead, lease: FrameLease) -> None: ...
    def offer(self, part: CopiedPartition, /) -> None: ...
    def rack(self, parts: Iterable[CopiedPartition]) -> str: ...
    def lost_replica(self, part: CopiedPartition) -> bool: ...


class ReadPool:
    """Reads backlogs from one broker over several connections."""

    def __init__(
        self,
        broker: BrokerId,
        brokers: Brokers,
        limits: ReadLimits,
        lane: PoolLane,
        *,
        clock: Clock,
        rng: random.Random,
        problem: LaneProblem,
        times: BrokerTimes | None = None,
    ) -> None:
        """Make a pool of one connection, which reads nothing. ``times``: see ``FetchLane``."""
        self._times = times or BrokerTimes()
        self.tuner = LinkTuner()
        self.read_bytes = 0
        """Received since the start, frames as a whole."""
        self._broker = broker
        self._brokers = brokers
        self._limits = limits
        self._lane = lane
        self._clock = clock
        self._backoff = Backoff(rng)
        self._problem = problem
        self._partitions: dict[CopiedPartition, Stripes] = {}
        self._heavy: set[Stripes] = set()
        """The partitions of which a stripe is being planned beside the loop."""
        self._tasks: asyncio.TaskGroup | None = None
        self._busy: Counter[int] = Counter()
        """Reads under way, by connection."""
        self._open: set[int] = set()
        self._asked_bytes = 0
        """Of the reads that were sent and are not answered."""
        self._waits_for_memory = 0
        self._waits_for_rate = 0
        self._throttled_until_s = 0.0
        self._offered: dict[CopiedPartition, None] = {}

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Run the reads as tasks of this group. Cancelling them drops what they read."""
        self._tasks = tasks

    def is_far(self) -> bool:
        """Whether one connection carries little, and more than one is allowed."""
        round_trip_s = self._brokers.round_trip_s(self._broker)
        return round_trip_s is not None and round_trip_s >= NEAR_S and self._lane.settings.connections_max > 1

    def wants(self, part: CopiedPartition) -> bool:
        """Whether the pool should read this partition, which has a backlog."""
        copier = part.copier
        if self.tuner.connections == 1 or not part.reading.bytes_per_offset or copier.end_offset is None:
            return False
        if part.leaders.source_epoch < 0 or not self._is_plain(part):
            return False
        backlog_bytes = (copier.end_offset - copier.fetch_offset) * part.reading.bytes_per_offset
        return backlog_bytes > STRIPES_LEAST * self._stripe_bytes(part)

    def add(self, part: CopiedPartition) -> None:
        """Read this partition from now on."""
        stripes = Stripes(
            part.copier.fetch_offset,
            part.leaders.source_epoch,
            bytes_per_offset=max(part.reading.bytes_per_offset, 0.001),
        )
        part.reading.current = stripes
        self._partitions[part] = stripes
        self._fill()

    def has(self, part: CopiedPartition) -> bool:
        """Whether the pool reads it."""
        return part in self._partitions

    def offer(self, part: CopiedPartition) -> None:
        """Note that the copier may want more. ``serve`` gives it more later: now its batches are being sent."""
        self._offered[part] = None

    def serve(self) -> None:
        """Give the copiers of offered partitions the stripes that have arrived, and start further reads."""
        offered, self._offered = self._offered, {}
        for part in offered:
            self._deliver(part)
        if offered:
            self._fill()

    def look(self, most: int, *, backlog: bool) -> None:
        """Look at all partitions, and let the tuner decide how many connections there are.

        Args:
            most: ``connections.per.broker.max``.
            backlog: some partition had a backlog since the last look, here or in the lane.
        """
        for part in list(self._partitions):
            self._deliver(part)
        now_s = self._clock.monotonic()
        round_trip_s = self._brokers.round_trip_s(self._broker)
        backlog = backlog or bool(self._partitions)
        held_up_by = self.held_up_by(now_s)
        self.tuner.look(Look(now_s, round_trip_s, self.read_bytes, backlog, self._asked_bytes, held_up_by), most)
        if self.tuner.connections == 1:
            for part in list(self._partitions):
                self._give_up(part)
        self._close_spare()
        self._fill()

    def is_planning(self, part: CopiedPartition) -> bool:
        """Whether a stripe of a partition is being decoded."""
        return self._partitions.get(part) in self._heavy

    def held_up_by(self, now_s: float) -> Limit | None:
        """Return what keeps most reads from being sent; None: nothing does."""
        if now_s < self._throttled_until_s:
            return Limit.QUOTA
        reads = max(1, sum(self._busy.values()))
        if self._waits_for_rate > HELD_UP_PART * reads:
            return Limit.RATE
        behind = sum(not part.copier.wants_fetch for part in self._partitions)
        if behind > HELD_UP_PART * max(1, len(self._partitions)):
            return Limit.TARGET
        return Limit.MEMORY if self._waits_for_memory > HELD_UP_PART * reads else None

    def _is_plain(self, part: CopiedPartition) -> bool:
        """It is being copied, and its next read needs no certain size, and repeats no earlier read."""
        copier = part.copier
        is_copying = type(copier.state) is Copying and part.leaders.target is not None
        is_copying = is_copying and not copier.is_paused
        return is_copying and not part.reading.fetch_bytes and not copier.in_flight.has_unknown_outcomes

    def _is_valid(self, part: CopiedPartition, stripes: Stripes) -> bool:
        return (
            part.reading.current is stripes
            and self._lane.is_read_here(part)
            and part.leaders.source_epoch == stripes.leader_epoch
            and part.copier.fetch_offset == stripes.next_offset
            and self._is_plain(part)
        )

    def _stripe_bytes(self, part: CopiedPartition) -> int:
        assert part.leaders.target is not None  # noqa: S101  (see _is_plain)
        settings = self._lane.settings
        most = min(settings.partition_max_bytes, settings.max_bytes)
        most = min(most, self._limits.rate.allowance or most)
        if self.tuner.bytes_per_s:  # all that is asked for should come long before requests time out
            reads = READS_A_CONNECTION * self.tuner.connections
            most = min(most, max(READ_BYTES_LEAST, int(self.tuner.bytes_per_s * ASKED_FOR_S / reads)))
        return min(most, self._limits.account(part.leaders.target).stripe_bytes(self.tuner.connections))

    def _give_up(self, part: CopiedPartition) -> None:
        stripes = self._partitions.pop(part)
        stripes.drop()
        part.reading.bytes_per_offset = 0.0  # the lane reads it next
        if part.reading.current is stripes:
            part.reading.current = None
        self._lane.offer(part)

    def _deliver(self, part: CopiedPartition) -> None:
        """Give the copier the stripes that have arrived, in order, as many as it wants."""
        stripes = self._partitions.get(part)
        if stripes is None or stripes in self._heavy:
            return
        is_valid = self._is_valid(part, stripes)
        while is_valid and part.copier.wants_fetch and (stripe := stripes.take()) is not None:
            offset = stripes.next_offset
            assert stripe.fetched is not None  # noqa: S101  (it was taken)
            assert isinstance(stripe.lease, FrameLease)  # noqa: S101
            unplanned: UnplannedRead | None = None
            try:
                unplanned = self._lane.take_stripe(part, offset, stripe.fetched, stripe.lease)
            finally:
                if unplanned is None:
                    stripe.release()
            if unplanned is not None:
                self._start_heavy(part, stripes, stripe, unplanned)
                return
            stripes.next_offset = max(offset, part.copier.fetch_offset)
            is_valid = self._is_valid(part, stripes) and part.copier.fetch_offset > offset
        if not is_valid:
            self._give_up(part)
        elif (hole := stripes.hole(self._stripe_bytes(part))) is not None:
            self._start(part, stripes, hole, min(self._hole_connections(), key=self._busy.__getitem__))

    def _start_heavy(self, part: CopiedPartition, stripes: Stripes, stripe: Stripe, unplanned: UnplannedRead) -> None:
        assert self._tasks is not None  # noqa: S101  (see _fill)
        self._heavy.add(stripes)
        self._tasks.create_task(
            self._take_heavy(part, stripes, stripe, unplanned), name=f"plan {part.source_topic}-{part.partition}"
        )

    async def _take_heavy(
        self, part: CopiedPartition, stripes: Stripes, stripe: Stripe, unplanned: UnplannedRead
    ) -> None:
        """Plan a stripe that takes long, and continue after it. If cancelled, nothing of the stripe is copied."""
        assert isinstance(stripe.lease, FrameLease)  # noqa: S101  (it was taken)
        offset = stripes.next_offset
        try:
            await self._lane.plan_beside(part, unplanned, stripe.lease)
        finally:
            stripe.release()
            self._heavy.discard(stripes)
        if self._partitions.get(part) is not stripes:
            return  # it was given up meanwhile
        stripes.next_offset = max(offset, part.copier.fetch_offset)
        if part.copier.fetch_offset > offset:
            self._deliver(part)
        else:
            self._give_up(part)
        self._fill()

    def _hole_connections(self) -> range:
        return range(-1, -max(1, self.tuner.connections // HOLES_PART) - 1, -1)

    def _fill(self) -> None:
        """Start reads on all connections that have room, first of the partitions that have the fewest under way."""
        if self._tasks is None or not self._partitions:
            return
        connections = self.tuner.connections
        at_most = max(STRIPES_LEAST, 2 * -(-READS_A_CONNECTION * connections // len(self._partitions)))
        room = READS_A_CONNECTION * connections - sum(self._busy[no] for no in range(connections))
        candidates = sorted(self._partitions.items(), key=lambda item: len(item[1]))
        while room > 0 and candidates:
            further: list[tuple[CopiedPartition, Stripes]] = []
            for part, stripes in candidates:
                if room <= 0:
                    break
                if len(stripes) >= at_most or not self._is_valid(part, stripes):
                    continue
                stripe = stripes.open(self._stripe_bytes(part), part.copier.end_offset or 0)
                if stripe is not None:
                    self._start(part, stripes, stripe, min(range(connections), key=self._busy.__getitem__))
                    room -= 1
                    further.append((part, stripes))
                elif not len(stripes):
                    self._give_up(part)  # all that was known to be readable is read
            candidates = further

    def _start(self, part: CopiedPartition, stripes: Stripes, stripe: Stripe, connection: int) -> None:
        assert self._tasks is not None  # noqa: S101  (see _fill)
        self._busy[connection] += 1
        self._open.add(connection)
        self._tasks.create_task(
            self._read(part, stripes, stripe, connection), name=f"fetch {_channel(connection)} broker {self._broker}"
        )

    async def _read(self, part: CopiedPartition, stripes: Stripes, stripe: Stripe, connection: int) -> None:
        channel = _channel(connection)
        try:
            size = stripes.ask_bytes(stripe)
            await self._spend(size)
            try:
                received = await self._read_once(part, stripes, stripe, channel, size)
            except BaseException:
                self._limits.rate.spend(-size, self._clock.monotonic())
                raise
            self._limits.rate.spend(received - size, self._clock.monotonic())
            self._problem.set(None)
            self._backoff.reset()
        except KafkaError as error:
            self._problem.set(str(error))
            stripes.lost(stripe)
            if isinstance(error, RequestTimedOut):
                self.tuner.timed_out()
            if part.reading.current is stripes:
                self._lane.lost_replica(part)
            await asyncio.sleep(self._backoff.next_s())
        finally:
            self._busy[connection] -= 1
            self._close_spare()
        self._deliver(part)
        self._fill()

    async def _spend(self, size: int) -> None:
        """Wait until the rate allows a read, and count it at once: others wait for the same moment."""
        self._waits_for_rate += 1
        try:
            while True:
                now_s = self._clock.monotonic()
                pause_s = max(self._limits.rate.wait_s(now_s), self._throttled_until_s - now_s)
                if pause_s <= 0:
                    return self._limits.rate.spend(size, now_s)
                await asyncio.sleep(min(max(pause_s, 0.001), LOOKED_AT_S))
        finally:
            self._waits_for_rate -= 1

    async def _read_once(self, part: CopiedPartition, stripes: Stripes, stripe: Stripe, channel: str, size: int) -> int:
        """Read a stripe. Returns the size of the answer."""
        if part.leaders.target is None:
            stripes.lost(stripe)
            return 0
        account = self._limits.account(part.leaders.target)
        if not await self._reserve(account, stripe, size):
            stripes.lost(stripe)
            if stripe.offset == stripes.next_offset and stripes is self._partitions.get(part):
                self._give_up(part)  # the hole needs the memory that the stripes after it take
            return 0
        reserved = size
        try:
            if stripes.is_dropped or not self._is_valid(part, stripes):
                stripes.lost(stripe)
                return 0
            self._asked_bytes += size
            sent_s = self._clock.monotonic()
            try:
                request = self._request(part, stripes, stripe, size)
                reply = await self._brokers.send(self._broker, request, channel=channel)
            finally:
                self._asked_bytes -= size
            reserved = 0
            now_s = self._clock.monotonic()
            lease = FrameLease(account, reserved_bytes=size, size_bytes=reply.size_bytes, read_at_s=now_s)
        finally:
            if reserved:
                account.give_back(reserved)
        self.read_bytes += reply.size_bytes
        self._times.answered(now_s - sent_s)
        self._times.throttled(reply.throttle_ms, now_s)
        self._throttled_until_s = max(self._throttled_until_s, now_s + reply.throttle_ms / 1000)
        part.reading.answered_at_s = now_s
        if stripes.is_dropped or reply.error_code or not reply.partitions:
            lease.release(0)
            stripes.lost(stripe)
        else:
            stripes.arrived(stripe, reply.partitions[0], lease)
            if stripe.fetched is not None and self._is_valid(part, stripes):  # else the same hole again, at once
                connections = self._hole_connections()
                room = HOLES_A_CONNECTION * len(connections) - sum(self._busy[no] for no in connections)
                for hole in stripes.holes(room, self._stripe_bytes(part)):
                    self._start(part, stripes, hole, min(connections, key=self._busy.__getitem__))
        return reply.size_bytes

    async def _reserve(self, account: MemoryAccount, stripe: Stripe, size: int) -> bool:
        """Reserve the memory of a read. Returns False if it fills a hole and there is no memory.

        Other reads wait until enough is free, and leave room for the holes before them. Other holes may take this room.
        """
        if stripe.fills_hole:
            return account.reserve_now(size)
        self._waits_for_memory += 1
        try:
            await account.reserve(size, spare=account.backlog_bytes())
        finally:
            self._waits_for_memory -= 1
        return True

    def _request(self, part: CopiedPartition, stripes: Stripes, stripe: Stripe, size: int) -> FetchRequest:
        copier = part.copier
        epoch = copier.fetched_epoch if stripe.offset == copier.fetch_offset else -1
        fetch = PartitionFetch(part.partition, stripe.offset, size, stripes.leader_epoch, epoch)
        return FetchRequest(
            [TopicFetch(part.source_topic, part.source_topic_id, [fetch])],
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=size,
            read_committed=self._lane.settings.read_committed,
            answer_all=True,
            rack=self._lane.rack([part]),
        )

    def _close_spare(self) -> None:
        used = self.tuner.connections
        wanted = [0] if used == 1 else [*range(used), *self._hole_connections()]
        for connection in [no for no in self._open.difference(wanted) if not self._busy[no]]:
            self._open.discard(connection)
            self._brokers.close_channel(self._broker, _channel(connection))


def _channel(connection: int) -> str:
    return f"pool-{connection}" if connection >= 0 else f"pool-holes{connection}"
