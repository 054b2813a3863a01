"""``make mutants``: drops one safety rule after the other, and demands that a test notices.

See ``table`` and ``runner``. The tables are in ``rules/``; each entry says which rule it drops, and what that would
cost an operator. ``--random`` takes the net of ``draw`` instead.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.mutants.runner import CannotRun, Result, Verdict, run_mutants
from tests.mutants.table import RANDOM, RULES, read_mutants

ROOT: Final = Path(__file__).parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run. The exit code is 1 if a mutant was not killed."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("-k", default="", metavar="TEXT", help="only mutants with this text in their name or file")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2, help="how many run at a time")
    parser.add_argument("--random", action="store_true", help="the random mutants of draw.py in place of the rules")
    options = parser.parse_args(arguments)
    table = read_mutants(RANDOM if options.random else RULES)
    mutants = [each for each in table if options.k in each.name or options.k in each.file]
    if not mutants:
        parser.error(f"no mutant has {options.k} in its name or file")
    begun_s = time.monotonic()
    results: list[Result] = []
    try:
        for result in run_mutants(ROOT, mutants, workers=options.workers):
            results.append(result)
            tests = ", ".join(test.rpartition("::")[2] for test in result.mutant.killed_by)
            print(f"{result.mutant.name:<48} {result.verdict.value:<18} {result.seconds:5.1f} s  {tests}", flush=True)
    except CannotRun as error:
        print(error, file=sys.stderr)
        return 1
    for result in results:
        if result.verdict is not Verdict.KILLED:
            mutant = result.mutant
            print(f"\n{mutant.name} {result.verdict.value}\n{mutant.file}: {mutant.rule}")
            print(result.output[-2000:].strip())
    killed = sum(result.verdict is Verdict.KILLED for result in results)
    print(f"\n{killed} of {len(results)} mutants killed in {time.monotonic() - begun_s:.0f} s.")
    return 0 if killed == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
