"""The tally: what was done for one partition, for status and metrics. Pure.

Answers to record-count and byte-count of MirrorSourceMetrics in Apache Kafka, connect/mirror.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from mm2py.replication.planning.steps import Dropped, Outgoing


@dataclass(slots=True)
class Tally:
    """What was done. Bytes are those of batches as sent."""

    records: int = 0
    bytes: int = 0
    passed: int = 0
    rebuilt: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    last_timestamp_ms: int = -1

    def count(self, batch: Outgoing) -> None:
        """Count a batch that is stored."""
        self.records += batch.record_count
        self.bytes += len(batch.data)
        self.last_timestamp_ms = batch.max_timestamp_ms
        if batch.reason is None:
            self.passed += 1
        else:
            self.rebuilt[batch.reason] += 1

    def count_dropped(self, step: Dropped) -> None:
        """Count what had nothing for the target."""
        self.dropped[step.reason] += step.record_count

    def count_quarantined(self) -> int:
        """Count a record that is left out and kept in quarantine; returns how many there are by now."""
        self.dropped["quarantined"] += 1
        return self.dropped["quarantined"]
