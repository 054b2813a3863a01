"""Which failed tests may be run once more, and what the two runs come to together. Pure.

A test on real processes can fail because the machine was late, and such a red keeps good work from landing. But a run
that loses or repeats a record once in a hundred is what these tests are for. So what proves a loss is red at once, a
second try is always printed, and a test that needed one lately gets no more.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

MOST: Final = 2
"""So many tests may be green at the second try. More are no bad luck."""
LAYERS: Final = ("tests/cluster/", "tests/parity/")
"""What runs real processes. All else is the same each time."""
PROOFS: Final = (
    ("tests/checker/pairs.py", "the checker found a record lost, repeated or out of order"),
    ("tests/cluster/judged_offsets.py", "an offset was not exact"),
    ("tests/cluster/ledgers.py", "the ledger is wrong"),
    ("tests/cluster/rest/canaries.py", "a secret came out"),
)
"""Files in which a failure proves something, whatever the machine did."""
SUBJECTS: Final = ("crash", "canaries", "secrets", "shared_fence", "foreign_writers", "access", "control_log")
"""Files whose tests are about a fence, a secret or an invariant."""
_BROKEN: Final = re.compile(
    r"InvariantBroken|Invariant\b.* does not hold|were lost|was lost|twice|out of order"
    r"|not copied right|FAIL \S+ -> \S+"
)
"""The last two are what a report of the checker says; its own files are in no traceback of a copy that is wrong."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A test that failed: its name for pytest, what pytest printed, and how busy the machine was (``getloadavg``)."""

    test: str
    text: str
    load: float


def why_red(failure: Failure, had_one_lately: Collection[str]) -> str | None:
    """Return why a failed test is red without a second try; None if it may have one."""
    if not failure.test.startswith(LAYERS):
        return "it runs no process, so it fails each time"
    if failure.test in had_one_lately:
        return "it had a second try in one of the last landings: find the cause"
    for path, why in PROOFS:
        if re.search(rf"^{re.escape(path)}[^\s:]*:\d+:", failure.text, re.MULTILINE):
            return why
    file = failure.test.partition("::")[0]
    if any(file.endswith(f"test_{name}.py") for name in SUBJECTS):
        return "it is about a fence, a secret or an invariant"
    if found := _BROKEN.search(failure.text):
        return f"it says {found[0]!r}"
    return None


def listed(text: str) -> frozenset[str]:
    """Return the tests that a list of second tries names: lines of a date and a test; ``#`` begins a remark."""
    lines = (line.partition(" ") for line in text.splitlines() if line and not line.startswith("#"))
    return frozenset(test for _, _, test in lines)


def verdict(failures: Sequence[Failure], had_one_lately: Collection[str]) -> tuple[list[Failure], list[str]]:
    """Return the failures that are run again, and why the run is red in any case; the first is empty then."""
    red = [f"{one.test}: {why}" for one in failures if (why := why_red(one, had_one_lately)) is not None]
    if not red and len(failures) > MOST:
        red = [f"{len(failures)} tests failed; {MOST} at most are run again"]
    return ([], red) if red else (list(failures), [])
