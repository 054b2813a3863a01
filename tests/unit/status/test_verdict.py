"""Is it safe to fail over now? The verdict on a flow is never better than what its workers have told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from mm2py.flow import Kind, parse_flow
from mm2py.group.membership import GroupState
from mm2py.group.state_snapshot import read_snapshot, snapshot_text
from mm2py.records.control_record import (
    Assigned,
    Beat,
    Claim,
    ControlRecord,
    Entry,
    Joined,
    Listed,
    MemberId,
    Released,
    TaskName,
)
from mm2py.records.safe_point import SafePoint
from mm2py.status.consumer_groups import ConsumerGroupsReport, NotReady
from mm2py.status.not_copied import NotCopied, Reason, not_copied
from mm2py.status.verdict import KEEPS_UP_S, FlowSafety, Readiness, VerdictFacts, safety_of, verdict_of

A_TO_B = parse_flow("A->B")
W1, W2 = MemberId("0000000a"), MemberId("0000000b")
NOW_MS = 1_764_000_000_000
SAFE_MS = NOW_MS - 400


def task(partition: int) -> TaskName:
    return TaskName(A_TO_B, Kind.SOURCE, "orders", partition)


class Group:
    """Two workers, and the two partitions of orders: the first is with w1, the second with w2."""

    def __init__(self) -> None:
        self.state = GroupState()
        coordinator = {TaskName(A_TO_B, Kind.SOURCE): W1}
        self.take(*map(self.joined, (W1, W2)), Claim(W1, 1, "c"), Assigned(W1, 1, 1, coordinator))
        self.take(Listed(W1, A_TO_B, {"orders": 2}), Assigned(W1, 1, 2, {task(0): W1, task(1): W2}))

    @staticmethod
    def joined(member: MemberId) -> Joined:
        return Joined(member, f"host-{member}", "0.1.0", "", (A_TO_B,), (A_TO_B,), {}, "id-B", "log", 3000)

    def take(self, *records: ControlRecord) -> None:
        for record in records:
            self.state.take(Entry(self.state.next_offset, NOW_MS, record))

    def say(self, member: MemberId, at_ms: int | None, oldest: str = "orders-0", *, seen: int | None = None) -> None:
        seen = self.state.next_offset if seen is None else seen
        self.take(Beat(member, safe={A_TO_B: SafePoint(at_ms, oldest, 0, seen)}))

    @property
    def safety(self) -> FlowSafety:
        return safety_of(A_TO_B, self.state)


def test_a_flow_is_safe_to_the_oldest_time_that_its_workers_tell() -> None:
    group = Group()
    group.say(W1, SAFE_MS + 5)
    group.say(W2, SAFE_MS, "orders-1")
    assert group.safety == FlowSafety(SAFE_MS, "orders-1", "")


def test_a_worker_that_has_told_nothing_makes_the_safe_time_unknown() -> None:
    group = Group()
    group.say(W1, SAFE_MS)
    assert group.safety.at_ms is None
    assert "no safe time from host-0000000b yet" in group.safety.why


def test_a_partition_that_was_not_seen_at_its_end_makes_it_unknown() -> None:
    group = Group()
    group.say(W1, SAFE_MS)
    group.say(W2, None, "orders-1")
    assert group.safety.at_ms is None
    assert group.safety.why.startswith("orders-1 still copies its backlog")


def test_a_partition_that_moves_is_in_nobodys_count() -> None:
    """orders-1 goes from w2 to w1. w2 counts it no more, and w1 not yet."""
    group = Group()
    group.say(W1, SAFE_MS)
    group.say(W2, SAFE_MS)
    group.take(Assigned(W1, 1, 3, {task(1): W1}))
    assert "moves to another worker" in group.safety.why
    before = group.state.next_offset
    group.take(Released(W2, 3, frozenset({task(1)})))
    group.say(W1, SAFE_MS + 1_000, seen=before)
    assert group.safety.at_ms is None, "w1 looked at its partitions before it had read that orders-1 is its own"
    group.say(W1, SAFE_MS - 1_000, "orders-1")
    assert group.safety == FlowSafety(SAFE_MS - 1_000, "orders-1", "")


def test_a_topic_that_was_just_listed_makes_it_unknown() -> None:
    group = Group()
    group.say(W1, SAFE_MS)
    group.say(W2, SAFE_MS)
    group.take(Listed(W1, A_TO_B, {"orders": 2, "new": 1}))
    assert group.safety.why == "new-0 has no worker"


def test_a_reader_that_begins_at_a_snapshot_knows_the_same() -> None:
    group = Group()
    group.say(W1, SAFE_MS)
    group.say(W2, SAFE_MS)
    assert safety_of(A_TO_B, read_snapshot(snapshot_text(group.state))) == group.safety
    assert group.safety.at_ms == SAFE_MS


def test_without_a_worker_nothing_is_known() -> None:
    assert safety_of(A_TO_B, None) == FlowSafety(None, "", "no worker runs it")
    assert safety_of(A_TO_B, GroupState()).why == "no partition of it is being copied"


KNOWN = FlowSafety(SAFE_MS, "orders-1", "")
GROUPS = ConsumerGroupsReport(
    31, 29, 29, True, (NotReady("billing", "active on B"), NotReady("audit", "no commit")), 0, ""
)
STOPPED = not_copied(Reason.STOPPED, "At a gap", partitions="3")
EXCLUDED = not_copied(Reason.EXCLUDED, "A pattern matches it")
GONE = not_copied(Reason.GONE, "The source does not have it")


def facts(**other: Any) -> VerdictFacts:
    usual: dict[str, Any] = {
        "flow": A_TO_B,
        "now_ms": NOW_MS,
        "is_enabled": True,
        "held": "",
        "not_running": "",
        "is_running_known": True,
        "safety": KNOWN,
        "lag": 1200,
        "is_lag_partial": False,
        "topics": [("orders", 2, ())],
        "skipped": 0,
        "unread": (),
        "consumer_groups": None,
    }
    return VerdictFacts(**usual | other)


def topics(*causes: NotCopied) -> Sequence[tuple[str, int, Sequence[NotCopied]]]:
    return [("orders", 12, causes), ("others", 1, ())]


LONG_AGO = FlowSafety(NOW_MS - 320_000, "orders-1", "")


@pytest.mark.parametrize(
    ("given", "readiness", "text"),
    [
        (
            facts(consumer_groups=GROUPS),
            Readiness.SAFE,
            "A->B: safe to fail over; 0.4 s and 1,200 records behind; 2 of 31 groups not ready: billing (active on B),"
            " audit (no commit)",
        ),
        (
            facts(topics=topics(not_copied(Reason.BACKFILL, "It copies"))),
            Readiness.INCOMPLETE,
            "A->B: not safe to fail over: part of what is selected is not copied; the rest is 0.4 s and 1,200 records"
            " behind; not copied: orders (backfill)",
        ),
        (
            facts(topics=topics(EXCLUDED, GONE)),
            Readiness.SAFE,
            "A->B: safe to fail over; 0.4 s and 1,200 records behind",
        ),
        (facts(topics=topics(GONE)), Readiness.SAFE, "A->B: safe to fail over; 0.4 s and 1,200 records behind"),
        (
            facts(topics=topics(STOPPED)),
            Readiness.INCOMPLETE,
            "A->B: not safe to fail over: part of what is selected is not copied; the rest is 0.4 s and 1,200 records"
            " behind; not copied: orders 3"
            " (stopped)",
        ),
        (
            facts(topics=topics(not_copied(Reason.STARTING, "It starts"))),
            Readiness.INCOMPLETE,
            "A->B: not safe to fail over: part of what is selected is not copied; the rest is 0.4 s and 1,200 records"
            " behind; not copied: orders"
            " (starting)",
        ),
        (
            facts(safety=LONG_AGO),
            Readiness.BEHIND,
            "A->B: not safe to fail over: orders-1 is behind the others; 320 s and 1,200 records behind (all was copied"
            " up to 2025-11-24T15:54:40Z)",
        ),
        (
            facts(safety=FlowSafety(None, "", "w1 has not told yet")),
            Readiness.UNKNOWN,
            "A->B: not known whether it is safe to fail over: w1 has not told yet; 1,200 records behind",
        ),
        (
            facts(unread=("A does not answer.",), lag=None),
            Readiness.UNKNOWN,
            "A->B: not known whether it is safe to fail over: A does not answer; 0.4 s behind",
        ),
        (
            facts(consumer_groups_unread="DESCRIBE is missing."),
            Readiness.SAFE,
            "A->B: safe to fail over; 0.4 s and 1,200 records behind; groups not known: DESCRIBE is missing",
        ),
        (
            facts(held="paused since noon by ann", safety=FlowSafety(None, "", "")),
            Readiness.NOT_COPIED,
            "A->B: not safe to fail over: it is paused since noon by ann; 1,200 records behind",
        ),
        (
            facts(
                not_running="No worker of group mm2py runs.",
                lag=1,
                is_lag_partial=True,
                safety=FlowSafety(None, "", ""),
            ),
            Readiness.NOT_COPIED,
            "A->B: not safe to fail over: No worker of group mm2py runs; at least 1 record behind",
        ),
        (
            facts(is_enabled=False, lag=None, safety=FlowSafety(None, "", "")),
            Readiness.NOT_COPIED,
            "A->B: not safe to fail over: it is switched off",
        ),
    ],
)
def test_a_verdict_says_what_would_be_lost(given: VerdictFacts, readiness: Readiness, text: str) -> None:
    verdict = verdict_of(given)
    assert (verdict.readiness, verdict.text) == (readiness, text)


def test_a_flow_is_behind_from_a_bound_on() -> None:
    at_bound = facts(safety=FlowSafety(NOW_MS - round(KEEPS_UP_S * 1000), "orders-1", ""))
    beyond = facts(safety=FlowSafety(NOW_MS - round(KEEPS_UP_S * 1000) - 1, "orders-1", ""))
    assert [verdict_of(one).readiness for one in (at_bound, beyond)] == [Readiness.SAFE, Readiness.BEHIND]


def test_a_source_that_does_not_answer_says_up_to_when_all_was_copied() -> None:
    """The moment for which the safe time is there: what would a failover lose?"""
    silent = topics(not_copied(Reason.SOURCE_SILENT, "A has not answered since 15:54"))
    verdict = verdict_of(facts(topics=silent, safety=LONG_AGO, unread=("A does not answer.",), is_lag_partial=True))
    assert verdict.readiness is Readiness.BEHIND
    assert verdict.text == (
        "A->B: A does not answer: a failover now loses what the safe time does not cover; 320 s and at least 1,200"
        " records behind (all was copied up to 2025-11-24T15:54:40Z)"
    )
    assert verdict_of(facts(topics=silent, safety=FlowSafety(None, "", "w1"))).readiness is Readiness.UNKNOWN


@pytest.mark.parametrize("reason", sorted(set(Reason) - {Reason.GONE}))
def test_whatever_is_not_chosen_to_be_left_out_makes_a_flow_unsafe(reason: Reason) -> None:
    cause = not_copied(reason, "why")
    verdict = verdict_of(facts(topics=topics(cause)))
    assert (verdict.readiness is Readiness.SAFE) is cause.is_left_out


def test_a_group_is_not_called_ready_without_a_word_if_nothing_is_committed_on_the_target() -> None:
    """``sync.group.offsets.enabled`` is off by default: consumers that start on B begin at auto.offset.reset there."""
    where = "mm2py commits nothing for groups on B: mm2py groups FILE 'A->B' says where each goes on"
    bare = replace(GROUPS, ready=31, is_synced=False, not_ready=())
    assert verdict_of(facts(consumer_groups=bare)).text.endswith(f"; 31 groups ready; {where}")
    some = verdict_of(facts(consumer_groups=replace(GROUPS, is_synced=False))).text
    assert some.endswith(f"2 of 31 groups not ready: billing (active on B), audit (no commit); {where}")
    assert "commits nothing" not in verdict_of(facts(consumer_groups=GROUPS)).text
    assert "commits nothing" not in verdict_of(facts(consumer_groups=replace(bare, count=0, ready=0))).text


def test_groups_that_also_read_what_is_not_copied_are_counted() -> None:
    partly = replace(GROUPS, count=3, ready=3, not_ready=(), partly=2)
    assert verdict_of(facts(consumer_groups=partly)).text.endswith(
        "; 3 groups ready; 2 of the ready ones have commits also in what A->B does not copy"
    )


def test_a_flow_of_which_the_source_shows_no_topic_is_not_called_safe() -> None:
    """Heartbeats of the other direction were copied, and the names of all other topics were hidden or misspelt."""
    nothing = "no topic that A shows matches payments.*"
    verdict = verdict_of(facts(topics=[("heartbeats", 1, ())], lag=0, nothing_shown=nothing))
    assert (verdict.readiness, verdict.text) == (
        Readiness.UNKNOWN,
        f"A->B: not known whether it is safe to fail over: {nothing}; 0.4 s and 0 records behind",
    )
    assert verdict_of(facts(topics=[], nothing_shown=nothing)).readiness is Readiness.UNKNOWN


def test_a_pattern_that_matches_nothing_beside_others_is_only_named() -> None:
    verdict = verdict_of(facts(unmatched=("payments.*", "b.*", "c", "d")))
    assert (verdict.readiness, verdict.text) == (
        Readiness.SAFE,
        "A->B: safe to fail over; 0.4 s and 1,200 records behind; no topic that A shows matches payments.*, b.*, c and"
        " 1 more",
    )


def test_partitions_that_no_worker_has_explain_none_that_workers_do_not_count() -> None:
    """A topic with 12 partitions was gone: up to 12 partitions that a worker did not count went without a word."""
    safety = FlowSafety(SAFE_MS, "orders-1", "", left_out=3)
    for cause in (GONE, not_copied(Reason.RING, "why"), replace(GONE, partitions="0-11")):
        verdict = verdict_of(facts(safety=safety, topics=[("orders", 0, [cause]), ("others", 3, ())]))
        assert verdict.readiness is Readiness.UNKNOWN
        assert "workers do not count 3 partitions, and have told the reason of 0 only" in verdict.text
    listed = verdict_of(facts(safety=safety, topics=[("orders", 3, [GONE])]))
    assert listed.readiness is Readiness.SAFE, "its worker has not let go of it yet"


def test_partitions_that_workers_do_not_count_have_to_be_named() -> None:
    """A worker that cannot store its reasons leaves partitions out, and nothing else says so."""
    safety = FlowSafety(SAFE_MS, "orders-1", "", left_out=3)
    verdict = verdict_of(facts(safety=safety))
    assert verdict.readiness is Readiness.UNKNOWN
    assert "workers do not count 3 partitions" in verdict.text
    named = topics(not_copied(Reason.EXCLUDED, "why", partitions="0-2"))
    assert verdict_of(facts(safety=safety, topics=named)).readiness is Readiness.SAFE


def test_a_worker_whose_clock_is_ahead_makes_no_dead_flow_safe() -> None:
    verdict = verdict_of(facts(safety=FlowSafety(NOW_MS + 60_000, "orders-1", "")))
    assert (verdict.readiness, "60 s ahead" in verdict.text) == (Readiness.UNKNOWN, True)


def test_what_is_not_known_to_run_is_unknown_and_not_unsafe() -> None:
    verdict = verdict_of(facts(not_running="B does not answer.", is_running_known=False))
    assert verdict.text.startswith("A->B: not known whether it is safe to fail over: B does not answer")


def test_a_target_that_does_not_answer_makes_no_topic_a_topic_that_is_not_copied() -> None:
    """B was away: "not safe to fail over: part of what is selected is not copied", and no topic was named."""
    why = "It is not known whether a worker runs the flow: B does not answer."
    idle = not_copied(Reason.NOT_RUNNING, why)
    away = {"not_running": why, "is_running_known": False, "safety": FlowSafety(None, "", "no worker runs it")}
    verdict = verdict_of(facts(topics=topics(idle), **away))
    assert (verdict.readiness, verdict.left_out) == (Readiness.UNKNOWN, ())
    paused = verdict_of(facts(topics=topics(idle, not_copied(Reason.PAUSED, "Paused by ann")), **away))
    assert (paused.readiness, paused.left_out[0].reason) == (Readiness.INCOMPLETE, "paused")
    assert verdict_of(facts(topics=topics(idle))).readiness is Readiness.INCOMPLETE, "that no worker runs it is known"


def test_at_least_no_records_is_not_said() -> None:
    verdict = verdict_of(facts(lag=0, is_lag_partial=True))
    assert verdict.text == "A->B: safe to fail over; 0.4 s behind"


def test_a_flow_without_topics_has_nothing_to_lose() -> None:
    verdict = verdict_of(facts(topics=[], lag=None, safety=FlowSafety(None, "", "no partition of it is being copied")))
    assert (verdict.readiness, verdict.text) == (Readiness.SAFE, "A->B: safe to fail over: there is nothing to copy")


def test_records_that_were_skipped_are_told() -> None:
    assert "2 stretches of records were skipped (mm2py gaps FILE --all)" in verdict_of(facts(skipped=2)).text


def test_a_partition_that_is_left_out_is_counted_of_all_workers() -> None:
    group = Group()
    group.say(W1, SAFE_MS)
    group.take(Beat(W2, safe={A_TO_B: SafePoint(None, "", 1, group.state.next_offset)}))
    assert group.safety == FlowSafety(SAFE_MS, "orders-0", "", 1)


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        (ConsumerGroupsReport(3, 3, 3, True, (), 0, ""), "3 groups ready"),
        (
            ConsumerGroupsReport(3, 2, 2, True, (NotReady("a", "late"),), 0, "", following=2, following_late=1),
            "1 group ready; 2 groups that run would go on at the last checkpoint",
        ),
        (
            ConsumerGroupsReport(3, 3, 2, True, (), 0, "", following=2, following_late=0),
            "1 group ready; 2 groups that run would go on at the last checkpoint",
        ),
        (
            ConsumerGroupsReport(1, 0, 0, True, (NotReady("a", "late"),), 0, "", following=1, following_late=1),
            "1 group that runs would go on at the last checkpoint",
        ),
        (
            ConsumerGroupsReport(
                2, 0, 0, True, (NotReady("b", "no commit"), NotReady("a", "late")), 0, "", following=1, following_late=1
            ),
            "1 of 2 groups not ready: b (no commit); 1 group that runs would go on at the last checkpoint",
        ),
    ],
)
def test_groups_that_run_are_counted_apart_so_that_the_verdict_does_not_change_with_each_commit(
    groups: ConsumerGroupsReport, text: str
) -> None:
    assert verdict_of(facts(consumer_groups=groups)).text.endswith(f"behind; {text}")


def test_the_points_of_a_verdict_are_its_sentence() -> None:
    verdict = verdict_of(facts(topics=topics(STOPPED), skipped=2, consumer_groups=GROUPS))
    assert verdict.text == f"A->B: {'; '.join(verdict.parts)}"
    assert len(verdict.parts) == 5
