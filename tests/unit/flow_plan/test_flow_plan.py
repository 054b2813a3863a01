"""A plan as text, and a saved one: equal things are folded, and what makes it stale is named."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from mm2py import __version__
from mm2py.errors import ConfigError
from mm2py.flow_plan.plan_file import SavedPlan, differences, is_plan, read_plan, text_of_plan
from mm2py.flow_plan.plan_text import LINES_MOST, lines_of
from mm2py.flow_plan.planned import (
    PlannedConfig,
    PlannedFlow,
    PlannedInternal,
    PlannedPartitions,
    PlannedRefusal,
    PlannedSetting,
    PlannedTopic,
    changes_anything,
    is_complete,
)

IDLE = PlannedFlow("A->B", runs=("MirrorSourceConnector",), settings_stored=1, topics=3, seen={"clusters": "c"})
TOPIC = PlannedTopic("orders", "A.orders", 12, 2, {"retention.ms": "5"})
CHANGES: dict[str, object] = {
    "starts": ("MirrorSourceConnector",),
    "stores_settings": True,
    "begins": ("orders",),
    "stops": ("orders",),
    "creates": (TOPIC,),
    "widens": (PlannedPartitions("orders", "A.orders", 2, 3),),
    "configs": (PlannedConfig("A.orders", "retention.ms", None, "5"),),
    "acls": ("ALLOW READ",),
    "internal": (PlannedInternal("B", "mm2-status.A.internal", 5, 3, {}),),
    "refusals": (PlannedRefusal("orders", "It is not empty.", "Empty it."),),
}
"""What makes a plan one that has something to do, by its field."""
NO_CHANGES = {
    "flow",
    "refused",
    "unread",
    "runs",
    "held",
    "settings",
    "settings_stored",
    "settings_text",
    "topics",
    "configs_only_logged",
    "acls_only_logged",
    "left_out",
    "notes",
    "seen",
}


def saved(*flows: PlannedFlow, settings: str = "s") -> SavedPlan:
    return SavedPlan(file="/f", clusters=(), settings={one.flow: settings for one in flows}, flows=flows)


def test_each_part_of_a_plan_either_is_something_to_do_or_is_not() -> None:
    assert {field.name for field in fields(PlannedFlow)} == {*CHANGES, *NO_CHANGES}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_to_be_done_is_a_change_and_is_shown(name: str) -> None:
    assert not IDLE.changes and lines_of(IDLE)[-1] == "  nothing to do"
    found = replace(IDLE, **{name: CHANGES[name]})  # type: ignore[arg-type]
    assert found.changes and changes_anything([IDLE, found])
    assert "  nothing to do" not in lines_of(found)
    if name != "stores_settings":  # its text is made where the settings are compared
        assert len(lines_of(found)) >= len(lines_of(IDLE))
        assert any(
            "orders" in line or "Mirror" in line or "ACL" in line or "mm2-" in line for line in lines_of(found)[1:]
        )


@pytest.mark.parametrize("name", ["configs", "acls"])
def test_what_is_only_logged_is_no_change(name: str) -> None:
    found = replace(IDLE, **{name: CHANGES[name], f"{name}_only_logged": True})  # type: ignore[arg-type]
    assert not found.changes
    assert any("only logged (dry run)" in line for line in lines_of(found))


def test_what_is_not_known_or_refused_makes_a_plan_incomplete() -> None:
    assert is_complete([IDLE])
    for found in (replace(IDLE, unread=("A does not answer.",)), replace(IDLE, refused="MirrorMaker 2 runs it.")):
        assert not is_complete([IDLE, found])
        assert "  nothing to do" not in lines_of(found)
    assert "  not known: A does not answer." in lines_of(replace(IDLE, unread=("A does not answer.",)))


def test_what_two_parts_of_a_plan_could_not_find_out_is_said_once() -> None:
    assert lines_of(replace(IDLE, unread=("B is away.", "B is away."))).count("  not known: B is away.") == 1


def test_equal_things_are_one_line_and_many_are_counted() -> None:
    topics = tuple(replace(TOPIC, topic=f"t{at}", remote=f"A.t{at}") for at in range(8))
    other = replace(TOPIC, topic="z", remote="A.z", partitions=1, replication_factor=-1, configs={})
    shown = lines_of(replace(IDLE, creates=(*topics, other)))
    assert "      A.t0, A.t1, A.t2, A.t3, A.t4 and 3 more (12 partitions, 2 replicas; retention.ms=5)" in shown
    assert "      A.z (1 partition, as many replicas as the brokers say)" in shown
    configs = tuple(PlannedConfig(f"A.t{at}", "retention.ms", "5", None) for at in range(2))
    assert "      A.t0, A.t1: retention.ms: 5 -> (the target's default)" in lines_of(replace(IDLE, configs=configs))
    refusals = tuple(PlannedRefusal(f"t{at}", "No.", "Do it.") for at in range(LINES_MOST + 3))
    shown = lines_of(replace(IDLE, refusals=refusals))
    assert shown[-3:] == [
        f"      t{LINES_MOST - 1}: No.",
        "          what to do: Do it.",
        "      ... and 3 more (--json)",
    ]


def test_a_saved_plan_is_read_back_as_it_was() -> None:
    whole = replace(IDLE, **CHANGES, settings=(PlannedSetting("topics", "topics: x -> y"),))  # type: ignore[arg-type]
    text = text_of_plan(saved(whole))
    assert is_plan(text[:100]) and not is_plan("clusters = A, B\n") and not is_plan("{}")
    assert read_plan(text, name="P") == saved(whole)
    assert differences(read_plan(text, name="P"), saved(whole)) == []


@pytest.mark.parametrize("name", [field.name for field in fields(PlannedFlow) if field.name not in {"flow", "seen"}])
def test_a_plan_is_stale_whatever_differs(name: str) -> None:
    others: dict[str, object] = {
        **CHANGES,
        "refused": "x",
        "unread": ("x",),
        "runs": (),
        "held": ("x",),
        "settings": (PlannedSetting("topics", "x"),),
        "settings_stored": 2,
        "settings_text": "x",
        "topics": 4,
        "configs_only_logged": True,
        "acls_only_logged": True,
        "left_out": {"excluded": 1},
        "notes": ("x",),
    }
    told = differences(saved(IDLE), saved(replace(IDLE, **{name: others[name]})))  # type: ignore[arg-type]
    assert told and all(line.startswith("A->B: ") for line in told)


def test_what_a_plan_rests_on_makes_it_stale_and_so_do_its_flows_and_their_settings() -> None:
    assert differences(saved(IDLE), saved(replace(IDLE, seen={"clusters": "d"}))) == [
        "A->B: changed since the plan was made: clusters"
    ]
    assert differences(saved(IDLE), saved(IDLE, settings="t")) == ["A->B: its settings in the file have changed"]
    other = replace(IDLE, flow="B->A")
    assert "B->A: the plan does not have it" in differences(saved(IDLE), saved(IDLE, other))
    assert "B->A: the file does not enable it any more" in differences(saved(IDLE, other), saved(IDLE))


@pytest.mark.parametrize("damage", [{"mm2py": "0.0.1"}, {"mm2py_plan": 2}, {"flows": [{}]}, {"more": 1}])
def test_a_plan_that_another_version_made_or_that_is_damaged_is_refused(damage: dict[str, object]) -> None:
    text = json.dumps({**json.loads(text_of_plan(saved(IDLE))), **damage})
    with pytest.raises(ConfigError, match="Make it again"):
        read_plan(text, name="P")
    assert __version__ != "0.0.1"
