"""The switch hook of a run: a process that goes on with the run needs it as well. Pure.

The story: a cutover with ``--hook-switch dns`` was killed. ``mm2py dr check`` says which verb goes on, and an operator
gives that command as it stands there. Without the hook nobody sends clients to the other cluster, and the flow is
turned round all the same.

The journal keeps the name of the program, without its arguments: these may hold a secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mm2py.dr.journal import JournalEntry, standing_entry
from mm2py.dr.states import RecoveryState
from mm2py.errors import Mm2Error

KEPT: Final = "switch"
"""Under this name in ``kept`` of a run's first entry."""
S = RecoveryState
BEFORE_THE_HOOK: Final = frozenset(
    {S.FENCING, S.FENCED, S.FENCE_VERIFIED, S.DRAINED, S.GROUPS_FINAL, S.SWITCHING}
    | {S.CUTTING_OFF, S.CUT_OFF, S.GROUPS_PLACED, S.FAILING_OVER}
)
"""A run that goes on from here runs the hook."""


class HookForgotten(Mm2Error):
    """A run began with a switch hook, and a call that goes on with it names none."""

    def __init__(self, last: JournalEntry, program: str) -> None:
        super().__init__(
            f"The {last.verb} of {last.flow} was begun with a switch hook, {program}, and this call names none: nobody"
            f" would send clients to {last.flow.target}. Nothing was changed.",
            remedy="Name the command again: --hook-switch CMD. To send them by hand: --hook-switch true.",
        )


def switch_kept(words: Sequence[str]) -> dict[str, Any]:
    """Return what the first entry of a run keeps of its hook, whose words are ``words``."""
    return {KEPT: words[0] if words else ""}


def refuse_without_switch(entries: Sequence[JournalEntry], words: Sequence[str]) -> None:
    """Raises: HookForgotten, if the run that stands was begun with a hook, has not run it, and ``words`` are none."""
    last = standing_entry(entries)
    if words or last is None or last.state not in BEFORE_THE_HOOK:
        return
    kept = [str(one.kept[KEPT]) for one in entries if one.run == last.run and KEPT in one.kept]
    if kept and kept[-1]:
        raise HookForgotten(last, kept[-1])
