"""The common part of every new broker of one version, made once: a formatted log directory, and a class archive.

Formatting with Kafka's own StorageTool costs each node a JVM, and reading a broker's classes from its jars takes half
of its start. Both results are the same each time, so the first broker of a version makes them for all: its formatted
directory, in which only the ids change, and the JVM's archive of the classes that it loaded.
"""

import base64
import hashlib
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.local.broker_settings import CONTROLLER, broker_properties, render_properties
from deploy.local.errors import ServerNotReady, StarterError
from deploy.local.guardian import guard
from deploy.local.java import java, java_version
from deploy.local.jvm import JavaServer
from deploy.local.once import cache_directory, directory_made_once
from deploy.local.ports import HOST, lease_ports
from deploy.local.probe import NotReady, cluster_view

LONGEST_FIRST_START_S = 60.0


@dataclass(frozen=True, slots=True)
class BootImage:
    """The image of one version of Kafka under one build of Java."""

    directory: Path

    @property
    def jvm_options(self) -> tuple[str, ...]:
        """The options with which a JVM uses the class archive; a JVM that cannot use it runs without."""
        archive = self.directory / "classes.jsa"
        return (f"-XX:SharedArchiveFile={archive}",) if archive.exists() else ()

    def format_log_directory(self, log_dir: Path, *, node_id: int, cluster_id: str) -> None:
        """Write a new log directory for a node, as StorageTool would."""
        formatted = self.directory / "formatted"
        shutil.copytree(formatted, log_dir)
        meta = (formatted / "meta.properties").read_text()
        (log_dir / "meta.properties").write_text(with_ids(meta, node_id=node_id, cluster_id=cluster_id))


def kafka_uuid() -> str:
    """Return a random id in Kafka's spelling: 22 characters of base64, never with a leading dash."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")


def with_ids(meta_properties: str, *, node_id: int, cluster_id: str) -> str:
    """Return a ``meta.properties`` with the ids of another node, and a new id for its directory."""
    ids = {"node.id": str(node_id), "cluster.id": cluster_id, "directory.id": kafka_uuid()}
    lines = [line.partition("=") for line in meta_properties.splitlines() if not line.startswith("#")]
    return "".join(f"{key}={ids.get(key, value)}\n" for key, _, value in lines)


def boot_image(jars: Path) -> BootImage:
    """Return the boot image for these jars and this machine's Java; make it if there is none yet.

    Raises:
        StarterError: StorageTool refused, or the first broker did not start.
    """
    build_of_java = hashlib.sha256(f"{java()}\n{java_version(java())}".encode()).hexdigest()[:8]
    return BootImage(
        directory_made_once(cache_directory() / f"boot-{jars.name}-{build_of_java}", lambda draft: _make(jars, draft))
    )


def run_storage_tool(jars: Path, config_path: Path, cluster_id: str, options: Sequence[str] = ()) -> None:
    """Format the log directory of a configuration with Kafka's StorageTool.

    Raises:
        StarterError: the tool refused; the message is the tool's own.
    """
    command = [
        *(str(java()), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        *("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{jars}/*", "kafka.tools.StorageTool"),
        *("format", "--cluster-id", cluster_id, "--config", str(config_path), *options),
    ]
    done = subprocess.run(
        command, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        raise StarterError("StorageTool did not format the log directory.", remedy=f"It said:\n{done.stdout[-4_000:]}")


def _make(jars: Path, draft: Path) -> None:
    print(f"Starting {jars.name} for the first time: the next starts will be faster.", file=sys.stderr, flush=True)
    workshop = guard().new_directory("first-start")
    leases = lease_ports(2)
    try:
        listeners = {"PLAINTEXT": "PLAINTEXT"}
        properties = broker_properties(
            1,
            host=HOST,
            ports={1: {CONTROLLER: leases[0].port, "PLAINTEXT": leases[1].port}},
            listeners=listeners,
            log_dir=str(workshop / "data"),
            settings={},
        )
        config_path = workshop / "broker.properties"
        config_path.write_text(render_properties(properties))
        run_storage_tool(jars, config_path, kafka_uuid())
        shutil.copytree(workshop / "data", draft / "formatted")
        broker = JavaServer(
            "kafka.Kafka",
            [str(config_path)],
            jars=jars,
            log_path=workshop / "broker.log",
            extra_jvm_options=[f"-XX:ArchiveClassesAtExit={draft / 'classes.jsa'}"],
        )
        try:
            broker.start()
            _await_ready(broker, leases[1].port)
            broker.stop(timeout_s=LONGEST_FIRST_START_S)  # the archive is written at the end of the process
        finally:
            broker.kill()
    finally:
        for lease in leases:
            lease.release()
        guard().remove_directory(workshop)


def _await_ready(broker: JavaServer, port: int) -> None:
    deadline_s = time.monotonic() + LONGEST_FIRST_START_S
    while broker.alive and time.monotonic() < deadline_s:
        try:
            if cluster_view(HOST, port).broker_ids:
                return
        except NotReady:
            time.sleep(0.05)
    raise ServerNotReady("The first broker of this version did not start.", log_path=broker.log_path)
