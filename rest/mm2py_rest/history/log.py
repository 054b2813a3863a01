"""The history of one flow: ``mm2-history.A.internal`` as a table in memory, and a writer for the coordinator.

The writer has a plain producer id, without a fence. Two coordinators for a moment do no harm: they observe the same
clusters, and the point that is written last counts.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.config.internal_topics import numbers_topic
from mm2py.config.settings import FlowSettings
from mm2py.copying.reading.internal_table import TopicTable
from mm2py.errors import Mm2Error
from mm2py.flow_history.rings import FlowHistory
from mm2py.kafka.cluster import TopicMetadata, fetch_metadata
from mm2py.kafka.error_codes import UNKNOWN_TOPIC_OR_PARTITION
from mm2py.kafka.errors import BrokerRefused
from mm2py.kafka.internal_topic import TopicWriter, open_writer
from mm2py.records.batch import NewRecord
from mm2py.records.flow_history_record import (
    HistoryRecord,
    MalformedHistory,
    decode_history_record,
    encode_history_record,
)
from mm2py_rest.events.sources import ToBrokers

READ_MOST_S: Final = 5.0
WRITE_MOST_S: Final = 5.0


class HistorySilent(Mm2Error):
    """The topic of the history does not answer in time."""

    def __init__(self, topic: str, doing: str, within_s: float) -> None:
        super().__init__(f"{doing} {topic} took more than {within_s:g} s.", remedy="Look at the target cluster.")


class HistoryLog(TopicTable):
    """The history of one flow."""

    def __init__(
        self, settings: FlowSettings, target: ToBrokers, *, clock: Clock, rng: random.Random, log: FilteringBoundLogger
    ) -> None:
        super().__init__()
        self.settings = settings
        self.history = FlowHistory()
        self.unread = ""
        """Why it could not be read the last time; empty: it could."""
        self.unwritten = ""
        """Why this process could not write its last point; empty: it could, or another one writes."""
        self._wanted = numbers_topic(settings)
        self._topic = str(self._wanted.topic.name)
        self._target = target
        self._clock = clock
        self._rng = rng
        self._log = log
        self._metadata: TopicMetadata | None = None
        self._reading = asyncio.Lock()
        self._writer: TopicWriter | None = None

    @property
    def problem(self) -> str:
        """Why it cannot be read or written now; empty: it can."""
        return self.unread or self.unwritten

    async def read(self) -> None:
        """Read what was written since the last call. Raises: Mm2Error, see ``unread``."""
        try:
            async with asyncio.timeout(READ_MOST_S), self._reading:
                await self._read_on()
        except (Mm2Error, TimeoutError) as error:
            self._metadata = None  # its leaders may have moved
            found = self._told(error, "Reading", READ_MOST_S)
            self.unread = str(found)
            raise found from error
        self.unread = ""

    async def _read_on(self) -> None:
        brokers = self._target()
        if self._metadata is None:
            found = (await fetch_metadata(brokers, [self._topic])).topics.get(self._topic)
            if found is None or found.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                return  # nothing has been written yet
            if found.error_code:
                remedy = f"mm2py needs DESCRIBE and READ on {self._topic}."
                raise BrokerRefused(f"Reading {self._topic}", found.error_code, remedy=remedy)
            self._metadata = found
        await self._follow(brokers, self._metadata)

    async def write(self, records: Sequence[HistoryRecord], now_ms: int) -> None:
        """Write records; the topic is made if there is none.

        Raises: Mm2Error, see ``unwritten``; some may have been written.
        """
        flow = str(self.settings.flow)
        made = [NewRecord(*encode_history_record(flow, record), now_ms) for record in records]
        try:
            async with asyncio.timeout(WRITE_MOST_S):
                if self._writer is None:
                    self._writer = await self._open()
                await self._writer.write({0: made})
        except (Mm2Error, TimeoutError) as error:
            self._writer = None  # the next one sends nothing that this one has left: its time is over
            found = self._told(error, "Writing to", WRITE_MOST_S)
            self.unwritten = str(found)
            raise found from error
        self.unwritten = ""

    def _told(self, error: Mm2Error | TimeoutError, doing: str, within_s: float) -> Mm2Error:
        return error if isinstance(error, Mm2Error) else HistorySilent(self._topic, doing, within_s)

    async def _open(self) -> TopicWriter:
        return await open_writer(
            self._target(),
            self._wanted.topic,
            self._wanted.replication_factor,
            setting=self._wanted.setting,
            made=lambda: self._log.info("history.topic_made", name=self._topic),
            rng=self._rng,
            timeout_ms=int(WRITE_MOST_S * 500),
            channel="history",
        )

    def _clear(self) -> None:
        self.history = FlowHistory()

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        with suppress(MalformedHistory):
            if (record := decode_history_record(str(self.settings.flow), key, value)) is not None:
                self.history.take(record)
