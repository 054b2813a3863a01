"""What must not get into the source, and what is installed with it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FORBIDDEN = {
    "S301": "import pickle\n\npickle.loads(b'')\n",
    "S302": "import marshal\n\nmarshal.loads(b'')\n",
    "S307": "eval(input())\n",
    "S102": "exec(input())\n",
    "S506": "import yaml\n\nyaml.load(input())\n",
    "S602": "import subprocess\n\nsubprocess.run(input(), shell=True, check=True)\n",
    "S605": "import os\n\nos.system(input())\n",
}


@pytest.mark.parametrize("package", ["mm2py", "connectors", "rest", "deploy", "bench"])
def test_the_lint_refuses_what_runs_or_loads_a_text_from_outside(package: str) -> None:
    """S27."""
    for code, text in FORBIDDEN.items():
        command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--stdin-filename", f"{package}/canary.py", "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT, check=False)
        assert done.returncode == 1 and code in done.stdout, f"{code} in {package}: {done.stdout}{done.stderr}"


def test_only_what_a_worker_sends_to_its_own_rest_process_is_exempt_from_that() -> None:
    """S27."""
    exempt = re.compile(rf"noqa(?!:)|noqa:.*\b(?:{'|'.join(FORBIDDEN)})\b")
    assert exempt.search("x  # noqa: S301") and exempt.search("x  # noqa") and not exempt.search("x  # noqa: S603")
    found = [
        str(path.relative_to(ROOT))
        for package in ("mm2py", "connectors", "rest")
        for path in (ROOT / package).rglob("*.py")
        for line in path.read_text().splitlines()
        if exempt.search(line)
    ]
    assert found == ["rest/mm2py_rest/worker_link.py"]


def name_of(requirement: str) -> str:
    """Return the name at the front of a requirement, as indexes compare it."""
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match is not None, requirement
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def test_every_dependency_is_pinned_to_one_version_and_nothing_names_a_host() -> None:
    """S28."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    named += [one for extra in project["project"]["optional-dependencies"].values() for one in extra]
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+", line)] == []
    native = f"mm2py-native=={project['project']['version']}"
    assert native in named, "a core of another version is not loaded"
    assert {name_of(one) for one in named if one != native} - {name_of(line) for line in lines} == set()
    assert [one for one in named if "://" in one or "@" in one] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_bill_of_materials_names_what_is_installed_with_its_version(tmp_path: Path) -> None:
    """S28. Slow: it installs the tool in an environment of its own."""
    file = tmp_path / "sbom.json"
    subprocess.run(["make", "--no-print-directory", "sbom", f"SBOM={file}"], cwd=ROOT, check=True, timeout=500)
    bill = json.loads(file.read_text())
    assert bill["bomFormat"] == "CycloneDX"
    listed = {name_of(one["name"]): one["version"] for one in bill["components"]}
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    for name in ("aiokafka", "cryptography", "kio", "regex", "uvicorn"):
        assert listed[name] == pins[name]
