"""Runs the mutants of ``table``: each is applied to a copy of the checkout, and the tests that it names run there.

A mutant counts as *killed* only when one of these tests fails: an edit that no longer applies, a file that cannot be
imported and a test that hangs are reported as what they are.
"""

from __future__ import annotations

import enum
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.local.python_path import python_path
from tests.mutants.table import Mutant

RUN_TIMEOUT_S: Final = 1200
"""How long one run of pytest may take."""
_NOT_COPIED: Final = ("docs/results/",)
_PYTEST_OK, _PYTEST_FAILED = 0, 1


class Verdict(enum.Enum):
    KILLED = "killed"
    SURVIVED = "survived"
    """All named tests passed: none of them holds the rule."""
    NO_LONGER_APPLIES = "no longer applies"
    """The code has changed: cut the entry again."""
    NOT_TESTED = "not tested"
    """Pytest could not run the named tests, for example because one was renamed."""
    TIMED_OUT = "timed out"


class CannotRun(Exception):
    """The mutants say nothing: without any of them something is wrong already."""


@dataclass(frozen=True, slots=True)
class Result:
    mutant: Mutant
    verdict: Verdict
    seconds: float
    output: str
    """What pytest said."""


def run_mutants(
    root: Path, mutants: Sequence[Mutant], *, workers: int, timeout_s: float | None = None
) -> Iterator[Result]:
    """Yield what became of each mutant, in their order.

    Args:
        root: a git checkout. Its files are copied as they are now; nothing in it is changed.
        workers: how many mutants are run at a time, each in a copy of its own.
        timeout_s: how long one test may take; by default as long as in ``make test``.
    Raises:
        CannotRun: the named tests do not pass without a mutant, or would not run the copied code.
    """
    with tempfile.TemporaryDirectory(prefix="mm2py-mutants-") as scratch:
        first = Path(scratch) / "0"
        _copy_checkout(root, first)
        _check_import(first)
        _check_unmutated(first, mutants, workers)
        copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        copies.put(first)
        for number in range(1, workers):
            copies.put(shutil.copytree(first, Path(scratch) / str(number)))

        def run(mutant: Mutant) -> Result:
            copy = copies.get()
            try:
                return _run_mutant(mutant, copy, timeout_s)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(workers) as pool:
            yield from pool.map(run, mutants)


def _copy_checkout(root: Path, to: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (root / name).is_file() and not name.startswith(_NOT_COPIED):
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, to / name)


def _check_import(copy: Path) -> None:
    """The package is installed from the checkout: make sure that the copy comes before it."""
    code = "import mm2py; print(mm2py.__file__)"
    found = _run([sys.executable, "-c", code], copy)
    if found.returncode or not Path(found.stdout.strip()).is_relative_to(copy):
        raise CannotRun(f"Tests would not run the copied code, but {found.stdout or found.stderr}")


def _check_unmutated(copy: Path, mutants: Sequence[Mutant], workers: int) -> None:
    side_by_side = [f"--numprocesses={workers}"] if workers > 1 else []
    done = _pytest(copy, [*_tests(mutants), *side_by_side], write_bytecode=True)
    if done.returncode != _PYTEST_OK:
        raise CannotRun(f"The tests that mutants name do not pass without a mutant:\n{done.stdout}{done.stderr}")


def _tests(mutants: Sequence[Mutant]) -> list[str]:
    return list(dict.fromkeys(test for mutant in mutants for test in mutant.killed_by))


def _run_mutant(mutant: Mutant, copy: Path, timeout_s: float | None) -> Result:
    begun_s = time.monotonic()
    path = copy / mutant.file
    before, time_ns = path.read_text(encoding="utf-8"), path.stat().st_mtime_ns
    mutated = mutant.apply(before)
    if mutated is None:
        return Result(mutant, Verdict.NO_LONGER_APPLIES, 0.0, f"old stands {before.count(mutant.old)} times.")
    try:
        path.write_text(mutated, encoding="utf-8")
        limit = [] if timeout_s is None else [f"--timeout={timeout_s:g}"]
        # An event loop may swallow the time-out of a test.
        most_s = RUN_TIMEOUT_S if timeout_s is None else timeout_s * (1 + len(mutant.killed_by))
        done = _pytest(copy, [*mutant.killed_by, "-x", *limit], most_s=most_s)
        return Result(mutant, _judge(done), time.monotonic() - begun_s, done.stdout + done.stderr)
    except subprocess.TimeoutExpired as error:
        return Result(mutant, Verdict.TIMED_OUT, time.monotonic() - begun_s, str(error))
    finally:
        path.write_text(before, encoding="utf-8")
        os.utime(path, ns=(time_ns, time_ns))  # the compiled file beside it is right again


def _judge(done: subprocess.CompletedProcess[str]) -> Verdict:
    if done.returncode == _PYTEST_OK:
        return Verdict.SURVIVED
    if done.returncode != _PYTEST_FAILED:
        return Verdict.NOT_TESTED
    if re.search(r"^E +Failed: Timeout", done.stdout, re.MULTILINE):
        return Verdict.TIMED_OUT
    if re.search(r"^ERROR ", done.stdout, re.MULTILINE) and not re.search(r"^FAILED ", done.stdout, re.MULTILINE):
        return Verdict.NOT_TESTED  # set-up failed
    return Verdict.KILLED


def _pytest(
    copy: Path, arguments: Sequence[str], *, write_bytecode: bool = False, most_s: float = RUN_TIMEOUT_S
) -> subprocess.CompletedProcess[str]:
    """Run tests. A mutant writes no compiled files: they might be taken for those of the next one."""
    command = [sys.executable, *([] if write_bytecode else ["-B"]), "-m", "pytest", "-q", "--tb=short"]
    return _run([*command, "-p", "no:cacheprovider", *arguments], copy, most_s)


def _run(command: Sequence[str], copy: Path, most_s: float = RUN_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": python_path(copy),
        "PYTHONHASHSEED": "0",  # the order of sets of strings is part of a simulated run
        "GIT_CEILING_DIRECTORIES": str(copy.parent),
    }
    return subprocess.run(
        command,
        cwd=copy,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=most_s,
    )
