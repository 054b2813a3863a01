"""The wheels where nothing is: installed by pip, pipx and uv with an empty home, and run. ``make test-wheels``.

Slow: it builds both wheels, and each environment fetches all dependencies.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Callable, Sequence
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
TOOLS = ROOT / ".venv-packages" / "bin"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both wheels, built and checked as make wheels does; the web page is left out."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(["make", "--no-print-directory", "build-wheels", f"DIST={folder}"], cwd=ROOT, check=True)
    return folder


class Home:
    """An empty home directory, and commands that run in it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "home"
        self.path.mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "XDG_", "MM2PY_"))}
        self.environment = {**kept, "HOME": str(self.path)}

    def run(self, *command: str | Path, code: int = 0, **variables: str) -> str:
        """Run a command, and return what it printed."""
        environment = {**self.environment, **variables}
        done = subprocess.run(
            command, cwd=self.path, env=environment, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def by_pip(home: Home, dist: Path, extras: str = "") -> Path:
    venv.create(home.path / "env", with_pip=True)
    python = home.path / "env" / "bin" / "python"
    home.run(python, "-m", "pip", "install", "--quiet", "--find-links", dist, f"{wheel_in(dist)}{extras}")
    assert (home.path / "env/share/man/man1/mm2py.1").exists()
    return home.path / "env" / "bin" / "mm2py"


def by_pipx(home: Home, dist: Path) -> Path:
    home.run(TOOLS / "pipx", "install", "--python", sys.executable, wheel_in(dist))
    assert (home.path / ".local/share/man/man1/mm2py.1").exists()
    return home.path / ".local" / "bin" / "mm2py"


def by_uv(home: Home, dist: Path) -> Path:
    home.run(TOOLS / "uv", "tool", "install", "--python", sys.executable, wheel_in(dist))
    return home.path / ".local" / "bin" / "mm2py"


def wheel_in(dist: Path) -> Path:
    (found,) = dist.glob("mm2py-*.whl")
    return found


@pytest.mark.parametrize("install", [by_pip, by_pipx, by_uv])
def test_the_wheel_runs_where_nothing_else_is(dist: Path, home: Home, install: Callable[[Home, Path], Path]) -> None:
    command = install(home, dist)
    assert home.run(command, "--version").startswith(f"mm2py {VERSION}, ")
    helped = home.run(command, "--help")
    assert "Look:\n" in helped and "  mm2py status " in helped
    (home.path / "mm2.properties").write_text(
        "clusters = A, B\nA.bootstrap.servers = 127.0.0.1:1\nB.bootstrap.servers = 127.0.0.1:2\n"
        "A->B.enabled = true\nA->B.topics = orders\n"
    )
    told = home.run(command, "check", "mm2.properties", "--pre", code=1)  # no cluster answers, and it says so
    assert "127.0.0.1:1" in told and "127.0.0.1:2" in told
    assert "Traceback" not in told


@pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not here, so the core cannot be built")
def test_the_extras_bring_the_core_and_the_client_of_zookeeper(dist: Path, home: Home) -> None:
    (core,) = dist.glob("mm2py_native-*.whl")
    assert "-cp311-abi3-manylinux" in core.name and "manylinux_2_17_" in core.name
    command = by_pip(home, dist, "[native,zookeeper]")
    told = home.run(command, "--version", MM2PY_NATIVE="require")
    assert VERSION in told
    home.run(command.with_name("python"), "-c", "import kazoo, mm2py_native")


def test_each_extra_names_what_it_needs(dist: Path) -> None:
    with zipfile.ZipFile(wheel_in(dist)) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        metadata = message_from_bytes(archive.read(name))
    needs: Sequence[str] = metadata.get_all("Requires-Dist") or []
    packages = {
        "native": "mm2py-native",
        "spark": "pyspark",
        "zookeeper": "kazoo",
        "kerberos": "gssapi",
        "strimzi": "PyYAML",
    }
    for extra, package in packages.items():
        assert any(one.startswith(package) and f"extra == '{extra}'" in one for one in needs), extra
