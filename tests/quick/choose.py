"""Which tests tell soonest whether a change is right: the cheapest ones that run the changed lines. Pure.

The map names, for each line of the product, the cheapest test functions that run it. It is as old as the commit that it
was recorded on; ``lines_at`` carries lines of a later text back to that commit.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

MOST_TESTS_OF_A_LINE: Final = 8
"""So many tests of each line are kept, the cheapest: a line that hundreds run is not tested better by all of them."""
_HUNK: Final = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


class Hunk(NamedTuple):
    """One change of ``git diff -U0``: ``new`` lines stand for ``old`` ones, counted from 1; either may be none."""

    old: range
    new: range


@dataclass(slots=True)
class TestMap:
    """Which tests run which lines.

    Attributes:
        commit: whose lines these are.
        tests: each test function with its CPU seconds, as pytest names it, without parameters.
        lines: for each file and line, indexes of ``tests``, the cheapest first, at most ``MOST_TESTS_OF_A_LINE``.
    """

    __test__ = False
    commit: str
    tests: list[tuple[str, float]] = field(default_factory=list)
    lines: dict[str, dict[int, list[int]]] = field(default_factory=dict)


def hunks(diff: str) -> dict[str, list[Hunk]]:
    """Return the changes of each file that ``git diff -U0 --no-prefix`` prints, by the path of the new file."""
    found: dict[str, list[Hunk]] = {}
    file = ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            file = line[4:]
        elif match := _HUNK.match(line):
            old, old_count, new, new_count = (int(group) if group else 1 for group in match.groups())
            # Of a side without lines, git names the line before.
            old_range = range(old + (old_count == 0), old + (old_count == 0) + old_count)
            new_range = range(new + (new_count == 0), new + (new_count == 0) + new_count)
            found.setdefault(file, []).append(Hunk(old_range, new_range))
    return found


def changed_lines(changes: Sequence[Hunk]) -> set[int]:
    """Return the lines of the new text that a change concerns: where lines are gone, the ones around the place."""
    found: set[int] = set()
    for hunk in changes:
        found.update(hunk.new or (hunk.new.start - 1, hunk.new.start))
    return found


def lines_at(lines: Iterable[int], since: Sequence[Hunk]) -> set[int]:
    """Return where lines of the new text stood in the old one; a changed line where its hunk stood.

    Args:
        since: the changes from the old text to the new one, ascending.
    """
    found: set[int] = set()
    for line in lines:
        shift = 0
        for hunk in since:
            if line in hunk.new:
                found.update(hunk.old or (hunk.old.start - 1, hunk.old.start))
                break
            if line < hunk.new.start:
                found.add(line - shift)
                break
            shift = hunk.new.stop - hunk.old.stop
        else:
            found.add(line - shift)
    return found


def choose(known: TestMap, changed: Mapping[str, Iterable[int]], *, budget_s: float) -> list[str]:
    """Return the tests to run: first the cheapest one of each line, then the second cheapest, while the budget lasts.

    A line that no test runs, as that of a ``def``, counts as the nearest one below or above that a test runs.

    Args:
        changed: lines of the map's commit, by file.
        budget_s: of CPU, by what the tests cost when they were recorded. The cheapest test is chosen in any case.
    """
    of_lines = []
    for file, lines in changed.items():
        covered = known.lines.get(file, {})
        nearest = {min(covered, key=lambda one: (abs(one - line), -one)) for line in lines} if covered else set()
        of_lines += [covered[line] for line in sorted(nearest)]
    chosen: dict[int, None] = {}
    left_s = budget_s
    for rank in range(MOST_TESTS_OF_A_LINE):
        candidates = {tests[rank] for tests in of_lines if rank < len(tests)} - chosen.keys()
        for test in sorted(candidates, key=lambda one: known.tests[one][1]):
            cost_s = known.tests[test][1]
            if chosen and cost_s > left_s:
                break
            chosen[test] = None
            left_s -= cost_s
    return [known.tests[test][0] for test in chosen]


def build(commit: str, records: Iterable[Mapping[str, object]]) -> TestMap:
    """Return the map of what ``record`` wrote: the parameters of a test function count together."""
    cost_s: dict[str, float] = {}
    ran: dict[str, dict[str, set[int]]] = {}
    for record in records:
        match record:
            case {"test": str(test), "cpu_s": int() | float() as seconds, "lines": dict(lines)}:
                cost_s[test] = cost_s.get(test, 0.0) + seconds
                files = ran.setdefault(test, {})
                for file, numbers in lines.items():
                    files.setdefault(file, set()).update(numbers)
            case _:
                raise ValueError(f"This is no record of a test: {str(record)[:200]}")
    made = TestMap(commit)
    for test, seconds in sorted(cost_s.items(), key=lambda item: item[1]):
        number = len(made.tests)
        made.tests.append((test, round(seconds, 4)))
        for file, numbers in ran[test].items():
            of_file = made.lines.setdefault(file, {})
            for line in numbers:
                if len(tests := of_file.setdefault(line, [])) < MOST_TESTS_OF_A_LINE:
                    tests.append(number)
    return made


def changed_tests(source: str, lines: Iterable[int]) -> list[str] | None:
    """Return the test functions of a file that a change lies in; None if it also lies elsewhere: then run the file."""
    numbers = set(lines)
    found = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            within = numbers & set(range(first, (node.end_lineno or first) + 1))
            if within:
                found.append(node.name)
                numbers -= within
    text = source.splitlines()
    elsewhere = [line for line in numbers if 0 < line <= len(text) and text[line - 1].strip()]
    return None if elsewhere else found
