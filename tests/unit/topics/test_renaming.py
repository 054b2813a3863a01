"""Rules that give topics other names on the target, and the policy that follows them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.errors import ConfigError
from mm2py.flow import ClusterAlias, TopicName, parse_flow
from mm2py.offsets.checkpoint_rule import remote_topic_of, upstream_topic_of
from mm2py.topics.acls import Operation, Pattern, Permission, TopicAcl, plan_acls
from mm2py.topics.filters import PatternTooSlow, is_cycle
from mm2py.topics.names import DefaultReplicationPolicy, IdentityReplicationPolicy, pairs_in_turns, rings
from mm2py.topics.renaming import UNDECIDED_NAME, RenameRules, RenamingPolicy, renaming, with_rules
from mm2py.topics.reverse_flows import NameOrigin, ReverseFlow, origin_of

A, B = map(ClusterAlias, "AB")
A_B, B_A = parse_flow("A->B"), parse_flow("B->A")
RULES = (r"orders -> sales.orders", r"(.*)\.v1 -> $1", r"(?i)log-([a-z]+)-([0-9]+) -> $2.$1")
IDENTITY = IdentityReplicationPolicy(source_alias=A)


def renamed(policy: DefaultReplicationPolicy, *rules: str, alias: ClusterAlias = A) -> RenamingPolicy:
    found = with_rules(policy, alias, rules or RULES, "ABC")
    assert isinstance(found, RenamingPolicy)
    return found


@pytest.mark.parametrize(
    ("topic", "identity", "default"),
    [
        ("orders", "sales.orders", "A.sales.orders"),
        ("payments", "payments", "A.payments"),
        ("payments.v1", "payments", "A.payments"),
        ("orders.v1", "orders", "A.orders"),
        ("xorders", "xorders", "A.xorders"),
        ("LOG-Web-7", "7.Web", "A.7.Web"),
        ("heartbeats", "A.heartbeats", "A.heartbeats"),
        ("C.heartbeats", "A.C.heartbeats", "A.C.heartbeats"),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_gives_the_new_one(topic: str, identity: str, default: str) -> None:
    assert renamed(IDENTITY).format_remote_topic(A, TopicName(topic)) == identity
    assert renamed(DefaultReplicationPolicy()).format_remote_topic(A, TopicName(topic)) == default


def test_a_dot_in_a_name_is_a_dot_and_in_a_pattern_any_character() -> None:
    policy = renamed(IDENTITY, "a.b -> x", "(?:c.d) -> y")
    assert [policy.format_remote_topic(A, TopicName(name)) for name in ("a.b", "a-b", "c.d", "c-d")] == [
        "x",
        "a-b",
        "y",
        "y",
    ]


def test_groups_are_read_as_java_reads_them() -> None:
    rules = RenameRules(["(a)(b)?c -> $0-$13.$2x", "(d+?)(.*) -> $01", "(?:e|ef) -> g"])
    new = [(rules.applied(name) or (None, None))[1] for name in ("abc", "ac", "ddd", "ef")]
    # $13 is group 1 and the text 3, for there is no group 13; group 2 of "ac" matches nothing. replaceFirst finds "e".
    assert new == ["abc-a3.bx", "ac-a3.x", "d", "gf"]


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("orders", "is no rule"),
        ("orders -> ", "is no rule"),
        ("a -> b -> c", "is no rule"),
        ("orders -> $1", "is no name of a topic"),
        ("orders -> a/b", "is no name of a topic"),
        ("(.*)x -> $2", "has 1 group"),
        ("(.*)x -> ${name}", "neither part of a topic's name"),
        ("(.*)x -> \\$1", "neither part of a topic's name"),
        ("(?<n>.*)x -> y", "named group"),
        ("(a -> y", "not closed"),
    ],
)
def test_what_is_no_rule_is_refused_with_its_place(rule: str, why: str) -> None:
    with pytest.raises(ConfigError, match=r"^topics\.rename: .*") as refused:
        RenameRules([rule])
    assert why in str(refused.value)


def test_rules_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="orders gets that name, too"):
        RenameRules(["orders -> x", "payments -> x"])
    with pytest.raises(ConfigError, match="an earlier rule is for the same topics"):
        RenameRules(["orders -> x", "orders -> y"])
    with pytest.raises(ConfigError, match="too large"):
        RenameRules([f"(?:{'a' * 150_000}){number} -> x{number}" for number in range(3)])


def test_a_topic_that_takes_too_long_is_undecided_and_has_no_possible_name() -> None:
    policy = renamed(IDENTITY, "(?:a|aa)+b -> x")
    slow = TopicName("a" * 200)
    with pytest.raises(PatternTooSlow, match=r"topics\.rename"):
        policy.rule_of(slow)
    assert policy.format_remote_topic(A, slow) == f"{slow}{UNDECIDED_NAME}"
    assert policy.format_remote_topic(A, TopicName("aab")) == "x"


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("orders -> heartbeats", "heartbeats topic's"),
        ("orders -> __consumer_offsets", "internal topic's"),
        ("orders -> mm2-offsets.A.internal", "internal topic's"),
        ("orders -> mm2-ledger.A.internal", "internal topic's"),
        ("orders -> A.checkpoints.internal", "internal topic's"),
        ("orders -> sales", None),
    ],
)
def test_no_rule_leads_into_a_topic_that_is_needed_for_something_else(rule: str, why: str | None) -> None:
    problem = renamed(IDENTITY, rule).name_problem(TopicName("orders"))
    assert problem is None if why is None else problem is not None and why in problem


def test_rules_are_for_one_flow_and_not_for_names_of_others() -> None:
    policy = renamed(DefaultReplicationPolicy())
    assert policy.format_remote_topic(B, TopicName("orders")) == "B.orders"
    assert policy.format_remote_topic(A, TopicName("C.payments.v1")) == "A.C.payments.v1"  # a copy keeps its hops
    assert policy.format_remote_topic(A, TopicName("team.payments.v1")) == "A.team.payments"


def test_a_renamed_topic_that_comes_back_is_a_cycle() -> None:
    there = renamed(DefaultReplicationPolicy())
    back = renamed(DefaultReplicationPolicy(), "sales.orders -> x", alias=B)
    remote = there.format_remote_topic(A, TopicName("orders"))
    for policy in (DefaultReplicationPolicy(), back):
        assert is_cycle(remote, policy, target_alias=A)
    onward = renamed(DefaultReplicationPolicy(), ".*orders -> y", alias=B)
    assert onward.format_remote_topic(B, remote) == "B.A.sales.orders"  # also over a third cluster
    assert is_cycle(TopicName("B.A.sales.orders"), DefaultReplicationPolicy(), target_alias=A)


def test_two_identity_flows_are_a_ring_if_a_new_name_may_come_back() -> None:
    policies = {A_B: renamed(IDENTITY, "orders -> sales.orders"), B_A: IdentityReplicationPolicy(source_alias=B)}
    assert rings(policies, {A_B: ["orders"], B_A: ["payments"]}) == {}
    assert set(rings(policies, {A_B: ["orders", "sales.*"], B_A: ["sales.*"]})) == {A_B, B_A}
    policies[B_A] = renamed(policies[B_A], "sales.orders -> orders", alias=B)
    assert set(rings(policies, {A_B: ["orders"], B_A: ["sales.orders"]})) == {A_B, B_A}


def test_flows_that_rename_do_not_take_turns() -> None:
    topics = {A_B: ["orders"], B_A: ["orders"]}
    plain = {A_B: IDENTITY, B_A: IdentityReplicationPolicy(source_alias=B)}
    assert pairs_in_turns(plain, topics, [B_A]) == {A_B: B_A, B_A: A_B}
    assert pairs_in_turns({**plain, A_B: renamed(IDENTITY)}, topics, [B_A]) == {}


@pytest.mark.parametrize("policy", [IDENTITY, DefaultReplicationPolicy()])
def test_the_way_back_is_known_from_the_topics_that_are_copied(policy: DefaultReplicationPolicy) -> None:
    rules = renamed(policy)
    known = ["payments.v1", "orders", "users", "orders.v1"]
    for topic in known:
        remote = remote_topic_of(TopicName(topic), rules, A_B)
        assert upstream_topic_of(remote, rules, A_B, known) == topic
    assert upstream_topic_of(rules.format_remote_topic(A, TopicName("new.v1")), rules, A_B, known) is None


def test_rules_without_patterns_are_undone_by_themselves() -> None:
    rules = renamed(IDENTITY, "orders -> sales.orders")
    assert rules.upstream_among(TopicName("sales.orders"), []) == "orders"
    assert rules.upstream_among(TopicName("users"), []) == "users"
    assert rules.upstream_among(TopicName("orders"), []) is None  # no topic has a copy of that name
    assert renamed(IDENTITY).upstream_among(TopicName("payments"), []) is None  # payments, or payments.v1


TOPICS = st.lists(st.from_regex(r"[a-c]{1,3}(\.v1)?", fullmatch=True), unique=True, max_size=8)


@given(TOPICS)
def test_topics_with_different_remote_names_are_told_apart(topics: list[str]) -> None:
    rules = renamed(DefaultReplicationPolicy(), "a -> b.c", r"(.*)\.v1 -> $1")
    by_remote: dict[TopicName, str] = {}
    for topic in topics:
        by_remote.setdefault(rules.format_remote_topic(A, TopicName(topic)), topic)
    for remote, topic in by_remote.items():
        assert upstream_topic_of(remote, rules, A_B, by_remote.values()) == topic


def test_an_acl_follows_its_topic_to_the_new_name_and_a_denied_prefix_each_copy() -> None:
    rules = renamed(DefaultReplicationPolicy())

    def acl(name: str, permission: Permission, pattern: Pattern = Pattern.LITERAL) -> TopicAcl:
        return TopicAcl(name, pattern, "User:ann", "*", Operation.READ, permission)

    found = plan_acls(
        [
            acl("orders", Permission.ALLOW),
            acl("ord", Permission.DENY, Pattern.PREFIXED),
            acl("*", Permission.DENY),
        ],
        policy=rules,
        source_alias=A,
        replicates=lambda _: True,
        topics=["orders", "orders.v1", "users"],
        kept=["order-book"],
    )
    assert sorted((one.name, one.pattern, one.permission) for one in found.wanted) == [
        ("A.", Pattern.PREFIXED, Permission.DENY),
        ("A.order-book", Pattern.LITERAL, Permission.DENY),
        ("A.orders", Pattern.LITERAL, Permission.DENY),
        ("A.sales.orders", Pattern.LITERAL, Permission.DENY),
        ("A.sales.orders", Pattern.LITERAL, Permission.ALLOW),
    ]


def test_a_reverse_flow_that_renames_is_known_by_its_positions() -> None:
    reverse = ReverseFlow(B_A, "", renamed(IdentityReplicationPolicy(source_alias=B), alias=B), None)
    assert reverse.origins(["orders", "users"]) == {"sales.orders": "orders", "users": "users"}
    assert origin_of("sales.orders", reverse) is NameOrigin.UNKNOWN
    by_prefix = ReverseFlow(B_A, "", renamed(DefaultReplicationPolicy(), alias=B), None)
    assert origin_of("B.sales.orders", by_prefix) is NameOrigin.COPY


def test_an_application_makes_the_policy_with_the_text_of_its_flows_file() -> None:
    policy = renaming(DefaultReplicationPolicy(), "A", r"orders -> sales.orders, (.*)\.v1 -> $1", aliases="ABC")
    assert policy == renamed(DefaultReplicationPolicy(), *RULES[:2])
    assert policy != renamed(DefaultReplicationPolicy())
