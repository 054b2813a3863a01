"""Policies, filters and patterns beside MirrorMaker 2's own classes and java.util.regex, in one JVM."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

from mm2py.errors import ConfigError
from mm2py.flow import ClusterAlias, TopicName
from mm2py.topics import filters, topic_configs
from mm2py.topics.filters import NotTranslatable, TopicFilter, WhyNot, compile_java, should_replicate
from mm2py.topics.names import ReplicationPolicy, is_own_topic, make_policy
from mm2py.topics.topic_configs import (
    TIMESTAMP_LIMITS,
    ConfigPropertyFilter,
    ConfigSource,
    TopicConfigEntry,
    remote_topic_configs,
)
from tests.unit.topics.test_topic_filter import JAVA_READS

MIRROR = "org.apache.kafka.connect.mirror."
ALIASES = [ClusterAlias("source"), ClusterAlias("target"), ClusterAlias("A")]
SEPARATORS = [None, ".", "_", "-", "__", "..", ".-", "X"]

# ---------------------------------------------------------------------------------------------------- patterns

NAMES = sorted(
    {
        *("", "a", "b", "aa", "ab", "ba", "aab", "aba", "abb", "abab", "aaaa", "aaab", "abaab", "ababab", "aaaaaaaab"),
        *(
            "A",
            "aB",
            "c",
            "0",
            "1",
            "9",
            ".",
            "_",
            "-",
            "&",
            "^",
            "[",
            "]",
            "{",
            "}",
            "*",
            "a.b",
            "a_b",
            "a-b",
            "a]",
            "1a",
        ),
        *(
            "orders",
            "A.orders",
            "mm2-status.A.internal",
            "a b",
            "\t",
            " ",
            "\x0b",
        ),
        *("\u3000", "\u212a", "\u017f", "\U0001f600", "a\U0001f600b"),
        *("é", "É", "ß", "İ", "Ä"),
    }
)
# Up to Java 18 a word boundary counts letters of every alphabet, later ASCII only; we follow the later ones.
NAMES_WITHOUT_FOREIGN_LETTERS = [name for name in NAMES if name.isascii() or not any(map(str.isalpha, name))]


def java_matches(jvm: JavaGateway, pattern: str, names: Iterable[str]) -> set[str] | None:
    """Return the names that the pattern matches in full in Java, None if Java refuses the pattern."""
    names = list(names)
    try:
        predicate = jvm.jvm.java.util.regex.Pattern.compile(pattern).asMatchPredicate()
    except Py4JJavaError:
        return None
    left = jvm.jvm.java.util.ArrayList()
    for number, name in enumerate(names):
        left.add(number, name)
    left.removeIf(predicate)
    return set(names) - set(left)


class Matcher:
    """Asks Java about the same names again and again, without sending them each time."""

    def __init__(self, jvm: JavaGateway, names: list[str]) -> None:
        self._java = jvm.jvm
        self._names = set(names)
        self._all = jvm.jvm.java.util.ArrayList()
        for name in names:
            self._all.append(name)

    def matches(self, pattern: str) -> set[str] | None:
        try:
            predicate = self._java.java.util.regex.Pattern.compile(pattern).asMatchPredicate()
        except Py4JJavaError:
            return None
        left = self._java.java.util.ArrayList(self._all)
        left.removeIf(predicate)
        left.append("end")
        return self._names - set(self._java.java.lang.String.join("\0", left).split("\0")[:-1])


def ours(pattern: str, names: Iterable[str]) -> set[str] | None:
    try:
        compiled = compile_java(pattern)
    except NotTranslatable:
        return None
    return {name for name in names if compiled.fullmatch(name, timeout=1)}


@pytest.mark.parametrize(("pattern", "name", "matches"), JAVA_READS)
def test_java_reads_each_listed_pattern_as_the_unit_test_claims(
    jvm: JavaGateway, pattern: str, name: str, matches: bool | None
) -> None:
    in_java = java_matches(jvm, pattern, [name])
    if matches is not None:
        assert in_java == ({name} if matches else set())


def random_class(rng: random.Random) -> str:
    out = "[" + rng.choice(["", "", "^"])
    for _ in range(rng.randint(1, 4)):
        kind = rng.random()
        if kind < 0.35:
            out += rng.choice("abcAB019._-&^]")
        elif kind < 0.55:
            out += rng.choice(["a-c", "A-C", "0-5", "_-b", "a-", "-", r"\-", r"\]", r"\[", "&", "[", "^"])
        else:
            out += rng.choice([r"\d", r"\w", r"\s", r"\D", r"\-", r"\.", "&&", "[a]"])
    return out + "]"


ATOMS = ["a", "b", "a", "b", "c", "A", "1", "-", "_", r"\.", "ab", "aa", "}", "]", ".", r"\d", r"\w", r"\W", r"\S"]
ANCHORS = ["^", "$", r"\b", r"\B"]
GROUPS = ["({})", "({})", "(?:{})", "(?:{})", "(?={})", "(?!{})", "(?<={})", "(?<!{})"]
GROUPS += ["(?i:{})", "(?-i:{})"]
TIMES = ["*", "+", "?", "{2}", "{1,2}", "{0,3}", "{2,}", "{0}", "{1}", "{0,1}"]
SYNTAX = [
    "\\",
    "[",
    "]",
    "(",
    ")",
    "*",
    "+",
    "?",
    "{",
    "}",
    "|",
    "&&",
    "^",
    "$",
    "-",
    r"\Q",
    r"\E",
    "(?",
    "a",
    "1",
    ",",
]


def random_item(rng: random.Random, depth: int) -> str:
    kind = rng.random()
    if kind < 0.5:
        item = rng.choice(ATOMS)
    elif kind < 0.57:
        item = random_class(rng)
    elif kind < 0.63:
        item = rng.choice(ANCHORS)
    elif kind < 0.92 and depth < 3:
        item = rng.choice(GROUPS).replace("{}", random_pattern(rng, depth + 1))
    else:
        item = rng.choice("ab")
    return item + (rng.choice(TIMES) + rng.choice(["", "", "?", "+"]) if rng.random() < 0.4 else "")


def random_pattern(rng: random.Random, depth: int = 0) -> str:
    branches = range(rng.choice([1, 1, 2, 2, 3]))
    return "|".join("".join(random_item(rng, depth) for _ in range(rng.choice([0, 1, 2, 2, 3]))) for _ in branches)


def broken(rng: random.Random, pattern: str) -> str:
    at = rng.randrange(len(pattern) + 1)
    return pattern[:at] + rng.choice(SYNTAX) + pattern[at + rng.randint(0, 1) :]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("make", [random_pattern, random_class])
def test_random_patterns_match_what_they_match_in_java_or_are_refused(
    jvm: JavaGateway, make: Callable[[random.Random], str], seed: int
) -> None:
    rng = random.Random(seed)
    java, plain_java = Matcher(jvm, NAMES), Matcher(jvm, NAMES_WITHOUT_FOREIGN_LETTERS)
    compared = 0
    for _ in range(600):
        pattern = rng.choice(["", "", "", "(?i)"]) + make(rng)
        if rng.random() < 0.1:
            pattern = broken(rng, pattern)
        names = NAMES_WITHOUT_FOREIGN_LETTERS if r"\b" in pattern.lower() else NAMES
        try:
            found = ours(pattern, names)
        except TimeoutError:
            continue
        if found is not None:
            expected = (java if names is NAMES else plain_java).matches(pattern)
            assert expected is not None, f"Java refuses {pattern!r}, we do not"
            assert found == expected, f"{pattern!r} means something else in Java"
            compared += 1
    assert compared > 150


# ---------------------------------------------------------------------------------------------------- policies


def java_map(jvm: JavaGateway, settings: Mapping[str, str]) -> Any:
    made = jvm.jvm.java.util.HashMap()
    for key, value in settings.items():
        made[key] = value
    return made


def java_policy(jvm: JavaGateway, kind: str, alias: str, separator: str | None, enabled: bool | None) -> Any:
    settings = {"source.cluster.alias": alias}
    if separator is not None:
        settings["replication.policy.separator"] = separator
    if enabled is not None:
        settings["replication.policy.internal.topic.separator.enabled"] = str(enabled).lower()
    policy = getattr(jvm.jvm.org.apache.kafka.connect.mirror, f"{kind}ReplicationPolicy")()
    policy.configure(java_map(jvm, settings))
    return policy


def our_policy(kind: str, alias: str, separator: str | None, enabled: bool | None) -> ReplicationPolicy:
    return make_policy(
        f"{MIRROR}{kind}ReplicationPolicy",
        source_alias=ClusterAlias(alias),
        separator=separator,
        internal_separator_enabled=enabled,
    )


PIECES = [
    "A",
    "B",
    "us-west",
    "heartbeats",
    "checkpoints",
    "internal",
    "mm2",
    "mm2-offset-syncs",
    "mm2-offsets",
    "orders",
]
PIECES += ["", "x", "foo-heartbeats", "__x"]


def random_topics(rng: random.Random, separator: str, count: int) -> list[str]:
    joins = [separator, separator, ".", "_", "-", ""]
    topics = {"", separator, separator * 2, f"a{separator}", f"{separator}a", f"a{separator * 2}", "heartbeats"}
    while len(topics) < count:
        pieces = rng.choices(PIECES, k=rng.randint(1, 4))
        topics.add("".join(piece + rng.choice(joins) for piece in pieces[:-1]) + pieces[-1])
    return sorted(topics)


@pytest.mark.parametrize("enabled", [None, True, False])
@pytest.mark.parametrize("separator", SEPARATORS)
@pytest.mark.parametrize("kind", ["Default", "Identity"])
def test_policies_say_of_every_name_what_mm2s_say(
    jvm: JavaGateway, kind: str, separator: str | None, enabled: bool | None
) -> None:
    alias = "A"
    java = java_policy(jvm, kind, alias, separator, enabled)
    policy = our_policy(kind, alias, separator, enabled)
    assert policy.heartbeats_topic() == java.heartbeatsTopic()
    assert policy.offset_syncs_topic(ClusterAlias("B")) == java.offsetSyncsTopic("B")
    assert policy.checkpoints_topic(ClusterAlias("B")) == java.checkpointsTopic("B")
    for text in random_topics(random.Random(f"{kind}{separator}{enabled}"), separator or ".", 60):
        topic = TopicName(text)
        assert {
            "formatRemoteTopic": policy.format_remote_topic(ClusterAlias("B"), topic),
            "topicSource": policy.topic_source(topic),
            "upstreamTopic": policy.upstream_topic(topic),
            "originalTopic": policy.original_topic(topic),
            "isHeartbeatsTopic": policy.is_heartbeats_topic(topic),
            "isCheckpointsTopic": policy.is_checkpoints_topic(topic),
            "isMM2InternalTopic": policy.is_mm2_internal_topic(topic),
            "isInternalTopic": policy.is_internal_topic(topic),
        } == {
            "formatRemoteTopic": java.formatRemoteTopic("B", text),
            "topicSource": java.topicSource(text),
            "upstreamTopic": java.upstreamTopic(text),
            "originalTopic": java.originalTopic(text),
            "isHeartbeatsTopic": java.isHeartbeatsTopic(text),
            "isCheckpointsTopic": java.isCheckpointsTopic(text),
            "isMM2InternalTopic": java.isMM2InternalTopic(text),
            "isInternalTopic": java.isInternalTopic(text),
        }, text


# ---------------------------------------------------------------------------------------------------- filters


@pytest.mark.parametrize(
    ("java_class", "field", "ours_is"),
    [
        ("DefaultTopicFilter", "TOPICS_INCLUDE_DEFAULT", filters.DEFAULT_TOPICS),
        ("DefaultTopicFilter", "TOPICS_EXCLUDE_DEFAULT", filters.DEFAULT_TOPICS_EXCLUDE),
        (
            "DefaultConfigPropertyFilter",
            "CONFIG_PROPERTIES_EXCLUDE_DEFAULT",
            topic_configs.DEFAULT_CONFIG_PROPERTIES_EXCLUDE,
        ),
    ],
)
def test_default_lists_are_mm2s(jvm: JavaGateway, java_class: str, field: str, ours_is: tuple[str, ...]) -> None:
    value = getattr(getattr(jvm.jvm.org.apache.kafka.connect.mirror, java_class), field)
    assert tuple(entry.strip() for entry in value.split(",")) == ours_is


TOPICS = [
    "orders",
    "orders2",
    "my-bills",
    "bills",
    "mm2-x.internal",
    "x.replica",
    "__x",
    "heartbeats",
    "A.orders",
    "a1",
    "",
]


INCLUDES = [None, "", "orders", "orders,bills", "(?i)ORDERS,BILLS", r"\w+", "a**", ".*", "a{1,2}"]
EXCLUDES = [None, "", "orders", r"orders,.*\.replica", "[", "orders,orders", "a,,b"]


@pytest.mark.parametrize(("include", "exclude"), list(itertools.product(INCLUDES, EXCLUDES)))
def test_filters_let_pass_and_refuse_what_mm2s_do(jvm: JavaGateway, include: str | None, exclude: str | None) -> None:
    mirror = jvm.jvm.org.apache.kafka.connect.mirror
    java = mirror.DefaultTopicFilter()
    texts = {"topics": include, "topics.exclude": exclude}
    java_passes: list[str] | None = None
    with contextlib.suppress(Py4JJavaError):
        java.configure(java_map(jvm, {name: text for name, text in texts.items() if text is not None}))
        java_passes = [name for name in TOPICS if java.shouldReplicateTopic(name)]

    def entries(text: str) -> list[str]:
        return [entry.strip() for entry in text.split(",")] if text else []

    arguments = {
        name: entries(text)
        for name, text in zip(("include", "exclude"), texts.values(), strict=True)
        if text is not None
    }
    passes: list[str] | None = None
    with contextlib.suppress(ConfigError):
        made = TopicFilter(**arguments)
        passes = [name for name in TOPICS if made.should_replicate(name)]
    assert passes == java_passes


def reflected(jvm: JavaGateway, class_name: str, find: str, name: str, parameters: int) -> Any:
    """Return a constructor or method of a class that only its own package may call, made callable."""
    cls = jvm.jvm.java.lang.Class.forName(f"{MIRROR}{class_name}")
    for found in getattr(cls, find)():
        if found.getName().endswith(name) and found.getParameterCount() == parameters:
            found.setAccessible(True)
            return found
    raise AssertionError(f"{class_name} has no {name} with {parameters} parameters")


def java_objects(jvm: JavaGateway, *values: object) -> Any:
    array = jvm.new_array(jvm.jvm.java.lang.Object, len(values))
    for number, value in enumerate(values):
        array[number] = value
    return array


def source_connector(
    jvm: JavaGateway, policy: Any, topic_filter: Any, config_filter: Any, heartbeats_replication: bool
) -> Any:
    constructor = reflected(jvm, "MirrorSourceConnector", "getDeclaredConstructors", "MirrorSourceConnector", 5)
    flow = jvm.jvm.org.apache.kafka.connect.mirror.SourceAndTarget("A", "target")
    return constructor.newInstance(java_objects(jvm, flow, policy, topic_filter, config_filter, heartbeats_replication))


@pytest.mark.parametrize("heartbeats_replication", [True, False])
@pytest.mark.parametrize("include", [".*", ".*s|target.*", ""])
@pytest.mark.parametrize("separator", [None, "_", "__"])
@pytest.mark.parametrize("kind", ["Default", "Identity"])
def test_source_connector_copies_the_same_topics_but_for_our_own(
    jvm: JavaGateway, kind: str, separator: str | None, include: str, heartbeats_replication: bool
) -> None:
    mirror = jvm.jvm.org.apache.kafka.connect.mirror
    java_filter = mirror.DefaultTopicFilter()
    java_filter.configure(java_map(jvm, {"topics": include}))
    connector = source_connector(
        jvm,
        java_policy(jvm, kind, "A", separator, None),
        java_filter,
        mirror.DefaultConfigPropertyFilter(),
        heartbeats_replication,
    )
    method = reflected(jvm, "MirrorSourceConnector", "getDeclaredMethods", "shouldReplicateTopic", 1)
    policy = our_policy(kind, "A", separator, None)
    topic_filter = TopicFilter([include] if include else [])
    rng = random.Random(f"{kind}{separator}{include}{heartbeats_replication}")
    joint = separator or "."
    topics = random_topics(rng, joint, 40)
    topics += [f"target{joint}{topic}" for topic in topics[::4]] + [
        f"B{joint}target{joint}x",
        f"target{joint}heartbeats",
    ]
    for topic in topics:
        decision = should_replicate(
            TopicName(topic),
            policy=policy,
            topic_filter=topic_filter,
            heartbeats_replication=heartbeats_replication,
            target_alias=ClusterAlias("target"),
            aliases=ALIASES,
        )
        if is_own_topic(topic, separators=[joint], aliases=ALIASES):
            assert decision.why_not is WhyNot.OWN_TOPIC
        else:
            assert decision.replicate is method.invoke(connector, java_objects(jvm, topic)), topic


@pytest.mark.parametrize("use_defaults_from", ["target", "source", "else"])
def test_remote_topics_are_created_with_the_settings_mm2_would_use(jvm: JavaGateway, use_defaults_from: str) -> None:
    mirror, admin = jvm.jvm.org.apache.kafka.connect.mirror, jvm.jvm.org.apache.kafka.clients.admin
    java_sources = {
        ConfigSource.DYNAMIC_TOPIC: "DYNAMIC_TOPIC_CONFIG",
        ConfigSource.DYNAMIC_BROKER: "DYNAMIC_BROKER_CONFIG",
        ConfigSource.DYNAMIC_DEFAULT_BROKER: "DYNAMIC_DEFAULT_BROKER_CONFIG",
        ConfigSource.STATIC_BROKER: "STATIC_BROKER_CONFIG",
        ConfigSource.DEFAULT: "DEFAULT_CONFIG",
        ConfigSource.UNKNOWN: "UNKNOWN",
    }
    names = [
        "retention.ms",
        "min.insync.replicas",
        "message.timestamp.after.max.ms",
        "log.message.timestamp.after.max.ms",
    ]
    entries = [
        TopicConfigEntry(name, f"{name}-{source}-{read_only}-{sensitive}", source, read_only, sensitive)
        for name in names
        for source in java_sources
        for read_only in (False, True)
        for sensitive in (False, True)
    ]
    config_filter = mirror.DefaultConfigPropertyFilter()
    config_filter.configure(java_map(jvm, {"use.defaults.from": use_defaults_from}))
    connector = source_connector(jvm, java_policy(jvm, "Default", "A", None, None), None, config_filter, True)
    target_config = reflected(jvm, "MirrorSourceConnector", "getDeclaredMethods", "targetConfig", 2)
    settings = ConfigPropertyFilter(use_defaults_from=use_defaults_from)
    config_type = admin.ConfigEntry.ConfigType.STRING
    for entry in entries:
        source = getattr(admin.ConfigEntry.ConfigSource, java_sources[ConfigSource(entry.source)])
        java_entries = jvm.jvm.java.util.ArrayList()
        java_entries.append(
            admin.ConfigEntry(
                *(entry.name, entry.value, source, entry.sensitive, entry.read_only),
                *(jvm.jvm.java.util.ArrayList(), config_type, ""),
            )
        )
        kept = target_config.invoke(connector, java_objects(jvm, admin.Config(java_entries), False)).entries()
        expected = {one.name(): one.value() for one in jvm.jvm.java.util.ArrayList(kept)}
        if entry.name in TIMESTAMP_LIMITS:
            expected = {}  # only a looser one is carried over, when the remote topic is there to compare with
        assert remote_topic_configs([entry], settings) == expected, entry
