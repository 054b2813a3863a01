"""What becomes of a topic's extra records, by what a call asks for and by what the journal remembers."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from mm2py.dr.extras.found import ExtrasFound, PartitionExtras
from mm2py.dr.extras.settlement import (
    ExtrasChoice,
    ExtrasMemory,
    ExtrasWay,
    SettledTopic,
    open_text,
    remembered,
    replay_kept,
    settled_kept,
)
from mm2py.dr.journal import JournalEntry, decode_journal, encode_journal
from mm2py.dr.states import RecoveryEvent, RecoveryState, RecoveryVerb
from mm2py.flow import parse_flow

FLOW = parse_flow("A->B")
W = ExtrasWay


def entry(number: int, kept: dict[str, object], run: str = "r1") -> JournalEntry:
    made = JournalEntry(
        term=1,
        number=number,
        mark=f"m{number}",
        run=run,
        verb=RecoveryVerb.FAILOVER,
        flow=FLOW,
        state=RecoveryState.REINSTATED,
        event=RecoveryEvent.EXTRAS_NOTED,
        at_ms=0,
        kept=MappingProxyType(kept),
    )
    read = decode_journal(encode_journal(made, "1"), where="test")
    assert isinstance(read, JournalEntry)
    return read


@pytest.mark.parametrize(
    ("choice", "gap", "way"),
    [
        (ExtrasChoice(), False, None),
        (ExtrasChoice(replays=True), False, W.REPLAYED),
        (ExtrasChoice(replays=True), True, None),
        (ExtrasChoice(replays=True, leaves_all=True), True, W.LEFT),
        (ExtrasChoice(replays=True, leaves_all=True), False, W.REPLAYED),
        (ExtrasChoice(folder="x"), True, W.EXPORTED),
        (ExtrasChoice(export_topic="x", replays=True), False, W.REPLAYED),
        (ExtrasChoice(leaves=("orders",), replays=True), False, W.LEFT),
        (ExtrasChoice(leaves=("bills",)), False, None),
        (ExtrasChoice(leaves_all=True, topics=("bills",)), False, None),
    ],
)
def test_a_topic_is_settled_as_the_call_says_and_a_gap_is_never_replayed(
    choice: ExtrasChoice, way: ExtrasWay | None, *, gap: bool
) -> None:
    assert choice.way_of("orders", has_gap=gap) is way


def test_a_decision_counts_for_the_ends_at_which_it_was_made() -> None:
    found = ExtrasFound(FLOW, (PartitionExtras("orders", 0, 3, 7, records=4), PartitionExtras("orders", 1, 5, 5)))
    memory = ExtrasMemory({"orders": SettledTopic(W.LEFT, {"0": 7, "1": 5})})
    assert memory.open_topics(found) == []
    more = ExtrasFound(FLOW, (PartitionExtras("orders", 0, 3, 8, records=5), PartitionExtras("orders", 1, 5, 5)))
    assert memory.open_topics(more) == ["orders"]
    assert open_text(more, ["orders"]) == ("Nobody has decided yet about the records of orders that only A has.")


def test_the_journal_remembers_the_last_run_alone_and_the_first_begin_of_a_replay() -> None:
    settled = {"orders": SettledTopic(W.EXPORTED, {"0": 7}, "topic x")}
    entries = [
        entry(0, settled_kept({"old": SettledTopic(W.LEFT, {"0": 1})}), run="r0"),
        entry(1, replay_kept({"orders-0": 12}, [41])),
        entry(2, replay_kept({}, [42])),
        entry(3, settled_kept(settled)),
    ]
    found = remembered(entries)
    assert (dict(found.settled), dict(found.replay_begins), found.producers) == (settled, {"orders-0": 12}, (41, 42))
    assert found.settled["orders"].text == "exported to topic x"
    assert remembered([]) == ExtrasMemory()
