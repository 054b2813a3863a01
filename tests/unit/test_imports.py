"""No circle of imports: a reader can take any module, and what it rests on, without those that rest on it."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {"mm2py": ".", "mm2py_connectors": "connectors", "mm2py_rest": "rest", "bench": "."}
"""Each with the folder that it is in."""


def modules(root: Path) -> Mapping[str, Path]:
    """Return the modules by name; a package has that of its ``__init__``."""
    return {
        ".".join(path.relative_to(root / folder).with_suffix("").parts).removesuffix(".__init__"): path
        for package, folder in PACKAGES.items()
        for path in (root / folder / package).rglob("*.py")
    }


def imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Yield what a module imports, also within its functions and under TYPE_CHECKING."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def circle(root: Path) -> list[str]:
    """Return the modules of a circle of imports; empty: there is none."""
    known = modules(root)
    graph = {name: {one for one in imported(path, known) if one in known} - {name} for name, path in known.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circle(ROOT) == []


@pytest.mark.parametrize("line", ["from mm2py import one\n", "def late():\n    import mm2py.one\n"])
def test_a_circle_is_found(tmp_path: Path, line: str) -> None:
    (tmp_path / "mm2py").mkdir()
    (tmp_path / "mm2py" / "one.py").write_text("from mm2py.two import name\n")
    (tmp_path / "mm2py" / "two.py").write_text(line)
    assert set(circle(tmp_path)) == {"mm2py.one", "mm2py.two"}


NOT_HELD = {
    "mm2py.backfill.verifying.planning": "it is given its randomness",
    "mm2py.config.rest": "it makes paths, and opens none",
}


def test_a_module_that_is_called_pure_is_one_of_those_that_the_lint_holds_to_it() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = (one for one in contracts if one["name"].startswith("Rules of safety are pure"))
    held = tuple(contract["source_modules"])
    called = {
        name
        for name, path in modules(ROOT).items()
        if name.startswith("mm2py") and re.search(r"\bPure\.", ast.get_docstring(ast.parse(path.read_text())) or "")
    }
    assert len(called) > 80
    assert {name for name in called if not name.startswith(held)} == set(NOT_HELD)
