"""The command lines of ``mm2py dr cutover``, ``rollback``, ``complete`` and ``history``."""

from __future__ import annotations

import pytest

from mm2py.cli import dr_cutover, dr_failover, dr_history, dr_rollback
from mm2py.cli.dr_at import begin_at, moment_to_begin
from mm2py.cli.dr_run import options_of
from mm2py.dr.fence.record import FenceWay
from mm2py.errors import ConfigError
from tests.fakes.virtual_time import VirtualClock, run_virtual

ASKED = ["mm2.properties", "A->B"]


def test_everything_that_an_operator_can_say_of_a_cutover() -> None:
    found = dr_cutover.parse_arguments(
        [
            *ASKED,
            *("--topics", "orders", "bills", "--groups", "pay", "--leave-group", "old", "--leave-topic", "logs"),
            *("--timeout", "60", "--max-lag", "7", "--postpone", "/run/wait", "--hook-switch", "dns 'two words'"),
            *("--hook-fence", "stop it", "--reverse-window", "30m", "--accept-unproven-fence"),
            *("--accept-coupled", "--end-hanging"),
            *("--principal", "User:app", "--own-principal", "User:us", "--reason", "drill", "--yes", "--json"),
        ]
    )
    options = options_of(found)
    assert (options.topics, options.groups) == (("orders", "bills"), ("pay",))
    assert (options.left_groups, options.left_topics) == (("old",), ("logs",))
    assert (options.timeout_s, options.max_lag, options.postponed_by) == (60.0, 7, "/run/wait")
    assert options.switch_words == ("dns", "two words")
    assert (options.way, options.fence_hook_name, options.window_s) == (FenceWay.HOOK, "stop", 1800)
    assert options.accepts_coupled and options.ends_hanging
    assert options.accepts_unproven and options.principals == ("User:app",) and found.own_principal == ["User:us"]
    assert (found.yes, found.json, found.reason) == (True, True, "drill")


def test_without_options_the_fence_is_made_of_acls_and_the_window_has_no_end() -> None:
    options = options_of(dr_rollback.parse_arguments(ASKED))
    assert (options.way, options.fence_hook, options.window_s, options.switch_words) == (FenceWay.ACLS, None, None, ())
    assert not (options.leaves_extras or options.accepts_coupled or options.ends_hanging)
    assert options_of(dr_rollback.parse_arguments([*ASKED, "--leave-extras"])).leaves_extras


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--at", "14:00"], "--at '14:00' is no time"),
        (["--at", "30m"], "--at '30m' is no time"),
        (["--at", "2020-01-01T00:00"], "--at 2020-01-01T00:00:00Z is past"),
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


def test_a_time_to_begin_is_utc_unless_it_says_another_zone() -> None:
    now_ms = 1_764_000_000_000  # 2025-11-24T16:00Z
    assert moment_to_begin("2025-11-24T17:00", now_ms) == moment_to_begin("2025-11-24T18:00+01:00", now_ms)
    assert dr_cutover.parse_arguments([*ASKED, "--at", "2999-01-01T00:00"]).at_ms == 32_472_144_000_000


def test_it_begins_when_the_wall_clock_says_so() -> None:
    said: list[str] = []

    async def wait() -> int:
        clock = VirtualClock(epoch_ms=1_764_000_000_000)
        await begin_at(1_764_000_090_000, clock, said.append)
        return clock.wall_ms()

    assert 1_764_000_090_000 <= run_virtual(wait()) < 1_764_000_092_000
    assert said == ["begins at 2025-11-24T16:01:30Z; until then nothing is done, and it may be interrupted"]


def test_the_history_takes_a_file_and_a_flow() -> None:
    assert dr_history.parse_arguments([*ASKED, "--json"]).json


def test_everything_that_an_operator_can_say_of_a_failover() -> None:
    found = dr_failover.parse_arguments(
        [
            *ASKED,
            *("--to", "safe", "--accept-loss", "--source-is-lost", "--topics", "orders", "--groups", "pay"),
            *("--leave-group", "old", "--hook-switch", "dns b", "--hook-fence", "stop it", "--yes", "--json"),
        ]
    )
    options = options_of(found)
    assert (found.to, found.accept_loss, found.source_is_lost) == ("safe", True, True)
    assert (options.topics, options.groups, options.left_groups) == (("orders",), ("pay",), ("old",))
    assert (options.switch_words, options.fence_hook_name) == (("dns", "b"), "stop")
    bare = dr_failover.parse_arguments(ASKED)
    assert (bare.to, bare.accept_loss, bare.source_is_lost) == ("latest", False, False)


def test_a_failover_goes_to_no_time_to_come() -> None:
    with pytest.raises(ConfigError, match="--to 2999-01-01 is no point"):
        dr_failover.run([*ASKED, "--to", "2999-01-01"])
