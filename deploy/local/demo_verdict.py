"""What the demo says in the end: for each topic whether both sides are equal, and the exit code that follows.

The comparing itself is the tests' checker's; here its verdicts are counted and told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deploy.local.demo_logs import read_logs
from tests.checker.dumped import Sent
from tests.checker.judge import judge_partition
from tests.checker.verdict import Verdict

EQUAL, DIFFERENT = 0, 1
FINDINGS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class TopicVerdict:
    """What the checker found in one topic of a flow, a verdict for each partition."""

    flow: str
    topic: str
    partitions: Sequence[Verdict]
    compacted: bool = False
    """Cleaners work on both sides, each at its own pace: counts may differ where nothing is wrong."""

    @property
    def source_records(self) -> int:
        return sum(verdict.source_records for verdict in self.partitions)

    @property
    def target_records(self) -> int:
        return sum(verdict.target_records for verdict in self.partitions)

    @property
    def ok(self) -> bool:
        """Whether the copy is what it should be; one without any record proves nothing."""
        return all(verdict.ok for verdict in self.partitions) and self.target_records > 0


def compare(
    flow: str,
    topic: str,
    remote_topic: str,
    bootstraps: tuple[str, str],
    ledger: Mapping[int, Sequence[Sent]],
    *,
    compacted: bool,
) -> TopicVerdict:
    """Read a topic on both sides, and judge the copy: nothing missing, nothing twice, everything in order.

    Args:
        bootstraps: the source's, then the target's.
        ledger: what the source acknowledged, by partition; it proves the source, and stands in for what a cleaner took.
    Raises:
        StarterError: one side cannot be read.
    """
    partitions = sorted(ledger)
    source = read_logs(bootstraps[0], topic, partitions)
    target = read_logs(bootstraps[1], remote_topic, partitions)
    verdicts = [
        judge_partition(
            source[number].records,
            target[number].records,
            topic=remote_topic,
            partition=number,
            source_start=source[number].start,
            source_end=source[number].end,
            target_end=target[number].end,
            compacted=compacted,
            ledger=ledger[number],
        )
        for number in partitions
    ]
    return TopicVerdict(flow, topic, verdicts, compacted)


def lines_of(verdicts: Sequence[TopicVerdict]) -> list[str]:
    """Return a line for each topic, the first findings where something differs, and the result as the last line."""
    lines = []
    flow_width = max((len(verdict.flow) for verdict in verdicts), default=0)
    topic_width = max((len(verdict.topic) for verdict in verdicts), default=0)
    for verdict in verdicts:
        counts = f"{verdict.source_records:>9,} records at the source, {verdict.target_records:>9,} in the copy"
        word = "DIFFERENT" if not verdict.ok else "equal but for cleaning" if verdict.compacted else "equal"
        lines.append(f"  {verdict.flow:<{flow_width}}  {verdict.topic:<{topic_width}}  {counts}: {word}")
        findings = [finding for partition in verdict.partitions for finding in partition.findings]
        lines += [f"      {finding}" for finding in findings[:FINDINGS_SHOWN]]
        if len(findings) > FINDINGS_SHOWN:
            lines.append(f"      and {len(findings) - FINDINGS_SHOWN} more")
    different = sum(not verdict.ok for verdict in verdicts)
    if different:
        lines.append(f"{different} of {len(verdicts)} topics differ.")
    else:
        lines.append(f"Both sides are equal in all {len(verdicts)} topics.")
    return lines


def exit_code(verdicts: Sequence[TopicVerdict]) -> int:
    """Return 0 if every topic was compared and is equal; comparing nothing is a failure."""
    return EQUAL if verdicts and all(verdict.ok for verdict in verdicts) else DIFFERENT
