"""The log and status of copied partitions: what copiers report, and how their batches are copied.

A MirrorSourceTask of MirrorMaker 2 and its clients log a problem at every attempt. Here it is logged once, and again
only after it had ended; partitions of a topic with the same problem share a line.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from mm2py.connector import TopicStatus
from mm2py.copying.copied_partition import NOT_STORED, CopiedPartition
from mm2py.copying.events import OperatorNotice
from mm2py.copying.partition_errors import DENIED_PAUSE_S
from mm2py.copying.planning.steps import PASS_REFUSED
from mm2py.copying.states import Reconciling, Stopped, Waiting
from mm2py.kafka.port import TopicPartition
from mm2py.status.not_copied import reason_of, remedy_of
from mm2py_connectors.source.context import FlowContext
from mm2py_connectors.source.going_on import requests

OUT_OF_ORDER: Final = "target.out_of_order"
SOURCE_DENIED: Final = "source.denied"
TARGET_DENIED: Final = "target.denied"


class Reports:
    """The reports of one flow's task, which calls it every second."""

    def __init__(self, context: FlowContext, partitions: Mapping[TopicPartition, CopiedPartition]) -> None:
        """``partitions`` belongs to the task."""
        self._context = context
        self._flow = context.flow
        self._partitions = partitions
        self._log = context.log
        self._denied: dict[tuple[str, str], set[CopiedPartition]] = {}
        """Partitions that a missing right stops, by topic and event."""
        self._said: set[tuple[str, str]] = set()
        """Events that are logged once for a topic, with the topic."""

    # What copiers report

    def pass_on(self, part: CopiedPartition, report: OperatorNotice) -> None:
        """Log what a copier reports, with the remedy where there is one."""
        if report.event in {SOURCE_DENIED, TARGET_DENIED} and not isinstance(part.copier.state, Stopped):
            self._count_denied(part, report)
            return
        way_out = {}
        if report.event == OUT_OF_ORDER:
            way_out = {"remedy": self._again_from(part)}
        elif isinstance(part.copier.state, Waiting) and part.copier.is_blocked:
            way_out = {"reason": str(reason_of(report.event, report.refused_with))}
            if report.refused_with:  # else the text says more
                way_out["remedy"] = self._remedy(part, report)
        write = self._log.error if report.severe else self._log.warning
        write(report.event, topic=part.source_topic, partition=part.partition, why=report.text, **way_out)

    def _remedy(self, part: CopiedPartition, report: OperatorNotice) -> str:
        return remedy_of(report.event, report.refused_with, self._flow, part.source_topic, part.target_topic)

    def _again_from(self, part: CopiedPartition) -> str:
        """Return the remedy that sends again what the target may have lost, and nothing before that."""
        at = part.copier.position.source_offset
        way = requests(self._flow, part.source_topic, part.partition, at)
        return f"Send it again: {way}. Records that are stored from source offset {at} on come twice."

    def _count_denied(self, part: CopiedPartition, report: OperatorNotice) -> None:
        """Log a missing right once for all partitions of a topic that one answer refuses.

        The story: WRITE on a topic of a thousand partitions is revoked, and each of them is refused within a second.
        """
        at = (part.source_topic, report.event)
        if at in self._denied:
            self._denied[at].add(part)
            return
        denied = self._denied[at] = {part}

        def say() -> None:
            self._log.error(
                report.event,
                topic=part.source_topic,
                partitions=len(denied),
                reason=str(reason_of(report.event, report.refused_with)),
                why=report.text,
                remedy=f"{self._remedy(part, report)} It is tried again every {DENIED_PAUSE_S:g} s.",
            )

        asyncio.get_running_loop().call_soon(say)

    def forget_granted(self) -> None:
        """Forget rights that are granted by now: if one is revoked again, it is logged again."""
        for at, denied in list(self._denied.items()):
            if not any(part.copier.is_failing and self._partitions.get(part.key) is part for part in denied):
                del self._denied[at]

    # How batches travel

    def say_transactional(self) -> None:
        """Log once for each topic that it has transactions, if aborted ones are copied as well."""
        if self._context.settings.read_committed:
            return
        seen = {part.source_topic for part in self._partitions.values() if part.reading.transactional_seen}
        for topic in sorted(seen):
            if self._is_new("topic.transactional", topic):
                self._log.warning(
                    "topic.transactional",
                    topic=topic,
                    effect="records of aborted transactions are copied as ordinary ones",
                    remedy=f"Set {self._flow.source}.consumer.isolation.level=read_committed if unwanted.",
                )

    def say_repacked(self) -> None:
        """Log once for each topic that its batches are repacked, and why; many topics share a line.

        Also log when the target has refused a repacked batch: small batches are then sent one by one.
        """
        fresh: dict[str, set[str]] = {}
        for part in self._partitions.values():
            topic, why = part.source_topic, part.reading.merging.why
            if part.reading.merging is PASS_REFUSED and self._is_new("topic.not_merged", topic):
                self._log.warning("topic.not_merged", topic=topic, partition=part.partition, why=why)
            if part.copier.tally.rebuilt["repack"] and self._is_new("topics.repacked", topic):
                fresh.setdefault(why, set()).add(topic)
        for why, topics in fresh.items():
            self._log.info("topics.repacked", topics=len(topics), first=min(topics), why=why)

    def _is_new(self, event: str, topic: str) -> bool:
        if (event, topic) in self._said:
            return False
        self._said.add((event, topic))
        return True


def topic_status(name: str, parts: Sequence[CopiedPartition], now_ms: int) -> TopicStatus:
    """Return one topic's state, summed over its partitions, of which there is at least one."""
    tallies = [part.copier.tally for part in parts]
    rebuilt: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    for tally in tallies:
        rebuilt.update(tally.rebuilt)
        dropped.update(tally.dropped)
    lags = [part.copier.lag() for part in parts]
    known = [lag for lag in lags if lag is not None]
    behind = [part.newest_ms for part, lag in zip(parts, lags, strict=True) if lag]
    timed = [at_ms for at_ms in behind if at_ms is not None]
    return TopicStatus(
        topic=name,
        remote_topic=parts[0].target_topic,
        partitions=len(parts),
        records=sum(tally.records for tally in tallies),
        bytes=sum(tally.bytes for tally in tallies),
        passed=sum(tally.passed for tally in tallies),
        rebuilt=dict(rebuilt),
        dropped=dict(dropped),
        lag_records=sum(known) if known else None,
        lag_s=_lag_s(timed, now_ms) if known and len(timed) == len(behind) else None,
        problems=tuple(sorted(_problems(parts))),
        copy_modes=_copy_modes(parts),
    )


def _problems(parts: Sequence[CopiedPartition]) -> set[str]:
    waiting = (Reconciling, Waiting, Stopped)
    reasons = {part.copier.reason for part in parts if isinstance(part.copier.state, waiting)}
    reasons |= {f"{NOT_STORED}: {part.position_problem}" for part in parts if part.waits_for_position}
    return reasons | {f"stalled: {part.stalled}" for part in parts if part.stalled}


def _copy_modes(parts: Sequence[CopiedPartition]) -> tuple[str, ...]:
    """Return how the batches of partitions that were read are copied, with the reason."""
    return tuple(sorted({part.reading.merging.why for part in parts if part.copier.end_offset is not None}))


def _lag_s(behind: Sequence[int], now_ms: int) -> float:
    """Return the age of the last copied record in the partition that is furthest behind; 0 if none is behind."""
    return max(0.0, (now_ms - min(behind)) / 1000) if behind else 0.0
