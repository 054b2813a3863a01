"""Runs tests on real processes, and those that failed once more at the end: ``python -m tests.second_try [ARGUMENTS]``.

The arguments are pytest's. A second try has a process and fixtures of its own, and runs alone. It is printed last, with
what failed before and the load; who lands it adds the lines to ``tests/second_try/list.txt`` and removes those that are
older than ten landings. ``rules.py`` says which tests have none. The exit code is that of pytest.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.second_try.recording import FILE
from tests.second_try.rules import Failure, listed, verdict

LIST: Final = Path(__file__).parent / "list.txt"
TESTS_FAILED: Final = 1
"""pytest's exit code; others say that something else is wrong."""


def _run(arguments: Sequence[str]) -> tuple[int, list[Failure]]:
    """Run pytest; return its exit code and what failed."""
    with tempfile.TemporaryDirectory() as folder:
        failures = Path(folder) / "failures.jsonl"
        command = [sys.executable, "-m", "pytest", "-p", "tests.second_try.recording", *arguments]
        code = subprocess.run(command, env={**os.environ, FILE: str(failures)}, check=False).returncode
        lines = failures.read_text().splitlines() if failures.exists() else []
    by_test = {found["test"]: Failure(**found) for found in map(json.loads, lines)}
    return code, list(by_test.values())


def main(arguments: Sequence[str], had_one_lately: frozenset[str]) -> int:
    """Run the tests, and return the exit code."""
    code, failures = _run(arguments)
    if code != TESTS_FAILED:
        return code
    again, red = verdict(failures, had_one_lately)
    if red or not again:
        print("\nNo second try:", *red, sep="\n  ")
        return code
    print(f"\nA second try of {len(again)} test(s), alone.", flush=True)
    code, still = _run([one.test for one in again])
    today = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    for one in again:
        print(f"\n== First try of {one.test}, at a load of {one.load:.1f}:\n{one.text}")
    failed = {one.test for one in still}
    print("\nAt the second try:")
    for one in again:
        print(f"  {'failed again' if one.test in failed else 'green'}: {one.test} (load {one.load:.1f} at the first)")
    if code == 0:
        print(f"Find out why. Add to {LIST.name}:", *(f"  {today} {one.test}" for one in again), sep="\n", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], listed(LIST.read_text())))
