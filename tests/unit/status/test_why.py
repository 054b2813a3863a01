"""Why is it not replicated: the rule or the setting that decides, in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from mm2py.cli.why import parse_arguments, text_of
from mm2py.errors import ConfigError
from mm2py.status.exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_WAITS, exit_of_explanation
from mm2py.status.report import report_of
from mm2py.status.why import Explanation, Replicated, explain_group, explain_topic
from mm2py.topics.filters import GroupFilter
from tests.fakes.v1_services import FLOW, W1, W2, client, facts_of, flow_facts, group_report

NAMES = {W1: "host-1", W2: "host-2"}
NOW_MS = 1_764_000_000_000


def explained(topic: str, partition: int | None = None, **extra: Any) -> Explanation:
    facts = flow_facts(**extra)
    report = report_of(facts_of(facts))
    return explain_topic(facts, report.flows[0], topic, partition, NAMES)


@pytest.mark.parametrize(
    ("topic", "reason", "parts"),
    [
        (
            "tmp",
            "excluded",
            ["Pattern `tmp` (entry 1 of topics.exclude)", "change topics.exclude, then: mm2py apply FILE"],
        ),
        ("audit", "not-included", ["No pattern of topics matches it.", "change topics, then: mm2py apply FILE"]),
        ("__consumer_offsets", "internal", ["No setting changes that."]),
        ("B.orders", "cycle", ["Its name says that its records have been on the target."]),
        ("mm2-offsets.B.internal", "own-topic", ["mm2py keeps its own state in it."]),
        ("aaaa", "undecided", ["finds no answer in time"]),
        ("narrow", "refused", ["Topic narrow of A->B is refused: no.", "Since 1970-01-01T00:16:31Z.", "Widen it."]),
        ("late", "new", ["The flow coordinator has found it just now."]),
        (
            "nowhere",
            "missing",
            ["A shows no such topic: it does not exist, or the user", "No pattern of topics matches it."],
        ),
        (
            "orders",
            "stopped",
            ["Not all of it is replicated. Partition 1: It waits for an operator at a gap: 1 expired."],
        ),
    ],
)
def test_a_topic_that_is_not_replicated_says_what_decides(topic: str, reason: str, parts: list[str]) -> None:
    found = explained(topic)
    assert found.reason == reason
    assert found.replicated is (Replicated.PARTLY if topic == "orders" else Replicated.NO)
    for part in parts:
        assert part in found.text, found.text
    assert exit_of_explanation(found) == EXIT_WAITS


def test_a_topic_that_is_replicated_says_by_which_pattern_and_by_whom() -> None:
    found = explained("payments")
    assert (found.replicated, found.reason, exit_of_explanation(found)) == (Replicated.YES, "", EXIT_DONE)
    assert found.text == (
        "It is replicated to A.payments. Pattern `payments` (entry 2 of topics) selects it. 1 partition, copied by"
        " host-1 (0). It is 10 records behind."
    )


def test_a_partition_is_judged_alone() -> None:
    assert explained("orders", 1).reason == "stopped"
    found = explained("orders", 0)
    assert found.replicated is Replicated.YES
    assert "host-2 copies it. Copied up to offset 70 of 90." in found.text
    assert "A has 2 partitions of orders, numbered from 0." in explained("orders", 2).text


def test_a_source_that_does_not_answer_makes_it_unknown_and_never_a_yes() -> None:
    found = explained("payments", source_unread=("A does not answer.",))
    assert (found.replicated, exit_of_explanation(found)) == (Replicated.UNKNOWN, EXIT_FAILED)
    assert found.text == "It is not known whether it is replicated: A does not answer."
    assert explained("nowhere", source_unread=("A does not answer.",)).replicated is Replicated.UNKNOWN
    hidden = explained("payments", hidden=frozenset({"payments"}), selected={"orders": 2})
    assert (hidden.replicated, "grant it DESCRIBE" in hidden.text) == (Replicated.UNKNOWN, True), hidden.text
    assert explained("payments", consumer_groups_unread="DESCRIBE is missing.").replicated is Replicated.YES
    assert explained("narrow", source_unread=("A does not answer.",)).reason == "refused", "what is known is said"


GROUPS = GroupFilter(["bill.*", "slow"], ["bill-x"])


def test_a_group_is_ready_or_says_what_forbids_it() -> None:
    ready = explain_group(FLOW, "billing", group_report("billing"), GROUPS, {}, "")
    assert ready.replicated is Replicated.YES
    assert ready.text == ("It can continue on B at the exact record. Pattern `bill.*` (entry 1 of groups) selects it.")
    slow = explain_group(FLOW, "slow", group_report("slow", ready=False), GROUPS, {}, "")
    assert slow.text == "It cannot continue on B: it has members on the target (Stable)."
    out = explain_group(FLOW, "bill-x", None, GROUPS, {}, "")
    assert out.text.startswith("The settings leave it out: Pattern `bill-x` (entry 1 of groups.exclude)")
    none = explain_group(FLOW, "billing", None, GROUPS, {}, "")
    assert "no commit in a topic that A->B copies" in none.text
    assert [exit_of_explanation(one) for one in (ready, slow, out, none)] == [EXIT_DONE, *[EXIT_WAITS] * 3]


def test_a_group_of_a_source_that_does_not_answer_is_not_known_to_be_ready() -> None:
    unread = "A does not answer."
    for found in (group_report("billing"), None):
        assert explain_group(FLOW, "billing", found, GROUPS, {}, unread).replicated is Replicated.UNKNOWN
    assert (
        explain_group(FLOW, "slow", group_report("slow", ready=False), GROUPS, {}, unread).replicated is Replicated.NO
    )


def test_another_group_or_a_cut_source_makes_it_unknown() -> None:
    found = explained("payments", owner_group="theirs")
    assert (found.replicated, "Group theirs runs the flow" in found.text) == (Replicated.UNKNOWN, True)
    cut = explained("payments", ends={("payments", 0): 5})
    assert (cut.replicated, "ends before its position" in cut.text) == (Replicated.UNKNOWN, True), cut.text


def test_people_read_the_flow_the_thing_the_answer_and_the_file() -> None:
    text = text_of(FLOW, explained("tmp"), "/etc/mm2.properties")
    assert text.startswith("A->B, topic tmp: It is not replicated.")
    assert "mm2py apply /etc/mm2.properties" in text


@pytest.mark.parametrize(
    "arguments",
    [
        ["f", "A->B"],
        ["f", "A->B", "--topic", "a", "--group", "g"],
        ["f", "A->B", "--partition", "orders"],
        ["f", "A->B", "--partition", "orders/x"],
        ["f", "A->B", "--partition", f"orders/{1 << 31}"],
        ["f", "A->B", "--partition", "/3"],
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"mm2py why --help"):
        parse_arguments(arguments, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--topic", "orders", "--at", "noon"], "'noon' is no time"),
        (["--topic", "orders", "--at", str(NOW_MS + 1)], "is in the future"),
        (["--group", "billing", "--at", "1h"], "the commits of groups are not recorded"),
    ],
)
def test_a_moment_that_cannot_be_asked_about_is_refused(arguments: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_arguments(["f", "A->B", *arguments], now_ms=NOW_MS)


def test_a_moment_is_a_time_or_an_age() -> None:
    found = parse_arguments(["f", "A->B", "--topic", "orders", "--at", "6h"], now_ms=NOW_MS)
    assert found.at == NOW_MS - 6 * 3_600_000
    assert parse_arguments(["f", "A->B", "--topic", "orders"], now_ms=NOW_MS).at is None


def test_a_partition_is_read_from_its_last_slash() -> None:
    assert parse_arguments(["f", "A->B", "--partition", "orders/3"], now_ms=NOW_MS).partition == ("orders", 3)


def test_rest_answers_what_the_command_prints() -> None:
    asked = client()
    found = asked.get("/v1/flows/A->B/why?topic=tmp").json()
    assert (found["replicated"], found["exit_code"], found["text"]) == ("no", 3, explained("tmp").text)
    assert asked.get("/v1/flows/A->B/why?topic=orders&partition=0").json()["replicated"] == "yes"
    assert asked.get("/v1/flows/A->B/why?group=fast").json()["asked"] == "group fast"
    for wrong in ("", "?topic=orders&group=fast", "?partition=3", "?group=fast&partition=3"):
        assert asked.get(f"/v1/flows/A->B/why{wrong}").status_code == 400, wrong
    assert asked.get("/v1/flows/X->Y/why?topic=orders").status_code == 404


def test_the_verdict_counts_what_the_rest_is_behind_without_topics_of_which_nothing_is_copied() -> None:
    flow = report_of(facts_of(flow_facts())).flows[0]
    assert [(topic.topic, topic.lag) for topic in flow.topics if topic.lag] == [
        ("orders", 30),  # one of its partitions is copied
        ("narrow", 8),
        ("late", 2),
        ("payments", 10),
    ]
    assert flow.lag == 50
    assert "at least 40 records behind" in flow.verdict.text
