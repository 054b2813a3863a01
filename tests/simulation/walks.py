"""Runs the random walks and property tests of the other suites under seeds that the ordinary suite does not run.

``tests/conftest.py`` defines what a walk is. pytest runs them: fixtures, parameters and messages are the usual ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PROGRESS: Final = ROOT / "build" / "walks.json"
SEEDS_A_ROUND: Final = 4


def run_walks(seeds: range) -> bool:
    """Run each walk under each seed, and the property tests once under the first; return whether all passed."""
    print(f"walks with seeds {seeds[0]}-{seeds[-1]}; again with: {reproduce(seeds)}", flush=True)
    what = ["tests/unit", "tests/scenarios", "tests/simulation", "-m", "(walk or hypothesis) and not slow"]
    drawn = ["--seeds", f"{seeds[0]}-{seeds[-1]}", "--hypothesis-profile", "long", "--hypothesis-seed", str(seeds[0])]
    how = ["--numprocesses", "auto", "--quiet", "-o", "timeout=1200"]
    command = [sys.executable, "-m", "pytest", *what, *drawn, *how]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "0"}, check=False)
    return done.returncode == 0


def run_rounds(first: int, *, seconds: float, resume: bool) -> bool:
    """Run rounds of walks, one at least, until the time is up; return whether all passed.

    Args:
        resume: continue after the last round of an earlier run, if there was one.
    """
    if resume and PROGRESS.exists():
        first = json.loads(PROGRESS.read_text())["next_seed"]
    ends_at_s = time.monotonic() + seconds
    passed = True
    while True:
        passed &= run_walks(range(first, first + SEEDS_A_ROUND))
        first += SEEDS_A_ROUND
        PROGRESS.parent.mkdir(parents=True, exist_ok=True)
        PROGRESS.write_text(json.dumps({"next_seed": first}) + "\n")
        if time.monotonic() >= ends_at_s:
            return passed


def reproduce(seeds: range) -> str:
    return f"make simulate WALKS={seeds[0]}-{seeds[-1]}"
