"""The asyncio shell around copiers: reads from one source broker, sends to one target broker.

A *fetch lane* keeps a few reads under way to its broker. Partitions with a backlog share one, which is answered at
once; those at the end of their log share reads that wait for new records, the busy ones apart from the idle. A
*produce lane* keeps up to five requests on their way to its broker, each with at most one batch of every partition that
has one. Neither decides anything: events go to the copiers through ``handle``.
"""

from __future__ import annotations

import asyncio
import math
import random
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from mm2py.clock import Clock
from mm2py.kafka.errors import KafkaError
from mm2py.kafka.port import (
    BrokerId,
    Brokers,
    FetchedPartition,
    FetchRequest,
    PartitionFetch,
    PartitionProduce,
    ProduceReply,
    ProduceRequest,
    TopicFetch,
    TopicProduce,
)
from mm2py.kafka.retry import Backoff
from mm2py.records.batch import stamp
from mm2py.replication.copier import Copier
from mm2py.replication.events import Acked, Diverged, Event, Fetched, FetchRefused, ProduceLost, ProduceRefused
from mm2py.replication.memory import IDLE_READS, TAIL_READS, FrameLease, MemoryAccount
from mm2py.replication.rate import RateLimit
from mm2py.replication.repack import PASS_ALL, PASS_REFUSED, MergeRule, merge_rule
from mm2py.replication.rewrite import plan
from mm2py.replication.steps import Fault, Plan, TargetRules
from mm2py.topics.copy_modes import CopyModes

IDLE_AFTER_S: Final = 10.0
"""A partition at the end of its log that got nothing for so long is read together with others of its kind: whoever gets
records often need not name them all each time."""
READS_AT_ONCE: Final = {"backlog": 1, "tail": TAIL_READS, "idle": IDLE_READS}
LAST_WAIT_MS: Final = 50
"""How long a read may wait at the broker that has the last free channel."""
_Queue = tuple[BrokerId, Literal["backlog", "tail", "idle"]]
"""Which reads a partition may join: by target broker, and whether they wait for new records."""

REQUESTS_IN_FLIGHT: Final = 5
REQUESTS_ALWAYS: Final = 2
"""So many may be under way whatever the broker does: the one that is late may only have met a slow network."""
REQUEST_BYTES: Final = 8 << 20
OVERDUE: Final = 4
"""A broker that takes so many times longer than its quickest answer has requests of ours in its queue."""
OVERDUE_LEAST_S: Final = 0.002
WORTHWHILE_BYTES: Final = 1 << 20
"""As much is sent to such a broker at once; less than that waits for its next answer, and goes in fewer requests."""
QUICKEST_GROWTH: Final = 1.01
"""By how much the quickest answer is forgotten with every slower one."""


@dataclass(slots=True, eq=False)
class CopiedPartition:
    """A partition being copied: its copier, and where both ends are found just now."""

    source_topic: str
    target_topic: str
    partition: int
    copier: Copier
    rules: TargetRules
    source_topic_id: uuid.UUID | None = None
    target_topic_id: uuid.UUID | None = None
    source_leader: BrokerId | None = None
    source_leader_epoch: int = -1
    target_leader: BrokerId | None = None
    reading: object | None = None
    """The read that is under way for it; None: it may be read."""
    fetch_bytes: int = 0
    """More than the setting where a batch turned out larger; 0: the setting will do."""
    active_at_s: float = -math.inf
    """When it last had something to read."""
    merging: MergeRule = PASS_ALL
    """Which batches were made one with their neighbours in the last read."""
    transactional_seen: bool = False
    unknown_fields: Mapping[str, Any] = field(default_factory=dict)
    """What a younger version keeps in this partition's position; written back as it was."""

    @property
    def lacks_leader(self) -> str | None:
        """Why nothing can be copied just now although nothing has failed; None if that is not so."""
        if self.source_leader is None:
            return "the source partition has no leader"
        return "the remote partition has no leader" if self.target_leader is None else None

    @property
    def key(self) -> tuple[str, int]:
        return self.source_topic, self.partition


Handler = Callable[[CopiedPartition, Event], None]


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How a flow reads; sizes in bytes."""

    partition_max_bytes: int
    max_bytes: int
    min_bytes: int
    max_wait_ms: int
    read_committed: bool
    copy_modes: CopyModes = field(default_factory=CopyModes)
    linger_s: float = 0.0
    """How long a partition that got something at the end of its log rests: the next read then brings more at once."""


@dataclass(slots=True)
class LaneProblem:
    """Why a broker does not serve us, and since when it is known; None while it does."""

    text: str | None = None
    report: Callable[[str | None], None] = field(default=lambda _: None)

    def set(self, text: str | None) -> None:
        if text != self.text:
            self.text = text
            self.report(text)


class FetchLane:
    """Reads the partitions that one source broker leads."""

    def __init__(
        self,
        broker: BrokerId,
        brokers: Brokers,
        settings: ReadSettings,
        *,
        account: Callable[[BrokerId], MemoryAccount],
        rate: RateLimit,
        clock: Clock,
        rng: random.Random,
        handle: Handler,
        lost: Callable[[], None],
    ) -> None:
        """Make a lane; ``run`` starts it.

        Args:
            account: whose memory a read takes, by the target broker that its partitions go to.
            handle: gets every event.
            lost: called when the broker does not answer; somebody else may lead now.
        """
        self.broker = broker
        self.partitions: dict[tuple[str, int], CopiedPartition] = {}
        self.problem = LaneProblem()
        self._brokers = brokers
        self._settings = settings
        self._account = account
        self._rate = rate
        self._clock = clock
        self._backoff = Backoff(rng)
        self._handle = handle
        self._lost = lost
        self._wake = asyncio.Event()
        self._channels: dict[_Queue, list[str]] = {}
        """Channels that are free, by who waits for them."""
        self._queues: dict[_Queue, dict[tuple[str, int], CopiedPartition]] = {}
        """Partitions that may be read, in the order in which they will be asked for."""

    def offer(self, partition: CopiedPartition) -> None:
        """``partition`` may be ready to be read."""
        target = partition.target_leader
        if partition.reading is not None or target is None or not partition.copier.wants_fetch:
            return
        queue: _Queue = (target, "backlog")
        if partition.copier.is_at_end:
            idle: _Queue = (target, "idle")
            rests = self._clock.monotonic() - partition.active_at_s > IDLE_AFTER_S
            queue = idle if rests and self._free(idle) else (target, "tail")
        self._queues.setdefault(queue, {})[partition.key] = partition
        self._wake.set()

    def wake(self) -> None:
        """Look at all partitions again."""
        for partition in self.partitions.values():
            self.offer(partition)

    async def run(self) -> None:
        """Read until cancelled. Cancelling forgets reads under way; nothing depends on their answers."""
        async with asyncio.TaskGroup() as reads:
            while True:
                self._start_reads(reads)
                await self._wake.wait()
                self._wake.clear()

    def _free(self, queue: _Queue) -> list[str]:
        """Channels on which a read of this queue may start now. Target brokers never share one, nor its memory."""
        if queue not in self._channels:
            target, kind = queue
            self._channels[queue] = [f"{kind}-{target}-{no}" for no in range(READS_AT_ONCE[kind])]
        return self._channels[queue]

    def _start_reads(self, reads: asyncio.TaskGroup) -> None:
        """Read what may be read: each queue as a whole, as soon as it has a channel."""
        for queue, waiting in self._queues.items():
            if not waiting or not self._free(queue):
                continue
            target = queue[0]
            partitions = [
                part
                for part in waiting.values()
                if part.reading is None and part.target_leader == target and self.partitions.get(part.key) is part
            ]
            waiting.clear()
            if partitions:
                read = object()
                for part in partitions:
                    part.reading = read
                channel = self._channels[queue].pop(0)
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
        try:
            served = await self._read_once(self._account(queue[0]), partitions, channel, wait_ms=self._wait_ms(queue))
            self._backoff.reset()
            self.problem.set(None)
        except KafkaError as error:
            self.problem.set(str(error))
            self._lost()
            self._end(read, partitions)  # first of all: another broker may lead them now
            await asyncio.sleep(self._backoff.next_s())
        finally:
            self._channels[queue].append(channel)
            self._channels[queue].sort()
            got = [part for part in partitions if part.key in served]
            self._end(read, [part for part in partitions if part.key not in served])
            if got and self._settings.linger_s and queue[1] != "backlog":
                reads.create_task(self._rest(read, got), name=f"linger {channel}")
            else:
                self._end(read, got)  # they come last next time: a reply is filled in the request's order
            self._wake.set()

    async def _rest(self, read: object, partitions: list[CopiedPartition]) -> None:
        await asyncio.sleep(self._settings.linger_s)
        self._end(read, partitions)

    def _end(self, read: object, partitions: Iterable[CopiedPartition]) -> None:
        """Let partitions be read again, unless somebody else reads them by now."""
        for part in partitions:
            if part.reading is read:
                part.reading = None
            if self.partitions.get(part.key) is part:
                self.offer(part)

    async def _read_once(
        self, account: MemoryAccount, partitions: list[CopiedPartition], channel: str, *, wait_ms: int | None
    ) -> set[tuple[str, int]]:
        """Read once; ``wait_ms`` as of ``_wait_ms``. Returns the partitions that got something whole."""
        while pause_s := self._rate.wait_s(self._clock.monotonic()):  # noqa: ASYNC110  (other reads spend as well)
            await asyncio.sleep(max(pause_s, 0.001))
        size = account.backlog_bytes() if wait_ms is None else account.tail_bytes()
        size = min(size, self._settings.max_bytes, self._rate.allowance(self._clock.monotonic()) or size)
        await account.reserve(size)
        reserved = size
        try:
            wanted = [part for part in partitions if part.copier.wants_fetch and part.key in self.partitions]
            if not wanted:
                return set()
            offsets = {part.key: part.copier.fetch_offset for part in wanted}
            request = self._request(wanted, size, wait_ms)
            reply = await self._brokers.send(self.broker, request, channel=channel)
            reserved = 0
            lease = FrameLease(account, reserved_bytes=size, size_bytes=reply.size_bytes)
            self._rate.spend(reply.size_bytes, self._clock.monotonic())
            try:
                for fetched in reply.partitions:
                    if (fetched.topic, fetched.partition) in offsets:
                        self._take(fetched, offsets[fetched.topic, fetched.partition], lease)
            finally:
                lease.release(0)
        finally:
            if reserved:
                account.give_back(reserved)
        if reply.error_code:
            for part in wanted:
                self._handle(part, FetchRefused(reply.error_code, self._clock.monotonic()))
        got = {(fetched.topic, fetched.partition) for fetched in reply.partitions if len(fetched.records)}
        return {part.key for part in wanted if part.key in got and not part.fetch_bytes}  # not whose batch was cut

    def _wait_ms(self, queue: _Queue) -> int | None:
        """How long a read that has just got its channel may wait at the broker; None: not at all, there is a backlog.

        The story: partitions that came to the end of their logs one after the other have parked all channels but one,
        each for half a second. The next one would wait for that long, were the last channel parked as well.
        """
        if queue[1] == "backlog":
            return None
        return self._settings.max_wait_ms if self._channels[queue] else min(LAST_WAIT_MS, self._settings.max_wait_ms)

    def _request(self, partitions: Sequence[CopiedPartition], size: int, wait_ms: int | None) -> FetchRequest:
        settings = self._settings
        by_topic: dict[tuple[str, uuid.UUID | None], list[PartitionFetch]] = {}
        for part in partitions:
            copier = part.copier
            by_topic.setdefault((part.source_topic, part.source_topic_id), []).append(
                PartitionFetch(
                    part.partition,
                    copier.fetch_offset,
                    max(settings.partition_max_bytes, part.fetch_bytes),
                    part.source_leader_epoch,
                    copier.fetched_epoch,
                )
            )
        return FetchRequest(
            [TopicFetch(name, topic_id, wanted) for (name, topic_id), wanted in by_topic.items()],
            max_wait_ms=wait_ms or 0,
            min_bytes=0 if wait_ms is None else settings.min_bytes,
            max_bytes=max(size, *(part.fetch_bytes for part in partitions)),  # one that was cut has to come whole
            read_committed=settings.read_committed,
            answer_all=any(part.copier.end_offset is None for part in partitions),
        )

    def _take(self, fetched: FetchedPartition, fetch_offset: int, lease: FrameLease) -> None:
        part = self.partitions.get((fetched.topic, fetched.partition))
        if part is None:
            return
        now_s = self._clock.monotonic()
        if fetched.error_code:
            self._handle(part, FetchRefused(fetched.error_code, now_s))
        elif fetched.diverging_epoch is not None:
            self._handle(part, Diverged(*fetched.diverging_epoch))
        elif part.copier.fetch_offset == fetch_offset:
            part.merging = PASS_REFUSED
            if fetch_offset >= part.copier.pass_until:
                part.merging = merge_rule(
                    self._settings.copy_modes.of(part.source_topic),
                    read_bytes=len(fetched.records),
                    target_is_behind=part.copier.target_is_behind,
                )
            planned = plan(
                fetched.records,
                wanted_offset=fetch_offset,
                read_committed=self._settings.read_committed,
                aborted=fetched.aborted,
                rules=part.rules,
                merging=part.merging,
                sent_before=part.copier.sent_before,
            )
            if planned.next_offset > max(fetched.high_watermark, fetch_offset):
                # A base offset stands outside every checksum; only the log's end shows that one was damaged on the way.
                text = (
                    f"a batch claims to reach to offset {planned.next_offset}, the log ends at {fetched.high_watermark}"
                )
                planned = Plan(next_offset=fetch_offset, fault=Fault("crc mismatch", fetch_offset, None, text))
            part.fetch_bytes = planned.cut_batch_bytes
            if planned.steps:
                part.active_at_s = now_s
            part.transactional_seen |= planned.transactional
            end = fetched.last_stable_offset if self._settings.read_committed else fetched.high_watermark
            self._handle(part, Fetched(planned, lease, fetch_offset, end, now_s))


class ProduceLane:
    """Sends to the partitions that one target broker leads."""

    def __init__(
        self,
        broker: BrokerId,
        brokers: Brokers,
        *,
        timeout_ms: int,
        covered_after_ms: Callable[[], int],
        clock: Clock,
        handle: Handler,
        sent: Callable[[CopiedPartition], None],
    ) -> None:
        """Make a lane; ``run`` starts it.

        Args:
            covered_after_ms: tells from which record timestamp on the target remembers what it stored (C1).
            handle: gets every event.
            sent: called when a batch of a partition has left; it may be read again.
        """
        self.broker = broker
        self.problem = LaneProblem()
        self._brokers = brokers
        self._timeout_ms = timeout_ms
        self._covered_after_ms = covered_after_ms
        self._clock = clock
        self._handle = handle
        self._sent = sent
        self._wake = asyncio.Event()
        self._maybe_ready: dict[CopiedPartition, None] = {}
        self._sent_at_s: dict[object, float] = {}
        """When each request that is not answered yet was sent; oldest first."""
        self._quickest_s = 0.0

    def offer(self, partition: CopiedPartition) -> None:
        """``partition`` may have a batch to send."""
        self._maybe_ready[partition] = None
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled. Cancelling leaves the outcome of what is on its way unknown."""
        async with asyncio.TaskGroup() as requests:
            while True:
                while self._may_send() and (batches := self._collect()):
                    request = object()
                    self._sent_at_s[request] = self._clock.monotonic()
                    requests.create_task(self._send(request, batches), name=f"produce broker {self.broker}")
                await self._wake.wait()
                self._wake.clear()

    def _may_send(self) -> bool:
        """Whether a further request makes anything arrive sooner.

        The story: a broker that has just started takes 25 ms for a request of ten records. Five on their way to it
        only wait in its queue; what waits here meanwhile goes in one request, and is answered as soon.
        """
        if len(self._sent_at_s) < REQUESTS_ALWAYS:
            return True
        if len(self._sent_at_s) >= REQUESTS_IN_FLIGHT:
            return False
        oldest_at_s = next(iter(self._sent_at_s.values()))
        if self._clock.monotonic() - oldest_at_s <= max(OVERDUE * self._quickest_s, OVERDUE_LEAST_S):
            return True
        waiting = 0
        for partition in self._maybe_ready:
            waiting += partition.copier.ready_bytes
            if waiting >= WORTHWHILE_BYTES:
                return True
        return False

    def _answered(self, request: object, now_s: float) -> None:
        took_s = now_s - self._sent_at_s[request]
        self._quickest_s = min(took_s, self._quickest_s * QUICKEST_GROWTH) if self._quickest_s else took_s

    def _collect(self) -> list[tuple[CopiedPartition, int, memoryview | bytearray]]:
        """Take one batch from each partition that may send one, oldest offer first, and stamp it."""
        batches: list[tuple[CopiedPartition, int, memoryview | bytearray]] = []
        size = 0
        covered_after_ms = self._covered_after_ms()
        again: list[CopiedPartition] = []
        while self._maybe_ready and size < REQUEST_BYTES:
            partition = next(iter(self._maybe_ready))
            del self._maybe_ready[partition]
            if partition.target_leader != self.broker:
                continue
            sending = partition.copier.next_batch(self.broker, covered_after_ms)
            if sending is None:
                continue
            data = sending.batch.data
            stamp(data, sending.identity.producer_id, sending.identity.epoch, sending.sequence)
            batches.append((partition, sending.token, data))
            size += len(data)
            if partition.copier.has_batches:
                again.append(partition)
            self._sent(partition)
        self._maybe_ready.update(dict.fromkeys(again))
        return batches

    async def _send(self, sent: object, batches: list[tuple[CopiedPartition, int, memoryview | bytearray]]) -> None:
        by_topic: dict[tuple[str, uuid.UUID | None], list[PartitionProduce]] = {}
        for part, _, data in batches:
            by_topic.setdefault((part.target_topic, part.target_topic_id), []).append(
                PartitionProduce(part.partition, data)
            )
        request = ProduceRequest(
            [TopicProduce(name, topic_id, parts) for (name, topic_id), parts in by_topic.items()], self._timeout_ms
        )
        try:
            reply = await self._brokers.send(self.broker, request, channel="produce")
        except KafkaError as error:
            self.problem.set(str(error))
            now_s = self._clock.monotonic()
            for part, token, _ in batches:
                self._handle(part, ProduceLost(token, str(error), now_s))
        else:
            self.problem.set(None)
            self._answered(sent, self._clock.monotonic())
            self._settle(batches, reply)
        finally:
            del self._sent_at_s[sent]
            self._wake.set()

    def _settle(self, batches: list[tuple[CopiedPartition, int, memoryview | bytearray]], reply: ProduceReply) -> None:
        now_s = self._clock.monotonic()
        answers = {(answer.topic, answer.partition): answer for answer in reply.partitions}
        for part, token, _ in batches:
            answer = answers.get((part.target_topic, part.partition))
            if answer is None:
                self._handle(part, ProduceLost(token, "the reply leaves this partition out", now_s))
            elif answer.error_code:
                self._handle(part, ProduceRefused(token, answer.error_code, answer.error_message, now_s))
            else:
                self._handle(part, Acked(token, answer.base_offset, now_s))
