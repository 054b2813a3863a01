"""How the batches of a partition travel: passed as they are, repacked or rebuilt. Pure.

Any worker's REST tells it of all partitions: the owner stores how the last batch travelled with the position.
Counterpart: none; MirrorMaker 2 decodes every record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from mm2py.records.source_offset import StoredPosition

AS_IT_IS = frozenset({"pass", "repack"})


def mode_of(position: StoredPosition | None) -> str | None:
    """Return ``pass``, ``repack``, or ``rebuild: `` and the reason; None: nothing was copied since it is stored."""
    if position is None or not position.mode:
        return None
    return position.mode if position.mode in AS_IT_IS else f"rebuild: {position.mode}"


def modes_of(positions: Iterable[StoredPosition | None]) -> Mapping[str, int]:
    """Return how many partitions have each mode, the most frequent first."""
    modes = Counter(mode for position in positions if (mode := mode_of(position)) is not None)
    return dict(sorted(modes.items(), key=lambda one: (-one[1], one[0])))
