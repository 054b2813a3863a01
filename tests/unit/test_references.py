"""Pages, docstrings and comments name files that are there: a reader follows them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [
    path.relative_to(ROOT).as_posix()
    for folder in ("mm2py", "connectors", "rest", "tests", "deploy", "bench")
    for path in (ROOT / folder).rglob("*.py")
]
PAGES = sorted(path for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")] if "results" not in path.parts)
SOURCES = [ROOT / name for name in FILES if name.startswith(("mm2py/", "connectors/"))]
NAMED = re.compile(r"(?<![\w./-])[\w./]*\w\.py\b")
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def missing_in(path: Path) -> list[str]:
    named = set(NAMED.findall(path.read_text()))
    return sorted(name for name in named if not any(file == name or file.endswith(f"/{name}") for file in FILES))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_names_and_links_only_what_is_there(page: Path) -> None:
    assert missing_in(page) == []
    links = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_sources_name_only_files_that_are_there() -> None:
    assert {path.name: missing for path in SOURCES if (missing := missing_in(path))} == {}
