"""Keeps the ledger topic small: deletes chunks whose records both logs deleted, and the older half of large ledgers.

MirrorMaker 2 has no such topic. A ledger grows with each transaction; if several writers share a remote topic, it grows
with each batch. Only partitions with more than a few entries are checked.
"""

from __future__ import annotations

import random
from typing import Final

from structlog.typing import FilteringBoundLogger

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.copying.reading.ledger_table import LedgerTable, PlacedChunk
from mm2py.kafka.cluster import fetch_metadata
from mm2py.kafka.internal_topic import TopicWriter
from mm2py.kafka.list_offsets import EARLIEST, find_offsets
from mm2py.kafka.port import Brokers, TopicPartition
from mm2py.kafka.producer.incarnation import OwnProducer
from mm2py.records.batch import NewRecord
from mm2py.records.ledger_record import encode_deletion
from mm2py.topics.names import ledger_topic

FIRST_AFTER_S: Final = 60.0
EVERY_S: Final = 300.0


class LedgerUpkeep:
    """Looks at the ledgers of one flow every few minutes."""

    def __init__(
        self,
        settings: FlowSettings,
        ledgers: LedgerTable,
        source: Brokers,
        target: Brokers,
        *,
        clock: Clock,
        rng: random.Random,
        log: FilteringBoundLogger,
    ) -> None:
        """``target`` passes the gate of this worker's group."""
        self._settings = settings
        self._ledgers = ledgers
        self._source = source
        self._target = target
        self._clock = clock
        self._rng = rng
        self._log = log
        self._due_s = clock.monotonic() + FIRST_AFTER_S
        self._writer: TopicWriter | None = None
        self._limited: set[TopicPartition] = set()
        """Partitions whose ledger became too large; each was logged once."""

    async def run_if_due(self) -> None:
        """Delete what is not needed any more, if some minutes have passed.

        Raises:
            KafkaError: a cluster did not answer. It is tried again after the same time.
            NewerLedgerFormat: as ``LedgerTable.follow``.
        """
        now_s = self._clock.monotonic()
        if now_s < self._due_s:
            return
        self._due_s = now_s + EVERY_S
        await self._ledgers.follow()
        outdated = await self._outdated()
        if not outdated:
            return
        await self._delete(outdated)
        self._log.info("ledger.trimmed", chunks=len(outdated))

    async def _outdated(self) -> list[PlacedChunk]:
        keys = self._ledgers.large()
        if not keys:
            return []
        remote = {key: (self._settings.remote_topic(key[0]), key[1]) for key in keys}
        source_starts = await _starts(self._source, keys)
        target_starts = await _starts(self._target, list(remote.values()))
        found: list[PlacedChunk] = []
        for key in keys:
            trimmed: list[PlacedChunk] = []
            if key in source_starts and remote[key] in target_starts:
                trimmed = self._ledgers.trim(key, source_starts[key], target_starts[remote[key]])
            found += trimmed or self._limit(key)
        return found

    def _limit(self, key: TopicPartition) -> list[PlacedChunk]:
        found = self._ledgers.limit(key)
        if found and key not in self._limited:
            self._limited.add(key)
            self._log.warning(
                "ledger.limited",
                topic=key[0],
                partition=key[1],
                why="it has about a million entries; several writers in one remote topic are the usual reason",
                effect="a group that lags further behind than its newer half is translated by offset syncs",
            )
        return found

    async def _delete(self, outdated: list[PlacedChunk]) -> None:
        if self._writer is None:
            producer = OwnProducer(self._target, None, rng=self._rng)
            await producer.ask()
            self._writer = TopicWriter(
                self._target,
                ledger_topic(self._settings.flow.source),
                producer,
                rng=self._rng,
                timeout_ms=int(self._settings.target_request_timeout_s * 500),
                channel="checkpoints",
                waits_for_topic=False,
            )
        now_ms = self._clock.wall_ms()
        records: dict[int, list[NewRecord]] = {}
        for one in outdated:
            records.setdefault(one.ledger_partition, []).append(encode_deletion(one.key, now_ms))
        await self._writer.write(records)


async def _starts(brokers: Brokers, keys: list[TopicPartition]) -> dict[TopicPartition, int]:
    metadata = await fetch_metadata(brokers, sorted({topic for topic, _ in keys}))
    return await find_offsets(brokers, {key: metadata.leader_of(*key) for key in keys}, EARLIEST)
