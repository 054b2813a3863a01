"""What ``mm2py check`` prints, for people. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from mm2py.checks.results import CheckResult, CheckState
from mm2py.checks.table import Category
from mm2py.secret import printable

SIGNS: Final = {CheckState.OK: "√", CheckState.WARNING: "‼", CheckState.FAILED: "×", CheckState.UNKNOWN: "?"}
PAGES: Final = "docs/checks"


def text_of_checks(results: Sequence[CheckResult]) -> str:
    """Return the lines of all results, with what to do in a line below. ``results``: in order."""
    lines: list[str] = []
    for category in Category:
        ours = [one for one in results if one.category is category and not one.waits_for]
        if ours:
            lines += ["", category.value, *(line for one in ours for line in _lines(one))]
    waiting = _waiting(results)
    lines += ["", *waiting] if waiting else []
    lines += ["", _summary(results)]
    return "".join(f"{printable(line)}\n" for line in lines[1:])


def _lines(result: CheckResult) -> list[str]:
    about = f"{result.subject}: " if "->" in result.subject else ""
    end = "" if result.sentence.endswith((".", ")")) else "."
    first = f"{SIGNS[result.state]} {result.code} {about}{result.sentence}{end}"
    return [first, f"         {result.hint}"] if result.hint else [first]


def _waiting(results: Iterable[CheckResult]) -> list[str]:
    """Return one line for each cluster because of which checks are not checkable."""
    count = Counter(one.waits_for for one in results if one.waits_for)
    return [
        f"{SIGNS[CheckState.UNKNOWN]} {number} checks are not checkable, because {cluster} does not answer"
        " (--json names them)."
        for cluster, number in count.items()
    ]


def _summary(results: Iterable[CheckResult]) -> str:
    count = Counter(one.state for one in results)
    told = ", ".join(f"{count[state]} {SIGNS[state]}" for state in CheckState if state is not CheckState.UNKNOWN)
    return f"{told}, {count[CheckState.UNKNOWN]} not checkable (?). Each code has a page in {PAGES}."
