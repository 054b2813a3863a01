"""What a verification costs an executor: ``python -m bench.verify``; see docs/benchmarks.md.

Two clusters of one node have the same records. This process compares them as a Spark task does, without Spark. Measured
are the source's bytes and records for each CPU second of this process, which reads both sides.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import os
import platform
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import uvloop

from bench.batches import json_text
from bench.campaign import add_arguments
from bench.machine import commit, hardware
from bench.pages import Facts, first_lines, save, table, today
from bench.runs import Run, RunLog
from deploy.local.kafka import KafkaCluster
from deploy.local.ports import HOST
from mm2py.backfill.verifying.comparing import RangeComparison
from mm2py.backfill.verifying.ranges import LEAF_OFFSETS, ComparedRange
from mm2py.backfill.verifying.reading import ComparedRangeReader, Sides
from mm2py.clock import SystemClock
from mm2py.copying.reading.limits import RateLimit
from mm2py.kafka.cluster import Cluster
from mm2py.offsets.runs import Run as Stretch
from mm2py.records.batch import NewRecord, build_batch
from mm2py.records.compression import Codec
from tests.cluster.kafka_client import create_topic
from tests.cluster.raw_batches import append_rows

TOTAL_BYTES: Final = 256 << 20
"""Bytes on each side, before compression."""
VALUES: Final = 997
GOAL_MB: Final = 300
GOAL_RECORDS: Final = 300_000


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of the compared batches."""

    title: str
    value_bytes: int
    source_batch: int
    """Records in each batch of the source; ``target_batch``: of the target."""
    target_batch: int
    codec: Codec = Codec.NONE
    total_bytes: int = TOTAL_BYTES

    @property
    def is_passed(self) -> bool:
        return self.source_batch == self.target_batch

    @property
    def records(self) -> int:
        """The number of records: whole batches on both sides, and whole leaves."""
        step = self.source_batch * self.target_batch * 8
        return max(self.total_bytes // (self.value_bytes + 20) // step, 1) * step


SHAPES: Final = {
    "passed-150": Shape("passed, 150 records of 1 KB a batch", 1000, 150, 150),
    "passed-16": Shape("passed, 16 records of 1 KB a batch", 1000, 16, 16),
    "passed-zstd": Shape("passed, 150 records of 1 KB a batch, zstd", 1000, 150, 150, Codec.ZSTD),
    "records-1000": Shape("by record: 1 KB, 16 a batch on the source, 150 on the target", 1000, 16, 150),
    "records-200": Shape("by record: 200 bytes, 16 a batch on the source, 400 on the target", 200, 16, 400),
    "records-single": Shape(
        "by record: 200 bytes, a batch each on the source, 400 on the target", 200, 1, 400, total_bytes=32 << 20
    ),
}


def batches(shape: Shape, size: int) -> Iterator[bytes]:
    """Yield the same records in batches of any size."""
    rng = random.Random(1)
    records = [NewRecord(b"key-%d" % at, json_text(rng, shape.value_bytes), 1_760_000_000_000) for at in range(VALUES)]
    cycle = itertools.cycle(records)
    for _ in range(shape.records // size):
        yield bytes(build_batch([*itertools.islice(cycle, size)], codec=shape.codec))


def fill(cluster: KafkaCluster, topic: str, shape: Shape, size: int) -> None:
    """Create a topic with all records."""
    create_topic(cluster, topic, 1, {"retention.ms": "-1", "max.message.bytes": "2000000"})
    append_rows(cluster, topic, ({0: batch} for batch in batches(shape, size)))


async def measure(shape: Shape, topic: str, clusters: Sequence[KafkaCluster]) -> dict[str, float]:
    """Compare both topics once. Returns how much is compared in a CPU second."""
    rng = random.Random(1)
    brokers = []
    for name, cluster in zip("AB", clusters, strict=True):
        brokers.append(Cluster(name, [(HOST, cluster.brokers[0].port)], rng=rng, client_id="bench"))
    reader = ComparedRangeReader(
        Sides(("A", "B"), (brokers[0], brokers[1])), clock=SystemClock(), rng=rng, rate=RateLimit(None)
    )
    count = shape.records
    whole = ComparedRange(0, topic, 0, topic, (0, count), (0, count), (Stretch(0, 0, count),))
    step = max((64 << 20) // (shape.value_bytes + 20) // LEAF_OFFSETS, 1) * LEAF_OFFSETS
    gc.collect()
    begun_s, begun_cpu_s, size = time.monotonic(), time.process_time(), 0
    for start in range(0, count, step):
        found = await reader.compare(whole.cut(start, start + step))
        assert isinstance(found, RangeComparison)
        assert all(leaf.source == leaf.target for leaf in found.leaves)
        size += found.passed_bytes + found.decoded_bytes
    cpu_s, seconds = time.process_time() - begun_cpu_s, time.monotonic() - begun_s
    for one in brokers:
        await one.close()
    return {
        "mb": size / 1e6 / cpu_s,
        "records": count / cpu_s,
        "cpu_s": cpu_s,
        "seconds": seconds,
        "load": os.getloadavg()[0],
    }


def report(runs: Sequence[Run], facts: Facts) -> str:
    """Return the page of results. Pure."""
    lines = first_lines("What a verification costs an executor", facts)
    lines += [
        f"{TOTAL_BYTES >> 20} MB of records on each of two brokers on the same machine (32 MB where each record is a"
        " batch), compared in ranges of 64 MB by one process. *MB* and *records* are those of the source for each CPU"
        " second of that process, which reads both sides. The best of all rounds; *load* is what the machine did"
        " besides.",
        "",
    ]
    rows = []
    for name, shape in SHAPES.items():
        found = [run.measures for run in runs if run.workload == name and run.measures]
        if found:
            best = max(found, key=lambda one: one["records"])
            goal, key = (GOAL_MB, "mb") if shape.is_passed else (GOAL_RECORDS, "records")
            held = "held" if best[key] >= goal else "**missed**"
            told = f"{goal:,} {'MB' if shape.is_passed else 'records'}: {held}"
            rows.append([shape.title, f"{best['mb']:,.0f}", f"{best['records']:,.0f}", f"{best['load']:.1f}", told])
    lines += table(["", "MB a CPU second", "records a CPU second", "load", "goal"], rows)
    return "\n".join([*lines, ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all shapes in turn, and print how much is compared in a CPU second."""
    parser = argparse.ArgumentParser(prog="python -m bench.verify", description="What a verification costs.")
    parser.add_argument("--rounds", type=int, default=8)
    add_arguments(parser, "verify")
    options = parser.parse_args(arguments)
    facts = {"date": today(), "commit": commit(), "machine": {**hardware(), "python": platform.python_version()}}
    log = RunLog(options.runs / "verify.jsonl", {"commit": commit()}, resume=options.resume)
    with KafkaCluster("source") as source, KafkaCluster("target") as target:
        for name, shape in SHAPES.items():
            wanted = [number for number in range(options.rounds) if not log.has((name, "mm2py", number), shape.records)]
            if wanted:
                fill(source, name, shape, shape.source_batch)
                fill(target, name, shape, shape.target_batch)
            for number in wanted:
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    found = runner.run(measure(shape, name, (source, target)))
                log.add(Run(name, "mm2py", number, shape.records, found))
                print(name, {key: round(one, 2) for key, one in found.items()}, flush=True)
    page = report(log.runs, facts)
    print(page)
    if options.save:
        save("verify", page, facts, log.runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
