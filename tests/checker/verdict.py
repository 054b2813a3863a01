"""A verdict: the findings of the judge in one partition, by invariant.

Invariants: I1 no loss, I2 order, I3 duplicates only as allowed rewinds, I5 bytes, I6 checkpoints, I7 offset syncs.
Other ids: I12, the partition counts of the two topics differ, or a group has another position on the target; ``L``, an
answer of the ledger contradicts the logs; and ``A``, the source cluster itself lost or changed an acknowledged send,
which is no fault of a mirror.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Finding:
    """One breach, with its offsets; None where a side has no record for it."""

    invariant: str
    topic: str
    partition: int
    source_offset: int | None
    target_offset: int | None
    what: str

    def __str__(self) -> str:
        at = f"source {_offset(self.source_offset)}, target {_offset(self.target_offset)}"
        return f"{self.invariant} {self.topic}-{self.partition} ({at}): {self.what}"


@dataclass(frozen=True, slots=True)
class Rewind:
    """A new run of the copy starts at ``target_offset`` with the source record of ``source_offset``.

    ``records`` is how far before the first record not yet copied it starts; 0: it jumps exactly to that record.
    """

    source_offset: int
    target_offset: int
    records: int


@dataclass(slots=True)
class Verdict:
    """The findings of one partition: ``findings`` keeps the first few of each invariant, ``breaches`` counts all."""

    topic: str
    partition: int
    max_findings: int = 20
    source_records: int = 0
    target_records: int = 0
    repeated_records: int = 0
    unreached_records: int = 0
    """The missing records (I1) at the end, after which the target has nothing: they may still come."""
    rewinds: list[Rewind] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    breaches: Counter[str] = field(default_factory=Counter)

    @property
    def ok(self) -> bool:
        return not self.breaches

    @property
    def rewound_records(self) -> int:
        return sum(rewind.records for rewind in self.rewinds)

    def add(
        self, invariant: str, what: str, *, source_offset: int | None, target_offset: int | None, times: int = 1
    ) -> None:
        """Record a breach; ``times`` is the number of records concerned."""
        if sum(finding.invariant == invariant for finding in self.findings) < self.max_findings:
            self.findings.append(Finding(invariant, self.topic, self.partition, source_offset, target_offset, what))
        self.breaches[invariant] += times

    def judge_rewinds(self, *, max_rewinds: int | None, max_rewound_records: int | None) -> None:
        """Compare the rewinds with the allowed ones; None allows any number."""
        count, records = len(self.rewinds), self.rewound_records
        if max_rewinds is not None and count > max_rewinds:
            first = self.rewinds[max_rewinds]
            self.add(
                "I3",
                f"{count} rewinds over {records} records, {max_rewinds} allowed; this is the first too many",
                source_offset=first.source_offset,
                target_offset=first.target_offset,
                times=count - max_rewinds,
            )
        if max_rewound_records is not None and records > max_rewound_records:
            widest = max(self.rewinds, key=lambda rewind: rewind.records)
            self.add(
                "I3",
                f"{records} records rewound, {max_rewound_records} allowed; the widest is this, {widest.records}",
                source_offset=widest.source_offset,
                target_offset=widest.target_offset,
            )


def _offset(offset: int | None) -> str:
    return "-" if offset is None else str(offset)
