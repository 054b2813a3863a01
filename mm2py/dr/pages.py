"""Writes ``docs/internals/dr-states.md`` from the table of states.

``python -m mm2py.config.pages`` in a checkout writes it again; a test compares it with the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mm2py.dr.states import (
    ENDED,
    MAY_HAVE_SWITCHED,
    MEANING,
    TABLE,
    WITHOUT_SOURCE,
    WITHOUT_TARGET,
    RecoveryRow,
    RecoveryState,
)

PAGE: Final = Path("docs") / "internals" / "dr-states.md"
INTRO: Final = """\
# The states of a recovery

`mm2py/dr/states.py` has all states and transitions, as one table; this page is made of it. `mm2py/dr/runner.py` drives
every verb through it, `mm2py/dr/journal.py` is its memory
([decision 30](../decisions/0030-recoveries-remember-on-both-clusters.md)). A state is stored before anything is done in
it. `make simulate RECOVERIES=10000` runs the table, the journal and the runner over a model of two clusters
(`tests/simulation/recoveries.py`).

A run leads from its *source* to its *target*: producers are on the source when it begins. A rollback is a cutover from
B to A.
"""


def states_page() -> str:
    """Return the page."""
    return "\n".join([INTRO, *_states(), "", *_diagram(), "", *_transitions(), ""])


def _states() -> Iterator[str]:
    yield "| state | meaning | its entry counts when it is stored on | what was done is taken back |"
    yield "| --- | --- | --- | --- |"
    for state in RecoveryState:
        if state is RecoveryState.READY:
            where = "nowhere: it is never stored"
        elif state in WITHOUT_SOURCE:
            where = "the target"
        else:
            where = "the source" if state in WITHOUT_TARGET else "both"
        yield f"| `{state}` | {MEANING[state]} | {where} | {_taken_back(state)} |"


def _taken_back(state: RecoveryState) -> str:
    if state in ENDED or state is RecoveryState.READY:
        return "nothing is left to do"
    return "never: the way back is another run" if state in MAY_HAVE_SWITCHED else "when a step fails, or on demand"


def _diagram() -> Iterator[str]:
    yield "```mermaid"
    yield "stateDiagram-v2"
    ways: dict[tuple[str, str], list[RecoveryRow]] = {}
    for row in TABLE:
        if row.state is not row.following:
            ways.setdefault((row.state, row.following), []).append(row)
    for (before, after), rows in ways.items():
        told = ", ".join(f"{row.event}{' (turned)' if row.turns else ''}" for row in rows)
        yield f"    {before} --> {after}: {told}"
    yield "```"


def _transitions() -> Iterator[str]:
    yield "| state | event | next state | then the process does this | when |"
    yield "| --- | --- | --- | --- | --- |"
    for row in TABLE:
        effects = "; ".join(row.effects) or "nothing"
        turned = ", of a run the other way round" if row.turns else ""
        yield f"| `{row.state}` | `{row.event}` | `{row.following}`{turned} | {effects} | {row.when} |"


def write(root: Path) -> None:
    """Write it into a checkout."""
    (root / PAGE).write_text(states_page())
