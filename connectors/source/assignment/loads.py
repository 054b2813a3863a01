"""What each partition of a task carries, in bytes/s: by that the group spreads partitions over its workers.

Answers to nothing in MM2, which spreads partitions by their number.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mm2py.clock import Clock
from mm2py.group.ownership import Key, Ownership
from mm2py.replication.copying.copied_partition import CopiedPartition
from mm2py.replication.copying.states import Reconciling, Storing

BEFORE_COPYING: Final = (Reconciling, Storing)
MEASURE_EVERY_S: Final = 5.0
HALF_LIFE_S: Final = 30.0
"""A burst counts half after so long: partitions are not to follow every wave."""
SETTLED_S: Final = HALF_LIFE_S / math.log(2)
"""Over so many seconds goes what has been measured for ever: with their weight, which fades, they add up to this."""


@dataclass(slots=True)
class _Measured:
    """What a partition carried: ``carried`` bytes in ``over_s`` seconds, of which both fade alike."""

    carried: float = 0.0
    over_s: float = 0.0
    part: CopiedPartition | None = None
    copied: int = 0
    """What of ``part`` was copied when it was looked at last."""


class Loads:
    """Measures until cancelled.

    The story: of two equal workers one gives half of its partitions to a third. Did these begin with nothing carried,
    they would look idle for a minute: the next worker that joins would relieve the wrong one. So a partition begins
    with what its last owner told of it; one of which nobody has told is measured over its own time only.
    """

    def __init__(self, partitions: Mapping[Key, CopiedPartition], ownership: Ownership, clock: Clock) -> None:
        self._partitions = partitions
        self._ownership = ownership
        self._clock = clock
        self._measured: dict[Key, _Measured] = {}

    async def run(self) -> None:
        before_s = self._clock.monotonic()
        while True:
            await asyncio.sleep(MEASURE_EVERY_S)
            now_s = self._clock.monotonic()
            self.measure(now_s - before_s)
            before_s = now_s

    def measure(self, passed_s: float) -> None:
        """Take in what was copied in the last ``passed_s`` seconds, and tell the group."""
        keeps = math.exp2(-passed_s / HALF_LIFE_S)
        measured: dict[Key, _Measured] = {}
        for key, part in self._partitions.items():
            copied = part.copier.tally.bytes
            one = measured[key] = self._measured.get(key) or self._begun(key)
            was_copied = not isinstance(part.copier.state, BEFORE_COPYING)
            if one.part is part and was_copied:  # else it was not copied all that time
                one.carried = one.carried * keeps + copied - one.copied
                one.over_s = one.over_s * keeps + passed_s
            one.part, one.copied = part, copied
        self._measured = measured
        self._ownership.measure({key: one.carried / one.over_s for key, one in measured.items() if one.over_s})

    def _begun(self, key: Key) -> _Measured:
        told = self._ownership.load_of(key)
        return _Measured() if told is None else _Measured(told * SETTLED_S, SETTLED_S)
