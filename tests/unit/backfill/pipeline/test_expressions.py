"""Only a filter and a projection that give the same for the same record at any time are allowed."""

from __future__ import annotations

import re

import pytest

from mm2py.backfill.pipeline.expressions import Expressions, PlanNode, why_not

SOURCE = PlanNode("RelationV2", (("attributereference", True),))


def project(*calls: tuple[str, bool], name: str = "Project", has_subqueries: bool = False) -> PlanNode:
    return PlanNode(name, calls, has_subqueries, (PlanNode("Filter", (("cast", True),), False, (SOURCE,)),))


def test_a_filter_and_a_projection_are_allowed() -> None:
    assert why_not(project(("upper", True), ("get_json_object", True))) is None
    assert why_not(SOURCE) is None


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (project(name="Aggregate"), "more than one record at a time.*Aggregate"),
        (project(name="Window"), "Window"),
        (project(name="Generate"), "makes several of one"),
        (project(name="Sort"), "Sort"),
        (PlanNode("Project", (), False, (project(name="Join"),)), "Join"),
        (project(("rand", False)), r"rand\(\) gives something else each time"),
        (project(("current_date", True)), r"current_date\(\) depends on when"),
        (project(("now", True)), r"now\(\) depends on when"),
        (project(("aes_encrypt", True)), r"aes_encrypt\(\) gives"),
        (project(("pythonudf", True)), "not of Spark's own"),
        (project(has_subqueries=True), "a subquery"),
    ],
)
def test_what_is_more_is_refused_with_its_name(plan: PlanNode, told: str) -> None:
    why = why_not(plan)
    assert why is not None and re.search(told, why)


def test_expressions_are_shown_as_they_are_written() -> None:
    assert not Expressions()
    assert Expressions("key = 'a'", "value").text == """--where "key = 'a'" --select 'value'"""
