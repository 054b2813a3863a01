"""What checkpoints of 1,000 groups cost, and how soon they come: ``python -m bench.checkpoints``.

See docs/benchmarks.md.

A worker copies topics between two brokers and emits checkpoints every second. Commits of groups come from outside, as
from ``kafka-consumer-groups.sh --reset-offsets``. A consumer of the checkpoints topic notes when each checkpoint
arrives. Rounds are timed in the bench's own process, with the same connector on the same brokers.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.campaign import add_arguments, carry_out
from bench.paced import percentile
from bench.pages import Facts, first_lines, table
from bench.processes import cpu_s, peak_mb, resident_mb
from bench.runs import Run, RunLog
from deploy.local.broker_settings import render_properties
from deploy.local.kafka import KafkaCluster
from mm2py.clock import SystemClock
from mm2py.config.configuration import read_settings_file
from mm2py.config.settings import FlowSettings
from mm2py.kafka.cluster import Cluster
from mm2py.kafka.errors import BrokerRefused
from mm2py.logs import make_logger
from mm2py.records.checkpoint import decode
from mm2py_connectors.checkpoint.connector import LOOK_EVERY_S, CheckpointConnector
from tests.cluster.kafka_client import create_topic, new_name
from tests.cluster.running import Mm2py, Value, one_way_properties

TOPICS: Final = 10
TOPIC_PARTITIONS: Final = 100
RECORDS: Final = 1_000
"""In each partition."""
GROUPS: Final = 1_000
COMMITS: Final = 5
"""Of each group."""
INTERVAL_S: Final = 1
SAMPLES: Final = 600
COMMITS_A_SECOND: Final = 15
QUIET_S: Final = 20.0
DEADLINE_S: Final = 120.0
ANSWER_S: Final = 60.0
AT_ONCE: Final = 100
CHECKPOINTS: Final = "A.checkpoints.internal"
TIMES: Final[Mapping[str, str]] = {
    "cold_first_s": "process start, nothing copied yet: until the first checkpoint",
    "cold_s": "the same: until all groups have their checkpoints",
    "warm_first_s": "process start, everything copied, every group has moved: until the first checkpoint",
    "warm_s": "the same: until all groups have their checkpoints",
    "first_round_s": "first round: everything is read, every group has moved",
    "moved_round_s": "a round in which every group has moved",
    "quiet_round_s": "a round in which no group has moved",
    "look_s": "a look at the states of all groups",
}
LATENCIES: Final[Mapping[str, str]] = {
    "copied": "the record before it was copied long ago",
    "fresh": "the record before it has just been written",
}

Place = tuple[str, str, int]
"""Group, topic of the source, partition."""


class Checkpoints:
    """Reads the checkpoints topic, and remembers when each checkpoint arrived."""

    def __init__(self, target: KafkaCluster) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": target.bootstrap,
                "group.id": "bench-checkpoints",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 5,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(CHECKPOINTS, 0, 0)])
        self._changed = threading.Condition()
        self._at_s: dict[tuple[Place, int], float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    def wait_for_all(self, commits: Mapping[Place, int], *, deadline_s: float = DEADLINE_S) -> tuple[float, float]:
        """Return when (``time.monotonic``) the first and the last of these commits had its checkpoint.

        Raises:
            AssertionError: one had none in time.
        """
        wanted = set(commits.items())
        end_s = time.monotonic() + deadline_s
        with self._changed:
            while missing := wanted - self._at_s.keys():
                assert time.monotonic() < end_s, f"{len(missing)} of {len(wanted)} commits have no checkpoint"
                self._changed.wait(0.5)
            found = [self._at_s[one] for one in wanted]
            return min(found), max(found)

    def at_s(self, place: Place, offset: int) -> float:
        with self._changed:
            return self._at_s[place, offset]

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            messages = self._consumer.consume(1000, 0.02)
            now_s = time.monotonic()
            with self._changed:
                for message in messages:
                    if message.error() is None:
                        one = decode(message.key(), message.value())
                        place = one.group, one.topic.removeprefix("A."), one.partition
                        self._at_s.setdefault((place, one.upstream_offset), now_s)
                self._changed.notify_all()


class Groups:
    """Groups without members that commit on the source."""

    def __init__(self, source: KafkaCluster, topics: Sequence[str]) -> None:
        self._admin = AdminClient({"bootstrap.servers": source.bootstrap, "log_level": 0})
        self._rng = random.Random(1)
        partitions = [(topic, at) for topic in topics for at in range(TOPIC_PARTITIONS)]
        self._places: list[Place] = [
            (f"group-{number:04}", *place)
            for number in range(GROUPS)
            for place in self._rng.sample(partitions, COMMITS)
        ]

    def move_all(self, offset: int) -> dict[Place, int]:
        """Let every group commit an offset in each of its partitions; return the commits."""
        commits = dict.fromkeys(self._places, offset)
        names = sorted({group for group, _, _ in commits})
        for first in range(0, len(names), AT_ONCE):
            asked: list[Future[ConsumerGroupTopicPartitions]] = []
            for name in names[first : first + AT_ONCE]:
                parts = [TopicPartition(topic, at, offset) for group, topic, at in commits if group == name]
                asked += self._admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(name, parts)]).values()
            for one in asked:
                one.result(ANSWER_S)
        return commits

    def pick(self) -> Place:
        return self._rng.choice(self._places)

    def commit(self, place: Place, offset: int) -> None:
        group, topic, partition = place
        wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition, offset)])]
        for one in self._admin.alter_consumer_group_offsets(wanted).values():
            one.result(ANSWER_S)


class Writer:
    """Writes records to the source."""

    def __init__(self, source: KafkaCluster) -> None:
        self._producer = Producer({"bootstrap.servers": source.bootstrap, "linger.ms": 1, "log_level": 0})

    def fill(self, topics: Sequence[str]) -> None:
        for topic in topics:
            for number in range(TOPIC_PARTITIONS):
                for _ in range(RECORDS):
                    self._producer.produce(topic, b"x" * 100, partition=number)
                self._producer.poll(0)
            self._producer.flush(ANSWER_S)

    def write_one(self, topic: str, partition: int) -> int:
        """Write a record and return the offset after it."""
        offsets: list[int | None] = []
        self._producer.produce(
            topic, b"x" * 100, partition=partition, on_delivery=lambda _, message: offsets.append(message.offset())
        )
        self._producer.flush(ANSWER_S)
        assert offsets[0] is not None
        return offsets[0] + 1


def latencies_s(
    groups: Groups, checkpoints: Checkpoints, next_offset: Callable[[Place], int], samples: int
) -> list[float]:
    """Let one group after the other commit, and return how long each commit waited for its checkpoint.

    Args:
        next_offset: returns the offset that the group commits in that partition.
    """
    sent_s: dict[tuple[Place, int], float] = {}
    begun_s = time.monotonic()
    last: dict[Place, int] = {}
    for number in range(samples):
        time.sleep(max(0.0, begun_s + number / COMMITS_A_SECOND - time.monotonic()))
        place = groups.pick()
        offset = last[place] = next_offset(place)
        sent_s[place, offset] = time.monotonic()
        groups.commit(place, offset)
    checkpoints.wait_for_all(last)
    found = []
    for (place, offset), at_s in sent_s.items():
        try:
            found.append(checkpoints.at_s(place, offset) - at_s)
        except KeyError:
            continue  # the group committed again before the next round
    return found


class Worker:
    """The CPU time and memory of a worker, from the creation of this object on."""

    def __init__(self, process: Mm2py) -> None:
        self._pid = process.pid
        self._begun_s, self._cpu_s = time.monotonic(), cpu_s(process.pid)

    def cpu_percent(self) -> float:
        return (cpu_s(self._pid) - self._cpu_s) / (time.monotonic() - self._begun_s) * 100

    def megabytes(self) -> dict[str, float]:
        return {"resident_mb": resident_mb(self._pid), "peak_mb": peak_mb(self._pid)}


def quiet_cpu_percent(process: Mm2py) -> float:
    """Return the CPU that a worker takes while no group commits, in percent of a core."""
    worker = Worker(process)
    time.sleep(QUIET_S)
    return worker.cpu_percent()


def settings_of(properties: Mapping[str, Value]) -> FlowSettings:
    """Return the settings that a worker reads from a file with these properties."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "mm2.properties")
        path.write_text(render_properties(properties))
        (settings,) = [one for one in read_settings_file(path, None).configuration().flows if str(one.flow) == "A->B"]
    return settings


async def rounds(properties: Mapping[str, Value], groups: Groups, offset: int) -> dict[str, float]:
    """Run rounds of the connector in this process; no worker runs meanwhile.

    Args:
        offset: the offset that all groups commit between two rounds; the last record before it is copied.
    Returns:
        Seconds, and CPU seconds of this process.
    """
    settings = settings_of(properties)
    clusters = []
    for name in ("A", "B"):
        host, _, port = str(properties[f"{name}.bootstrap.servers"]).partition(":")
        clusters.append(Cluster(name, [(host, int(port))], rng=random.Random(1), client_id="bench"))
    log = make_logger("info", "text", io.StringIO())
    connector = CheckpointConnector(settings, *clusters, clock=SystemClock(), rng=random.Random(1), log=log)
    measures: dict[str, float] = {}

    async def measure(name: str) -> None:
        begun_s, begun_cpu_s = time.monotonic(), time.process_time()
        await connector._round()
        measures[name] = time.monotonic() - begun_s
        measures[f"{name.removesuffix('_s')}_cpu_s"] = time.process_time() - begun_cpu_s

    try:
        while connector._writer is None:
            try:
                connector._writer = await connector._make_writer()
            except BrokerRefused as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(0.1)
        await measure("first_round_s")
        await asyncio.to_thread(groups.move_all, offset)
        await asyncio.sleep(LOOK_EVERY_S)
        await measure("moved_round_s")
        await asyncio.sleep(LOOK_EVERY_S)
        await measure("quiet_round_s")
        connector._due_s = connector._clock.monotonic() + 3600  # only the states of groups are read
        connector._idle_until_s.clear()
        await measure("look_s")
    finally:
        for cluster in clusters:
            await cluster.close()
    return measures


def run_once(source: KafkaCluster, target: KafkaCluster) -> dict[str, float]:
    """Measure everything once."""
    stem = new_name("checkpoints")
    topics = [f"{stem}-{number}" for number in range(TOPICS)]
    for topic in topics:
        create_topic(source, topic, TOPIC_PARTITIONS)
    create_topic(target, CHECKPOINTS, 1, {"cleanup.policy": "compact"})
    writer = Writer(source)
    writer.fill(topics)
    groups = Groups(source, topics)
    properties = one_way_properties(source, target)
    properties |= {
        "A->B.topics": f"{stem}-.*",
        "emit.checkpoints.enabled": True,
        "emit.checkpoints.interval.seconds": INTERVAL_S,
        "topics.watch.interval.ms": 2000,
    }
    measures: dict[str, float] = {}
    checkpoints = Checkpoints(target)
    try:
        commits = groups.move_all(RECORDS // 2)
        begun_s = time.monotonic()
        with Mm2py(properties) as process:
            first_s, last_s = checkpoints.wait_for_all(commits)
            measures |= {"cold_first_s": first_s - begun_s, "cold_s": last_s - begun_s}
            assert process.terminate() == 0
        commits = groups.move_all(RECORDS // 2 + 1)
        begun_s = time.monotonic()
        with Mm2py(properties) as process:
            first_s, last_s = checkpoints.wait_for_all(commits)
            measures |= {"warm_first_s": first_s - begun_s, "warm_s": last_s - begun_s}
            time.sleep(QUIET_S)  # the worker asks more often at first about groups that became idle
            measures["quiet_cpu_percent"] = quiet_cpu_percent(process)
            worker = Worker(process)
            offsets = dict.fromkeys(commits, RECORDS // 2 + 1)

            def further(place: Place) -> int:
                offsets[place] += 1
                return offsets[place]

            found = latencies_s(groups, checkpoints, further, SAMPLES)
            measures |= _said("copied", found)
            found = latencies_s(groups, checkpoints, lambda place: writer.write_one(*place[1:]), SAMPLES)
            measures |= _said("fresh", found)
            measures["busy_cpu_percent"] = worker.cpu_percent()
            measures |= worker.megabytes()
            assert process.terminate() == 0
        with Mm2py({**properties, "emit.checkpoints.enabled": False}) as process:
            process.wait_for_event("topics.copying", deadline_s=DEADLINE_S)
            time.sleep(QUIET_S)
            measures["without_cpu_percent"] = quiet_cpu_percent(process)
            measures["without_resident_mb"] = Worker(process).megabytes()["resident_mb"]
            assert process.terminate() == 0
        groups.move_all(RECORDS - 2)
        measures |= asyncio.run(rounds(properties, groups, RECORDS - 1))
    finally:
        checkpoints.close()
    return measures


def _said(name: str, found: Sequence[float]) -> dict[str, float]:
    return {
        f"{name}_p50_s": percentile(found, 0.5),
        f"{name}_p99_s": percentile(found, 0.99),
        f"{name}_most_s": max(found),
        f"{name}_count": len(found),
    }


def report(runs: Sequence[Run], facts: Facts) -> str:
    """Return the page of results. Pure."""
    lines = first_lines(f"Checkpoints of {GROUPS:,} groups on real brokers", facts)
    lines += [
        f"{TOPICS * TOPIC_PARTITIONS:,} partitions of {RECORDS:,} records, {GROUPS:,} groups with {COMMITS} commits"
        f" each, at random; one worker with `emit.checkpoints.interval.seconds={INTERVAL_S}`; one broker a cluster. A"
        " commit waits from the moment in which it is sent until a consumer of the target has its checkpoint. Groups"
        f" commit one after the other, {COMMITS_A_SECOND} times a second. Rounds are those of the connector in the"
        " bench's process, without a worker.",
        "",
    ]
    found = [run.measures for run in runs if run.measures]
    for measures in found:
        rows = [
            [title, f"{measures[name]:.2f} s", _cpu(measures, f"{name.removesuffix('_s')}_cpu_s")]
            for name, title in TIMES.items()
        ]
        lines += [*table(["", "time", "CPU"], rows), ""]
        rows = [
            [title, *(f"{measures[f'{name}_{what}_s']:.2f} s" for what in ("p50", "p99", "most"))]
            for name, title in LATENCIES.items()
        ]
        lines += [*table(["from a commit to its checkpoint", "p50", "p99", "longest"], rows), ""]
        lines += [
            f"{measures['copied_count']:.0f} and {measures['fresh_count']:.0f} commits. The worker took"
            f" {measures['quiet_cpu_percent']:.0f} % of a core while no group moved, with a round a second, and"
            f" {measures['busy_cpu_percent']:.0f} % while they committed; without checkpoints"
            f" {measures['without_cpu_percent']:.0f} %. It had {measures['resident_mb']:.0f} MB at the end,"
            f" {measures['peak_mb']:.0f} MB at most; without checkpoints {measures['without_resident_mb']:.0f} MB.",
            "",
        ]
    lines += [f"Run {run.round + 1} failed: {run.failed}" for run in runs if run.failed]
    return "\n".join(lines).rstrip() + "\n"


def _cpu(measures: Mapping[str, float], name: str) -> str:
    return f"{measures[name]:.2f} s" if name in measures else ""


def run_all(source: KafkaCluster, target: KafkaCluster, log: RunLog) -> None:
    if not log.has(("checkpoints", "mm2py", 0), GROUPS):
        log.add(Run("checkpoints", "mm2py", 0, GROUPS, run_once(source, target)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print what checkpoints cost. The exit code is 1 if a checkpoint did not come."""
    parser = argparse.ArgumentParser(prog="python -m bench.checkpoints", description="What checkpoints cost.")
    add_arguments(parser, "checkpoints")
    return carry_out("checkpoints", parser.parse_args(arguments), run_all, report)


if __name__ == "__main__":
    sys.exit(main())
