"""Draws random mutants and keeps those that a test kills: ``random.toml`` was made so, once.

The other tables hold the rules that their authors thought of. These mutants are small edits at random lines that tests
run: a comparison at its border, a condition turned round, a call left out, a result left out, a sum made a difference.
They are the net under a change of the tests: what was killed before is killed behind it (``make mutants
ARGS=--random``). Drawing needs the map of ``make quick-map``: ``python -m tests.mutants.draw --seed 1 --count 300``.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final

from tests.mutants.runner import Verdict, run_mutants
from tests.mutants.table import RANDOM, Mutant, read_mutants
from tests.quick.__main__ import load_map
from tests.quick.choose import TestMap

ROOT: Final = Path(__file__).parents[2]
_COMPARISONS: Final = dict(
    (
        *((ast.Lt, "<="), (ast.LtE, "<"), (ast.Gt, ">="), (ast.GtE, ">"), (ast.Eq, "!="), (ast.NotEq, "==")),
        *((ast.In, "not in"), (ast.NotIn, "in"), (ast.Is, "is not"), (ast.IsNot, "is")),
    )
)
_MOST_TESTS: Final = 5
_DEAREST_TEST_S: Final = 2.0


def edits(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield what may be written in place of a node, or of a part of it."""
    match node:
        case ast.Compare(left, [op], [right]):
            yield node, f"{ast.unparse(left)} {_COMPARISONS[type(op)]} {ast.unparse(right)}"
        case ast.BoolOp(op, values):
            word = " and " if isinstance(op, ast.Or) else " or "
            yield node, f"({word.join(f'({ast.unparse(value)})' for value in values)})"
        case ast.UnaryOp(ast.Not(), operand):
            yield node, f"bool({ast.unparse(operand)})"
        case ast.BinOp(left, ast.Add() | ast.Sub() as op, right) if not isinstance(left, ast.Constant | ast.JoinedStr):
            sign = "-" if isinstance(op, ast.Add) else "+"
            yield node, f"({ast.unparse(left)} {sign} {ast.unparse(right)})"
        case ast.Expr(ast.Call() | ast.Await()) | ast.AugAssign():
            yield node, "pass"
        case ast.If(test):
            yield test, f"not ({ast.unparse(test)})"
        case ast.Return(ast.expr() as value) if not isinstance(value, ast.Constant):
            yield value, "None"


def mutants(source: str, line: int) -> Iterator[tuple[str, str]]:
    """Yield edits of the statements that begin on a line, as whole lines that stand once in the source."""
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if getattr(node, "lineno", None) != line:
            continue
        for part, text in edits(node):
            first, last = part.lineno - 1, part.end_lineno  # type: ignore[attr-defined]
            old = "".join(lines[first:last])
            head = lines[first].encode()[: part.col_offset].decode()  # type: ignore[attr-defined]
            tail = lines[last - 1].encode()[part.end_col_offset :].decode()  # type: ignore[attr-defined]
            new = head + text + tail
            while source.count(old) > 1 and first > 0:
                first -= 1
                old, new = lines[first] + old, lines[first] + new
            yield old, new


def candidates(known: TestMap, random: Random, seen: set[tuple[str, str]]) -> Iterator[Mutant]:
    """Yield mutants at random lines of the map without end; the tests are the cheapest that run the line.

    Args:
        seen: file and new text of those that are not to be drawn again.
    """
    places = [(file, line) for file in sorted(known.lines) for line in sorted(known.lines[file])]
    while True:
        file, line = random.choice(places)
        source = (ROOT / file).read_text(encoding="utf-8")
        found = list(mutants(source, line))
        tests = [known.tests[test] for test in known.lines[file][line]]
        names = tuple(name for name, cost_s in tests if cost_s < _DEAREST_TEST_S)[:_MOST_TESTS]
        if not found or not names:
            continue
        old, new = random.choice(found)
        mutant = Mutant(f"r{len(seen):03}", f"{file}:{line}", file, old, new, names)
        mutated = mutant.apply(source)
        if (file, new) in seen or mutated is None or not _parses(mutated):
            continue
        seen.add((file, new))
        yield mutant


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw until the table has so many; each is written down when it was killed, so a campaign may stop at any time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="of the first; default: the number of those that are there already")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2)
    options = parser.parse_args(arguments)
    known = load_map()
    if known is None:
        parser.error("There is no map yet: make quick-map")
    there = read_mutants(RANDOM) if RANDOM.is_file() else []
    seed = len(there) if options.seed is None else options.seed
    drawn = candidates(known, Random(seed), {(mutant.file, mutant.new) for mutant in there})
    verdicts: list[Verdict] = []
    while len(there) < options.count:
        some = list(islice(drawn, (options.count - len(there)) * 3 // 2 + 1))
        for result in run_mutants(ROOT, some, workers=options.workers, timeout_s=30):
            verdicts.append(result.verdict)
            killers = re.findall(r"^FAILED (tests/[^\s\[]+)", result.output, re.MULTILINE)
            print(result.verdict.value, result.mutant.rule, *killers[:1], flush=True)
            if result.verdict is Verdict.KILLED and killers and len(there) < options.count:
                there.append(replace(result.mutant, name=f"r{len(there):03}", killed_by=(killers[0],)))
                with RANDOM.open("a", encoding="utf-8") as file:
                    file.write(_entry(there[-1]))
    print(f"{len(verdicts)} drawn, {verdicts.count(Verdict.SURVIVED)} survived the cheapest tests of their line.")


def _fields(mutant: Mutant) -> dict[str, object]:
    return {name: getattr(mutant, name) for name in ("name", "rule", "file", "old", "new", "killed_by")}


def _entry(mutant: Mutant) -> str:
    """Return the entry of a table. A string of JSON is one of TOML as well."""
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in _fields(mutant).items()]
    return "\n".join(["[[mutant]]", *lines, "", ""])


if __name__ == "__main__":
    main()
