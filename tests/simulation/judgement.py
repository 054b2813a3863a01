"""Invariants of a run: no record is lost, reordered or duplicated, and each loss of the clusters is logged.

A loss that the schedule causes is allowed where a log event names its topic, partition and offsets (I9): source records
that expired, a source or remote partition that was truncated. Everything else must be exact, there too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from mm2py.kafka.port import TopicPartition
from mm2py.records.quarantined import QuarantineEntry, decode
from tests.checker.dumped import Dumped, Sent, sent
from tests.checker.judge import judge_partition
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.broker.coordinator_model import TransactionState
from tests.fakes.broker.record_batch import StoredRecord
from tests.scenarios.true_ledger import wrong_answers
from tests.simulation.group_judgement import FLOW, group_findings
from tests.simulation.history import POISON_MS, PartitionHistory, Traffic
from tests.simulation.incarnation import tasks_left
from tests.simulation.schedule import ActionKind, Schedule, TopicPlan
from tests.simulation.worker import Worker

QUARANTINE: Final = "mm2-quarantine.A.internal"
CREATE_TIME: Final = 1
_EXPIRED: Final = re.compile(r"source offsets (\d+) to (\d+) were deleted")
_STUCK: Final = frozenset({"source.truncated", "target.truncated", "target.refuses"})
"""Log events after which a partition waits for an operator."""
_AT_LEAST_ONCE: Final = ("producer.unfenced", "producer.degraded", "member.unfenced")
_TRANSACTION_MOST_MS: Final = 60_000 + 10_000
"""The time-out of a fencing transaction, and the interval at which the coordinator aborts those that took longer."""


class Judge:
    """Judges one run."""

    def __init__(
        self,
        schedule: Schedule,
        source: ClusterModel,
        target: ClusterModel,
        traffic: Traffic,
        workers: Sequence[Worker],
    ) -> None:
        self._schedule = schedule
        self._source = source
        self._target = target
        self._traffic = traffic
        self._workers = workers
        self.lasts: Sequence[Worker] = ()
        """The workers that finish the copy."""
        self._committed = schedule.settings["A.consumer.isolation.level"] == "read_committed"
        self._quarantines = schedule.settings["A->B.on.poison.record"] == "quarantine"

    @property
    def strict(self) -> bool:
        """Whether no duplicate is allowed: no worker has logged that it cannot guarantee exactly-once."""
        return not any(
            worker.said(event)
            for worker in self._workers
            for event in ("producer.unfenced", "producer.degraded", "member.unfenced")
        ) and not any(
            event["guarantee"].startswith("at-least-once")
            for worker in self._workers
            for event in worker.said("flow.ready")
        )

    def is_copied(self) -> bool:
        return not self.missing()

    def missing(self) -> list[str]:
        """Return the partitions whose last record is not copied, without a log event that says why."""
        stuck = _stuck(self.lasts)
        return [f"{plan.name}-{number}" for plan, number in self._partitions() if self._lacks(plan, number, stuck)]

    def is_fully_assigned(self) -> bool:
        """Whether each partition has exactly one owner among the last workers (I10)."""
        owned: Counter[TopicPartition] = Counter()
        for last in self.lasts:
            if (member := last.member) is not None:
                owned.update(member.ownership(FLOW).mine())
        return {(plan.name, number) for plan, number in self._partitions()} <= owned.keys() and all(
            count == 1 for count in owned.values()
        )

    def views(self) -> list[str]:
        """Return how the last workers' views of their group differ (I8)."""
        seen = {
            worker.number: (
                view.leader,
                view.leader_epoch,
                view.generation,
                view.members.keys() and sorted(view.members),
            )
            for worker in self.lasts
            if (member := worker.member) is not None and (view := member.view)
        }
        return [] if len({repr(one) for one in seen.values()}) <= 1 else [f"members differ in their views: {seen}"]

    def _partitions(self) -> Iterable[tuple[TopicPlan, int]]:
        for plan in self._schedule.topics:
            for number in range(len(self._source.topics[plan.name].partitions)):
                yield plan, number

    def _lacks(self, plan: TopicPlan, number: int, stuck: dict[TopicPartition, set[str]]) -> bool:
        if (plan.name, number) in stuck:
            return False
        wanted = self._source.records(plan.name, number, committed=self._committed)
        while wanted and plan.poison and self._quarantines and wanted[-1].timestamp_ms == POISON_MS:
            wanted.pop()
        if not wanted:
            return False
        if plan.remote not in self._target.topics or number >= len(self._target.topics[plan.remote].partitions):
            return True
        have = self._ever_copied(plan, number)
        if have and have[-1].content == wanted[-1].content:
            return False
        if plan.compacted and any(record.content == wanted[-1].content for record in have):
            return False  # records of aborted transactions followed it, and compaction has removed them from the source
        kept = self._kept()  # a lowered limit may refuse the last record, too
        while wanted and (plan.name, number, wanted[-1].offset) in kept:
            wanted.pop()
        return bool(wanted) and (not have or have[-1].content != wanted[-1].content)

    def verdict(self) -> list[str]:
        """Return all faults."""
        findings = [
            *(f"complaint of {cluster.name}: {it!r}" for cluster in self._clusters for it in cluster.complaints),
            *(finding for worker in self._workers for finding in _judge_worker(worker)),
            *self._judge_transactions(),
            *group_findings(self._target, [(plan.name, plan.remote) for plan in self._schedule.topics]),
        ]
        stuck, expired = _stuck(self.lasts), self._expired()
        kept = self._kept()
        for last in self.lasts:
            findings += [f"the last worker refuses: {event}" for event in last.said("topic.refused")]
        for plan, number in self._partitions():
            if plan.remote not in self._target.topics or number >= len(self._target.topics[plan.remote].partitions):
                if self._traffic.history[plan.name, number].in_order(committed=self._committed):
                    findings.append(f"{plan.name}-{number} has no remote partition")
                continue
            key = (plan.name, number)
            findings += self._judge(plan, number, stuck.get(key, set()), expired.get(key, set()), kept)
        return findings + self._judge_ledgers()

    def _judge_ledgers(self) -> list[str]:
        """Every answer of the ledgers must be true, as long as no record may be there twice."""
        may_contradict = bool(self._kept()) or any(one.kind is ActionKind.TARGET_CUT for one in self._schedule.actions)
        return [
            f"the ledger of {plan.name} is wrong: {wrong}"
            for plan in (self._schedule.topics if self.strict else ())
            for wrong in wrong_answers(
                self._source,
                self._target,
                plan.name,
                plan.remote,
                committed=self._committed,
                is_over=False,
                may_contradict=may_contradict,
            )
        ]

    @property
    def _clusters(self) -> tuple[ClusterModel, ClusterModel]:
        return self._source, self._target

    def _was_told_cut(self, topic: str, partition: int) -> bool:
        """Whether a worker logged that the source was truncated there; a later one may stop for another reason."""
        return any(
            (event["topic"], event["partition"]) == (topic, partition)
            for worker in self._workers
            for event in worker.said("source.truncated")
        )

    # One partition

    def _ever_copied(self, plan: TopicPlan, number: int) -> list[StoredRecord]:
        """Return the records of a remote partition, without those that were deleted there.

        Each record once, even if the log starts earlier again: the present leader had not learnt of a deletion.
        """
        deleted = self._traffic.history[plan.name, number].target_deleted
        records = [*deleted, *self._target.records(plan.remote, number)]
        return list({(record.offset, record.content): record for record in records}.values())

    def _judge(
        self, plan: TopicPlan, number: int, stuck: set[str], expired: set[int], kept: set[tuple[str, int, int]]
    ) -> list[str]:
        history = self._traffic.history[plan.name, number]
        target = self._ever_copied(plan, number)
        name = f"{plan.name}-{number}"
        there = {record.content for record in target}
        if plan.compacted:
            gone = {offset for topic, at, offset in kept if (topic, at) == (plan.name, number)}
            # A worker may quarantine a record and be killed before it continues; if the limit was raised, the next one
            # copies it.
            gone -= {offset for offset in gone if history.records[offset].content in there}
            return self._judge_compacted(plan, number, history, target, gone)
        findings = []
        expected = history.in_order(committed=self._committed)
        if "source.truncated" in stuck:
            if history.before_cut is None:
                findings.append(f"{name}: source.truncated, and the source was not cut back")
            expected = history.before_cut or expected
        if "target.truncated" in stuck and not history.target_was_cut:
            findings.append(f"{name}: target.truncated, and the target was not cut back")
        if not self._was_told_cut(plan.name, number) and any(record.content in there for record in history.gone):
            findings.append(f"{name}: records that the source lost were copied, and nothing says so")
            expected = _merged(history)
        if not self._quarantines:
            poisoned = [
                record.offset
                for record in expected
                if record.timestamp_ms == POISON_MS and record.offset not in expired
            ]
            if poisoned and "target.refuses" in stuck:
                expected = [record for record in expected if record.offset < poisoned[0]]
        if stuck & {"source.truncated", "target.truncated"}:  # records after the last copied one are not there yet
            last = max((at for at, record in enumerate(expected) if record.content in there), default=-1)
            expected = expected[: last + 1]
        lost = {record.content for record in history.target_cut} if "target.truncated" in stuck else set()
        expected = [
            record
            for record in expected
            if record.content in there
            or not (record.offset in expired or (plan.name, number, record.offset) in kept or record.content in lost)
        ]
        verdict = judge_partition(
            _dumped(expected),
            _dumped(target),
            topic=plan.name,
            partition=number,
            max_findings=3,
            max_rewinds=0 if self.strict and not history.target_was_emptied else None,
        )
        return [*findings, *map(str, verdict.findings)]

    def _judge_compacted(
        self, plan: TopicPlan, number: int, history: PartitionHistory, target: list[StoredRecord], gone: set[int]
    ) -> list[str]:
        """``gone``: source offsets of records that are in quarantine.

        A record of an aborted transaction may be missing where the source no longer shows it: compaction may have
        removed it before it was copied.
        """
        shown = {one.offset for one in self._source.records(plan.name, number, committed=self._committed)}
        ledger: list[Sent] = [
            sent(one, is_aborted=one.offset in history.aborted and one.offset not in shown)
            for one in _dumped(history.in_order(committed=False))
            if one.offset not in gone
        ]
        verdict = judge_partition(
            [
                one
                for one in _dumped(self._source.records(plan.name, number, committed=self._committed))
                if one.offset not in gone
            ],
            _dumped(target),
            topic=plan.name,
            partition=number,
            compacted=True,
            ledger=ledger,
            target_end=self._target.partition(plan.remote, number).log.end_offset,
            max_findings=3,
            max_rewinds=0 if self.strict and not history.target_was_emptied else None,
        )
        return [str(finding) for finding in verdict.findings]

    def _expired(self) -> dict[TopicPartition, set[int]]:
        """Return the source offsets that some worker logged as deleted before they were copied."""
        found: dict[TopicPartition, set[int]] = {}
        for worker in self._workers:
            for event in worker.said("source.expired"):
                match = _EXPIRED.search(event["why"])
                assert match is not None, event
                first, last = map(int, match.groups())
                found.setdefault((event["topic"], event["partition"]), set()).update(range(first, last + 1))
        return found

    def _kept(self) -> set[tuple[str, int, int]]:
        """Return the quarantined records: source topic, partition, offset."""
        if QUARANTINE not in self._target.topics:
            return set()
        records = [decode(record) for record in self._target.records(QUARANTINE, 0)]  # type: ignore[arg-type]
        origins = [record.provenance.origin for record in records if isinstance(record, QuarantineEntry)]
        return {(origin.topic, origin.partition, origin.offset) for origin in origins}

    def _judge_transactions(self) -> list[str]:
        """No fencing transaction stays open longer than its time-out (I13)."""
        now_ms = self._target.clock.wall_ms()
        return [
            f"the transaction of {name} is {known.state.value} since {now_ms - known.updated_at_ms} ms"
            for name, known in self._target.coordinator.transactional_ids.items()
            if known.state in {TransactionState.ONGOING, TransactionState.PREPARE_ABORT}
            and now_ms - known.updated_at_ms > _TRANSACTION_MOST_MS
        ]


def _judge_worker(worker: Worker) -> list[str]:
    number = worker.number
    findings = [
        f"worker {number}: {event['why']} at {event['at']}: {_innermost(event['exception'])}"
        for event in worker.events
        if event["event"].endswith(".crashed")
    ]
    if worker.budget.held_bytes:
        findings.append(f"worker {number} holds {worker.budget.held_bytes} bytes of memory after its end")
    if left := tasks_left(worker.incarnation):
        findings.append(f"worker {number} left tasks: {left}")
    if worker.overran:
        findings.append(f"worker {number} did not stop in time")
    task = worker.incarnation.task
    if task is not None and task.done() and not task.cancelled() and task.exception() is not None:
        findings.append(f"worker {number} ended with {task.exception()!r}")
    return findings


def _innermost(trace: str) -> str:
    """Return the last line of a traceback that has a message; of an exception group, of its first error."""
    lines = [line.strip(" |+-") for line in trace.splitlines()]
    return next(line for line in reversed(lines) if line)


def _stuck(workers: Iterable[Worker]) -> dict[TopicPartition, set[str]]:
    found: dict[TopicPartition, set[str]] = {}
    for worker in workers:
        for event in worker.events:
            if event["event"] in _STUCK:
                found.setdefault((event["topic"], event["partition"]), set()).add(event["event"])
    return found


def _merged(history: PartitionHistory) -> list[StoredRecord]:
    """Return the records that stood there before the source was truncated, then those that followed."""
    before = history.before_cut or []
    known = {record.content for record in before}
    return [*before, *(record for record in history.in_order(committed=False) if record.content not in known)]


def _dumped(records: Iterable[StoredRecord]) -> list[Dumped]:
    return [
        Dumped(record.offset, CREATE_TIME, record.timestamp_ms, record.key, record.value, record.headers)
        for record in records
    ]
