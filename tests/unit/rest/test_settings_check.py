"""What Connect's clients send beside the settings of a flow has to be what it is."""

from __future__ import annotations

import pytest

from mm2py.flow import Kind, parse_flow
from mm2py_rest.settings.check import check, connector_properties, validated

FLOW = parse_flow("A->B")


def test_what_was_read_may_be_written_back() -> None:
    properties = connector_properties(FLOW, Kind.SOURCE, {"topics": "orders"})
    found = check(FLOW, Kind.SOURCE, properties)
    assert (found.properties, found.errors) == ({"topics": "orders"}, {})


@pytest.mark.parametrize(
    ("name", "value", "is_right"),
    [
        ("name", "A->B.MirrorSourceConnector", True),
        ("name", "MirrorSourceConnector", True),
        ("name", "C->B.MirrorSourceConnector", False),
        ("name", "A->B.MirrorHeartbeatConnector", False),
        ("connector.class", "org.apache.kafka.connect.mirror.MirrorSourceConnector", True),
        ("connector.class", "MirrorSource", True),
        ("connector.class", "MirrorHeartbeatConnector", False),
        ("connector.class", "x.MirrorSourceConnector", False),
        ("source.cluster.alias", "A", True),
        ("source.cluster.alias", "x.A", False),
        ("source.cluster.alias", "MirrorSource", False),
        ("target.cluster.alias", "A", False),
    ],
)
def test_name_class_and_aliases_cannot_be_changed(name: str, value: str, *, is_right: bool) -> None:
    found = check(FLOW, Kind.SOURCE, {name: value})
    assert (not found.errors) is is_right
    assert found.properties == {}


def test_what_mm2py_knows_and_does_not_need_is_named_and_not_stored() -> None:
    found = check(FLOW, Kind.SOURCE, {"errors.tolerance": "all", "admin.timeout.ms": "5"})
    assert found.errors == {}
    assert sorted(found.without_effect) == ["admin.timeout.ms", "errors.tolerance"]
    assert found.properties == {"admin.timeout.ms": "5"}, "it may have an effect one day"


def test_transforms_are_not_set_over_rest_and_no_module_is_named_there() -> None:
    wanted = {
        "transforms": "mask",
        "transforms.mask.type": "python",
        "transforms.mask.module": "/theirs",
        "transforms.mask.function": "f",
        "predicates": "p",
        "predicates.p.type": "RecordIsTombstone",
    }
    found = check(FLOW, Kind.SOURCE, wanted)
    assert found.errors.keys() == wanted.keys()
    assert found.properties == {}
    assert not check(FLOW, Kind.SOURCE, {"transforms": "", "predicates": ""}).errors, "as MirrorMaker 2 lists them"


def test_a_name_that_mirror_maker_dropped_counts_as_its_new_one() -> None:
    found = check(FLOW, Kind.SOURCE, {"topics.blacklist": "a", "groups.blacklist": "b"})
    assert (found.properties, found.errors) == ({"topics.exclude": "a", "groups.exclude": "b"}, {})
    assert not check(FLOW, Kind.SOURCE, {"topics.blacklist": "a", "topics.exclude": "a"}).errors
    found = check(FLOW, Kind.SOURCE, {"topics.blacklist": "a", "topics.exclude": "b"})
    assert found.errors == {
        "topics.blacklist": "it is an old name of topics.exclude, and topics.exclude has another value"
    }
    report = validated(Kind.SOURCE, {"topic.blacklist": "a"})
    assert report.error_count == 0
    assert [one.value.value for one in report.configs if one.value.name == "topics.exclude"] == ["a"]


@pytest.mark.parametrize("name", ["topics", "topics.exclude", "groups", "groups.exclude", "config.properties.exclude"])
def test_a_pattern_that_costs_gigabytes_is_named_with_its_setting_and_the_limit(name: str) -> None:
    found = check(FLOW, Kind.SOURCE, {name: "orders,(?:a{3000}){3000}"})
    assert "'(?:a{3000}){3000}' (entry 2 of 2)" in found.errors[name] and "300,000" in found.errors[name]
    (told,) = (info for info in validated(Kind.SOURCE, {name: "(?:a{3000}){3000}"}).configs if info.value.name == name)
    assert told.value.errors and told.value.value is None
    assert check(FLOW, Kind.SOURCE, {name: "orders,[a-z]{40}"}).errors == {}
