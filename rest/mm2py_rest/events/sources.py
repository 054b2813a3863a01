"""The topics that events come from: gaps and quarantine of a flow, and the control log of a group.

``mm2-configs.A.internal`` has a module of its own, ``configs.py``.
"""

from __future__ import annotations

import asyncio
import io
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings, GroupSettings
from mm2py.copying.reading.internal_table import each_placed_record
from mm2py.errors import Mm2Error
from mm2py.flight.past import text_of
from mm2py.flow import Flow
from mm2py.group.control_log import ControlLog, ControlLogLost, Opening
from mm2py.group.control_topic import ControlLogMissing
from mm2py.group.membership import GroupState
from mm2py.group.state_snapshot import read_snapshot
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata
from mm2py.kafka.error_codes import OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.list_offsets import EARLIEST, LATEST, find_offsets
from mm2py.kafka.port import Brokers
from mm2py.logs import make_logger
from mm2py.records.batch import Record
from mm2py.records.control_record import Assigned, Claim, Entry, Evicted, Joined, Left
from mm2py.records.flight_record import CausesChanged, MalformedFlightRecord, RecordedAnew, decode_flight
from mm2py.records.gap_record import Gap, MalformedGapRecord, decode, is_own_key
from mm2py.records.quarantined import NotQuarantined, QuarantineEntry
from mm2py.records.quarantined import decode as decode_quarantined
from mm2py.status.bodies import GapBody
from mm2py.topics.names import control_log, flight_topic, quarantine
from mm2py_rest.events.event import Event, EventKind, Happened, key_of
from mm2py_rest.reports.quarantine import record_of

ToBrokers = Callable[[], Brokers]
"""Returns the brokers of a target; connects at the first call."""


class TopicSource(ABC):
    """A topic that is followed, partition by partition."""

    def __init__(self, flow: Flow, topic: str, target: ToBrokers, *, begin_at: int = EARLIEST) -> None:
        """``begin_at``: where reading begins, as ListOffsets takes it: EARLIEST, LATEST, or a time in ms."""
        self.name = f"{topic} on {flow.target}"
        self.positions: dict[str, int] = {}
        self.begins: dict[str, int] = {}
        self._flow = flow
        self._topic = topic
        self._target = target
        self._begin_at = begin_at
        self._metadata: TopicMetadata | None = None
        self._read_to: dict[int, int] = {}
        self._found: list[Happened] = []
        self._is_open = False

    async def poll(self) -> Sequence[Happened]:
        """See ``Source``."""
        try:
            await self._read()
        except KafkaError:
            self._metadata = None  # its leaders may have moved
            raise
        found, self._found, self._is_open = self._found, [], True
        self.positions = {self._key(number): offset for number, offset in self._read_to.items()}
        return found

    async def _read(self) -> None:
        brokers = self._target()
        if self._metadata is None:
            metadata = await fetch_metadata(brokers, [self._topic])
            topic = metadata.topics.get(self._topic)
            if topic is None or topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                return
            if topic.error_code:
                remedy = f"mm2py needs DESCRIBE and READ on {self._topic}."
                raise BrokerRefused(f"Reading {self._topic}", topic.error_code, remedy=remedy)
            if self._begin_at != EARLIEST and not self._is_open and not self._read_to:
                keys = [(self._topic, number) for number in topic.partitions]
                leaders = {key: metadata.leader_of(*key) for key in keys}
                begins = await find_offsets(brokers, leaders, LATEST)
                if self._begin_at != LATEST:
                    found = await find_offsets(brokers, leaders, self._begin_at)
                    begins |= {key: offset for key, offset in found.items() if offset >= 0}
                self._read_to = {number: offset for (_, number), offset in begins.items()}
            for number in topic.partitions:
                self.begins.setdefault(self._key(number), self._read_to.get(number, 0))
            self._metadata = topic
        try:
            async for number, record in each_placed_record(brokers, self._metadata, self._read_to):
                for event in self._events(record):
                    self._found.append(Happened(self._key(number), record.offset, not self._is_open, event))
        except BrokerRefused as error:
            if error.code == OFFSET_OUT_OF_RANGE:  # the topic was truncated or recreated
                self._read_to.clear()
            raise

    def _key(self, partition: int) -> str:
        return key_of(self._flow.target, self._topic, partition)

    @abstractmethod
    def _events(self, record: Record) -> Iterator[Event]:
        """Yield the events that a record reports."""


class GapsSource(TopicSource):
    """``mm2-status.A.internal``: gaps, and what was done about them."""

    def __init__(self, settings: FlowSettings, target: ToBrokers) -> None:
        super().__init__(settings.flow, settings.status_topic, target)

    def _events(self, record: Record) -> Iterator[Event]:
        if record.key is None or record.value is None or not is_own_key(record.key):
            return
        with suppress(MalformedGapRecord):
            gap = decode(record.key, record.value)
            if isinstance(gap, Gap):
                where = f"{gap.topic}-{gap.partition}"
                text = f"{where}: {gap.kind}, {gap.done}. {gap.text}"
                data = GapBody.of(self._flow, gap).plain()
                yield Event(kind=EventKind.GAP, at_ms=record.timestamp_ms, flow=str(self._flow), text=text, data=data)


class QuarantineSource(TopicSource):
    """``mm2-quarantine.A.internal``: records that the target refuses from now on."""

    def __init__(self, settings: FlowSettings, target: ToBrokers, *, begin_at: int = LATEST) -> None:
        super().__init__(settings.flow, str(quarantine(settings.flow.source).name), target, begin_at=begin_at)

    def _events(self, record: Record) -> Iterator[Event]:
        try:
            entry = decode_quarantined(record)
        except NotQuarantined:
            return
        if isinstance(entry, QuarantineEntry) and entry.provenance.flow == str(self._flow):
            one = record_of(entry)
            text = f"{one.topic}-{one.partition} offset {one.offset} was put in quarantine: {one.error_text}"
            yield Event(
                kind=EventKind.QUARANTINED,
                at_ms=one.quarantined_at_ms,
                flow=str(self._flow),
                text=text,
                data=asdict(one),
            )


class FlightSource(TopicSource):
    """``mm2-flight.A.internal``: what workers do not copy from now on, and what they copy again.

    Once an hour a worker records all that it does not copy anew; that is no event.
    """

    def __init__(self, settings: FlowSettings, target: ToBrokers, *, begin_at: int) -> None:
        super().__init__(settings.flow, str(flight_topic(settings.flow.source).name), target, begin_at=begin_at)
        self._anew_ms: dict[str, int] = {}
        """When each member began to record all anew."""

    def _events(self, record: Record) -> Iterator[Event]:
        with suppress(MalformedFlightRecord):
            match decode_flight(record.value):
                case RecordedAnew(at_ms=at_ms, member=member, is_start=is_start):
                    self._anew_ms[member] = -1 if is_start else at_ms
                case CausesChanged() as change if self._anew_ms.get(change.member) != change.at_ms:
                    kind, flow = EventKind.NOT_COPIED, str(self._flow)
                    text = text_of(change, change.topic)
                    data = {"topic": change.topic, "reasons": [one.reason for one in change.causes]}
                    yield Event(kind=kind, at_ms=change.at_ms, flow=flow, text=text, data=data)


class GroupSource:
    """``mm2-cluster.<group>.internal``: members that join and leave, elected leaders, and assignments."""

    def __init__(
        self,
        settings: GroupSettings,
        target: ToBrokers,
        *,
        clock: Clock,
        rng: random.Random,
        begin_ms: int | None = None,
    ) -> None:
        """``begin_ms``: the time from which on events are told; None: from the newest snapshot on, about a minute."""
        self._begin_ms = begin_ms
        self._topic = control_log(settings.name, producer_expiry_ms=0)
        self.name = f"{self._topic.name} on {settings.target}"
        self.positions: dict[str, int] = {}
        self.begins: dict[str, int] = {}
        self._key = key_of(settings.target, str(self._topic.name), 0)
        self._group = f"{settings.name} on {settings.target}"
        self._target = target
        self._clock = clock
        self._rng = rng
        self._log: ControlLog | None = None
        self._view: GroupState | None = None
        self._found: list[Happened] = []

    async def poll(self) -> Sequence[Happened]:
        """See ``Source``."""
        try:
            await self._read()
        except ControlLogMissing:
            self._view = None  # no worker has ever joined, or the topic was deleted
        except ControlLogLost:
            self._view = None
        found, self._found = self._found, []
        if self._view is not None:
            self.positions = {self._key: self._view.next_offset}
        return found

    async def _read(self) -> None:
        if self._log is None:
            self._log = ControlLog(
                self._target(),
                self._topic,
                poll_s=0.0,
                append_timeout_s=1.0,
                replication_factor=None,
                clock=self._clock,
                rng=self._rng,
                log=make_logger("error", "text", io.StringIO()),
            )
        if self._view is None:
            opening = await self._open(self._log)
            view = GroupState() if opening.state is None else read_snapshot(opening.state, where=str(self._topic.name))
            self.begins = {self._key: opening.covers}
            for entry in opening.entries:
                self._take(view, entry, is_old=True)
            self._view = view
        while True:
            before = self._log.next_offset
            for entry in await self._log.read():
                self._take(self._view, entry, is_old=False)
            if self._log.next_offset == before:
                if self._log.trouble:
                    raise Unread(self._log.trouble)
                return
            await asyncio.sleep(0)

    async def _open(self, log: ControlLog) -> Opening:
        if self._begin_ms is not None:
            opening = await log.open_at(self._begin_ms)
            if opening.state is not None or opening.log_start_offset == 0:
                return opening  # else what was known then is not known any more
        return await log.open()

    def _take(self, view: GroupState, entry: Entry, *, is_old: bool) -> None:
        record = entry.record
        names = {name: member.joined.name for name, member in view.members.items()}
        leader, epoch, generation = view.leader, view.leader_epoch, view.generation
        view.take(entry)
        found: tuple[EventKind, str, dict[str, object]] | None = None
        match record:
            case Joined(member=member, name=name) if member not in names and member in view.members:
                data: dict[str, object] = {"member": member, "name": name, "version": record.runs}
                found = EventKind.MEMBER_JOINED, f"{name} has joined.", data
            case Left(member=member) if member in names and member not in view.members:
                name = names[member]
                found = EventKind.MEMBER_LEFT, f"{name} has left.", {"member": member, "name": name}
            case Evicted(dead=dead) if dead in names and dead not in view.members:
                text = f"{names[dead]} was evicted: its session has expired."
                found = EventKind.MEMBER_EVICTED, text, {"member": dead, "name": names[dead]}
            case Claim(member=member) if (view.leader, view.leader_epoch) != (leader, epoch) and view.leader == member:
                text = f"{names.get(member, member)} leads, leader epoch {view.leader_epoch}."
                data = {"member": member, "name": names.get(member, ""), "leader_epoch": view.leader_epoch}
                found = EventKind.LEADER_ELECTED, text, data
            case Assigned() if view.generation != generation:
                text = f"Tasks were assigned, generation {view.generation}."
                data = {"generation": view.generation, "leader_epoch": view.leader_epoch}
                found = EventKind.ASSIGNMENT_CHANGED, text, data
        if found is not None:
            kind, text, data = found
            event = Event(kind=kind, at_ms=entry.time_ms, group=self._group, text=text, data=data)
            self._found.append(Happened(self._key, entry.offset, is_old, event))


class Unread(Mm2Error):
    """The control log cannot be read at the moment."""

    def __init__(self, why: str) -> None:
        super().__init__(why, remedy="")
