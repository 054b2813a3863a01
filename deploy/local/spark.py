"""A standalone Spark cluster on loopback, for tests: one master and a few workers, each a process of its own.

    with SparkCluster() as spark:
        session = open_session("copy", master=spark.master, settings=spark.client_settings)
        os.kill(spark.workers[0].executors()[0], signal.SIGKILL)

The cluster runs from the jars inside the package pyspark, which ``make venv-spark`` installs. A driver must be a
process of its own, too: a process has one Spark context. MirrorMaker 2 has no counterpart.
"""

import importlib.util
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from deploy.local.errors import MissingTool, ServerNotReady
from deploy.local.guardian import guard
from deploy.local.java import java
from deploy.local.jvm import QUICK_START, READY_TIMEOUT_S, JavaServer
from deploy.local.ports import HOST, PortLease, lease_ports

PORTS_OF_A_PROCESS = 2
"""One for Spark's messages, one for its page."""
OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs"),
    *("sun.security.action", "sun.util.calendar"),
)
MODULES = ("-XX:+IgnoreUnrecognizedVMOptions", *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED))
"""The options that Spark's own scripts pass to each JVM: org.apache.spark.launcher.JavaModuleOptions."""


def spark_home() -> Path:
    """Return the directory of the package pyspark, which is a whole Spark.

    Raises:
        MissingTool: it is not installed.
    """
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise MissingTool("PySpark is not installed.", remedy="Run `make venv-spark`.")
    return Path(found.origin).parent


class SparkProcess:
    """The master, or a worker."""

    def __init__(self, name: str, server: JavaServer, host: str, page: PortLease) -> None:
        self.name = name
        self.page = f"http://{host}:{page.port}"
        self._server = server

    @property
    def pid(self) -> int:
        """The process id; StarterError when it is not running."""
        return self._server.pid

    def start(self) -> None:
        """Start the process, and return at once."""
        self._server.start()

    def await_ready(self, workers: int = 0) -> None:
        """Wait until the page answers, and until a master has that many workers.

        Raises:
            ServerNotReady: it ended, or was not ready in time; the end of its log is in the message.
        """
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while not self._is_ready(workers):
            if not self._server.alive or time.monotonic() > deadline_s:
                raise ServerNotReady(
                    f"{self.name} was not ready within {READY_TIMEOUT_S:.0f} s (exit code {self._server.exit_code}).",
                    log_path=self._server.log_path,
                )
            time.sleep(0.05)

    def executors(self) -> list[int]:
        """Return the process ids of the executors that this worker has started and that still run."""
        parent = self._server.pid
        return [child for child in _children(parent) if b"CoarseGrainedExecutorBackend" in _command(child)]

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone. A worker's executors then end by themselves."""
        self._server.kill()

    def stop(self) -> None:
        """SIGTERM, and wait: a worker ends its executors first."""
        self._server.stop()

    def _is_ready(self, workers: int) -> bool:
        try:
            with urllib.request.urlopen(f"{self.page}/json/", timeout=5) as answer:  # noqa: S310  (http)
                return answer.read().count(b'"ALIVE"') >= workers + 1 if workers else True
        except (OSError, urllib.error.URLError):
            return False


class SparkCluster:
    """One master and its workers, removed with the ``with`` block, at the latest with this process.

    Args:
        workers: how many.
        cores: of each worker; it is also how many tasks a worker runs at a time.
        memory: of each worker, as Spark writes it.
        environment: further variables of the workers, which their executors and Python inherit.
        apart: each worker has an address of its own, 127.0.0.2 and so on, which needs Linux. Spark starts a second
            attempt of a slow task only on another host.
    """

    def __init__(
        self,
        *,
        workers: int = 2,
        cores: int = 1,
        memory: str = "1g",
        environment: Mapping[str, str] | None = None,
        apart: bool = False,
    ) -> None:
        self.workers: list[SparkProcess] = []
        self._count = workers
        self._cores = cores
        self._memory = memory
        self._environment = dict(environment or {})
        self._apart = apart
        self._leases: list[PortLease] = []
        self._master: SparkProcess | None = None
        self._directory: Path | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def master(self) -> str:
        """``spark://host:port``."""
        return f"spark://{HOST}:{self._leases[0].port}"

    @property
    def client_settings(self) -> dict[str, str]:
        """The settings that a driver on this machine needs besides the address: loopback, no page, small executors."""
        return {
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.ui.enabled": "false",
            "spark.executor.memory": "512m",
            "spark.executor.cores": str(self._cores),
        }

    def start(self) -> None:
        """Start all processes, and wait until the master knows all workers.

        Raises:
            StarterError: its kind says what is missing; nothing is left behind.
        """
        home = spark_home()
        self._directory = guard().new_directory("spark")
        try:
            self._leases = lease_ports(PORTS_OF_A_PROCESS * (1 + self._count))
            self._master = self._process(home, self._directory, 0)
            self._master.start()
            self._master.await_ready()
            self.workers = [self._process(home, self._directory, number) for number in range(1, self._count + 1)]
            for worker in self.workers:
                worker.start()
            self._master.await_ready(self._count)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all processes, remove their directories, release the ports. A second call does nothing."""
        for worker in self.workers:
            worker.stop()
        if self._master is not None:
            self._master.kill()
        for lease in self._leases:
            lease.release()
        self.workers, self._master, self._leases = [], None, []
        if self._directory is not None:
            guard().remove_directory(self._directory)
            self._directory = None

    def _process(self, home: Path, directory: Path, number: int) -> SparkProcess:
        """Return the master (0), or a worker, not started yet."""
        name = f"worker-{number}" if number else "master"
        own, page = self._leases[PORTS_OF_A_PROCESS * number :][:PORTS_OF_A_PROCESS]
        work = directory / name
        work.mkdir()
        host = f"127.0.0.{1 + number}" if self._apart else HOST
        arguments = ["--host", host, "--port", str(own.port), "--webui-port", str(page.port)]
        if number:
            arguments += ["--cores", str(self._cores), "--memory", self._memory, "--work-dir", str(work), self.master]
        java_home = java().resolve().parents[1]
        server = JavaServer(
            f"org.apache.spark.deploy.{'worker.Worker' if number else 'master.Master'}",
            arguments,
            jars=home / "jars",
            log_path=directory / f"{name}.log",
            heap="256m",
            jvm_options=(*QUICK_START, *MODULES),
            environment={
                "SPARK_HOME": str(home),
                "SPARK_SCALA_VERSION": "2.13",  # without it a worker looks for the build directories of Spark's sources
                "JAVA_HOME": str(java_home),
                "SPARK_LOCAL_IP": host,
                "SPARK_LOCAL_DIRS": str(work),
                **self._environment,
            },
        )
        return SparkProcess(name, server, host, page)


def _children(parent: int) -> list[int]:
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                stat = Path(entry.path, "stat").read_text()
            except OSError:
                continue  # it ended meanwhile
            if int(stat.rpartition(")")[2].split()[1]) == parent:
                found.append(int(entry.name))
    return found


def _command(process_id: int) -> bytes:
    try:
        return Path(f"/proc/{process_id}/cmdline").read_bytes()
    except OSError:
        return b""
