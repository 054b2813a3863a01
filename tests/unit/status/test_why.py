"""Why is it not replicated: the rule or the setting that decides, in a sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mm2py.cli.why import parse_arguments, text_of
from mm2py.config.origins import SettingOrigin
from mm2py.errors import ConfigError
from mm2py.kafka.consumer_groups import ListedGroup
from mm2py.records.control_record import Beat, Entry, MemberId
from mm2py.records.flow_waits import FlowWaits, Wait
from mm2py.records.source_offset import StoredPosition
from mm2py.status.consumer_groups import ConsumerGroupReport
from mm2py.status.exit_codes import EXIT_DONE, EXIT_FAILED, EXIT_WAITS, exit_of_explanation
from mm2py.status.report import report_of
from mm2py.status.why import Explanation, Replicated, TopicDetails, explain_switched_off, explain_topic
from mm2py.status.why_group import GroupOnSource, explain_group
from tests.fakes.v1_services import FILE, FLOW, STORED, W1, W2, client, facts_of, flow_facts, group_report, group_state
from tests.fakes.v1_services import NOW_MS as V1_NOW_MS
from tests.scenarios.world import flow_settings

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
            [
                "Pattern `tmp` (entry 1 of topics.exclude)",
                "set topics.exclude in FILE without this pattern, then: mm2py apply FILE",
            ],
        ),
        (
            "audit",
            "not-included",
            ["No pattern of topics matches it.", "add it to topics in FILE, then: mm2py apply FILE"],
        ),
        ("__consumer_offsets", "internal", ["No setting changes that."]),
        ("B.orders", "cycle", ["Its name says that its records have been on the target."]),
        ("mm2-offsets.B.internal", "own-topic", ["mm2py keeps its own state in it."]),
        ("aaaa", "undecided", ["finds no answer in time"]),
        ("narrow", "refused", ["Topic narrow of A->B is refused: no.", "Since 1970-01-01T00:16:31Z.", "Widen it."]),
        ("late", "new", ["The flow coordinator has found it just now."]),
        (
            "nowhere",
            "missing",
            ["A has no topic of this name.", "No pattern of topics matches it."],
        ),
        (
            "orders",
            "stopped",
            ["Not all of it is replicated. Partition 1: Copying has stopped at a gap (expired): the source has"],
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


def about_group(
    group: str,
    found: ConsumerGroupReport | None,
    on_source: GroupOnSource | None = None,
    unread: str = "",
    **extra: Any,
) -> Explanation:
    settings = flow_settings(
        (*FILE, ("groups", "bill.*,slow"), ("groups.exclude", "bill-x"), ("sync.group.offsets.enabled", "true"))
    )
    facts = flow_facts(settings=settings, **extra)
    return explain_group(facts, report_of(facts_of(facts)).flows[0], group, found, on_source, unread)


def test_a_group_is_ready_or_says_what_forbids_it() -> None:
    ready = about_group("billing", group_report("billing"))
    assert ready.replicated is Replicated.YES
    assert ready.text.startswith(
        "It can continue on B at the exact record. Pattern `bill.*` (entry 1 of groups) selects it. But orders is not"
        " copied: Copying has stopped at a gap"
    ), ready.text
    assert "But it does not follow any more: No worker emits its checkpoints." in ready.text
    slow = about_group("slow", replace(group_report("slow", ready=False), state_on_target="Stable"))
    assert slow.text == (
        "It cannot continue on B: it has members on the target (Stable). Stop its consumers on B, and leave them to A."
    )
    out = about_group("bill-x", None)
    assert out.text.startswith("The settings leave it out: Pattern `bill-x` (entry 1 of groups.exclude)")
    assert [exit_of_explanation(one) for one in (ready, slow, out)] == [EXIT_DONE, *[EXIT_WAITS] * 2]


def test_a_group_that_also_reads_what_is_not_copied_continues_in_part() -> None:
    """billing read payments as well, which no pattern selects: "It can continue on B", exit code 0."""
    found = about_group("billing", replace(group_report("billing"), left_out=("audit", "tmp")))
    assert (found.replicated, exit_of_explanation(found)) == (Replicated.PARTLY, EXIT_WAITS)
    assert (found.reason, found.remedy) == ("not-included", "See mm2py why FILE 'A->B' --topic audit")
    assert found.text.startswith(
        "It can continue on B at the exact record. It also has commits in topics that A->B does not copy: audit,"
        " tmp. audit: No pattern of topics"
    ), found.text
    busy = about_group("billing", replace(group_report("billing", ready=False), left_out=("audit",)))
    assert (busy.replicated, [str(one.reason) for one in busy.others]) == (Replicated.NO, ["not-included"])
    back = about_group("billing", replace(group_report("billing"), left_out=("B.orders",)))
    assert (back.replicated, back.reason) == (Replicated.PARTLY, "cycle")
    assert "B.orders: Its name says that its records have been on the target." in back.text


CONSUMERS = ListedGroup("billing", "consumer", "Empty")


@pytest.mark.parametrize(
    ("on_source", "text"),
    [
        (None, "It has no commit in a topic that A->B copies."),
        (GroupOnSource(None), "A has no such group"),
        (GroupOnSource(CONSUMERS), "It has committed nothing on A that mm2py may see."),
        (GroupOnSource(replace(CONSUMERS, protocol_type="connect")), "It is a group of type connect"),
        (GroupOnSource(CONSUMERS, refused="DESCRIBE is missing."), "cannot be read: DESCRIBE is missing."),
        (
            GroupOnSource(CONSUMERS, frozenset({"tmp", "x", "y", "z"})),
            "does not copy: tmp, x, y and 1 more. tmp: Pattern `tmp` (entry 1 of topics.exclude)",
        ),
    ],
)
def test_a_group_without_a_commit_in_what_is_copied_says_what_it_has(on_source: GroupOnSource, text: str) -> None:
    found = about_group("billing", None, on_source)
    assert text in found.text and exit_of_explanation(found) == EXIT_WAITS, found.text


def test_a_group_that_waits_in_a_topic_that_is_not_copied_is_told_why_that_is_not() -> None:
    report = group_report("billing", ready=False)
    waiting = replace(report, state_on_target="", why="orders-1: it has read further than what is copied")
    waiting = replace(waiting, partitions=(replace(report.partitions[0], waits_for="it has read further"),))
    found = about_group("billing", waiting)
    assert "orders is not copied: Copying has stopped at a gap (expired)" in found.text, found.text
    assert "mm2py gaps FILE accept 'A->B:orders'" in found.remedy, found.remedy


def test_a_group_of_a_source_that_does_not_answer_is_not_known_to_be_ready() -> None:
    unread = "A does not answer."
    for found in (group_report("billing"), None):
        assert about_group("billing", found, None, unread).replicated is Replicated.UNKNOWN
    assert about_group("slow", group_report("slow", ready=False), None, unread).replicated is Replicated.NO
    assert about_group("billing", group_report("billing"), owner_group="theirs").replicated is Replicated.UNKNOWN


def test_a_flow_that_emits_no_checkpoints_replicates_no_group() -> None:
    settings = flow_settings((*FILE, ("emit.checkpoints.enabled", "false")))
    facts = flow_facts(settings=settings, stored=replace(STORED, properties={"emit.checkpoints.enabled": "false"}))
    found = explain_group(facts, report_of(facts_of(facts)).flows[0], "billing", None, None, "")
    assert (found.replicated, found.reason) == (Replicated.NO, "switched-off")
    assert "A->B emits no checkpoints, by emit.checkpoints.enabled." in found.text, found.text


def test_records_in_quarantine_and_lost_ones_are_never_called_replicated() -> None:
    kept = TopicDetails(quarantined={0: 2})
    facts = flow_facts(gaps=())
    report = report_of(facts_of(facts)).flows[0]
    for partition in (None, 0):
        found = explain_topic(facts, report, "payments", partition, NAMES, kept)
        assert (found.replicated, found.reason) == (Replicated.PARTLY, "record-refused"), found.text
        assert "2 records that B has refused are in quarantine" in found.text, found.text
        assert "mm2py replay FILE 'A->B:payments' --append" in found.text, found.text
    unread = explain_topic(facts, report, "payments", 0, NAMES, TopicDetails(quarantine_unread="It was refused."))
    assert unread.replicated is Replicated.YES, "the flow puts nothing there now"
    assert "records may be in quarantine: It was refused." in unread.text, unread.text
    assert "But 1 stretch of its records could not be copied" in explained("orders", 0).text


def test_a_quarantine_that_cannot_be_read_leaves_it_unknown_if_the_flow_puts_records_there() -> None:
    """Records may be missing in the copy; it was called replicated, with a note."""
    facts = flow_facts(settings=flow_settings((*FILE, ("on.poison.record", "quarantine"))))
    report = report_of(facts_of(facts)).flows[0]
    found = explain_topic(facts, report, "payments", 0, NAMES, TopicDetails(quarantine_unread="It was refused."))
    assert (found.replicated, exit_of_explanation(found)) == (Replicated.UNKNOWN, EXIT_FAILED)
    assert found.text == (
        "It is not known whether it is replicated: records may be in mm2-quarantine.A.internal, which could not be read"
        " (that needs DESCRIBE and READ): It was refused."
    )
    assert explain_topic(facts, report, "payments", 0, NAMES).replicated is Replicated.YES


def test_a_worker_that_cannot_store_what_it_does_not_copy_leaves_it_unknown() -> None:
    """The verdict did not call such a flow safe, and ``mm2py why`` called each of its topics replicated."""

    def asked(member: MemberId, topic: str, partition: int | None = None) -> Explanation:
        state = group_state()
        beat = Beat(member, {FLOW: 4}, troubles={FLOW: "READ is missing."})
        state.take(Entry(state.next_offset, V1_NOW_MS, beat))
        facts = flow_facts(gaps=())
        report = report_of(facts_of(facts, state=state)).flows[0]
        return explain_topic(facts, report, topic, partition, NAMES)

    found = asked(W2, "orders", 0)
    assert (found.replicated, exit_of_explanation(found)) == (Replicated.UNKNOWN, EXIT_FAILED)
    assert found.text == (
        "It is not known whether it is replicated: host-2 cannot store which topics are not copied, and why."
        " READ is missing."
    )
    assert asked(W2, "payments").replicated is Replicated.YES, "the other worker copies it"
    assert asked(W1, "orders").replicated is Replicated.UNKNOWN, "the flow coordinator tells what is refused"
    assert asked(W1, "tmp").reason == "excluded"


@pytest.mark.parametrize("partition", [None, 0])
def test_what_is_behind_is_told_with_what_limits_the_flow(partition: int | None) -> None:
    """5,000,000 records behind because of a quota, and the answer named no cause."""

    def asked(waits: FlowWaits, topic: str = "payments", **extra: Any) -> Explanation:
        state = group_state()
        state.take(Entry(state.next_offset, V1_NOW_MS, Beat(W1, {FLOW: 4}, waits={FLOW: waits})))
        state.take(Entry(state.next_offset, V1_NOW_MS, Beat(W2, {FLOW: 4}, waits={FLOW: FlowWaits()})))
        facts = flow_facts(gaps=(), **extra)
        return explain_topic(facts, report_of(facts_of(facts, state=state)).flows[0], topic, partition, NAMES)

    slow = FlowWaits(1, {Wait.RATE: 90}, bytes_per_s=1_000_000)
    found = asked(slow)
    assert (found.replicated, found.reason, exit_of_explanation(found)) == (Replicated.YES, "", EXIT_DONE)
    limit = "What limits the flow: bytes.per.second.max delays reads of host-0000000a 90 % of the time, 1.0 MB/s."
    remedy = "Raise bytes.per.second.max of A->B, or leave it out."
    assert f"{limit} {remedy}" in found.text, found.text
    assert found.remedy == remedy
    for other in (asked(FlowWaits()), asked(FlowWaits(1)), asked(slow, ends={("payments", 0): 90})):
        assert (other.replicated, other.remedy) == (Replicated.YES, "")
        assert "What limits" not in other.text, other.text
    keeps_up = {("payments", 0): StoredPosition(90, next_target=90, moved_ms=V1_NOW_MS)}
    assert "What limits" not in asked(slow, positions=keeps_up).text, "another topic is behind"


def test_a_topic_that_the_source_does_not_show_is_named_with_the_rule_and_what_is_known_of_it() -> None:
    facts = flow_facts()
    report = report_of(facts_of(facts)).flows[0]
    hidden = explain_topic(facts, report, "nowhere", None, NAMES, TopicDetails(is_hidden=True))
    assert hidden.reason == "source-denied" and "Grant DESCRIBE and READ on nowhere on A." in hidden.text, hidden.text
    assert "It is an internal topic" in explained("__transaction_state").text
    positions = {("past", 0): StoredPosition(70, next_target=68)}
    copy, slip = explained("A.payments"), explained("paymets")
    assert "Ask for its topic: mm2py why FILE 'A->B' --topic payments" in copy.text, copy.text
    assert "Do you mean payments?" in slip.text, slip.text
    gone = explained("past", positions=positions, gaps=())
    assert gone.reason == "gone" and "The source does not have it any more." in gone.text, gone.text


def test_a_topic_that_two_lists_leave_out_is_told_both() -> None:
    settings = flow_settings((*FILE, ("topics.exclude", "tmp,audit.*")))
    found = explained("audit", settings=settings)
    assert "No pattern of topics matches it. Pattern `audit.*` (entry 2 of topics.exclude) matches it as well." in (
        found.text
    )
    assert "add it to topics in FILE, and set topics.exclude without that pattern, then: mm2py apply" in found.text


def test_a_file_that_is_not_applied_yet_is_named_as_the_way() -> None:
    found = explained("tmp", file={"topics": "orders", "topics.exclude": "none"})
    assert "FILE has another topics.exclude, which is not applied yet: mm2py plan FILE shows it." in found.text, (
        found.text
    )


def test_a_flow_that_is_switched_off_says_who_has_stored_that_and_when() -> None:
    on = replace(STORED, version=2, at_ms=1)
    off = replace(STORED, properties={"enabled": "false"}, version=3, at_ms=61_000, previous=on)
    found = explained("payments", stored=replace(off, version=4, at_ms=99_000, previous=off))
    assert "enabled is false, stored as version 3 by rest. Since 1970-01-01T00:01:01Z." in found.text, found.text


def test_a_flow_that_the_file_switches_off_is_not_replicated_unless_its_workers_run_it() -> None:
    origin = SettingOrigin("A->B.enabled", "mm2.properties line 7")
    found = explain_switched_off("topic orders", origin, replace(STORED, properties={"enabled": "false"}))
    assert "The flow is switched off: A->B.enabled is false (mm2.properties line 7)." in found.text, found.text
    assert (found.replicated, found.reason) == (Replicated.NO, "switched-off")
    on = explain_switched_off("topic orders", origin, STORED)
    assert on.replicated is Replicated.UNKNOWN and "(version 4)" in on.text, on.text


def test_another_group_or_a_cut_source_makes_it_unknown() -> None:
    found = explained("payments", owner_group="theirs")
    assert (found.replicated, "Group theirs runs the flow" in found.text) == (Replicated.UNKNOWN, True)
    cut = explained("payments", ends={("payments", 0): 5})
    assert (cut.replicated, "ends before the position up to which it was copied" in cut.text) == (
        Replicated.UNKNOWN,
        True,
    ), cut.text


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
    kept = asked.get("/v1/flows/A->B/why?topic=orders&partition=0").json()
    assert (kept["replicated"], kept["reason"]) == ("partly", "record-refused"), "it is in quarantine"
    assert asked.get("/v1/flows/A->B/why?topic=hidden").json()["reason"] == "source-denied"
    assert asked.get("/v1/flows/A->B/why?topic=payments&partition=0").json()["replicated"] == "yes"
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
    assert "at least 30 records behind" in flow.verdict.text, "payments, and what is copied of orders"
