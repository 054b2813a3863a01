"""``make quick``: the cheapest tests that run the lines changed since the last commit, or else the last commit's.

The map of lines and tests comes from ``make quick-map``; it is of this checkout alone, and need not be made anew with
each commit. Without one, the tests of files of the same name are run. Tests on real brokers are named, not run.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from tests.quick.choose import Hunk, TestMap, build, changed_lines, changed_tests, choose, hunks, lines_at
from tests.quick.record import FOLDER, PRODUCT, ROOT

MAP: Final = ROOT / ".quick" / "map.json.gz"
LAYERS: Final = ("tests/unit/", "tests/scenarios/")
BUDGET_S: Final = 10.0
"""Of CPU for the tests of changed lines, and again for changed tests."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make quick", description=__doc__)
    parser.add_argument("--record", action="store_true", help="make the map: some minutes, Python 3.12 or later")
    parser.add_argument(
        "--of", metavar="REVISION", help="the lines that this commit changed, tested as the code is now"
    )
    parser.add_argument("--cpu", type=float, default=BUDGET_S, metavar="SECONDS", help="what the tests may cost (10)")
    options = parser.parse_args(arguments)
    if options.record:
        return _record()
    begun_s = time.monotonic()
    tests = _tests(options.of, options.cpu)
    if not tests:
        print("No changed line has a test here.")
        return 0
    at_once = min(os.cpu_count() or 1, 1 + len(tests) // 40)
    side_by_side = [f"--numprocesses={at_once}"] if at_once > 1 else []
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", *side_by_side, *tests]
    code = subprocess.run([*command, "-m", "not slow and not compat"], cwd=ROOT, check=False).returncode
    print(f"{len(tests)} test functions in {time.monotonic() - begun_s:.1f} s")
    return code


def _tests(revision: str | None, budget_s: float) -> list[str]:
    known = load_map()
    if revision is None:
        old, new = ("HEAD" if _git("status", "--porcelain") else "HEAD^"), None
    else:
        old, new = f"{revision}^", revision
    changes = _changes(old, new)
    product = {file: found for file, found in changes.items() if f"{ROOT}/{file}".startswith(PRODUCT)}
    tests = _changed(changes, known, budget_s)
    since = {}
    if known is not None and product:
        since = hunks(_git("diff", "-U0", "--no-prefix", known.commit, *([new] if new else []), "--", *product))
    in_map, by_name = {}, []
    for file, found in product.items():
        if known is None or file not in known.lines:
            by_name.append(file)
        else:
            in_map[file] = lines_at(changed_lines(found), since.get(file, []))
    if by_name:
        why = "No map yet (make quick-map)" if known is None else "Not in the map"
        print(f"{why}: {', '.join(by_name)}. Tests of the same name are run.")
    for file in by_name:
        stem = Path(file).stem.strip("_")
        tests += [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob(f"tests/unit/**/test_{stem}.py"))]
    if known is not None:
        tests += choose(known, in_map, budget_s=budget_s)
    return [test for test in dict.fromkeys(tests) if _exists(test)]


def _changed(changes: dict[str, list[Hunk]], known: TestMap | None, budget_s: float) -> list[str]:
    """Return the tests that were changed themselves, and name those on real processes."""
    costs_s: dict[str, float] = dict(known.tests) if known is not None else {}
    found: list[str] = []
    for file, hunks_of_file in changes.items():
        path = ROOT / file
        if not (file.startswith("tests/") and path.name.startswith("test_") and path.is_file()):
            continue
        if not file.startswith(LAYERS):
            print(f"Not run, it needs real processes: {file}")
            continue
        names = changed_tests(path.read_text(encoding="utf-8"), changed_lines(hunks_of_file))
        found += [file] if names is None else [f"{file}::{name}" for name in names]
    left_s, kept = budget_s, []
    for test in found:
        cost_s = sum(cost for name, cost in costs_s.items() if name == test or name.startswith(f"{test}::"))
        if cost_s > left_s and kept:
            print(f"Not run, it takes {cost_s:.0f} s of CPU: {test}")
            continue
        left_s -= cost_s
        kept.append(test)
    return kept


def _changes(old: str, new: str | None) -> dict[str, list[Hunk]]:
    diff = _git("diff", "-U0", "--no-prefix", old, *([new] if new else []), "--", "*.py")
    found = {file: each for file, each in hunks(diff).items() if file != "/dev/null"}
    if new is None:
        for file in _git("ls-files", "--others", "--exclude-standard", "--", "*.py").splitlines():
            lines = len((ROOT / file).read_text(encoding="utf-8").splitlines())
            found[file] = [Hunk(range(1, 1), range(1, lines + 1))]
    return found


def _exists(test: str) -> bool:
    """Return whether a test is still there: the map may be older."""
    file, _, name = test.partition("::")
    return (ROOT / file).is_file() and (not name or f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"))


def _record() -> int:
    if sys.version_info < (3, 12):
        print("The map needs Python 3.12 or later: make quick-map looks for 3.13.", file=sys.stderr)
        return 1
    commit = _git("stash", "create").strip() or _git("rev-parse", "HEAD").strip()
    with tempfile.TemporaryDirectory(prefix="mm2py-quick-") as folder:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.quick.record", "--numprocesses=auto", *LAYERS]
        done = subprocess.run(
            [*command, "-m", "not slow and not compat"], cwd=ROOT, env={**os.environ, FOLDER: folder}, check=False
        )
        if done.returncode not in (0, 1):
            return done.returncode
        known = build(commit, (json.loads(line) for path in Path(folder).iterdir() for line in path.open()))
    MAP.parent.mkdir(exist_ok=True)
    with gzip.open(MAP, "wt", encoding="utf-8") as file:
        json.dump(asdict(known), file)
    print(f"{MAP.relative_to(ROOT)}: {len(known.tests)} test functions, {len(known.lines)} files")
    return done.returncode


def load_map() -> TestMap | None:
    """Return the map of this checkout, if there is one."""
    if not MAP.is_file():
        return None
    with gzip.open(MAP, "rt", encoding="utf-8") as file:
        found = json.load(file)
    lines = {name: {int(line): tests for line, tests in of_file.items()} for name, of_file in found["lines"].items()}
    return TestMap(found["commit"], [(test, cost) for test, cost in found["tests"]], lines)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
