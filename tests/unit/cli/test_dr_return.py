"""The command lines of ``mm2py dr extras``, ``reinstate`` and ``failback``, and when a failback is refused."""

from __future__ import annotations

import pytest

from mm2py.cli import dr_extras, dr_failback, dr_reinstate
from mm2py.cli.dr_reinstate import choice_of
from mm2py.cli.dr_run import options_of
from mm2py.dr.calls.asking import RecoveryRefused
from mm2py.dr.calls.failback_call import refuse_failback
from mm2py.dr.extras.settlement import ExtrasChoice
from mm2py.dr.journal import JournalEntry
from mm2py.dr.states import RecoveryEvent, RecoveryState, RecoveryVerb
from mm2py.errors import ConfigError
from mm2py.flow import Flow, parse_flow

ASKED = ["mm2.properties", "A->B"]
FORTH, BACK = parse_flow("A->B"), parse_flow("B->A")


def test_everything_that_an_operator_can_say_of_a_return() -> None:
    found = dr_reinstate.parse_arguments(
        [
            *ASKED,
            *("--topics", "orders", "bills", "--replay", "--export", "/kept", "--export-topic", "kept"),
            *("--leave", "logs", "--leave-all", "--hook-fence", "stop it", "--timeout", "60", "--yes", "--json"),
        ]
    )
    assert choice_of(found) == ExtrasChoice(("orders", "bills"), "/kept", "kept", True, ("logs",), True)
    assert (options_of(found).timeout_s, options_of(found).fence_hook_name) == (60.0, "stop")
    assert not choice_of(dr_extras.parse_arguments(ASKED)).settles
    with pytest.raises(ConfigError, match="Unrecognized arguments: --hook-fence"):
        dr_extras.parse_arguments([*ASKED, "--hook-fence", "x"])


def standing(verb: RecoveryVerb, flow: Flow, state: RecoveryState) -> JournalEntry:
    return JournalEntry(1, 0, "m", "r", verb, flow, state, RecoveryEvent.FLOW_REVERSED, 0)


@pytest.mark.parametrize(
    ("last", "why"),
    [
        (None, "There is no run: no failover of A->B stands"),
        (standing(RecoveryVerb.CUTOVER, FORTH, RecoveryState.REVERSED), "cutover of A->B, Reversed: no failover"),
        (standing(RecoveryVerb.FAILOVER, BACK, RecoveryState.COMPLETE), "no failover of A->B stands"),
        (standing(RecoveryVerb.FAILOVER, FORTH, RecoveryState.REINSTATED), "is Reinstated: A is not reinstated"),
    ],
)
def test_a_failback_needs_a_reinstated_source(last: JournalEntry | None, why: str) -> None:
    with pytest.raises(RecoveryRefused, match=why):
        refuse_failback(last, FORTH)


def test_a_failback_begins_behind_the_reinstatement_and_goes_on_after_a_kill() -> None:
    refuse_failback(standing(RecoveryVerb.FAILOVER, FORTH, RecoveryState.COMPLETE), FORTH)
    refuse_failback(standing(RecoveryVerb.CUTOVER, BACK, RecoveryState.FENCED), FORTH)
    assert dr_failback.parse_arguments([*ASKED, "--reverse-window", "2h"]).reverse_window == "2h"
