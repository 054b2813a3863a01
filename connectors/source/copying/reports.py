"""What the log says of partitions that are copied: what copiers report, what keeps them waiting, how batches travel.

Answers to what a MirrorSourceTask of MirrorMaker 2 and its clients log at every attempt. Here it is said once, and
again only after it was over; partitions of a topic with one trouble share a line.

What a flow's copying looks like from outside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.config.settings import FlowSettings
from mm2py.connector import TopicStatus
from mm2py.replication.copying.copied_partition import NOT_STORED, CopiedPartition
from mm2py.replication.copying.events import Report
from mm2py.replication.copying.states import Copying, Reconciling, Stalled, Waiting
from mm2py.replication.planning.steps import PASS_REFUSED

LOOKED_AT: Final = "the target has not told yet whether it still holds all that was copied"
WAITING_REPORT_S: Final = 5.0
"""A pause shorter than this is not worth a line in the log: leaders move."""
SOURCE_DENIED: Final = "source.denied"
TARGET_DENIED: Final = "target.denied"


class Reports:
    """Of one flow's task, which lets it look every second."""

    def __init__(
        self,
        settings: FlowSettings,
        partitions: Mapping[tuple[str, int], CopiedPartition],
        *,
        waiting: Mapping[CopiedPartition, float],
        log: FilteringBoundLogger,
    ) -> None:
        """``waiting`` says since when copiers wait, in seconds of the clock; both mappings are the task's own."""
        self._settings = settings
        self._flow = settings.flow
        self._partitions = partitions
        self._waiting = waiting
        self._log = log
        self._denied: dict[tuple[str, str], set[CopiedPartition]] = {}
        """Whom a missing right stops, by topic and event."""
        self._held_up: dict[CopiedPartition, float] = {}
        self._reported_waits: dict[tuple[str, str], int] = {}
        self._warned_transactional: set[str] = set()
        self._said_repacked: set[str] = set()
        self._said_parted: set[str] = set()

    def forget(self, part: CopiedPartition) -> None:
        """It is copied no more."""
        self._held_up.pop(part, None)

    # What copiers report

    def pass_on(self, part: CopiedPartition, report: Report) -> None:
        """Log what a copier reports, with the way out where there is one."""
        if report.event in {SOURCE_DENIED, TARGET_DENIED} and not isinstance(part.copier.state, Stalled):
            self._count_denied(part, report)
            return
        way_out = {}
        if isinstance(part.copier.state, Stalled):
            remedy = f"Restart with --allow-recopy {self._flow}:{part.source_topic} to copy it once more."
            way_out = {"remedy": remedy}
        write = self._log.error if report.severe else self._log.warning
        write(report.event, topic=part.source_topic, partition=part.partition, why=report.text, **way_out)

    def _count_denied(self, part: CopiedPartition, report: Report) -> None:
        """A right is missing for a topic: one line for all its partitions, as soon as one answer is read through.

        The story: WRITE on a topic of a thousand partitions is revoked, and each of them is refused within a second.
        """
        at = (part.source_topic, report.event)
        if at in self._denied:
            self._denied[at].add(part)
            return
        denied = self._denied[at] = {part}
        if report.event == SOURCE_DENIED:
            remedy = f"Grant READ on {part.source_topic} on {self._flow.source}; it is tried again."
        else:
            remedy = f"Grant WRITE on {part.target_topic} on {self._flow.target}; it is tried again."

        def say() -> None:
            self._log.error(
                report.event, topic=part.source_topic, partitions=len(denied), why=report.text, remedy=remedy
            )

        asyncio.get_running_loop().call_soon(say)

    def _forgive(self) -> None:
        """Forget whom a right was missing for and is not any more: should it be revoked again, that is news."""
        for at, denied in list(self._denied.items()):
            if not any(part.copier.is_failing and self._partitions.get(part.key) is part for part in denied):
                del self._denied[at]

    # What keeps them waiting

    def say_waits(self, now_s: float) -> None:
        """Log, one line a topic and reason, what has kept partitions waiting for a while, and what no longer does."""
        self._forgive()
        waits: dict[tuple[str, str], int] = {}
        for part in self._partitions.values():
            begins = isinstance(part.copier.state, Reconciling) or part.waits_for_position
            held_up = part.lacks_leader or begins or part.copier.is_end_unverified
            since_s = self._held_up.setdefault(part, now_s) if held_up else self._waiting.get(part)
            if not held_up:
                self._held_up.pop(part, None)
            if since_s is not None and now_s - since_s >= WAITING_REPORT_S:
                at = (part.source_topic, part.lacks_leader or _why_it_waits(part))
                waits[at] = waits.get(at, 0) + 1
        for topic, reason in waits.keys() - self._reported_waits.keys():
            self._log.warning("partitions.waiting", topic=topic, partitions=waits[topic, reason], why=reason)
        over = {topic for topic, _ in self._reported_waits.keys() - waits.keys()} - {topic for topic, _ in waits}
        for topic in sorted(over):
            self._log.info("partitions.copying", topic=topic)
        self._reported_waits = waits

    # How batches travel

    def say_transactional(self) -> None:
        """Log once for every topic that it holds transactions, where aborted ones are copied as well."""
        if self._settings.read_committed:
            return
        seen = {part.source_topic for part in self._partitions.values() if part.transactional_seen}
        for topic in sorted(seen - self._warned_transactional):
            self._log.warning(
                "topic.transactional",
                topic=topic,
                effect="records of aborted transactions are copied as ordinary ones",
                remedy=f"Set {self._settings.source.alias}.consumer.isolation.level=read_committed if unwanted.",
            )
        self._warned_transactional |= seen

    def say_repacked(self) -> None:
        """Log once for every topic that its batches are repacked, and why; many topics make one line.

        So too when the target refused one that was made of several: those before it are sent one by one from then on.
        """
        for part in self._partitions.values():
            if part.merging is PASS_REFUSED and part.source_topic not in self._said_parted:
                self._said_parted.add(part.source_topic)
                self._log.warning(
                    "topic.parted", topic=part.source_topic, partition=part.partition, why=part.merging.why
                )
        fresh: dict[str, set[str]] = {}
        for part in self._partitions.values():
            if part.copier.tally.rebuilt["repack"] and part.source_topic not in self._said_repacked:
                fresh.setdefault(part.merging.why, set()).add(part.source_topic)
        for why, topics in fresh.items():
            self._said_repacked |= topics
            self._log.info("topics.repacked", topics=len(topics), first=min(topics), why=why)


def _why_it_waits(part: CopiedPartition) -> str:
    if part.waits_for_position:
        return f"{NOT_STORED}: {part.position_problem}"
    if isinstance(part.copier.state, Copying) and part.copier.is_end_unverified:
        return LOOKED_AT
    return part.copier.kind_of_reason


def topic_status(name: str, parts: Sequence[CopiedPartition], now_ms: int) -> TopicStatus:
    """Return one topic's state, summed over its partitions (at least one); ``now_ms`` in epoch milliseconds."""
    rebuilt: dict[str, int] = {}
    dropped: dict[str, int] = {}
    lags = [part.copier.lag() for part in parts]
    known = [lag for lag in lags if lag is not None]
    behind = [
        part.copier.tally.last_timestamp_ms
        for part, lag in zip(parts, lags, strict=True)
        if lag and part.copier.tally.last_timestamp_ms >= 0
    ]
    untold = any(lag and part.copier.tally.last_timestamp_ms < 0 for part, lag in zip(parts, lags, strict=True))
    for part in parts:
        for reason, count in part.copier.tally.rebuilt.items():
            rebuilt[reason] = rebuilt.get(reason, 0) + count
        for reason, count in part.copier.tally.dropped.items():
            dropped[reason] = dropped.get(reason, 0) + count
    return TopicStatus(
        topic=name,
        remote_topic=parts[0].target_topic,
        partitions=len(parts),
        records=sum(part.copier.tally.records for part in parts),
        bytes=sum(part.copier.tally.bytes for part in parts),
        passed=sum(part.copier.tally.passed for part in parts),
        rebuilt=rebuilt,
        dropped=dropped,
        lag_records=sum(known) if known else None,
        lag_s=_lag_s(behind, now_ms) if known and not untold else None,
        problems=tuple(sorted(_problems(parts))),
        copy_modes=_copy_modes(parts),
    )


def _problems(parts: Sequence[CopiedPartition]) -> set[str]:
    waiting = (Reconciling, Waiting, Stalled)
    reasons = {part.copier.reason for part in parts if isinstance(part.copier.state, waiting)}
    reasons |= {f"{NOT_STORED}: {part.position_problem}" for part in parts if part.waits_for_position}
    return reasons | {f"stalled: {part.stalled}" for part in parts if part.stalled}


def _copy_modes(parts: Sequence[CopiedPartition]) -> tuple[str, ...]:
    """Return how batches of these partitions travel, with the reason; nothing for those not read yet."""
    return tuple(sorted({part.merging.why for part in parts if part.copier.end_offset is not None}))


def _lag_s(behind: Sequence[int], now_ms: int) -> float:
    """Return the age of the last record copied where the copy is furthest behind; 0 where nothing is."""
    return max(0.0, (now_ms - min(behind)) / 1000) if behind else 0.0
