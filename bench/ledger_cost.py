"""What the ledger costs an owner for each copied record: ``python -m bench.ledger_cost``; see docs/benchmarks.md.

There is no broker. Acknowledged batches go into ``NewRuns``, and ``LedgerKeeper`` makes the encoded records of the
ledger topic from them, as in a worker: offset syncs are checked every half second, chunks are written every second. CPU
seconds per million records are measured from ``NewRuns.add`` to the encoded chunk. The cost of the offset syncs from
the same runs is measured separately.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import platform
import statistics
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from bench.campaign import add_arguments
from bench.machine import commit, hardware
from bench.pages import Facts, first_lines, save, table, today
from bench.runs import Run, RunLog
from mm2py.copying.copied_partition import CopiedPartition
from mm2py.copying.copier import Copier
from mm2py.copying.events import CopySettings, Event
from mm2py.copying.planning.steps import TargetRules
from mm2py.copying.positions import Position
from mm2py.flow import TopicName
from mm2py.kafka.internal_topic import TopicWriter
from mm2py.kafka.port import ProducerIdentity
from mm2py.offsets.runs import Run as Stretch
from mm2py.offsets.sync_rule import SyncRule
from mm2py.offsets.sync_store import SLOTS
from mm2py.records import offset_sync
from mm2py.records.batch import NewRecord
from mm2py.records.offset_sync import OffsetSync
from mm2py_connectors.source.task.ledger_keeper import LedgerKeeper
from tests.fakes.flow_context import make_context

PARTITIONS: Final = 12
RECORDS: Final = 1_000_000
PER_SECOND: Final = 100_000
"""Records a second, all partitions together."""
LOOKS_A_SECOND: Final = 2
ROUNDS: Final = 7
TRANSACTION_RECORDS: Final = 10
LAG_MAX: Final = 100
"""``offset.lag.max``, its default."""
GOAL_S: Final = 0.05
"""CPU seconds per million records of a plain topic."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of the copied batches."""

    title: str
    batch_records: int
    """How many records the target acknowledges at once."""
    is_transactional: bool = False
    """A marker, which is not copied, follows every ten records."""


SHAPES: Final[Mapping[str, Shape]] = {
    "plain-16": Shape("plain, 16 records a batch", 16),
    "plain-150": Shape("plain, 150 records a batch", 150),
    "transactions-10": Shape("a marker every 10 records, one transaction a batch", 10, is_transactional=True),
    "transactions-150": Shape("a marker every 10 records, 15 transactions a batch", 150, is_transactional=True),
}

Batch = tuple[int, int, int, tuple[tuple[int, int], ...]]
"""First source offset, first target offset, number of records, and where its stretches begin: ``Outgoing.runs``."""


class LedgerTopic:
    """Replaces the ledger topic's writer, and counts records and bytes."""

    topic = "mm2-ledger.A.internal"
    times_recreated = 0

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0

    async def write(self, records: Mapping[int, Sequence[NewRecord]]) -> None:
        for some in records.values():
            self.records += len(some)
            self.bytes += sum(len(one.key or b"") + len(one.value or b"") for one in some)


class Owner:
    """A partition that a worker copies, and its batches as the target acknowledges them."""

    def __init__(self, shape: Shape, number: int) -> None:
        self._shape = shape
        copier = Copier(
            f"orders-{number}",
            Position(source_offset=0, source_leader_epoch=0, target_offset=0, target_leader_epoch=0, sequence=0),
            ProducerIdentity(7, 0, None),
            CopySettings(ready_max_bytes=1 << 20),
        )
        self.part = CopiedPartition("orders", "A.orders", number, copier, TargetRules(max_message_bytes=1 << 20), self)
        self.rule = SyncRule()
        self.syncs: deque[tuple[int, int]] = deque(maxlen=SLOTS)

    def tell(self, part: CopiedPartition, event: Event, /) -> None:
        """Do nothing: only ``next_batches`` changes the copier."""

    def sent(self, part: CopiedPartition, /) -> None:
        """Do nothing: nothing is sent."""

    def read_elsewhere(self, part: CopiedPartition, /) -> None:
        """Do nothing: nothing is read."""

    def next_batches(self, records: int) -> list[Batch]:
        """Return the next batches, with at least this many records."""
        found: list[Batch] = []
        at, size = self.part.copier.position, self._shape.batch_records
        source, target = at.source_offset, at.target_offset or 0
        begun = target
        while target - begun < records:
            starts: tuple[tuple[int, int], ...] = ((0, source),)
            source_end = source + size
            if self._shape.is_transactional:
                stretches = range(0, size, TRANSACTION_RECORDS)
                starts = tuple((index, source + index + index // TRANSACTION_RECORDS) for index in stretches)
                source_end = source + size + len(starts)
            found.append((source, target, size, starts))
            source, target = source_end, target + size
        self.part.copier.position = at._replace(source_offset=source, target_offset=target)
        return found

    def acknowledge(self, batches: Sequence[Batch]) -> None:
        """Note batches as ``Copier`` does."""
        new_runs = self.part.copier.new_runs
        for source, target, count, starts in batches:
            if len(starts) > 1:
                new_runs.add_batch(starts, target, count)
            else:
                new_runs.add(source, target, count)

    def note_syncs(self, runs: Sequence[Stretch]) -> None:
        """Note which offset syncs are due as ``OffsetSyncs`` does."""
        for run in runs:
            self.syncs.extend(self.rule.stored(*run, lag_max=LAG_MAX))

    def encode_syncs(self) -> None:
        for source, target in self.syncs:
            offset_sync.encode(OffsetSync(TopicName("orders"), self.part.partition, source, target), 0)
        self.syncs.clear()


async def measure(shape: Shape, records: int) -> dict[str, float]:
    """Copy this many records at ``PER_SECOND``. Returns CPU seconds and counts per million records."""

    async def make_topic() -> None:
        """Do nothing: the topic always exists."""

    topic = LedgerTopic()
    keeper = LedgerKeeper(make_context(), PARTITIONS, cast("TopicWriter", topic), make_topic)
    owners = [Owner(shape, number) for number in range(PARTITIONS)]
    for owner in owners:
        keeper.start(owner.part)
    gc.collect()
    gc.freeze()
    spent = {"noting_s": 0.0, "writing_s": 0.0, "syncs_s": 0.0}
    copied, look = 0, 0
    while copied < records:
        look += 1
        batches = [owner.next_batches(PER_SECOND // LOOKS_A_SECOND // PARTITIONS) for owner in owners]
        copied += sum(one[2] for some in batches for one in some)
        begun_s = time.process_time()
        for owner, some in zip(owners, batches, strict=True):
            owner.acknowledge(some)
        noted_s = time.process_time()
        runs = [keeper.take_runs(owner.part) for owner in owners]
        taken_s = time.process_time()
        for owner, found in zip(owners, runs, strict=True):
            owner.note_syncs(found)
            owner.encode_syncs()
        synced_s = time.process_time()
        if look % LOOKS_A_SECOND == 0:
            chunks = {owner.part: keeper.chunks(owner.part) for owner in owners}
            await keeper.store({part.key: some_chunks for part, some_chunks in chunks.items()})
            for part, some_chunks in chunks.items():
                keeper.written(part, some_chunks)
        written_s = time.process_time()
        spent["noting_s"] += noted_s - begun_s
        spent["writing_s"] += taken_s - noted_s + written_s - synced_s
        spent["syncs_s"] += synced_s - taken_s
    millions = copied / 1e6
    measures = {name: seconds / millions for name, seconds in spent.items()}
    measures["ledger_s"] = measures["noting_s"] + measures["writing_s"]
    return {**measures, "chunks": topic.records / millions, "bytes": topic.bytes / millions}


def report(runs: Sequence[Run], facts: Facts) -> str:
    """Return the page of results. Pure."""
    lines = first_lines("What the ledger costs an owner", facts)
    rounds = len({run.round for run in runs})
    lines += [
        f"{RECORDS:,} records of {PARTITIONS} partitions, {PER_SECOND:,} a second, {rounds} rounds. CPU seconds per"
        " million records: the median, and the largest round. *Noting* is `NewRuns.add`; *writing* is everything from"
        " there to the encoded chunks, once a second. *Offset syncs* are the rule and its records, made from the"
        " same runs. Chunks and bytes are what goes to the ledger topic for a million records, before compaction.",
        "",
    ]
    rows = []
    for name, shape in SHAPES.items():
        found = [run.measures for run in runs if run.workload == name and run.measures]
        if not found:
            continue
        seconds = [
            f"{statistics.median(one[key] for one in found):.4f} ({max(one[key] for one in found):.4f})"
            for key in ("noting_s", "writing_s", "ledger_s", "syncs_s")
        ]
        held = "" if shape.is_transactional else "held" if _median(found, "ledger_s") < GOAL_S else "**missed**"
        rows.append([shape.title, *seconds, *(f"{_median(found, key):,.0f}" for key in ("chunks", "bytes")), held])
    goal = f"goal: under {GOAL_S:g} s"
    lines += table(["", "noting", "writing", "the ledger", "offset syncs", "chunks", "bytes", goal], rows)
    return "\n".join([*lines, ""])


def _median(found: Sequence[Mapping[str, float]], key: str) -> float:
    return statistics.median(one[key] for one in found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all shapes in turn, and print the cost."""
    parser = argparse.ArgumentParser(prog="python -m bench.ledger_cost", description="What the ledger costs.")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    add_arguments(parser, "ledger-cost")
    options = parser.parse_args(arguments)
    gc.set_threshold(50_000, 20, 100)  # as ``mm2py/cli/main.py`` does
    facts = {
        "date": today(),
        "commit": commit(),
        "machine": {**hardware(), "python": platform.python_version()},
    }
    log = RunLog(options.runs / "ledger-cost.jsonl", {"commit": commit()}, resume=options.resume)
    for number in range(options.rounds):
        for name, shape in SHAPES.items():
            if not log.has((name, "mm2py", number), RECORDS):
                log.add(Run(name, "mm2py", number, RECORDS, asyncio.run(measure(shape, RECORDS))))
    page = report(log.runs, facts)
    print(page)
    if options.save:
        save("ledger-cost", page, facts, log.runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
