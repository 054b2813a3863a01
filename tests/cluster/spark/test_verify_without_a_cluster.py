"""A cluster that dies while copies are verified: with Spark and without it the command says the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.local.kafka import KafkaCluster
from tests.cluster.planted_flow import new_names, planted_copy
from tests.cluster.running import COMMAND_S, OWN_PATH, wait_until

READ_UP_TO = re.compile(r"at offset \d+")


def test_a_source_that_dies_in_the_middle_is_told_alike_with_spark_and_without(
    make_cluster: Callable[..., KafkaCluster], target_cluster: KafkaCluster, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark", reason="Run `make venv-spark`.")
    names = new_names()
    source = make_cluster("dies")
    topic, file = planted_copy(source, target_cluster, names, tmp_path, partitions=1, batches_each=200)
    started: list[tuple[subprocess.Popen[str], Path]] = []
    try:
        for way in (["--master", "local[1]"], ["--local"]):
            log = tmp_path / f"log{len(started)}"
            with log.open("w") as errors:
                arguments = [str(file), "->".join(names), *way, "--max-mb-per-second", "1"]
                process = subprocess.Popen(
                    [sys.executable, "-m", "mm2py", "verify", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    env={**os.environ, "PYTHONPATH": OWN_PATH},
                )
            started.append((process, log))
            wait_until(
                lambda process=process, log=log: "comparing 1 ranges" in log.read_text() or process.poll() is not None,
                "it begins to compare",
                deadline_s=COMMAND_S,
            )
        source.broker(1).kill()
        ended = [(process.communicate(timeout=2 * COMMAND_S)[0], process.returncode) for process, _ in started]
    finally:
        for process, _ in started:
            process.kill()
            process.wait()
    told = [(READ_UP_TO.sub("at offset N", out), code) for out, code in ended]
    assert told[0] == told[1], [log.read_text() for _, log in started]
    text, code = told[0]
    assert code == 1
    assert f"{names[0]}/{topic}/0 cannot be read at offset N: its leader does not answer within 60 s" in text
