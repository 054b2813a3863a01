"""The table of docs/offsets.md: each kind of answer is in it, and its examples are what a ledger says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mm2py.offsets.answers import Answer, AnswerKind
from mm2py.offsets.ledger import Ledger
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.offsets.runs import Entry, Hole, HoleCause, Run
from mm2py.status.offset_report import WORDS

PAGE = (Path(__file__).parents[3] / "docs" / "offsets.md").read_text()
_HISTORY = re.compile(r"^    (?:source (\d+)(?:-(\d+))?)?\s*(?:target (\d+)(?:-(\d+))?)?\s{2,}(\S.*)$", re.MULTILINE)
_ROW = re.compile(r"^\| `(\w+)` \|([^|]+)\|([^|]*)\|([^|]*)\|([^|]*)\|$", re.MULTILINE)
_EXAMPLE = re.compile(r"`(\d+) -> (\d+|none)`")


def example(*, is_whole: bool) -> PartitionLedger:
    """Return the ledger of the history that the page tells."""
    found: Ledger | None = None
    partition = PartitionLedger()
    target_end = 0
    for first, last, target, target_last, what in _HISTORY.findall(PAGE):
        if first and found is None:
            found = Ledger(int(first), int(target), is_whole=is_whole)
            partition.start(1, found)
        assert found is not None
        if (complete := re.search(r"complete up to (\d+)", what)) is not None:
            found.advance(int(complete[1]))
        elif replayed := re.search(r"the record of (\d+), appended", what):
            partition.note_replayed(int(replayed[1]), int(target))
        elif first and "marker" not in what:
            count = int(last or first) - int(first) + 1
            copies = int(target_last or target) - int(target) + 1 if target else 0
            entry = _entry(what, int(first), int(target) if target else target_end, count, copies)
            found.append(entry)
            target_end = entry.target_end
    return partition


def _entry(what: str, source: int, target: int, count: int, copies: int) -> Entry:
    if what == "copied":
        assert count == copies
        return Run(source, target, count)
    cause = {"lost": HoleCause.GAP, "quarantined": HoleCause.QUARANTINED, "counted": HoleCause.COUNTED}
    return Hole(source, target, count, copies, cause.get(what.split(maxsplit=1)[0], HoleCause.TRIMMED))


def rows() -> Iterator[tuple[AnswerKind, bool, str, str]]:
    for name, _, forward, reverse, exact in _ROW.findall(PAGE):
        yield AnswerKind[name.upper()], exact.strip() == "yes", forward, reverse


def test_each_kind_of_answer_has_a_row_and_words_of_its_own() -> None:
    assert sorted(kind.name for kind, *_ in rows()) == sorted(kind.name for kind in AnswerKind)
    assert WORDS.keys() == set(AnswerKind)


@pytest.mark.parametrize("row", list(rows()), ids=lambda row: row[0].name.lower())
def test_the_examples_of_the_page_are_what_the_ledger_answers(row: tuple[AnswerKind, bool, str, str]) -> None:
    kind, is_exact, forward, reverse = row
    partition = example(is_whole=kind is not AnswerKind.BEFORE_LEDGER)
    asked = 0
    for cell, ask in ((forward, partition.forward), (reverse, partition.reverse)):
        for offset, answer in _EXAMPLE.findall(cell):
            assert ask(int(offset)) == Answer(kind, None if answer == "none" else int(answer), is_exact)
            asked += 1
    assert asked, "a row without an example"


def test_the_page_s_history_is_read_whole() -> None:
    newest = example(is_whole=True).newest
    assert newest is not None
    assert (newest.source_start, newest.source_end, newest.copied_to, newest.target_end) == (100, 176, 177, 73)
    assert len(list(newest.entries())) == 9
