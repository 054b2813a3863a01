"""Sessions on this machine, and on a standalone cluster of processes."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from deploy.local.spark import SparkCluster
from mm2py.backfill.session import open_session, running_session
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
    assert conf.get("spark.master") == "local[2,2]"
    assert conf.get("spark.redaction.regex") is None  # Spark's own
    assert open_session("another", master="local[1]") is spark
    assert spark.sparkContext.pythonExec == sys.executable


def test_another_thread_finds_the_session_too(spark: SparkSession) -> None:
    """Spark calls a session active only in threads that used it; a command took it for its own, and stopped it."""
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(running_session).result() is spark
        assert thread.submit(open_session, "another").result() is spark


def test_a_local_session_asks_for_its_secret_and_has_no_page(spark: SparkSession) -> None:
    """Every user of this machine may connect to loopback, and nothing that Spark serves there asked for anything."""
    assert spark.sparkContext.uiWebUrl is None
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.authenticate") == "true"
    assert conf.get("spark.authenticate.secret") is None, "Spark makes it; given by name it stands on a command line"


LISTENS = """
import os
from pathlib import Path
from mm2py.backfill.session import open_session
session = open_session("listens", master="local[1]", settings={"spark.ui.enabled": "true", "spark.ui.port": "0"})
java = Path("/proc", str(session.sparkContext._jvm.java.lang.ProcessHandle.current().pid()))
links = {os.readlink(one) for one in (java / "fd").iterdir() if one.is_symlink()}
for family in ("tcp", "tcp6"):
    for line in (java / "net" / family).read_text().splitlines()[1:]:
        _, here, _, state, *_, = fields = line.split()
        if state == "0A" and f"socket:[{fields[9]}]" in links:
            print(here.partition(":")[0])
session.stop()
"""


def test_spark_s_page_of_a_local_session_is_not_for_other_machines() -> None:
    """S31: it shows paths, topics and who runs it. Without SPARK_LOCAL_IP Spark serves it on all addresses."""
    environment = {key: value for key, value in os.environ.items() if key != "SPARK_LOCAL_IP"}
    done = subprocess.run(
        [sys.executable, "-c", LISTENS],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100 * PATIENCE,
        check=False,
    )
    addresses = set(done.stdout.split())
    assert addresses, done.stderr[-3_000:]
    assert addresses <= {"0100007F", "0000000000000000FFFF00000100007F"}, "not on loopback only"


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
