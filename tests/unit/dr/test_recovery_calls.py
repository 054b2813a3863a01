"""The table of the verbs that REST has: their options, as a body and as a command line, and what is confirmed."""

from __future__ import annotations

import argparse
from importlib import import_module

import pytest
from pydantic import ValidationError

from mm2py.cli import dr_cutover
from mm2py.cli.command import ParserFound
from mm2py.cli.dr_run import options_of
from mm2py.dr.calls.asking import RecoveryPlan
from mm2py.dr.calls.verbs import VERBS, CutoverBody, FenceBody, hook_named
from mm2py.errors import ConfigError

ONLY_COMMANDS = {"file", "flow", "reason", "plan", "yes", "json", "help", "describe_arguments", "at"} | {
    "postpone",
    "export",
    "report",
    "all",
}
"""What a command takes besides: how it asks and prints, and what names a place on the machine on which it runs."""


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_takes_over_rest_what_its_command_takes(verb: str) -> None:
    with pytest.raises(ParserFound) as found:
        import_module(f"mm2py.cli.dr_{verb}").parse_arguments(["--describe-arguments"])
    actions: list[argparse.Action] = found.value.parser._actions
    assert {one.dest for one in actions} - ONLY_COMMANDS == set(VERBS[verb].options.model_fields)


def test_the_options_of_a_body_are_the_words_of_the_same_command() -> None:
    body = CutoverBody(
        topics=("orders", "bills"),
        leave_group=("old", "older"),
        hook_switch="dns",
        timeout=60,
        accept_unproven_fence=True,
        reverse_window="30m",
    )
    words = [*body.words()]
    found = options_of(dr_cutover.parse_arguments(["FILE", "A->B", *words]), {"dns": ("/opt/dns", "x")})
    assert (found.topics, found.left_groups) == (("orders", "bills"), ("old", "older"))
    assert found.switch_words == ("/opt/dns", "x")
    assert (found.timeout_s, found.accepts_unproven, found.window_s) == (60.0, True, 1800)
    assert [*FenceBody().words()] == []


def test_a_body_takes_nothing_else() -> None:
    with pytest.raises(ValidationError):
        CutoverBody.model_validate({"postponed_by": "/etc/passwd"})


def test_over_rest_a_hook_is_a_name_of_the_file_and_no_command() -> None:
    assert hook_named("dns", {"dns": ("/opt/dns",)}) == ("/opt/dns",)
    assert hook_named("", {"dns": ("/opt/dns",)}) == ()
    with pytest.raises(ConfigError, match=r"has no hook of this name; it has dns\.") as refused:
        hook_named("/bin/sh -c canary", {"dns": ("/opt/dns",)})
    assert "canary" not in str(refused.value)


def test_a_plan_is_confirmed_by_what_was_decided_and_not_by_what_moves() -> None:
    def plan(end: int, topics: list[str]) -> RecoveryPlan:
        return RecoveryPlan([f"ends at {end}"], {"ends": end}, {"topics": topics}, "Cutover?")

    assert plan(1, ["orders"]).hash == plan(2, ["orders"]).hash
    assert plan(1, ["orders"]).hash != plan(1, ["orders", "bills"]).hash
