"""Compares both logs of a partition, and writes the part of its ledger that is missing. MirrorMaker 2 has no ledger."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.copying.planning.steps import Step
from mm2py.copying.reading.limits import RateLimit
from mm2py.copying.reading.log_reader import LogReader, PlannedStretch
from mm2py.flow import ClusterAlias
from mm2py.kafka import internal_topic
from mm2py.kafka.cluster import fetch_metadata, until_answered
from mm2py.kafka.error_codes import OFFSET_OUT_OF_RANGE
from mm2py.kafka.internal_topic import TopicWriter
from mm2py.kafka.port import Brokers, FetchedPartition
from mm2py.kafka.write_gate import gated_alone
from mm2py.offsets.rebuilt_ledger import RebuiltLedger
from mm2py.rebuilding.pairing import ComparedLog, NotRebuildable, Pairing
from mm2py.rebuilding.short_ledgers import MissingPart
from mm2py.records.batch import NewRecord
from mm2py.records.source_offset import SourcePartition, partition_for
from mm2py.topics.names import InternalTopic, ledger_topic

CHANNEL: Final = "rebuild"
PATIENCE_S: Final = 3.0
"""How long a log may seem too short: a new leader's high watermark lags."""
RECORDS_AT_ONCE: Final = 100
"""How many chunks are written within one deadline."""

T = TypeVar("T")


class Within(Protocol):
    """Runs a request to a cluster, and returns its result; raises if the request takes too long."""

    async def __call__(self, cluster: ClusterAlias, work: Coroutine[Any, Any, T], doing: str, /) -> T: ...


class LedgerRebuild:
    """Rebuilds the ledgers of one flow, one partition after another. Workers may copy meanwhile."""

    def __init__(
        self,
        settings: FlowSettings,
        source: Brokers,
        target: Brokers,
        *,
        clock: Clock,
        rng: random.Random,
        bytes_per_second: int | None,
        within: Within,
    ) -> None:
        """``bytes_per_second`` limits what is read of both logs together."""
        self._settings = settings
        self._target = gated_alone(target, clock)
        self._clock = clock
        self._rng = rng
        self._rate = RateLimit(bytes_per_second)
        self._within = within
        self._readers = (
            LogReader(source, read_committed=settings.read_committed, rng=rng, channel=CHANNEL),
            LogReader(target, read_committed=True, rng=rng, channel=CHANNEL),
        )
        self._writer: tuple[TopicWriter, int] | None = None
        """The writer, and how many partitions the ledger topic has."""

    async def rebuild(self, part: MissingPart, progress: Callable[[int], object]) -> RebuiltLedger:
        """Compare both logs of a partition, and write the ledger if they agree.

        Args:
            progress: called with the source offset up to which the logs were compared.
        Raises:
            NotRebuildable: the logs do not agree; nothing was written.
            Mm2Error: of ``within``; or the target refuses the chunks.
        Cancelling before the first chunk is written leaves nothing. Cancelling later may leave the older part of the
        ledger, which is correct.
        """
        ledger = RebuiltLedger(part.of, part.number)
        flow, number = self._settings.flow, part.of.partition
        pairing = Pairing(
            ComparedLog(f"{part.of.topic}-{number} on {flow.source}", part.source_end),
            ComparedLog(f"{part.remote_topic}-{number} on {flow.target}", part.target_end),
            ledger,
        )
        source = _LogReading(part.of.topic, part.of.source_topic_id, number, self._settings.read_committed, self._clock)
        target = _LogReading(part.remote_topic, part.of.target_topic_id, number, True, self._clock)
        while (wanted := pairing.wanted()) is not None:
            is_target = wanted is pairing.target
            await self._read(target if is_target else source, wanted, is_target=is_target)
            progress(pairing.source.next_offset)
        await self._write(part, ledger.finish(part.source_end))
        return ledger

    async def _read(self, stretch: _LogReading, log: ComparedLog, *, is_target: bool) -> None:
        flow = self._settings.flow
        await asyncio.sleep(self._rate.wait_s(self._clock.monotonic()))
        stretch.steps, stretch.fetched_bytes = [], 0
        work = self._readers[is_target].read([stretch], lambda _: None)
        await self._within(flow.target if is_target else flow.source, work, f"reading {log.name}")
        self._rate.spend(stretch.fetched_bytes, self._clock.monotonic())
        if not stretch.steps:
            raise NotRebuildable(f"{log.name} cannot be read at offset {stretch.offset}: {stretch.why}")
        log.take(stretch.steps)

    async def _write(self, part: MissingPart, records: list[NewRecord]) -> None:
        if self._writer is None:
            opening = until_answered(self._open, rng=self._rng)
            self._writer = await self._within(self._settings.flow.target, opening, "opening the ledger topic")
        writer, partitions = self._writer
        to = partition_for(SourcePartition(self._settings.flow.source, *part.key), partitions)
        for at in range(0, len(records), RECORDS_AT_ONCE):
            work = writer.write({to: records[at : at + RECORDS_AT_ONCE]})
            await self._within(self._settings.flow.target, work, f"writing to {writer.topic}")

    async def _open(self) -> tuple[TopicWriter, int]:
        settings = self._settings
        topic = InternalTopic(ledger_topic(settings.flow.source), settings.offsets_topic_partitions)
        writer = await internal_topic.open_writer(
            self._target,
            topic,
            settings.offsets_topic_replication_factor,
            setting="offset.storage.replication.factor",
            made=lambda: None,
            rng=self._rng,
            timeout_ms=int(settings.target_request_timeout_s * 500),
            channel=CHANNEL,
        )
        found = (await fetch_metadata(self._target, [str(topic.name)])).topics[str(topic.name)]
        return writer, len(found.partitions)


class _LogReading(PlannedStretch):
    """One log, from its first offset on. Each read returns the next part of it."""

    def __init__(
        self, topic: str, topic_id: uuid.UUID | None, partition: int, read_committed: bool, clock: Clock
    ) -> None:
        super().__init__(
            topic, topic_id, partition, offset=0, read_committed=read_committed, clock=clock, transforms=None
        )
        self.steps: list[Step] = []
        """The steps of the last read."""
        self.fetched_bytes = 0
        self.why = "its topic is gone, or mm2py has no READ on it"
        """Why the last read has brought no steps."""

    def take(self, fetched: FetchedPartition) -> bool:
        """The read is over with the first steps, or when it is given up."""
        self.fetched_bytes += len(fetched.records)
        if fetched.error_code == OFFSET_OUT_OF_RANGE:
            self.why = "records were deleted meanwhile"
            return True
        planned = self.planned
        self.steps = planned.steps
        if self.steps or self._is_patient(PATIENCE_S):
            return bool(self.steps)
        if planned.fault is not None:
            self.why = planned.fault.text.rstrip(".")
        elif self.read_committed and self.offset < fetched.high_watermark:
            self.why = "a transaction is open there"
        else:
            self.why = f"it ends at {fetched.high_watermark}"
        return True
