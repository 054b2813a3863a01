"""What is done about a gap: the policies ``on.source.gap`` and ``on.target.loss``. Pure.

Answers to what MirrorMaker 2 leaves to ``auto.offset.reset``: it begins at the earliest record and says nothing.
"""

from __future__ import annotations

from typing import Final

from mm2py.config.settings import SourcePolicy, TargetPolicy
from mm2py.records.status_record import Done, GapKind

_DONE: Final[dict[SourcePolicy, Done]] = {
    "stop": Done.STOPPED,
    "continue": Done.CONTINUED,
    "restart": Done.RESTARTED,
}


def decide(kind: GapKind, *, on_source_gap: SourcePolicy | None, on_target_loss: TargetPolicy) -> Done:
    """Return what is to be done about a gap.

    Args:
        on_source_gap: None where nobody has set it. Expired records are then passed over, as stopping would let
            retention eat more of them; what may have been replaced by something else waits for an operator.
    """
    if kind.is_of_target:
        return Done.RESTARTED if on_target_loss == "recopy" else Done.STOPPED
    if kind is GapKind.DELETED:
        return Done.KEPT
    if kind.is_unexpected:
        return Done.STOPPED
    if on_source_gap is not None:
        return _DONE[on_source_gap]
    return Done.CONTINUED if kind is GapKind.EXPIRED else Done.STOPPED
