"""Sessions on this machine, and on a standalone cluster of processes."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from deploy.local.spark import SparkCluster
from mm2py.backfill.session import open_session
from tests.cluster.running import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark", reason="Run `make venv-spark`.")

COUNTS = """
import sys
from mm2py.backfill.session import open_session
master, *pairs = sys.argv[1:]
session = open_session("count", master=master, settings=dict(pair.split("=", 1) for pair in pairs))
def importing(numbers):
    import mm2py.kafka.port, pyspark
    yield from numbers
print(session.sparkContext.parallelize(range(1000), 4).mapPartitions(importing).count())
session.stop()
"""


def test_a_local_session_is_on_loopback_and_is_given_again(spark: SparkSession) -> None:
    """S31: what listens is not for other machines, and Spark masks what it would mask anyway."""
    conf = spark.sparkContext.getConf()
    assert {conf.get("spark.driver.host"), conf.get("spark.driver.bindAddress")} == {"127.0.0.1"}
    assert conf.get("spark.master") == "local[2]"
    assert conf.get("spark.redaction.regex") is None  # Spark's own
    assert open_session("another", master="local[1]") is spark
    assert spark.sparkContext.pythonExec == sys.executable


def test_executors_of_a_standalone_cluster_run_our_python() -> None:
    environment = {"PYSPARK_PYTHON": sys.executable}
    with SparkCluster() as cluster:
        settings = [f"{key}={value}" for key, value in cluster.client_settings.items()]
        done = subprocess.run(
            [sys.executable, "-c", COUNTS, cluster.master, *settings],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=100 * PATIENCE,
            check=False,
        )
        assert done.stdout == "1000\n", done.stderr[-3_000:]
        pids = [worker.pid for worker in cluster.workers]
    assert len(pids) == 2
