"""The runner of ``make mutants`` is itself tested, on a project of one rule: what it must not call killed."""

import subprocess
from pathlib import Path

import pytest

from tests.mutants.runner import CannotRun, Mutant, Verdict, check_mutants, read_mutant, run_mutants

pytestmark = pytest.mark.one_python

RULE = """\
def may_send(leased: bool) -> bool:
    # Nothing is sent without a lease.
    if not leased:
        return False
    return True
"""
TESTS = """\
import time

from mm2py.rule import may_send

def test_nothing_is_sent_without_a_lease():
    assert not may_send(False)

def test_with_a_lease_something_is_sent():
    assert may_send(True)

def test_that_hangs_without_the_rule():
    while may_send(False):
        time.sleep(0.01)
"""
PYPROJECT = """\
[tool.pytest.ini_options]
addopts = "--import-mode=importlib"
pythonpath = ["."]
timeout = 3
"""
DROPPED = """\
A worker sends although it has no lease.
{killed_by}
--- a/mm2py/rule.py
+++ b/mm2py/rule.py
@@ -2,4 +2,4 @@
     # Nothing is sent without a lease.
     if not leased:
-        return False
+        return True
     return True
"""
HOLDS = "tests/test_rule.py::test_nothing_is_sent_without_a_lease"
HOLDS_NOT = "tests/test_rule.py::test_with_a_lease_something_is_sent"
HANGS = "tests/test_rule.py::test_that_hangs_without_the_rule"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name, text in {
        "pyproject.toml": PYPROJECT,
        "mm2py/__init__.py": "",
        "mm2py/rule.py": RULE,
        "tests/test_rule.py": TESTS,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    return root


def dropped(killed_by: str, patch: str = DROPPED) -> Mutant:
    return Mutant("01-lease-not-checked", patch, (killed_by,))


def test_a_mutant_is_killed_only_when_a_test_fails_that_holds_its_rule(project: Path) -> None:
    moved = "# Another line.\n\n\n" + RULE
    (project / "mm2py/rule.py").write_text(moved)
    results = run_mutants(
        project,
        [
            dropped(HOLDS_NOT),
            dropped(HOLDS, DROPPED.replace("-        return False", "-        return leased")),
            dropped(HOLDS, DROPPED.replace("+        return True", "+        return )")),
            dropped(HANGS),
            dropped(HOLDS),
        ],
        workers=1,
    )
    assert [result.verdict for result in results] == [
        Verdict.SURVIVED,
        Verdict.NO_LONGER_APPLIES,
        Verdict.NOT_TESTED,
        Verdict.TIMED_OUT,
        Verdict.KILLED,
    ]
    assert (project / "mm2py/rule.py").read_text() == moved


def test_a_check_names_patches_that_do_not_apply_and_tests_that_are_gone(project: Path) -> None:
    stale = dropped(HOLDS, DROPPED.replace("-        return False", "-        return leased"))
    assert check_mutants(project, [dropped(HOLDS)]) == ""
    found = check_mutants(project, [stale, dropped("tests/test_rule.py::test_that_is_gone")])
    assert "01-lease-not-checked no longer applies" in found
    assert "test_that_is_gone" in found
    assert (project / "mm2py/rule.py").read_text() == RULE


def test_tests_that_fail_without_a_mutant_prove_nothing(project: Path) -> None:
    (project / "mm2py/rule.py").write_text(RULE.replace("return False", "return True"))
    with pytest.raises(CannotRun, match="do not pass without a mutant"):
        list(run_mutants(project, [dropped(HOLDS)], workers=1))


def test_the_header_names_the_tests(tmp_path: Path) -> None:
    path = tmp_path / "01-lease-not-checked.patch"
    path.write_text(DROPPED.format(killed_by=f"Killed-by: {HOLDS}\nKilled-by: {HOLDS_NOT}"))
    mutant = read_mutant(path)
    assert (mutant.name, mutant.killed_by, mutant.files) == (path.stem, (HOLDS, HOLDS_NOT), ["mm2py/rule.py"])
    path.write_text(DROPPED.format(killed_by=""))
    with pytest.raises(ValueError, match="names no test"):
        read_mutant(path)
