"""The check: compares topics on the source cluster with their remote topics on the target cluster, by partition.

    python -m tests.checker.check --source HOST:PORT --target HOST:PORT --topics orders=A.orders,users=A.users

The exit code is 0 if every copy is legal, 1 if one is not, 2 if the copy cannot be judged. By default no duplicate is
allowed. Records that are written while the check runs are reported as lost: stop the writers first, and give the mirror
time with ``--wait``, which checks lagging partitions again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from tests.checker.dump import DumpFailed, Reader
from tests.checker.judge import judge_partition
from tests.checker.ledger import Ledger
from tests.checker.verdict import Finding, Verdict

LOOK_AGAIN_S = 0.5


@dataclass(slots=True)
class TopicReport:
    """The verdicts of one topic. If the partition counts differ, there is a verdict of partition -1."""

    topic: str
    remote: str
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(verdict.ok for verdict in self.verdicts)

    def __str__(self) -> str:
        records = sum(verdict.source_records for verdict in self.verdicts)
        target_records = sum(verdict.target_records for verdict in self.verdicts)
        rewinds = sum(len(verdict.rewinds) for verdict in self.verdicts)
        rewound = sum(verdict.rewound_records for verdict in self.verdicts)
        breaches = sum(sum(verdict.breaches.values()) for verdict in self.verdicts)
        return (
            f"{'ok  ' if self.ok else 'FAIL'} {self.topic} -> {self.remote}: {len(self.verdicts)} partitions, "
            f"{records} records, {target_records} on the target, {rewinds} rewinds over {rewound}, {breaches} breaches"
        )


@dataclass(slots=True)
class Report:
    """The verdicts of all topics; ``str`` is for people, one line a topic and the findings below."""

    topics: list[TopicReport] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(topic.ok for topic in self.topics)

    @property
    def findings(self) -> list[Finding]:
        return [finding for topic in self.topics for verdict in topic.verdicts for finding in verdict.findings]

    @property
    def verdicts(self) -> list[Verdict]:
        return [verdict for topic in self.topics for verdict in topic.verdicts]

    def __str__(self) -> str:
        lines = []
        for topic in self.topics:
            lines.append(str(topic))
            lines += [f"     {finding}" for verdict in topic.verdicts for finding in verdict.findings]
        return "\n".join(lines)


def check_copy(
    source_bootstrap: str,
    target_bootstrap: str,
    topics: Mapping[str, str],
    *,
    read_committed: bool = False,
    ledger: Ledger | None = None,
    max_rewinds: int | None = 0,
    max_rewound_records: int | None = None,
    starts: Mapping[tuple[str, int], int] | None = None,
    target_starts: Mapping[tuple[str, int], int] | None = None,
    wait_s: float = 0.0,
    source_settings: Mapping[str, Any] | None = None,
    target_settings: Mapping[str, Any] | None = None,
) -> Report:
    """Judge topics against their remote topics.

    Args:
        topics: source topic to remote topic.
        read_committed: the flow's isolation level, at which the source is dumped. The target is always read committed:
            a record that its consumers do not see does not count as copied.
        ledger: acknowledged sends; topics that either side compacts need it.
        max_rewinds, max_rewound_records: for each partition, as ``judge_partition``; 0 rewinds is exact.
        starts: the source offset at which the copy of a (topic, partition) begins, where it is not the log's start.
        target_starts: the target offset at which that copy begins, by the same key. Earlier records are not judged.
        wait_s: for how long lagging partitions are judged again.
        source_settings, target_settings: further librdkafka properties, such as credentials.
    Raises:
        ValueError: a topic is compacted and there is no ledger.
        DumpFailed, KafkaException: a cluster cannot be read.
    """
    deadline_s = time.monotonic() + wait_s
    with (
        Reader(source_bootstrap, read_committed=read_committed, settings=source_settings) as source,
        Reader(target_bootstrap, read_committed=True, settings=target_settings) as target,
    ):
        report = Report()
        for topic, remote in topics.items():
            check = _TopicCheck(
                *(source, target, topic, remote, ledger, max_rewinds, max_rewound_records),
                starts=starts or {},
                target_starts=target_starts or {},
            )
            report.topics.append(check.run(deadline_s))
        return report


@dataclass(slots=True)
class _TopicCheck:
    source: Reader
    target: Reader
    topic: str
    remote: str
    ledger: Ledger | None
    max_rewinds: int | None
    max_rewound_records: int | None
    starts: Mapping[tuple[str, int], int]
    target_starts: Mapping[tuple[str, int], int]

    def run(self, deadline_s: float) -> TopicReport:
        report = TopicReport(self.topic, self.remote)
        while (counts := (self.source.partitions(self.topic), self.target.partitions(self.remote)))[0] != counts[1]:
            if time.monotonic() < deadline_s:
                time.sleep(LOOK_AGAIN_S)
                continue
            verdict = Verdict(self.topic, -1)
            what = f"{counts[0]} partitions, {counts[1]} on the target" if all(counts) else _absent(*counts)
            verdict.add("I12", what, source_offset=None, target_offset=None)
            report.verdicts.append(verdict)
            break
        if not all(counts):
            return report
        configs = self.source.config(self.topic), self.target.config(self.remote)
        compacted = any("compact" in (config["cleanup.policy"] or "") for config in configs)
        timestamps = configs[1]["message.timestamp.type"] != "LogAppendTime"
        verdicts: dict[int, Verdict] = {}
        waiting = list(range(max(counts)))
        while waiting:
            # The target's ends first: else records copied meanwhile would have no source records.
            target_bounds = self.target.bounds(self.remote, [n for n in waiting if n < counts[1]])
            source_bounds = self.source.bounds(self.topic, [n for n in waiting if n < counts[0]])
            for number in waiting:
                source_start, source_end = source_bounds.get(number, (0, 0))
                target_start, target_end = target_bounds.get(number, (0, 0))
                start = self.starts.get((self.topic, number), 0)
                target_start = max(target_start, self.target_starts.get((self.topic, number), 0))
                verdicts[number] = judge_partition(
                    self.source.records(self.topic, number, max(start, source_start), source_end),
                    self.target.records(self.remote, number, target_start, target_end),
                    topic=self.topic,
                    partition=number,
                    start=start,
                    source_start=source_start,
                    source_end=source_end,
                    target_end=target_end,
                    max_rewinds=self.max_rewinds,
                    max_rewound_records=self.max_rewound_records,
                    compacted=compacted,
                    ledger=None if self.ledger is None else self.ledger.of(self.topic, number),
                    timestamps=timestamps,
                )
            waiting = [number for number in waiting if set(verdicts[number].breaches) == {"I1"}]
            if waiting and time.monotonic() >= deadline_s:
                break
            if waiting:
                time.sleep(LOOK_AGAIN_S)
        report.verdicts += verdicts.values()
        return report


def _absent(source_partitions: int, target_partitions: int) -> str:
    sides = [name for name, count in (("source", source_partitions), ("target", target_partitions)) if not count]
    return f"there is no such topic on the {' nor on the '.join(sides)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.checker.check", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--source", required=True, metavar="BOOTSTRAP")
    parser.add_argument("--target", required=True, metavar="BOOTSTRAP")
    parser.add_argument("--topics", required=True, help="source topic = remote topic, with commas between")
    parser.add_argument("--read-committed", action="store_true", help="the flow's isolation level is read_committed")
    parser.add_argument("--ledger", type=Path, action="append", default=[], help="acknowledged sends; may be repeated")
    parser.add_argument("--max-rewinds", type=int, default=0, help="for each partition; -1 for any number")
    parser.add_argument("--max-rewound-records", type=int)
    parser.add_argument("--wait", type=float, default=0.0, metavar="SECONDS")
    options = parser.parse_args(arguments)
    topics = dict(pair.split("=", 1) if "=" in pair else (pair, pair) for pair in options.topics.split(","))
    try:
        report = check_copy(
            options.source,
            options.target,
            topics,
            read_committed=options.read_committed,
            ledger=Ledger.load(*options.ledger) if options.ledger else None,
            max_rewinds=None if options.max_rewinds < 0 else options.max_rewinds,
            max_rewound_records=options.max_rewound_records,
            wait_s=options.wait,
        )
    except (DumpFailed, KafkaException, OSError, ValueError) as error:
        print(f"The copy cannot be judged: {error}", file=sys.stderr)
        return 2
    print(report)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
