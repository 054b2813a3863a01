"""``make fuzz``: damaged input, seed after seed, until something is wrong.

``--target reads``: damaged reads of a partition are planned with the compiled core and without it, until they differ.
``--target messages``: damaged replies of a broker are read, until one costs too much or is read in two ways.

Where a target stands is kept in ``build/``: after Ctrl-C the next run goes on there. A seed that ends the process is
not counted as done, so the next run begins with it.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mm2py.compiled_core import choose
from tests.conftest import seeds_of
from tests.fuzz import messages, reads

BUILD: Final = Path(__file__).parents[2] / "build"
DAMAGED_OF_A_SEED: Final = 200
TOLD_EVERY_S: Final = 10.0
MEMORY_MOST: Final = 2 << 30
"""Of the process that reads damaged replies: whatever wants more at once ends it."""
Tell = Callable[[int], None]


def _differences(seeds: range, tell: Tell) -> Iterator[str]:
    core = choose({"MM2PY_NATIVE": "require"}).core
    assert core is not None
    return reads.compare(seeds, each=DAMAGED_OF_A_SEED, core=core, tell=tell)


def _faults(seeds: range, tell: Tell) -> Iterator[str]:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MOST, MEMORY_MOST))
    return messages.faults(seeds, each=DAMAGED_OF_A_SEED, tell=tell)


@dataclass(frozen=True)
class Target:
    """What is damaged; ``outcome`` says what has become of all that was damaged if nothing is wrong."""

    run: Callable[[range, Tell], Iterator[str]]
    examples: int
    outcome: str
    progress: Path


TARGETS: Final = {
    "reads": Target(_differences, 10**7, "damaged reads, planned the same", BUILD / "fuzz.json"),
    "messages": Target(_faults, 10**6, "damaged replies, read or refused at little cost", BUILD / "fuzz-messages.json"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run. The exit code is 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--target", choices=TARGETS, default="reads", help="what is damaged (reads)")
    parser.add_argument("--examples", type=int, help="how many in all (10^7 reads, hours; 10^6 messages, minutes)")
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument("--seeds", type=seeds_of, help="exactly these, wherever the last run stopped: 7 or 7-12")
    options = parser.parse_args(arguments)
    target = TARGETS[options.target]
    first = json.loads(target.progress.read_text())["next_seed"] if target.progress.exists() else 0
    seeds = options.seeds or range(first, -(-(options.examples or target.examples) // DAMAGED_OF_A_SEED))
    began = told_at = time.monotonic()

    def told(seed: int) -> None:
        nonlocal told_at
        if not options.seeds:
            BUILD.mkdir(exist_ok=True)
            target.progress.write_text(json.dumps({"next_seed": seed + 1}))
        now = time.monotonic()
        if now - told_at > TOLD_EVERY_S:
            told_at = now
            print(f"seed {seed}: {(seed - seeds.start + 1) * DAMAGED_OF_A_SEED:,} {target.outcome}", flush=True)
        if options.seconds is not None and now - began > options.seconds:
            raise KeyboardInterrupt

    try:
        for wrong in target.run(seeds, told):
            print(wrong)
            return 1
    except KeyboardInterrupt:
        print("Stopped; the next run goes on here.")
        return 0
    print(f"All {len(seeds) * DAMAGED_OF_A_SEED:,} {target.outcome}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
