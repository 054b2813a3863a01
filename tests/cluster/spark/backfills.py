"""What tests of ``mm2py backfill`` share: the command as a child process, the worker beside it, and its results."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy.local.guardian import guard
from deploy.local.kafka import KafkaCluster
from tests.cluster.kafka_client import new_name
from tests.cluster.running import DEADLINE_S, OWN_PATH, Mm2py, Value, one_way_properties

JOB_S = 4 * DEADLINE_S
FLOW = "A->B"
EXECUTORS = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": OWN_PATH}
"""The environment of the workers of a Spark cluster, so that executors run this Python with mm2py in it."""


@contextmanager
def backfill(file: Path, *arguments: str, settings: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """Run the command in a session of its own, and leave nothing of it behind.

    Args:
        settings: of Spark, as operators give them: in ``spark-defaults.conf``.
    """
    defaults = file.parent / "spark-defaults.conf"
    defaults.write_text(
        "".join(f"{name} {value}\n" for name, value in {"spark.ui.enabled": "false", **(settings or {})}.items())
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "mm2py", "backfill", str(file), FLOW, *arguments, "--parquet", str(file.parent)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        cwd=file.parent,
        env={
            **os.environ,
            "PYTHONPATH": OWN_PATH,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_CONF_DIR": str(file.parent),
            "PYSPARK_PYTHON": sys.executable,
            **guard().environment(),
        },
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def worker(source: KafkaCluster, target: KafkaCluster, topics: Sequence[str], **extra: Value) -> Mm2py:
    """Return a worker that is not started. Its settings stand in a topic of its own."""
    own = {
        "config.storage.topic": new_name("configs"),
        "config.storage.replication.factor": 1,
        "A->B.topics": ",".join(topics),
        **extra,
    }
    return Mm2py(one_way_properties(source, target, **own))


def held(process: subprocess.Popen[str]) -> str:
    """Wait until the workers wait for a backfill, and return its id."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if (found := re.match(r"Backfill ([0-9a-f]{8}): the workers", line)) is not None:
            return found[1]
    raise AssertionError("".join(lines))


def command_lines(*ancestors: int) -> dict[int, bytes]:
    """Return the command lines of processes and of all that they have started, by process id."""
    parents, lines = {}, {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                stat, line = (process / "stat").read_text(), (process / "cmdline").read_bytes()
            except OSError:
                continue
            parents[int(process.name)], lines[int(process.name)] = int(stat.rpartition(")")[2].split()[1]), line
    family = set(ancestors)
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return {pid: lines[pid] for pid in family & lines.keys()}


def python_tasks(driver: int) -> list[int]:
    """Return the Python processes in which tasks of a local master run: what Spark's daemon has forked."""
    daemons = [
        pid for pid, line in command_lines(driver).items() if b"pyspark.daemon" in line or b"pyspark/daemon" in line
    ]
    return [pid for pid in daemons if any(pid in command_lines(other) for other in daemons if other != pid)]


def finished(process: subprocess.Popen[str], code: int = 0) -> str:
    output, _ = process.communicate(timeout=JOB_S)
    assert process.returncode == code, output
    return output


def assert_results(output: str, topics: Sequence[str]) -> list[dict[str, Any]]:
    """Judge the Parquet file that the last line names: no range of a partition is missing. Return its rows."""
    import pyarrow.parquet as pq

    name = re.fullmatch(r"Results: (.*/mm2py-backfill-[0-9a-f]{8}\.parquet)", output.splitlines()[-1])
    assert name is not None, output
    rows: list[dict[str, Any]] = pq.read_table(name[1]).to_pylist()
    assert {row["topic"] for row in rows} == {*topics}
    ends: dict[tuple[str, int], int] = {}
    for row in sorted(rows, key=lambda row: (row["topic"], row["partition"], row["source_first"])):
        place = row["topic"], row["partition"]
        assert row["source_first"] == ends.get(place, 0), rows
        ends[place] = row["source_next"]
        assert row["records"] == row["source_next"] - row["source_first"], "no record of these topics is left out"
        assert row["attempt"] is None or row["digest"] is not None
    assert f"is done: {sum(row['records'] for row in rows):,} records" in output, output
    return rows
