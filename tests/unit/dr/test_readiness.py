"""What ``mm2py dr check`` answers, and each thing that makes it say no."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mm2py.checks.results import CheckResult, CheckState, ok
from mm2py.cli.dr_check import parse_arguments
from mm2py.config.configuration import read_settings_file
from mm2py.dr.body import RecoveryCheckBody
from mm2py.dr.fence.record import FenceRecord, FenceState, FenceWay
from mm2py.dr.journal import JournalEntry, RunRefused, StepTold, next_entry
from mm2py.dr.readiness import (
    ObstacleKind,
    ReadinessFacts,
    ReadyFor,
    RecoveryReadiness,
    WayBackState,
    moment_text,
    readiness_of,
    readiness_text,
    target_away,
)
from mm2py.dr.readiness_inquiry import fences_of_producers, serves, way_back_of
from mm2py.dr.runner import RecoveryGoal, first_event
from mm2py.dr.states import RecoveryEvent, RecoveryFacts
from mm2py.errors import ConfigError
from mm2py.flow import ClusterAlias, Flow
from mm2py.group.membership import GroupState
from mm2py.records.control_record import Entry, Joined, MemberId
from mm2py.status.bodies import json_of
from mm2py.status.consumer_groups import ConsumerGroupReport, PartitionReport
from mm2py.status.facts import GroupFacts
from mm2py.status.verdict import FlowVerdict, Readiness

E = RecoveryEvent
FLOW = Flow(ClusterAlias("A"), ClusterAlias("B"))
BACK = Flow(FLOW.target, FLOW.source)
NOW_MS = 1_764_252_127_700
SAFE = FlowVerdict(Readiness.SAFE, f"{FLOW}: safe to fail over; 0.4 s behind", NOW_MS - 400, 0.4, "orders-3", ())


def group(name: str, *, why: str = "") -> ConsumerGroupReport:
    return ConsumerGroupReport(name, "Stable", "", 0, 0, not why, why, (), is_exact=True, note="", refused="")


READY = ReadinessFacts(
    FLOW,
    NOW_MS,
    verdict=SAFE,
    lag=1200,
    groups=(group("billing"), group("audit")),
    way_back=WayBackState.THERE,
    way_back_checks=(ok("MM0101", "A", "A answers"),),
    worker_at_source=True,
)


def asked(**changes: Any) -> RecoveryReadiness:
    return readiness_of(replace(READY, **changes))


def kinds(found: RecoveryReadiness) -> list[str]:
    return [str(one.kind) for one in found.obstacles]


def test_a_flow_that_is_ready_says_so_and_what_a_failover_would_lose() -> None:
    found = asked()
    assert readiness_text(found) == (
        "Ready for cutover: yes.\n"
        "Ready for failover: yes, 0.4 s (1,200 records) would be lost; safe time 14:02:07.3 UTC.\n"
    )
    assert (found.exit_code, found.obstacles) == (0, ())


def test_a_source_that_is_lost_leaves_the_answer_about_a_failover() -> None:
    text = f"{FLOW}: A does not answer: a failover now loses what the safe time does not cover"
    found = asked(
        source_away="A has not answered since 14:02.",
        verdict=replace(SAFE, readiness=Readiness.BEHIND, text=text, safe_at_ms=NOW_MS - 60_000, behind_s=60.0),
        worker_at_source=None,
        way_back_checks=(),
    )
    assert (found.cutover, found.failover, found.exit_code) == (ReadyFor.NO, ReadyFor.YES, 1)
    assert kinds(found) == ["source-away"]
    assert "60.0 s (at least 1,200 records) would be lost; safe time 14:01:07.7 UTC" in found.text


def test_a_target_that_does_not_answer_leaves_nothing_known() -> None:
    found = target_away(FLOW, NOW_MS, "", "B has not answered since 14:02.")
    assert (found.cutover, found.failover, found.exit_code) == (ReadyFor.UNKNOWN, ReadyFor.UNKNOWN, 1)
    assert "what would be lost is not known" in found.text


@pytest.mark.parametrize(
    ("readiness", "kind", "cutover", "failover"),
    [
        (Readiness.BEHIND, ObstacleKind.BEHIND, ReadyFor.NO, ReadyFor.YES),
        (Readiness.INCOMPLETE, ObstacleKind.NOT_COPIED, ReadyFor.NO, ReadyFor.NO),
        (Readiness.NOT_COPIED, ObstacleKind.NOT_RUNNING, ReadyFor.NO, ReadyFor.NO),
        (Readiness.UNKNOWN, ObstacleKind.NOT_KNOWN, ReadyFor.UNKNOWN, ReadyFor.UNKNOWN),
    ],
)
def test_no_answer_is_better_than_the_verdict(
    readiness: Readiness, kind: ObstacleKind, cutover: ReadyFor, failover: ReadyFor
) -> None:
    found = asked(verdict=replace(SAFE, readiness=readiness, text=f"{FLOW}: it is so"))
    assert (found.cutover, found.failover, found.exit_code) == (cutover, failover, 3)
    assert kinds(found) == [str(kind)]
    assert found.obstacles[0].text in {"It is so"}


def test_nothing_known_of_the_flow_is_not_ready() -> None:
    found = asked(verdict=None, lag=None)
    assert (found.cutover, found.failover) == (ReadyFor.UNKNOWN, ReadyFor.UNKNOWN)


def test_a_group_that_is_not_ready_is_named_with_its_reason() -> None:
    found = asked(groups=(group("billing", why="it has no checkpoint yet."), group("audit")))
    assert (found.cutover, found.failover) == (ReadyFor.NO, ReadyFor.NO)
    assert "1 of 2 groups are not ready to go on on B: billing (it has no checkpoint yet)" in readiness_text(found)
    assert kinds(asked(groups=None, groups_unread="B is slow.")) == ["groups"]
    assert asked(groups=None, groups_unread="B is slow.").failover is ReadyFor.UNKNOWN


def test_a_group_without_a_commit_on_the_target_leaves_a_doubt_about_a_failover() -> None:
    """Group offsets are not synced by default: after a failover consumers would begin by auto.offset.reset."""

    def in_topic(there: int | None) -> PartitionReport:
        return PartitionReport("orders", 0, 7, 0, "A.orders", 7, 0, there, "", is_exact=True, basis="ledger", note="")

    bare = replace(group("billing"), partitions=(in_topic(7), in_topic(None)))
    found = asked(groups=(bare, replace(group("audit"), partitions=(in_topic(7),))))
    assert (found.cutover, found.failover, kinds(found)) == (ReadyFor.YES, ReadyFor.UNKNOWN, ["groups"])
    assert "Nothing is committed on B for billing: " in readiness_text(found)
    assert "sync.group.offsets.enabled" in readiness_text(found)


def test_a_source_that_answers_and_does_not_tell_of_its_groups_leaves_a_doubt_about_a_cutover() -> None:
    """The target alone tells of them, by their last checkpoints: a group may have read on."""
    why = "A refuses to tell what groups have committed."
    found = asked(groups_unread=why)
    assert (found.cutover, found.failover, kinds(found)) == (ReadyFor.UNKNOWN, ReadyFor.YES, ["groups"])
    assert "A refuses to tell" in readiness_text(found)
    lost = asked(groups_unread=why, source_away="A has not answered.", worker_at_source=None, way_back_checks=())
    assert (lost.failover, kinds(lost)) == (ReadyFor.YES, ["source-away"])


def fence(flow: Flow, state: FenceState = FenceState.STANDING, *, serial: int = 1, hook: str = "") -> FenceRecord:
    way = FenceWay.HOOK if hook else FenceWay.ACLS
    return FenceRecord(
        str(flow), serial, "m", state, way, ("orders",), hook=hook, at_ms=NOW_MS - 3_600_000, by="ann on ops1"
    )


def test_producers_that_are_fenced_where_they_would_go_stand_in_the_way_of_both() -> None:
    found = asked(fences_there=[fence(BACK)])
    assert (found.cutover, found.failover, kinds(found)) == (ReadyFor.NO, ReadyFor.NO, ["fenced"])
    text = readiness_text(found)
    assert "Producers are fenced on B since" in text and "ann on ops1" in text
    assert "mm2py dr unfence FILE 'B->A'.\n" in text
    assert "FILE 'B->A' --hook-fence CMD" in readiness_text(asked(fences_there=[fence(BACK, hook="close-port")]))
    doubt = asked(fences_unread="TOPIC_AUTHORIZATION_FAILED.")
    assert (doubt.cutover, doubt.failover, kinds(doubt)) == (ReadyFor.UNKNOWN, ReadyFor.UNKNOWN, ["fenced"])


def test_only_fences_of_the_clusters_own_producers_that_are_up_count() -> None:
    """B keeps a copy of each fence of a flow into it, too: those producers are on A."""
    b, other = FLOW.target, Flow(FLOW.target, ClusterAlias("C"))
    assert fences_of_producers(b, [fence(FLOW), fence(BACK), fence(other)]) == [fence(BACK), fence(other)]
    assert fences_of_producers(b, [fence(BACK), fence(BACK, FenceState.LIFTED, serial=2)]) == []
    assert fences_of_producers(b, [fence(BACK), fence(BACK, FenceState.LIFTING, serial=2)]) != []


def test_a_worker_at_the_source_counts_if_its_file_has_the_flow_back() -> None:
    """The file was given B->A, and the workers at A still run by the old one: after the turn nothing is copied."""
    empty = GroupFacts(FLOW.source, "mm2py", "mm2-cluster.mm2py.internal", None)
    assert serves(empty, BACK, NOW_MS) == (False, "none has joined group mm2py there")
    assert serves(replace(empty, unread="A is slow."), BACK, NOW_MS) == (None, "A is slow.")
    for flows, runs in (((BACK,), True), ((Flow(ClusterAlias("C"), FLOW.source),), False), ((), False)):
        state = GroupState()
        worker = Joined(MemberId("00000001"), "w1", "0.1", "", flows, (), {}, None, "log", 3000)
        state.take(Entry(0, NOW_MS, worker))
        found = serves(replace(empty, state=state, has_grown=True), BACK, NOW_MS)
        assert found[0] is runs and ("has no B->A" in found[1]) is not runs
        assert serves(replace(empty, state=state, has_grown=False), BACK, NOW_MS)[0] is False


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        ({"way_back": WayBackState.MISSING}, ObstacleKind.NO_WAY_BACK, "The file has no B->A"),
        (
            {"way_back": WayBackState.REFUSED, "way_back_refused": "it is part of a ring."},
            ObstacleKind.NO_WAY_BACK,
            "B->A must not run: it is part of a ring",
        ),
        (
            {"way_back_checks": (CheckResult("MM0401", CheckState.FAILED, "B->A", "B denies READ", "kafka-acls ..."),)},
            ObstacleKind.WAY_BACK_CHECKS,
            "B->A would not run (MM0401): B denies READ",
        ),
        (
            {"worker_at_source": False, "worker_at_source_why": "none has joined"},
            ObstacleKind.NO_WORKER_AT_SOURCE,
            "No live worker serves A as a target: none has joined",
        ),
    ],
)
def test_what_the_way_back_lacks_stands_in_the_way_of_a_cutover_alone(
    changes: dict[str, Any], kind: ObstacleKind, text: str
) -> None:
    found = asked(**changes)
    assert (found.cutover, found.failover, found.exit_code) == (ReadyFor.NO, ReadyFor.YES, 3)
    assert [(one.kind, one.text) for one in found.obstacles] == [(kind, text)] or found.obstacles[0].text.startswith(
        text
    )
    assert "In the way of a cutover:" in readiness_text(found)


def test_a_worker_of_which_nothing_is_known_is_a_doubt_and_warnings_of_checks_are_none() -> None:
    assert asked(worker_at_source=None).cutover is ReadyFor.UNKNOWN
    free = CheckResult("MM0602", CheckState.FAILED, "B->A", "orders holds records", "")
    warned = CheckResult("MM0703", CheckState.WARNING, "B->A", "A is short", "")
    assert asked(way_back_checks=(free, warned)).exit_code == 0


def journal(*events: E, flow: Flow = FLOW) -> list[JournalEntry]:
    entries: list[JournalEntry] = []
    ends = {"orders-0": 1}
    seen = RecoveryFacts(ends, ends, ends)
    for event in events:
        told = StepTold(1, NOW_MS - 60_000, f"mark-{len(entries)}")
        entries.append(next_entry(entries, event, flow, told, seen)[0])
    return entries


TO_SWITCHED = (
    E.CUTOVER_ASKED,
    E.FENCE_SET,
    E.FENCE_HOLDS,
    E.ALL_COPIED,
    E.GROUPS_EXACT,
    E.SWITCH_CONFIRMED,
    E.HOOK_DONE,
)
TO_REVERSED = (*TO_SWITCHED, E.FLOW_REVERSED, E.PRODUCERS_FREE)


@pytest.mark.parametrize(
    ("entries", "cutover", "failover", "way_out"),
    [
        (journal(E.CUTOVER_ASKED), "no", "yes", "mm2py dr unfence FILE 'A->B' takes it back"),
        (journal(*TO_SWITCHED), "no", "yes", "mm2py dr rollback FILE 'A->B' undoes it"),
        (journal(*TO_REVERSED), "no", "no", "mm2py dr complete FILE 'A->B' keeps it"),
        (journal(*TO_REVERSED, flow=BACK), "no", "yes", "mm2py dr complete FILE 'B->A' keeps it"),
        (journal(*TO_REVERSED, E.COMPLETE_ASKED), "no", "no", "mm2py dr check FILE 'B->A'"),
        (journal(*TO_REVERSED, E.COMPLETE_ASKED, flow=BACK), "yes", "yes", ""),
        (journal(E.CUTOVER_ASKED, E.FAILED, E.ALL_REMOVED), "yes", "yes", ""),
        (
            journal(E.FAILOVER_ASKED, E.WRITERS_CUT_OFF, E.GROUPS_AT_CHOSEN, E.SWITCH_CONFIRMED, E.HOOK_DONE),
            *("no", "no", "mm2py dr reinstate FILE 'A->B' when A answers"),
        ),
        (
            journal(E.FAILOVER_ASKED, E.WRITERS_CUT_OFF, E.GROUPS_AT_CHOSEN, E.SWITCH_CONFIRMED),
            *("no", "no", "mm2py dr failover FILE 'A->B' goes on; then mm2py dr reinstate FILE 'A->B' when A answers"),
        ),
    ],
)
def test_a_run_that_has_not_ended_says_how_to_go_on(
    entries: list[JournalEntry], cutover: str, failover: str, way_out: str
) -> None:
    found = asked(journal=entries)
    assert (found.cutover, found.failover) == (cutover, failover), readiness_text(found)
    assert way_out in readiness_text(found)
    assert "Last run: " in readiness_text(found)
    assert found.standing.state == entries[-1].state


def test_a_rollback_that_was_taken_back_leaves_the_cutover_that_it_should_have_undone() -> None:
    undone = journal(*TO_REVERSED, E.UNDO_ASKED)
    told = StepTold(1, NOW_MS, "mark-x")
    for event in (E.FAILED, E.ALL_REMOVED):
        undone.append(next_entry(undone, event, BACK, told)[0])
    found = asked(journal=undone)
    assert found.cutover is ReadyFor.NO
    assert found.standing.state == "Reversed" and found.standing.verb == "cutover"


@pytest.mark.parametrize(
    ("events", "ways"),
    [
        ((), "mm2py dr rollback FILE 'A->B' goes on, mm2py dr unfence FILE 'B->A' takes it back."),
        (TO_SWITCHED[1:], "mm2py dr rollback FILE 'A->B' goes on."),
    ],
)
def test_a_rollback_that_was_killed_is_named_by_the_flow_that_takes_it(events: tuple[E, ...], ways: str) -> None:
    """Its run leads from B to A; the verb names the flow of the cutover that it undoes."""
    entries = journal(*TO_REVERSED, E.UNDO_ASKED)
    for event in events:
        told, ends = StepTold(1, NOW_MS, f"mark-x{len(entries)}"), {"orders-0": 1}
        entries.append(next_entry(entries, event, BACK, told, RecoveryFacts(ends, ends, ends))[0])
    assert f"{ways}\n" in readiness_text(asked(journal=entries))
    assert first_event(RecoveryGoal.ROLLBACK, FLOW, entries[-1]) is E.RESTARTED


def test_a_return_that_was_killed_goes_on_by_its_own_verb() -> None:
    over = (E.FAILOVER_ASKED, E.WRITERS_CUT_OFF, E.GROUPS_AT_CHOSEN, E.SWITCH_CONFIRMED, E.HOOK_DONE)
    text = readiness_text(asked(journal=journal(*over, E.REINSTATE_ASKED)))
    assert "mm2py dr reinstate FILE 'A->B' goes on.\n" in text and "failover FILE" not in text


def test_a_cutover_that_was_kept_is_no_failover_whose_source_is_reinstated() -> None:
    with pytest.raises(RunRefused, match="There is no run of A->B to reinstate"):
        first_event(RecoveryGoal.REINSTATE, FLOW, journal(*TO_REVERSED, E.COMPLETE_ASKED)[-1])


def test_a_run_whose_window_is_over_can_be_kept_and_not_undone() -> None:
    entries = [replace(one, window_s=61) for one in journal(*TO_REVERSED)]
    assert "mm2py dr rollback FILE 'A->B' undoes it until " in readiness_text(asked(journal=entries))
    entries = [replace(one, window_s=60) for one in entries]
    text = readiness_text(asked(journal=entries))
    assert "It can be undone no more since" in text and "rollback" not in text
    assert "mm2py dr complete FILE 'A->B' keeps it; the way back is then mm2py dr cutover FILE 'B->A'" in text


def test_a_flow_back_that_does_not_copy_is_named_while_a_cutover_can_be_undone() -> None:
    run = journal(*TO_REVERSED, flow=BACK)
    assert "return-flow" not in kinds(asked(journal=run))
    dead = replace(SAFE, readiness=Readiness.NOT_COPIED, text="A->B: not safe to fail over: no worker runs it")
    found = asked(journal=run, verdict=dead)
    assert "return-flow" in kinds(found)
    assert "must copy while the cutover of B->A can be undone, and does not copy all" in readiness_text(found)
    assert "return-flow" not in kinds(asked(journal=journal(*TO_REVERSED, E.COMPLETE_ASKED, flow=BACK), verdict=dead))
    named = asked(journal=journal(*TO_REVERSED), worker_at_source=False)
    assert "B->A must copy while the cutover of A->B can be undone, and no live worker runs it" in readiness_text(named)


def test_a_journal_that_cannot_be_used_stands_in_the_way_of_both() -> None:
    found = asked(journal_wrong="The recovery journals of both clusters disagree: it is so.")
    assert kinds(found) == ["journal"]
    assert (found.cutover, found.failover) == (ReadyFor.NO, ReadyFor.NO)
    unread = asked(journal_wrong="Reading mm2-recovery.A.B.internal: a right is missing.", is_journal_unread=True)
    assert kinds(unread) == ["journal"]
    assert (unread.cutover, unread.failover) == (ReadyFor.UNKNOWN, ReadyFor.UNKNOWN)


def test_the_json_says_all_of_it() -> None:
    found = asked(way_back=WayBackState.MISSING, journal=journal(E.CUTOVER_ASKED))
    body = json.loads(json_of(RecoveryCheckBody.of(found)))
    assert (body["format"], body["exit_code"], body["flow"], body["cutover"], body["failover"]) == (
        1,
        3,
        "A->B",
        "no",
        "yes",
    )
    assert (body["lost_s"], body["lost_records"], body["safe_at_ms"]) == (0.4, 1200, NOW_MS - 400)
    assert [one["kind"] for one in body["obstacles"]] == ["unfinished", "no-way-back"]
    assert body["standing"] == {
        "run": "mark-0",
        "verb": "cutover",
        "flow": "A->B",
        "state": "Fencing",
        "at_ms": NOW_MS - 60_000,
    }


def test_a_time_of_another_day_has_its_date() -> None:
    assert moment_text(NOW_MS - 86_400_000, NOW_MS) == "2025-11-26 14:02:07.7 UTC"
    assert moment_text(10**18, NOW_MS) == "?"


FILE = """\
clusters = A, B
A.bootstrap.servers = a1:9092
B.bootstrap.servers = b1:9092
A->B.enabled = true
"""


@pytest.mark.parametrize(
    ("more", "state", "why"),
    [
        ("", WayBackState.MISSING, ""),
        ("B->A.enabled = true\n", WayBackState.THERE, ""),
        ("B->A.enabled = true\nB->A.transforms = x\n", None, "transforms"),
        ("B->A.enabled = true\nA->B.topics.rename = orders -> x\n", None, "A->B has topics.rename"),
        ("B->A.enabled = true\nB->A.topics.rename = orders -> x\n", None, "B->A has topics.rename"),
    ],
)
def test_what_the_file_says_of_the_way_back(tmp_path: Path, more: str, state: WayBackState | None, why: str) -> None:
    path = tmp_path / "mm2.properties"
    path.write_text(FILE + more)
    found = way_back_of(read_settings_file(path, ["B"]), FLOW)
    if state is None:
        assert found.state is WayBackState.REFUSED
        assert why in found.refused
        return
    assert (found.state, found.refused) == (state, why)
    assert (found.configuration is None) == (state is WayBackState.MISSING)
    if found.configuration is not None:
        assert [one.flow for one in found.configuration.flows] == [BACK]


def test_the_command_takes_a_file_and_a_flow() -> None:
    assert parse_arguments(["F", "A->B", "--json"]).json
    with pytest.raises(ConfigError):
        parse_arguments(["F"])
