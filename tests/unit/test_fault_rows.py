"""Each row of the tables in docs/faults.md names tests that are there, and that say which row they hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
PAGE = ROOT / "docs" / "faults.md"
ROW = re.compile(r"^\| ((?:[A-Z]\d\d(?:, )?)+) [^|]*\|(.*)\|$", re.MULTILINE)
FILE = re.compile(r"`([\w/]+\.py)`")


def rows() -> list[tuple[list[str], list[Path]]]:
    """Return the numbers of each row, and its files; a file without a folder is in tests/faults."""
    return [
        (
            numbers.split(", "),
            [TESTS / (name if "/" in name else f"faults/{name}") for name in FILE.findall(tests)],
        )
        for numbers, tests in ROW.findall(PAGE.read_text())
    ]


ROWS = rows()


@pytest.mark.parametrize(("numbers", "files"), ROWS, ids=[" ".join(numbers) for numbers, _ in ROWS])
def test_a_row_names_tests_that_are_there_and_say_its_number(numbers: list[str], files: list[Path]) -> None:
    assert files and [file for file in files if not file.is_file()] == []
    texts = {file: file.read_text() for file in files}
    for number in numbers:
        named = [file.name for file, text in texts.items() if re.search(rf"\b{number}\b", text)]
        assert named, f"none of its tests names {number}"
        if number[0] in "BS" and len(numbers) == 1:
            assert len(named) == len(files), f"only {named} name {number}"


def test_each_number_that_a_test_names_has_a_row() -> None:
    explained = {number for numbers, _ in ROWS for number in numbers}
    number = re.compile(r"\b[BFS]\d\d\b")
    unexplained = {
        f"{path.relative_to(TESTS)}: {found}"
        for path in TESTS.rglob("*.py")
        for found in number.findall(path.read_text())
        if found not in explained and path.name != Path(__file__).name
    }
    assert not unexplained


def test_all_rows_about_rest_have_a_test() -> None:
    wanted = {f"B{number}" for number in (*range(30, 37), *range(39, 46))}
    wanted |= {f"S{number:02}" for number in (1, 2, *range(5, 12), 14, *range(16, 21), 26, 32, 33, 34)}
    assert wanted <= {number for numbers, _ in ROWS for number in numbers}
