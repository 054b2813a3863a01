"""Two classes never share a name: who reads one in a trace or a search finds one place."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]


def classes(folder: Path) -> list[str]:
    """Return the names of all classes of modules below a folder, each as often as it is there."""
    return [
        node.name
        for path in folder.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    ]


def test_no_two_classes_of_the_product_have_one_name() -> None:
    found = Counter(name for folder in ("mm2py", "connectors", "rest") for name in classes(ROOT / folder))
    assert sorted(name for name, count in found.items() if count > 1) == []


def test_a_name_that_is_there_twice_is_found(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text("class Plan:\n    pass\n")
    assert Counter(classes(tmp_path))["Plan"] == 2
