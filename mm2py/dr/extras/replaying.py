"""Replays extra records to the new side's topics of the same name: in order, each exactly once, also after a kill.

It is for flows that keep names. (With other names the flow itself copies them when it is turned on again.) Nothing is
remembered record by record: the log of the new side tells. All records are written under one transactional id of the
pair of clusters, without transactions: so readers see no aborted repeats. Each call

1. fences what an earlier call may still send, and reads the proof of it in each partition;
2. counts by their sequences how many records of each partition are there already, from where the new side ended before
   the first one (which the journal remembers);
3. writes the rest.

The producer id says later which records the flow back leaves out (``copying/reading/left_out.py``).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from mm2py.clock import Clock
from mm2py.copying.reading.log_reader import LogReader, LogStretch
from mm2py.copying.recovery import fence_and_prove
from mm2py.dr.cutover.pair import RecoveryPair
from mm2py.dr.extras.extras_inquiry import CHANNEL, ExtrasInquiry, NoLeader
from mm2py.dr.extras.found import PartitionExtras
from mm2py.errors import Mm2Error
from mm2py.flow import Flow
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata, until_answered
from mm2py.kafka.internal_topic import BATCH_BYTES, BATCH_RECORDS, TopicWriter
from mm2py.kafka.list_offsets import LATEST, find_offsets
from mm2py.kafka.port import FetchedPartition, ProducerIdentity, TopicPartition
from mm2py.kafka.producer.fencing import PreviousProducer
from mm2py.kafka.producer.incarnation import OwnProducer
from mm2py.kafka.write_gate import gated_alone
from mm2py.records.batch import NewRecord, read_header, split
from mm2py.records.varints import CorruptBatch

TIMEOUT_MS: Final = 15_000
PATIENCE_S: Final = 10.0
"""How long a read may bring nothing new: a damaged batch is read again."""


class ReplayRefused(Mm2Error):
    """Records cannot be replayed, or not now."""


def replay_id(flow: Flow) -> str:
    """Return the transactional id under which extras of a pair of clusters are written."""
    first, second = sorted((flow.source, flow.target))
    return f"mm2py-dr.{first}.{second}.extras"


class _OneEpoch:
    """A producer that never goes on under another epoch: a batch whose outcome is not known must not be sent as new."""

    def __init__(self, identity: ProducerIdentity) -> None:
        self.identity = identity

    async def renew(self, seen: ProducerIdentity) -> ProducerIdentity:
        raise ReplayRefused(
            f"The new side has forgotten what producer {seen.producer_id} has written.",
            remedy="Call the same verb again: it counts what is there, and goes on behind it.",
        )


class ExtrasReplay:
    """The replay of one run."""

    def __init__(self, pair: RecoveryPair, flow: Flow, inquiry: ExtrasInquiry) -> None:
        self._flow = flow
        self._inquiry = inquiry
        self._clock: Clock = pair.clock
        self._rng: random.Random = pair.rng
        self._target = gated_alone(pair.brokers[flow.target], pair.clock)
        self._id = replay_id(flow)

    async def ends(self, topics: Sequence[str]) -> dict[str, int]:
        """Return where the partitions end on the new side. Raises: ReplayRefused, a topic is not there; NoLeader."""
        there = await self._topics(topics)
        leaders = {(name, n): part.leader for name, topic in there.items() for n, part in topic.partitions.items()}
        found = await find_offsets(self._target, leaders, LATEST)
        for key in leaders:
            if key not in found:
                raise NoLeader(self._flow.target, key)
        return {f"{name}-{number}": end for (name, number), end in sorted(found.items())}

    async def producer_id(self) -> int:
        """Return the id under which records will be written. It may be asked for again and again."""
        return (await self._ask()).producer_id

    async def run(
        self,
        parts: Sequence[PartitionExtras],
        begins: Mapping[str, int],
        producers: Sequence[int],
        say: Callable[[str], None],
    ) -> None:
        """Replay what is not there yet.

        Args:
            begins: where partitions of the new side ended before the first record was replayed, as ``orders-0``.
            producers: all ids under which records of this run may have been written; ``producer_id`` is the last one.
        Raises:
            ReplayRefused: nothing was written, or the outcome of the last request is not known.
            KafkaError: the new side refuses a record, or does not answer. IncarnationFenced: another call has begun.
        Cancelling leaves what was written: the next call counts it.
        """
        there = await self._topics(sorted({one.topic for one in parts}))
        for one in parts:
            if one.number not in there[one.topic].partitions:
                raise ReplayRefused(
                    f"{one.topic} on {self._flow.target} has no partition {one.number}.",
                    remedy="Add it, or export these records, or leave them.",
                )
        identity = await self._ask()
        if identity.producer_id not in producers:
            raise ReplayRefused(
                f"{self._flow.target} has given another producer id for {self._id}.", remedy="Call the same verb again."
            )
        await self._fence(identity, parts, there)
        identity = await self._ask()  # the fence has raised the epoch
        written = await self._written(parts, begins, producers, there)
        for topic in sorted({one.topic for one in parts}):
            writer = TopicWriter(
                self._target,
                topic,
                _OneEpoch(identity),  # type: ignore[arg-type]
                rng=self._rng,
                timeout_ms=TIMEOUT_MS,
                remedy=f"mm2py dr needs WRITE on {topic}. Or export these records, or leave them.",
                channel=CHANNEL,
                waits_for_topic=False,
            )
            for one in parts:
                if one.topic == topic:
                    before = written[one.partition]
                    await self._write(one, before, writer)
                    say(f"replayed {one.partition}: {one.records:,} record(s), {before:,} of them before")

    async def _write(self, part: PartitionExtras, written: int, writer: TopicWriter) -> None:
        """Write the records of a partition behind the first ``written`` ones."""
        at, size, some = 0, 0, list[NewRecord]()
        async for record in self._inquiry.records(part):
            at += 1
            if at <= written:
                continue
            some.append(NewRecord(record.key, record.value, record.timestamp_ms, record.headers))
            size += len(record.key or b"") + len(record.value or b"")
            if len(some) == BATCH_RECORDS or size >= BATCH_BYTES:
                await writer.write({part.number: some})
                size, some = 0, []
        if some:
            await writer.write({part.number: some})
        if at != part.records or written > at:
            raise ReplayRefused(
                f"{part.partition} was listed with {part.records:,} record(s), and has {at:,};"
                f" {written:,} were replayed before.",
                remedy=f"Find out who writes to {self._flow.source}, and call the same verb again.",
            )

    async def _ask(self) -> ProducerIdentity:
        return await until_answered(OwnProducer(self._target, self._id, rng=self._rng).ask, rng=self._rng)

    async def _fence(
        self, identity: ProducerIdentity, parts: Sequence[PartitionExtras], there: dict[str, TopicMetadata]
    ) -> None:
        """Shut out what earlier calls may still send."""
        topics = [
            replace(topic, partitions={n: p for n, p in topic.partitions.items() if (name, n) in _keys(parts)})
            for name, topic in there.items()
        ]
        previous = PreviousProducer(self._target, self._id, identity.producer_id, identity.epoch, rng=self._rng)
        await until_answered(
            lambda: fence_and_prove(self._target, previous, topics, clock=self._clock, rng=self._rng), rng=self._rng
        )

    async def _written(
        self,
        parts: Sequence[PartitionExtras],
        begins: Mapping[str, int],
        producers: Sequence[int],
        there: dict[str, TopicMetadata],
    ) -> dict[str, int]:
        """Return how many records of each partition are there. Raises: ReplayRefused, a partition cannot be read."""
        ends = await self.ends(list(there))
        stretches = {
            one.partition: _ReplayedStretch(
                there[one.topic], one.number, begins[one.partition], ends[one.partition], producers, self._clock
            )
            for one in parts
        }
        reader = LogReader(self._target, read_committed=False, rng=self._rng, channel=CHANNEL)
        await reader.read([one for one in stretches.values() if one.offset < one.end], lambda _: None)
        for name, one in stretches.items():
            if one.offset < one.end:
                raise ReplayRefused(
                    f"{name} on {self._flow.target} cannot be read from {one.offset:,} on, so it is not known what was"
                    " replayed before.",
                    remedy="Look at it with kafka-dump-log.sh. Export these records, or leave them.",
                )
        return {name: one.count for name, one in stretches.items()}

    async def _topics(self, names: Sequence[str]) -> dict[str, TopicMetadata]:
        found = (await until_answered(lambda: fetch_metadata(self._target, list(names)), rng=self._rng)).topics
        for name in names:
            if name not in found or found[name].error_code:
                raise ReplayRefused(
                    f"{self._flow.target} has no topic {name}, or does not show it.",
                    remedy="Create it, or export these records, or leave them.",
                )
        return {name: found[name] for name in names}


class _ReplayedStretch(LogStretch):
    """Counts the records of some producers in a part of a log, by their sequences: the cleaner may remove records."""

    def __init__(
        self, topic: TopicMetadata, partition: int, offset: int, end: int, producers: Sequence[int], clock: Clock
    ) -> None:
        super().__init__(topic.name, topic.topic_id, partition, clock)
        self.end = end
        self._offset = self._before = offset
        self._producers = frozenset(producers)
        self._sequences: dict[tuple[int, int], int] = {}
        """By producer id and epoch, the sequence after the last one. Each epoch begins at 0."""

    @property
    def offset(self) -> int:
        return self._offset

    @property
    def count(self) -> int:
        """How many records they have written."""
        return sum(self._sequences.values())

    def decode(self, fetched: FetchedPartition) -> None:
        try:
            for batch in split(fetched.records):
                header = read_header(batch)
                if header.next_offset <= self._offset:
                    continue
                self._offset = header.next_offset
                if header.producer_id in self._producers and not header.is_control:
                    key = header.producer_id, header.producer_epoch
                    after = header.base_sequence + header.last_offset_delta + 1
                    self._sequences[key] = max(after, self._sequences.get(key, 0))
        except CorruptBatch:
            return  # it is read again

    def take(self, fetched: FetchedPartition) -> bool:
        if fetched.error_code and fetched.log_start_offset > self._offset:
            self._offset = fetched.log_start_offset
        elif fetched.error_code:
            return True
        if self._offset > self._before:
            self._before, self._give_up_at_s = self._offset, float("inf")
        return self._offset >= self.end or not self._is_patient(PATIENCE_S)


def _keys(parts: Sequence[PartitionExtras]) -> set[TopicPartition]:
    return {(one.topic, one.number) for one in parts}
