"""Topics that mm2py keeps for itself on a cluster: finds or creates them, and writes to them.

An existing topic with settings under which it would lose records is refused. ``mm2py/topics/names.py`` has the names
and settings.

``TopicWriter`` writes records under one producer id, that of a flow or a plain one. One batch of a partition is in
flight at a time and is sent again under the same sequence until it is acknowledged, so records of a partition keep
their order.

Counterpart: TopicAdmin of Kafka Connect and MirrorUtils.createCompactedTopic of its mirror.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from mm2py.errors import FirstErrorGroup, Mm2Error
from mm2py.kafka import admin
from mm2py.kafka.admin import NewTopic
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata
from mm2py.kafka.error_codes import (
    FENCED,
    INVALID_REPLICATION_FACTOR,
    INVALID_TIMESTAMP,
    LEADER_NOT_AVAILABLE,
    PRODUCER_STATE_LOST,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
    name_of,
)
from mm2py.kafka.errors import Backoff, BrokerRefused, KafkaError, Reaction, reaction_to
from mm2py.kafka.port import BrokerId, Brokers, PartitionProduce, ProduceRequest, ProducerIdentity, TopicProduce
from mm2py.kafka.producer.incarnation import Incarnation, IncarnationFenced, OwnProducer
from mm2py.records.batch import NewRecord, build_batch, next_sequence, stamp
from mm2py.topics.names import InternalTopic
from mm2py.topics.replicas import AtMost, replicas_on

CLEANUP: Final = ("cleanup.policy",)
LEADER_PAUSES_S: Final = (0.005, 0.01, 0.02, 0.04)
"""A new topic has its leaders some milliseconds after the answer. A start makes several, one after the other."""
Settings = Mapping[str, str | None]


class TopicNotMade(BrokerRefused):
    """The cluster refuses to make an internal topic, and asking again changes nothing."""

    def __init__(self, topic: InternalTopic, setting: str, refusal: BrokerRefused) -> None:
        by_hand = ", ".join(f"{key}={value}" for key, value in topic.configs.items())
        KafkaError.__init__(
            self,
            refusal.what,
            remedy=f"Set {setting} to what the cluster can hold (internal.topics.replication.factor counts for all such"
            f" topics), grant CREATE on {topic.name}, or create it by hand with {topic.partitions} partition(s) and"
            f" {by_hand}.",
        )
        self.code, self.reaction, self.retriable = refusal.code, refusal.reaction, False


class TopicUnsuitable(Mm2Error):
    """An internal topic exists, but with settings under which it would lose records."""

    def __init__(self, topic: InternalTopic, wrong: Settings) -> None:
        self.why = f"its {' and its '.join(f'{key} is {value}' for key, value in wrong.items())}"
        self.wrong = wrong
        has = ", ".join(f"{key}={value}" for key, value in wrong.items())
        wanted = ", ".join(f"{key}={topic.configs[key]}" for key in wrong)
        super().__init__(f"{topic.name} would lose records: it has {has}.", remedy=f"Set {wanted} on it.")


async def find_or_make(
    brokers: Brokers,
    topic: InternalTopic,
    replication_factor: int,
    *,
    setting: str,
    made: Callable[[], None] = lambda: None,
    channel: str = "control",
) -> TopicMetadata:
    """Return an internal topic whose partitions all have leaders; create it if there is none.

    Args:
        replication_factor: for a topic that has to be created; -1 leaves it to the cluster. See ``AtMost``.
        setting: the name of the setting for ``replication_factor``, for an error.
        made: is called when this call has created the topic.
    Raises:
        TopicNotMade: it cannot be created.
        BrokerRefused: it has no leader yet, or the cluster does not say: ask again if the error is ``retriable``.
        KafkaError: as ``Brokers.send``.
    """
    name = str(topic.name)

    async def find() -> tuple[TopicMetadata | None, int]:
        metadata = await fetch_metadata(brokers, [name], channel=channel)
        found = metadata.topics.get(name)
        is_missing = found is None or found.error_code == UNKNOWN_TOPIC_OR_PARTITION
        return None if is_missing else found, len(metadata.brokers)

    found, brokers_there = await find()
    if found is None:
        factor = replicas_on(brokers_there, replication_factor)
        new = NewTopic(name, topic.partitions, factor, topic.configs)
        refusal = (await admin.create_topics(brokers, [new]))[name]
        if refusal is None:
            made()
        elif refusal.code == INVALID_REPLICATION_FACTOR and isinstance(replication_factor, AtMost):
            raise BrokerRefused(f"Waiting for {name}", LEADER_NOT_AVAILABLE)  # a broker has just gone
        elif refusal.code != TOPIC_ALREADY_EXISTS:
            raise refusal if refusal.retriable else TopicNotMade(topic, f"{setting} ({factor})", refusal)
        for pause_s in LEADER_PAUSES_S:
            await asyncio.sleep(pause_s)
            found, _ = await find()
            if found is not None and _is_ready(found):
                return found
        raise BrokerRefused(f"Waiting for {name}", LEADER_NOT_AVAILABLE)
    if not _is_ready(found):
        code = found.error_code or LEADER_NOT_AVAILABLE
        raise BrokerRefused(f"Finding the leaders of {name}", code, remedy=f"mm2py needs DESCRIBE on {name}.")
    return found


def _is_ready(found: TopicMetadata) -> bool:
    """Whether every partition has a leader. With an error the broker may name no partitions at all."""
    return not found.error_code and all(part.leader is not None for part in found.partitions.values())


async def read_settings(
    brokers: Brokers, topic: InternalTopic, *, must_be: Sequence[str] = CLEANUP, channel: str = "control"
) -> Settings | BrokerRefused:
    """Return the values that a topic has for the settings it is created with, or why they cannot be read.

    Args:
        must_be: the settings whose values must be those that the topic is created with.
    Raises:
        TopicUnsuitable: one of them has another value.
        KafkaError: as ``Brokers.send``.
    """
    name = str(topic.name)
    found = (await admin.describe_topic_configs(brokers, [name], keys=list(topic.configs), channel=channel))[name]
    if isinstance(found, BrokerRefused):
        return found
    has = {entry.name: entry.value for entry in found}
    wrong = {key: has[key] for key in must_be if key in has and has[key] != topic.configs[key]}
    if wrong:
        raise TopicUnsuitable(topic, wrong)
    return has


BATCH_RECORDS: Final = 500
BATCH_BYTES: Final = 256 * 1024
"""A batch ends with the record that brings it to this many bytes or records: well below any broker's default
``max.message.bytes``."""
CLOCK_REMEDY: Final = (
    "The clocks of this machine and of the target's brokers differ by more than the topic takes"
    " (message.timestamp.after.max.ms, an hour by default): set them right."
)


class TopicWriter:
    """Appends records to partitions of one topic; ``write`` returns when all are acknowledged."""

    def __init__(
        self,
        brokers: Brokers,
        topic: str,
        incarnation: Incarnation | OwnProducer,
        *,
        rng: random.Random,
        timeout_ms: int,
        remedy: str | None = None,
        channel: str = "positions",
        waits_for_topic: bool = True,
    ) -> None:
        """Make a writer; no request is sent yet.

        Args:
            incarnation: records are written under its first producer id.
            remedy: what an operator can do when the target refuses for good.
            waits_for_topic: whether a write waits for a topic that was deleted; else it raises ``BrokerRefused``.
        """
        self.topic = topic
        self.is_missing = False
        """The last metadata had no such topic: a write waits until it is back."""
        self.times_recreated = 0
        """How often it was deleted and created again: what was written before is gone."""
        self.trouble: dict[int, str] = {}
        """By partition, why the last attempt to write failed; a success removes it."""
        self._topic_id: uuid.UUID | None = None
        self._brokers = brokers
        self._incarnation = incarnation
        self._rng = rng
        self._timeout_ms = timeout_ms
        self._remedy = remedy or f"mm2py needs WRITE on {topic}."
        self._channel = channel
        self._waits_for_topic = waits_for_topic
        self._leaders: dict[int, BrokerId | None] = {}
        self._sequences: dict[int, tuple[ProducerIdentity, int]] = {}
        self._locks: dict[int, asyncio.Lock] = {}
        self._left: dict[int, Sequence[NewRecord]] = {}
        """Records of a write that was cancelled or not answered. They may be stored, so the next write sends them again
        first."""

    async def write(self, records: Mapping[int, Sequence[NewRecord]]) -> None:
        """Append records to their partitions; keeps trying while the target cannot take them.

        Raises:
            IncarnationFenced: another process has taken over; nothing more may be written.
            BrokerRefused: the target refuses for good; records of other partitions may have been written.
        Cancelling may leave any of them written or not. The next write first sends again what was in flight.
        """
        async with FirstErrorGroup() as tasks:
            for partition, ours in records.items():
                tasks.create_task(self._write_partition(partition, ours), name=f"{self.topic}-{partition} write")

    async def _write_partition(self, partition: int, records: Sequence[NewRecord]) -> None:
        async with self._locks.setdefault(partition, asyncio.Lock()):
            left = self._left.get(partition)
            for chunk in [*([] if left is None else [left]), *_batches(records)]:
                try:
                    await self._write_batch(partition, chunk)
                except asyncio.CancelledError:
                    self._left[partition] = chunk
                    raise

    async def _write_batch(self, partition: int, records: Sequence[NewRecord]) -> None:
        batch = build_batch(records)
        backoff = Backoff(self._rng, most_s=2.0)
        outcome_unknown = False
        while True:
            identity, sequence = self._sequences.get(partition, (self._incarnation.identity, 0))
            stamp(batch, identity.producer_id, identity.epoch, sequence)
            code, text = await self._send(partition, batch)
            if code == 0:
                self.trouble.pop(partition, None)
                self._left.pop(partition, None)
                self._sequences[partition] = (identity, next_sequence(sequence, len(records)))
                return
            if code is not None:
                self.trouble[partition] = f"the target answers {name_of(code)} ({code})"
            outcome_unknown |= code is None and not self.is_missing  # it may be stored, and its sequence be taken
            if outcome_unknown:
                self._left[partition] = records
            if code is None and self.is_missing and not (self._waits_for_topic or outcome_unknown):
                raise BrokerRefused(
                    f"Writing to {self.topic}-{partition}", UNKNOWN_TOPIC_OR_PARTITION, remedy=self._remedy
                )
            if code in FENCED:
                raise IncarnationFenced(identity.transactional_id)
            if code in PRODUCER_STATE_LOST:
                self._sequences[partition] = (await self._incarnation.renew(identity), 0)
            elif code is not None and reaction_to(code) in {Reaction.FAIL, Reaction.DENIED}:
                raise BrokerRefused(
                    f"Writing to {self.topic}-{partition}",
                    code,
                    message=text,
                    remedy=CLOCK_REMEDY if code == INVALID_TIMESTAMP else self._remedy,
                )
            await asyncio.sleep(backoff.next_s())

    async def _send(self, partition: int, batch: bytearray) -> tuple[int | None, str | None]:
        """Return the answer's code and message; None when there was no answer."""
        try:
            leader = self._leaders.get(partition)
            if leader is None:
                metadata = await fetch_metadata(self._brokers, [self.topic])
                topic = metadata.topics.get(self.topic)
                self._leaders = {} if topic is None else {no: part.leader for no, part in topic.partitions.items()}
                self.is_missing = topic is None or topic.error_code == UNKNOWN_TOPIC_OR_PARTITION
                if topic is not None and topic.topic_id is not None and not topic.error_code:
                    self.times_recreated += self._topic_id not in {None, topic.topic_id}
                    self._topic_id = topic.topic_id
                leader = self._leaders.get(partition)
                if leader is None:
                    self.trouble[partition] = "it has no leader"
                    return None, None
            request = ProduceRequest(
                [TopicProduce(self.topic, None, [PartitionProduce(partition, batch)])], timeout_ms=self._timeout_ms
            )
            reply = await self._brokers.send(leader, request, channel=self._channel)
        except KafkaError as error:
            if not error.retriable:
                raise
            self._leaders.pop(partition, None)
            self.trouble[partition] = str(error)
            return None, None
        answer = reply.partitions[0]
        if answer.error_code and reaction_to(answer.error_code) is Reaction.REFRESH:
            self._leaders.pop(partition, None)
        return answer.error_code, answer.error_message


def _batches(records: Sequence[NewRecord]) -> Iterator[Sequence[NewRecord]]:
    first = size = 0
    for at, record in enumerate(records, 1):
        size += len(record.key or b"") + len(record.value or b"")
        if size >= BATCH_BYTES or at - first == BATCH_RECORDS:
            yield records[first:at]
            first, size = at, 0
    if first < len(records):
        yield records[first:]


async def open_writer(
    brokers: Brokers,
    topic: InternalTopic,
    replication_factor: int,
    *,
    setting: str,
    made: Callable[[], None],
    rng: random.Random,
    timeout_ms: int,
    channel: str,
) -> TopicWriter:
    """Return a writer under a plain producer id of its own, for a topic that is created if there is none.

    A successor cannot fence such a writer. Use it only for records that do no harm when they are written late.

    Raises: as ``find_or_make``.
    """
    await find_or_make(brokers, topic, replication_factor, setting=setting, made=made)
    producer = OwnProducer(brokers, None, rng=rng)
    await producer.ask()
    return TopicWriter(
        brokers, str(topic.name), producer, rng=rng, timeout_ms=timeout_ms, channel=channel, waits_for_topic=False
    )
