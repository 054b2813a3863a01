"""The topic of the control log, and requests to the leader of its one partition.

A topic is refused if, with its settings, readers could come to different results. Each request is sent once.
ControlLogLost means that an answer is about another log than the one that was read.

Counterpart: Connect's TopicAdmin and KafkaConfigBackingStore, which create the config topic or check its cleanup
policy; and the Fetcher and Sender of Kafka's clients.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.errors import Mm2Error
from mm2py.group.log_reading import LogPlace, Read, unpack
from mm2py.kafka import admin, internal_topic
from mm2py.kafka.cluster import ClusterMetadata, TopicMetadata, fetch_metadata
from mm2py.kafka.error_codes import (
    INVALID_REPLICATION_FACTOR,
    LEADER_NOT_AVAILABLE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from mm2py.kafka.errors import BrokerRefused, Reaction, reaction_to
from mm2py.kafka.list_offsets import EARLIEST, LATEST, end_of, list_offsets
from mm2py.kafka.port import (
    BrokerId,
    Brokers,
    FetchedPartition,
    FetchRequest,
    PartitionFetch,
    PartitionProduce,
    ProduceRequest,
    TopicFetch,
    TopicProduce,
)
from mm2py.topics.names import InternalTopic
from mm2py.topics.replicas import AtMost, replicas_on

READ_BYTES: Final = 1 << 20
READ_BYTES_MOST: Final = 64 << 20
BULK_BYTES: Final = 64 << 10
"""A larger batch is sent on a connection of its own, so that no heartbeat waits for it."""
MISSING_S: Final = 5.0
"""A topic that no broker knows for this long was deleted."""
DAMAGED_READS_MOST: Final = 4


class ControlLogLost(Mm2Error):
    """The log that was read is gone, and so is all that was concluded from it: the worker joins again."""

    def __init__(self, topic: str, why: str) -> None:
        super().__init__(
            f"{topic} is another log than before: {why}.",
            remedy="Its workers join again by themselves; records are safe. Find out what the target cluster has lost.",
        )


def no_append_time(topic: str) -> ControlLogUnusable:
    """Return the error for a record whose time was set by its writer: no session can expire by such times."""
    return ControlLogUnusable(
        f"{topic} does not have message.timestamp.type=LogAppendTime any more: silence cannot be judged.",
        remedy=f"Set it again: kafka-configs.sh --alter --topic {topic} --add-config"
        " message.timestamp.type=LogAppendTime.",
    )


class ControlLeader:
    """The leader of the topic with one topic id. Only one task may call ``fetch``; any number may call ``append``."""

    def __init__(self, brokers: Brokers, found: TopicMetadata, *, rights: str, clock: Clock) -> None:
        """Make one.

        Args:
            found: fresh, with a leader.
            rights: the remedy to show when a right is missing.
        """
        self.topic = found.name
        self.topic_id: uuid.UUID | None = found.topic_id
        self._brokers = brokers
        self._rights = rights
        self._clock = clock
        self._leader: tuple[BrokerId, int] | None = leader_of(found)
        self._missing_since_s: float | None = None
        self._damaged = 0
        self._fetch_bytes = READ_BYTES

    def forget(self) -> None:
        """Ask the cluster for the leader before the next request."""
        self._leader = None

    async def ends(self) -> tuple[int, int]:
        """Return the offsets at which the log starts and ends. Raises: as ``fetch``."""
        return await self._bound(EARLIEST), await self.end()

    async def end(self) -> int:
        """Return the offset at which the log ends. Raises: as ``fetch``."""
        return await self._bound(LATEST)

    async def first_after(self, time_ms: int) -> int | None:
        """Return the offset of the first record that was appended after a time; None: there is none. Raises: as
        ``fetch``."""
        leader, epoch = await self._who_leads()
        key = (self.topic, PARTITION)
        answer = (await list_offsets(self._brokers, {key: leader}, time_ms + 1, leader_epochs={key: epoch}))[key]
        if answer.error_code:
            raise self._refused("Finding a time in", answer.error_code)
        return answer.offset if answer.offset >= 0 else None

    async def _bound(self, which: int) -> int:
        leader, epoch = await self._who_leads()
        return await end_of(self._brokers, leader, (self.topic, PARTITION), which, leader_epoch=epoch)

    async def fetch(self, place: LogPlace, *, wait_ms: int, was_read: bool) -> tuple[list[Read], LogPlace]:
        """Read once, from a place on; return the records and the place after them.

        Args:
            was_read: whether this log was read up to that place; else the place is a guess.
        Raises:
            ControlLogLost: it is another log than the one that was read.
            ControlLogUnusable: it was damaged in several reads in a row.
            KafkaError: as ``Brokers.send``, or an error code of the broker.
        """
        leader, epoch = await self._who_leads()
        want = PartitionFetch(PARTITION, place.offset, self._fetch_bytes, epoch, place.leader_epoch)
        request = FetchRequest(
            [TopicFetch(self.topic, self.topic_id, [want])],
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=self._fetch_bytes,
            read_committed=False,
            answer_all=True,
        )
        reply = await self._brokers.send(leader, request, channel=f"{CHANNEL} read")
        part = FetchedPartition(self.topic, PARTITION, reply.error_code)
        if not reply.error_code:
            part = reply.partitions[0]
        if part.error_code == OFFSET_OUT_OF_RANGE and was_read:
            raise ControlLogLost(self.topic, f"nothing stands at {place.offset}, up to which it had been read")
        if part.error_code:
            raise self._refused("Reading", part.error_code)
        if part.diverging_epoch is not None:
            cut = part.diverging_epoch[1]
            raise ControlLogLost(self.topic, f"it was cut back to {cut}, and had been read to {place.offset}")
        found = unpack(part.records, place, epoch)
        if found.place == place and len(part.records):
            self._came_damaged(place, found.fault)
        elif found.place != place:
            self._damaged, self._fetch_bytes = 0, READ_BYTES
        return found.reads, found.place

    async def append(self, data: bytearray, *, read_to: int, timeout_ms: int) -> int:
        """Append a batch and return its base offset.

        Args:
            read_to: the offset up to which the log was read: it ends there or later.
            timeout_ms: how long the leader may wait for its followers.
        Raises: as ``fetch``.
        """
        leader, _ = await self._who_leads()
        request = ProduceRequest(
            [TopicProduce(self.topic, self.topic_id, [PartitionProduce(PARTITION, data)])], timeout_ms
        )
        channel = CHANNEL if len(data) < BULK_BYTES else f"{CHANNEL} bulk"
        answer = (await self._brokers.send(leader, request, channel=channel)).partitions[0]
        if answer.error_code:
            raise self._refused("Appending to", answer.error_code, answer.error_message)
        if answer.base_offset < read_to:
            raise ControlLogLost(self.topic, f"it ended at {answer.base_offset}, and had been read to {read_to}")
        if answer.log_append_time_ms < 0:
            raise no_append_time(self.topic)
        return answer.base_offset

    def _refused(self, what: str, code: int, message: str | None = None) -> BrokerRefused:
        remedy = self._rights if reaction_to(code) is Reaction.DENIED else ""
        return BrokerRefused(f"{what} {self.topic}", code, message=message, remedy=remedy)

    def _came_damaged(self, place: LogPlace, fault: str) -> None:
        """Count a read that brought no intact batch. The next one may be intact."""
        if not fault:
            self._fetch_bytes = min(2 * self._fetch_bytes, READ_BYTES_MOST)  # its first batch was cut
            return
        self._damaged += 1
        if self._damaged >= DAMAGED_READS_MOST:
            raise ControlLogUnusable(
                f"{self.topic} cannot be read at offset {place.offset}: {fault}.",
                remedy="Look at it with kafka-dump-log.sh. If the disk is at fault, stop all workers and delete the"
                " topic: mm2py creates it again.",
            )

    async def _who_leads(self) -> tuple[BrokerId, int]:
        if self._leader is None:
            metadata = await fetch_metadata(self._brokers, [self.topic], channel=CHANNEL)
            found = metadata.topics.get(self.topic)
            if found is None or found.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                now_s = self._clock.monotonic()
                if self._missing_since_s is None:
                    self._missing_since_s = now_s
                if now_s - self._missing_since_s >= MISSING_S:
                    raise ControlLogLost(self.topic, "the topic was deleted")
                raise self._refused("Looking for", UNKNOWN_TOPIC_OR_PARTITION)
            self._missing_since_s = None
            if found.error_code:  # it then has no id either
                raise self._refused("Finding the leader of", found.error_code)
            if found.topic_id != self.topic_id:
                raise ControlLogLost(self.topic, "the topic was deleted and recreated")
            self._leader = leader_of(found)
        return self._leader


PARTITION: Final = 0
CHANNEL: Final = "control log"
REPLICAS_WANTED: Final = 3
_MUST_BE: Final[tuple[str, ...]] = ("cleanup.policy", "message.timestamp.type")
"""Settings without which two readers of the log may see different things."""


class ControlLogUnusable(Mm2Error):
    """The target has no control log by which workers can agree, until an operator repairs it."""


class ControlLogMissing(Mm2Error):
    """There is no such topic, and this worker only reads."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"There is no {topic}: no worker of this group has run yet.", remedy="")


class ControlTopic:
    """The topic on one target cluster."""

    def __init__(
        self,
        brokers: Brokers,
        topic: InternalTopic,
        *,
        replication_factor: int | None,
        log: FilteringBoundLogger,
    ) -> None:
        """``replication_factor`` None: no topic is created, and settings are not checked."""
        self.name = str(topic.name)
        self._topic = topic
        self._brokers = brokers
        self._replication_factor = replication_factor
        self._log = log
        self._said: set[str] = set()

    @property
    def rights(self) -> str:
        if self._replication_factor is None:
            return f"mm2py needs DESCRIBE and READ on {self.name}."
        return f"mm2py needs CREATE, DESCRIBE, DESCRIBE_CONFIGS, READ and WRITE on {self.name}."

    @property
    def limits(self) -> str:
        settings = _listed({key: self._topic.configs[key] for key in (*_MUST_BE, "max.message.bytes")})
        return f"Set {settings} on {self.name}."

    async def ensure(self) -> TopicMetadata:
        """Return the topic with a leader. Create the topic if there is none.

        Raises:
            ControlLogUnusable: it cannot be created, or is no control log.
            ControlLogMissing: it does not exist, and we only read.
            BrokerRefused: it has no leader yet, or the target cannot answer now: call it again.
            KafkaError: as ``Brokers.send``.
        """
        metadata = await fetch_metadata(self._brokers, [self.name], channel=CHANNEL)
        found = metadata.topics.get(self.name)
        if found is None or found.error_code == UNKNOWN_TOPIC_OR_PARTITION:
            if self._replication_factor is None:
                raise ControlLogMissing(self.name)
            found = await self._make(replicas_on(len(metadata.brokers), self._replication_factor))
        leader_of(found)
        if len(found.partitions) != 1:
            raise ControlLogUnusable(
                f"{self.name} has {len(found.partitions)} partitions: workers would not see the same order.",
                remedy="Stop all workers and delete the topic, and mm2py creates it again; or set another mm2py.group.",
            )
        if self._replication_factor is None:
            return found
        await self._check_settings()
        await self._look_at_replicas(metadata)
        return found

    async def _make(self, factor: int) -> TopicMetadata:
        try:
            return await internal_topic.find_or_make(
                self._brokers,
                with_min_in_sync(self._topic, factor),
                factor,
                setting="internal.topics.replication.factor",
                made=lambda: self._log.info("control_log.created", topic=self.name, replicas=factor),
                channel=CHANNEL,
            )
        except internal_topic.TopicNotMade as error:
            if error.code == INVALID_REPLICATION_FACTOR and isinstance(
                self._replication_factor, AtMost
            ):  # a broker has just gone
                raise BrokerRefused(f"Waiting for {self.name}", LEADER_NOT_AVAILABLE) from error
            raise ControlLogUnusable(
                f"The control log cannot be created: {error.what}", remedy=f"{self.rights} {error.remedy}"
            ) from error

    async def _check_settings(self) -> None:
        try:
            has = await internal_topic.read_settings(self._brokers, self._topic, must_be=_MUST_BE, channel=CHANNEL)
        except internal_topic.TopicUnsuitable as error:
            raise ControlLogUnusable(
                f"{self.name} has {_listed(error.wrong)}: its readers would not all see the same records and times.",
                remedy=self._by_hand(error.wrong),
            ) from error
        if isinstance(has, BrokerRefused):
            if has.reaction is not Reaction.DENIED:
                raise has
            self._say_once("control_log.settings_unknown", topic=self.name, why=has.what, remedy=self.rights)
            return  # the most important setting shows in every batch: whether its time is that of the append
        weak = {
            key: value
            for key, value in has.items()
            if (key == "unclean.leader.election.enable" and value != "false")
            or (key == "retention.ms" and value is not None and 0 <= int(value) < int(self._topic.configs[key]))
            or (key == "retention.bytes" and value != "-1")
            or (key == "max.message.bytes" and value is not None and int(value) < int(self._topic.configs[key]))
        }
        if weak:
            self._say_once(
                "control_log.weak_settings", topic=self.name, settings=_listed(weak), remedy=self._by_hand(weak)
            )

    async def _look_at_replicas(self, metadata: ClusterMetadata) -> None:
        count = (await admin.replica_counts(self._brokers, [self.name], channel=CHANNEL)).get(self.name)
        if count is not None and count < REPLICAS_WANTED:
            several = len(metadata.brokers) >= REPLICAS_WANTED
            self._say_once(
                "control_log.few_replicas",
                topic=self.name,
                replicas=count,
                effect="no worker takes over from another while brokers that hold it are away",
                remedy=f"Reassign it to {REPLICAS_WANTED} brokers and set min.insync.replicas=2."
                if several
                else f"The target has {len(metadata.brokers)} broker(s): nothing can be done before it has three.",
            )

    def _by_hand(self, wrong: Mapping[str, str | None]) -> str:
        wanted = ",".join(f"{key}={self._topic.configs[key]}" for key in wrong)
        return f"Set {wanted} on it (kafka-configs.sh --alter --topic {self.name} --add-config {wanted})."

    def _say_once(self, event: str, **what: object) -> None:
        if event not in self._said:
            self._said.add(event)
            self._log.warning(event, **what)


def with_min_in_sync(topic: InternalTopic, replicas: int) -> InternalTopic:
    """Return a control log with the min.insync.replicas that it is created with on this many replicas."""
    in_sync = "2" if replicas >= REPLICAS_WANTED else "1"
    return replace(topic, configs={**topic.configs, "min.insync.replicas": in_sync})


def leader_of(topic: TopicMetadata) -> tuple[BrokerId, int]:
    """Return the broker that leads the log, and its leader epoch.

    Raises:
        BrokerRefused: no broker leads it, or the cluster does not let us know.
    """
    part = topic.partitions.get(PARTITION)
    if topic.error_code or part is None or part.leader is None:
        code = topic.error_code or (part.error_code if part is not None else 0) or LEADER_NOT_AVAILABLE
        raise BrokerRefused(f"Finding the leader of {topic.name}", code)
    return part.leader, part.leader_epoch


def _listed(settings: Mapping[str, str | None]) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.items())
