"""The table of docs/offsets.md: each kind of answer is in it, and its examples are what a ledger says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from mm2py.offsets.answers import AnswerKind
from mm2py.offsets.ledger import Ledger
from mm2py.offsets.partition_ledger import PartitionLedger
from mm2py.offsets.runs import Entry, Hole, HoleCause, Run
from mm2py.offsets.translation import Basis, Translation, forward, reverse
from mm2py.status.offset_inquiry import Question, ask_where
from mm2py.status.offset_report import WORDS, with_log_start
from tests.fakes.broker.record_batch import Record
from tests.fakes.ledger_topic import chunk, write_chunks
from tests.scenarios.offsets.test_translate_command import QUARANTINE, put, quarantined, replayed
from tests.scenarios.world import World

PAGE = (Path(__file__).parents[3] / "docs" / "offsets.md").read_text()
_HISTORY = re.compile(r"^    (?:source (\d+)(?:-(\d+))?)?\s*(?:target (\d+)(?:-(\d+))?)?\s{2,}(\S.*)$", re.MULTILINE)
_ROW = re.compile(r"^\| `(\w+)` \|([^|]+)\|([^|]*)\|([^|]*)\|([^|]*)\|$", re.MULTILINE)
_STARTS = re.compile(r"starts at (\d+), the source's at (\d+)")
_REPLAYED = re.compile(r"^ +target (\d+) +the record of (\d+), appended by mm2py replay", re.MULTILINE)
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


class Row(NamedTuple):
    kind: AnswerKind
    is_exact: bool
    forward: str
    reverse: str
    starts: tuple[int, int]
    """The first offsets of the target's log and of the source's."""


def rows() -> Iterator[Row]:
    for name, what, there, back, exact in _ROW.findall(PAGE):
        starts = _STARTS.search(what)
        first = (int(starts[1]), int(starts[2])) if starts is not None else (0, 0)
        yield Row(AnswerKind[name.upper()], exact.strip() == "yes", there, back, first)


async def replayed_example() -> tuple[str, str]:
    """Return the replayed record's target and source offset, as ``mm2py translate`` finds them: the ledger has none."""
    found = _REPLAYED.search(PAGE)
    assert found is not None
    target_offset, source_offset = int(found[1]), int(found[2])
    newest = example(is_whole=True).newest
    assert newest is not None
    of_page = chunk(
        *newest.entries(),
        begin=(newest.source_start, newest.target_start),
        copied_to=newest.copied_to,
        is_whole=True,
    )
    world = World(1)
    world.source.create_topic("orders", 1)
    world.target.create_topic("A.orders", 1)
    records = [Record(b"%d" % offset) for offset in range(newest.target_end)]
    records[target_offset] = Record(b"big", b"k", (("h", b"1"),))
    world.target.append("A.orders", 0, records)
    write_chunks(world.target, [of_page])
    put(world.target, QUARANTINE, quarantined(source_offset, b"big"), replayed(source_offset))
    question = Question(("orders", 0), [target_offset], is_reverse=True)
    (report,) = await ask_where(world.settings, question, world.source, world.target, world.log)
    assert (report.kind, report.is_exact) == ("replayed", True)
    return str(report.offset), str(report.other_offset)


def test_each_kind_of_answer_has_a_row_and_words_of_its_own() -> None:
    assert {row.kind for row in rows()} == set(AnswerKind)
    assert WORDS.keys() == set(AnswerKind)


@pytest.mark.parametrize("row", list(rows()), ids=lambda row: row.kind.name.lower())
async def test_the_examples_of_the_page_are_what_the_ledger_answers(row: Row) -> None:
    partition = example(is_whole=row.kind is not AnswerKind.BEFORE_LEDGER)
    if row.kind is AnswerKind.REPLAYED:
        assert _EXAMPLE.findall(row.reverse) == [await replayed_example()]
        return
    asked = 0
    for cell, ask, start in zip((row.forward, row.reverse), (forward, reverse), row.starts, strict=True):
        for offset, answer in _EXAMPLE.findall(cell):
            to, basis = (None, Basis.NOTHING) if answer == "none" else (int(answer), Basis.LEDGER)
            found = with_log_start(ask(partition, None, ("orders", 0), int(offset)), start)
            assert found == Translation(row.kind, to, row.is_exact, basis)
            asked += 1
    assert asked, "a row without an example"
