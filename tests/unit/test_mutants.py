"""The tables of ``make mutants`` fit the code; its runner is tested on a project of one rule: what it must not call
killed."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutants.runner import CannotRun, Verdict, run_mutants
from tests.mutants.table import Mutant, problems, read_mutants

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
HOLDS = "tests/test_rule.py::test_nothing_is_sent_without_a_lease"
HOLDS_NOT = "tests/test_rule.py::test_with_a_lease_something_is_sent"
HANGS = "tests/test_rule.py::test_that_hangs_without_the_rule"
DROPPED = Mutant(
    name="lease-not-checked",
    rule="Nothing is sent without a lease: two workers would write.",
    file="mm2py/rule.py",
    old="return False",
    new="return True",
    killed_by=(HOLDS,),
)
ENTRY = f"""\
[[mutant]]
name = "lease-not-checked"
rule = "Nothing is sent without a lease: two workers would write."
file = "mm2py/rule.py"
old = "return False"
new = "return True"
killed_by = ["{HOLDS}"]
"""
ROOT = Path(__file__).parents[2]


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


def test_each_mutant_fits_the_code_and_names_tests_that_exist() -> None:
    mutants = read_mutants(ROOT / "tests/mutants/rules")
    assert mutants
    assert problems(ROOT, mutants) == []


def test_a_mutant_is_killed_only_when_a_test_fails_that_holds_its_rule(project: Path) -> None:
    moved = "# Another line.\n\n\n" + RULE
    (project / "mm2py/rule.py").write_text(moved)
    results = run_mutants(
        project,
        [
            replace(DROPPED, killed_by=(HOLDS_NOT,)),
            replace(DROPPED, old="return leased"),
            replace(DROPPED, new="return )"),
            replace(DROPPED, killed_by=(HANGS,)),
            DROPPED,
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


def test_what_is_wrong_with_an_entry_is_found_without_running_a_test(project: Path) -> None:
    assert problems(project, [DROPPED]) == []
    for wrong, text in (
        (replace(DROPPED, file="mm2py/gone.py"), "there is no file"),
        (replace(DROPPED, old="return leased"), "stands 0 times"),
        (replace(DROPPED, old="return"), "stands 2 times"),
        (replace(DROPPED, new="return False"), "same as old"),
        (replace(DROPPED, new="return )"), "does not parse"),
        (replace(DROPPED, killed_by=()), "names no test"),
        (
            replace(DROPPED, killed_by=("tests/test_rule.py::test_that_is_gone",)),
            "no test tests/test_rule.py::test_that",
        ),
        (replace(DROPPED, killed_by=("tests/test_rule.py",)), "no test tests/test_rule.py"),
    ):
        (found,) = problems(project, [wrong])
        assert text in found
    assert problems(project, [DROPPED, DROPPED]) == ["lease-not-checked: 2 mutants have this name."]


def test_tests_that_fail_without_a_mutant_prove_nothing(project: Path) -> None:
    (project / "mm2py/rule.py").write_text(RULE.replace("return False", "return True"))
    with pytest.raises(CannotRun, match="do not pass without a mutant"):
        list(run_mutants(project, [DROPPED], workers=1))


def test_a_table_lists_mutants_field_by_field(tmp_path: Path) -> None:
    (tmp_path / "rule.toml").write_text(ENTRY)
    assert read_mutants(tmp_path) == [DROPPED]
    for wrong in (ENTRY.replace("rule =", "rules ="), ENTRY.replace("killed_by", "killed")):
        (tmp_path / "rule.toml").write_text(wrong)
        with pytest.raises(ValueError, match=r"rule.toml: lease-not-checked"):
            read_mutants(tmp_path)
