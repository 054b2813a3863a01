"""One table of reasons: which one is told of a partition by its worker, and of a topic by whoever asks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from mm2py.copying.partition_errors import ProduceReaction, produce_error
from mm2py.flow import parse_flow
from mm2py.kafka.error_codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    POLICY_VIOLATION,
    RECORD_LIST_TOO_LARGE,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from mm2py.records.standstill import Cause
from mm2py.status.not_copied import (
    FAILED,
    SORT_OF,
    FoundReason,
    NotRunning,
    PartitionFacts,
    Reason,
    Sort,
    TopicFacts,
    cause_of,
    reason_of,
    why_not_copied,
)

FLOW = parse_flow("A->B")
REFUSED = {
    ProduceReaction.LIMITS,
    ProduceReaction.FIND_RECORD,
    ProduceReaction.TIMESTAMP_LIMITS,
    ProduceReaction.BLOCK,
}
COPIED = TopicFacts(partitions=4, selected=True, has_positions=True, listed=4)


def found(**facts: Any) -> FoundReason | None:
    return cause_of(PartitionFacts(**facts), FLOW, "orders", "A.orders")


def reasons(**facts: Any) -> list[str]:
    return [str(one.reason) for one in why_not_copied(replace(COPIED, **facts))]


def test_each_reason_has_one_sort_and_a_failed_task_always_waits_for_an_operator() -> None:
    assert set(SORT_OF) == set(Reason)
    assert all(SORT_OF[reason] is Sort.WAITING for reason in FAILED)


# A worker's own partitions


def test_a_partition_that_is_copied_has_no_cause() -> None:
    assert found() is None


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"gap": "cut back"}, "stopped"),
        ({"failure": "may not read", "reported": "source.denied"}, "source-denied"),
        ({"failure": "may not write", "reported": "target.denied"}, "target-denied"),
        ({"failure": "too large", "reported": "source.too_large", "refused_with": 10}, "record-refused"),
        (
            {"failure": "no key", "reported": "source.null_key_on_compacted_target", "refused_with": 87},
            "record-refused",
        ),
        ({"failure": "refused", "reported": "target.refuses", "refused_with": 32}, "record-refused"),
        ({"failure": "damaged", "reported": "source.damaged"}, "record-unreadable"),
        ({"failure": "NOT_ENOUGH_REPLICAS", "stalled": "for a minute"}, "stalled"),
        ({"lacks_leader": "the remote partition has no leader"}, "no-leader"),
        ({"position_problem": "WRITE is missing"}, "position-unstored"),
        ({"source_silent": "no answer"}, "source-silent"),
        ({"starting": "finding out what is stored"}, "starting"),
        ({"failure": "NOT_LEADER"}, "retrying"),
    ],
)
def test_what_keeps_a_partition_from_being_copied_has_its_reason(facts: dict[str, Any], reason: str) -> None:
    cause = found(**facts)
    assert cause is not None and cause.reason == reason


def test_a_missing_right_and_a_refused_record_are_told_before_the_stall_that_follows() -> None:
    cause = found(failure="may not read", reported="source.denied", stalled="may not read")
    assert cause is not None and cause.reason is Reason.SOURCE_DENIED
    assert cause.remedy == "Grant READ on orders on A."
    assert cause.is_shown_at_once, "it does not pass by itself"
    passing = found(failure="NOT_LEADER")
    assert passing is not None and not passing.is_shown_at_once


def test_the_log_tells_the_reason_by_the_same_rule() -> None:
    reported = [("source.denied", 0), ("target.denied", 29), ("source.too_large", 10), ("source.damaged", 0)]
    assert [reason_of(event, code) for event, code in reported] == [
        Reason.SOURCE_DENIED,
        Reason.TARGET_DENIED,
        Reason.RECORD_REFUSED,
        Reason.RECORD_UNREADABLE,
    ]


def remedy(code: int, reported: str = "target.refuses") -> str:
    cause = found(failure="refused", reported=reported, refused_with=code)
    assert cause is not None
    return cause.remedy


def test_a_refused_record_gets_the_remedy_for_the_code_it_is_refused_with() -> None:
    """A record with a refused timestamp once got the advice to raise max.message.bytes."""
    assert remedy(INVALID_TIMESTAMP) == (
        "Raise message.timestamp.after.max.ms (it refuses records of the future) or message.timestamp.before.max.ms (it"
        " refuses old ones) of A.orders on B by hand; before Kafka 3.6 both are message.timestamp.difference.max.ms. Or"
        " grant mm2py ALTER_CONFIGS on A.orders, with sync.topic.configs.enabled=true: it then sets what orders on A"
        " takes. Or let quarantine keep such records (on.poison.record=quarantine). It is tried again every 30 s."
    )
    assert remedy(MESSAGE_TOO_LARGE, "source.too_large") == (
        "Raise max.message.bytes of A.orders on B. Or let quarantine keep such records (on.poison.record=quarantine)."
        " It is tried again every 30 s."
    )
    assert "cleanup.policy" in remedy(INVALID_RECORD) and "policy" in remedy(POLICY_VIOLATION)


def test_no_code_gets_the_remedy_of_another() -> None:
    codes = [int(code) for code in ErrorCode if code is not ErrorCode.none]
    blocking = [code for code in codes if produce_error(code).reaction in REFUSED]
    assert {MESSAGE_TOO_LARGE, INVALID_TIMESTAMP, INVALID_RECORD, POLICY_VIOLATION} <= {*blocking}
    said = {code: remedy(code) for code in blocking}
    for words, theirs in {
        "max.message.bytes": {MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE},
        "message.timestamp": {INVALID_TIMESTAMP},
        "ALTER_CONFIGS": {INVALID_TIMESTAMP},
        "cleanup.policy": {INVALID_RECORD},
        "compression.type": {UNSUPPORTED_COMPRESSION_TYPE},
    }.items():
        assert {code for code, text in said.items() if words in text} == theirs, words
    kept = {code for code, text in said.items() if "quarantine" in text}
    assert kept == {code for code in blocking if produce_error(code).reaction is not ProduceReaction.BLOCK}


def test_a_missing_right_is_named_for_what_the_code_says() -> None:
    assert remedy(TOPIC_AUTHORIZATION_FAILED, "target.denied") == "Grant WRITE on A.orders on B."
    assert remedy(CLUSTER_AUTHORIZATION_FAILED, "target.denied") == "Grant IDEMPOTENT_WRITE on the cluster B."
    assert "transactional id" in remedy(TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "target.denied")


# A topic, from outside


def test_a_topic_of_which_nothing_speaks_is_copied() -> None:
    assert reasons() == []


def test_what_an_operator_holds_is_held_although_its_workers_keep_their_partitions() -> None:
    """REST once said that a paused topic was copied: its partitions still had owners."""
    (said,) = why_not_copied(replace(COPIED, held="paused by ann", held_since_ms=7, standing="0-3"))
    assert (said.reason, said.why, said.since_ms) == (Reason.HELD, "The flow is paused by ann.", 7)
    assert not said.waits_for_operator
    assert reasons(is_switched_off=True) == ["switched-off"]
    assert reasons(backfill="Backfill 1: runs.") == ["backfill"]


def test_without_a_worker_nothing_else_is_said() -> None:
    idle = NotRunning("No worker runs.", "Start one: mm2py FILE.", since_ms=4)
    (said,) = why_not_copied(replace(COPIED, not_running=idle, standing="0"))
    assert (said.reason, said.text, said.since_ms) == ("not-running", "No worker runs. Start one: mm2py FILE.", 4)


def test_a_topic_just_created_or_deselected_is_not_gone() -> None:
    assert reasons(selected=False, has_positions=False, listed=0) == ["new"]
    assert reasons(selected=False, left_out=(Reason.EXCLUDED, "It is excluded.")) == ["deselected"]
    assert reasons(selected=False, left_out=(Reason.EXCLUDED, "It is excluded."), listed=0) == ["excluded"]
    assert reasons(selected=False) == ["gone"]
    assert reasons(selected=None) == [], "the source does not tell"


def test_what_a_worker_says_counts_where_the_user_who_asks_may_not_see_the_topic() -> None:
    denied = Cause("target-denied", "It may not be written.", "Grant WRITE.", 5, "0-3")
    assert reasons(selected=False, causes=(denied,)) == ["target-denied"]
    assert reasons(selected=False, left_out=(Reason.EXCLUDED, "It is."), causes=(denied,)) == ["deselected"]
    leaderless = Cause("no-leader", "It has no leader.", "", 5, "0")
    assert reasons(selected=False, causes=(leaderless,)) == ["no-leader"], "it is not gone: a worker has it"


def test_the_most_urgent_reason_comes_first_and_names_its_partitions() -> None:
    causes = (
        Cause("no-leader", "It has no leader.", "", 5, "2"),
        Cause("source-denied", "It may not be read.", "Grant READ.", 6, "0-1"),
    )
    first, second = why_not_copied(replace(COPIED, causes=causes))
    assert (first.reason, first.partitions, first.since_ms, first.waits_for_operator) == (
        "source-denied",
        "0-1",
        6,
        True,
    )
    assert first.text == "partitions 0-1: It may not be read. Grant READ."
    assert (second.reason, second.waits_for_operator) == ("no-leader", False)


def test_a_missing_topic_is_told_although_the_source_shows_nothing_of_it() -> None:
    missing = Cause("missing", "topics names it.", "Create it.", 5)
    assert reasons(partitions=0, selected=False, has_positions=False, listed=0, causes=(missing,)) == ["missing"]
    assert reasons(partitions=0, selected=False, listed=0, causes=(missing,)) == ["missing"], "it was deleted"


def test_a_refused_topic_is_refused_and_one_that_was_just_found_is_new() -> None:
    refused = Cause("refused", "A.orders is not empty.", "Delete it.", 5)
    assert reasons(listed=0, causes=(refused,)) == ["refused"]
    assert reasons(listed=0) == ["new"]
    assert reasons(listed=2) == ["new"], "partitions were added"
    assert reasons(listed=0, conflict="C->B also leads into A.orders.") == ["refused"]


def test_a_position_that_does_not_move_is_named_where_no_worker_says_why() -> None:
    (said,) = why_not_copied(replace(COPIED, standing="1", standing_since_ms=9))
    assert (said.reason, said.partitions, said.since_ms, said.is_problem) == ("standing", "1", 9, True)
    denied = Cause("target-denied", "It may not be written.", "Grant WRITE.", 5, "1")
    assert reasons(standing="1", causes=(denied,)) == ["target-denied"]
    retried = Cause("retrying", "It failed.", "", 5, "1")
    assert reasons(standing="1", causes=(retried,)) == ["standing", "retrying"], "what is retried must not hide it"
    (first, _) = why_not_copied(replace(COPIED, standing="1", causes=(retried,)))
    assert first.why == "Records wait and its position does not move: It failed."
    assert reasons(standing="0-3", listed=0, has_positions=False) == ["standing"], "nobody has begun to copy it"
    whole = Cause("retrying", "It failed.", "", 5)
    assert reasons(standing="0-3", listed=0, causes=(whole,)) == ["standing", "retrying"]


def told(**facts: Any) -> list[tuple[str, str]]:
    return [(str(one.reason), one.partitions) for one in why_not_copied(replace(COPIED, **facts))]


def test_a_partition_that_stands_is_named_although_another_one_waits_for_an_operator() -> None:
    """``mm2py why --partition orders/3`` said that it is replicated, because partition 0 was at a gap."""
    denied = Cause("target-denied", "It may not be written.", "Grant WRITE.", 5, "0")
    assert told(standing="0,3", causes=(denied,)) == [("target-denied", "0"), ("standing", "3")]
    (_, said) = why_not_copied(replace(COPIED, standing="3", standing_since_ms=9, causes=(denied,)))
    assert (said.why, said.since_ms) == ("Records wait, its position does not move, and no worker has said why yet.", 9)
    assert told(standing="0,3", stopped="0", gaps="1 truncated") == [("stopped", "0"), ("standing", "3")]
    whole = replace(denied, partitions="")
    assert told(standing="0,3", causes=(whole,)) == [("target-denied", "")]
    retried = Cause("retrying", "It failed.", "", 5, "3")
    assert [one.why for one in why_not_copied(replace(COPIED, standing="3", causes=(denied, retried)))] == [
        denied.why,
        "Records wait and its position does not move: It failed.",
        retried.why,
    ]


def test_partitions_that_were_just_added_are_named_although_others_have_reasons() -> None:
    denied = Cause("target-denied", "It may not be written.", "Grant WRITE.", 5, "0")
    assert told(listed=2, causes=(denied,)) == [("target-denied", "0"), ("new", "2-3")]
    assert told(listed=2, standing="3") == [("standing", "3"), ("new", "2")]
    narrow = Cause("refused", "It has fewer partitions.", "Add them.", 5, "2-3")
    assert told(listed=2, causes=(narrow,)) == [("refused", "2-3")], "they have a reason of their own"
    assert told(listed=2) == [("new", "2-3")] and told(listed=0) == [("new", "")]


SILENT = Cause("source-silent", "A has not answered w1 yet: refused.", "Look whether A runs.", 7)


def test_a_silent_source_is_told_of_a_topic_as_of_its_flow_and_stands_for_what_follows_from_it() -> None:
    own = Cause("source-silent", "the source does not answer: no answer.", "", 9, "0-3")
    (said,) = why_not_copied(replace(COPIED, causes=(own,), flow_causes=(SILENT,), standing="0-3"))
    assert (said.reason, said.why, said.since_ms, said.is_problem) == ("source-silent", SILENT.why, 7, True)
    denied = Cause("source-denied", "It may not be read.", "Grant READ.", 5, "0")
    assert reasons(causes=(denied,), flow_causes=(SILENT,)) == ["source-denied", "source-silent"]
    assert reasons(listed=0, has_positions=False, flow_causes=(SILENT,)) == ["source-silent"], "it was never copied"
    assert reasons(selected=None, flow_causes=(SILENT,)) == ["source-silent"]


def test_a_source_that_does_not_answer_one_worker_is_told_of_its_partitions_alone() -> None:
    some = replace(SILENT, partitions="2-3")
    assert [(one.reason, one.partitions) for one in why_not_copied(replace(COPIED, flow_causes=(some,)))] == [
        ("source-silent", "2-3")
    ]
    other = replace(SILENT, partitions="0")
    assert reasons(causes=(other,), flow_causes=(some,)) == ["source-silent", "source-silent"], "of another worker"
    assert reasons(standing="0", flow_causes=(some,))[0] == "standing", "the others are watched"


def test_what_is_left_out_is_left_out_whatever_becomes_of_the_flow() -> None:
    ring = Cause("ring", "Flow b->a has made it.", "", 5)
    left_out = (Reason.EXCLUDED, "It is excluded.")
    for circumstances in ({"held": "paused by ann"}, {"not_running": "No worker runs."}, {"flow_causes": (SILENT,)}):
        (said,) = why_not_copied(replace(COPIED, listed=0, causes=(ring,), **circumstances))  # type: ignore[arg-type]
        assert (said.reason, said.is_left_out, said.is_problem) == ("ring", True, False)
    (said,) = why_not_copied(replace(COPIED, selected=False, left_out=left_out, flow_causes=(SILENT,)))
    assert (said.reason, said.is_left_out, said.is_problem) == ("deselected", True, False)


def test_a_pattern_without_an_answer_is_told_although_workers_list_the_topic() -> None:
    undecided = (Reason.UNDECIDED, "A pattern finds no answer in time.")
    assert reasons(selected=False, left_out=undecided) == ["undecided"]
    assert reasons(selected=False, left_out=undecided, listed=0) == ["undecided"]


def test_what_a_worker_says_of_a_pattern_without_an_answer_is_told_with_its_time_and_its_remedy() -> None:
    cause = Cause("undecided", "topics finds no answer.", "Rewrite it.", 5)
    undecided = (Reason.UNDECIDED, "A pattern finds no answer in time.")
    (said,) = why_not_copied(replace(COPIED, selected=False, left_out=undecided, listed=0, causes=(cause,)))
    assert (said.reason, said.why, said.remedy, said.since_ms) == ("undecided", cause.why, cause.remedy, 5)


def test_a_gap_is_told_once_and_what_has_no_worker_or_moves_is_told() -> None:
    cause = Cause("stopped", "It was cut back.", "", 5, "0")
    first, *rest = why_not_copied(replace(COPIED, stopped="0", stopped_since_ms=3, gaps="1 truncated", causes=(cause,)))
    assert (first.reason, first.partitions, first.since_ms, rest) == ("stopped", "0", 3, [])
    other = Cause("stopped", "A gap has stopped it.", "", 5, "0-1")
    several = reasons(stopped="0", gaps="1 truncated", causes=(other,))
    assert several == ["stopped", "stopped"], "the gap of partition 1 is not stored"
    assert reasons(causes=(cause,)) == ["stopped"]
    assert reasons(unowned="0-3") == ["unowned"]
    assert reasons(moving="2") == ["moving"]


def test_a_reason_of_a_later_version_is_told_in_its_own_words() -> None:
    (said,) = why_not_copied(replace(COPIED, causes=(Cause("of-the-future", "It rains.", "", 5),)))
    assert (said.reason, said.why) == (Reason.RETRYING, "It rains.")


def test_what_waits_for_an_operator_says_what_to_do() -> None:
    """What a worker has stored brings its remedy; these come from the status itself."""
    for facts in (
        {"held": "paused"},
        {"is_switched_off": True},
        {"unowned": "0-3"},
        {"standing": "0"},
        {"standing": "0-3", "listed": 0},
        {"stopped": "0", "gaps": "1 truncated"},
    ):
        (said,) = why_not_copied(replace(COPIED, **facts))  # type: ignore[arg-type]
        assert said.remedy, said
    for own in ({"stalled": "no answer"}, {"position_problem": "WRITE is missing"}, {"gap": "cut back"}):
        told = found(**own)
        assert told is not None and told.remedy, told
