"""What checkpoints of a very large flow cost: ``python -m bench.checkpoints_model``; see docs/benchmarks.md.

The checkpoint connector works between two broker models of ``tests/fakes``, in virtual time. CPU time is real: that of
the process, minus that of the models. Replies pass through kio as bytes, so that decoding them counts. Every answer is
compared with the real places of the copies.

Memory is measured in a separate run, because ``tracemalloc`` slows everything down.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import platform
import random
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

from kio.serial import entity_reader

from bench.campaign import add_arguments
from bench.machine import commit, hardware
from bench.pages import Facts, first_lines, save, table, today
from bench.runs import Run, RunLog
from mm2py.flow import TopicName
from mm2py.kafka.port import BrokerId, Brokers, FetchRequest, ProduceRequest, TopicPartition
from mm2py.kafka.transport.connection import encode as encode_entity
from mm2py.offsets.runs import Run as Stretch
from mm2py.records import offset_sync
from mm2py.records.ledger_record import ChunkKey, LedgerChunk, encode, encode_key
from mm2py.records.offset_sync import OffsetSync
from mm2py_connectors.checkpoint.connector import LOOK_EVERY_S, CheckpointConnector
from mm2py_connectors.checkpoint.ledger_upkeep import FIRST_AFTER_S
from tests.fakes.broker.broker_model import ClusterModel
from tests.fakes.broker.record_batch import Record
from tests.fakes.virtual_time import run_virtual
from tests.scenarios.world import World

PARTITIONS: Final = 50_000
LONG_PARTITIONS: Final = 100
"""How many of them are transactional and have many runs."""
RUNS: Final = 100_000
GROUPS: Final = 10_000
COMMITS: Final = 5
"""Of each group."""
ROUNDS: Final = 3
RUN_RECORDS: Final = 10
CHUNK_RUNS: Final = 256
TOPIC_PARTITIONS: Final = 100
LEDGER: Final = "mm2-ledger.A.internal"
LEDGER_PARTITIONS: Final = 25
CHECKPOINTS: Final = "A.checkpoints.internal"
SYNCS: Final = "mm2-offset-syncs.B.internal"
BATCH_RECORDS: Final = 2_000
LOOKS: Final = 5
MEMORY_GOAL_MB: Final = 300
PHASES: Final[Mapping[str, tuple[str, float | None]]] = {
    "start_s": ("start: reads the ledger topic and the offset syncs", 20.0),
    "first_round_s": ("first round: every commit is new", 10.0),
    "look_s": ("a look at which nothing is due, every 2 s", None),
    "upkeep_s": ("a look at large ledgers, every five minutes", None),
    "moved_round_s": ("next round: every group and every partition has moved", 10.0),
    "quiet_round_s": ("next round: nothing has moved", 10.0),
    "restart_s": ("start of the next worker: reads checkpoints as well", 20.0),
    "restart_round_s": ("its first round: nothing has moved", 10.0),
}
"""What is measured, and the goal in CPU seconds."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the flow."""

    partitions: int = PARTITIONS
    long_partitions: int = LONG_PARTITIONS
    runs: int = RUNS
    groups: int = GROUPS

    @property
    def text(self) -> str:
        return f"{self.partitions}/{self.long_partitions}/{self.runs}/{self.groups}"


class TimedCluster(ClusterModel):
    """A broker model that measures its CPU time."""

    spent_s = 0.0

    def _serve(self, node: int, request: object, done: Callable[[object], None]) -> Any:
        with self.spending():
            return super()._serve(node, request, done)

    @contextmanager
    def spending(self) -> Iterator[None]:
        begun_s = time.process_time()
        try:
            yield
        finally:
            self.spent_s += time.process_time() - begun_s


class Wire:
    """Sends the connector's requests to a model. It encodes and decodes requests and replies as ``Cluster`` does."""

    def __init__(self, cluster: TimedCluster) -> None:
        self._cluster = cluster

    async def send(self, broker: BrokerId, request: Any, *, channel: str = "control") -> Any:
        if isinstance(request, (FetchRequest, ProduceRequest)):
            return await self._cluster.send(broker, request, channel=channel)
        encode_entity(request)
        reply = await self._cluster.send(broker, request, channel=channel)
        with self._cluster.spending():
            data = encode_entity(reply)
        return entity_reader(type(reply))(data, 0)[0]


class Scene:
    """The clusters of a flow that copies; the first partitions are the transactional ones."""

    def __init__(self, seed: int, size: Size) -> None:
        self.size = size
        extra = {"emit.checkpoints.enabled": "true", "emit.checkpoints.interval.seconds": "60"}
        self.world = World(seed, extra=extra)
        self.clusters = [
            TimedCluster(name, self.world.clock, random.Random(seed), latency_s=(0.0002, 0.002)) for name in ("A", "B")
        ]
        self.source, self.target = self.clusters
        self._rng = random.Random(seed)
        self._end = [0] * size.partitions
        """How many records of each partition are copied."""
        self._commits: dict[tuple[str, TopicPartition], int] = {}
        self._long_values = [encode(one, 0).value for one in _long_chunks(size.runs)]
        self._create()
        self._write_long()
        self._write_plain(records=10_000)
        self._write_syncs()
        self._commit_all()

    def connector(self) -> CheckpointConnector:
        world = self.world
        source, target = (cast("Brokers", Wire(cluster)) for cluster in self.clusters)
        return CheckpointConnector(world.settings, source, target, clock=world.clock, rng=world.rng, log=world.log)

    def move(self) -> None:
        """Let every partition grow, each chunk be written again, and every group commit."""
        more = LedgerChunk(
            ChunkKey(TopicName(""), 0, 1, self.size.runs * (RUN_RECORDS + 1)),
            self.size.runs * RUN_RECORDS,
            tuple(_runs(self.size.runs, self.size.runs + CHUNK_RUNS)),
            (self.size.runs + CHUNK_RUNS) * (RUN_RECORDS + 1),
        )
        value = encode(more, 0).value
        self._append(
            Record(key=encode_key(ChunkKey(*self._name(at), 1, more.key.source_offset)), value=value)
            for at in range(self.size.long_partitions)
        )
        for at in range(self.size.long_partitions):
            self._end[at] += CHUNK_RUNS * RUN_RECORDS
        self._write_plain(records=20_000)
        self._commit_all()

    def wrong(self, checkpoints: Mapping[tuple[str, TopicPartition], Any]) -> list[object]:
        """Return the commits whose checkpoint is missing or not at the copy of their record."""
        wrong: list[object] = []
        for (group, (topic, partition)), copied in self._commits.items():
            one = checkpoints.get((group, (f"A.{topic}", partition)))
            if one is None or one.downstream_offset != copied:
                wrong.append((group, topic, partition, copied, one))
        return wrong

    @property
    def commits(self) -> int:
        return len(self._commits)

    def _name(self, at: int) -> tuple[TopicName, int]:
        return TopicName(f"topic-{at // TOPIC_PARTITIONS:05}"), at % TOPIC_PARTITIONS

    def _create(self) -> None:
        for at in range(0, self.size.partitions, TOPIC_PARTITIONS):
            name = str(self._name(at)[0])
            self.source.create_topic(name, TOPIC_PARTITIONS)
            self.target.create_topic(f"A.{name}", TOPIC_PARTITIONS)
        self.target.create_topic(LEDGER, LEDGER_PARTITIONS, {"cleanup.policy": "compact"})
        self.target.create_topic(CHECKPOINTS, 1, {"cleanup.policy": "compact"})
        self.source.create_topic(SYNCS, 1, {"cleanup.policy": "compact"})

    def _write_long(self) -> None:
        for at in range(self.size.long_partitions):
            starts = range(0, self.size.runs, CHUNK_RUNS)
            keys = [encode_key(ChunkKey(*self._name(at), 1, start * (RUN_RECORDS + 1))) for start in starts]
            pairs = zip(keys, self._long_values, strict=True)
            self._append((Record(key=key, value=value) for key, value in pairs), to=at)
            self._end[at] = self.size.runs * RUN_RECORDS

    def _write_plain(self, *, records: int) -> None:
        plain = range(self.size.long_partitions, self.size.partitions)
        for at in plain:
            self._end[at] = records
        chunks = (
            LedgerChunk(ChunkKey(*self._name(at), 1, 0), 0, (Stretch(0, 0, records),), records, True) for at in plain
        )
        self._append(Record(key=one.key, value=one.value) for one in (encode(chunk, 0) for chunk in chunks))

    def _append(self, records: Iterator[Record], *, to: int | None = None) -> None:
        """Append to the ledger topic: to one of its partitions, or to all in turn."""
        batches: dict[int, list[Record]] = {}
        for number, record in enumerate(records):
            batches.setdefault((number if to is None else to) % LEDGER_PARTITIONS, []).append(record)
        for partition, some in batches.items():
            for at in range(0, len(some), BATCH_RECORDS):
                self.target.append(LEDGER, partition, some[at : at + BATCH_RECORDS])

    def _write_syncs(self) -> None:
        records = []
        for at in range(self.size.partitions):
            for number in range(64 if at < self.size.long_partitions else 1):
                sync = OffsetSync(*self._name(at), number * 11_000, number * 10_000)
                made = offset_sync.encode(sync, 0)
                records.append(Record(key=made.key, value=made.value))
        for first in range(0, len(records), BATCH_RECORDS):
            self.source.append(SYNCS, 0, records[first : first + BATCH_RECORDS])

    def _commit_all(self) -> None:
        """Let every group commit in the same partitions as before, further on; each long partition has a group."""
        rng = random.Random(1)
        for number in range(self.size.groups):
            places = {rng.randrange(self.size.partitions) for _ in range(COMMITS - 1)}
            places.add(number if number < self.size.long_partitions else rng.randrange(self.size.partitions))
            group = f"consumer-group-{number:05}"
            commits = {}
            for at in places:
                name, copied = self._name(at), self._rng.randrange(self._end[at] // 2, self._end[at])
                before = self._commits.get((group, name), 0)
                copied = max(copied, before + 1)
                self._commits[group, name] = copied
                is_long = at < self.size.long_partitions
                commits[name] = (copied + copied // RUN_RECORDS if is_long else copied, "")
            self.source.groups.commit(group, cast("Any", commits))


def _runs(first: int, behind: int) -> Iterator[Stretch]:
    """Yield runs of ten records, with a marker between two runs."""
    return (Stretch(at * (RUN_RECORDS + 1), at * RUN_RECORDS, RUN_RECORDS) for at in range(first, behind))


def _long_chunks(runs: int) -> Iterator[LedgerChunk]:
    for first in range(0, runs, CHUNK_RUNS):
        behind = min(first + CHUNK_RUNS, runs)
        key = ChunkKey(TopicName(""), 0, 1, first * (RUN_RECORDS + 1))
        yield LedgerChunk(key, first * RUN_RECORDS, tuple(_runs(first, behind)), behind * (RUN_RECORDS + 1), first == 0)


class Watch:
    """Measures the CPU time of the connector: that of the process, minus that of the models."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.measures: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str, *, times: int = 1) -> Iterator[None]:
        begun_s = self._spent_s()
        yield
        self.measures[name] = (self._spent_s() - begun_s) / times

    def _spent_s(self) -> float:
        return time.process_time() - sum(cluster.spent_s for cluster in self._scene.clusters)


async def start(connector: CheckpointConnector) -> None:
    """Read everything that the first round needs. The connector does this at the beginning of that round."""
    connector._writer = await connector._make_writer()
    await connector._offsets.follow(())
    await connector._checkpoints.follow()


def check(scene: Scene, connector: CheckpointConnector) -> None:
    if wrong := scene.wrong(connector._checkpoints.last):
        raise AssertionError(f"{len(wrong)} of {scene.commits} checkpoints are wrong, such as {wrong[:3]}")


async def measure(seed: int, size: Size) -> dict[str, float]:
    """Return the CPU seconds of each phase."""
    scene = Scene(seed, size)
    watch = Watch(scene)
    gc.collect()
    gc.freeze()  # the models' records would slow down each collection
    gc.enable()  # as in a worker; virtual time switches it off
    try:
        connector = scene.connector()
        with watch.phase("start_s"):
            await start(connector)
        with watch.phase("first_round_s"):
            await connector._round()
        check(scene, connector)
        for _ in range(LOOKS):
            await asyncio.sleep(LOOK_EVERY_S)
        with watch.phase("look_s", times=LOOKS):
            for _ in range(LOOKS):
                await connector._round()
        await asyncio.sleep(FIRST_AFTER_S)
        with watch.phase("upkeep_s"):
            await connector._upkeep.run_if_due()
        scene.move()
        with watch.phase("moved_round_s"):
            await connector._round()
        check(scene, connector)
        await asyncio.sleep(FIRST_AFTER_S)
        with watch.phase("quiet_round_s"):
            await connector._round()
        next_connector = scene.connector()
        with watch.phase("restart_s"):
            await start(next_connector)
        with watch.phase("restart_round_s"):
            await next_connector._round()
        check(scene, next_connector)
    finally:
        gc.unfreeze()
    return {**watch.measures, "commits": scene.commits}


async def measure_memory(seed: int, size: Size) -> dict[str, float]:
    """Return the megabytes that the connector keeps: after reading, after its first round, and after the next one."""
    scene = Scene(seed, size)
    gc.collect()
    tracemalloc.start()
    try:
        connector = scene.connector()
        measures = {}
        await start(connector)
        measures["read_mb"] = _kept_mb()
        await connector._round()
        measures["first_round_mb"] = _kept_mb()
        check(scene, connector)
        await asyncio.sleep(FIRST_AFTER_S)
        tracemalloc.stop()  # the models' new records do not count
        scene.move()
        tracemalloc.start()
        before_mb = measures["first_round_mb"]
        await connector._round()
        measures["next_round_most_mb"] = before_mb + _kept_mb()
        measures["peak_mb"] = before_mb + tracemalloc.get_traced_memory()[1] / 1e6
        check(scene, connector)
    finally:
        tracemalloc.stop()
    return measures


def _kept_mb() -> float:
    gc.collect()
    return tracemalloc.get_traced_memory()[0] / 1e6


def report(runs: Sequence[Run], size: Size, facts: Facts) -> str:
    """Return the page of results. Pure."""
    times = [run.measures for run in runs if run.workload == "time" and run.measures]
    memory = [run.measures for run in runs if run.workload == "memory" and run.measures]
    lines = first_lines("Checkpoints of a very large flow, on the broker model", facts)
    seeds = ", ".join(str(run.round) for run in runs if run.workload == "time")
    lines += [
        f"{size.partitions:,} partitions, {size.long_partitions:,} of them transactional with {size.runs:,} runs each"
        f" (a marker every {RUN_RECORDS} records, chunks of {CHUNK_RUNS} runs), the others with one run;"
        f" {size.groups:,} groups with {COMMITS} commits each, at random, at least one in each transactional partition."
        " Two broker models in virtual time. CPU seconds are those of the process without the models; replies are"
        f" decoded from bytes. Each checkpoint was compared with the place of the copy. Seeds: {seeds}.",
        "",
    ]
    rows = []
    for name, (title, goal_s) in PHASES.items():
        found = [one[name] for one in times]
        if found:
            held = "" if goal_s is None else "held" if max(found) < goal_s else "**missed**"
            goal = "" if goal_s is None else f"{goal_s:g} s"
            rows.append([title, f"{statistics.median(found):.2f} s", f"{max(found):.2f} s", goal, held])
    lines += table(["CPU", "median", "largest", "goal", ""], rows)
    if memory:
        most = max(one["first_round_mb"] for one in memory)
        held = "held" if most < MEMORY_GOAL_MB else "**missed**"
        lines += [
            "",
            f"Memory by `tracemalloc`, in a run of its own: {memory[0]['read_mb']:.0f} MB when all is read,"
            f" {most:.0f} MB after the first round, in which every ledger was asked for (goal: under"
            f" {MEMORY_GOAL_MB} MB, {held}). After the next round, in which everything moved, at most"
            f" {memory[0]['next_round_most_mb']:.0f} MB: what that round replaced counts twice. The largest in between"
            f" was {memory[0]['peak_mb']:.0f} MB. What the models keep of the new checkpoints is part of all figures.",
        ]
    return "\n".join([*lines, ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the cost. The exit code is 1 if a checkpoint was wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.checkpoints_model", description="Checkpoints of a large flow."
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--long", type=int, default=LONG_PARTITIONS, help="how many of them have many runs")
    parser.add_argument("--runs-each", type=int, default=RUNS, help="how many runs those have")
    parser.add_argument("--groups", type=int, default=GROUPS)
    add_arguments(parser, "checkpoints-model")
    options = parser.parse_args(arguments)
    size = Size(options.partitions, options.long, options.runs_each, options.groups)
    facts = {"date": today(), "commit": commit(), "machine": {**hardware(), "python": platform.python_version()}}
    conditions = {"commit": commit(), "size": size.text}
    gc.set_threshold(50_000, 20, 100)  # as ``mm2py/cli/main.py`` does
    log = RunLog(options.runs / "checkpoints-model.jsonl", conditions, resume=options.resume)
    for seed in range(1, options.rounds + 1):
        if not log.has(("time", "mm2py", seed), size.groups):
            log.add(Run("time", "mm2py", seed, size.groups, run_virtual(measure(seed, size))))
            print(log.runs[-1].measures, flush=True)
    if not log.has(("memory", "mm2py", 1), size.groups):
        log.add(Run("memory", "mm2py", 1, size.groups, run_virtual(measure_memory(1, size))))
    page = report(log.runs, size, facts)
    print(page)
    if options.save:
        save("checkpoints-model", page, facts, log.runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
