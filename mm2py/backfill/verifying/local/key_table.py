"""The latest records of the keys of compacted partitions, sorted on disk.

A compacted partition is compared when all of it was read, and may have more keys than memory has room for. So what each
range found goes to a temporary database of SQLite. It holds digests of keys and records, and no content. No other
process can open it, and nothing of it is left when this one ends, however it ends.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Final, TypeVar

from mm2py.backfill.verifying.latest import LATER_PLACE, DifferingKeys, LatestRecord, LatestRecords
from mm2py.backfill.verifying.places import SOURCE, TARGET
from mm2py.errors import Mm2Error
from mm2py.kafka.port import TopicPartition

CACHE_KIB: Final = 64 << 10
"""How much of the table SQLite keeps in memory, and how much it sorts in memory at once."""
STEPS_A_LOOK: Final = 100_000
"""After so many of its steps SQLite looks whether it is to stop."""
T = TypeVar("T")
StoredKey = tuple[int, bytes, int, int, bytes | None]
"""Number of the partition, digest of the key, side, place, digest of the record."""
_NO_RECORD: Final = LatestRecord(-1, None)


class NoRoomForKeys(Mm2Error):
    """The keys of compacted topics could not be sorted on disk."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"The keys of compacted topics cannot be sorted on disk: {why}.",
            remedy="Set SQLITE_TMPDIR to a folder with more room, or let Spark do it, without --local.",
        )


class KeyTable:
    """Collects the keys of ranges, and compares them at the end. All calls but ``close`` work in a thread."""

    def __init__(self) -> None:
        self._table = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._numbers: dict[TopicPartition, int] = {}
        self._is_stopped = False
        self._table.set_progress_handler(lambda: self._is_stopped, STEPS_A_LOOK)
        for statement in (
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            "PRAGMA temp_store = FILE",
            f"PRAGMA cache_size = -{CACHE_KIB}",
            "CREATE TABLE latest (number INTEGER, key BLOB, side INTEGER, place INTEGER, digest BLOB)",
        ):
            self._table.execute(statement)

    async def add(self, found: LatestRecords) -> None:
        """Add what was found in a range.

        Raises:
            NoRoomForKeys: the disk is full.
        Cancelling makes the table useless: close it.
        """
        of = found.range
        number = self._numbers.setdefault((of.topic, of.partition), len(self._numbers))
        await self._in_thread(lambda: self._add(number, found))

    async def differing(self) -> dict[TopicPartition, DifferingKeys]:
        """Return what differs, by partition. Raises, and cancelling: as ``add``."""
        found = await self._in_thread(self._differing)
        return {key: found[number] for key, number in self._numbers.items() if number in found}

    def close(self) -> None:
        """Remove the table."""
        self._table.close()

    def _add(self, number: int, found: LatestRecords) -> None:
        self._table.execute("BEGIN")
        self._table.executemany("INSERT INTO latest VALUES (?, ?, ?, ?, ?)", self._rows(number, found))
        self._table.execute("COMMIT")

    def _rows(self, number: int, found: LatestRecords) -> Iterator[StoredKey]:
        for side, latest in enumerate(found.sides):
            for key, one in latest.items():
                if self._is_stopped:
                    return
                yield number, key, side, one.place, one.digest

    def _differing(self) -> dict[int, DifferingKeys]:
        # SQLite takes a column that is in no aggregate, digest, from the row that has the largest place
        rows = self._table.execute(
            "SELECT number, key, side, max(place), digest FROM latest GROUP BY number, key, side"
            " ORDER BY number, key, side"
        )
        return differing_keys(rows)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        working = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            self._is_stopped = True
            await asyncio.wait([working])  # the table may be closed only when no thread works with it
            working.exception()
            raise
        except sqlite3.Error as error:
            raise NoRoomForKeys(str(error)) from error


def differing_keys(rows: Iterable[StoredKey]) -> dict[int, DifferingKeys]:
    """Return what differs, by the number of the partition; partitions without a difference are left out.

    Args:
        rows: the latest record of each key and side, ascending by partition, key and side.
    """
    found: dict[int, DifferingKeys] = {}
    for (number, _), of_key in groupby(rows, key=lambda row: row[:2]):
        sides = {side: LatestRecord(place, digest) for _, _, side, place, digest in of_key}
        source, target = (sides.get(side, _NO_RECORD) for side in (SOURCE, TARGET))
        if source.digest == target.digest or max(source.place, target.place) >= LATER_PLACE:
            continue
        first = DifferingKeys(1, *(None if one is _NO_RECORD else one.place for one in (source, target)))
        known = found.get(number)
        if known is not None:
            first = min(known, first, key=_order)._replace(key_count=known.key_count + 1)
        found[number] = first
    return found


def _order(one: DifferingKeys) -> tuple[int, int, int]:
    """Return where a difference is: by its first place; at the same place one without a source record comes first."""
    places = [-1 if place is None else place for place in (one.source_place, one.target_place)]
    return min(place for place in places if place >= 0), places[0], places[1]
