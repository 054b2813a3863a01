"""Which settings of a remote topic change, and how to find out which of them the target does not want."""

from __future__ import annotations

import random

import pytest

from mm2py.topics.topic_configs import (
    ConfigChange,
    ConfigPropertyFilter,
    ConfigSource,
    TopicConfigEntry,
    Tried,
    carried_names,
    config_changes,
    remote_topic_configs,
    too_many_in_sync,
)

OWN, DEFAULT, FILE, CLUSTER = (
    ConfigSource.DYNAMIC_TOPIC,
    ConfigSource.DEFAULT,
    ConfigSource.STATIC_BROKER,
    ConfigSource.DYNAMIC_DEFAULT_BROKER,
)


def entry(value: str | None, source: int, name: str = "retention.ms", **flags: bool) -> TopicConfigEntry:
    return TopicConfigEntry(name, value, source, **flags)


@pytest.mark.parametrize(
    ("upstream", "remote", "change"),
    [
        (entry("1", OWN), entry("7", DEFAULT), (None, "1")),
        (entry("1", OWN), entry("2", OWN), ("2", "1")),
        (entry("1", OWN), entry("1", OWN), None),
        (entry("1", OWN), entry("1", DEFAULT), (None, "1")),  # equal by chance: the target's default may change
        (entry("1", OWN), entry("1", FILE), (None, "1")),
        (entry("1", CLUSTER), entry("7", DEFAULT), (None, "1")),
        (entry("1", OWN), None, (None, "1")),
        (entry("7", DEFAULT), entry("2", OWN), ("2", None)),
        (entry("7", DEFAULT), entry("9", DEFAULT), None),  # a default is no news: nothing to delete
        (entry("7", DEFAULT), None, None),  # as is a setting that only the source's brokers know
        (entry("7", FILE), entry("2", OWN), None),
        (entry("1", OWN, read_only=True), entry("2", OWN), None),
        (entry(None, OWN, sensitive=True), entry("2", OWN), None),
        (entry(None, OWN), entry("2", OWN), None),
        (entry("1", OWN, "min.insync.replicas"), entry("2", OWN, "min.insync.replicas"), None),
        (entry("1", DEFAULT, "min.insync.replicas"), entry("2", OWN, "min.insync.replicas"), None),
    ],
)
def test_only_what_differs_changes(
    upstream: TopicConfigEntry, remote: TopicConfigEntry | None, change: tuple[str | None, str | None] | None
) -> None:
    found = config_changes([upstream], [] if remote is None else [remote], ConfigPropertyFilter())
    assert [(one.name, one.old, one.new) for one in found] == ([] if change is None else [(upstream.name, *change)])


def test_a_setting_that_is_taken_back_upstream_is_taken_back_also_where_the_brokers_file_names_it() -> None:
    """The stock server.properties sets log.retention.hours, so the topic's setting falls back to the file's."""
    wanted = ConfigPropertyFilter()
    before = carried_names([entry("60000", OWN)], [], frozenset())
    now, remote = [entry("7", FILE)], [entry("60000", OWN)]
    assert config_changes(now, remote, wanted, carried=before) == [ConfigChange("retention.ms", "60000", None)]
    assert config_changes(now, remote, ConfigPropertyFilter(["retention.ms"]), carried=before) == []
    assert config_changes(now, [entry("9", FILE)], wanted, carried=before) == []
    while_refused = carried_names(now, remote, before)
    assert config_changes(now, remote, wanted, carried=while_refused) != []  # it has to be deleted yet
    by_hand = carried_names(now, [entry("9", FILE)], while_refused)
    assert config_changes(now, remote, wanted, carried=by_hand) == []  # set again on the remote topic, by somebody else


def test_defaults_of_the_source_are_written_down_where_that_is_asked_for() -> None:
    wanted = ConfigPropertyFilter(use_defaults_from="source")
    assert config_changes([entry("7", DEFAULT)], [entry("7", DEFAULT)], wanted) == [
        ConfigChange("retention.ms", None, "7")
    ]
    assert config_changes([entry("7", DEFAULT)], [entry("7", OWN)], wanted) == []


AFTER, BEFORE = "message.timestamp.after.max.ms", "message.timestamp.before.max.ms"
DIFFERENCE = "message.timestamp.difference.max.ms"
HOUR, NONE = "3600000", str(2**63 - 1)


def limits(**values: str) -> list[TopicConfigEntry]:
    """Return the limits of a topic: ``own_`` ones are set on it, the others are its cluster's defaults."""
    names = {"after": AFTER, "before": BEFORE, "difference": DIFFERENCE}
    return [
        entry(value, OWN if name.startswith("own_") else DEFAULT, names[name.removeprefix("own_")])
        for name, value in values.items()
    ]


KAFKA_3_5 = limits(difference=NONE)
KAFKA_3_9 = limits(after=NONE, before=NONE, difference=NONE)
KAFKA_4 = limits(after=HOUR, before=NONE)


@pytest.mark.parametrize(
    ("upstream", "remote", "changes"),
    [
        (KAFKA_4, KAFKA_4, {}),
        (limits(own_after="7200000", before=NONE), KAFKA_4, {AFTER: (None, "7200000")}),
        (limits(own_after="60000", own_before="5"), KAFKA_4, {}),  # stricter
        (limits(own_after="7200000", before=NONE), limits(own_after="9200000", before=NONE), {}),
        (limits(own_after="7200000", own_before="9"), limits(own_after="5", own_before="5"), {
            AFTER: ("5", "7200000"), BEFORE: ("5", "9"),
        }),
        (KAFKA_4, limits(own_after="5", before=NONE), {AFTER: ("5", HOUR)}),  # the source's default is looser
        (KAFKA_3_9, KAFKA_4, {AFTER: (None, NONE)}),
        (KAFKA_3_5, KAFKA_4, {AFTER: (None, NONE)}),
        (limits(own_difference="7200000"), KAFKA_4, {AFTER: (None, "7200000")}),
        (limits(after=NONE, before=NONE, own_difference="60000"), KAFKA_4, {}),  # up to 3.9 it comes first
        (KAFKA_4, KAFKA_3_5, {}),
        (limits(own_after="7200000", own_before="60000"), limits(own_difference="5"), {DIFFERENCE: ("5", "7200000")}),
        (limits(own_after="x", before="-1"), KAFKA_4, {}),
        ([], limits(own_after="5", own_before="5"), {}),  # the source does not tell
        (limits(own_after="9"), limits(own_after="5", own_before="5"), {AFTER: ("5", "9")}),
    ],
)  # fmt: skip
def test_a_limit_of_timestamps_is_raised_to_what_the_source_goes_by_and_never_lowered(
    upstream: list[TopicConfigEntry], remote: list[TopicConfigEntry], changes: dict[str, tuple[str | None, str]]
) -> None:
    found = config_changes(upstream, remote, ConfigPropertyFilter())
    assert {one.name: (one.old, one.new) for one in found} == changes


def test_a_limit_of_timestamps_that_the_list_names_as_a_topics_setting_is_left_alone() -> None:
    """MM2's own list names the settings of brokers, and the older limit for both."""
    upstream, remote = limits(own_after="7200000", own_before="9"), limits(own_after="5", own_before="5")
    excluded = ConfigPropertyFilter([r"message\.timestamp\.after\..*", DIFFERENCE])
    assert [one.name for one in config_changes(upstream, remote, excluded)] == [BEFORE]
    assert config_changes(upstream, limits(own_difference="5"), excluded) == [ConfigChange(DIFFERENCE, "5", "9")]
    assert config_changes(upstream, remote, ConfigPropertyFilter(["message.timestamp.*"])) == []


def test_a_change_reads_as_from_what_to_what() -> None:
    assert str(ConfigChange("a", None, "1")) == "a: (the target's default) -> 1"
    assert str(ConfigChange("a", "", None)) == "a: '' -> (the target's default)"


@pytest.mark.parametrize(
    ("value", "replicas", "refused"),
    [("2", 1, True), ("2", 2, False), ("2", -1, False), ("2", None, False), (None, 1, False), ("x", 1, False)],
)
def test_more_replicas_in_sync_than_there_are_is_refused(
    value: str | None, replicas: int | None, refused: bool
) -> None:
    assert (too_many_in_sync("min.insync.replicas", value, replicas) is not None) is refused
    assert too_many_in_sync("retention.ms", "2", 1) is None


def changes(*names: str) -> list[ConfigChange]:
    return [ConfigChange(name, None, "1") for name in names]


@pytest.mark.walk(range(4))
def test_whatever_is_refused_all_else_is_done_and_nothing_is_sent_without_end(seed: int) -> None:
    rng = random.Random(seed)
    wanted = {f"t{number}": changes(*(f"s{n:02}" for n in range(rng.randrange(12)))) for number in range(20)}
    bad = {(topic, change.name) for topic, of_topic in wanted.items() for change in of_topic if rng.random() < 0.2}
    denied = {topic for topic in wanted if rng.random() < 0.2}
    tried = Tried(wanted)
    rounds = 0
    while batch := tried.next_round():
        rounds += 1
        for topic, group in batch.items():
            if topic in denied:
                tried.give_up(topic)
            elif any((topic, change.name) in bad for change in group):
                tried.turned_down(topic, "no")
            else:
                tried.taken(topic)
    assert rounds <= 1 + 12
    for topic, of_topic in wanted.items():
        names = [change.name for change in of_topic]
        allowed = [] if topic in denied else [name for name in names if (topic, name) not in bad]
        refused = [] if topic in denied else [name for name in names if (topic, name) in bad]
        assert [change.name for change in tried.done.get(topic, [])] == allowed
        assert sorted(change.name for change, _ in tried.refused.get(topic, [])) == refused


def test_a_setting_that_fits_only_behind_a_later_one_is_taken_by_the_next_sync() -> None:
    """Compaction lags go from 200 and 100 to 20 and 10, beside a setting that the target does not know."""
    has = {"max.compaction.lag.ms": 200, "min.compaction.lag.ms": 100}
    left = [
        ConfigChange("max.compaction.lag.ms", "200", "20"),
        ConfigChange("min.compaction.lag.ms", "100", "10"),
        ConfigChange("new.unknown", None, "1"),
    ]
    for refused in (["max.compaction.lag.ms", "new.unknown"], ["new.unknown"]):
        tried = Tried({"t": left})
        while group := tried.next_round().get("t"):
            would_have = has | {change.name: int(change.new or 0) for change in group}
            if "new.unknown" in would_have or would_have["max.compaction.lag.ms"] < would_have["min.compaction.lag.ms"]:
                tried.turned_down("t", "no")
            else:
                has = would_have
                tried.taken("t")
        left = [change for change, _ in tried.refused["t"]]
        assert [change.name for change in left] == refused
    assert has == {"max.compaction.lag.ms": 20, "min.compaction.lag.ms": 10}


def test_settings_that_are_all_welcome_take_one_request() -> None:
    tried = Tried({"a": changes("x", "y", "z"), "b": changes("x"), "c": []})
    assert {topic: len(group) for topic, group in tried.next_round().items()} == {"a": 3, "b": 1}
    for topic in ("a", "b"):
        tried.taken(topic)
    assert tried.next_round() == {}


def test_the_limit_of_a_fence_is_neither_carried_over_nor_reset() -> None:
    """A fence of producers gives a topic ``max.message.bytes=1`` (``mm2py dr fence --by-size``)."""
    limit = "max.message.bytes"
    fence, other = (TopicConfigEntry(limit, value, OWN) for value in ("1", "2000000"))
    default = TopicConfigEntry(limit, "1048588", DEFAULT)
    wanted = ConfigPropertyFilter()
    assert config_changes([fence], [other], wanted) == []
    assert config_changes([fence], [default], wanted) == []
    assert config_changes([other], [fence], wanted) == []
    assert config_changes([default], [fence], wanted) == []
    assert remote_topic_configs([fence], wanted) == {}
    assert config_changes([other], [default], wanted) == [ConfigChange(limit, None, "2000000")]
