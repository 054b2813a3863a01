"""Checks the effects of transactions: whether readers of committed records see all records.

I4: a record that only readers of uncommitted records see is part of an aborted transaction. mm2py writes data without
transactions, so there must be no such record. I13: no transaction is left open, which would hide all records after it:
the last stable offset is the high watermark.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

from tests.checker.check import LOOK_AGAIN_S
from tests.checker.dump import Bounds, Reader
from tests.checker.verdict import Finding


def judge_transactions(
    bootstrap: str, topics: Collection[str], *, wait_s: float = 0.0, settings: Mapping[str, Any] | None = None
) -> list[Finding]:
    """Return the breaches of I4 and I13 in the partitions of some topics.

    Args:
        wait_s: how long to wait for the end of an open transaction.
    Raises:
        DumpFailed, KafkaException: the cluster cannot be read.
    """
    deadline_s = time.monotonic() + wait_s
    findings: list[Finding] = []
    with (
        Reader(bootstrap, read_committed=True, settings=settings) as committed,
        Reader(bootstrap, read_committed=False, settings=settings) as uncommitted,
    ):
        for topic in topics:
            for number in range(uncommitted.partitions(topic)):
                while True:  # first the end of all records: new records move both ends
                    end = uncommitted.bounds(topic, [number])[number].end
                    stable = committed.bounds(topic, [number])[number]
                    if stable.end >= end or time.monotonic() >= deadline_s:
                        break
                    time.sleep(LOOK_AGAIN_S)
                if stable.end < end:
                    what = f"a transaction is open: committed records end there, the log at {end}"
                    findings.append(Finding("I13", topic, number, None, stable.end, what))
                findings += _aborted(committed, uncommitted, topic, number, Bounds(stable.start, min(end, stable.end)))
    return findings


def _aborted(committed: Reader, uncommitted: Reader, topic: str, number: int, bounds: Bounds) -> list[Finding]:
    """Return the first record, if any, that only a reader of uncommitted records sees."""
    seen = committed.records(topic, number, *bounds)
    expected = next(seen, None)
    for record in uncommitted.records(topic, number, *bounds):
        if expected is None or record.offset != expected.offset:
            return [Finding("I4", topic, number, None, record.offset, "a record stands in an aborted transaction")]
        expected = next(seen, None)
    return []
