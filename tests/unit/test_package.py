"""What is shipped: exactly the three packages, and a command that runs from them."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"mm2py", "mm2py_connectors", "mm2py_rest"}
FOLDERS = {"mm2py", "connectors", "rest", "deploy"}
SHARED = "deploy/share/man/man1/mm2py.1"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_wheel_holds_the_three_packages_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl"), "the compiled core is a package of its own"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith((".dist-info", ".data"))} == PACKAGES
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    shared = {name.partition(".data/data/")[2] for name in names if ".data/" in name}
    kept = (path for path in (ROOT / "deploy/share").rglob("*") if path.is_file())
    assert shared == {path.relative_to(ROOT / "deploy").as_posix() for path in kept}


def test_the_source_archive_holds_the_three_packages_and_what_builds_them(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = tar.getnames()
    tops = {name.split("/")[1] for name in names if "/" in name}
    assert tops - {".gitignore"} == FOLDERS | {"README.md", "LICENSE", "pyproject.toml", "PKG-INFO"}


def test_a_page_that_was_built_is_in_the_wheel_though_git_does_not_know_it(tmp_path: Path) -> None:
    files = ["pyproject.toml", "README.md", "LICENSE", ".gitignore", "mm2py/__init__.py", SHARED]
    files += ["connectors/mm2py_connectors/__init__.py", "rest/mm2py_rest/__init__.py"]
    made = {name: (ROOT / name).read_bytes() for name in files}
    made |= {"rest/mm2py_rest/page/index.html": b"built", "rest/page/node_modules/vite/index.js": b"of a tool"}
    for name, content in made.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "tree" / ".git").mkdir()
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(tmp_path / "tree")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")  # made of the source archive, so that has it, too
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("mm2py_rest/page/index.html") == b"built"
        assert not [name for name in archive.namelist() if "node_modules" in name]
