"""What the answers about topics mean: internal topics, names of remote topics, sizes, retention, backlog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from mm2py.checks.facts import FlowAnswers, PartitionAnswer, TopicAnswer, Unanswered
from mm2py.checks.judge_topics import claims_of, judge_internal_topics, judge_names, judge_sizes
from mm2py.checks.results import CheckResult, CheckState
from mm2py.config.settings import Configuration
from mm2py.flow import ClusterAlias, Flow
from tests.fakes.check_answers import (
    broker,
    cluster,
    configuration,
    flow_answers,
    hidden,
    internal,
    missing,
    topic,
    wanted,
)

OK, WARNING, FAILED, UNKNOWN = CheckState.OK, CheckState.WARNING, CheckState.FAILED, CheckState.UNKNOWN
AWAY = Unanswered("B is away.", "Start it.")
OFFSETS, CONTROL = "mm2-offsets.A.internal", "mm2-cluster.mm2py.internal"


def states(results: list[CheckResult], code: str) -> list[CheckState]:
    return [one.state for one in results if one.code == code]


def assert_one(results: list[CheckResult], code: str, state: CheckState, text: str) -> CheckResult:
    found = [one for one in results if (one.code, one.state) == (code, state)]
    assert len(found) == 1, results
    assert text in found[0].sentence, found[0]
    assert bool(found[0].hint) is (state in {WARNING, FAILED}), found[0]
    return found[0]


# Internal topics


def judged_internal(
    changes: Mapping[str, TopicAnswer], settings: Configuration | None = None, *, pre: bool = False, **more: Any
) -> list[CheckResult]:
    settings = settings or configuration()
    answers = flow_answers(settings)
    answers = flow_answers(settings, target_topics={**answers.target_topics, **changes}, **more)
    return list(judge_internal_topics(answers, wanted(settings), before_first_start=pre))


def offsets(configs: Mapping[str, str] | None = None, **changes: Any) -> dict[str, TopicAnswer]:
    one = next(one for one in wanted(configuration()) if one.name == OFFSETS)
    return {OFFSETS: internal(one, configs, **changes)}


def test_internal_topics_as_mm2py_creates_them_are_well() -> None:
    settings = configuration(**{"emit.checkpoints.enabled": True, "emit.heartbeats.enabled": True})
    results = judged_internal({}, settings)
    assert {one.code for one in results} == {"MM0501", "MM0502", "MM0503"}
    assert {one.state for one in results} == {OK}


@pytest.mark.parametrize(
    ("code", "state", "changes", "text"),
    [
        ("MM0501", WARNING, {OFFSETS: missing(OFFSETS)}, f"internal topic {OFFSETS} does not exist on B"),
        ("MM0501", UNKNOWN, {OFFSETS: hidden(OFFSETS)}, "DESCRIBE is missing"),
        ("MM0502", FAILED, offsets({"cleanup.policy": "delete"}), "would lose positions: it has cleanup.policy=delete"),
        (
            "MM0502",
            UNKNOWN,
            {OFFSETS: replace(topic(OFFSETS), configs=None)},
            f"does not tell the settings of internal topic {OFFSETS}",
        ),
        ("MM0503", FAILED, offsets({"min.insync.replicas": "2"}), "has 1 replica and min.insync.replicas=2"),
        ("MM0503", FAILED, offsets(leaderless=(3, 4)), "has no leader for partition 3, 4"),
    ],
)
def test_an_internal_topic(code: str, state: CheckState, changes: dict[str, TopicAnswer], text: str) -> None:
    assert_one(judged_internal(changes), code, state, text)


def test_a_control_log_of_two_partitions_is_refused() -> None:
    one = next(one for one in wanted(configuration()) if one.name == CONTROL)
    found = judged_internal({CONTROL: internal(one, partitions=2)})
    assert_one(found, "MM0502", FAILED, "its readers would not see the same order")


def test_a_control_log_with_times_of_its_writers_is_refused() -> None:
    one = next(one for one in wanted(configuration()) if one.name == CONTROL)
    found = judged_internal({CONTROL: internal(one, {"message.timestamp.type": "CreateTime"})})
    result = assert_one(found, "MM0502", FAILED, "message.timestamp.type=CreateTime")
    assert result.hint.endswith(f"--topic {CONTROL} --add-config message.timestamp.type=LogAppendTime")


def test_offset_syncs_that_expire_are_a_warning_because_the_flow_runs() -> None:
    settings = configuration()
    one = next(one for one in wanted(settings) if one.on_source)
    found = judged_internal({}, source_topics={one.name: internal(one, {"cleanup.policy": "delete"})})
    assert_one(found, "MM0502", WARNING, "would lose offset syncs")


def test_before_the_first_start_internal_topics_need_not_exist() -> None:
    found = judged_internal({OFFSETS: missing(OFFSETS)}, pre=True)
    assert set(states(found, "MM0501")) == {OK}
    assert_one(found, "MM0504", OK, f"missing internal topic {OFFSETS}")


def test_replicas_that_the_file_sets_need_as_many_brokers() -> None:
    settings = configuration(**{"offset.storage.replication.factor": 3})
    found = judged_internal({OFFSETS: missing(OFFSETS)}, settings, pre=True)
    result = assert_one(found, "MM0504", FAILED, "offset.storage.replication.factor is 3, and B has 1 broker")
    assert result.hint == "Set offset.storage.replication.factor to 1 or less."
    enough = cluster("B", brokers=(broker(1), broker(2), broker(3)))
    found = judged_internal({OFFSETS: missing(OFFSETS)}, settings, pre=True, target=enough)
    assert states(found, "MM0504") == [OK]


def test_internal_topics_of_a_cluster_that_is_away_are_not_checkable() -> None:
    found = judged_internal({}, target=cluster("B", silent=AWAY))
    assert {one.state for one in found if one.waits_for == "B"} == {UNKNOWN}
    assert states(found, "MM0501") == [UNKNOWN, OK], "offset syncs are on the source, which answers"


# Names


def judged_names(answers: FlowAnswers) -> list[CheckResult]:
    return list(judge_names(answers, claims_of([answers]).get("B", {})))


def test_names_that_are_free() -> None:
    found = judged_names(flow_answers())
    assert {one.code: one.state for one in found} == dict.fromkeys(["MM0601", "MM0602", "MM0603", "MM0604"], OK)
    assert_one(found, "MM0601", OK, "2 topics (orders, orders.eu) of A, with 6 partitions")


def test_a_filter_that_selects_nothing_is_a_warning() -> None:
    assert_one(judged_names(flow_answers(selected=())), "MM0601", WARNING, "It selects no topic that A shows")


def test_a_topic_that_the_file_names_and_the_source_does_not_show_is_a_warning() -> None:
    found = judged_names(flow_answers(hidden=("drafts",)))
    assert_one(found, "MM0601", WARNING, "A does not show topic drafts")


def test_a_pattern_that_matches_no_topic_that_the_source_shows_is_a_warning() -> None:
    """The user had no rights on any topic: every line about them was √, and nothing of ``orders.*`` was checked."""
    found = judged_names(flow_answers(unmatched=("bills.*",)))
    result = assert_one(found, "MM0601", WARNING, "A shows no topic that pattern bills.* of topics matches")
    assert "grant DESCRIBE" in result.hint


def test_a_source_topic_that_may_not_be_described_has_an_unknown_number_of_partitions() -> None:
    answers = flow_answers(selected=("orders",), source_topics={"orders": hidden("orders")})
    assert states(judged_names(answers), "MM0601") == [UNKNOWN]
    assert states(list(judge_sizes(answers)), "MM0705") == [UNKNOWN]


def test_whether_a_remote_topic_is_free_is_not_known_while_it_may_not_be_described() -> None:
    answers = flow_answers()
    there = {**answers.target_topics, "A.orders": hidden("A.orders")}
    found = judged_names(replace(answers, target_topics=there))
    assert_one(found, "MM0602", UNKNOWN, "Whether remote topic A.orders on B holds records of others is not known")
    assert_one(found, "MM0602", OK, "remote topic A.orders.eu on B")


def test_a_topic_about_which_a_pattern_does_not_decide_is_a_warning() -> None:
    assert_one(judged_names(flow_answers(undecided=("aaaa",))), "MM0601", WARNING, "too long to match topic aaaa")


def test_a_filled_remote_topic_without_positions_is_of_somebody_else() -> None:
    found = judged_names(flow_answers(filled={"orders": (0, 2)}))
    result = assert_one(
        found, "MM0602", FAILED, "remote topic A.orders on B holds records, and A->B has stored no position"
    )
    assert "--allow-recopy 'A->B:orders'" in result.hint
    assert_one(found, "MM0602", OK, "remote topic A.orders.eu on B")


def test_a_filled_remote_topic_with_positions_is_our_own() -> None:
    found = judged_names(flow_answers(filled={"orders": (0, 2)}, placed={"orders": frozenset({0, 2})}))
    assert states(found, "MM0602") == [OK]
    found = judged_names(flow_answers(filled={"orders": (0, 2)}, placed={"orders": frozenset({0})}))
    assert FAILED in states(found, "MM0602"), "partition 2 has records and no position"


def test_without_the_positions_it_is_not_known_whose_a_filled_topic_is() -> None:
    found = judged_names(flow_answers(filled={"orders": (0,)}, positions_unread="READ is missing."))
    assert_one(found, "MM0602", UNKNOWN, "READ is missing.")


def test_remote_partitions_that_were_not_looked_at_are_not_said_to_be_free() -> None:
    """Looking failed, nothing was known to be filled, and √ stood beside a ? for the same topics."""
    found = judged_names(flow_answers(unlooked={"orders": (0, 1)}, unread={"filled": "B is away."}))
    assert_one(
        found, "MM0602", UNKNOWN, "Whether remote topic A.orders on B holds records of others is not known: B is"
    )
    assert_one(found, "MM0602", OK, "remote topic A.orders.eu on B")
    found = judged_names(flow_answers(unlooked={"orders": (1,)}))
    assert_one(found, "MM0602", UNKNOWN, "is not known: some of its partitions have no leader that answers")
    found = judged_names(flow_answers(unlooked={"orders": (1,)}, placed={"orders": frozenset({1})}))
    assert states(found, "MM0602") == [OK], "a position is stored, so this flow has filled it"


def test_under_the_identity_policy_nobody_is_told_to_delete_a_topic() -> None:
    settings = configuration(**{"replication.policy.class": "IdentityReplicationPolicy"})
    found = judged_names(flow_answers(settings, filled={"orders": (0,)}))
    result = assert_one(found, "MM0602", FAILED, "remote topic orders on B")
    assert result.hint.startswith("Do not delete it")


def test_with_many_to_one_remote_topics_may_hold_records_of_others() -> None:
    settings = configuration(**{"many.to.one": True, "replication.policy.class": "IdentityReplicationPolicy"})
    assert states(judged_names(flow_answers(settings, filled={"orders": (0,)})), "MM0602") == [OK]


def test_the_remote_topics_of_a_flow_that_is_standby_hold_what_the_flow_back_begins_with() -> None:
    policy = {"replication.policy.class": "IdentityReplicationPolicy", "A->B.standby": True}
    pair = configuration(**{**policy, "B->A.enabled": True})
    (result,) = [one for one in judged_names(flow_answers(pair, filled={"orders": (0,)})) if one.code == "MM0602"]
    assert result.state is OK and "where it begins is stored when it is turned on" in result.sentence
    assert FAILED in states(judged_names(flow_answers(configuration(**policy), filled={"orders": (0,)})), "MM0602")


@pytest.mark.parametrize(
    ("names", "text"),
    [({"A_orders"}, "there is A_orders, whose name differs only in '.' and '_'")],
)
def test_a_name_that_kafka_refuses(names: set[str], text: str) -> None:
    assert_one(judged_names(flow_answers(target_names=frozenset(names))), "MM0603", FAILED, text)


def test_a_name_that_is_too_long_is_refused_by_kafka() -> None:
    name = "orders" + "x" * 242
    answers = flow_answers(selected=(name,), source_topics={name: topic(name)})
    assert_one(judged_names(answers), "MM0603", FAILED, "it has 250 characters, 249 are allowed")


def test_two_flows_to_one_remote_topic() -> None:
    answers = flow_answers()
    other = Flow(ClusterAlias("C"), ClusterAlias("B"))
    found = list(judge_names(answers, {"A.orders": [answers.settings.flow, other]}))
    assert_one(found, "MM0604", FAILED, "topic orders: C->B copies into the same remote topic")


def test_flows_of_the_file_into_one_remote_topic_are_found() -> None:
    one = flow_answers(configuration(**{"replication.policy.class": "IdentityReplicationPolicy"}))
    assert claims_of([one, one])["B"]["orders"] == [one.settings.flow] * 2


# Sizes


def judged_sizes(
    settings: Configuration | None = None,
    *,
    source: Mapping[str, str] | None = None,
    remote: Mapping[str, str] | None = None,
    **changes: Any,
) -> list[CheckResult]:
    answers = flow_answers(settings)
    sources = {"orders": topic("orders", source)}
    targets = {"A.orders": missing("A.orders") if remote is None else topic("A.orders", remote)}
    answers = flow_answers(
        settings,
        **{
            "selected": ("orders",),
            "source_topics": sources,
            "target_topics": {**answers.target_topics, **targets},
            **changes,
        },
    )
    return list(judge_sizes(answers))


def backlog(*partitions: PartitionAnswer) -> dict[str, Any]:
    """Return the answers of the first partitions of ``orders``, which has three. A position is stored for each."""
    return {
        "placed": {"orders": frozenset(range(len(partitions)))},
        "partitions": {("orders", number): found for number, found in enumerate(partitions)},
    }


def test_sizes_that_fit() -> None:
    found = judged_sizes(remote={}, **backlog(*[PartitionAnswer(0, 10, 10, None)] * 3))
    assert {one.code: one.state for one in found} == dict.fromkeys(
        ["MM0701", "MM0702", "MM0703", "MM0704", "MM0705"], OK
    )


@pytest.mark.parametrize(
    ("code", "source", "remote", "text"),
    [
        ("MM0701", {"max.message.bytes": "5000000"}, {}, "records of 1,048,588 to 5,000,000 bytes do not fit"),
        ("MM0702", {}, {"retention.ms": "3600000"}, "the copy keeps less: 1 h on B, 7 d on A (retention.ms)"),
        ("MM0702", {"retention.ms": "-1"}, {}, "7 d on B, for ever on A"),
        ("MM0702", {}, {"retention.bytes": "1000"}, "1,000 bytes on B, any number of bytes on A"),
    ],
)
def test_a_remote_topic_that_keeps_or_takes_less(
    code: str, source: dict[str, str], remote: dict[str, str], text: str
) -> None:
    assert_one(judged_sizes(source=source, remote=remote), code, WARNING, text)


def test_a_new_remote_topic_gets_what_the_source_has_set_and_otherwise_the_defaults_of_the_target() -> None:
    assert states(judged_sizes(source={"max.message.bytes": "5000000"}), "MM0701") == [OK], "it is carried over"
    small = cluster("B", broker_settings={**cluster("B").broker_settings, "log.retention.hours": "1"})
    assert_one(judged_sizes(target=small), "MM0702", WARNING, "1 h on B, 7 d on A")
    small = cluster("B", broker_settings={**cluster("B").broker_settings, "message.max.bytes": "1000"})
    assert_one(judged_sizes(target=small), "MM0701", WARNING, "records of 1,000 to 1,048,588 bytes")


def test_a_compacted_topic_is_not_measured_by_its_retention() -> None:
    found = judged_sizes(
        source={"cleanup.policy": "compact"}, remote={"cleanup.policy": "compact", "retention.ms": "1"}
    )
    assert states(found, "MM0702") == [OK]


def test_settings_that_may_not_be_read_are_not_checkable() -> None:
    silent = cluster("B", broker_settings={})
    found = judged_sizes(target=silent, unread={"target configs": "No."})
    assert_one(found, "MM0701", UNKNOWN, "max.message.bytes of topic orders or its remote topic is not known. No.")
    assert_one(found, "MM0702", UNKNOWN, "The retention of topic orders")


@pytest.mark.parametrize(
    ("found", "state", "text"),
    [
        (
            PartitionAnswer(0, 100, 10, 50),
            WARNING,
            "partition orders-2 of A: the next record to copy has less than a quarter",
        ),
        (PartitionAnswer(20, 100, 10, 50), FAILED, "records have expired before they were copied"),
        (PartitionAnswer(0, 100, 50, 50), OK, "expires soon: mm2py looked at 3 partitions"),
        (PartitionAnswer(0, 100, 100, 100), OK, "expires soon"),
        (PartitionAnswer(0, 100, 10, None), OK, "expires soon"),
    ],
)
def test_the_backlog_beside_the_retention(found: PartitionAnswer, state: CheckState, text: str) -> None:
    fine = PartitionAnswer(0, 10, 10, None)
    results = judged_sizes(remote={}, **backlog(fine, fine, found))
    assert_one(results, "MM0703", state, text)
    assert states(results, "MM0703") == [state]


def test_before_the_first_start_the_backlog_is_not_checkable() -> None:
    found = judged_sizes(remote={})
    assert_one(found, "MM0703", UNKNOWN, "Of topic orders, not all partitions have a position yet")
    assert states(found, "MM0703") == [UNKNOWN]
    assert states(judged_sizes(source_topics={"orders": hidden("orders")}), "MM0703") == [UNKNOWN]


def test_partitions_that_were_not_looked_at_are_not_in_the_count_of_the_backlog() -> None:
    found = judged_sizes(remote={}, **backlog(PartitionAnswer(0, 10, 10, None)))
    assert_one(found, "MM0703", OK, "mm2py looked at 1 partition")
    assert_one(found, "MM0703", UNKNOWN, "not all partitions have a position yet")
    placed = {"placed": {"orders": frozenset({0, 1, 2})}}
    found = judged_sizes(remote={}, **{**backlog(PartitionAnswer(0, 10, 10, None)), **placed})
    assert_one(found, "MM0703", OK, "mm2py looked at 1 partition")
    silent = "The offsets of 2 partitions (orders-1, orders-2) of A are not known: no leader answers"
    assert_one(found, "MM0703", UNKNOWN, silent)
    found = judged_sizes(remote={}, **placed, unread={"offsets": "A is away."})
    assert_one(found, "MM0703", UNKNOWN, "(orders-0, orders-1, orders-2) of A are not known: A is away.")
    assert states(found, "MM0703") == [UNKNOWN]


def test_partitions_whose_retention_is_not_known_are_not_checkable() -> None:
    copied, unknown, gone = (PartitionAnswer(5, 10, at, None, is_age_known=False) for at in (10, 6, 3))
    found = judged_sizes(remote={}, **backlog(copied, unknown, gone), unread={"source configs": "No right."})
    assert_one(found, "MM0703", FAILED, "partition orders-2 of A: records have expired")
    assert_one(found, "MM0703", UNKNOWN, "A keeps the next record of partition orders-1 is not known: No right.")


def test_without_positions_the_backlog_is_not_known() -> None:
    assert_one(judged_sizes(remote={}, positions_unread="No READ."), "MM0703", UNKNOWN, "No READ.")


def test_the_replicas_of_remote_topics() -> None:
    three = configuration(**{"replication.factor": 3})
    found = judged_sizes(three, remote={})
    assert_one(found, "MM0704", FAILED, "replication.factor is 3, and B has 1 broker")
    assert_one(judged_sizes(configuration(**{"replication.factor": -1}), remote={}), "MM0704", OK, "B decides")


def test_more_partitions_than_allowed() -> None:
    found = judged_sizes(configuration(**{"remote.partitions.max": 2}), remote={})
    assert_one(found, "MM0705", FAILED, "It selects 3 partitions, and remote.partitions.max is 2")


def test_sizes_of_clusters_that_are_away_are_not_checkable() -> None:
    found = judged_sizes(target=cluster("B", silent=AWAY))
    assert {one.code for one in found if one.waits_for == "B"} == {"MM0701", "MM0702", "MM0703", "MM0704"}
