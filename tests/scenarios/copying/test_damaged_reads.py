"""One bit of a source broker's reply is flipped, at every place of a batch that its checksum covers.

The next reply brings the batch undamaged. So no operator is needed, and no record may be missing, repeated or moved.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

import pytest

from tests.fakes.faults import Faults, FaultSource
from tests.fakes.virtual_time import run_virtual
from tests.scenarios.world import World

READS = [(1, 0), (4, 0), (4, 1), (4, 3)]
"""The number of batches, and the index of the damaged one."""
RECORDS = 5
DEADLINE_S = 10.0
GIVEN_UP_S = 120.0
"""A damaged batch is read again three times a second; after 30 s a partition that waits is visible."""
FIELDS = [
    pytest.param(range(16, 17), id="magic"),
    pytest.param(range(17, 21), id="checksum"),
    pytest.param(range(21, 29), id="attributes and timestamp"),
]


class _OneBit:
    """Flips one bit of the first records that are read."""

    def __init__(self, number: int, at: int, bit: int) -> None:
        self._number, self._at, self._bit = number, at, bit
        self.struck = False

    def flip(self, records: memoryview) -> None:
        if not self.struck:
            start = 0
            for _ in range(self._number):
                start += 12 + int.from_bytes(records[start + 8 : start + 12])
            records[start + self._at] ^= 1 << self._bit
            self.struck = True


def _outcome(monkeypatch: pytest.MonkeyPatch, batches: int, number: int, at: int, bit: int) -> str:
    """Flip a bit of batch ``number`` at byte ``at``, and return what went wrong, or ""."""

    async def scenario() -> str:
        world = World(8 * at + bit)
        world.source.create_topic("orders", 1)
        for first in range(batches):
            world.source.append("orders", 0, [b"%d-%d" % (first, record) for record in range(RECORDS)])
        spoiled = _OneBit(number, at, bit)
        monkeypatch.setattr(FaultSource, "flip_bit", lambda _, records: spoiled.flip(records))
        world.source.inject(Faults(flip_bit=1.0))
        found: list[str] = []
        async with world.worker():
            for _ in range(2):
                begun_s = world.clock.monotonic()
                with suppress(TimeoutError):
                    await world.copied({"orders": "A.orders"}, deadline_s=GIVEN_UP_S)
                took_s = world.clock.monotonic() - begun_s
                if took_s > DEADLINE_S:
                    found.append("it stands still" if took_s >= GIVEN_UP_S else "it waits for an operator")
                world.source.append("orders", 0, [b"behind it"])
            await asyncio.sleep(DEADLINE_S)
        assert spoiled.struck
        named = [line for line in world.log_text.getvalue().splitlines() if " source.damaged " in line]
        if len(named) != 1:
            found.append(f"it is named {len(named)} times")
        if any("topic=orders" not in line or "partition=0" not in line for line in named):
            found.append("the log does not say where it was")
        (verdict,) = world.judge("orders", "A.orders", exact=True)
        return ", ".join(found + sorted(verdict.breaches))

    return run_virtual(scenario(), limit_s=600)


@pytest.mark.parametrize("field", FIELDS)
def test_a_read_with_one_flipped_bit_is_read_again(monkeypatch: pytest.MonkeyPatch, field: range) -> None:
    """F43."""
    places = [(*read, at, bit) for read in READS for at in field for bit in {at % 8, (at + 5) % 8}]
    wrong = {place: text for place in places if (text := _outcome(monkeypatch, *place))}
    assert not wrong, f"{len(wrong)} of {len(places)}: {Counter(wrong.values())}"
