"""Lists of Java patterns: what they match, what is refused and how clearly, and that none of them hangs."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.errors import ConfigError
from mm2py.topics import filters
from mm2py.topics.filters import ConfigPropertyFilter, GroupFilter, PatternList, PatternTooSlow, TopicFilter


@pytest.mark.parametrize(
    ("include", "exclude", "name", "why_not"),
    [
        ((".*",), (), "orders", None),
        ((), (), "orders", "not included"),
        ((), (), "", "not included"),
        (("orders", "bills"), (), "orders", None),
        (("orders", "bills"), (), "bills", None),
        (("orders", "bills"), (), "orders2", "not included"),  # the whole name must match
        (("orders", "bills"), (), "my-bills", "not included"),
        (("orders.*",), ("orders-tmp.*",), "orders-tmp-1", "excluded"),  # exclude wins
        ((".*",), (".*",), "orders", "excluded"),
        (("a",), (".*",), "b", "not included"),
        (("a.b",), (), "axb", None),  # a dot in a literal name is a regex dot
        (("^orders$",), (), "orders", None),
        (("a|b", "c"), (), "c", None),
        (("test-topic-.*",), (), "test-topic-1", None),
        (("(?i)orders", "bills"), (), "BILLS", None),  # joined before compiling: flags reach later entries
        (("bills", "(?i)orders"), (), "BILLS", "not included"),
    ],
)
def test_include_must_match_the_whole_name_and_exclude_must_not(
    include: tuple[str, ...], exclude: tuple[str, ...], name: str, why_not: str | None
) -> None:
    topics = TopicFilter(include, exclude)
    assert topics.why_not(name) == why_not
    assert topics.should_replicate(name) is (why_not is None)
    assert topics.should_replicate(name) is (why_not is None)  # and again, as remembered


@pytest.mark.parametrize(
    ("name", "passes"),
    [
        ("orders", True),
        ("heartbeats", True),
        ("x.internal", True),
        ("mm2-offset-syncs.B.internal", False),
        ("mm2-offset-syncs_B_internal", True),
        ("orders.replica", False),
        ("__consumer_offsets", False),
        ("_schemas", True),
    ],
)
def test_default_topic_lists_are_those_of_kafka_4_3(name: str, passes: bool) -> None:
    assert TopicFilter().should_replicate(name) is passes


@pytest.mark.parametrize(
    ("group", "passes"),
    [("billing", True), ("console-consumer-7", False), ("connect-sink", False), ("__x", False), ("my connect-x", True)],
)
def test_default_group_lists_are_those_of_kafka_4_3(group: str, passes: bool) -> None:
    assert GroupFilter().should_replicate(group) is passes


def test_default_excluded_settings_are_those_of_kafka_4_3() -> None:
    settings = ConfigPropertyFilter()
    assert not any(settings.should_replicate(name) for name in filters.DEFAULT_CONFIG_PROPERTIES_EXCLUDE)
    assert settings.should_replicate("retention.ms")
    assert not settings.should_replicate("message.timestamp.after.max.ms")  # which it means by its broker's name
    assert ConfigPropertyFilter(exclude=()).should_replicate("min.insync.replicas")


# Java's reading of each pattern; the same list is put to a JVM in tests/parity.
JAVA_READS = [
    (r"\d+", "٣", False),
    (r"\w+", "é", False),
    (r"\w+", "a_1", True),
    (r"\s", "\u00a0", False),
    (r"\h", "\u00a0", True),
    (r"\v", "\u2028", True),
    (r"\S\H\V", "abc", True),
    (r".", "\r", False),
    (r".", "\u0085", False),
    (r".", "\x0b", True),
    (r"(?s).", "\n", True),
    (r"a$", "a", True),
    (r"a$\n", "a\n", True),
    (r"a$\r\n", "a\r\n", True),
    (r"a$", "a\n", False),
    (r"a\r$\n", "a\r\n", False),  # no line ends between the two
    (r"a\Z", "a", True),
    (r"a\z", "a", True),
    (r"\p{Alpha}+", "abcXYZ", True),
    (r"\p{Alpha}", "é", False),
    (r"\p{IsAlphabetic}", "é", True),
    (r"\p{L}\p{Lu}\P{Lu}\pN", "aAa1", True),
    (r"\p{gc=Lu}", "A", True),
    (r"\p{IsLu}", "A", True),
    (r"\p{Punct}+", "._-$", True),
    (r"\p{XDigit}+", "09afAF", True),
    (r"\p{javaLowerCase}", "a", None),
    (r"\p{IsLatin}", "a", None),
    (r"\p{Nonsense}", "a", None),
    (r"[a-z&&[^aeiou]]+", "xyz", True),
    (r"[a-z&&[^aeiou]]+", "xyza", False),
    (r"[a-z&&def]", "d", True),
    (r"[a-z&&def]", "a", False),
    (r"[a[bc]]+", "abc", True),
    (r"[^a-c&&b]", "b", False),
    (r"[^a-c&&b]", "a", True),
    (r"[]a]+", "]a", True),
    (r"[\w.-]+", "a.b-c_d", True),
    (r"[\w-.]+", "a-.", True),
    (r"[[:alpha:]]+", "alpha:", True),  # Java has no such class: a nested one of letters and colon
    (r"[[:alpha:]]", "z", False),
    (r"[a&b]+", "a&b", True),
    (r"[\Q^]\E]+", "^]", True),
    (r"a++a", "aaa", False),
    (r"a*+b", "aab", True),
    (r"(?>a|ab)c", "abc", False),
    (r"(?:a|ab){2}+c", "abac", False),  # each round of a possessive group keeps its first way
    (r"\Qa.b*\E+", "a.b**", True),
    (r"\Qa.b\E", "axb", False),
    (r"\Qa|b", "a|b", True),
    (r"(?<name>a|b)-(?<other>c)", "b-c", True),
    (r"(?i)straSSe", "STRAsse", True),
    (r"(?i)é", "É", False),  # ASCII only without (?u)
    (r"(?i)k", "\u212a", False),
    (r"(?i:a)b", "Ab", True),
    (r"(?i:a)b", "AB", False),
    (r"(?i)a(?-i)b", "AB", False),
    (r"a(?i)b|c", "C", True),
    (r"\x41\x{1F600}\u0042\0103\t", "A\U0001f600BC\t", True),
    (r"\cA", "\x01", True),
    (r"\e\a\f", "\x1b\x07\x0c", True),
    (r"\-\_\.\ ", "-_. ", True),
    (r"x{2}y{1,}z{0,2}", "xxyzz", True),
    (r"a{2}?b", "aab", True),
    (r"a}]", "a}]", True),
    (r"(?=.*prod)(?!.*test).*", "a-prod", True),
    (r"(?=.*prod)(?!.*test).*", "test-prod", False),
    (r".*(?<!-tmp)", "orders-tmp", False),
    (r".*(?<!-tmp)", "orders", True),
    (r".*(?<=-(?:eu|us)).*", "a-eu", True),
    (r".*\bprod\b.*", "a.prod-1", True),
    (r".*\bprod\b.*", "aprod", False),
    (r"|a", "", True),
    (r"()", "", True),
    # Refused by both, or by mm2py for want of an exact counterpart.
    (r"a**", "a", None),
    (r"*a", "a", None),
    (r"a{2", "aa", None),
    (r"a{,2}", "aa", None),
    (r"{2}", "", None),
    (r"a{2}{3}", "aaaaaa", None),
    (r"a{3,2}", "a", None),
    (r"(a", "a", None),
    (r"a)", "a", None),
    (r"[a", "a", None),
    (r"[", "[", None),
    (r"[z-a]", "a", None),
    (r"[a&&]", "a", None),
    (r"[a-z&&^b]", "a", None),
    (r"[x&&[a]&b]", "a", None),
    ("a\\", "a", None),
    (r"\y", "y", None),
    (r"\E", "E", None),
    (r"\x4", "x", None),
    (r"\ud83d", "x", None),
    (r"(a)\1", "aa", None),
    (r"(?<n>a)\k<n>", "aa", None),
    (r"(?:\b.*?){2}", "ab", None),
    (r"(?<=a+)b", "b", None),
    (r"(?<=a*)b", "b", None),
    (r"(?<n>a)(?<n>b)", "ab", None),
    (r"(?<1>a)", "a", None),
    (r"\k<n>", "a", None),
    (r"(?x)a b", "ab", None),
    (r"(?m)^a", "a", None),
    (r"(?u)a", "a", None),
    (r"(?U)\w", "é", None),
    (r"(?d).", "\r", None),
    (r"(?#comment)a", "a", None),
    (r"(?P<n>a)", "a", None),
    (r"(?i)\p{Lower}", "A", None),
    (r"\R", "\n", None),
    (r"\X", "a", None),
    (r"\N{DIGIT ONE}", "1", None),
    (r"a{99999}", "a", None),
]


@pytest.mark.parametrize(("pattern", "name", "matches"), JAVA_READS)
def test_patterns_mean_what_they_mean_in_java_or_are_refused(pattern: str, name: str, matches: bool | None) -> None:
    if matches is None:
        with pytest.raises(ConfigError):
            PatternList("topics", [pattern])
    else:
        assert PatternList("topics", [pattern]).matches(name) is matches


@pytest.mark.parametrize(
    ("entries", "where"),
    [
        (["orders", "bi[lls"], r"topics: pattern 'bi[lls' (entry 2 of 2), character 3:"),
        (["[", "orders"], r"topics: pattern '[' (entry 1 of 2), character 1:"),
        (["orders", "a**", "b"], r"topics: pattern 'a**' (entry 2 of 3), character 3:"),
        (["a", "b", r"\p{IsAlphabetic}\p{IsGreek}"], r"(entry 3 of 3), character 17: the property 'IsGreek'"),
        (["a{1", "3}"], r"topics: pattern 'a{1' (entry 1 of 2), character 2:"),  # a{1,3} as a list reads it
        (["(a", "b"], r"topics: pattern '(a' (entry 1 of 2), character 1: a group is not closed"),
        (["a", "b)"], r"topics: pattern 'b)' (entry 2 of 2), character 2:"),
    ],
)
def test_one_bad_pattern_is_named_with_its_place(entries: list[str], where: str) -> None:
    with pytest.raises(ConfigError) as refused:
        PatternList("topics", entries)
    assert where in str(refused.value)


@pytest.mark.parametrize("entries", [["a", ""], ["", "a"], [""]])
def test_empty_entry_is_refused_as_since_kafka_4_2(entries: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"topics\.exclude: entry \d is empty"):
        PatternList("topics.exclude", entries)


def test_repeated_entry_counts_once() -> None:
    assert PatternList("topics", ["a", "b", "a"]).entries == ("a", "b")


def test_deep_nesting_is_refused_before_it_can_exhaust_the_stack() -> None:
    for pattern in ("(" * 10_000, "[" * 10_000, "(?:" * 60 + "a" + ")" * 60):
        with pytest.raises(ConfigError, match="more than"):
            PatternList("topics", [pattern])


@pytest.mark.parametrize("pattern", ["(a+)+$", "(?:[a-z0-9]+[-.]?)+-prod", r"(?:\w+\.?)*z", "(.*)*x", "(a?){60}a{60}"])
def test_patterns_that_hang_backtracking_engines_answer_at_once(pattern: str) -> None:
    topics = PatternList("topics", [pattern])
    start = time.process_time()
    assert not topics.matches("a" * 248 + "!")
    assert time.process_time() - start < 0.5


def test_pattern_that_finds_no_answer_stops_the_list_and_names_it() -> None:
    topics = TopicFilter(["(a|aa)+"], ())
    assert topics.should_replicate("aaa")
    start = time.process_time()
    with pytest.raises(PatternTooSlow, match=r"whether 'aaaa.*!' matches"):
        topics.should_replicate("a" * 200 + "!")
    for number in range(1_000):  # a thousand topics do not wait a thousand times
        with pytest.raises(PatternTooSlow):
            topics.should_replicate("a" * 200 + f"!{number}")
    assert time.process_time() - start < 3 * filters.SLOW_NAMES_MOST * filters.MATCH_TIMEOUT_S


@pytest.mark.parametrize(
    ("choose", "class_name", "ours"),
    [
        (filters.topic_filter_class, "org.apache.kafka.connect.mirror.DefaultTopicFilter", TopicFilter),
        (filters.topic_filter_class, "DefaultTopicFilter", TopicFilter),
        (filters.group_filter_class, "org.apache.kafka.connect.mirror.DefaultGroupFilter", GroupFilter),
        (
            filters.config_property_filter_class,
            "org.apache.kafka.connect.mirror.DefaultConfigPropertyFilter",
            ConfigPropertyFilter,
        ),
    ],
)
def test_java_filter_classes_stand_for_ours(choose, class_name: str, ours: type) -> None:  # type: ignore[no-untyped-def]
    assert choose(class_name) is ours
    with pytest.raises(ConfigError, match=r"filter\.class"):
        choose("com.example.MyFilter")


@given(st.text("ab._-", min_size=1, max_size=10), st.text("ab._-", max_size=10))
def test_quoted_name_matches_itself_alone(name: str, other: str) -> None:
    quoted = PatternList("topics", [rf"\Q{name}\E"])
    assert quoted.matches(name)
    assert quoted.matches(other) is (other == name)


@given(st.text(max_size=30))
def test_no_text_makes_the_parser_fail_otherwise_than_by_refusing(pattern: str) -> None:
    with contextlib.suppress(ConfigError, PatternTooSlow):
        PatternList("topics", [pattern]).matches("orders")


@given(st.lists(st.sampled_from(list("()[]{}|*+?.^$\\-&:=!<>QEpd1,a")), max_size=14).map("".join))
def test_no_syntax_makes_the_parser_fail_otherwise_than_by_refusing(pattern: str) -> None:
    with contextlib.suppress(ConfigError, PatternTooSlow):
        PatternList("topics", [pattern]).matches("aa")
