"""A second try is for a late machine: what proves a loss is red at once, and nothing is green in silence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.checker.check import Report, TopicReport
from tests.checker.verdict import Verdict
from tests.second_try.rules import MOST, Failure, listed, verdict, why_red

ROOT = Path(__file__).parents[3]
LATE = "tests/cluster/running.py:95: AssertionError: not within 60 s: it is copied"
LOST = Verdict("t", 0)
LOST.add("I1", "the record is not there", source_offset=1, target_offset=None)
BREACHED = str(Report([TopicReport("t", "A.t", [LOST])]))


def failure(test: str, text: str = LATE) -> Failure:
    return Failure(test, text, 7.0)


@pytest.mark.parametrize(
    ("test", "text", "why"),
    [
        ("tests/unit/topics/test_filters.py::test_a", LATE, "fails each time"),
        ("tests/scenarios/group/test_group.py::test_a", LATE, "fails each time"),
        ("tests/cluster/copying/test_repack.py::test_a", "tests/checker/pairs.py:40: NotInOrder", "lost, repeated"),
        ("tests/cluster/copying/test_repack.py::test_a", f"E  {BREACHED}", "FAIL t -> A.t"),
        ("tests/cluster/copying/test_repack.py::test_a", "E  t is not copied right:", "not copied right"),
        ("tests/cluster/offsets/test_client.py::test_a", "tests/cluster/judged_offsets.py:9: Error", "not exact"),
        ("tests/cluster/copying/test_crash.py::test_a[1]", LATE, "fence, a secret"),
        ("tests/cluster/rest/test_canaries.py::test_a", LATE, "fence, a secret"),
        ("tests/cluster/copying/test_repack.py::test_a", "E  2 records were lost", "'were lost'"),
        ("tests/cluster/copying/test_repack.py::test_a", "Invariant of x does not hold", "does not hold"),
        ("tests/cluster/group/test_group.py::test_b", LATE, "find the cause"),
    ],
)
def test_what_proves_something_has_no_second_try(test: str, text: str, why: str) -> None:
    had = listed("# remark\n2026-11-27 tests/cluster/group/test_group.py::test_b\n")
    assert why in (why_red(failure(test, text), had) or "")


def test_what_was_late_has_one_unless_much_was_late() -> None:
    late = [failure(f"tests/cluster/rest/test_v1.py::test_{number}") for number in range(MOST + 1)]
    assert verdict(late[:MOST], ()) == (late[:MOST], [])
    again, red = verdict(late, ())
    assert not again and f"{MOST} at most" in red[0]
    again, red = verdict([late[0], failure("tests/unit/test_a.py::test_a")], ())
    assert not again and len(red) == 1, "one that has none makes the run red"


@pytest.mark.parametrize(("fails", "code"), [(1, 0), (2, 1)])
def test_a_test_that_fails_once_is_green_and_told_and_one_that_fails_twice_is_red(
    tmp_path: Path, fails: int, code: int
) -> None:
    folder = tmp_path / "tests" / "cluster"
    folder.mkdir(parents=True)
    (folder / "test_late.py").write_text(
        "from pathlib import Path\n"
        "def test_it():\n"
        "    tries = Path(__file__).with_name('tries')\n"
        "    tries.write_text(tries.read_text() + 'x' if tries.exists() else 'x')\n"
        f"    assert len(tries.read_text()) > {fails}, 'too late'\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "tests.second_try", "tests/cluster", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert "tests/cluster/test_late.py::test_it failed (call)" in ended.stderr, "named at once"
    assert "First try of tests/cluster/test_late.py::test_it, at a load of" in ended.stdout
    assert ("green: tests/cluster/test_late.py::test_it" in ended.stdout) == (code == 0)
    assert ("failed again: tests/cluster/test_late.py::test_it" in ended.stdout) == (code == 1)
    assert (folder / "tries").read_text() == "xx"
