"""MirrorMaker 2's transform RegexRouter: what it is as a rule of topics.rename, and what cannot be one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mm2py.config.configuration import SettingsFile, load_configuration, read_settings_file
from mm2py.config.flow_properties import properties_of_connector
from mm2py.records.source_offset import BY_OPERATOR, StoredPosition, decode_value, encode_value

FILE = "clusters=A,B\nA.bootstrap.servers=a:1\nB.bootstrap.servers=b:1\nA->B.enabled=true\n"
IDENTITY = "replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"
ROUTER = "A->B.transforms=route\nA->B.transforms.route.type=org.apache.kafka.connect.transforms.RegexRouter\n"


def read(tmp_path: Path, *lines: str) -> SettingsFile:
    path = tmp_path / "mm2.properties"
    path.write_text(FILE + "".join(lines))
    return read_settings_file(path, None)


def router(regex: str, replacement: str, *more: str) -> str:
    lines = [f"regex={regex}", f"replacement={replacement}", *more]
    return ROUTER + "".join(f"A->B.transforms.route.{line}\n" for line in lines).replace("\\", "\\\\")


@pytest.mark.parametrize(
    ("policy", "lines", "names"),
    [
        (IDENTITY, router(r"(.*)\.v1", "$1"), {"orders.v1": "orders", "orders": "orders"}),
        (IDENTITY, router("a.b", "x"), {"a.b": "x", "a-b": "x"}),
        (IDENTITY, router("(?i)ORD.*", "x"), {"orders": "x", "bills": "bills"}),
        ("", router(r"A\.(.*)", "A.new.$1"), {"orders": "A.new.orders"}),
        ("", router("A.orders", "A.sales"), {"orders": "A.sales", "bills": "A.bills"}),
        ("", ROUTER.replace("org.apache.kafka.connect.transforms.", ""), None),
        ("replication.policy.separator=_\n", router("A_(x|y)", "A_z-$1"), {"x": "A_z-x"}),
    ],
)
def test_a_router_is_a_rule(tmp_path: Path, policy: str, lines: str, names: dict[str, str] | None) -> None:
    file = read(tmp_path, policy, lines)
    configuration = file.configuration()
    if names is None:
        assert not configuration.flows, "it has no regex"
        return
    (settings,) = configuration.flows
    assert {topic: settings.remote_topic(topic) for topic in names} == names
    assert any(
        "A->B.transforms is a RegexRouter, and counts as topics.rename" in told for told in file.properties.warnings
    )
    assert "topics.rename" in file.shared(settings.flow), "workers share the rule"


@pytest.mark.parametrize(
    ("policy", "lines", "why"),
    [
        ("", router(r"A\.(.*)", "$1"), "IdentityReplicationPolicy and remove it"),
        ("", router("(.*)", "A.$1"), "only a router that keeps A. in front works"),
        ("", router(r"A\.x|y", "A.z"), "only a router that keeps A. in front works"),
        ("", router("A.*", "A.z"), "only a router that keeps A. in front works"),
        (IDENTITY, ROUTER.replace("=route", "=route,second"), "takes one RegexRouter"),
        (IDENTITY, router("x", "y", "predicate=p"), "transforms.route.predicate does not work"),
        (IDENTITY, router("x{1,2}", "y"), "neither ',' nor '->'"),
        (IDENTITY, router(r"x\p{Lu}", "y"), "is not supported"),
        (IDENTITY, router("x", "${n}"), "neither part of a topic's name nor a group"),
        (IDENTITY, router("x", "y") + "A->B.topics.rename=a -> b\n", "remove one of the two"),
        (IDENTITY, router("x", "y").replace("A->B.transforms=", "transforms="), "counts only for a flow"),
    ],
)
def test_what_is_no_rule_is_refused_by_name(tmp_path: Path, policy: str, lines: str, why: str) -> None:
    configuration = read(tmp_path, policy, lines).configuration()
    assert not configuration.flows
    (refused,) = configuration.refused.values()
    assert why in str(refused)
    assert "transforms (line " in str(refused)


def test_rules_in_the_file_are_read_in_their_order(tmp_path: Path) -> None:
    file = read(tmp_path, "A->B.topics.rename = orders -> sales.orders, (.*)\\\\.v1 -> $1\n")
    (settings,) = file.configuration().flows
    assert settings.remote_topic("orders") == "A.sales.orders"
    assert settings.renamed("users.v1") == "A.users"
    assert settings.renamed("users") is None
    assert settings.source_topic("A.sales.orders", is_reverse=True, known=["orders"]) == "orders"


def test_a_rule_that_is_wrong_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "mm2.properties"
    path.write_text(FILE + "A->B.topics.rename = orders\n")
    with pytest.raises(Exception, match=r"line 5: A->B\.topics\.rename: 'orders': it is no rule"):
        load_configuration(path, None)


def test_what_mirrormaker_2_has_stored_is_read_the_same() -> None:
    stored = {
        "source.cluster.alias": "A",
        "transforms": "route",
        "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.route.regex": r"A\.(.*)\.v1",
        "transforms.route.replacement": "A.$1",
    }
    assert properties_of_connector(stored)["topics.rename"] == r"(?:(.*)\.v1) -> $1"
    assert "topics.rename" not in properties_of_connector({**stored, "transforms.route.replacement": "$1"})


def test_a_position_tells_that_the_copy_has_another_name_now(tmp_path: Path) -> None:
    (settings,) = read(tmp_path, "A->B.topics.rename = orders -> sales.orders\n").configuration().flows
    by_rule, plain = StoredPosition(7, by="w", target_topic="A.sales.orders"), StoredPosition(7, by="w")
    assert settings.old_remote("orders", by_rule) is None
    assert settings.old_remote("orders", plain) == "A.orders"
    assert settings.old_remote("orders", replace(by_rule, target_topic="A.x")) == "A.x"
    assert settings.old_remote("users", plain) is None
    assert settings.old_remote("users", by_rule) == "A.sales.orders"
    assert settings.old_remote("orders", replace(plain, by=BY_OPERATOR, recopy=True)) is None
    assert settings.old_remote("orders", StoredPosition(7)) is None, "MirrorMaker 2 does not say where it has copied to"
    assert decode_value(encode_value(by_rule)) == by_rule
    assert b'target_topic"' not in encode_value(plain), "positions of other topics are as they were"
