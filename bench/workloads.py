"""Workloads: the shape and the size of each source topic. Pure.

A *copy* workload is complete before a mirror starts; the speed of the mirror is measured. A *paced* workload is written
while a warm mirror runs; its latency is measured, and the mirror's cost at this pace.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from mm2py.records.compression import Codec


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of every batch of a topic."""

    value_bytes: int
    records_per_batch: int
    codec: Codec = Codec.NONE
    is_uneven: bool = False
    """The values of a batch have 0.25, 0.5, 1 or 2.25 times the length, at random. The mean stays the same."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One source topic. Several workloads may use the same topic."""

    name: str
    title: str
    topic: str
    partitions: int
    shape: Shape
    records: int
    """The records in the topic before a mirror starts: all of a copy, the warm-up of a paced workload."""
    tls: bool = False
    """Both sides of the flow are encrypted."""
    pace: Pace | None = None

    @property
    def record_bytes(self) -> int:
        """Bytes of one record's value. Keys and headers are absent; a codec does not change this number."""
        return self.shape.value_bytes

    def with_records(self, records: int) -> Workload:
        """Return this workload with at least this many records, which fill whole batches in every partition."""
        row = self.shape.records_per_batch * self.partitions
        return replace(self, records=-(-records // row) * row)


@dataclass(frozen=True, slots=True)
class Pace:
    """What is written while the mirror runs."""

    per_second: int
    active_partitions: int
    """How many partitions, from the first on, get the records in rotation; the others get none."""
    settle_s: float
    """The time after the pace starts that is not counted."""
    measured_s: float


KILOBYTE: Final = 1_024
PARTITIONS: Final = 12
SMALL: Final = Shape(KILOBYTE, 16)

UNCOMPRESSED: Final = Workload(
    "uncompressed", "1 KB, 16 records a batch, uncompressed", "uncompressed", PARTITIONS, SMALL, 1_000_000
)
ZSTD: Final = Workload(
    "zstd", "1 KB, 150 records a batch, zstd", "zstd", PARTITIONS, Shape(KILOBYTE, 150, Codec.ZSTD), 1_000_000
)
SINGLE: Final = Workload("single", "200 B, one record a batch", "single", PARTITIONS, Shape(200, 1), 1_000_000)
ONE_PARTITION: Final = Workload(
    "one_partition", "1 KB, 16 records a batch, one partition", "one_partition", 1, SMALL, 1_000_000
)
TLS: Final = Workload(
    "tls", "1 KB, 16 records a batch, both sides TLS", "uncompressed", PARTITIONS, SMALL, 1_000_000, tls=True
)
LATENCY: Final = Workload(
    "latency",
    "1 KB at 1,000 records/s, warm",
    "latency",
    PARTITIONS,
    Shape(KILOBYTE, 16),
    200_000,
    pace=Pace(per_second=1_000, active_partitions=PARTITIONS, settle_s=15.0, measured_s=20.0),
)
IDLE: Final = Workload(
    "idle",
    "1,000 partitions, 20 of them with a record a second",
    "idle",
    1_000,
    Shape(KILOBYTE, 1),
    1_000,
    pace=Pace(per_second=20, active_partitions=20, settle_s=5.0, measured_s=30.0),
)
WORKLOADS: Final = {each.name: each for each in (UNCOMPRESSED, ZSTD, SINGLE, ONE_PARTITION, TLS, LATENCY, IDLE)}

QUICK_RECORDS: Final = 100_000
QUICK: Final = ("uncompressed", "zstd", "single", "latency")


def chosen(
    names: list[str] | None, *, quick: bool = False, records: int | None = None, seconds: float | None = None
) -> list[Workload]:
    """Return the workloads of one bench, in whole batches.

    Args:
        names: of ``WORKLOADS``; None takes all, or those of a quick bench.
        records: for copy workloads, instead of their own.
        seconds: for paced workloads, how long to measure instead of their own.
    """
    found = []
    for name in names or (QUICK if quick else WORKLOADS):
        workload = WORKLOADS[name]
        if workload.pace is None:
            wanted = records or (QUICK_RECORDS if quick else workload.records)
        else:
            wanted = 50_000 if quick and workload.records > 50_000 else workload.records
            measured_s = seconds or (6.0 if quick else workload.pace.measured_s)
            settle_s = 3.0 if quick else workload.pace.settle_s
            workload = replace(workload, pace=replace(workload.pace, measured_s=measured_s, settle_s=settle_s))
        found.append(workload.with_records(wanted))
    return found
