"""mm2py as an operator has it: a wheel in an environment of its own. Two of them may run side by side.

The wheels are built from git by what ``.venv`` has, so nothing is fetched; what mm2py depends on is that of ``.venv``.
"""

from __future__ import annotations

import io
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import Final

from deploy.local.once import cache_directory, directory_made_once
from tests.cluster.running import ROOT

BEFORE_PACKAGES: Final = "78cddea594579c27c09e54cde13dd16953955a34"
"""The last commit before there were packages."""


def installed_of(commit: str, folder: Path) -> Path:
    """Return the Python of a new environment in ``folder`` with mm2py as of a commit.

    Raises:
        subprocess.CalledProcessError: this is no clone with that commit in its history.
    """
    wheels = directory_made_once(
        cache_directory() / f"wheel-{commit[:12]}", lambda draft: _build_from_git(commit, draft)
    )
    return _installed(wheels, folder)


def installed_of_checkout(folder: Path) -> Path:
    """Return the Python of a new environment in ``folder`` with mm2py as this checkout has it."""
    wheels = folder / "wheels"
    _build(ROOT, wheels)
    return _installed(wheels, folder)


def _build_from_git(commit: str, wheels: Path) -> None:
    archive = subprocess.run(["git", "-C", ROOT, "archive", commit], check=True, stdout=subprocess.PIPE).stdout
    source = wheels / "source"
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(source, filter="data")
    _build(source, wheels)


def _build(source: Path, wheels: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation"]
    subprocess.run([*build, "--outdir", wheels, source], check=True, stdout=subprocess.DEVNULL)


def _installed(wheels: Path, folder: Path) -> Path:
    environment = folder / "env"
    venv.create(environment, symlinks=True, with_pip=False)
    (packages,) = environment.glob("lib/python*/site-packages")
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        files.extractall(packages)  # noqa: S202  (our own wheel)
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment / "bin" / "python"
