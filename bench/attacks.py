"""What hostile inputs cost a worker, its REST process and a command: ``python -m bench.attacks``; docs/benchmarks.md.

Each attack has a new worker, whose healthy flow copies a few hundred records a second meanwhile. Measured are the
longest stretch of processor time for which an event loop did nothing else (``bench/watched``), the peak memory of each
process, and how many records of the healthy flow were on the target while they were written.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.campaign import add_arguments, carry_out
from bench.pages import Facts, first_lines, table
from bench.processes import own_peak_mb
from bench.runs import Run, RunLog
from deploy.local.kafka import KafkaCluster
from mm2py.records.compression import Codec
from tests.cluster.kafka_client import create_topic, new_name, record_count, topic_names
from tests.cluster.raw_batches import append_batches
from tests.cluster.rest.serving import LISTENERS, Asked, asked
from tests.cluster.rest.test_crowds import load
from tests.cluster.rest.test_rest_process import rest_processes
from tests.cluster.running import OWN_PATH, Mm2py, Value, one_way_properties, wait_until
from tests.cluster.strangers import strangers
from tests.fakes.hostile_batches import batch_of_one_byte_members, batch_of_tiny_records, tiny_records

WATCHED: Final = str(Path(__file__).parent / "watched")
ATTACK_S: Final = 20.0
"""How long a worker is watched after the begin of an attack. The effects of an attack end long before."""
COPIED_S: Final = 60.0
TINY: Final = 1_000_000
"""Records of a batch: a few less than mm2py accepts."""
MB: Final = 1_000_000
MEASURES: Final[Mapping[str, str]] = {
    "worker_pause_ms": "ms",
    "worker_peak_mb": "MB",
    "rest_pause_ms": "ms",
    "rest_peak_mb": "MB",
    "status_pause_ms": "ms",
    "status_peak_mb": "MB",
    "copied_percent": "%",
}


@dataclass
class Scene:
    """A worker with a healthy flow, and everything an attack can reach."""

    source: KafkaCluster
    target: KafkaCluster
    ports: Mapping[str, int]
    """Ports of servers that are no brokers, by kind."""
    alias: str = field(default_factory=lambda: new_name("A").replace("-", ""))
    victim: str = field(default_factory=lambda: new_name("victim"))
    """A topic of the source with log-append time, which the flow copies."""
    rest: Asked | None = None
    control_log: str = ""
    """The control log of the worker's group, on the target."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack. ``settings`` are added to the worker's file; ``strike`` runs once the worker copies."""

    name: str
    strike: Callable[[Scene], None] = lambda _: None
    settings: Callable[[Scene], Mapping[str, Value]] = lambda _: {}


def _stranger(kind: str) -> Callable[[Scene], Mapping[str, Value]]:
    def settings(scene: Scene) -> Mapping[str, Value]:
        return {
            "clusters": f"{scene.alias},B,{kind}",
            f"{kind}.bootstrap.servers": f"127.0.0.1:{scene.ports[kind]}",
            f"{kind}->B.enabled": True,
        }

    return settings


def _batch_of_members(size: int) -> bytes:
    """Return a batch whose records are compressed by gzip with a member for each byte, about ``size`` bytes long."""
    count = size // 21 // 8  # a member of one byte takes 21 bytes, a record of these about 8
    return batch_of_one_byte_members(tiny_records(count), count)


def _members(batches: int, size: int) -> Callable[[Scene], None]:
    def strike(scene: Scene) -> None:
        append_batches(scene.source, scene.victim, [_batch_of_members(size)] * batches)

    return strike


def _control_log(scene: Scene) -> None:
    append_batches(scene.target, scene.control_log, [_batch_of_members(MB * 9 // 10)] * 40)


_HEARTBEATS: Final[Mapping[str, Value]] = {"emit.heartbeats.enabled": True, "emit.heartbeats.interval.seconds": 1}
"""With these settings a worker reads the heartbeats of its source, to prove the path."""


def _tiny_heartbeats(scene: Scene) -> None:
    append_batches(scene.source, "heartbeats", [batch_of_tiny_records(TINY, Codec.ZSTD)] * 3)


def _pattern(scene: Scene) -> None:
    assert scene.rest is not None
    for _ in range(5):
        scene.rest.told("PATCH", f"{scene.rest.connector()}/config", 400, json={"topics": "(?:a{3000}){3000}"})


ATTACKS: Final = (
    Attack("nothing"),
    Attack("a broker that announces 2^32 - 1 elements in 35 bytes", settings=_stranger("endless")),
    Attack("a broker with 12 MB of metadata", settings=_stranger("crowded")),
    Attack("40 batches of 1 MB, gzip with a byte a member", _members(40, MB)),
    Attack("one batch of 8 MB, gzip with a byte a member", _members(1, 8 * MB)),
    Attack("40 batches of 0.9 MB in the control log, gzip with a byte a member", _control_log),
    Attack(f"3 batches of {TINY:,} records in heartbeats", _tiny_heartbeats, lambda _: _HEARTBEATS),
    Attack("5 patterns of 17 characters that would take 2,350 MB", _pattern),
)


def report(runs: Sequence[Run], facts: Facts) -> str:
    """Return the page of results. Pure."""
    lines = first_lines("What hostile inputs cost", facts)
    lines += [
        "A worker copies a healthy flow of a few hundred records a second. An attack begins, and all processes are"
        f" watched for {ATTACK_S:g} s. A pause is the longest stretch of processor time in which an event loop did"
        " nothing else; memory is the peak of the process since its start. `status` is `mm2py status`, the worst of"
        " three calls. Copied: records of the healthy flow on the target at the end, of those written by then.",
        "",
    ]
    header = ["attack", "worker", "", "REST process", "", "status", "", "copied"]
    rows = [
        [run.workload, *(f"{run.measures[name]:,.0f} {unit}" for name, unit in MEASURES.items())]
        for run in runs
        if run.measures
    ]
    failed = [f"{run.workload}: {run.failed}" for run in runs if run.failed]
    return "\n".join([*lines, *table(header, rows), *(["", *failed] if failed else []), ""])


class Watch:
    """The measurements that the watched processes wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            "MM2PY_WATCH": str(folder),
            "PYTHONPATH": os.pathsep.join([WATCHED, OWN_PATH]),
        }

    def lines(self, pid: int) -> list[dict[str, float]]:
        path = self.folder / f"{pid}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def pause_ms(self, pid: int, since_s: float = 0.0) -> float:
        return max((one["cpu_ms"] for one in self.lines(pid) if one.get("at_s", 0.0) > since_s), default=0.0)

    def peak_mb(self, pid: int) -> float:
        """Return the peak of a process whose loop has ended."""
        return max(one["peak_kib"] for one in self.lines(pid) if "peak_kib" in one) * 1024 / 1e6


def _status(file: Path, watch: Watch) -> tuple[float, float]:
    """Run ``mm2py status``; return its pause in ms and its peak in MB."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mm2py", "status", str(file), "--json"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **watch.environment},
    )
    code = process.wait(90)
    assert code in (0, 1, 3), f"mm2py status ended with {code}"
    return watch.pause_ms(process.pid), watch.peak_mb(process.pid)


def measure(attack: Attack, source: KafkaCluster, target: KafkaCluster) -> dict[str, float]:
    """Carry out one attack, and return what it cost."""
    topic = new_name("healthy")
    create_topic(source, topic)
    if "heartbeats" not in topic_names(source):
        create_topic(source, "heartbeats")  # mm2py's would be compacted, and refuse records without a key
    with strangers() as ports, tempfile.TemporaryDirectory() as folder:
        scene, watch = Scene(source, target, ports), Watch(Path(folder))
        create_topic(
            source, scene.victim, configs={"message.timestamp.type": "LogAppendTime", "max.message.bytes": "20000000"}
        )
        own: dict[str, Value] = {
            f"{scene.alias}->B.topics": f"{topic},{scene.victim}",
            "heartbeats.replication.enabled": True,
            "config.storage.replication.factor": 1,
            "listeners": LISTENERS,
        }
        properties = one_way_properties(source, target, names=(scene.alias, "B"), **own)
        properties |= attack.settings(scene)
        with (
            Mm2py(properties, environment=watch.environment) as run,
            load(source, topic) as written,
        ):
            scene.rest = asked(run, f"{scene.alias}->B")
            remote = f"{scene.alias}.{topic}"
            wait_until(lambda: record_count(target, remote), "the healthy flow copies", deadline_s=COPIED_S)
            (rest,) = rest_processes(run.pid)
            scene.control_log = run.status()[1]["groups"][0]["topic"]
            begun_s = time.time()
            statuses: list[tuple[float, float]] = []
            attack.strike(scene)
            while time.time() < begun_s + ATTACK_S:
                scene.rest.told("GET", "/v1/flows", 200)
                if len(statuses) < 3:
                    statuses.append(_status(run.file, watch))
                time.sleep(0.5)
            copied, wanted = record_count(target, remote), written.records
            pauses = watch.pause_ms(run.pid, begun_s), watch.pause_ms(rest, begun_s)
            assert run.alive and rest_processes(run.pid) == [rest], "a process ended"
            wait_until(lambda: record_count(target, remote) >= wanted, "all of it is copied", deadline_s=COPIED_S)
            peaks = own_peak_mb(run.pid), own_peak_mb(rest)
            assert run.terminate() == 0
        return {
            "worker_pause_ms": pauses[0],
            "worker_peak_mb": peaks[0],
            "rest_pause_ms": pauses[1],
            "rest_peak_mb": peaks[1],
            "status_pause_ms": max(pause for pause, _ in statuses),
            "status_peak_mb": max(peak for _, peak in statuses),
            "copied_percent": 100 * copied / wanted,
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out all attacks and print what they cost. The exit code is 1 if an attack ended a process."""
    parser = argparse.ArgumentParser(prog="python -m bench.attacks", description="What hostile inputs cost.")
    add_arguments(parser, "attacks")
    options = parser.parse_args(arguments)

    def carry(source: KafkaCluster, target: KafkaCluster, log: RunLog) -> None:
        for attack in ATTACKS:
            if not log.has((attack.name, "mm2py", 0), 0):
                log.add(Run(attack.name, "mm2py", 0, 0, measure(attack, source, target)))
                print(attack.name, {name: round(value) for name, value in log.runs[-1].measures.items()}, flush=True)

    return carry_out("attacks", options, carry, report)


if __name__ == "__main__":
    sys.exit(main())
