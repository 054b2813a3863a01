"""The mirrors: how each one is started. One properties file serves mm2py and MirrorMaker 2.

The file names the clusters and the topic, asks for one replica, and disables offset syncs and checkpoints: only copying
is measured, and no mirror shall do more than another. All other settings have their defaults, also heartbeats.
MirrorMaker 2 gets the flags of its own start script. The cost of the start counts for each mirror, so mm2py runs as
installed: a new interpreter, ``python -m mm2py FILE``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.peers import franz_go
from bench.sides import JVM_OPTIONS, Side, Sides
from bench.workloads import Workload
from deploy.local.broker_settings import render_properties
from deploy.local.errors import tail
from deploy.local.guardian import guard
from deploy.local.jars import jar_directory
from deploy.local.java import java
from deploy.local.jvm import LOGGING
from deploy.local.network import inside
from deploy.local.python_path import python_path

ROOT: Final = Path(__file__).parents[1]
MM2PY: Final = "mm2py"
MM2_1: Final = "mm2-1"
MM2_4: Final = "mm2-4"
MM2_TUNED: Final = "mm2-tuned"
"""MM2 tuned for a long link, as its community recommends: many tasks, large buffers and fetches. Only ``bench.wan``
runs it."""
FRANZ_GO: Final = "franz-go"
MM2: Final = (MM2_1, MM2_4)
TITLES: Final[Mapping[str, str]] = {
    MM2PY: "mm2py",
    MM2_1: "MM2, tasks.max=1",
    MM2_4: "MM2, tasks.max=4",
    FRANZ_GO: "franz-go loop",
}
MIRRORS: Final = tuple(TITLES)
LOG_BYTES_SHOWN: Final = 2_000


class NotMeasured(Exception):
    """This mirror cannot be run here; the message says why."""


@dataclass(frozen=True, slots=True)
class Options:
    """Changes of a mirror by the command line."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """Further properties of mm2py; ``{flow}`` in a key stands for the flow."""
    profile: Path | None = None
    """Where to write mm2py's profile of a run, which slows it down a lot."""
    module: tuple[str, ...] = ("mm2py",)
    """The module that ``python -m`` runs for mm2py, with arguments before the file."""
    arguments: tuple[str, ...] = ()
    """Arguments after the file; ``{flow}`` stands for the flow."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of one mirror. Aliases are new each time, so that no run finds the positions of another."""

    mirror: str
    workload: Workload
    serial: str
    options: Options

    @property
    def source_alias(self) -> str:
        return f"s{self.serial}"

    @property
    def target_alias(self) -> str:
        return f"t{self.serial}"

    @property
    def remote_topic(self) -> str:
        return f"{self.source_alias}.{self.workload.topic}"


def properties(launch: Launch, addresses: tuple[str, str], tls: Mapping[str, str]) -> dict[str, str]:
    """Return the file for mm2py or MirrorMaker 2.

    Args:
        addresses: addresses of the source and the target cluster.
        tls: properties of TLS for both sides, without the alias; empty for plain text.
    """
    source, target = launch.source_alias, launch.target_alias
    flow = f"{source}->{target}"
    own = {key.replace("{flow}", flow): value for key, value in launch.options.settings.items()}
    return {
        "clusters": f"{source}, {target}",
        f"{source}.bootstrap.servers": addresses[0],
        f"{target}.bootstrap.servers": addresses[1],
        f"{flow}.enabled": "true",
        f"{flow}.topics": launch.workload.topic,
        "tasks.max": _TASKS.get(launch.mirror, "4"),
        "replication.factor": "1",
        "emit.offset-syncs.enabled": "false",
        "emit.checkpoints.enabled": "false",
        "heartbeats.topic.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "config.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
        **{f"{alias}.{key}": value for alias in (source, target) for key, value in tls.items()},
        **({f"{source}.consumer.{key}": value for key, value in _TUNED.items()} if launch.mirror == MM2_TUNED else {}),
        **({"listeners": "", **own} if launch.mirror == MM2PY else {}),  # MirrorMaker 2 serves no REST there either
    }


_TASKS: Final = {MM2_1: "1", MM2_TUNED: "12"}
_TUNED: Final = {
    "receive.buffer.bytes": "1048576",
    "fetch.max.bytes": "104857600",
    "max.partition.fetch.bytes": "10485760",
    "max.poll.records": "10000",
}


class Running:
    """A mirror's process."""

    def __init__(self, process: subprocess.Popen[bytes], log_path: Path, started_s: float) -> None:
        self.started_s = started_s
        self._process = process
        self._log_path = log_path

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._process.poll()

    def log_text(self) -> str:
        return self._log_path.read_text(errors="replace")

    def log_tail(self) -> str:
        return tail(self._log_path, max_bytes=LOG_BYTES_SHOWN)

    def stop(self, *, timeout_s: float = 60.0) -> None:
        """Send SIGTERM and wait; send SIGKILL after the time-out."""
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()


def command_of(launch: Launch, sides: Sides, directory: Path, tls: Mapping[str, str]) -> list[str]:
    """Write the properties file, and return the command line that reads it.

    Raises:
        NotMeasured: the mirror cannot be run here.
    """
    if launch.mirror == FRANZ_GO:
        return _franz_go(launch, sides, tls)
    path = directory / "mm2.properties"
    path.write_text(render_properties(properties(launch, _addresses(sides, encrypted=launch.workload.tls), tls)))
    if launch.mirror == MM2PY:
        profile = ["-m", "cProfile", "-o", str(launch.options.profile)] if launch.options.profile else []
        flow = f"{launch.source_alias}->{launch.target_alias}"
        behind = [flow if one == "{flow}" else one for one in launch.options.arguments]
        return [sys.executable, *profile, "-m", *launch.options.module, str(path), *behind]
    return [
        *(str(java()), "-Xms256M", "-Xmx2G", *JVM_OPTIONS, "-Djava.awt.headless=true", *LOGGING),
        *("-cp", f"{jar_directory()}/*", "org.apache.kafka.connect.mirror.MirrorMaker", str(path)),
    ]


def _addresses(sides: Sides, *, encrypted: bool) -> tuple[str, str]:
    def address(side: Side) -> str:
        return side.cluster.bootstrap_for("SSL") if encrypted else side.bootstrap

    return address(sides.source), address(sides.target)


def _franz_go(launch: Launch, sides: Sides, tls: Mapping[str, str]) -> list[str]:
    workload = launch.workload
    source, target = _addresses(sides, encrypted=workload.tls)
    try:
        program = franz_go.build()
    except franz_go.NoGo as error:
        raise NotMeasured(str(error)) from error
    return [
        *(str(program), "-source", source, "-target", target, "-authority", tls.get("ssl.truststore.location", "")),
        *("-topic", workload.topic, "-remote", launch.remote_topic, "-codec", workload.shape.codec.name.lower()),
        *("-linger", "0s" if workload.pace else "5ms"),
    ]


async def prepare(launch: Launch, sides: Sides) -> None:
    """Create the remote topic for a mirror that creates none."""
    if launch.mirror == FRANZ_GO:
        await sides.target.create(launch.remote_topic, launch.workload.partitions)


@contextmanager
def running(launch: Launch, sides: Sides, tls: Mapping[str, str]) -> Iterator[Running]:
    """Start a mirror cold. At the end of the block it is killed, or stopped with SIGTERM if it must write its profile.

    Raises:
        NotMeasured: the mirror cannot be run here.
    """
    directory = guard().new_directory(f"bench-{launch.mirror}")
    try:
        command = command_of(launch, sides, directory, tls if launch.workload.tls else {})
        log_path = directory / "log"
        with log_path.open("wb") as log, inside(sides.network):
            started_s = time.monotonic()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env={**_inherited(), **_OWN_VARIABLES, **guard().environment()},
                start_new_session=True,
            )
        mirror = Running(process, log_path, started_s)
        try:
            yield mirror
            if launch.mirror == MM2PY and launch.options.profile:
                mirror.stop()
        finally:
            process.kill()
            process.wait()
    finally:
        guard().remove_directory(directory)


def _inherited() -> dict[str, str]:
    """Return this process's environment without PYTHONDONTWRITEBYTECODE: an installed mm2py has compiled modules."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


_OWN_VARIABLES: Final = {
    # kio and structlog import hypothesis and rich if these are installed, as for tests: 0.2 s at each start.
    "PYTHONPATH": os.pathsep.join([str(ROOT / "bench" / "not_installed"), python_path(ROOT)]),
}
