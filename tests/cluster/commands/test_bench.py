"""The bench and the soak themselves, in small: what they say about speed is not judged here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.filling import WrongShape, append, check_shape
from bench.sides import Side
from bench.workloads import SINGLE
from deploy.local.kafka import KafkaCluster
from deploy.local.python_path import python_path
from mm2py.records.compression import Codec
from tests.cluster.copies import new_name
from tests.cluster.running import PATIENCE

ROOT = Path(__file__).parents[3]


def _run(module: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": python_path(ROOT)},
        check=False,
        capture_output=True,
        text=True,
        timeout=280 * PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_small_bench_measures_every_kind_of_workload(tmp_path: Path) -> None:
    """With mm2py alone, so that it takes no minute; the table has to come out, and every run has to be complete."""
    workloads = ("uncompressed", "zstd", "single", "one_partition", "tls", "latency", "idle")
    runs = tmp_path / "runs"
    page = _run(
        "bench",
        *("--workload", *workloads, "--mirrors", "mm2py", "--rounds", "1"),
        *("--records", "4000", "--seconds", "2", "--runs", str(runs)),
    )
    kept = [json.loads(line) for path in runs.glob("*.jsonl") for line in path.read_text().splitlines()[1:]]
    assert {(run["workload"], run["failed"], run["not_measured"]) for run in kept} == {
        (workload, None, None) for workload in workloads
    }
    assert "## What TLS costs" in page
    assert "latency p99 (ms)" in page


@pytest.mark.slow
def test_a_short_soak_copies_all_it_writes() -> None:
    """Nothing can be flat in half a minute, so only the copy is judged."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.soak", "--idle-minutes", "0.2", "--load-minutes", "0.3"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": python_path(ROOT)},
        check=False,
        capture_output=True,
        text=True,
        timeout=280 * PATIENCE,
    )
    assert "flat: the ends and the last 50 records of all partitions are equal" in done.stdout, done.stderr
    assert "NOT FLAT: the ends" not in done.stdout


async def test_a_topic_of_another_shape_is_not_measured(source_cluster: KafkaCluster) -> None:
    """A bench over batches that are not what the table says would be worse than none."""
    workload = replace(SINGLE, topic=new_name("shape"), partitions=2, records=200)
    side = Side(source_cluster)
    try:
        await side.create(workload.topic, workload.partitions)
        await append(side, workload, 100)
        await check_shape(side, workload)
        with pytest.raises(WrongShape, match="has batches"):
            await check_shape(side, replace(workload, shape=replace(workload.shape, codec=Codec.ZSTD)))
        with pytest.raises(WrongShape, match="end at"):
            await check_shape(side, replace(workload, records=202))
    finally:
        await side.brokers.close()
