"""The plan of a backfill: ranges, tasks, how long it may take, and what retention may delete meanwhile. Pure.

MirrorMaker 2 has no backfill: one task copies a new topic from its start, together with live traffic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import Final

from mm2py.kafka.port import TopicPartition
from mm2py.records.backfill_record import Range

ASSUMED_MB_PER_SECOND: Final = 60
"""How much a task is assumed to copy, where the plan has to guess."""
TASKS_MOST: Final = 500
"""On a cluster each partition has a task of its own, up to this many."""
SLOTS_ASSUMED: Final = 2
"""For the expected time, where the number of executors is not known."""
TASKS_A_SLOT: Final = 2
"""How many tasks there are for each slot: a slot whose task ends early then takes another one."""
MB: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class BackfillFacts:
    """What the clusters say of a partition that is to be backfilled."""

    topic: str
    partition: int
    log_start: int
    log_end: int
    first: int
    """Where to begin: at ``log_start``, or at the first record of a time."""
    seam: int
    """Where the live flow is to continue."""
    size_bytes: int | None = None
    """Of the whole log; None: mm2py may not ask."""
    expires_before: int = 0
    """Records below this offset may be deleted by retention while the backfill runs."""

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def offsets(self) -> int:
        """How many offsets are to be copied; there may be fewer records."""
        return max(0, self.seam - self.first)

    @property
    def bytes(self) -> int | None:
        """How many bytes are to be read, if records are spread evenly over the log; None: not known."""
        length = self.log_end - self.log_start
        if self.size_bytes is None or length <= 0:
            return None if self.size_bytes is None else 0
        return self.size_bytes * self.offsets // length


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """What a backfill is going to do."""

    partitions: tuple[BackfillFacts, ...]
    tasks: tuple[tuple[TopicPartition, ...], ...]
    tasks_at_once: int
    topics_to_create: tuple[str, ...]
    """Remote topics that are missing."""
    bytes: int | None
    """None: the size of a partition is not known."""
    seconds: float | None
    memory_bytes_a_task: int
    warnings: tuple[str, ...]

    @property
    def offsets(self) -> int:
        return sum(one.offsets for one in self.partitions)

    @property
    def bytes_an_offset(self) -> float | None:
        """How many bytes an offset has on average; None: not known."""
        return None if self.bytes is None or not self.offsets else self.bytes / self.offsets

    def ranges(self) -> dict[str, dict[int, Range]]:
        """Return what is to be copied, by topic and partition."""
        found: dict[str, dict[int, Range]] = {}
        for one in self.partitions:
            found.setdefault(one.topic, {})[one.partition] = Range(one.first, one.seam)
        return found


def expected_seconds(size_bytes: int, *, tasks_at_once: int, bytes_per_second_max: int | None) -> float:
    """Return how long copying may take: by the limit, or by what a task is assumed to copy."""
    rate = ASSUMED_MB_PER_SECOND * MB * tasks_at_once
    return size_bytes / (rate if bytes_per_second_max is None else min(rate, bytes_per_second_max))


def make_plan(
    partitions: Sequence[BackfillFacts],
    *,
    slots: int | None,
    missing_topics: Sequence[str],
    bytes_per_second_max: int | None,
    memory_bytes_a_task: int,
    is_filtered: bool = False,
) -> BackfillPlan:
    """Return the plan.

    Args:
        partitions: in any order; those with nothing to copy get a task as well, which stores their start.
        slots: how many tasks run at once; None: not known.
        missing_topics: remote topics that do not exist yet.
        is_filtered: Spark SQL filters the records before they are copied, so each partition is a task of its own.
    """
    ordered = sorted(partitions, key=lambda one: one.key)
    most = TASKS_MOST if slots is None else slots * TASKS_A_SLOT
    tasks = tuple((one.key,) for one in ordered) if is_filtered else _divide(ordered, most)
    tasks_at_once = max(1, min(slots or SLOTS_ASSUMED, len(tasks)))
    sizes = [one.bytes for one in ordered]
    size = None if None in sizes else sum(filter(None, sizes))
    seconds = (
        None
        if size is None
        else expected_seconds(size, tasks_at_once=tasks_at_once, bytes_per_second_max=bytes_per_second_max)
    )
    return BackfillPlan(
        tuple(ordered),
        tasks,
        tasks_at_once,
        tuple(sorted(missing_topics)),
        size,
        seconds,
        memory_bytes_a_task,
        tuple(_warnings(ordered)),
    )


def _divide(partitions: Sequence[BackfillFacts], most: int) -> tuple[tuple[TopicPartition, ...], ...]:
    """Give each partition to a task, the largest first, always to the task with the least to do."""
    count = min(len(partitions), max(1, most))
    loads = [(0, number) for number in range(count)]
    heapify(loads)
    tasks: list[list[TopicPartition]] = [[] for _ in range(count)]
    for one in sorted(partitions, key=lambda one: (-_weight(one), one.key)):
        load, number = loads[0]
        tasks[number].append(one.key)
        heapreplace(loads, (load + _weight(one) + 1, number))
    return tuple(tuple(sorted(task)) for task in tasks if task)


def _weight(one: BackfillFacts) -> int:
    return one.offsets if one.bytes is None else one.bytes


def _warnings(partitions: Sequence[BackfillFacts]) -> list[str]:
    """Say for each topic once what retention may delete before it is copied."""
    expiring: dict[str, int] = {}
    for one in partitions:
        lost = min(one.seam, one.expires_before) - one.first
        if lost > 0:
            expiring[one.topic] = expiring.get(one.topic, 0) + lost
    return [
        f"Retention may delete up to {count:,} offsets of {topic} before they are copied. Raise retention.ms of"
        f" {topic} on the source until the backfill is over, or let it run faster."
        for topic, count in sorted(expiring.items())
    ]


def retention_warned_of(
    ends: Mapping[TopicPartition, int], facts: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return for each partition the offset before which records may expire.

    Args:
        facts: the first offset that is young enough, as brokers look it up by time; -1: all records are older.
    """
    return {key: ends[key] if offset < 0 else offset for key, offset in facts.items() if key in ends}
