"""The demo's result: a line for each topic from the checker's reports, and the exit code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.checker.check import Report, TopicReport

EQUAL: Final = 0
DIFFERENT: Final = 1
FINDINGS_SHOWN: Final = 5
"""Findings shown of one topic; the first ones say most."""


def conclude(reports: Sequence[Report]) -> tuple[list[str], int]:
    """Return the text to print, and the exit code: 0 only if every topic was compared and is correct."""
    topics = [topic for report in reports for topic in report.topics]
    widths = max((len(topic.topic) for topic in topics), default=0), max((len(t.remote) for t in topics), default=0)
    lines = []
    wrong = 0
    for topic in topics:
        source, target = _records(topic)
        is_right = topic.ok and target > 0
        wrong += not is_right
        lines.append(
            f"  {'equal' if is_right else 'DIFFERENT':<9}  {topic.topic:<{widths[0]}} -> {topic.remote:<{widths[1]}}  "
            f"{source:>9,} records, {target:>9,} in the copy"
        )
        findings = [finding for verdict in topic.verdicts for finding in verdict.findings]
        lines += [f"      {finding}" for finding in findings[:FINDINGS_SHOWN]]
        if len(findings) > FINDINGS_SHOWN:
            lines.append(f"      and {len(findings) - FINDINGS_SHOWN} more")
        if topic.ok and not is_right:
            lines.append("      no record was copied, which proves nothing")
    if wrong or not topics:
        lines.append(
            f"{wrong} of {len(topics)} topics are not as they should be." if topics else "Nothing was compared."
        )
        return lines, DIFFERENT
    lines.append(f"Both sides are equal in all {len(topics)} topics, but for what cleaners took.")
    return lines, EQUAL


def _records(topic: TopicReport) -> tuple[int, int]:
    return (
        sum(verdict.source_records for verdict in topic.verdicts),
        sum(verdict.target_records for verdict in topic.verdicts),
    )
