"""The mirrors of the fault campaign: how each is started, and its process, which dies and is started again.

All three read the same file, with their own defaults; only the numbers of replicas are set, because clusters of this
size need that. MirrorMaker 2 gets the flags of its own start script, and for exactly-once the settings that its
documentation asks for.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.mirrors import ROOT
from bench.sides import JVM_OPTIONS
from deploy.local.broker_settings import render_properties
from deploy.local.guardian import guard
from deploy.local.jars import jar_directory
from deploy.local.java import java
from deploy.local.jvm import LOGGING
from deploy.local.python_path import python_path

MM2PY: Final = "mm2py"
MM2: Final = "mm2"
MM2_EOS: Final = "mm2-eos"
TITLES: Final[Mapping[str, str]] = {MM2PY: "mm2py", MM2: "MM2", MM2_EOS: "MM2, exactly-once"}
MIRRORS: Final = tuple(TITLES)
STOP_S: Final = 75.0
"""MirrorMaker 2 waits up to a minute for its own start before it stops."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One flow of one case. Its aliases are new, so that no run finds topics or positions of another."""

    mirror: str
    serial: str
    source: str
    """The address of the source cluster; ``target`` is that of the target cluster."""
    target: str
    topics: Sequence[str]
    source_replicas: int
    target_replicas: int
    mm2_settings: Mapping[str, str] = field(default_factory=dict)
    """Further properties of MirrorMaker 2; ``{target}`` in a key stands for its alias."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further properties of all mirrors; ``{source}`` in a key stands for its alias."""

    @property
    def source_alias(self) -> str:
        return f"s{self.serial}"

    @property
    def target_alias(self) -> str:
        return f"t{self.serial}"

    def remote(self, topic: str) -> str:
        return f"{self.source_alias}.{topic}"


def properties(plan: Plan, *, rest_port: int) -> dict[str, str]:
    """Return the properties. The workers of an exactly-once MirrorMaker 2 reach each other at ``rest_port``."""
    source, target = plan.source_alias, plan.target_alias
    file = {
        "clusters": f"{source}, {target}",
        f"{source}.bootstrap.servers": plan.source,
        f"{target}.bootstrap.servers": plan.target,
        f"{source}->{target}.enabled": "true",
        f"{source}->{target}.topics": ",".join(plan.topics),
        "replication.factor": str(plan.target_replicas),
        "heartbeats.topic.replication.factor": str(min(plan.source_replicas, plan.target_replicas)),
        "offset-syncs.topic.replication.factor": str(plan.source_replicas),
        "checkpoints.topic.replication.factor": str(plan.target_replicas),
    }
    # For heartbeats MirrorMaker 2 runs a worker in the other direction too, whose topics are on the source.
    for alias, replicas in ((source, plan.source_replicas), (target, plan.target_replicas)):
        for store in ("offset", "config", "status"):
            file[f"{alias}.{store}.storage.replication.factor"] = str(replicas)
    if plan.mirror == MM2PY:
        file["listeners"] = ""
    if plan.mirror == MM2_EOS:
        file |= {
            f"{target}.exactly.once.source.support": "enabled",
            f"{source}.consumer.isolation.level": "read_committed",
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": f"http://127.0.0.1:{rest_port}",
        }
    file |= {key.replace("{source}", source): value for key, value in plan.settings.items()}
    if plan.mirror != MM2PY:
        file |= {key.replace("{target}", target): value for key, value in plan.mm2_settings.items()}
    return file


def command(plan: Plan, path: Path) -> list[str]:
    """Return the command line that reads the file at ``path``."""
    if plan.mirror == MM2PY:
        return [sys.executable, "-m", "mm2py", str(path)]
    return [
        *(str(java()), "-Xms256M", "-Xmx2G", *JVM_OPTIONS, "-Djava.awt.headless=true", *LOGGING),
        *("-cp", f"{jar_directory()}/*", "org.apache.kafka.connect.mirror.MirrorMaker", str(path)),
    ]


class Worker:
    """One worker: one process at a time, and one log for all its processes."""

    def __init__(self, plan: Plan, directory: Path, *, rest_port: int, name: str = "worker") -> None:
        self.log_path = directory / f"{name}.log"
        self.started_s = 0.0
        path = directory / f"{name}.properties"
        path.write_text(render_properties(properties(plan, rest_port=rest_port)))
        self._command = command(plan, path)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        """Whether the process runs; a frozen process counts as running."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start the process unless it runs; returns at once."""
        if self.alive:
            return
        with self.log_path.open("ab") as log:
            self.started_s = time.monotonic()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.log_path.parent,
                env={
                    **os.environ,
                    "PYTHONPATH": python_path(ROOT),
                    "HYPOTHESIS_STORAGE_DIRECTORY": str(ROOT / ".hypothesis"),
                    **guard().environment(),
                },
                start_new_session=True,
            )

    def stop(self) -> int | None:
        """Send SIGTERM and wait; send SIGKILL after ``STOP_S``. Returns the exit code."""
        if self._process is not None and self.alive:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.exit_code

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process has ended. It need not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def freeze(self) -> None:
        """Send SIGSTOP: the process does nothing, and its connections stay open."""
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Send SIGCONT: the process continues as if no time had passed."""
        self._send(signal.SIGCONT)

    def log_size(self) -> int:
        return self.log_path.stat().st_size if self.log_path.exists() else 0

    def log_text(self, since: int = 0) -> str:
        """Return the log from byte ``since`` on."""
        with self.log_path.open("rb") as log:
            log.seek(since)
            return log.read().decode(errors="replace")

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None and self.alive:
            self._process.send_signal(number)
