"""Finds which offsets of which partitions are read, and cuts these ranges into tasks."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from mm2py.backfill.frames.options import EARLIEST, LATEST, ReadBound, ReadOptions
from mm2py.errors import ConfigError
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata
from mm2py.kafka.error_codes import LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.list_offsets import list_offsets
from mm2py.kafka.port import Brokers


@dataclass(frozen=True, slots=True)
class LogRange:
    """The offsets of one partition from ``start`` on and below ``end``."""

    topic: str
    topic_id: uuid.UUID | None
    partition: int
    start: int
    end: int


async def topic_of(brokers: Brokers, topic: str) -> TopicMetadata:
    """Return a topic that can be read.

    Raises:
        BrokerRefused: the topic does not exist, or a right is missing.
    """
    found = (await fetch_metadata(brokers, [topic])).topics.get(topic)
    code = UNKNOWN_TOPIC_OR_PARTITION if found is None else found.error_code
    if found is None or code:
        raise BrokerRefused(
            f"Reading {topic}", code, remedy=f"Check the name, and that mm2py has READ and DESCRIBE on {topic}."
        )
    return found


async def find_ranges(brokers: Brokers, options: ReadOptions) -> list[LogRange]:
    """Return the range of each wanted partition, ordered by number; empty ranges are left out.

    Raises:
        ConfigError: a named partition does not exist, or a range ends before it begins.
        BrokerRefused, KafkaError: a leader does not say where its log begins or ends.
    """
    topic = await topic_of(brokers, options.place.topic)
    numbers = wanted_partitions(topic, options)
    starts = await find_offsets(brokers, topic, numbers, options.starting, read_committed=options.read_committed)
    ends = await find_offsets(brokers, topic, numbers, options.ending, read_committed=options.read_committed)
    if options.ending.offsets:
        now = await find_offsets(brokers, topic, numbers, ReadBound(LATEST), read_committed=options.read_committed)
        for number in numbers:
            if ends[number] > now[number]:
                raise ConfigError(
                    f"{topic.name}-{number} has no offset {now[number]} yet, and was to be read up to {ends[number]}.",
                    remedy="Correct endingOffsets.",
                )
    backwards = [number for number in numbers if ends[number] < starts[number] and _is_explicit(options, number)]
    if backwards:
        number = backwards[0]
        raise ConfigError(
            f"Partition {number} of {topic.name} would end at {ends[number]}, before it begins at {starts[number]}.",
            remedy="Correct startingOffsets or endingOffsets.",
        )
    return [
        LogRange(topic.name, topic.topic_id, number, starts[number], ends[number])
        for number in numbers
        if starts[number] < ends[number]
    ]


def wanted_partitions(topic: TopicMetadata, options: ReadOptions) -> list[int]:
    """Return the partitions to be read, in order. Raises: ConfigError, one of them does not exist."""
    named = {*(options.partitions or ()), *options.starting.offsets, *options.ending.offsets}
    missing = sorted(named - topic.partitions.keys())
    if missing:
        raise ConfigError(
            f"{topic.name} has no partition {missing[0]}, but {len(topic.partitions)} of them.",
            remedy="Correct partitions, startingOffsets or endingOffsets.",
        )
    return sorted(topic.partitions if options.partitions is None else options.partitions)


async def find_offsets(
    brokers: Brokers, topic: TopicMetadata, numbers: Sequence[int], bound: ReadBound, *, read_committed: bool
) -> dict[int, int]:
    """Return where reading begins or ends, for each partition.

    Raises: BrokerRefused, KafkaError: a leader does not answer.
    """
    found = {number: bound.of(number) for number in numbers}
    if bound.timestamp_ms is not None:
        found = await _ask(brokers, topic, numbers, bound.timestamp_ms, read_committed=read_committed)
        found = {number: LATEST if offset < 0 else offset for number, offset in found.items()}  # no such record
    for special in (EARLIEST, LATEST):
        asked = [number for number, offset in found.items() if offset == special]
        found |= await _ask(brokers, topic, asked, special, read_committed=read_committed)
    return found


async def _ask(
    brokers: Brokers, topic: TopicMetadata, numbers: Sequence[int], when: int, *, read_committed: bool
) -> dict[int, int]:
    for number in numbers:
        if topic.partitions[number].leader is None:
            code = topic.partitions[number].error_code or LEADER_NOT_AVAILABLE
            raise BrokerRefused(f"Finding where {topic.name}-{number} begins or ends", code)
    leaders = {(topic.name, number): topic.partitions[number].leader for number in numbers}
    answers = await list_offsets(brokers, leaders, when, read_committed=read_committed)
    for (name, number), answer in answers.items():
        if answer.error_code:
            raise BrokerRefused(f"Finding where {name}-{number} begins or ends", answer.error_code)
    return {number: answers[topic.name, number].offset for number in numbers}


def _is_explicit(options: ReadOptions, number: int) -> bool:
    """Whether the user wrote both offsets; otherwise a range that ends before it begins counts as empty."""
    return options.starting.offsets.get(number, -1) >= 0 and options.ending.offsets.get(number, -1) >= 0


def cut(ranges: Sequence[LogRange], at_least: int) -> list[LogRange]:
    """Cut the longest ranges into equal parts, until there are about ``at_least`` ranges; their order is kept."""
    total = sum(one.end - one.start for one in ranges)
    if len(ranges) >= at_least or not total:
        return list(ranges)
    found: list[LogRange] = []
    for one in ranges:
        size = one.end - one.start
        parts = min(size, max(1, round(at_least * size / total)))
        edges = [one.start + size * part // parts for part in range(parts + 1)]
        found += [replace(one, start=start, end=end) for start, end in pairwise(edges)]
    return found


def limited(starts: Mapping[int, int], ends: Mapping[int, int], most: int | None) -> dict[int, int]:
    """Return by partition where a batch of a stream ends, if it may have ``most`` offsets.

    Each partition gets a part of ``most`` in proportion to its offsets.

    Args:
        starts: by partition; a missing partition begins at 0, because it was added since.
        ends: where the logs end now. For a log that was cut back, the batch ends where the batch before ended.
        most: None: no limit.
    """
    left = {number: max(0, end - starts.get(number, 0)) for number, end in ends.items()}
    total = sum(left.values())
    if most is None or total <= most:
        return {number: starts.get(number, 0) + size for number, size in left.items()}
    return {
        number: starts.get(number, 0) + (max(1, size * most // total) if size else 0) for number, size in left.items()
    }
