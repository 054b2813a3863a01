"""The results of a backfill: kept as Parquet, also of what attempts had copied that were lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mm2py.backfill.results import NotKept, check_folder, counted, counted_by_ledger, folder_of, keep
from mm2py.cli.backfill import parse_arguments
from mm2py.cli.backfill_printout import result_text
from mm2py.errors import ConfigError
from mm2py.flow import parse_flow
from mm2py.kafka.error_codes import TOPIC_AUTHORIZATION_FAILED
from mm2py.kafka.errors import BrokerRefused
from mm2py.offsets.ledger import Ledger
from mm2py.offsets.runs import Entry, Hole, HoleCause, Run

OWN = {
    "topic": "t",
    "partition": 0,
    "source_first": 30,
    "source_next": 40,
    "target_first": 21,
    "target_next": 31,
    "records": 10,
    "bytes": 5_000_000,
    "digest": 2**32 - 1,
    "seconds": 1.5,
    "attempt": 1,
}
LOST: dict[str, Any] = {**dict.fromkeys(OWN), "topic": "t", "partition": 0, "source_first": 0, "source_next": 30}


def ledger_of(*entries: Entry, start: int = 0) -> Ledger:
    ledger = Ledger(start, 0, is_whole=start == 0)
    for entry in entries:
        ledger.append(entry)
    return ledger


def test_results_go_to_the_current_directory_if_nothing_else_is_said() -> None:
    assert parse_arguments(["f", "A->B"]).parquet is None, "nothing is left in the current directory unasked"
    assert parse_arguments(["f", "A->B", "--parquet", "/results"]).parquet == Path("/results")
    assert parse_arguments(["f", "A->B", "--parquet", "none"]).parquet is None
    assert folder_of("./none") == Path("none")


def test_a_folder_that_cannot_be_written_to_is_refused_before_anything_is_copied(tmp_path: Path) -> None:
    check_folder(tmp_path / "new" / "folder")
    assert (tmp_path / "new" / "folder").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--parquet none"):
        check_folder(tmp_path / "file")


def test_rows_are_kept_with_their_types_although_values_are_missing(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="Run `make venv-spark`.")
    path = keep([LOST, OWN], tmp_path, "0badcafe")
    assert path == tmp_path / "mm2py-backfill-0badcafe.parquet"
    assert parquet.read_table(path).to_pylist() == [LOST, OWN]
    alone = parquet.read_table(keep([LOST], tmp_path, "1badcafe"))
    assert {str(column.type) for column in alone.schema} == {"string", "int32", "int64", "double"}


def test_results_that_cannot_be_kept_are_an_error_that_says_the_backfill_is_done(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow.parquet", reason="Run `make venv-spark`.")
    with pytest.raises(NotKept, match="The backfill is done"):
        keep([OWN], tmp_path / "gone", "0badcafe")


def test_what_a_lost_attempt_has_copied_is_counted_by_the_ledger() -> None:
    ledger = ledger_of(Run(5, 0, 10), Hole(15, 10, 8, 4, HoleCause.COUNTED), Hole(23, 14, 2, 0, HoleCause.GAP))
    ledger.append(Run(26, 15, 20))
    row = counted(LOST, ledger)
    assert row == {**LOST, "records": 10 + 4 + 4, "target_first": 0, "target_next": 19}
    assert counted({**LOST, "target_next": 25}, ledger)["target_next"] == 25, "that of the position, behind a marker"
    assert counted(OWN, ledger) == OWN


@pytest.mark.parametrize(
    "ledger",
    [
        None,
        ledger_of(Run(0, 0, 29)),
        ledger_of(Run(10, 10, 40), start=10),
        ledger_of(Run(0, 0, 28), Hole(28, 28, 5, 3, HoleCause.COUNTED)),
    ],
)
def test_a_ledger_that_does_not_tell_of_the_whole_range_tells_nothing(ledger: Ledger | None) -> None:
    assert counted(LOST, ledger) == LOST


@pytest.mark.real_time
async def test_a_ledger_that_cannot_be_read_leaves_the_count_unknown_and_says_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Refuses:
        async def send(self, *_: Any, **__: Any) -> Any:
            raise BrokerRefused("Reading the ledger", TOPIC_AUTHORIZATION_FAILED)

    rows = [{"topic": "t", "partition": 0, "source_first": 0, "source_next": 9, "records": None}]
    assert await counted_by_ledger(rows, parse_flow("A->B"), Refuses()) == rows
    assert "backfill.not_counted" in capsys.readouterr().err


def test_a_range_without_records_has_none() -> None:
    ledger = ledger_of(Hole(0, 0, 30, 0, HoleCause.GAP))
    assert counted(LOST, ledger) == {**LOST, "records": 0}


def test_the_last_line_says_where_the_results_are() -> None:
    text = result_text("0badcafe", "A->B", [OWN, LOST], Path("/r/mm2py-backfill-0badcafe.parquet"), as_json=False)
    assert text.splitlines() == [
        "t-0: up to source offset 40",
        "Backfill 0badcafe of A->B is done: at least 10 records, at least 5 MB.",
        "Results: /r/mm2py-backfill-0badcafe.parquet",
    ]
    told = result_text("0badcafe", "A->B", [OWN], None, as_json=False).splitlines()
    assert told[-1] == "Backfill 0badcafe of A->B is done: 10 records, 5 MB."
    body = json.loads(result_text("0badcafe", "A->B", [LOST], Path("/r/x"), as_json=True))
    assert body == {"backfill": "0badcafe", "parquet": "/r/x", "ranges": [LOST]}
