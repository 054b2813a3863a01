"""Where the copies of a flow end in its remote partitions, if the producer that wrote them was killed.

A worker that drains stores where its copies end. One that is killed leaves a position that is up to a second old, and
batches behind it. So the producer is fenced in these partitions, and what it has written is read up to the marker, as
the next owner of the partition would do (``copying/recovery.py``).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mm2py.clock import Clock
from mm2py.copying.reading.log_reader import LogReader
from mm2py.copying.recovery import LastWriter, Tail, TailStretch, fence_and_prove
from mm2py.kafka.cluster import TopicMetadata, until_answered
from mm2py.kafka.port import Brokers, TopicPartition
from mm2py.kafka.producer.fencing import PreviousProducer
from mm2py.records.source_offset import BY_OPERATOR, StoredPosition


async def with_tails(
    positions: Mapping[TopicPartition, StoredPosition],
    topics: Mapping[str, TopicMetadata],
    brokers: Brokers,
    *,
    clock: Clock,
    rng: random.Random,
) -> dict[TopicPartition, StoredPosition]:
    """Return these positions with the target offset at which the copies really end.

    Args, raises: see ``open_tails``.
    """
    tails = await open_tails(positions, topics, brokers, clock=clock, rng=rng)
    return {key: replace(at, next_target=end_of(tails[key])) if key in tails else at for key, at in positions.items()}


async def open_tails(
    positions: Mapping[TopicPartition, StoredPosition],
    topics: Mapping[str, TopicMetadata],
    brokers: Brokers,
    *,
    clock: Clock,
    rng: random.Random,
) -> dict[TopicPartition, Tail]:
    """Fence the producers that positions name and that have not drained, and return what they wrote behind these.

    Args:
        positions: by remote partition.
        topics: fresh metadata of the remote topics.
        brokers: of the target; it is written to, so nothing of the flow may run.
    Raises: NotFenceable; KafkaError, one that no retry mends.
    """
    open_: dict[tuple[int, int, str | None], dict[TopicPartition, StoredPosition]] = {}
    for key, at in positions.items():
        is_there = key[0] in topics and key[1] in topics[key[0]].partitions
        producer_id, epoch = at.producer_id, at.producer_epoch
        if producer_id is None or epoch is None or at.next_target is None or at.drained or at.by == BY_OPERATOR:
            continue
        if is_there:
            open_.setdefault((producer_id, epoch, at.producer_name), {})[key] = at
    found: dict[TopicPartition, Tail] = {}
    for (producer_id, epoch, name), some in open_.items():
        producer = PreviousProducer(brokers, name, producer_id, epoch, rng=rng)
        found |= await _read(producer, some, topics, brokers, clock=clock, rng=rng)
    return found


async def _read(
    producer: PreviousProducer,
    positions: Mapping[TopicPartition, StoredPosition],
    topics: Mapping[str, TopicMetadata],
    brokers: Brokers,
    *,
    clock: Clock,
    rng: random.Random,
) -> dict[TopicPartition, Tail]:
    """Fence one producer, and read what it has written behind its positions."""
    wanted: Sequence[TopicMetadata] = [
        replace(topics[name], partitions={n: p for n, p in topics[name].partitions.items() if (name, n) in positions})
        for name in sorted({name for name, _ in positions})
    ]
    fence_epoch = await until_answered(
        lambda: fence_and_prove(brokers, producer, wanted, clock=clock, rng=rng), rng=rng
    )
    stretches = [
        TailStretch(
            name,
            topics[name].topic_id,
            number,
            Tail(
                at.next_target or 0,
                LastWriter(producer.producer_id, producer.epoch, at.next_sequence or 0),
                fence_epoch=fence_epoch,
            ),
            clock,
        )
        for (name, number), at in positions.items()
    ]
    await LogReader(brokers, read_committed=False, rng=rng, channel="turn").read(stretches, lambda _: None)
    return {one.key: one.tail for one in stretches}


def end_of(tail: Tail) -> int | None:
    """Return where the copies end: behind the markers of fences, unless clients have written between; None: unknown."""
    if not tail.is_whole:
        return None
    return tail.record_end if tail.foreign else tail.next_offset
