"""A run that was begun with a switch hook does not go on without one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mm2py.dr.journal import JournalEntry
from mm2py.dr.states import MAY_HAVE_SWITCHED, RecoveryEvent, RecoveryState, RecoveryVerb
from mm2py.dr.switch_hook import BEFORE_THE_HOOK, HookForgotten, refuse_without_switch, switch_kept
from mm2py.flow import ClusterAlias, Flow

S = RecoveryState
FLOW = Flow(ClusterAlias("A"), ClusterAlias("B"))
DNS = ("/opt/dns", "--key", "canary")


def run(state: S, *hooks: tuple[str, ...]) -> list[JournalEntry]:
    """Return a run in a state; a failover may have begun with a hook of its own in the middle."""
    begun = JournalEntry(1, 0, "m", "r", RecoveryVerb.CUTOVER, FLOW, S.FENCING, RecoveryEvent.CUTOVER_ASKED, 0)
    first = [replace(begun, kept=switch_kept(words)) for words in hooks]
    return [*first, replace(begun, state=state, event=RecoveryEvent.RESTARTED)]


@pytest.mark.parametrize("state", sorted(BEFORE_THE_HOOK))
def test_a_run_that_has_not_run_its_hook_does_not_go_on_without_it(state: S) -> None:
    with pytest.raises(HookForgotten, match=r"begun with a switch hook, /opt/dns, and this call names none") as refused:
        refuse_without_switch(run(state, DNS), ())
    assert "canary" not in str(refused.value) and "--hook-switch true" in refused.value.remedy
    refuse_without_switch(run(state, DNS), ("true",))


def test_clients_that_are_sent_by_hand_need_no_hook_and_behind_it_none_is_needed() -> None:
    refuse_without_switch(run(S.SWITCHING, ()), ())
    refuse_without_switch(run(S.FAILING_OVER, DNS, ()), ())
    refuse_without_switch(run(S.FENCED), ())  # an earlier mm2py kept none
    refuse_without_switch([], ())
    for state in (S.TAKING_BACK, *MAY_HAVE_SWITCHED - BEFORE_THE_HOOK):
        refuse_without_switch(run(state, DNS), ())
