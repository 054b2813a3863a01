"""The command lines of ``mm2py dr cutover``, ``rollback``, ``complete`` and ``history``."""

from __future__ import annotations

import pytest

from mm2py.cli import dr_complete, dr_cutover, dr_history, dr_rollback
from mm2py.cli.command import CommandFailed
from mm2py.cli.dr_run import options_of
from mm2py.dr.fence.record import FenceWay
from mm2py.errors import ConfigError

ASKED = ["mm2.properties", "A->B"]


def test_everything_that_an_operator_can_say_of_a_cutover() -> None:
    found = dr_cutover.parse_arguments(
        [
            *ASKED,
            *("--topics", "orders", "bills", "--groups", "pay", "--leave-group", "old", "--leave-topic", "logs"),
            *("--timeout", "60", "--max-lag", "7", "--postpone", "/run/wait", "--hook-switch", "dns 'two words'"),
            *("--hook-fence", "stop it", "--reverse-window", "30m", "--accept-unproven-fence"),
            *("--principal", "User:app", "--own-principal", "User:us", "--reason", "drill", "--yes", "--json"),
        ]
    )
    options = options_of(found)
    assert (options.topics, options.groups) == (("orders", "bills"), ("pay",))
    assert (options.left_groups, options.left_topics) == (("old",), ("logs",))
    assert (options.timeout_s, options.max_lag, options.postponed_by) == (60.0, 7, "/run/wait")
    assert options.switch_words == ("dns", "two words")
    assert (options.way, options.fence_hook_name, options.window_s) == (FenceWay.HOOK, "stop", 1800)
    assert options.accepts_unproven and options.principals == ("User:app",) and found.own_principal == ["User:us"]
    assert (found.yes, found.json, found.reason) == (True, True, "drill")


def test_without_options_the_fence_is_made_of_acls_and_the_window_has_no_end() -> None:
    options = options_of(dr_rollback.parse_arguments(ASKED))
    assert (options.way, options.fence_hook, options.window_s, options.switch_words) == (FenceWay.ACLS, None, None, ())
    assert not options.leaves_extras
    assert options_of(dr_rollback.parse_arguments([*ASKED, "--leave-extras"])).leaves_extras


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--at", "14:00"], "--at is not there yet"),
        (["--reverse-window", "half an hour"], "--reverse-window takes a span as 30m"),
        (["--timeout", "0"], "no number from 1"),
        (["--hook-fence", "x", "--by-size"], "not allowed with"),
        (["--plan", "--yes"], "not allowed with"),
    ],
)
def test_what_a_cutover_does_not_take(arguments: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        dr_cutover.parse_arguments([*ASKED, *arguments])


def test_a_hook_must_name_a_command() -> None:
    with pytest.raises(ConfigError, match="--hook-switch names no command"):
        options_of(dr_cutover.parse_arguments([*ASKED, "--hook-switch", ""]))


def test_a_cutover_is_not_completed_unseen() -> None:
    with pytest.raises(CommandFailed, match=r"Run mm2py verify FILE 'A->B', and then this with --unverified"):
        dr_complete.run(ASKED)


def test_the_history_takes_a_file_and_a_flow() -> None:
    assert dr_history.parse_arguments([*ASKED, "--json"]).json
