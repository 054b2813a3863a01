"""``mm2py verify --local`` as a process of its own: without PySpark, on a terminal, and when it is interrupted.

That it says the same as Spark: tests/cluster/spark/test_verify.py.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local.kafka import KafkaCluster
from deploy.local.python_path import python_path
from mm2py.records.batch import NewRecord, build_batch
from tests.cluster.kafka_client import offsets, topic_names
from tests.cluster.planted_flow import new_names, planted_copy
from tests.cluster.raw_batches import append_batches
from tests.cluster.running import COMMAND_S, ROOT, wait_until


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The variables of a process that cannot import pyspark, pyarrow and py4j."""
    folder = tmp_path / "without-spark"
    folder.mkdir()
    for name in ("pyspark", "pyarrow", "py4j"):
        (folder / f"{name}.py").write_text(f'raise ImportError("there is no {name} here")\n')
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), python_path(ROOT)])}


def command(file: Path, names: tuple[str, str], *arguments: str) -> list[str]:
    return [sys.executable, "-m", "mm2py", "verify", str(file), "->".join(names), "--local", *arguments]


def contents(cluster: KafkaCluster, names: tuple[str, str]) -> dict[str, list[tuple[int, int]]]:
    """Return the offsets of all topics that could be the flow's."""
    mine = {one for one in topic_names(cluster) if any(name.lower() in one.lower() for name in names)}
    assert mine
    return {one: [offsets(cluster, one, partition) for partition in range(3)] for one in mine}


def test_without_pyspark_a_copy_is_verified_and_nothing_is_written(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, tmp_path: Path, environment: dict[str, str]
) -> None:
    names = new_names()
    topic, file = planted_copy(source_cluster, target_cluster, names, tmp_path, partitions=3, batches_each=5)
    before = [contents(cluster, names) for cluster in (source_cluster, target_cluster)]
    certificate = tmp_path / "certificate.txt"
    equal = subprocess.run(
        command(file, names, "--certificate", str(certificate)),
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
        env=environment,
    )
    assert equal.returncode == 0, equal.stderr
    assert equal.stderr.splitlines() == ["mm2py: comparing 3 ranges of 3 partitions"]
    _, *rows, verdict = equal.stdout.splitlines()
    assert verdict == "No difference: 1,500 records of 3 partitions are equal."
    assert [(row[0], row[1], row[-1]) for row in map(str.split, rows)] == [(topic, str(at), "equal") for at in range(3)]
    remote = f"{names[0]}.{topic}"
    assert f"{names[0]}/{topic}/2 [0, 500) = {names[1]}/{remote}/2 [0, 500)" in certificate.read_text()
    assert [contents(cluster, names) for cluster in (source_cluster, target_cluster)] == before

    append_batches(target_cluster, remote, [build_batch([NewRecord(b"k", b"foreign", 1)])], partition=1)
    assert contents(target_cluster, names) != before[1], "a record would be noticed"
    differs = subprocess.run(
        command(file, names), capture_output=True, text=True, timeout=COMMAND_S, check=False, env=environment
    )
    assert differs.returncode == 1
    assert f"{names[0]}/{topic}/1: foreign, at source offset 500, target offset 500" in differs.stdout
    assert differs.stdout.splitlines()[-1] == f"DIFFERENT: 1 of 3 partitions, the first is {names[0]}/{topic}/1."


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it_at_once_says_what_was_compared_and_leaves_no_process(
    source_cluster: KafkaCluster,
    target_cluster: KafkaCluster,
    tmp_path: Path,
    environment: dict[str, str],
    number: signal.Signals,
) -> None:
    names = new_names()
    topic, file = planted_copy(source_cluster, target_cluster, names, tmp_path, partitions=60, batches_each=5)
    terminal, its_end = os.openpty()
    certificate = tmp_path / "certificate.txt"
    process = subprocess.Popen(
        command(file, names, "--max-mb-per-second", "1", "--certificate", str(certificate)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=its_end,
        env=environment,
        start_new_session=True,
    )
    os.close(its_end)
    os.set_blocking(terminal, False)
    seen = bytearray()

    def shown(pattern: bytes) -> bool:
        try:
            seen.extend(os.read(terminal, 1 << 16))
        except BlockingIOError:
            pass
        except OSError:  # the command has closed its end
            return re.search(pattern, seen) is not None or process.poll() is not None
        return re.search(pattern, seen) is not None

    try:
        wait_until(lambda: shown(rb"[1-9]\d*/60 ranges"), "the bar tells of ranges that are done")
        assert process.poll() is None
        os.killpg(process.pid, number)
        wait_until(lambda: process.poll() is not None, "it ends")
        wait_until(lambda: shown(rb"(?s)interrupted after .*equal\r\n"), "it says what was compared")
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)
    finally:
        process.kill()
        assert process.stdout is not None
        out = process.stdout.read()
        process.stdout.close()
        process.wait()
        os.close(terminal)
    assert (process.returncode, out, certificate.exists()) == (130, b"", False), seen.decode()
    text = seen.decode()
    assert re.search(r"\[#+ +\] +\d+\.\d%  \d+/60 ranges  [\d,]+ records  \d+ MB/s  ", text), text
    told = re.search(r"interrupted after \d+ s: compared (\d+) of 60 ranges, ([\d,]+) records\. There is no", text)
    assert told is not None, text
    count = int(told[1])
    assert 0 < count < 60
    assert int(told[2].replace(",", "")) == 500 * count
    assert len(re.findall(rf"mm2py: {names[0]}/{re.escape(topic)}/\d+ \[0, 500\) equal\r\n", text)) == min(count, 40)
