"""The history of a flow: what an entry says, and what is made of records that are none."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.records.audit_record import too_old
from mm2py.records.author import Author
from mm2py.records.connector_config import ConfigRecords
from mm2py.records.history_record import (
    CHANGE_CHARS_MOST,
    CHANGES_MOST,
    HISTORY_KEY,
    KEPT_MOST,
    HistoryEntry,
    HistoryKind,
    SettingChange,
    decode_history,
    encode_history,
    history_key,
    moved_entry,
    restart_entry,
    settings_entry,
    target_entry,
)
from mm2py.records.operator_request import MalformedRequest, RestartConnector, RestartPartitions, Target, TargetState

ANNA, BOB = Author("anna", "ops1", "for team x"), Author("bob", "vm")
SETTINGS = settings_entry(
    [SettingChange("topics", "topics: 'a' -> 'b'")],
    at_ms=7,
    by="anna on ops1 (mm2py apply)",
    author=ANNA,
    writer="apply",
    worker="mm2py apply",
    version=3,
    write_id="w3",
)
PAUSED = target_entry("MirrorSourceConnector", Target(TargetState.PAUSED, BOB.by_rest, 8, author=BOB))
RESTARTED = restart_entry(RestartConnector("MirrorSourceConnector", True, BOB.by_rest, BOB), 9)
TOPIC = restart_entry(RestartPartitions("orders", 3, BOB.by_rest, BOB), 9)
MOVED = moved_entry(
    "billing",
    "B",
    [SettingChange("orders-0", "orders-0  1,200 -> A.orders-0  1,187, exact")],
    at_ms=10,
    by="anna on ops1 (mm2py groups --move)",
    author=ANNA,
)


@pytest.mark.parametrize("entry", [SETTINGS, PAUSED, RESTARTED, TOPIC, replace(TOPIC, partition=None), MOVED])
def test_an_entry_that_was_written_is_read_again(entry: HistoryEntry) -> None:
    assert decode_history(encode_history(entry)) == entry
    later = {**json.loads(encode_history(entry)), "format": 2, "added": [1]}
    assert decode_history(json.dumps(later).encode()) == entry, "what a later version adds is passed over"


def test_an_entry_says_what_was_done_by_whom_and_why() -> None:
    assert [one.text for one in (SETTINGS, PAUSED, RESTARTED, TOPIC, replace(TOPIC, partition=None), MOVED)] == [
        "version 3 stored by anna on ops1 (mm2py apply): for team x",
        "MirrorSourceConnector paused by bob over REST on worker vm",
        "MirrorSourceConnector restarted where it had failed by bob over REST on worker vm",
        "orders-3 restarted by bob over REST on worker vm",
        "orders restarted by bob over REST on worker vm",
        "group billing moved to B by anna on ops1 (mm2py groups --move): for team x",
    ]
    assert target_entry("X", Target(TargetState.STARTED, "ann", 1)).text == "X resumed by ann"
    assert target_entry("X", Target(TargetState.STOPPED, "ann", 1)).kind is HistoryKind.STOPPED


def test_of_very_many_changes_only_a_part_is_kept() -> None:
    changes = [SettingChange(f"s{number}", "x" * 5_000) for number in range(CHANGES_MOST + 7)]
    entry = settings_entry(changes, at_ms=1, by="", author=ANNA, writer="", worker="", version=1, write_id="")
    assert (len(entry.changes), entry.unnamed) == (CHANGES_MOST, 7)
    assert {len(change.text) for change in entry.changes} == {CHANGE_CHARS_MOST}
    assert decode_history(encode_history(entry)) == entry
    wide = moved_entry("g", "B", changes, at_ms=1, by="", author=ANNA)
    assert (len(wide.changes), wide.unnamed, decode_history(encode_history(wide))) == (CHANGES_MOST, 7, wide)


def test_the_oldest_entries_beyond_the_last_five_hundred_are_deleted() -> None:
    records = ConfigRecords("configs")
    for at_ms in range(KEPT_MOST + 50):
        for old in too_old(records.history, KEPT_MOST):
            records.take(old, None, 0)
        records.take(history_key(at_ms, at_ms), encode_history(replace(PAUSED, at_ms=at_ms)), 0)
    assert [entry.at_ms for entry in records.entries()] == list(range(50, KEPT_MOST + 50))


def test_what_is_no_entry_is_left_out_and_a_secret_of_another_writer_is_hidden() -> None:
    records = ConfigRecords("configs")
    forged = {**json.loads(encode_history(SETTINGS)), "changes": [["sasl.password", "sasl.password: 'hunter2'"], 7]}
    for number, value in enumerate([b"no JSON", b"[]", b"{}", json.dumps(forged).encode()]):
        records.take(HISTORY_KEY + b"%d" % number, value, number)
    (entry,) = records.entries()
    assert entry.changes == (SettingChange("sasl.password", "[hidden]"),)
    assert not records.malformed


values = st.one_of(st.none(), st.integers(), st.floats(), st.booleans(), st.text(), st.lists(st.text(), max_size=3))


@given(
    st.sampled_from([SETTINGS, PAUSED, RESTARTED, TOPIC, MOVED]),
    st.dictionaries(
        st.sampled_from(["at_ms", "kind", "by", "user", "reason", "changes", "partition", "version"]), values
    ),
)
def test_whatever_stands_in_a_record_it_is_read_so_that_it_can_be_shown_or_refused(
    entry: HistoryEntry, changed: dict[str, object]
) -> None:
    """S26."""
    value = json.dumps({**json.loads(encode_history(entry)), **changed}).encode()
    try:
        found = decode_history(value)
    except MalformedRequest:
        return
    assert found.text.isprintable() and all(change.text.isprintable() for change in found.changes)
    assert decode_history(encode_history(found)).text == found.text
