"""The demo's sample topics, and the traffic on them: the variety of real clusters, at a steady rate.

The traffic, and the ledger of acknowledged records, are those of the tests. The topics use all codecs. On each cluster
one topic has transactions of which some are aborted, and one topic is compacted. Each topic has a history before the
mirror starts; that of compacted topics has the holes that compaction leaves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from tests.checker.dump import Reader
from tests.checker.ledger import Ledger
from tests.checker.load import Load, LoadFailed, create_topic
from tests.checker.traffic import Planned, Traffic

ABORT_SHARE: Final = 0.25
HISTORY_RECORDS: Final = 100
COMPACTED_RECORDS: Final = 3_000
COMPACTED_KEYS: Final = 60
CLEANED_S: Final = 30.0
DELIVERY_MS: Final = 20_000
"""The demo ends if a broker accepts no record for this long."""
KEPT_BYTES: Final = 64 << 20
SEGMENT_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """A topic of the demo and how it is written."""

    topic: str
    partitions: int
    per_second: int
    codecs: Sequence[str]
    transactional: bool = False
    compacted: bool = False
    plain: bool = False
    """Ordinary records only, no odd shapes."""

    def configs(self, *, endless: bool) -> dict[str, str]:
        """Return the topic's configuration; an ``endless`` demo keeps few records, so that the disk does not fill."""
        if self.compacted:
            return {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.001"}
        if endless:
            return {"retention.bytes": str(KEPT_BYTES), "segment.bytes": str(SEGMENT_BYTES)}
        return {}


SAMPLES: Mapping[str, Sequence[Sample]] = {
    "west-1": (
        Sample("accounts", 2, 200, ["snappy"], compacted=True),
        Sample("clicks", 6, 2_000, ["lz4"], plain=True),
        Sample("orders", 3, 500, ["none", "gzip"]),
        Sample("payments", 2, 300, ["zstd"], transactional=True),
    ),
    "west-2": (
        Sample("invoices", 3, 500, ["gzip", "zstd"]),
        Sample("prices", 2, 200, ["none"], compacted=True),
        Sample("refunds", 2, 200, ["lz4"], transactional=True),
    ),
}


class TrafficOfNow(Traffic):
    """Traffic whose records carry the time of their sending, so that lag in seconds has a meaning."""

    def records(self) -> Iterator[Planned]:
        for record in super().records():
            yield record._replace(timestamp_ms=int(time.time() * 1000))


class Writer:
    """Writes one sample topic on one cluster: ``prepare`` once, then ``run``."""

    def __init__(self, bootstrap: str, sample: Sample, ledger: Ledger | None) -> None:
        """``ledger`` gets the acknowledged records; an endless demo, which compares nothing, has none."""
        self.sample = sample
        self._bootstrap = bootstrap
        self._ledger = ledger
        self._traffic: Load | None = None

    def prepare(self, halt: threading.Event) -> None:
        """Create the topic and its history; a compacted one has been cleaned when this returns.

        Raises:
            LoadFailed, KafkaException: the cluster does not take the records, or its cleaner does not run.
        """
        sample = self.sample
        create_topic(self._bootstrap, sample.topic, sample.partitions, sample.configs(endless=self._ledger is None))
        records = COMPACTED_RECORDS if sample.compacted else HISTORY_RECORDS
        self._load(seed=1, abort_share=0.0).run(records=records, stop=halt)
        if sample.compacted:
            self._await_cleaning(halt)
        self._traffic = self._load(seed=2, per_second=sample.per_second)

    def run(self, halt: threading.Event) -> None:
        """Write at the sample's rate until ``halt``; all records are acknowledged when this returns.

        Raises:
            LoadFailed, KafkaException: the cluster does not take the records.
        """
        if self._traffic is not None:
            self._traffic.run(stop=halt)

    def committed(self) -> int:
        """Return the number of records that were written and not aborted, according to the ledger."""
        if self._ledger is None:
            return 0
        entries = (self._ledger.of(self.sample.topic, number) for number in range(self.sample.partitions))
        return sum(not entry.is_aborted for of_partition in entries for entry in of_partition)

    def _load(self, *, seed: int, per_second: int | None = None, abort_share: float = ABORT_SHARE) -> Load:
        sample = self.sample
        return Load(
            self._bootstrap,
            sample.topic,
            TrafficOfNow(
                crc32(sample.topic.encode()) + seed,
                sample.partitions,
                producer=seed,
                compacted=sample.compacted,
                keys=COMPACTED_KEYS if sample.compacted else 1_000,
                plain=sample.plain,
            ),
            self._ledger,
            codecs=sample.codecs,
            per_second=per_second,
            transactional_id=f"demo-{sample.topic}" if sample.transactional else None,
            abort_share=abort_share,
            settings={"delivery.timeout.ms": DELIVERY_MS},
        )

    def _await_cleaning(self, halt: threading.Event) -> None:
        """Wait until the cleaner has run on every partition. It reaches the earlier records only after a new one."""
        more = self._load(seed=3)
        late_s = time.monotonic() + CLEANED_S
        numbers = range(self.sample.partitions)
        with Reader(self._bootstrap, read_committed=True) as reader:
            while not halt.wait(0.25):  # a cleaner does not report that it has run
                if time.monotonic() > late_s:
                    raise LoadFailed(f"{self.sample.topic} was not cleaned within {CLEANED_S:g} s.")
                more.run(records=4 * self.sample.partitions)
                bounds = reader.bounds(self.sample.topic, numbers)
                logs = ((at, sum(1 for _ in reader.records(self.sample.topic, n, *at))) for n, at in bounds.items())
                if all(records < at.end - at.start for at, records in logs):
                    return
