"""Mutants: edits that each drop one safety rule of the code, and name the tests that must notice it.

They stand in ``tests/mutants/rules/``, one file a package::

    [[mutant]]
    name = "position-passes-unsettled-batch"
    rule = "What must hold, and what would be lost without it."
    file = "mm2py/copying/in_flight.py"
    old = "while self._in_flight and self._in_flight[0].settled:"
    new = "while self._in_flight:"
    killed_by = ["tests/unit/copying/test_copier.py::test_the_position_follows_..."]

``old`` stands exactly once in the file. Of ``killed_by`` one test must fail: name the cheapest one that does.
"""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

RULES: Final = Path(__file__).parent / "rules"
RANDOM: Final = Path(__file__).parent / "random.toml"
"""The mutants that ``draw`` drew, a table like the others; its rules are no rules, only places."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One edit of one file."""

    name: str
    rule: str
    """What must hold, and what it costs where it does not."""
    file: str
    """Its path from the root of the checkout."""
    old: str
    new: str
    killed_by: tuple[str, ...]
    """Tests, as pytest names them, without parameters."""

    def apply(self, source: str) -> str | None:
        """Return the file's text without the rule, or None if ``old`` does not stand in it exactly once."""
        return source.replace(self.old, self.new) if source.count(self.old) == 1 else None


def read_mutants(at: Path) -> list[Mutant]:
    """Read one table, or all tables of a folder, in the order of their names.

    Raises:
        ValueError: an entry lacks a field, or has one that is unknown.
    """
    paths = sorted(at.glob("*.toml")) if at.is_dir() else [at]
    return [mutant for path in paths for mutant in _read_table(path)]


def _read_table(path: Path) -> Iterator[Mutant]:
    table: dict[str, list[dict[str, Any]]] = tomllib.loads(path.read_text(encoding="utf-8"))
    for fields in table["mutant"]:
        try:
            yield Mutant(**fields | {"killed_by": tuple(fields["killed_by"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path.name}: {fields.get('name', fields)}: {error}") from error


def problems(root: Path, mutants: Sequence[Mutant]) -> list[str]:
    """Return a sentence for each thing that is wrong with the tables, without running a test.

    Args:
        root: the checkout that the mutants change and whose tests they name.
    """
    times = Counter(mutant.name for mutant in mutants)
    found = [f"{name}: {count} mutants have this name." for name, count in times.items() if count > 1]
    tests = cache(_tests)
    for mutant in mutants:
        found += [f"{mutant.name}: {text}" for text in _problems_of_edit(root, mutant)]
        if not mutant.killed_by:
            found.append(f"{mutant.name}: it names no test.")
        for test in mutant.killed_by:
            path, _, name = test.partition("::")
            if name not in tests(root / path):
                found.append(f"{mutant.name}: there is no test {test}.")
    return found


def _problems_of_edit(root: Path, mutant: Mutant) -> Iterator[str]:
    if not (root / mutant.file).is_file():
        yield f"there is no file {mutant.file}."
        return
    source = (root / mutant.file).read_text(encoding="utf-8")
    mutated = mutant.apply(source)
    if mutated is None:
        yield f"old stands {source.count(mutant.old)} times in {mutant.file}, not once. Cut it again."
    elif mutated == source:
        yield "new is the same as old."
    else:
        try:
            ast.parse(mutated)
        except SyntaxError as error:
            yield f"{mutant.file} does not parse any more: {error}."


def _tests(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    body = ast.parse(path.read_text(encoding="utf-8")).body
    functions = (each.name for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(name for name in functions if name.startswith("test_"))
