"""docs/compatibility.md says what the newest result file of ``make compat`` says, and nothing else."""

from __future__ import annotations

from pathlib import Path

from mm2py.checks.judge_clusters import NEWEST, OLDEST
from tests.cluster.version_rows import LACKS, PAGE, VersionRow, load, newest, save, with_table


def test_the_page_has_the_table_of_the_newest_results() -> None:
    path = newest()
    assert PAGE.read_text() == with_table(PAGE.read_text(), load(path), path.name)


def test_each_row_was_proven_in_both_directions_from_the_oldest_to_the_newest_version() -> None:
    rows = load(newest())
    minors = [row.version.rpartition(".")[0] for row in rows]
    assert (minors[0], minors[-1]) == (OLDEST, NEWEST)
    for row in rows:
        assert min(row.read, row.written, row.kills, row.groups) > 0, row
        assert set(row.lacks) <= set(LACKS)


def test_a_row_takes_the_place_of_an_earlier_one_of_its_version(tmp_path: Path) -> None:
    path = tmp_path / "compat.json"
    for version, read in (("3.10.0", 1), ("3.9.2", 2), ("3.10.0", 3)):
        save(VersionRow(version, "4.3.1", read, 1, 1, 1, ()), path)
    assert [(row.version, row.read) for row in load(path)] == [("3.9.2", 2), ("3.10.0", 3)]
