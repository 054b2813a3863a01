"""The journal of recoveries: its bytes, which entries count, and what both clusters say together."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mm2py.dr.journal import (
    JournalEntry,
    JournalOpening,
    JournalsDisagree,
    JournalUnreadable,
    RunRefused,
    StepTold,
    agreed,
    decode_journal,
    encode_journal,
    folded,
    last_term,
    needed_by,
    next_entry,
    standing_entry,
    stored_facts,
)
from mm2py.dr.journal_report import report_plain, report_text
from mm2py.dr.states import RecoveryEvent, RecoveryFacts, RecoveryState, RecoveryVerb
from mm2py.flow import ClusterAlias, Flow
from mm2py.records.author import Author

S, E = RecoveryState, RecoveryEvent
A, B = ClusterAlias("A"), ClusterAlias("B")
FORTH, BACK = Flow(A, B), Flow(B, A)
IDS = {A: "id-a", B: "id-b"}
NOW_MS = 1_764_000_000_000
ENDS = RecoveryFacts(source_ends={"orders-0": 10})


def after(entries: list[JournalEntry], event: E, flow: Flow = FORTH, *, term: int = 1, **facts: object) -> JournalEntry:
    seen = RecoveryFacts(**facts)  # type: ignore[arg-type]
    at = len(entries)
    told = StepTold(term, 1_764_000_000_000 + at * 1500, f"mark-{at}-{term}", Author("ann", "ops1", "ticket 4711"))
    told = replace(told, topics=("orders",))
    return next_entry(entries, event, flow, told, seen)[0]


def walked(*events: E, flow: Flow = FORTH, term: int = 1) -> list[JournalEntry]:
    entries: list[JournalEntry] = []
    for event in events:
        facts: dict[str, object] = {}
        if event is E.FENCE_HOLDS or event is E.SWITCH_CONFIRMED:
            facts = {"source_ends": ENDS.source_ends}
        if event is E.ALL_COPIED:
            facts = {"copied_to": ENDS.source_ends, "target_ends": ENDS.source_ends}
        if event is E.GROUPS_EXACT:
            facts = {"target_ends": ENDS.source_ends, "groups": {"billing": {"orders-0": 10}}}
        entries.append(after(entries, event, flow, term=term, **facts))
    return entries


FENCED = (E.CUTOVER_ASKED, E.FENCE_SET)
TO_FINAL = (*FENCED, E.FENCE_HOLDS, E.ALL_COPIED, E.GROUPS_EXACT)
TO_REVERSED = (*TO_FINAL, E.SWITCH_CONFIRMED, E.HOOK_DONE, E.FLOW_REVERSED, E.PRODUCERS_FREE)
FAILED_OVER = (E.FAILOVER_ASKED, E.WRITERS_CUT_OFF, E.GROUPS_AT_CHOSEN, E.SWITCH_CONFIRMED, E.HOOK_DONE)


# The bytes


def test_each_record_is_read_as_it_was_written() -> None:
    opening = JournalOpening(3, 1_764_000_000_000, Author("ann", "ops1"))
    assert decode_journal(encode_journal(opening, "1.2"), where="") == opening
    for entry in walked(*TO_REVERSED):
        kept = replace(entry, kept={"acls": ["x"]}, kept_in={"A": "id-a"}, text="all is well")
        assert decode_journal(encode_journal(kept, "1.2"), where="") == kept


def test_a_record_of_a_later_format_stops_the_reader_and_a_later_field_does_not() -> None:
    fields = json.loads(encode_journal(walked(E.CUTOVER_ASKED)[0], "1.2"))
    assert decode_journal(json.dumps({**fields, "new": 1}).encode(), where="") == walked(E.CUTOVER_ASKED)[0]
    later = json.dumps({**fields, "readable_from": 2, "mm2py": "9.9"}).encode()
    with pytest.raises(JournalUnreadable, match=r"J at 3: mm2py 9\.9 wrote it"):
        decode_journal(later, where="J at 3")


@pytest.mark.parametrize("value", [None, b"", b"[]", b"{}", b'{"readable_from":1}', b"\xff", b'{"readable_from":true}'])
def test_what_is_no_record_of_ours_is_refused(value: bytes | None) -> None:
    with pytest.raises(JournalUnreadable, match="it is no record"):
        decode_journal(value, where="J")


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("term", -1),
        ("number", "1"),
        ("state", "Fast"),
        ("verb", "dance"),
        ("event", 1),
        ("source_ends", {"orders-0": -1}),
    ],
)
def test_an_entry_with_a_wrong_field_is_refused(field: str, wrong: object) -> None:
    fields = json.loads(encode_journal(walked(E.CUTOVER_ASKED)[0], "1.2"))
    with pytest.raises(JournalUnreadable):
        decode_journal(json.dumps({**fields, field: wrong}).encode(), where="J")


# One cluster


def test_entries_of_a_process_that_was_shut_out_do_not_count() -> None:
    first, second = walked(*FENCED)
    late = replace(walked(*TO_FINAL)[2], term=1)
    assert folded([JournalOpening(1, 0), first, second, JournalOpening(2, 0), late], where="J") == (first, second)


def test_an_entry_with_a_number_that_is_there_replaces_it_and_all_behind_it() -> None:
    entries = walked(*TO_FINAL)
    other = replace(entries[1], term=2, mark="other")
    assert folded([*entries, other], where="J") == (entries[0], other)


def test_a_missing_entry_is_told_and_not_passed_over() -> None:
    entries = walked(*TO_FINAL)
    with pytest.raises(JournalUnreadable, match="J: entry 1 is missing, before 2"):
        folded([entries[0], *entries[2:]], where="J")


def test_the_last_term_is_that_of_an_opening_too() -> None:
    assert last_term([]) == 0
    assert last_term([*walked(*FENCED), JournalOpening(7, 0)]) == 7


# Both clusters


def test_equal_journals_agree_and_one_alone_is_believed() -> None:
    entries = walked(*FENCED)
    told = agreed({A: entries, B: entries}, IDS)
    assert told.entries == tuple(entries)
    assert dict(told.missing) == {}
    assert agreed({B: entries}, {B: "id-b"}).entries == tuple(entries)
    assert agreed({}, {}).entries == ()


def test_an_entry_that_only_the_source_has_is_given_to_the_target() -> None:
    entries = walked(*FENCED)
    told = agreed({A: entries, B: entries[:1]}, IDS)
    assert told.entries == tuple(entries)
    assert dict(told.missing) == {B: (entries[1],)}


def test_a_failover_counts_over_a_step_that_the_source_alone_has_stored() -> None:
    before = walked(*TO_FINAL)
    void = after(before, E.SWITCH_CONFIRMED, source_ends=ENDS.source_ends)
    lost = [*before]
    for event in FAILED_OVER:
        lost.append(after(lost, event, term=2))
    told = agreed({A: [*before, void], B: lost}, IDS)
    assert told.entries == tuple(lost)
    assert dict(told.missing) == {A: tuple(lost[len(before) :])}


def test_what_was_taken_back_on_the_source_gives_way_to_a_failover_that_has_switched() -> None:
    before = walked(*FENCED)
    taken = [*before, after(before, E.TAKE_BACK_ASKED)]
    taken += [after(taken, E.ALL_REMOVED, term=4)]
    lost = [*before]
    for event in FAILED_OVER:
        lost.append(after(lost, event, term=2))
    assert agreed({A: taken, B: lost}, IDS).entries == tuple(lost)
    assert agreed({A: taken, B: before}, IDS).entries == tuple(taken)


def test_what_was_taken_back_on_the_source_gives_way_to_a_failover_that_has_only_begun() -> None:
    """The simulation found it, seed 209455159: the flow stayed off, and the journals said that all was taken back."""
    before = walked(*FENCED)
    taken = [*before, after(before, E.TAKE_BACK_ASKED, term=5)]
    begun = [*before, after(before, E.FAILOVER_ASKED, term=2)]
    told = agreed({A: taken, B: begun}, IDS)
    assert told.entries == tuple(begun)
    assert dict(told.missing) == {A: (begun[-1],)}


def test_two_failovers_to_each_other_are_not_settled_by_guess() -> None:
    to_b = walked(*FAILED_OVER)
    to_a = walked(*FAILED_OVER, flow=BACK, term=2)
    with pytest.raises(JournalsDisagree, match="on each of them producers were switched"):
        agreed({A: to_a, B: to_b}, IDS)


def test_a_journal_that_has_lost_entries_stops_everything() -> None:
    entries = walked(*TO_FINAL)
    with pytest.raises(JournalsDisagree, match="A has 4 entries from number 1 on that B has lost"):
        agreed({A: entries, B: entries[:1]}, IDS)


def test_a_journal_that_was_made_again_stops_everything() -> None:
    entries = [replace(one, kept_in={"A": "id-a", "B": "id-b"}) for one in walked(*FENCED)]
    assert agreed({A: entries, B: entries}, IDS).entries == tuple(entries)
    with pytest.raises(JournalsDisagree, match="that of B was deleted, or made again"):
        agreed({A: entries, B: []}, {A: "id-a", B: "id-new"})
    with pytest.raises(JournalsDisagree, match="that of B was deleted, or made again"):
        agreed({A: entries, B: []}, {A: "id-a", B: ""})


def test_which_clusters_must_have_an_entry_before_it_counts() -> None:
    cutover = walked(*FENCED)
    assert needed_by(cutover[0]) == ((A, B), None)
    assert needed_by(after(cutover, E.TAKE_BACK_ASKED)) == ((A,), B)
    assert needed_by(walked(E.FAILOVER_ASKED)[0]) == ((B,), A)


# Runs


def test_a_run_keeps_its_name_and_topics_and_a_rollback_is_another_one_the_other_way_round() -> None:
    entries = walked(*TO_REVERSED)
    assert {one.run for one in entries} == {"mark-0-1"}
    assert {one.topics for one in entries} == {("orders",)}
    back = after(entries, E.UNDO_ASKED)
    assert (back.verb, back.flow, back.state) == (RecoveryVerb.ROLLBACK, BACK, S.FENCING)
    assert back.run != entries[0].run


def test_a_rollback_that_is_taken_back_leaves_the_cutover_as_it_was() -> None:
    entries = walked(*TO_REVERSED)
    cutover = entries[-1]
    for event, flow in ((E.UNDO_ASKED, FORTH), (E.FAILED, BACK), (E.ALL_REMOVED, BACK)):
        entries.append(after(entries, event, flow))
    assert entries[-1].state is S.TAKEN_BACK
    assert standing_entry(entries) == cutover
    assert after(entries, E.COMPLETE_ASKED).state is S.COMPLETE


def test_a_run_in_the_wrong_direction_or_beside_another_is_refused() -> None:
    entries = walked(*FENCED)
    with pytest.raises(RunRefused, match="The cutover of A->B is Fenced"):
        after(entries, E.CUTOVER_ASKED, BACK)
    done = walked(*TO_REVERSED, E.COMPLETE_ASKED)
    with pytest.raises(RunRefused, match="producers are on B"):
        after(done, E.CUTOVER_ASKED)
    assert after(done, E.CUTOVER_ASKED, BACK).flow == BACK


def test_facts_from_before_the_fence_was_verified_again_do_not_count() -> None:
    entries = walked(*TO_FINAL)
    assert stored_facts(entries).groups == {"billing": {"orders-0": 10}}
    entries.append(after(entries, E.RESTARTED))
    entries.append(after(entries, E.FENCE_HOLDS, source_ends={"orders-0": 12}))
    assert stored_facts(entries) == RecoveryFacts(source_ends={"orders-0": 12})


def test_a_step_that_another_process_began_has_no_duration() -> None:
    entries = walked(*FENCED)
    assert [one.took_ms for one in entries] == [None, 1500]
    assert after(entries, E.RESTARTED, term=2).took_ms is None


# The report


def test_the_report_names_who_asked_positions_and_durations() -> None:
    entries = walked(*TO_REVERSED)
    text = report_text(entries, NOW_MS)
    assert "cutover of A->B: Reversed, begun 2025-11-24T16:00:00Z, 12 s, orders; it can be undone" in text
    assert "ann@ops1: ticket 4711" in text
    assert "ends orders-0: 10" in text
    assert "group billing at orders-0: 10" in text
    assert "1.5 s" in text
    (run,) = report_plain(entries)
    assert (run["verb"], run["state"], len(run["steps"])) == ("cutover", "Reversed", len(entries))
    assert run["steps"][2]["source_ends"] == {"orders-0": 10}
    assert json.loads(json.dumps(run)) == run
    assert report_text([], NOW_MS) == "No recovery has run.\n"


def test_the_report_says_until_when_a_run_can_be_undone_and_that_it_can_be_no_more() -> None:
    entries = [replace(one, window_s=1800) for one in walked(*TO_REVERSED)]
    over_ms = entries[-1].at_ms + 1_800_000
    assert report_plain(entries)[0]["undo_ends_ms"] == over_ms
    assert "can be undone by mm2py dr rollback until 2025-11-24T16:30:12Z" in report_text(entries, over_ms - 1)
    assert "can be undone no more since 2025-11-24T16:30:12Z" in report_text(entries, over_ms)
    ended = [*entries, after(entries, E.COMPLETE_ASKED)]
    assert "undone" not in report_text(ended, over_ms)
    assert report_plain(ended)[0]["undo_ends_ms"] is None


def test_a_run_keeps_its_window_and_an_older_mm2py_wrote_none() -> None:
    told = replace(StepTold(1, 0, "m"), window_s=1800)
    first = next_entry([], E.CUTOVER_ASKED, FORTH, told)[0]
    second = next_entry([first], E.FENCE_SET, FORTH, StepTold(1, 1, "n"))[0]
    assert (first.window_s, second.window_s) == (1800, 1800)
    value = encode_journal(second, "1")
    assert decode_journal(value, where="here") == second
    without = {key: one for key, one in json.loads(value).items() if key != "window_s"}
    older = decode_journal(json.dumps(without).encode(), where="here")
    assert isinstance(older, JournalEntry) and older.window_s is None
    with pytest.raises(JournalUnreadable):
        decode_journal(json.dumps({**without, "window_s": "30m"}).encode(), where="here")
