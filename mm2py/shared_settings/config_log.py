"""The configs topic of one flow: read to its end, followed while the flow runs, and written without losing a change.

Kafka has no compare-and-set. A writer reads to the end, writes only if what it knows still counts there, and then reads
until it sees its own record. The story: w1 and w2 have both read version 3. w1 stores its version 4, and w2's version 4
comes after it. w2 reads w1's record, which it did not know, and stores w1's settings again as version 5. If w2 dies
before that, its own settings remain: the last writer wins.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from mm2py import __version__
from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.copying.reading.internal_table import each_record
from mm2py.errors import Mm2Error
from mm2py.flow import TopicName
from mm2py.kafka import internal_topic
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata, until_answered
from mm2py.kafka.error_codes import (
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from mm2py.kafka.errors import BrokerRefused, KafkaError
from mm2py.kafka.internal_topic import TopicWriter
from mm2py.kafka.port import Brokers
from mm2py.kafka.producer.incarnation import Incarnation
from mm2py.records import history_record
from mm2py.records.audit_record import AuditRecord, audit_key, encode_audit, too_old
from mm2py.records.author import UNKNOWN, Author
from mm2py.records.backfill_record import RECORD_BYTES_MOST, Backfill, backfill_key, encode_backfill
from mm2py.records.batch import NewRecord
from mm2py.records.connector_config import (
    FLOW_KEY,
    ConfigRecords,
    FlowConfig,
    encode_connectors,
    encode_flow,
    encode_no_tasks,
)
from mm2py.records.direction_record import DIRECTION_KEY, Direction, encode_direction
from mm2py.records.history_record import (
    HistoryEntry,
    direction_entry,
    encode_history,
    history_key,
    pause_entry,
    restart_entry,
    target_entry,
)
from mm2py.records.operator_request import (
    LOG_LEVEL,
    Restart,
    Target,
    TargetState,
    encode_log_level,
    encode_restart,
    encode_target,
    target_key,
)
from mm2py.records.owner_record import OWNER_KEY, Owner, encode_owner
from mm2py.records.pause_record import PausedPart, TopicPause, encode_pause, pause_key
from mm2py.records.replaced_record import ReplacedRecords, Version
from mm2py.shared_settings.flow_config import counting, entry_of, storable, winner_of
from mm2py.topics.names import InternalTopic

BACKFILLS_KEPT_MS: Final = 7 * 86_400_000
"""How long backfills that have ended are shown."""
POLL_S: Final = 0.5
"""How often to look for a new version: workers notice it within two seconds."""
PARTS_MOST: Final = 100
"""How many topics and partitions are paused or resumed at once."""
SETTLE_S: Final = 5.0
"""How long a writer waits until another one has put its settings back."""
READ_AGAIN_S: Final = 0.05
READ_AGAIN_MOST: Final = 200


T = TypeVar("T", bound=Version)


@dataclass(frozen=True, slots=True)
class ReplacedKind(Generic[T]):
    """A record of the topic of which each version replaces the one that its writer had read."""

    key: bytes
    encode: Callable[[T], bytes]
    of: Callable[[ConfigRecords], ReplacedRecords[T]]


_OWNER: Final = ReplacedKind(OWNER_KEY, encode_owner, lambda records: records.owner)
_DIRECTION: Final = ReplacedKind(DIRECTION_KEY, encode_direction, lambda records: records.direction)


class ConfigsUnusable(Mm2Error):
    """The configs topic cannot be created, or would not keep settings."""

    def __init__(self, topic: str, why: str, *, remedy: str) -> None:
        super().__init__(f"{topic} cannot keep the configuration of its flow: {why.rstrip('.')}.", remedy=remedy)


class NotSeen(Mm2Error):
    """A record that was written cannot be read back: the topic was deleted or recreated meanwhile."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"{topic} has taken a record, and does not show it.",
            remedy="Look who deletes or recreates that topic, and ask again.",
        )


class ConfigTable:
    """The content of the configs topic of one flow. Reading it changes nothing on the cluster."""

    def __init__(self, brokers: Brokers, topic: str) -> None:
        self.topic = topic
        self.records = ConfigRecords(topic)
        self.is_missing = False
        """There was no such topic at the last look."""
        self._brokers = brokers
        self._metadata: TopicMetadata | None = None
        self._topic_id: uuid.UUID | None = None
        self._read_to: dict[int, int] = {}
        self._is_read = False
        """The topic was read to its end once: restarts that are read from now on are new."""
        self._reading = asyncio.Lock()

    @property
    def config(self) -> FlowConfig | None:
        """The settings that count, by all records that were read."""
        return counting(self.records)

    async def read(self) -> int:
        """Read what is new since the last call; returns the number of records.

        Raises:
            ConfigTooNew, OwnerTooNew, DirectionTooNew: this mm2py must not act on what counts.
            ConfigsUnusable: the topic has several partitions, so its changes have no order.
            KafkaError: as ``each_record``; the next call continues where this one ended.
        """
        async with self._reading:
            return await self._read()

    async def _read(self) -> int:
        count, before = 0, bool(self._read_to)
        try:
            if self._metadata is None:
                self._metadata = await self._find()
            if self._metadata is not None:
                async for record in each_record(self._brokers, self._metadata, self._read_to):
                    self.records.take(record.key, record.value, record.offset)
                    count += 1
        except KafkaError as error:
            self._metadata = None  # its leader may have moved
            if isinstance(error, BrokerRefused) and error.code == OFFSET_OUT_OF_RANGE and before:
                self._forget()  # it was cut back: all of it is read once more
            raise
        if not self._is_read:
            self.records.restarts.clear()
            self.records.log_level = None
            self._is_read = True
        newer = self.records.newer_backfills.values()
        for too_new in (self.records.owner.too_new, self.records.direction.too_new, self.records.too_new, *newer):
            if too_new is not None:
                raise too_new.with_traceback(None)  # else its traceback grows with each read, and keeps frames alive
        return count

    def take_restarts(self) -> list[Restart]:
        """Return the restarts that were asked for since the last call, without those from before the first read."""
        found = list(self.records.restarts)
        self.records.restarts.clear()
        return found

    def take_log_level(self) -> str | None:
        """Return the level at which workers are to log, if it was asked since the last call; see ``take_restarts``."""
        found, self.records.log_level = self.records.log_level, None
        return found

    async def read_patiently(self, rng: random.Random) -> int:
        """Read, and try again after errors that may pass. Raises: as ``read``, errors that do not pass."""
        return await until_answered(self.read, rng=rng)

    def _forget(self) -> None:
        self._read_to.clear()
        self._is_read = False
        self.records = ConfigRecords(self.topic)

    async def _find(self) -> TopicMetadata | None:
        topic = (await fetch_metadata(self._brokers, [self.topic])).topics.get(self.topic)
        self.is_missing = topic is None or topic.error_code == UNKNOWN_TOPIC_OR_PARTITION
        if topic is None or self.is_missing:
            self._forget()
            return None
        if topic.error_code:
            raise BrokerRefused(
                f"Reading {self.topic}",
                topic.error_code,
                remedy=f"mm2py needs DESCRIBE and READ on {self.topic}.",
            )
        if len(topic.partitions) > 1:
            raise ConfigsUnusable(
                self.topic,
                f"it has {len(topic.partitions)} partitions, and Kafka Connect wants one, too",
                remedy="Name another one by config.storage.topic.",
            )
        if topic.topic_id != self._topic_id:
            self._topic_id = topic.topic_id  # recreated: what was read was in another topic
            self._forget()
        return topic


@dataclass(frozen=True, slots=True)
class SettingsWritten:
    """The settings are in the topic, and count; ``config`` is as it was stored."""

    config: FlowConfig


@dataclass(frozen=True, slots=True)
class Lost:
    """Another writer was quicker, and nothing was changed. ``config`` counts."""

    config: FlowConfig | None


class ConfigLog(ConfigTable):
    """A ``ConfigTable`` that also writes to the topic."""

    def __init__(
        self,
        brokers: Brokers,
        settings: FlowSettings,
        *,
        worker: str,
        clock: Clock,
        rng: random.Random,
        author: Author = UNKNOWN,
    ) -> None:
        """Make one.

        Args:
            brokers: those of the target.
            worker: names the writer, for people.
            author: the user of this process, for settings that name no other author.
        """
        super().__init__(brokers, settings.configs_topic)
        self._settings = settings
        self._flow = settings.flow
        self._is_ensured = False
        self._writer: TopicWriter | None = None
        self._worker = worker
        self._author = author
        self._clock = clock
        self.rng = rng
        self._writing = asyncio.Lock()

    async def write(
        self, config: FlowConfig, *, instead_of: FlowConfig | None, again: str = ""
    ) -> SettingsWritten | Lost:
        """Store settings in the place of those that the caller has read, if those still count.

        The history gets an entry with the changes, in the same batch. A write that has lost takes its entry back.

        Args:
            again: why settings that counted before are stored once more; empty: they are a new decision.
        Raises: as ``read``, ``ensure_configs_topic`` and ``TopicWriter.write``.
        After cancelling they may be stored or not, and settings that another worker stored at the same time may be
        overwritten.
        """
        async with self._writing:
            writer = await self._ensure()
            if self.config != instead_of:
                return Lost(self.config)
            known, basis = self.records.writes, _write_id_of(self.records.flow)
            now_ms = self._clock.wall_ms()
            if not config.at_ms:
                author = self._author if config.author == UNKNOWN else config.author
                config = replace(config, at_ms=now_ms, worker=self._worker, written_by=__version__, author=author)
            ours = replace(config, write_id=self._new_write_id(), based_on=basis)
            entry = entry_of(instead_of, ours, at_ms=now_ms, author=self._author, worker=self._worker, again=again)
            kept = {} if entry is None else self._kept(entry)
            if not await self._append(writer, ours, kept):
                return Lost(self.config)
            winner = winner_of(self.records.writes_behind(known), basis, ours.write_id)
            if winner is None:
                return await self._settle(ours)
            taken_back: dict[bytes, bytes | None] = {key: None for key, value in kept.items() if value is not None}
            if _write_id_of(self.records.flow) == ours.write_id:
                theirs = replace(storable(winner), version=ours.version + 1, write_id=self._new_write_id())
                await self._append(writer, replace(theirs, based_on=ours.write_id), taken_back)
            elif taken_back:  # another worker has put theirs back already
                await writer.write({0: [NewRecord(key, None, now_ms) for key in taken_back]})
            return Lost(self.config)

    def _new_write_id(self) -> str:
        return f"{self.rng.getrandbits(64):016x}"

    def _kept(self, *entries: HistoryEntry) -> dict[bytes, bytes | None]:
        """Return the records that add entries to the history, and delete what is too old in it."""
        old = too_old(self.records.history, history_record.KEPT_MOST + 1 - len(entries))
        added = {history_key(one.at_ms, self.rng.getrandbits(32)): encode_history(one) for one in entries}
        return {**dict.fromkeys(old), **added}

    async def _append(self, writer: TopicWriter, ours: FlowConfig, kept: Mapping[bytes, bytes | None]) -> bool:
        """Write settings, and read until they are seen; False if they never are, as in a topic deleted meanwhile.

        Args:
            kept: records of the history, written before the settings.
        """
        known = self.records.writes
        values: dict[bytes, bytes | None] = dict(kept)
        if not self.records.is_beside_mm2:
            values |= encode_connectors(ours.properties, self._flow.source, self._flow.target)
            values |= encode_no_tasks(self.records.tasks)
        values[FLOW_KEY] = encode_flow(ours)  # the last of its batch

        def is_seen() -> bool:
            return any(one.write_id == ours.write_id for one in self.records.writes_behind(known))

        return await self._put(writer, values, is_seen)

    async def _put(
        self, writer: TopicWriter, values: Mapping[bytes, bytes | None], is_seen: Callable[[], bool]
    ) -> bool:
        """Write records, and read until they are seen; False if they never are, as in a topic deleted meanwhile."""
        now_ms = self._clock.wall_ms()
        await writer.write({0: [NewRecord(key, value, now_ms) for key, value in values.items()]})
        for _ in range(READ_AGAIN_MOST):
            await self.read_patiently(self.rng)
            if is_seen():
                return True
            await asyncio.sleep(READ_AGAIN_S)
        return False

    async def make_topic(self) -> None:
        """Create the topic if it is missing. Raises: as ``read``, ``ensure_configs_topic``."""
        async with self._writing:
            await self._make_topic()

    async def _ensure(self) -> TopicWriter:
        """Return the writer, after a last read: the next write is based on the present content of the topic."""
        if self._writer is None:
            self._writer = await self._start_writer()
        await self._make_topic()
        return self._writer

    async def _make_topic(self) -> None:
        await self.read_patiently(self.rng)
        if self.is_missing or not self._is_ensured:
            await ensure_configs_topic(
                self._brokers,
                self.topic,
                replication_factor=self._settings.configs_topic_replication_factor,
                rng=self.rng,
            )
            self._is_ensured = True

    async def claim(
        self, group: str, *, instead_of: Owner | None, takes_over: str = "", source_cluster: str = ""
    ) -> Owner | None:
        """Claim the flow for a group, if the claim that the caller has read still counts. Return the claim that counts.

        The story: groups g and h find the owner dead at the same time. g's claim comes first. h's claim names the same
        predecessor, so it does not count for any reader. h reads that, and writes g's claim again after its own.

        Args:
            takes_over: see ``Owner``; likewise ``source_cluster``.
        Returns: None, if the topic was deleted meanwhile; ask again.
        Raises: as ``write``. After cancelling the flow may be claimed or not.
        """
        ours = Owner(
            group,
            self._worker,
            self._clock.wall_ms(),
            self._new_write_id(),
            written_by=__version__,
            takes_over=takes_over,
            source_cluster=source_cluster,
        )
        return await self._replace(_OWNER, ours, instead_of=instead_of)

    async def turn(self, direction: Direction, *, instead_of: Direction | None) -> Direction:
        """Store whether the flow is on, if what the caller has read still counts. Return what counts.

        Raises: as ``write``; NotSeen. After cancelling it may be stored or not.
        """
        ours = replace(direction, at_ms=self._clock.wall_ms(), write_id=self._new_write_id(), written_by=__version__)
        current = await self._replace(_DIRECTION, ours, instead_of=instead_of, entry=direction_entry(ours))
        if current is None:
            raise NotSeen(self.topic)
        return current

    async def restore_direction(self, direction: Direction) -> None:
        """Write what counts again, if it is gone or a turn that does not count comes after it.

        Args:
            direction: what the caller knows.
        Raises: as ``claim``.
        """
        await self._restore(_DIRECTION, direction)

    async def _replace(
        self, kind: ReplacedKind[T], ours: T, *, instead_of: T | None, entry: HistoryEntry | None = None
    ) -> T | None:
        """Write a version, if the one that the caller has read still counts. Return the one that counts.

        Args:
            entry: goes to the history with it, and is taken back if another writer was quicker.
        Returns: None, if the topic was deleted meanwhile.
        """
        async with self._writing:
            writer = await self._ensure()
            records = kind.of(self.records)
            if records.current != instead_of:
                return records.current
            kept = {} if entry is None else self._kept(entry)
            await self._put_version(writer, kind, records.next(ours), kept)
            await self._put_back(writer, kind)
            current = kind.of(self.records).current
            if kept and (current is None or current.write_id != ours.write_id):
                now_ms = self._clock.wall_ms()
                await writer.write({0: [NewRecord(key, None, now_ms) for key, value in kept.items() if value]})
            return current

    async def complete_claim(self, owner: Owner) -> None:
        """Write a claim again without ``takes_over``, if it still counts: that is done now. Raises: as ``claim``."""
        await self._write_again(owner, lambda claim: replace(claim, takes_over=""))

    async def name_source(self, owner: Owner, source_cluster: str) -> None:
        """Write a claim again, if it still counts, with the id of the flow's source cluster. Raises: as ``claim``."""
        await self._write_again(owner, lambda claim: replace(claim, source_cluster=source_cluster))

    async def _write_again(self, owner: Owner, change: Callable[[Owner], Owner]) -> None:
        async with self._writing:
            writer = await self._ensure()
            if self.records.owner.current == owner:
                await self._put_version(writer, _OWNER, change(self.records.owner.put_back()))

    async def restore_owner(self, owner: Owner) -> None:
        """Write the claim that counts again, if it is gone or a claim that does not count comes after it.

        Args:
            owner: the claim that the caller knows.
        Raises: as ``claim``.
        """
        await self._restore(_OWNER, owner)

    async def _restore(self, kind: ReplacedKind[T], version: T) -> None:
        async with self._writing:
            writer = await self._ensure()
            if kind.of(self.records).current is None:
                await self._put_version(writer, kind, version)
            await self._put_back(writer, kind)

    async def _put_version(
        self, writer: TopicWriter, kind: ReplacedKind[T], version: T, kept: Mapping[bytes, bytes | None] | None = None
    ) -> None:
        """Write a version. A topic that is recreated meanwhile is read into new ``records``."""
        known = kind.of(self.records).reads

        def is_seen() -> bool:
            return kind.of(self.records).has(version.write_id, known)

        await self._put(writer, {**(kept or {}), kind.key: kind.encode(version)}, is_seen)

    async def _put_back(self, writer: TopicWriter, kind: ReplacedKind[T]) -> None:
        if kind.of(self.records).is_covered:
            await self._put_version(writer, kind, kind.of(self.records).put_back())

    async def write_target(self, connector: str, state: TargetState, *, by: str, author: Author = UNKNOWN) -> None:
        """Store what a connector is to do, unless that is stored already. Returns when the record is in the topic.

        Args:
            connector: MirrorSourceConnector, MirrorCheckpointConnector or MirrorHeartbeatConnector.
            by: who asks, for people.
            author: who asks, for programs, and why.
        Raises: as ``write``; NotSeen. After cancelling it may be stored or not.
        """
        async with self._writing:
            writer = await self._ensure()
            if self.records.target_of(connector).state is state:
                return
            target = Target(state, by, self._clock.wall_ms(), author=author)
            entry = self._kept(target_entry(connector, target))
            await self._put_request(writer, target_key(connector), encode_target(target), entry)

    async def write_restart(self, restart: Restart) -> None:
        """Ask the workers that run now to restart something, once. Returns when the record is in the topic.

        Raises: as ``write_target``.
        """
        async with self._writing:
            writer = await self._ensure()
            now_ms = self._clock.wall_ms()
            key, value = encode_restart(restart, request_id=self._new_write_id(), at_ms=now_ms)
            await self._put_request(writer, key, value, self._kept(restart_entry(restart, now_ms)))

    async def write_pauses(
        self, parts: Sequence[PausedPart], *, is_paused: bool, by: str, author: Author = UNKNOWN
    ) -> list[PausedPart]:
        """Pause topics and partitions, or let them go on. Return those that were not so before.

        Together they are one batch, with their history. A pause that is stored already keeps its author and reason.

        Args:
            parts: at most ``PARTS_MOST``.
            by: see ``write_target``; likewise ``author``.
        Raises: as ``write_target``.
        """
        async with self._writing:
            writer = await self._ensure()
            now_ms, stored = self._clock.wall_ms(), {one.part for one in self.records.pauses.all()}
            changed = [part for part in dict.fromkeys(parts) if (part in stored) is not is_paused]
            if not changed:
                return []
            values = self._kept(*(pause_entry(one, now_ms, by, author, is_paused=is_paused) for one in changed))
            for topic, partition in changed:
                pause = encode_pause(TopicPause(topic, partition, by, now_ms, author), __version__)
                values[pause_key(topic, partition)] = pause if is_paused else None
            known = self.records.requests
            if not await self._put(writer, values, lambda: self.records.requests > known):
                raise NotSeen(self.topic)
            return changed

    async def write_history(self, entry: HistoryEntry) -> None:
        """Add an entry to the history of something that is stored elsewhere. Returns when it is in the topic.

        Raises: as ``write_target``.
        """
        async with self._writing:
            writer = await self._ensure()
            values = self._kept(entry)
            (new,) = (key for key, value in values.items() if value is not None)
            if not await self._put(writer, values, lambda: new in self.records.history):
                raise NotSeen(self.topic)

    async def write_log_level(self, level: str, *, by: str, author: Author = UNKNOWN) -> None:
        """Let the workers that run now log at this level, as Connect names it. Arguments: see ``write_target``.

        Raises: as ``write_target``.
        """
        async with self._writing:
            writer = await self._ensure()
            value = encode_log_level(level, by=by, at_ms=self._clock.wall_ms(), author=author)
            await self._put_request(writer, LOG_LEVEL, value)

    async def write_backfill(self, backfill: Backfill) -> None:
        """Store the state of a backfill, and delete those that ended long ago. Returns when the record is in the topic.

        Raises: as ``write_target``; ConfigsUnusable, if it names more partitions than fit into a record.
        """
        async with self._writing:
            writer = await self._ensure()
            now_ms, value = self._clock.wall_ms(), encode_backfill(backfill)
            if len(value) > RECORD_BYTES_MOST:
                raise ConfigsUnusable(
                    self.topic,
                    f"a backfill of so many partitions takes {len(value)} bytes",
                    remedy="Name fewer topics.",
                )
            forgotten = [
                old.id
                for old in self.records.backfills.values()
                if not (old.holds or old.is_filtered or old.id == backfill.id)
                and now_ms - old.seen_at_ms > BACKFILLS_KEPT_MS
            ]
            if forgotten:
                await writer.write({0: [NewRecord(backfill_key(old), None, now_ms) for old in forgotten]})
            await self._put_request(writer, backfill_key(backfill.id), value)

    async def _put_request(
        self, writer: TopicWriter, key: bytes, value: bytes, kept: Mapping[bytes, bytes | None] | None = None
    ) -> None:
        known = self.records.requests
        if not await self._put(writer, {**(kept or {}), key: value}, lambda: self.records.requests > known):
            raise NotSeen(self.topic)

    async def _start_writer(self) -> TopicWriter:
        """Return a writer with a producer id of its own, which most workers never need."""
        name = f"mm2py-{self._settings.group}-configs-{self.rng.getrandbits(48):012x}"
        incarnation = Incarnation(
            self._brokers,
            lambda _: name,
            clock=self._clock,
            rng=self.rng,
            report=lambda _: None,
            waiting=lambda _: None,
        )
        await incarnation.start()
        return TopicWriter(
            self._brokers,
            self.topic,
            incarnation,
            rng=self.rng,
            timeout_ms=int(self._settings.target_request_timeout_s * 500),
            channel="configs",
        )

    async def _settle(self, ours: FlowConfig) -> SettingsWritten | Lost:
        """Return the result of a write that was based on what counted; others may have written after it unread."""
        try:
            async with asyncio.timeout(SETTLE_S):
                while True:
                    latest = self.records.flow
                    if latest is None or latest.write_id == ours.write_id:
                        return SettingsWritten(ours)
                    if latest.based_on != ours.based_on:  # its writer has read ours, or it is ours, put back
                        return SettingsWritten(latest if latest.properties == ours.properties else ours)
                    await asyncio.sleep(READ_AGAIN_S)
                    await self.read_patiently(self.rng)
        except TimeoutError:
            return Lost(self.config)

    async def append_audit(self, record: AuditRecord) -> None:
        """Store a record of what a user changed, and delete the oldest of these beyond a bound. Nothing else changes.

        Raises: as ``write``.
        After cancelling it may be stored or not.
        """
        async with self._writing:
            writer = await self._ensure()
            now_ms = self._clock.wall_ms()
            key = audit_key(record.at_ms, self.rng.getrandbits(32))
            records = [NewRecord(old, None, now_ms) for old in too_old(self.records.audit)]
            await writer.write({0: [*records, NewRecord(key, encode_audit(record), now_ms)]})

    async def looks(self, report: Callable[[str], None]) -> AsyncIterator[bool]:
        """Yield after each look at the topic; True: since the look before, other settings count, or none any more.

        Args:
            report: is called with the reason each time that the topic cannot be read.
        Raises: as ``read``, errors that do not pass.
        """
        known = self.config
        while True:
            await asyncio.sleep(POLL_S)
            try:
                await self.read()
            except KafkaError as error:
                if not error.retriable:
                    raise
                report(str(error))
                continue
            before, known = known, self.config
            yield known != before


def _write_id_of(config: FlowConfig | None) -> str:
    return "" if config is None else config.write_id


async def ensure_configs_topic(brokers: Brokers, topic: str, *, replication_factor: int, rng: random.Random) -> None:
    """Create the configs topic if it is missing, and wait until it has a leader.

    Raises:
        ConfigsUnusable: it cannot be created, or would lose what it keeps.
        BrokerRefused: the target refuses a request about it.
        Others as ``Brokers.send``, errors that do not pass.
    """
    wanted = InternalTopic(TopicName(topic), 1)

    async def ensure() -> None:
        try:
            await internal_topic.find_or_make(
                brokers, wanted, replication_factor, setting="config.storage.replication.factor"
            )
            await internal_topic.read_settings(brokers, wanted)
        except internal_topic.TopicNotMade as error:
            raise ConfigsUnusable(topic, error.what, remedy=error.remedy) from error
        except internal_topic.TopicUnsuitable as error:
            raise ConfigsUnusable(topic, error.why, remedy=error.remedy) from error

    await until_answered(ensure, rng=rng)
