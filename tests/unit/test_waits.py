"""Tests on real processes wait in one way: for a thing, by the patient clock (``tests/cluster/running.py``).

A wait made by hand is red by luck on a busy machine, and green by luck where its end fails nothing. What is looked for
here is what such waits are made of; who really needs one is named below, with the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("cluster", "parity", "faults")
HELPERS: Final = ("tests/cluster/running.py", "tests/cluster/patience.py")
"""Where waiting is made."""
EXCEPTIONS: Final[Mapping[str, str]] = {
    "tests/cluster/group/test_zookeeper.py::client_of": "the time-out of a session of ZooKeeper, not of a wait",
    "tests/cluster/kafka_client.py::_asked": "callers tell by its KafkaException that a cluster is away",
    "tests/cluster/offsets/test_client.py::give_up": "a caller's own deadline is what is tested",
    "tests/cluster/offsets/test_client.py::meet_one_that_dies_in_the_middle_of_a_read": "likewise",
    "tests/cluster/wan/test_link.py": "how long a packet is under way is what is tested",
    "tests/cluster/wan/test_stripes.py::test_a_link_with_jitter_is_read_faster_than_by_one_connection": "the claim",
    "tests/faults/failpoint/sitecustomize.py": "runs in the process under test",
    "tests/faults/test_group_clusters.py::"
    "test_a_worker_that_cannot_reach_the_control_log_stops_writing_before_others_take_over": "tests when it wrote",
    "tests/faults/test_groups.py::test_repeated_short_stalls_evict_no_worker": "the claim of F09",
}
"""A file, or a function or class in it, and why it may."""

TIMEOUTS: Final = frozenset({"timeout", "request_timeout", "ready_timeout_s", "deadline_s", "within_s"})
"""Arguments that say how long something may take."""
CALLS: Final = {
    **dict.fromkeys(("timeout", "result", "join", "wait", "poll", "flush", "settimeout"), 0),
    **dict.fromkeys(("init_transactions", "commit_transaction", "abort_transaction"), 0),
    **dict.fromkeys(("consume", "create_connection"), 1),
}
"""Functions with such an argument that need not be named, and where it stands."""
SLICE_S: Final = 1.0
"""What is asked again and again may wait so long each time."""


def _number(node: ast.AST, constants: Mapping[str, float]) -> float | None:
    """Return about what an expression of numbers comes to; None if anything else stands in it, such as PATIENCE."""
    match node:
        case ast.Constant(value=float() | int() as value) if not isinstance(value, bool):
            return float(value)
        case ast.Name(id=name):
            return constants.get(name)
        case ast.BinOp(left=left, right=right):
            first, second = _number(left, constants), _number(right, constants)
            return None if first is None or second is None else max(first, second)
    return None


def _asks_a_clock(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="time"), attr="monotonic" | "perf_counter" | "time")):
            return True
        case ast.Call(func=ast.Attribute(attr="time"), args=[]) | ast.Call(func=ast.Name(id="now_s")):
            return True
        case ast.Name(id=name):
            return "took" in name
    return False


def _measured(function: ast.AST) -> set[str]:
    """Return the variables of a function that come from a clock."""
    found: set[str] = set()
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                pairs = [*zip(targets, values, strict=True)]
            case ast.Assign(targets=[target], value=value) | ast.NamedExpr(target=target, value=value):
                pairs = [(target, value)]
            case _:
                continue
        found |= {to.id for to, of in pairs if isinstance(to, ast.Name) and any(map(_asks_a_clock, ast.walk(of)))}
    return found


def _is_lower_bound(node: ast.expr) -> bool:
    """Whether this says that something took so long at least: a late machine does not make it false."""
    match node:
        case ast.Compare(left=ast.BinOp(left=clock, op=ast.Sub()), ops=[ast.Gt() | ast.GtE()]):
            return _asks_a_clock(clock)
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Gt() | ast.GtE()]):
            return name.endswith("_s")
    return False


@dataclass
class Waits(ast.NodeVisitor):
    """Finds the waits in a file that are made by hand: ``found`` has lines and what stands there."""

    file: str
    constants: Mapping[str, float]
    """Those of the module, and those it imports, that are mere numbers."""
    found: list[tuple[int, str]] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    """The exceptions that were needed."""
    _names: list[str] = field(default_factory=list)
    _measured: set[str] = field(default_factory=set)

    def _note(self, node: ast.expr, why: str) -> None:
        places = [self.file, *(f"{self.file}::{name}" for name in self._names)]
        excepted = [place for place in places if place in EXCEPTIONS]
        self.used.update(excepted)
        if not excepted:
            self.found.append((node.lineno, f"{why}: {ast.unparse(node):.100}"))

    def _check(self, node: ast.expr, limit: ast.expr) -> None:
        number = _number(limit, self.constants)
        if number is not None and number > SLICE_S:
            self._note(node, "has a time-out without PATIENCE")

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._names.append(node.name)
        self.generic_visit(node)
        self._names.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer = self._measured
        self._names.append(node.name)
        self._measured = outer or _measured(node)
        arguments = node.args
        behind = [None] * (len(arguments.args) - len(arguments.defaults))
        defaults = [*behind, *arguments.defaults, *arguments.kw_defaults]
        for argument, default in zip([*arguments.args, *arguments.kwonlyargs], defaults, strict=True):
            if default is not None and argument.arg in TIMEOUTS:
                self._check(default, default)
        self.generic_visit(node)
        self._names.pop()
        self._measured = outer

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Assert(self, node: ast.Assert) -> None:
        if not _is_lower_bound(node.test):
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        parts = list(ast.walk(node))
        is_measured = any(isinstance(part, ast.Name) and part.id in self._measured for part in parts)
        in_order = any(isinstance(one, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for one in node.ops)
        if in_order and (is_measured or any(map(_asks_a_clock, parts))):
            self._note(node, "compares what a clock says")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = ast.unparse(node.func)
        last = name.rpartition(".")[2]
        match name, node.args:
            case "asyncio.sleep", [ast.Constant(value=0), *_]:
                pass
            case "time.sleep" | "asyncio.sleep" | "asyncio.timeout" | "asyncio.wait_for", _:
                self._note(node, "waits by itself")
            case _ if len(node.args) > (at := CALLS.get(last, len(node.args))):
                self._check(node, node.args[at])
        for keyword in node.keywords:
            if keyword.arg in TIMEOUTS:
                self._check(node, keyword.value)
        self.generic_visit(node)


@cache
def _constants_of(path: Path) -> Mapping[str, float]:
    return _constants(ast.parse(path.read_text())) if path.exists() else {}  # it may be a folder


def _constants(tree: ast.Module) -> dict[str, float]:
    """Return the constants of a module that are mere numbers, and those that it imports from other tests."""
    found: dict[str, float] = {}
    for node in tree.body:
        match node:
            case ast.ImportFrom(module=str() as module, names=names) if module.startswith("tests."):
                others = _constants_of(ROOT / f"{module.replace('.', '/')}.py")
                found |= {one.name: others[one.name] for one in names if one.name in others}
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.expr() as value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                if (number := _number(value, found)) is not None:
                    found[name] = number
    return found


def waits_in(source: str, file: str = "tests/cluster/test_some.py") -> Waits:
    tree = ast.parse(source)
    waits = Waits(file, _constants(tree))
    waits.visit(tree)
    return waits


def _files() -> Iterator[str]:
    for folder in FOLDERS:
        for path in sorted((ROOT / "tests" / folder).rglob("*.py")):
            if (file := str(path.relative_to(ROOT))) not in HELPERS:
                yield file


@pytest.mark.one_python
def test_tests_on_real_processes_wait_in_one_way() -> None:
    read = {file: waits_in((ROOT / file).read_text(), file) for file in _files()}
    found = [f"{file}:{line} {what}" for file, waits in read.items() for line, what in waits.found]
    assert not found, "Wait with tests/cluster/running.py:\n" + "\n".join(found)
    assert set().union(*(waits.used for waits in read.values())) == EXCEPTIONS.keys(), "exceptions without a use"


@pytest.mark.parametrize(
    "source",
    [
        "time.sleep(0.05)",
        "await asyncio.sleep(delay_s)",
        "async with asyncio.timeout(30 * PATIENCE): pass",
        "await asyncio.wait_for(work, DEADLINE_S)",
        "while time.monotonic() < end_s: pass",
        "assert now_s() - begun_s < 20 * PATIENCE",
        "took = time.monotonic() - begun_s\n    assert took < 5",
        "until_s = loop.time() + 5\n    while not until_s < x: pass",
        "begun_s, rate = time.monotonic(), 3\n    assert 3 < x - begun_s",
        "rate = size / (time.monotonic() - begun_s)\n    assert rate > 3",
        "assert now_s() < end_s",
        "thread.join(10)",
        "future.result(LIMIT_S)",
        "future.result(LATE_S)",
        "process.communicate(timeout=2 * LIMIT_S)",
        "run.wait(deadline_s=60)",
        "def wait(deadline_s=30): pass",
    ],
)
def test_a_wait_made_by_hand_is_found(source: str) -> None:
    limits = "LIMIT_S: Final = 30.0\nLATE_S = 4 * LIMIT_S\n"
    assert len(waits_in(f"{limits}async def test():\n    {source}").found) == 1


@pytest.mark.parametrize(
    "source",
    [
        "await asyncio.sleep(0)",
        "future.result(ANSWER_S)",
        "run.wait(deadline_s=60 * PATIENCE)",
        "run.wait(deadline_s=LIMIT_S)",
        "message = consumer.poll(0.2)",
        "', '.join(names)",
        "print(time.monotonic() - begun_s)",
        "assert time.monotonic() - begun_s > 3",
        "took_s = time.monotonic() - begun_s\n    assert took_s >= size / rate",
        "begun_s, before = time.monotonic(), count()\n    assert count() > before",
        "def wait(deadline_s=DEADLINE_S): pass",
    ],
)
def test_other_waits_are_left_alone(source: str) -> None:
    limits = "from tests.cluster.running import ANSWER_S, DEADLINE_S\nLIMIT_S: Final = 30.0 * PATIENCE\n"
    assert waits_in(f"{limits}async def test():\n    {source}").found == []
