"""The machine and the versions of a bench."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

from bench.peers import franz_go
from deploy.local.jars import POM, default_kafka_version
from deploy.local.java import java, java_version

ROOT = Path(__file__).parents[1]
PACKAGES = ("uvloop", "kio", "crc32c", "cramjam", "aiokafka", "confluent-kafka")


def hardware() -> dict[str, str | int | float]:
    """Return the CPU, the memory and the kernel of the machine, and its load before the bench."""
    return {
        "cpu": _field("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count() or 0,
        "memory_gb": round(int(_field("/proc/meminfo", "MemTotal").split()[0]) * 1_024 / 1e9, 1),
        "kernel": platform.release(),
        "load_average_before": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    """Return the versions of all programs involved. MirrorMaker 2 has Kafka's version."""
    kafka = default_kafka_version(POM.read_text())
    found = {
        "kafka": kafka,
        "mirrormaker2": kafka,
        "java": java_version(java()).splitlines()[0],
        "python": platform.python_version(),
    }
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {**found, **franz_go.versions()}


def commit() -> str:
    """Return the commit of this checkout, with a plus sign and a digest of local changes; empty outside of one."""
    head = _git("rev-parse", "HEAD")
    changes = _git("--no-optional-locks", "diff", "HEAD") if head else ""
    return f"{head}+{hashlib.sha256(changes.encode()).hexdigest()[:8]}" if changes else head


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], check=True, cwd=ROOT, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _field(path: str, name: str) -> str:
    lines = Path(path).read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "unknown")
