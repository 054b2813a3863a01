"""The path of a flow A->B: heartbeats that are emitted on A, read back on B as ``A.heartbeats``.

A heartbeat that arrives proves that the flow copies, and shows how long a record takes from its emitter to B. Its time
is by the emitter's clock, its arrival by ours: where the two clocks differ, the latency is wrong by as much, and may be
below 0. ``step`` decides, pure; ``PathConnector`` reads one partition. MM2 leaves this to its users.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.connector import PathStatus
from mm2py.errors import Mm2Error
from mm2py.flow import Flow
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata
from mm2py.kafka.error_codes import LEADER_NOT_AVAILABLE, OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused, Reaction, reaction_to
from mm2py.kafka.list_offsets import EARLIEST, LATEST, end_of
from mm2py.kafka.port import BrokerId, Brokers, FetchedPartition, FetchRequest, PartitionFetch, TopicFetch
from mm2py.metrics.worker_numbers import PathSnapshot
from mm2py.records.batch import MAGIC, decoded, read_header, read_sound_header, records_in, split
from mm2py.records.compression import LIGHT_WORK_BYTES, RECORD_WORK_BYTES, WHOLE_BUDGET
from mm2py.records.heartbeat import Heartbeat, decode
from mm2py.records.java_struct import MalformedRecord
from mm2py_connectors.heartbeat.connector import PARTITION
from mm2py_connectors.rounds import RoundsConnector

SILENT_AFTER_INTERVALS: Final = 10
SILENT_AFTER_LEAST_S: Final = 15.0
"""A leader that moves, or a broker that restarts, delays heartbeats for some seconds: that is no silence."""
FIRST_MOST_S: Final = 60.0
"""How much longer the first one may take: topics have to be made, and the flow has to find them."""
STARTS_BACK: Final = 10
"""How many offsets before the end reading starts: enough to find a heartbeat, and never the whole history."""
FETCH_BYTES: Final = 64 * 1024
POLL_MS: Final = 5_000


class Phase(Enum):
    UNPROVEN = "no heartbeat has come yet"
    PROVEN = "heartbeats come"
    SILENT = "heartbeats have stopped, or have never come although they should"


@dataclass(frozen=True, slots=True)
class LastHeartbeat:
    """The heartbeat that came last."""

    timestamp_ms: int
    latency_ms: int | None
    """None if it was there before reading started."""


@dataclass(frozen=True, slots=True)
class Path:
    """What is known of a path.

    Only the heartbeat that arrived last is kept, of any pair of clusters. The source may invent names and timestamps: a
    source that invents a pair for each heartbeat must not fill the memory, and a heartbeat from the future must not
    count as the newest until then.
    """

    silent_after_s: float
    expected: bool
    """The file names an emitter; without one, silence means nothing before the first heartbeat."""
    silent_at_s: float
    """When the path counts as silent, unless a heartbeat comes before."""
    phase: Phase = Phase.UNPROVEN
    late_since_s: float | None = None
    """Since when only late heartbeats have come, while the path is not proven."""
    last: LastHeartbeat | None = None


@dataclass(frozen=True, slots=True)
class Arrived:
    """A heartbeat was read, the last one in the order of the log."""

    heartbeat: Heartbeat
    at_s: float
    at_ms: int
    live: bool
    """It came while a read waited at the end of the log, so it arrived at ``at_ms``."""


@dataclass(frozen=True, slots=True)
class Looked:
    """The end of the log was reached, and nothing was there."""

    at_s: float


@dataclass(frozen=True, slots=True)
class Blind:
    """The target could not be read, which says nothing about the path."""

    at_s: float


@dataclass(frozen=True, slots=True)
class SayProven:
    pair: Flow
    latency_ms: int


@dataclass(frozen=True, slots=True)
class SaySilent:
    ever: bool
    """Whether a heartbeat has ever come."""


def begin(interval_s: float | None, now_s: float) -> Path:
    """Return an unproven path; ``interval_s`` as for ``PathConnector``."""
    silent_after_s = max(SILENT_AFTER_LEAST_S, SILENT_AFTER_INTERVALS * (interval_s or 0.0))
    return Path(silent_after_s, interval_s is not None, now_s + silent_after_s + FIRST_MOST_S)


def step(path: Path, event: Arrived | Looked | Blind) -> tuple[Path, list[SayProven | SaySilent]]:
    """Apply what was seen on the target; return what must be reported to the operator, if anything changed."""
    match event:
        case Arrived(newest, at_s, at_ms, live):
            latency_ms = at_ms - newest.timestamp_ms
            path = replace(path, last=LastHeartbeat(newest.timestamp_ms, latency_ms if live else None))
            if not live:
                return path, []  # it was there before: it does not prove that the path works now
            path = replace(path, silent_at_s=at_s + path.silent_after_s)
            if path.phase is Phase.PROVEN:
                return path, []
            late_since_s = at_s if path.late_since_s is None else path.late_since_s
            if latency_ms > path.silent_after_s * 1000 and at_s - late_since_s < path.silent_after_s:
                return replace(path, late_since_s=late_since_s), []  # the flow may be catching up
            return replace(path, phase=Phase.PROVEN, late_since_s=None), [SayProven(newest.flow, latency_ms)]
        case Blind(at_s):
            return replace(path, silent_at_s=max(path.silent_at_s, at_s + path.silent_after_s)), []
        case Looked(at_s):
            waited_for = path.phase is Phase.PROVEN or (path.phase is Phase.UNPROVEN and path.expected)
            if not waited_for or at_s < path.silent_at_s:
                return path, []
            return replace(path, phase=Phase.SILENT, late_since_s=None), [SaySilent(ever=path.last is not None)]


def status_of(path: Path, now_ms: int) -> PathStatus:
    """Return what the flow's status shows of its path."""
    beat = path.last
    if beat is None:
        return PathStatus(None, None)
    latency_ms = None if beat.latency_ms is None else float(beat.latency_ms)
    return PathStatus(heartbeat_age_s=(now_ms - beat.timestamp_ms) / 1000, path_latency_ms=latency_ms)


class UnreadableHeartbeat(Mm2Error):
    """A record or batch of the topic is no heartbeat."""

    def __init__(self, topic: str, offset: int, error: Mm2Error) -> None:
        super().__init__(f"{topic}-{PARTITION} at offset {offset}: {error.what}", remedy=error.remedy)


def newest_heartbeat(part: FetchedPartition, wanted_offset: int) -> tuple[Heartbeat | None, int, Mm2Error | None]:
    """Return the last heartbeat of a reply from an offset on, the offset to continue at, and what could not be read.

    Anyone who may write to ``heartbeats`` on the source decides what is in it: three batches held 3.6 million records.
    So batches are decoded from the last one on, until one has a heartbeat, or as much is decoded as one step of the
    event loop may; and one record at a time is in memory.
    """
    next_offset, left = wanted_offset, LIGHT_WORK_BYTES
    trouble: Mm2Error | None = None
    for batch in reversed([*split(part.records)]):
        header = read_header(batch)
        next_offset = max(next_offset, header.next_offset)
        if header.is_control or header.magic != MAGIC:
            continue
        found: Heartbeat | None = None
        offset = header.base_offset
        try:
            header = read_sound_header(batch)
            budget = WHOLE_BUDGET.within(left)
            body = decoded(header, batch, budget)
            left -= len(body) + RECORD_WORK_BYTES * header.record_count
            for record in records_in(header, body, budget):
                left -= RECORD_WORK_BYTES * len(record.headers)
                if record.offset >= wanted_offset:
                    try:
                        found = decode(record.key, record.value)
                    except MalformedRecord as error:
                        trouble = trouble or UnreadableHeartbeat(part.topic, record.offset, error)
        except Mm2Error as error:
            trouble = trouble or UnreadableHeartbeat(part.topic, offset, error)
        if found is not None:
            return found, next_offset, trouble
    return None, next_offset, trouble


@dataclass(slots=True)
class _Tail:
    """The place that reading has reached."""

    topic: TopicMetadata
    leader: BrokerId
    offset: int
    at_end: bool


class PathConnector(RoundsConnector):
    """Reads one flow's heartbeats back."""

    def __init__(
        self,
        flow: Flow,
        topic: str,
        brokers: Brokers,
        *,
        interval_s: float | None,
        clock: Clock,
        log: FilteringBoundLogger,
        rng: random.Random,
    ) -> None:
        """Make one; ``run`` starts it.

        Args:
            topic: the copies' name on the target, ``A.heartbeats``.
            brokers: those of the target.
            interval_s: how often the source gets a heartbeat, by the file; None: the file names no emitter.
        """
        effect = "whether heartbeats come through, and how fast, is unknown; copying of records does not need it"
        super().__init__("path", effect=effect, clock=clock, rng=rng, log=log)
        self._flow = flow
        self._topic = topic
        self._brokers = brokers
        self._path = begin(interval_s, clock.monotonic())
        self._tail: _Tail | None = None
        self._unreadable_said = False

    def status(self, *, with_topics: bool = True) -> PathStatus:
        return status_of(self._path, self._clock.wall_ms())

    def measure(self) -> Iterator[PathSnapshot]:
        """Yield what is known of heartbeats; see ``Connector``."""
        status = self.status()
        yield PathSnapshot(self._flow.source, self._flow.target, status.heartbeat_age_s, status.path_latency_ms)

    async def _round(self) -> float | None:
        if self._tail is None:
            self._tail = await self._find()
        if self._tail is None:
            self._take(Looked(self._clock.monotonic()))
            return None
        await self._read(self._tail)
        return 0.0

    def _round_failed(self, pause_s: float) -> None:
        self._tail = None
        self._take(Blind(self._clock.monotonic()))

    async def _find(self) -> _Tail | None:
        """Return where to start reading, near the end; None while there is no such topic."""
        topic = (await fetch_metadata(self._brokers, [self._topic], channel="path")).topics.get(self._topic)
        if topic is None or topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
            return None
        part = topic.partitions.get(PARTITION)
        if topic.error_code or part is None or part.leader is None:
            raise self._refused("Finding", topic.error_code or LEADER_NOT_AVAILABLE)
        first = await end_of(self._brokers, part.leader, (self._topic, PARTITION), EARLIEST)
        end = await end_of(self._brokers, part.leader, (self._topic, PARTITION), LATEST)
        return _Tail(topic, part.leader, max(first, end - STARTS_BACK), at_end=first == end)

    async def _read(self, tail: _Tail) -> None:
        wanted = PartitionFetch(PARTITION, tail.offset, FETCH_BYTES)
        request = FetchRequest(
            [TopicFetch(self._topic, tail.topic.topic_id, [wanted])],
            max_wait_ms=POLL_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            read_committed=False,
        )
        reply = await self._brokers.send(tail.leader, request, channel="path")
        if reply.error_code:
            raise self._refused("Reading", reply.error_code)
        if not reply.partitions:  # a fetch session answers only news
            self._take(Looked(self._clock.monotonic()))
            return
        part = reply.partitions[0]
        if part.error_code == OFFSET_OUT_OF_RANGE:
            self._tail = None  # the log was truncated or cleaned: start near its end again
            return
        if part.error_code:
            raise self._refused("Reading", part.error_code)
        heartbeat, tail.offset, error = newest_heartbeat(part, tail.offset)
        self._say_unreadable(error)
        now_s = self._clock.monotonic()
        if heartbeat is not None:
            self._take(Arrived(heartbeat, now_s, self._clock.wall_ms(), live=tail.at_end))
        else:
            self._take(Looked(now_s))
        tail.at_end = tail.offset >= part.high_watermark

    def _take(self, event: Arrived | Looked | Blind) -> None:
        self._path, said = step(self._path, event)
        for effect in said:
            match effect:
                case SayProven(pair, latency_ms):
                    self._log.info("path.proven", by=str(pair), latency_ms=latency_ms)
                case SaySilent(ever):
                    age_s = self.status().heartbeat_age_s
                    self._log.warning(
                        "path.silent",
                        why=f"{'no further' if ever else 'no'} heartbeat has come into {self._topic}",
                        newest_age_s=None if age_s is None else round(age_s, 1),
                        remedy=f"Look with mm2py status whether {self._flow} copies other topics. If it does, no worker"
                        f" writes heartbeats to {self._flow.source}: start one with mm2py FILE --clusters"
                        f" {self._flow.source}, and do not switch emit.heartbeats.enabled off there.",
                    )

    def _say_unreadable(self, error: Mm2Error | None) -> None:
        if error is not None and not self._unreadable_said:
            self._unreadable_said = True
            self._log.warning("path.unreadable", topic=self._topic, why=str(error))

    def _refused(self, doing: str, code: int) -> BrokerRefused:
        target = self._flow.target
        denied = reaction_to(code) is Reaction.DENIED
        remedy = f"Grant mm2py DESCRIBE and READ on topic {self._topic} of {target}." if denied else ""
        return BrokerRefused(f"{doing} {self._topic} on {target}", code, remedy=remedy)
