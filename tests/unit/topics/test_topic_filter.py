"""Lists of Java patterns: what they match, what is refused and how clearly, and that none of them hangs."""

from __future__ import annotations

import ast
import contextlib
import gc
import time
import tracemalloc
import weakref
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.errors import ConfigError
from mm2py.topics import filters, topic_configs
from mm2py.topics.filters import PatternList, PatternTooSlow, TopicFilter, compile_java
from mm2py.topics.topic_configs import ConfigPropertyFilter

ROOT = Path(__file__).parents[3]


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
        (("bills", "(?i:orders)"), (), "BILLS", "not included"),
        (("bills", "(?i:orders)"), (), "ORDERS", None),
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


def test_default_excluded_settings_are_those_of_kafka_4_3() -> None:
    settings = ConfigPropertyFilter()
    assert not any(settings.should_replicate(name) for name in topic_configs.DEFAULT_CONFIG_PROPERTIES_EXCLUDE)
    assert settings.should_replicate("retention.ms")
    assert settings.should_replicate("message.timestamp.after.max.ms")  # the list has its broker's name
    assert ConfigPropertyFilter(exclude=()).should_replicate("min.insync.replicas")


# Java's reading of each pattern; the same list is put to a JVM in tests/parity.
JAVA_READS = [
    (r"\d+", "٣", False),
    (r"\w+", "é", False),
    (r"\w+", "a_1", True),
    (r"\s", "\u00a0", False),
    (r".", "\x0b", True),
    (r"a$", "a", True),
    (r"a$", "a\n", False),
    (r"\p{javaLowerCase}", "a", None),
    (r"\p{IsLatin}", "a", None),
    (r"\p{Nonsense}", "a", None),
    (r"[\w.-]+", "a.b-c_d", True),
    (r"[\w-.]+", "a-.", True),
    (r"[a&b]+", "a&b", True),
    (r"a++a", "aaa", False),
    (r"a*+b", "aab", True),
    (r"(?i)straSSe", "STRAsse", True),
    (r"(?i)é", "É", False),  # ASCII only without (?u)
    (r"(?i)k", "\u212a", False),
    (r"(?i:a)b", "Ab", True),
    (r"(?i:a)b", "AB", False),
    (r"(?i)a(?-i:b)", "AB", False),
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
    # Java accepts these; mm2py does not, and says what to write instead.
    (r"a(?i)b|c", "C", None),
    (r"(?i)a(?-i)b", "AB", None),
    (r"[^\D\d]", "a", None),
    (r"\h", "\u00a0", None),
    (r"\v", "\u2028", None),
    (r"\S\H\V", "abc", None),
    (r"(?s).", "\n", None),
    (r"a$\n", "a\n", None),
    (r"a$\r\n", "a\r\n", None),
    (r"a\r$\n", "a\r\n", None),
    (r"a\Z", "a", None),
    (r"a\z", "a", None),
    (r"\p{Alpha}+", "abcXYZ", None),
    (r"\p{Alpha}", "é", None),
    (r"\p{IsAlphabetic}", "é", None),
    (r"\p{L}\p{Lu}\P{Lu}\pN", "aAa1", None),
    (r"\p{gc=Lu}", "A", None),
    (r"\p{IsLu}", "A", None),
    (r"\p{Punct}+", "._-$", None),
    (r"\p{XDigit}+", "09afAF", None),
    (r"[a-z&&[^aeiou]]+", "xyz", None),
    (r"[a-z&&def]", "d", None),
    (r"[a[bc]]+", "abc", None),
    (r"[^a-c&&b]", "b", None),
    (r"[]a]+", "]a", None),
    (r"[[:alpha:]]+", "alpha:", None),
    (r"[[:alpha:]]", "z", None),
    (r"[\Q^]\E]+", "^]", None),
    (r"(?>a|ab)c", "abc", None),
    (r"(?:a|ab){2}+c", "abac", None),
    (r"\Qa.b*\E+", "a.b**", None),
    (r"\Qa.b\E", "axb", None),
    (r"\Qa|b", "a|b", None),
    (r"(?<name>a|b)-(?<other>c)", "b-c", None),
    (r"\x41\x{1F600}\u0042\0103\t", "A\U0001f600BC\t", None),
    (r"\cA", "\x01", None),
    (r"\e\a\f", "\x1b\x07\x0c", None),
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
        (["a", "b", r"x\p{IsGreek}"], r"(entry 3 of 3), character 2: \p{..} is not supported; list the characters"),
        (["a", "[a-z&&[^b]]"], r"(entry 2 of 2), character 1: this character class is not closed or not supported"),
        (["a", "[a-z&&b]"], r"(entry 2 of 2), character 5: '&&' in a character class is ambiguous"),
        (["[z-a]"], r"(entry 1 of 1), character 5: the pattern cannot be compiled (bad character range)"),
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
    for pattern in ("(" * 10_000, "(?:" * 60 + "a" + ")" * 60):
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


@given(st.text(max_size=30))
def test_no_text_makes_the_parser_fail_otherwise_than_by_refusing(pattern: str) -> None:
    with contextlib.suppress(ConfigError, PatternTooSlow):
        PatternList("topics", [pattern]).matches("orders")


@given(st.lists(st.sampled_from(list("()[]{}|*+?.^$\\-&:=!<>QEpd1,a")), max_size=14).map("".join))
def test_no_syntax_makes_the_parser_fail_otherwise_than_by_refusing(pattern: str) -> None:
    with contextlib.suppress(ConfigError, PatternTooSlow):
        PatternList("topics", [pattern]).matches("aa")


NESTED_PLUS = "(?:" * 48 + "a" + "+)+" + ")+" * 47
"""Each ``+`` around another doubles what is built, and no count stands in it."""


@pytest.mark.parametrize(
    "entries",
    [
        ["(?:a{3000}){3000}"],  # 17 characters took 36 s and 2,350 MB
        [NESTED_PLUS],
        ["(?:" * 14 + "a" + "){2}" * 14],  # 2,000 MB
        ["(?:" * 20 + "a" + "){1,}" * 20],
        ["(?:(?:a|b){200}|[a-z]{900}){1000}"],
        ["(?i:" * 10 + "[a-z]" + "){9}" * 10],
        ["(?:a{9000}){9}"] * 1 + [f"(?:a{{9000}}){{9}}{number}" for number in range(9)],  # each alone would do
        ["a" * 300_001],
        [f"orders-{number:06d}" for number in range(30_000)],
        ["()" * 20_000],  # 21 s
        ["(a|b)" * 59_990],  # 6 s
    ],
)
def test_what_would_cost_seconds_or_gigabytes_is_refused_before_it_is_compiled(
    entries: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters.regex, "compile", lambda *_: pytest.fail("it was compiled"))
    start = time.process_time()
    with pytest.raises(ConfigError) as refused:
        PatternList("topics", entries)
    assert time.process_time() - start < 2
    assert refused.value.what.startswith("topics: pattern '") and f"of {len(entries)})" in refused.value.what
    assert "smaller counts, or fewer and shorter entries" in refused.value.remedy
    assert any(limit in refused.value.what for limit in ("300,000", "1,000 empty groups"))
    assert len(str(refused.value)) < 500


def test_lists_that_nobody_has_any_more_take_little_memory() -> None:
    """The story: each list that was tried over REST, or written by a stranger, stayed compiled for ever."""
    lists = [f"(?:(a|b){{{180 + number}}}){{60}}" for number in range(24)]
    assert all(filters.check(entry) > filters.CACHED_SIZE_MAX / 3 for entry in lists)
    kept = [weakref.ref(PatternList("topics", [entry])._pattern) for entry in lists]
    gc.collect()
    assert sum(pattern() is not None for pattern in kept) <= 3
    assert compile_java("orders-.*") is compile_java("orders-.*"), "small ones are not compiled again"


NAMES = [f"team-{number % 40:02d}.orders-of-the-customers.v{number:04d}.events-of-today" for number in range(5_000)]
PATTERNS = [rf"team-{number}\.(?:orders|bills)-[a-z0-9]{{1,40}}.*" for number in range(2_000)]


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param(NAMES, marks=pytest.mark.slow, id="names"),
        pytest.param(PATTERNS, marks=pytest.mark.slow, id="patterns"),
        pytest.param([*NAMES[:300], *PATTERNS[:100]], id="some of both"),
        ["[a-z]{1,249}", "[a-z]{10000}", "(?:[a-z]{3}-){10}x"],
        [r"(?:[a-z]+\.)+orders", "(?:a+b+)+"],
    ],
)
def test_lists_of_realistic_size_pass_and_their_memory_is_small(entries: list[str]) -> None:
    tracemalloc.start()
    try:
        topics = PatternList("topics", entries)
        assert tracemalloc.get_traced_memory()[1] < 256 << 20
    finally:
        tracemalloc.stop()
    assert not topics.matches("none-of-them!")


def test_nothing_but_the_filters_compiles_a_pattern_that_is_not_written_in_the_source() -> None:
    """One place bounds patterns from outside. Elsewhere a pattern is a text of the source, or is escaped."""
    compiles = {"compile", "match", "fullmatch", "search", "findall", "finditer", "split", "sub", "subn"}
    escaped = {"mm2py/shared_settings/flow_owner.py", "mm2py/kafka/producer/fencing.py", "mm2py/topics/names.py"}
    found = set()
    for path in [path for package in ("mm2py", "connectors", "rest") for path in (ROOT / package).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="re" | "regex"), attr=name), args=[first, *_]):
                    if name in compiles and not isinstance(first, ast.Constant | ast.JoinedStr):
                        found.add(str(path.relative_to(ROOT)))
    assert found == {*escaped, "mm2py/topics/filters.py"}
