"""Which rights a flow needs, which of them are missing, and the commands that grant them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from mm2py.checks.facts import FlowAnswers, GroupAnswer, TopicAnswer, Unanswered
from mm2py.checks.judge_rights import judge_rights
from mm2py.checks.results import CheckResult, CheckState
from mm2py.checks.rights import NAMES_A_COMMAND, RIGHTS, operations_of, rights_table
from mm2py.checks.table import ROWS, Category
from mm2py.config.settings import Configuration
from tests.cluster.least_rights import PAGE
from tests.fakes.check_answers import (
    EVERYTHING,
    cluster,
    configuration,
    flow_answers,
    hidden,
    missing,
    needs,
    topic,
)

OK, WARNING, FAILED, UNKNOWN = CheckState.OK, CheckState.WARNING, CheckState.FAILED, CheckState.UNKNOWN
GUARDED = {"has_authorizer": True}
AT = "--bootstrap-server {}1:9092 --add --allow-principal User:mirror"
ALL_ON = {
    "emit.checkpoints.enabled": True,
    "sync.group.offsets.enabled": True,
    "emit.heartbeats.enabled": True,
    "heartbeats.replication.enabled": True,
    "sync.topic.configs.enabled": True,
    "sync.topic.acls.enabled": True,
    "on.poison.record": "quarantine",
    "B->A.emit.heartbeats.enabled": True,
    "groups": "billing",
}


def guarded(settings: Configuration | None = None, **changes: Any) -> FlowAnswers:
    """Two clusters with an authorizer, whose user may do everything on each resource."""
    settings = settings or configuration()
    answers = flow_answers(settings, source=cluster("A", **GUARDED), target=cluster("B", **GUARDED))
    groups = {"billing": GroupAnswer("billing", is_denied=False, operations=EVERYTHING)}
    answers = replace(
        answers, source_groups=groups, target_groups={**answers.target_groups, **groups}, transactional_id_denied=False
    )
    rows = needs(settings, answers)
    for on_source in (True, False):
        names = {name for one in rows if one.row.kind == "topic" and one.on_source is on_source for name in one.names}
        known = answers.source_topics if on_source else answers.target_topics
        found = {**{name: missing(name) for name in names}, **known}
        answers = replace(answers, **{"source_topics" if on_source else "target_topics": found})
    return replace(answers, **changes)


def judged(answers: FlowAnswers, settings: Configuration | None = None) -> list[CheckResult]:
    return list(judge_rights(answers, needs(settings or configuration(), answers)))


def with_topics(answers: FlowAnswers, **changes: Mapping[str, TopicAnswer]) -> FlowAnswers:
    return replace(answers, **{key: {**getattr(answers, key), **value} for key, value in changes.items()})


def only(results: list[CheckResult], code: str, state: CheckState) -> CheckResult:
    found = [one for one in results if (one.code, one.state) == (code, state)]
    assert len(found) == 1, results
    return found[0]


def test_the_page_shows_the_table_of_the_code() -> None:
    lines = PAGE.read_text().splitlines()
    first = lines.index(rights_table()[0])
    assert lines[first : first + len(rights_table())] == rights_table()
    assert not lines[first + len(rights_table())].startswith("|")


def test_each_row_that_a_worker_needs_has_a_check_of_rights() -> None:
    codes = {row.code for row in RIGHTS if row.code}
    assert codes == {code for code, row in ROWS.items() if row.category is Category.RIGHTS}
    of_commands = {"backfill and verify", "fence", "recoveries", "failover", "drill", "looking", "application"}
    assert {row.purpose for row in RIGHTS if not row.code} == of_commands


def test_a_user_who_may_do_everything_lacks_nothing() -> None:
    settings = configuration(**ALL_ON)
    answers = guarded(settings)
    results = judged(answers, settings)
    assert {one.state for one in results if one.code != "MM0404"} == {OK}
    assert {one.code for one in results} == {code for code in ROWS if ROWS[code].category is Category.RIGHTS}


def test_whether_a_transactional_id_may_be_written_is_never_told_without_writing() -> None:
    result = only(judged(guarded()), "MM0404", UNKNOWN)
    assert "shows only when a worker writes" in result.sentence
    assert (
        f"kafka-acls {AT.format('b')} --operation Write --transactional-id mm2py-mm2py-"
        " --resource-pattern-type prefixed" in result.hint
    )


def test_a_transactional_id_that_may_not_be_described_may_not_be_written() -> None:
    result = only(judged(guarded(transactional_id_denied=True)), "MM0404", FAILED)
    assert result.sentence == "B denies WRITE on transactional id mm2py-mm2py-* (needed for copying)"
    only(judged(guarded(transactional_id_denied=None)), "MM0404", UNKNOWN)


def test_clusters_without_an_authorizer_say_so_in_one_line_each() -> None:
    results = judged(flow_answers())
    assert [one.sentence for one in results] == [
        "A has no authorizer: every user may do everything there",
        "B has no authorizer: every user may do everything there",
    ]


def test_a_topic_that_may_not_be_read() -> None:
    answers = with_topics(
        guarded(), source_topics={"orders": topic("orders", operations=frozenset({"DESCRIBE", "DESCRIBE_CONFIGS"}))}
    )
    result = only(judged(answers), "MM0401", FAILED)
    assert result.sentence == "A denies READ on topic orders (needed for copying)"
    assert result.hint == f"kafka-acls {AT.format('a')} --operation Read --operation DescribeConfigs --topic orders"
    assert result.commands == (result.hint,)
    assert only(judged(answers), "MM0401", OK).sentence.endswith("READ, DESCRIBE_CONFIGS on topic orders.eu")


def test_a_topic_that_is_hidden_may_not_be_read_either() -> None:
    answers = with_topics(guarded(), source_topics={"orders": hidden("orders")})
    assert "denies READ on topic orders" in only(judged(answers), "MM0401", FAILED).sentence


def test_a_missing_remote_topic_needs_create_and_one_that_exists_does_not() -> None:
    none = EVERYTHING - {"CREATE"}
    no_cluster = cluster("B", has_authorizer=True, may_create_topics=False)
    answers = with_topics(
        guarded(target=no_cluster),
        target_topics={"A.orders": missing("A.orders", none), "A.orders.eu": topic("A.orders.eu", operations=none)},
    )
    result = only(judged(answers), "MM0402", FAILED)
    assert result.sentence == "B denies CREATE on topic A.orders (needed for copying)"
    allowed = replace(answers, target=replace(no_cluster, may_create_topics=True))
    assert FAILED not in {one.state for one in judged(allowed)}, "CREATE on the cluster is enough"


def test_alter_is_only_for_new_partitions() -> None:
    answers = with_topics(guarded(), target_topics={"A.orders": topic("A.orders", operations=EVERYTHING - {"ALTER"})})
    result = only(judged(answers), "MM0402", WARNING)
    assert result.hint == f"kafka-acls {AT.format('b')} --operation Alter --topic A.orders"


def test_many_topics_are_one_line_and_several_commands() -> None:
    names = [f"orders.{number}" for number in range(NAMES_A_COMMAND + 1)]
    answers = guarded(
        selected=tuple(names),
        source_topics={name: topic(name, operations=frozenset({"DESCRIBE"})) for name in names},
        target_topics={},
    )
    result = only(judged(answers), "MM0401", FAILED)
    assert "on 21 topics (orders.0, orders.1, orders.2 and 18 more) (needed for copying)" in result.sentence
    assert "denies READ and DESCRIBE_CONFIGS" in result.sentence
    assert len(result.items) == NAMES_A_COMMAND + 1
    assert len(result.commands) == 2
    assert "(and 1 more commands: --json)" in result.hint


@pytest.mark.parametrize(
    ("code", "changes", "text", "command"),
    [
        (
            "MM0403",
            {"target_topics": {"mm2-offsets.A.internal": hidden("mm2-offsets.A.internal")}},
            "B denies READ and WRITE on topic mm2-offsets.A.internal (needed for copying)",
            "--operation Create --operation Read --operation Write --operation DescribeConfigs"
            " --topic mm2-offsets.A.internal",
        ),
        (
            "MM0405",
            {"target_groups": {"A-mm2": GroupAnswer("A-mm2", is_denied=True)}},
            "B denies DESCRIBE on group A-mm2 (needed for copying)",
            "--operation Describe --group A-mm2",
        ),
        (
            "MM0407",
            {
                "source_topics": {
                    "mm2-offset-syncs.B.internal": topic(
                        "mm2-offset-syncs.B.internal", operations=frozenset({"DESCRIBE", "DESCRIBE_CONFIGS"})
                    )
                }
            },
            "A denies WRITE on topic mm2-offset-syncs.B.internal (needed for offset syncs)",
            "--topic mm2-offset-syncs.B.internal",
        ),
        (
            "MM0408",
            {"target_groups": {"billing": GroupAnswer("billing", False, frozenset({"DESCRIBE"}))}},
            "B denies READ on group billing (needed for groups)",
            "--operation Read --group billing",
        ),
        (
            "MM0408",
            {"source_groups": {"billing": GroupAnswer("billing", is_denied=True)}},
            "A denies DESCRIBE on group billing (needed for groups)",
            "--operation Describe --group billing",
        ),
        (
            "MM0409",
            {"target_topics": {"heartbeats": hidden("heartbeats")}},
            "B denies WRITE on topic heartbeats (needed for heartbeats)",
            "--topic heartbeats",
        ),
        (
            "MM0410",
            {"source_topics": {"heartbeats": hidden("heartbeats")}},
            "A denies READ and WRITE on topic heartbeats (needed for heartbeats on the source)",
            "--topic heartbeats",
        ),
        (
            "MM0411",
            {"target_topics": {"A.orders": topic("A.orders", operations=EVERYTHING - {"ALTER_CONFIGS"})}},
            "B denies ALTER_CONFIGS on topic A.orders (needed for configurations)",
            "--operation AlterConfigs --topic A.orders",
        ),
        (
            "MM0413",
            {"target_topics": {"mm2-quarantine.A.internal": hidden("mm2-quarantine.A.internal")}},
            "B denies READ and WRITE on topic mm2-quarantine.A.internal (needed for quarantine)",
            "--topic mm2-quarantine.A.internal",
        ),
    ],
)
def test_a_right_of_a_feature(code: str, changes: dict[str, Any], text: str, command: str) -> None:
    settings = configuration(**ALL_ON)
    answers = with_topics(guarded(settings), **changes)
    result = only(judged(answers, settings), code, FAILED)
    assert result.sentence == text
    assert result.hint.endswith(command)
    off = configuration()
    if code not in {"MM0403", "MM0405", "MM0407"}:
        assert code not in {one.code for one in judged(answers, off)}, "without the feature nobody asks for its rights"


def test_rights_on_the_cluster_that_it_tells() -> None:
    settings = configuration(**ALL_ON)
    told = cluster("B", has_authorizer=True, operations=frozenset({"DESCRIBE"}))
    found = judged(guarded(settings, target=told), settings)
    assert only(found, "MM0406", FAILED).hint == f"kafka-acls {AT.format('b')} --operation DescribeConfigs --cluster"
    assert only(found, "MM0412", FAILED).sentence == "B denies ALTER on the cluster (needed for ACLs)"


def test_a_cluster_that_tells_nothing_denies_describe_and_what_includes_it() -> None:
    settings = configuration(**ALL_ON)
    silent = cluster("B", has_authorizer=True, operations=None)
    found = judged(guarded(settings, target=silent), settings)
    assert "B denies ALTER on the cluster (needed for ACLs)" in [one.sentence for one in found]
    assert [one.state for one in found if one.code == "MM0406"] == [OK], "its settings were read"
    unread = replace(silent, settings_unread=Unanswered("No.", ""))
    found = judged(guarded(settings, target=unread), settings)
    assert only(found, "MM0406", FAILED).sentence == "B denies DESCRIBE_CONFIGS on the cluster (needed for copying)"


def test_rings_are_a_warning_because_the_flow_copies_without() -> None:
    name = "mm2-configs.B.internal"
    answers = with_topics(guarded(), source_topics={name: hidden(name)})
    result = only(judged(answers), "MM0414", WARNING)
    assert result.hint == (
        f"kafka-acls {AT.format('a')} --operation Read --topic mm2-configs. --resource-pattern-type prefixed"
    )


def test_the_flight_recorder_is_a_warning_whose_command_grants_the_whole_row() -> None:
    name = "mm2-flight.A.internal"
    answers = with_topics(guarded(), target_topics={name: hidden(name)})
    result = only(judged(answers), "MM0415", WARNING)
    assert result.hint == f"kafka-acls {AT.format('b')} --operation Create --operation Write --topic {name}"


def test_the_history_is_a_warning_because_the_flow_copies_without() -> None:
    name = "mm2-history.A.internal"
    result = only(judged(with_topics(guarded(), target_topics={name: hidden(name)})), "MM0416", WARNING)
    operations = "--operation Create --operation Read --operation Write"
    assert result.hint == f"kafka-acls {AT.format('b')} {operations} --topic {name}"


def test_a_principal_that_the_file_does_not_tell_is_to_be_replaced() -> None:
    unknown = cluster("A", has_authorizer=True, principal="User:PRINCIPAL")
    answers = with_topics(guarded(source=unknown), source_topics={"orders": hidden("orders")})
    hint = only(judged(answers), "MM0401", FAILED).hint
    assert "--allow-principal User:PRINCIPAL " in hint
    assert hint.endswith("Put the user of mm2py in place of PRINCIPAL.")


def test_a_name_with_blanks_is_quoted_for_the_shell() -> None:
    named = cluster("A", has_authorizer=True, principal="User:CN=mm2py, O=x")
    answers = with_topics(guarded(source=named), source_topics={"orders": hidden("orders")})
    assert "--allow-principal 'User:CN=mm2py, O=x' " in only(judged(answers), "MM0401", FAILED).hint


EVERY_GROUP = {"emit.checkpoints.enabled": True, "sync.group.offsets.enabled": True}


def test_a_user_who_is_shown_no_group_may_lack_rights_on_groups() -> None:
    """Brokers leave out groups that the user may not describe: nothing was √ or × but offset syncs and checkpoints."""
    settings = configuration(**EVERY_GROUP)
    result = only(judged(guarded(settings, source_groups={}), settings), "MM0408", UNKNOWN)
    assert result.sentence == (
        "A shows no group that groups selects: none exists, or DESCRIBE on it is missing. Rights on groups were not"
        " checked"
    )
    assert f"kafka-acls {AT.format('a')} --operation Describe --group '*'" in result.hint
    open_to_all = guarded(settings, source_groups={}, source=cluster("A", has_authorizer=False))
    assert UNKNOWN not in {one.state for one in judged(open_to_all, settings) if one.code == "MM0408"}


def test_groups_that_the_source_did_not_list_are_not_checkable() -> None:
    settings = configuration(**EVERY_GROUP)
    unread = {"source groups": "A does not answer: listing its groups took more than 30 s."}
    for groups in ({}, guarded().source_groups):
        result = only(judged(guarded(settings, source_groups=groups, unread=unread), settings), "MM0408", UNKNOWN)
        assert result.sentence == f"Not all rights on groups of A were checked. {unread['source groups']}"
        assert not result.hint


def test_what_a_cluster_does_not_tell_is_not_checkable() -> None:
    answers = with_topics(guarded(), target_groups={"A-mm2": GroupAnswer("A-mm2", is_denied=False)})
    settings = configuration(**{**ALL_ON, "groups": "billing"})
    answers = with_topics(
        guarded(settings), target_groups={"billing": GroupAnswer("billing", is_denied=False, operations=None)}
    )
    found = judged(answers, settings)
    assert "B does not tell the rights on group billing" in only(found, "MM0408", UNKNOWN).sentence


def test_offset_syncs_on_the_target_need_no_right_to_write_to_the_source() -> None:
    settings = configuration(**{"offset-syncs.topic.location": "target"})
    rows = [one for one in needs(settings, flow_answers(settings)) if one.row.code == "MM0407"]
    assert [(one.on_source, one.names) for one in rows] == [(False, ("mm2-offset-syncs.A.internal",))]


def test_the_bits_of_a_broker_are_operations() -> None:
    assert operations_of(1 << 3 | 1 << 10 | 1 << 12) == {"READ", "DESCRIBE_CONFIGS"}
