"""A real Prometheus that scrapes workers, for tests: the machine's own, or Debian's package, unpacked once.

    with Prometheus(["127.0.0.1:8083"], {"pod": "one"}) as prometheus:
        prometheus.query('up{pod="one"}')

Nothing is installed: the package is fetched and unpacked into the cache that also holds Kafka's jars.
"""

import json
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from deploy.local.errors import MissingTool
from deploy.local.guardian import guard
from deploy.local.once import cache_directory, directory_made_once
from deploy.local.ports import lease_ports

READY_S = 60.0
SCRAPE_EVERY_S = 1
PROGRAM = "usr/bin/prometheus"


def program() -> Path:
    """Return the path of the program. Raises: MissingTool, it is not installed and cannot be fetched."""
    found = shutil.which("prometheus")
    if found:
        return Path(found)
    return directory_made_once(cache_directory() / "prometheus-debian", _fetch) / PROGRAM


def _fetch(directory: Path) -> None:
    print(f"Fetching Debian's package of Prometheus once into {cache_directory()}.", file=sys.stderr, flush=True)
    steps = [["apt-get", "download", "prometheus"], ["apt-get", "update"], ["apt-get", "download", "prometheus"]]
    said = ""
    for step in steps:
        try:
            done = subprocess.run(
                step, check=False, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True
            )
        except FileNotFoundError:
            break
        said = done.stderr
        if packages := list(directory.glob("prometheus_*.deb")):
            subprocess.run(["dpkg", "-x", str(packages[0]), str(directory)], check=True, stdin=subprocess.DEVNULL)
            packages[0].unlink()
            return
    raise MissingTool(
        f"There is no Prometheus here, and Debian's package could not be fetched. {said[-1_000:]}",
        remedy="Install it (on Debian: apt-get install prometheus), so that prometheus is on the PATH.",
    )


class Prometheus:
    """One server on loopback, removed with its ``with`` block."""

    def __init__(self, targets: Sequence[str], labels: Mapping[str, str]) -> None:
        """Scrape ``/metrics`` at each ``host:port``; ``labels`` are added to all series, as relabelling does."""
        self._directory = guard().new_directory("prometheus")
        (self._lease,) = lease_ports(1)
        self._at = f"127.0.0.1:{self._lease.port}"
        jobs = [{"job_name": "mm2py", "static_configs": [{"targets": list(targets), "labels": dict(labels)}]}]
        settings = {"global": {"scrape_interval": f"{SCRAPE_EVERY_S}s"}, "scrape_configs": jobs}
        (self._directory / "prometheus.yml").write_text(json.dumps(settings))  # JSON is YAML
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with (self._directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    str(program()),
                    f"--config.file={self._directory / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._directory / 'data'}",
                    f"--web.listen-address={self._at}",
                ],
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        end_s = time.monotonic() + READY_S
        while True:
            try:
                with urllib.request.urlopen(f"http://{self._at}/-/ready", timeout=5):
                    return self
            except OSError:
                if self._process.poll() is not None or time.monotonic() > end_s:
                    self._stop()
                    raise RuntimeError((self._directory / "log").read_text(errors="replace")[-2_000:]) from None
            time.sleep(0.1)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()
        guard().remove_directory(self._directory)

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._lease.release()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series that a query finds now, each with ``metric`` and ``value``.

        Raises: ValueError, Prometheus refuses the query.
        """
        asked = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"http://{self._at}/api/v1/query?{asked}", timeout=30) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{expression}: {error.read()[:500]!r}") from None
        return found
