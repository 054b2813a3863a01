"""The leader of the control log's one partition: who it is, what it is asked, and what its answers tell of the log.

Answers to the Fetcher and Sender of Apache Kafka's clients, for one partition. Each request is sent once; what an
answer says of another log than the one that was read (H7) is said by ControlLogLost, everything else by the broker's
error.
"""

from __future__ import annotations

import uuid
from typing import Final

from mm2py.clock import Clock
from mm2py.errors import Mm2Error
from mm2py.group.log.batches import Place, Read, unpack
from mm2py.group.log.topic import CHANNEL, PARTITION, ControlLogUnusable, leader_of
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata
from mm2py.kafka.error_codes import OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.list_offsets import EARLIEST, LATEST, end_of
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
from mm2py.kafka.retry import Reaction, reaction_to

READ_BYTES: Final = 1 << 20
READ_BYTES_MOST: Final = 64 << 20
BULK_BYTES: Final = 64 << 10
"""What is larger has a connection of its own, so that no beat waits behind it."""
MISSING_S: Final = 5.0
"""A topic that no broker names for so long was deleted."""
DAMAGED_READS_MOST: Final = 4


class ControlLogLost(Mm2Error):
    """The log that was read is not there any more: what was concluded from it holds no longer, join anew."""

    def __init__(self, topic: str, why: str) -> None:
        super().__init__(
            f"{topic} is another log than before: {why}.",
            remedy="Its workers join anew by themselves; records are safe. Find out what the target cluster has lost.",
        )


def no_append_time(topic: str) -> ControlLogUnusable:
    """Return what to raise when a record's time is its writer's: nobody can be called silent by that."""
    return ControlLogUnusable(
        f"{topic} does not have message.timestamp.type=LogAppendTime any more: silence cannot be judged.",
        remedy=f"Set it again: kafka-configs.sh --alter --topic {topic} --add-config"
        " message.timestamp.type=LogAppendTime.",
    )


class ControlLeader:
    """Of one life of the topic. ``fetch`` is for one task, ``append`` for any number."""

    def __init__(self, brokers: Brokers, found: TopicMetadata, *, rights: str, clock: Clock) -> None:
        """Make one.

        Args:
            found: fresh, with a leader.
            rights: what to tell an operator when one is missing.
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
        """Ask the cluster who leads before the next request."""
        self._leader = None

    async def ends(self) -> tuple[int, int]:
        """Return the log start and where the log ends. Raises: as ``fetch``."""
        leader, epoch = await self._who_leads()
        key = (self.topic, PARTITION)
        first = await end_of(self._brokers, leader, key, EARLIEST, leader_epoch=epoch)
        return first, await end_of(self._brokers, leader, key, LATEST, leader_epoch=epoch)

    async def fetch(self, place: Place, *, wait_ms: int, was_read: bool) -> tuple[list[Read], Place]:
        """Read once from a place on, and return the place behind that.

        Args:
            was_read: up to there this log was read; else it is a guess where records stand.
        Raises:
            ControlLogLost: it is another log than the one that was read.
            ControlLogUnusable: it came damaged several times in a row.
            KafkaError: as ``Brokers.send``, or the broker's own.
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
            read_to: up to where the log was read: it ends there or later.
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

    def _came_damaged(self, place: Place, fault: str) -> None:
        """Count a read that brought nothing whole. What comes damaged may come whole the next time."""
        if not fault:
            self._fetch_bytes = min(2 * self._fetch_bytes, READ_BYTES_MOST)  # its first batch was cut
            return
        self._damaged += 1
        if self._damaged >= DAMAGED_READS_MOST:
            raise ControlLogUnusable(
                f"{self.topic} cannot be read at offset {place.offset}: {fault}.",
                remedy="Look at it with kafka-dump-log.sh. If the disk is at fault, stop all workers and delete the"
                " topic: mm2py makes it anew.",
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
                raise ControlLogLost(self.topic, "the topic was deleted and made anew")
            self._leader = leader_of(found)
        return self._leader
