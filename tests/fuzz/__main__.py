"""``make fuzz``: plans damaged reads with the compiled core and without it, seed after seed, until they differ.

Where it stands is kept in ``build/fuzz.json``: after Ctrl-C the next run goes on there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mm2py.compiled_core import choose
from tests.conftest import seeds_of
from tests.fuzz.reads import compare

PROGRESS: Final = Path(__file__).parents[2] / "build" / "fuzz.json"
DAMAGED_OF_A_SEED: Final = 200
TOLD_EVERY_S: Final = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run. The exit code is 1 if the two ways differ."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--examples", type=int, default=10**7, help="how many damaged reads in all (10^7, hours)")
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument("--seeds", type=seeds_of, help="exactly these, wherever the last run stopped: 7 or 7-12")
    options = parser.parse_args(arguments)
    core = choose({"MM2PY_NATIVE": "require"}).core
    assert core is not None
    first = json.loads(PROGRESS.read_text())["next_seed"] if PROGRESS.exists() else 0
    seeds = options.seeds or range(first, -(-options.examples // DAMAGED_OF_A_SEED))
    began = told_at = time.monotonic()

    def told(seed: int) -> None:
        nonlocal told_at
        if not options.seeds:
            PROGRESS.parent.mkdir(exist_ok=True)
            PROGRESS.write_text(json.dumps({"next_seed": seed + 1}))
        now = time.monotonic()
        if now - told_at > TOLD_EVERY_S:
            told_at = now
            print(f"seed {seed}: {(seed - seeds.start + 1) * DAMAGED_OF_A_SEED:,} damaged reads, planned the same")
        if options.seconds is not None and now - began > options.seconds:
            raise KeyboardInterrupt

    try:
        for difference in compare(seeds, each=DAMAGED_OF_A_SEED, core=core, tell=told):
            print(difference)
            return 1
    except KeyboardInterrupt:
        print("Stopped; the next run goes on here.")
        return 0
    print(f"All {len(seeds) * DAMAGED_OF_A_SEED:,} damaged reads are planned the same.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
