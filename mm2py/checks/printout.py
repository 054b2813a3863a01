"""What ``mm2py check`` prints, for people. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from mm2py.checks.results import CheckResult, CheckState
from mm2py.checks.table import Category
from mm2py.secret import printable

SIGNS: Final[Mapping[CheckState, str]] = {
    CheckState.OK: "√",
    CheckState.WARNING: "‼",
    CheckState.FAILED: "×",
    CheckState.UNKNOWN: "?",
}
PLAIN_SIGNS: Final[Mapping[CheckState, str]] = {
    CheckState.OK: "ok",
    CheckState.WARNING: "!!",
    CheckState.FAILED: "X",
    CheckState.UNKNOWN: "?",
}
PAGES: Final = "docs/checks"


def signs_for(encoding: str) -> Mapping[CheckState, str]:
    """Return the signs of the states that a terminal with this encoding can show."""
    try:
        "".join(SIGNS.values()).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return PLAIN_SIGNS
    return SIGNS


def text_of_checks(results: Sequence[CheckResult], signs: Mapping[CheckState, str] = SIGNS) -> str:
    """Return the lines of all results, with what to do in a line below. ``results``: in order."""
    lines: list[str] = []
    for category in Category:
        ours = [one for one in results if one.category is category and not one.waits_for]
        if ours:
            lines += ["", category.value, *(line for one in ours for line in _lines(one, signs))]
    waiting = _waiting(results, signs)
    lines += ["", *waiting] if waiting else []
    lines += ["", _summary(results, signs)]
    return "".join(f"{printable(line)}\n" for line in lines[1:])


def _lines(result: CheckResult, signs: Mapping[CheckState, str]) -> list[str]:
    about = f"{result.subject}: " if "->" in result.subject else ""
    end = "" if result.sentence.endswith((".", ")", "?")) else "."
    first = f"{signs[result.state]} {result.code} {about}{result.sentence}{end}"
    return [first, f"         {result.hint}"] if result.hint else [first]


def _waiting(results: Iterable[CheckResult], signs: Mapping[CheckState, str]) -> list[str]:
    """Return one line for each cluster because of which checks are not checkable."""
    count = Counter(one.waits_for for one in results if one.waits_for)
    return [
        f"{signs[CheckState.UNKNOWN]} {number} checks could not be made, because mm2py cannot ask {cluster}"
        " (--json names them)."
        for cluster, number in count.items()
    ]


def _summary(results: Iterable[CheckResult], signs: Mapping[CheckState, str]) -> str:
    """Return how many checks ended in each state, with the codes of those that failed and warn."""
    codes: dict[CheckState, list[str]] = {state: [] for state in CheckState}
    for one in results:
        codes[one.state].append(one.code)
    told = [f"{len(codes[state])} {state} ({signs[state]})" for state in CheckState]
    for at, state in enumerate(CheckState):
        if codes[state] and state in {CheckState.WARNING, CheckState.FAILED}:
            told[at] += f": {', '.join(sorted(set(codes[state])))}"
    return f"{'; '.join(told)}. Each code has a page in {PAGES}."
