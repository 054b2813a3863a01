"""Whose settings a flow runs by: what is stored, or a worker's file; and how far a changed one reaches."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py import __version__
from mm2py.config.flow_part import FlowPart
from mm2py.config.flow_properties import stored_keys
from mm2py.config.row import Status
from mm2py.records.connector_config import FLOW_KEY, SOURCE_KEY, ConfigRecords, DecidedBy, FlowConfig, encode_flow
from mm2py.shared_settings.flow_config import (
    DECIDED_MOST,
    SEEN_MOST,
    Change,
    Follow,
    Keep,
    Restore,
    StartChoice,
    StartDecision,
    behind,
    changed,
    counting,
    decide,
    depends_on_runners,
    difference,
    digest,
    follow,
    named,
    reach,
    remembering,
    swapped,
    winner_of,
)

FILE = {"enabled": "true", "topics": "a"}
OTHER = {"enabled": "true", "topics": "b", "bytes.per.second.max": "9"}
DIFFERENCE = (Change("bytes.per.second.max", "9", None), Change("topics", "b", "a"))


def stored(properties: dict[str, str], by: DecidedBy = DecidedBy.FILE, **more: object) -> FlowConfig:
    config = replace(changed(None, properties, by), version=7, write_id="w7", worker="w1", at_ms=1)
    return replace(config, **more)  # type: ignore[arg-type]


# --- beginning --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runners", [(), ("w2",)])
def test_a_flow_that_nobody_knows_is_added(runners: tuple[str, ...]) -> None:
    decision = decide(None, FILE, runners=runners)
    assert decision.choice is StartChoice.ADDED
    assert (decision.config.properties, decision.config.by, decision.config.version) == (FILE, "file", 1)
    assert decision.config.previous is None


@pytest.mark.parametrize("properties", [FILE, OTHER])
@pytest.mark.parametrize("runners", [(), ("w2",)])
def test_what_mirrormaker_2_wrote_is_replaced(properties: dict[str, str], runners: tuple[str, ...]) -> None:
    config = FlowConfig(properties, DecidedBy.MM2, 0)
    decision = decide(config, FILE, runners=runners)
    assert decision.choice is StartChoice.REPLACED
    assert decision.difference == (() if properties == FILE else DIFFERENCE)
    assert (decision.config.properties, decision.config.by, decision.config.version) == (FILE, "file", 1)
    assert decision.config.previous == config, "for mm2py apply --previous"
    assert "MirrorMaker 2" in decision.why


def test_what_mirrormaker_2_wrote_over_what_others_run_gives_way_to_theirs() -> None:
    """A second MirrorMaker 2 was started by mistake: our workers store theirs again, and a newcomer joins."""
    theirs = stored(OTHER, previous=stored({"topics": "older"}))
    config = FlowConfig({"topics": "java"}, DecidedBy.MM2, 0, previous=theirs)
    assert decide(config, FILE, runners=["w2"]) == StartDecision(StartChoice.DRIFTED, theirs, DIFFERENCE)
    assert decide(config, OTHER, runners=["w2"]) == StartDecision(StartChoice.USED, theirs)
    assert decide(config, FILE, runners=()).choice is StartChoice.REPLACED
    assert decide(config, FILE, runners=["w2"], apply=True).choice is StartChoice.REPLACED
    news = follow(theirs, config)
    assert isinstance(news, Restore) and news.config == replace(theirs, version=8)


def test_what_nobody_alive_runs_is_replaced_and_kept_as_the_previous_one() -> None:
    config = stored(OTHER, previous=stored({"topics": "older"}))
    decision = decide(config, FILE, runners=())
    assert decision.choice is StartChoice.REPLACED
    assert decision.difference == DIFFERENCE
    assert (decision.config.version, decision.config.by) == (8, "file")
    assert decision.config.previous == replace(config, previous=None, seen=()), (
        "one step back, no more, and what files were seen then is of no use"
    )


@pytest.mark.parametrize("by", [DecidedBy.APPLY, DecidedBy.REST])
def test_what_an_operator_changed_last_is_not_replaced_by_an_unchanged_file(by: DecidedBy) -> None:
    """The file was stored first; then the operator changed something, and all workers were stopped."""
    config = changed(stored(FILE), OTHER, by)
    assert decide(config, FILE, runners=()) == StartDecision(StartChoice.KEPT, config, DIFFERENCE)
    again = changed(config, {"topics": "c"}, by)
    assert decide(again, FILE, runners=()).choice in {StartChoice.USED, StartChoice.KEPT}, (
        "a second change forgets no file"
    )


@pytest.mark.parametrize("by", [DecidedBy.APPLY, DecidedBy.REST])
def test_a_file_that_has_changed_since_replaces_it(by: DecidedBy) -> None:
    config = changed(stored(FILE), OTHER, by)
    decision = decide(config, {"topics": "new"}, runners=())
    assert decision.choice is StartChoice.REPLACED
    assert decision.config.seen == (digest({"topics": "new"}),), "what was seen before counts as changed from now on"
    assert decide(replace(decision.config, by=by), FILE, runners=()).choice is StartChoice.REPLACED, (
        "also when it is the old one"
    )


def test_a_file_that_drifted_before_an_operator_changed_something_is_an_unchanged_one_too() -> None:
    drift = decide(stored({"topics": "c"}), FILE, runners=["w2"])
    assert drift.choice is StartChoice.DRIFTED and drift.to_store is not None
    config = changed(drift.to_store, OTHER, DecidedBy.REST)
    assert decide(config, FILE, runners=()).choice in {StartChoice.USED, StartChoice.KEPT}


def test_what_a_worker_stored_gives_way_to_a_file_although_that_is_as_it_was() -> None:
    """It drifted while others ran the flow; now it comes alone, and nobody has decided otherwise."""
    drift = decide(stored(OTHER), FILE, runners=["w2"])
    assert drift.choice is StartChoice.DRIFTED and drift.to_store is not None
    assert decide(drift.to_store, FILE, runners=()).choice is StartChoice.REPLACED


@pytest.mark.parametrize("by", [DecidedBy.FILE, DecidedBy.APPLY, DecidedBy.REST])
def test_while_others_run_a_flow_a_different_file_is_drift(by: DecidedBy) -> None:
    config = stored(OTHER, by)
    decision = decide(config, FILE, runners=["w2"])
    assert decision.choice is StartChoice.DRIFTED
    assert (decision.config, decision.difference) == (config, DIFFERENCE)
    assert decision.to_store == remembering(config, FILE)
    assert decision.to_store is not None
    assert (decision.to_store.properties, decision.to_store.version) == (config.properties, config.version)
    assert decide(decision.to_store, FILE, runners=["w2"]) == StartDecision(
        StartChoice.DRIFTED, decision.to_store, DIFFERENCE
    ), "it is noted once"


def test_who_lost_against_another_beginner_runs_as_that_one_does() -> None:
    """Both begin at once with different files; nobody has seen the other one alive yet."""
    winner = stored(OTHER)
    assert decide(winner, FILE, runners=(), lost_to=winner).choice is StartChoice.DRIFTED
    assert decide(winner, FILE, runners=(), lost_to=replace(winner, write_id="w6")).choice is StartChoice.REPLACED


@pytest.mark.parametrize("runners", [(), ("w2",)])
def test_with_apply_the_file_is_what_the_operator_wants(runners: tuple[str, ...]) -> None:
    decision = decide(stored(OTHER), FILE, runners=runners, apply=True)
    assert decision.choice is StartChoice.REPLACED
    assert (decision.config.by, decision.config.properties) == ("apply", FILE)
    assert decide(stored(FILE), FILE, runners=runners, apply=True) == StartDecision(StartChoice.USED, stored(FILE))
    added = decide(None, FILE, runners=runners, apply=True)
    assert added.choice is StartChoice.ADDED and added.config.by is DecidedBy.APPLY


def test_the_previous_settings_can_be_had_back_and_back_again() -> None:
    assert swapped(None) is None
    assert swapped(stored(FILE)) is None
    config = changed(stored(FILE), OTHER, DecidedBy.FILE)
    back = swapped(config)
    assert back is not None
    assert (back.properties, back.by, back.version) == (FILE, "apply", 9)
    forth = swapped(back)
    assert forth is not None
    assert (forth.properties, forth.version) == (OTHER, 10)


def test_the_count_of_versions_goes_on_behind_mirrormaker_2() -> None:
    records = ConfigRecords("t")
    records.take(FLOW_KEY, encode_flow(stored(FILE)), 0)
    records.take(SOURCE_KEY, b'{"properties":{"topics":"z","source.cluster.x":"1"}}', 1)
    found = counting(records)
    assert found is not None and found.by is DecidedBy.MM2
    decision = decide(found, FILE, runners=())
    assert decision.choice is StartChoice.REPLACED and decision.config.version == 8


@pytest.mark.parametrize(
    ("written_by", "kept"),
    [("", set()), (__version__, set()), ("no version", set()), ("0.0.9", set()), ("99.1", {"to.come"})],
)
def test_what_may_not_be_stored_is_not_taken_out_of_a_record_that_somebody_else_wrote(
    written_by: str, kept: set[str]
) -> None:
    strays = {
        "sasl.jaas.config": "password=x",
        "source.cluster.bootstrap.servers": "a:1",
        "source.consumer.sasl.jaas.config": "password=x",
        "a.secret.of.a.plug.in": "x",
        "to.come": "1",
    }
    before = FlowConfig(FILE | strays, DecidedBy.FILE, 1, written_by=written_by)
    config = FlowConfig(OTHER | strays, DecidedBy.FILE, 2, written_by=written_by, previous=before)
    records = ConfigRecords("t")
    records.take(FLOW_KEY, encode_flow(config), 0)
    found = counting(records)
    assert found is not None and found.previous is not None
    assert found.properties.keys() == OTHER.keys() | kept
    assert found.previous.properties.keys() == FILE.keys() | kept
    back = swapped(found)
    assert back is not None and back.properties.keys() == FILE.keys() | kept
    lost = follow(found, None)
    assert isinstance(lost, Restore) and lost.config.properties.keys() == OTHER.keys() | kept
    records.take(SOURCE_KEY, b'{"properties":{"topics":"z","source.cluster.x":"1"}}', 1)
    over = counting(records)
    assert over is not None and over.previous == found


def test_an_mm2_that_only_emits_heartbeats_says_nothing_about_the_flow() -> None:
    records = ConfigRecords("t")
    off = {"topics": "z", "enabled": "false", "source.cluster.bootstrap.servers": "a:1"}
    records.take(SOURCE_KEY, json.dumps({"properties": off}).encode(), 0)
    assert counting(records) is None
    records.take(FLOW_KEY, encode_flow(stored(FILE)), 1)
    records.take(SOURCE_KEY, json.dumps({"properties": off}).encode(), 2)
    found = counting(records)
    assert found is not None and found.properties == FILE


def test_what_was_seen_is_bounded() -> None:
    config = stored(FILE)
    for number in range(2 * SEEN_MOST):
        config = remembering(config, {"topics": str(number)})
        config = changed(config, {"topics": f"x{number}"}, DecidedBy.REST)
    assert (len(config.seen), len(config.decided)) == (SEEN_MOST, DECIDED_MOST)


def test_a_file_that_says_the_same_in_other_words_is_unchanged_after_an_operators_change() -> None:
    """w2's file has a blank and a default more than w1's, which is stored; both are stopped, and w2 starts first."""
    spelled = {"enabled": " TRUE", "topics": " a ", "sync.topic.acls.enabled": "true"}
    assert difference(FILE, spelled) == ()
    joins = decide(stored(FILE), spelled, runners=["w1"])
    assert joins == StartDecision(StartChoice.USED, stored(FILE)), "it is known by what it means"
    config = changed(stored(FILE), OTHER, DecidedBy.APPLY)
    assert decide(config, spelled, runners=()) == StartDecision(StartChoice.KEPT, config, difference(OTHER, spelled))


def test_a_file_that_joined_after_an_operators_change_and_says_the_same_is_noted() -> None:
    joins = decide(changed(stored(FILE), OTHER, DecidedBy.APPLY), OTHER, runners=["w1"])
    assert joins.choice in {StartChoice.USED, StartChoice.KEPT} and joins.to_store is not None
    config = joins.to_store
    assert decide(config, OTHER, runners=["w1"]) == StartDecision(StartChoice.USED, config), "once"
    for number in range(2 * DECIDED_MOST):
        config = changed(config, {"topics": f"x{number}"}, DecidedBy.APPLY)
    assert decide(config, OTHER, runners=()).choice in {StartChoice.USED, StartChoice.KEPT}


def test_an_operator_who_changes_something_every_day_does_not_make_a_file_count_as_changed() -> None:
    config = stored(FILE)
    for number in range(300):
        config = changed(config, {"topics": f"x{number}"}, DecidedBy.APPLY)
        assert decide(config, FILE, runners=()).choice in {StartChoice.USED, StartChoice.KEPT}, (
            f"after {number + 1} times"
        )


def test_files_that_drift_do_not_make_that_of_a_worker_that_starts_now_and_then_count_as_changed() -> None:
    """A service makes a file anew at each start, and no two are the same."""
    config = changed(stored(FILE), OTHER, DecidedBy.APPLY)
    for number in range(3 * SEEN_MOST):
        file = FILE if number % (SEEN_MOST // 3) == 0 else {"topics": f"t{number}"}
        drift = decide(config, file, runners=["w1"])
        assert drift.choice is StartChoice.DRIFTED
        config = drift.to_store or config
        assert decide(config, FILE, runners=()).choice in {StartChoice.USED, StartChoice.KEPT}, (
            f"after {number + 1} files"
        )


@given(
    old=st.dictionaries(
        st.sampled_from(["topics", "tasks.max", "enabled", "refresh.topics.enabled", "unknown"]),
        st.sampled_from(["1", " 1", "true", "TRUE", ".*", "a,b", "a, b", ""]),
    ),
    new=st.dictionaries(
        st.sampled_from(["topics", "tasks.max", "enabled", "refresh.topics.enabled", "unknown"]),
        st.sampled_from(["1", " 1", "true", "TRUE", ".*", "a,b", "a, b", ""]),
    ),
)
def test_a_file_is_known_again_exactly_by_what_is_no_difference(old: dict[str, str], new: dict[str, str]) -> None:
    assert (digest(old) == digest(new)) is (difference(old, new) == ())


@pytest.mark.parametrize(
    ("config", "file", "matters"),
    [
        (None, FILE, False),
        (stored(FILE), FILE, False),
        (stored(OTHER), FILE, True),
        (changed(stored(FILE), OTHER, DecidedBy.APPLY), FILE, True),
        (FlowConfig(OTHER, DecidedBy.MM2, 0), FILE, False),
        (FlowConfig(OTHER, DecidedBy.MM2, 0, previous=stored(FILE)), FILE, True),
    ],
    ids=["nothing", "the same", "another", "decided otherwise", "MM2's", "MM2's over ours"],
)
def test_only_where_it_matters_a_worker_waits_until_it_knows_who_is_alive(
    config: FlowConfig | None, file: dict[str, str], matters: bool
) -> None:
    assert depends_on_runners(config, file) is matters
    assert depends_on_runners(config, file, apply=True) is False


PROPERTIES = st.dictionaries(st.sampled_from(["topics", "tasks.max", "on.source.gap"]), st.sampled_from(["1", "stop"]))


@given(
    old=PROPERTIES,
    file=PROPERTIES,
    by=st.sampled_from(list(DecidedBy)),
    runners=st.lists(st.just("w"), max_size=1),
    apply=st.booleans(),
)
def test_what_is_decided_and_stored_is_then_used_by_the_same_file_without_another_write(
    old: dict[str, str], file: dict[str, str], by: DecidedBy, runners: list[str], apply: bool
) -> None:
    first = decide(stored(old, by), file, runners=runners, apply=apply)
    config = first.config
    if first.choice is StartChoice.DRIFTED and first.to_store is not None:
        config = first.to_store
    second = decide(config, file, runners=runners, apply=apply)
    assert second.choice in {StartChoice.USED, StartChoice.KEPT, StartChoice.DRIFTED} and second.config == config
    assert second.choice is not StartChoice.DRIFTED or second.to_store is None
    if not runners or apply:
        assert second.choice in {StartChoice.USED, StartChoice.KEPT}
    if first.choice is StartChoice.REPLACED:
        assert config.properties == file
        assert config.previous is not None and config.previous.properties == old
        assert config.version > stored(old, by).version or by is DecidedBy.MM2


def write(name: str, based_on: str) -> FlowConfig:
    return FlowConfig({"topics": name}, DecidedBy.APPLY, 8, write_id=name, based_on=based_on)


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        ([], None),
        ([("own", "base")], None),
        ([("a", "base"), ("own", "base")], "a"),
        ([("a", "base"), ("b", "base"), ("own", "base")], "a"),
        ([("a", "base"), ("b", "a"), ("own", "base")], "b"),
        ([("a", "base"), ("b", "base"), ("a again", "b"), ("own", "base")], "a again"),
        ([("own", "base"), ("a", "base")], None),
    ],
    ids=str,
)
def test_of_writers_at_once_that_one_counts_who_knew_what_stood_before(
    since: list[tuple[str, str]], expected: str | None
) -> None:
    winner = winner_of([write(*one) for one in since], "base", "own")
    assert (winner and winner.write_id) == expected


# --- running ----------------------------------------------------------------------------------------------------------


def test_a_new_version_is_followed_and_says_what_it_touches() -> None:
    applied = stored(FILE)
    news = changed(applied, OTHER, DecidedBy.APPLY)
    assert follow(applied, news) == Follow(news, frozenset({"topics", "bytes.per.second.max"}))
    same = changed(applied, FILE, DecidedBy.APPLY)
    assert follow(applied, same) == Follow(same, frozenset()), "the version is reported as applied all the same"


def test_a_noted_file_is_no_news() -> None:
    assert follow(stored(FILE), remembering(stored(FILE), OTHER)) == Keep()


def test_of_two_writers_of_one_version_the_last_one_counts() -> None:
    assert follow(stored(FILE), stored(OTHER, write_id="w8")) == Follow(
        stored(OTHER, write_id="w8"), frozenset({"topics", "bytes.per.second.max"})
    )


@pytest.mark.parametrize(
    "found",
    [None, FlowConfig(OTHER, DecidedBy.MM2, 0), FlowConfig(OTHER, DecidedBy.MM2, 0, previous=stored(OTHER, version=9))],
)
def test_what_is_lost_or_overwritten_by_mirrormaker_2_is_stored_again(found: FlowConfig | None) -> None:
    news = follow(stored(FILE), found)
    assert isinstance(news, Restore)
    assert news.config.properties == FILE
    assert news.config.version == (10 if found is not None and found.previous is not None else 8)


def test_an_older_version_that_comes_back_is_not_followed() -> None:
    news = follow(stored(FILE), stored(OTHER, version=6))
    assert isinstance(news, Restore) and news.config.version == 8


def test_workers_that_are_behind_are_named() -> None:
    assert behind(7, {"w3": 6, "w1": 7, "w2": 0}) == ["w2", "w3"]


# --- what differs -----------------------------------------------------------------------------------------------------


def test_a_difference_is_shown_key_by_key_and_never_a_secret() -> None:
    assert [str(change) for change in difference(OTHER, FILE)] == [
        "bytes.per.second.max: '9' -> (default)",
        "topics: 'b' -> 'a'",
    ]
    assert "hunter2" not in str(Change("x.password", "hunter2", "hunter2b"))
    assert str(Change("topics", "a\x1b[2J", None)) == "topics: 'a\\x1b[2J' -> (default)"


def test_how_two_long_lists_differ_is_shown_and_not_where_both_begin() -> None:
    many = [f"topic-{number}" for number in range(40)]
    (change,) = difference({"topics": ",".join(many)}, {"topics": ", ".join([*many[1:], "payments"])})
    assert str(change) == "topics: +'payments' -'topic-0' (39 others stay)"
    turned = Change("topics", ",".join(many), ",".join(reversed(many)))
    assert str(turned) == "topics: the same 40 in another order"
    assert str(Change("topics", None, ",".join(many))).endswith(",topic-39'"), "beside a default the list is whole"


def test_other_long_values_are_shown_whole_and_hidden_ones_not_at_all() -> None:
    long = "x" * 300
    changed_class = Change("replication.policy.class", long, f"{long}y")
    assert str(changed_class) == f"replication.policy.class: '{long}' -> '{long}y'"
    swallowed = ",".join([long, "A.ssl.key.password = hunter2"])
    assert "hunter2" not in str(Change("topics", long, swallowed)) + str(Change("topics", swallowed, None))


# --- how far it reaches -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("topics", {FlowPart.TOPICS, FlowPart.TOPIC_ACLS, FlowPart.HEARTBEATS, FlowPart.CHECKPOINTS}),
        ("offset.lag.max", {FlowPart.OFFSET_SYNCS}),
        ("offset-syncs.topic.location", {FlowPart.OFFSET_SYNCS, FlowPart.CHECKPOINTS}),
        ("emit.checkpoints.interval.seconds", {FlowPart.CHECKPOINTS}),
        ("bytes.per.second.max", {FlowPart.RATE}),
        ("sync.topic.configs.interval.seconds", {FlowPart.TOPIC_CONFIGS}),
        ("config.properties.exclude", {FlowPart.TOPIC_CONFIGS, FlowPart.TOPICS}),
        ("source.consumer.fetch.max.bytes", {FlowPart.READING}),
        ("on.source.gap", {FlowPart.GAPS}),
        ("offset.flush.interval.ms", {FlowPart.POSITIONS}),
        ("on.poison.record", {FlowPart.POISON}),
        ("offset.storage.replication.factor", {FlowPart.OWN_TOPICS}),
        ("replication.policy.class", {FlowPart.TASKS}),
        ("offset.storage.topic", {FlowPart.TASKS}),
        ("source.consumer.isolation.level", {FlowPart.TASKS}),
        ("tasks.max", {FlowPart.SPREAD}),
        ("enabled", {FlowPart.ON_OFF}),
        ("a.setting.of.a.younger.mm2py", set()),
    ],
)
def test_a_setting_reaches_the_parts_it_concerns(name: str, parts: set[FlowPart]) -> None:
    assert reach([name]) == parts


def test_whatever_works_reaches_something_and_what_is_named_exists() -> None:
    working = {name for name, key in stored_keys().items() if key.status is Status.WORKS}
    assert all(reach([name]) for name in working)
    assert named() <= working, "a slip of the pen would make a part deaf"
    assert all(reach([name]) == {FlowPart.TASKS} for name in working - named())


def test_only_what_restarts_interrupts_copying() -> None:
    assert {part for part in FlowPart if not part.is_in_place} == {FlowPart.TASKS, FlowPart.ON_OFF}
