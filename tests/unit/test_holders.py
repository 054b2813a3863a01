"""From which source topic a flow may lead into a remote topic: where none can, nobody asks what it has copied."""

from __future__ import annotations

import uuid

from connectors.source.holders import may_be, upstream_of
from mm2py.config.settings import FlowSettings
from mm2py.flow import parse_flow
from tests.scenarios.world import configuration

IDENTITY = {"replication.policy.class": "IdentityReplicationPolicy"}


def settings(flow: str, **lines: str) -> FlowSettings:
    wanted = parse_flow(flow)
    aliases = ["A", "B", str(wanted.source)]
    names = {key.replace("_", "."): value for key, value in lines.items()}
    file = {
        "clusters": ",".join(aliases),
        **{f"{alias}.bootstrap.servers": f"{alias}:1" for alias in aliases},
        "A->B.enabled": "false",
        f"{flow}.enabled": "true",
        **IDENTITY,
        **names,
    }
    (found,) = configuration(tuple(file.items())).flows
    return found


def test_a_flow_that_keeps_names_leads_from_the_same_one_if_its_filter_lets_it() -> None:
    assert upstream_of(settings("C->B"), "orders") == "orders"
    assert upstream_of(settings("C->B", topics="bills.*"), "orders") is None
    assert upstream_of(settings("C->B", topics_exclude="orders"), "orders") is None
    assert upstream_of(settings("C->B"), "mm2-offsets.C.internal") is None


def test_names_of_the_default_policy_meet_only_where_separators_differ() -> None:
    default = {"replication_policy_class": "DefaultReplicationPolicy"}
    assert upstream_of(settings("C->B", **default), "A.orders") is None
    assert upstream_of(settings("C->B", **default), "C.orders") == "orders"
    dotted = settings("a-b->B", **default, replication_policy_separator=".")
    dashed = settings("a->B", **default, replication_policy_separator="-")
    assert dashed.policy.format_remote_topic(dashed.flow.source, upstream_of(dashed, "a-b.orders")) == "a-b.orders"  # type: ignore[arg-type]
    assert upstream_of(dotted, "a-b.orders") == "orders"
    assert upstream_of(dotted, "a-orders") is None


def test_a_filter_that_finds_no_answer_may_let_a_topic_through() -> None:
    slow = settings("C->B", topics="(a|aa)+")
    assert upstream_of(slow, "a" * 200 + "!") == "a" * 200 + "!"


def test_a_position_speaks_of_the_copy_unless_two_ids_say_that_it_is_another() -> None:
    present, gone = uuid.UUID(int=1), uuid.UUID(int=2)
    assert may_be(present, present)
    assert not may_be(present, gone)
    assert may_be(present, None), "MirrorMaker 2 stores none"
    assert may_be(None, gone), "brokers before 2.8 have none"
