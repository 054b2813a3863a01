"""Builds the franz-go loop in ``franz/`` if Go is installed. Go's own build cache makes the second build quick."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from deploy.local.guardian import guard

DIRECTORY: Final = Path(__file__).with_name("franz")
BUILD_S: Final = 300.0


class NoGo(Exception):
    """The loop cannot be built here."""


@functools.cache
def build() -> Path:
    """Return the program.

    Raises:
        NoGo: Go is missing, or could not build; the message says which.
    """
    go = shutil.which("go")
    if go is None:
        raise NoGo("no Go")
    program = guard().new_directory("franz") / "franz"
    try:
        done = subprocess.run(
            [go, "build", "-o", str(program), "."],
            check=False,
            cwd=DIRECTORY,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BUILD_S,
        )
    except subprocess.TimeoutExpired as error:
        raise NoGo(f"go build took longer than {BUILD_S:g} s") from error
    if done.returncode:
        raise NoGo(f"go build failed: {done.stderr.strip()[-500:]}")
    return program


def versions() -> dict[str, str]:
    """Return the versions of Go and of franz-go; without Go only the required one."""
    found = re.search(r"twmb/franz-go (v\S+)", (DIRECTORY / "go.mod").read_text())
    versions = {"franz-go": found.group(1) if found else "unknown"}
    if go := shutil.which("go"):
        done = subprocess.run([go, "version"], check=False, capture_output=True, text=True)
        versions["go"] = done.stdout.removeprefix("go version ").strip()
    return versions
