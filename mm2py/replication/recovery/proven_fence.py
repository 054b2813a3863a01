"""Shuts an earlier producer out of topics, and reads its markers back: only they prove it (C3 of docs/broker-facts.md).

For topics of our own, before what stands there is believed; remote partitions are proven one by one as their tails are
read. MirrorMaker 2 trusts in the coordinator's answer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from mm2py.clock import Clock
from mm2py.kafka.cluster import TopicMetadata
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.list_offsets import LATEST, list_offsets
from mm2py.kafka.port import Brokers
from mm2py.kafka.producer.fencing import EarlierProducer, Key
from mm2py.replication.reading.log_reader import LogReader
from mm2py.replication.recovery.tail import Tail, Writer
from mm2py.replication.recovery.tail_stretch import TailStretch


async def shut_out(
    brokers: Brokers,
    producer: EarlierProducer,
    topics: Sequence[TopicMetadata],
    *,
    clock: Clock,
    rng: random.Random,
) -> int:
    """Shut a producer out of all partitions of topics; returns the epoch of the fence when that is proven.

    Args:
        topics: fresh metadata; partitions without a leader are left out.
    Returns:
        The highest epoch that markers were asked for with: whoever fences the producer elsewhere goes on with it.
    Raises:
        NotFenceable: it cannot be shut out.
        KafkaError: retriable ones; ask again.
    Cancelling loses nothing: markers may have been written that nobody has read.
    """
    metadata = {topic.name: topic for topic in topics}
    left = ends = await _ends(brokers, topics)
    writer = Writer(producer.producer_id, producer.epoch, 0)
    while True:  # once more if a partition's leader was away, and its marker was left out (C3)
        epoch = await producer.shut_out(list(left))
        stretches = [
            TailStretch(name, metadata[name].topic_id, number, Tail(end, writer, fence_epoch=epoch), clock)
            for (name, number), end in left.items()
        ]
        await LogReader(brokers, read_committed=False, rng=rng, channel="reconcile").read(stretches, lambda _: None)
        left = {part.key: ends[part.key] for part in stretches if not part.tail.is_whole}
        if not left:
            return epoch


async def _ends(brokers: Brokers, topics: Sequence[TopicMetadata]) -> dict[Key, int]:
    leaders = {(topic.name, number): part.leader for topic in topics for number, part in topic.partitions.items()}
    answers = await list_offsets(brokers, leaders, LATEST)
    for (name, number), answer in answers.items():
        if answer.error_code:
            raise BrokerRefused(f"Finding the end of {name}-{number}", answer.error_code)
    return {key: answer.offset for key, answer in answers.items()}
