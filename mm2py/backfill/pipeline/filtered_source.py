"""The source cluster as a filtered backfill's copier sees it: fetches are answered with the rows that Spark has kept.

All other requests go to the brokers. The rows come once and in order. The last 64 MiB of them stay in memory, because
the copier reads some rows twice: first to find out what earlier attempts have copied, then to copy.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pyarrow as pa

from mm2py.backfill.pipeline.kept_batches import KeptBatch, batches_of_rows, empty_batches
from mm2py.errors import Mm2Error
from mm2py.kafka.port import BrokerId, Brokers, FetchedPartition, FetchReply, FetchRequest, TopicPartition
from mm2py.records.backfill_record import Range

WINDOW_BYTES: Final = 64 << 20
"""How many bytes of fetched rows are kept, so that they can be fetched once more."""
WAIT_S: Final = 0.5
"""How long a fetch waits for rows."""


class RowsPassed(Mm2Error):
    """The copier wants records again that are not kept any more. Spark passes its rows only once."""


NextRows = Callable[[], Awaitable[pa.RecordBatch | None]]
"""Returns the next rows; None: there are no more."""


class FilteredSource:
    """See ``Brokers``."""

    def __init__(
        self,
        brokers: Brokers,
        key: TopicPartition,
        wanted: Range,
        next_rows: NextRows,
        *,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        """Make one for a partition.

        Args:
            brokers: the real ones.
            wanted: the offsets that are copied.
            next_rows: returns the rows of the range that Spark kept, in order. They may begin after the start of the
                range, but not after the first offset that is fetched.
        """
        self._brokers = brokers
        self._key = key
        self._wanted = wanted
        self._next_rows = next_rows
        self._window_bytes = window_bytes
        self._kept: deque[KeptBatch] = deque()
        self._kept_bytes = 0
        self._begin = wanted.first
        """Rows before this offset were fetched, and are not kept any more."""
        self._behind = -1
        """The offset after the last row that came."""
        self._is_over = False
        self._pulling: asyncio.Task[None] | None = None

    async def send(self, broker: BrokerId, request: Any, *, channel: str = "control") -> Any:
        """See ``Brokers``.

        Raises:
            RowsPassed: a fetch wants rows that are not kept any more. The next attempt reads them again.
        """
        if isinstance(request, FetchRequest) and [topic.name for topic in request.topics] == [self._key[0]]:
            return await self._fetch(request)
        return await self._brokers.send(broker, request, channel=channel)

    def round_trip_s(self, broker: BrokerId) -> float | None:
        """Return None: the rows are in this process, so reading several ranges at once would gain nothing."""
        del broker
        return None

    def close_channel(self, broker: BrokerId, channel: str) -> None:
        """See ``Brokers.close_channel``."""
        self._brokers.close_channel(broker, channel)

    async def _fetch(self, request: FetchRequest) -> FetchReply:
        (part,) = request.topics[0].partitions
        offset = part.fetch_offset
        if part.partition != self._key[1]:
            raise AssertionError(f"the task of {self._key} has fetched partition {part.partition}")
        if offset < self._begin:
            raise RowsPassed(
                f"{self._key[0]}-{self._key[1]} is wanted again from offset {offset}, and is kept from {self._begin}.",
                remedy="The next attempt of the task begins there.",
            )
        if offset < self._wanted.seam and not self._has(offset):
            await self._pull()
        records = bytearray()
        fetched = offset
        for one in self._kept:
            if one.next_offset <= offset:
                continue
            if records and len(records) + len(one.data) > min(part.max_bytes, request.max_bytes):
                break
            records += one.data
            fetched = one.next_offset
        self._forget(before=offset)
        seam = self._wanted.seam
        found = FetchedPartition(*self._key, 0, seam, seam, min(self._wanted.first, fetched), memoryview(records))
        return FetchReply([found], size_bytes=len(records))

    def _has(self, offset: int) -> bool:
        return bool(self._kept) and self._kept[-1].next_offset > offset

    async def _pull(self) -> None:
        """Take the next rows, if they come in time. Raises: as ``batches_of_rows``; what ``next_rows`` raises."""
        if self._pulling is None:
            if self._is_over:
                return
            self._pulling = asyncio.create_task(self._take_next(), name="rows of Spark")
        pulling = self._pulling
        await asyncio.wait([pulling], timeout=WAIT_S)
        if pulling.done():
            if self._pulling is pulling:
                self._pulling = None
            await pulling

    async def _take_next(self) -> None:
        """Take the next rows; after the last ones come batches without records, which reach up to the seam."""
        rows = await self._next_rows()
        if rows is None:
            self._is_over = True
            found = [*empty_batches(max(self._behind, self._wanted.first), self._wanted.seam)]
        else:
            found = [*batches_of_rows(rows, *self._key, self._behind)]
        if found:
            self._behind = found[-1].next_offset
        self._kept += found
        self._kept_bytes += sum(len(one.data) for one in found)

    def _forget(self, *, before: int) -> None:
        """Drop fetched batches that do not fit into the window."""
        while self._kept_bytes > self._window_bytes and self._kept[0].next_offset <= before:
            gone = self._kept.popleft()
            self._begin = gone.next_offset
            self._kept_bytes -= len(gone.data)

    async def close(self) -> None:
        """Stop waiting for rows."""
        if self._pulling is not None:
            self._pulling.cancel()
            await asyncio.gather(self._pulling, return_exceptions=True)
