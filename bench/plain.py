"""A first plain measurement: mm2py and MirrorMaker 2 copy the same topic between the same brokers, in turn.

    python -m bench.plain [--records N] [--partitions P] [--rounds R]

1 KB records, uncompressed, current timestamps, default producer settings of librdkafka with 16 KB batches. Each mirror
starts cold, copies everything into a remote topic of its own and is stopped; the time counts from the first record on
the target to the last, CPU and peak memory are the process's own. One number of one machine means little: read ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.local.jars import jar_directory
from deploy.local.java import java
from deploy.local.kafka import KafkaCluster, start_clusters

TOPIC = "load"
DEADLINE_S = 300.0


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of one mirror."""

    mirror: str
    first_record_s: float
    copy_s: float
    records_per_s: float
    cpu_s_per_million: float
    peak_mb: int


def fill(bootstrap: str, *, records: int, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, partitions, 1)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 16384, "acks": "all"})
    value = os.urandom(1024)
    for number in range(records):
        while True:
            try:
                producer.produce(TOPIC, value=value, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise RuntimeError("the source did not take all records in time")


def properties(alias: str, source: str, target: str) -> str:
    """Return a file that both mirrors read."""
    return "\n".join(
        [
            f"clusters = {alias}, target",
            f"{alias}.bootstrap.servers = {source}",
            f"target.bootstrap.servers = {target}",
            f"{alias}->target.enabled = true",
            f"{alias}->target.topics = {TOPIC}",
            "emit.heartbeats.enabled = false",
            "replication.factor = 1",
            "offset-syncs.topic.replication.factor = 1",
            "checkpoints.topic.replication.factor = 1",
            "heartbeats.topic.replication.factor = 1",
            "offset.storage.replication.factor = 1",
            "config.storage.replication.factor = 1",
            "status.storage.replication.factor = 1",
            "tasks.max = 4",
        ]
    )


def measure(mirror: str, command: list[str], target: str, remote: str, *, records: int, partitions: int) -> Measured:
    consumer = Consumer({"bootstrap.servers": target, "group.id": "bench"})
    places = [TopicPartition(remote, number) for number in range(partitions)]
    begun_s = time.monotonic()
    first_s = copied = 0.0
    with tempfile.TemporaryFile() as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            while copied < records and time.monotonic() - begun_s < DEADLINE_S:
                copied = end_of(consumer, places)
                if copied and not first_s:
                    first_s = time.monotonic()
                time.sleep(0.02)
            done_s = time.monotonic()
            if copied < records:
                raise RuntimeError(f"{mirror} copied {copied:.0f} of {records} records in {DEADLINE_S:.0f} s")
            stat = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            cpu_s = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak_kb = int(status.split("VmHWM:")[1].split()[0])
        finally:
            process.kill()
    consumer.close()
    return Measured(
        mirror,
        round(first_s - begun_s, 2),
        round(done_s - first_s, 2),
        round(records / (done_s - begun_s if done_s == first_s else done_s - first_s)),
        round(cpu_s / records * 1e6, 2),
        peak_kb // 1024,
    )


def end_of(consumer: Consumer, places: list[TopicPartition]) -> float:
    try:
        return float(sum(consumer.get_watermark_offsets(place, timeout=1.0)[1] for place in places))
    except KafkaException:
        return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with (
        start_clusters([KafkaCluster("source", heap="1g"), KafkaCluster("target", heap="1g")]) as (source, target),
        tempfile.TemporaryDirectory() as folder,
    ):
        fill(source.bootstrap, records=options.records, partitions=options.partitions)
        mirrors: dict[str, Callable[[Path], list[str]]] = {
            "mm2py": lambda path: [sys.executable, "-m", "mm2py", str(path)],
            "MirrorMaker 2": lambda path: [
                str(java()),
                "-Xms256M",
                "-Xmx2G",
                "-cp",
                f"{jar_directory()}/*",
                "org.apache.kafka.connect.mirror.MirrorMaker",
                str(path),
            ],
        }
        results: list[Measured] = []
        for number in range(options.rounds):
            for name, command in mirrors.items():
                alias = f"{name.split()[0].lower()}{number}"
                path = Path(folder, f"{alias}.properties")
                path.write_text(properties(alias, source.bootstrap, target.bootstrap))
                results.append(
                    measure(
                        name,
                        command(path),
                        target.bootstrap,
                        f"{alias}.{TOPIC}",
                        records=options.records,
                        partitions=options.partitions,
                    )
                )
                print(json.dumps(asdict(results[-1])), flush=True)
        for name in mirrors:
            runs = [result for result in results if result.mirror == name]
            medians = {
                field: statistics.median(getattr(run, field) for run in runs)
                for field in ("first_record_s", "records_per_s", "cpu_s_per_million", "peak_mb")
            }
            print(name, medians)


if __name__ == "__main__":
    main()
