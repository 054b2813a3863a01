"""``make mutants``: drops one safety rule after the other, and demands that a test notices.

See ``runner``. The patches stand beside this file; the header of each says which rule it drops, and what would go
wrong for an operator.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.mutants.runner import CannotRun, Result, Verdict, check_mutants, read_mutant, run_mutants

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run. The exit code is 1 if a mutant was not killed."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only mutants whose names begin so: 07, 07-first")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2, help="how many run at a time")
    parser.add_argument("--check", action="store_true", help="only see that patches apply and named tests are there")
    options = parser.parse_args(arguments)
    mutants = [read_mutant(path) for path in sorted(HERE.glob("*.patch"))]
    if options.names:
        mutants = [mutant for mutant in mutants if mutant.name.startswith(tuple(options.names))]
    if not mutants:
        parser.error(f"no mutant's name begins with {' or '.join(options.names)}")
    if options.check:
        wrong = check_mutants(ROOT, mutants)
        print(wrong or f"{len(mutants)} mutants apply, and their tests are there.")
        return 1 if wrong else 0
    begun_s = time.monotonic()
    results: list[Result] = []
    try:
        for result in run_mutants(ROOT, mutants, workers=options.workers):
            results.append(result)
            tests = ", ".join(test.rpartition("::")[2] for test in result.mutant.killed_by)
            print(f"{result.mutant.name:<37} {result.verdict.value:<18} {result.seconds:5.1f} s  {tests}", flush=True)
    except CannotRun as error:
        print(error, file=sys.stderr)
        return 1
    for result in results:
        if result.verdict is not Verdict.KILLED:
            print(f"\n{result.mutant.name} {result.verdict.value}:\n{result.output[-2000:].strip()}")
    killed = sum(result.verdict is Verdict.KILLED for result in results)
    print(f"\n{killed} of {len(results)} mutants killed in {time.monotonic() - begun_s:.0f} s.")
    return 0 if killed == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
